//! Exporters: records in the formats of other programs.
//!
//! | name | for |
//! |---|---|
//! | `fio` | fio --read_iolog, version 3 (microseconds); one file for a block trace |
//! | `blkparse-csv` | spreadsheets; read back by `import` |
//! | `libcachesim-csv` | libCacheSim: time-col=1, obj-id-col=2, obj-size-col=3, has-header=true |
//! | `oracle-general` | libCacheSim's binary format with the next access of each page |
//!
//! Cache simulators want pages: a request becomes an access for each of its 4096-byte pages. The
//! id of a page is its number on the device; of a file, the number of the file times 2^32 plus the
//! page in the file; of a second device likewise, in the order of first access. In a trace of block
//! requests the device counts, whatever the file; in other traces a file is a device of its own
//! where requests are wanted. Everything streams but `oracle-general`, which has to know the
//! future: it keeps 24 bytes an access. Tested in `lab/tests/trace/stat.rs` and
//! `lab/tests/trace/import.rs`.

use std::io::Write;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{LabError, Result};
use crate::trace::model::{Flags, Names, Op, Record, Sink, TraceKind};

const PAGE_BYTES: u64 = 4096;

/// A format that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// fio's iolog, version 3.
    Fio,
    /// A line a request.
    BlkparseCsv,
    /// A line a page access.
    LibcachesimCsv,
    /// 24 bytes a page access.
    OracleGeneral,
}

impl ExportFormat {
    /// Every format with its name.
    pub const ALL: [(&'static str, ExportFormat); 4] = [
        ("fio", ExportFormat::Fio),
        ("blkparse-csv", ExportFormat::BlkparseCsv),
        ("libcachesim-csv", ExportFormat::LibcachesimCsv),
        ("oracle-general", ExportFormat::OracleGeneral),
    ];

    /// The format of that name.
    pub fn by_name(name: &str) -> Result<ExportFormat> {
        let found = ExportFormat::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| *format).ok_or_else(|| {
            let names = ExportFormat::ALL.map(|(known, _)| known).join(", ");
            LabError::Usage(format!("unknown export format `{name}`; choose of {names}"))
        })
    }
}

/// Writes records in a foreign format: a [`Sink`].
pub struct Exporter<W: Write> {
    out: W,
    format: ExportFormat,
    kind: TraceKind,
    /// fio: files that were named.
    added: FxHashSet<String>,
    begun: bool,
    accesses: Vec<Access>,
    /// Index in `accesses` of the last access of a page.
    last: FxHashMap<u64, usize>,
    /// Devices in the order of their first access.
    devices: FxHashMap<u32, u64>,
}

struct Access {
    time_s: u32,
    id: u64,
    /// Place of the next access of the page; none: -1.
    next: i64,
}

fn failed(err: std::io::Error) -> LabError {
    LabError::io("writing the export")(err)
}

impl<W: Write> Exporter<W> {
    /// Writes records of a trace of `kind` to `out`.
    pub fn new(out: W, format: ExportFormat, kind: TraceKind) -> Exporter<W> {
        Exporter {
            out,
            format,
            kind,
            added: FxHashSet::default(),
            begun: false,
            accesses: Vec::new(),
            last: FxHashMap::default(),
            devices: FxHashMap::default(),
        }
    }

    /// Writes what is left and gives the writer back.
    pub fn finish(mut self) -> Result<W> {
        self.begin()?;
        for access in &self.accesses {
            let mut bytes = [0; 24];
            bytes[..4].copy_from_slice(&access.time_s.to_le_bytes());
            bytes[4..12].copy_from_slice(&access.id.to_le_bytes());
            bytes[12..16].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
            bytes[16..].copy_from_slice(&access.next.to_le_bytes());
            self.out.write_all(&bytes).map_err(failed)?;
        }
        self.out.flush().map_err(failed)?;
        Ok(self.out)
    }

    fn begin(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let header = match self.format {
            ExportFormat::Fio => "fio version 3 iolog\n",
            ExportFormat::BlkparseCsv => {
                "time_s,device,process,process_name,op,rwbs,sector,sectors,sync\n"
            }
            ExportFormat::LibcachesimCsv => "time,obj_id,obj_size,op\n",
            ExportFormat::OracleGeneral => "",
        };
        self.out.write_all(header.as_bytes()).map_err(failed)
    }

    fn fio(&mut self, names: &Names, record: &Record) -> Result<()> {
        let us = record.time_ns / 1000;
        let name = match names.get(record.file) {
            "" => "/dev/replayed".to_owned(),
            // A name ends at white space.
            name => name.replace(char::is_whitespace, "_"),
        };
        let action = match record.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Discard => "trim",
            Op::Fsync | Op::Flush => "sync",
            Op::Fdatasync => "datasync",
            _ => return Ok(()),
        };
        if !self.added.contains(&name) {
            let text = format!("{us} {name} add\n{us} {name} open\n");
            self.out.write_all(text.as_bytes()).map_err(failed)?;
            self.added.insert(name.clone());
        }
        let (offset, len) = (record.offset_bytes, record.len_bytes);
        let text = match record.op.has_range() {
            true if len == 0 => return Ok(()),
            true => format!("{us} {name} {action} {offset} {len}\n"),
            false => format!("{us} {name} {action}\n"),
        };
        self.out.write_all(text.as_bytes()).map_err(failed)
    }

    /// Number of the record's file, if that is what its addresses are in.
    fn file(&self, record: &Record) -> Option<u64> {
        let file = record.file.index().filter(|_| self.kind != TraceKind::Block);
        file.map(|index| index as u64 + 1)
    }

    fn line(&mut self, names: &Names, record: &Record) -> Result<()> {
        let op = match record.op {
            Op::Read => 'R',
            Op::Write => 'W',
            Op::Discard => 'D',
            Op::Flush => 'F',
            _ => return Ok(()),
        };
        let mark = |flag: Flags, letter: &'static str| {
            if record.flags.has(flag) { letter } else { "" }
        };
        let rwbs = [
            mark(Flags::PREFLUSH, "F"),
            op.encode_utf8(&mut [0; 4]),
            mark(Flags::FUA, "F"),
            mark(Flags::READAHEAD, "A"),
            mark(Flags::SYNC, "S"),
        ]
        .concat();
        let name = names.get(record.process_name).replace([',', '\n', '\r'], "_");
        let text = format!(
            "{}.{:09},{},{},{name},{op},{rwbs},{},{},{}\n",
            record.time_ns / 1_000_000_000,
            record.time_ns % 1_000_000_000,
            self.file(record).unwrap_or(record.device.into()),
            record.process,
            record.offset_bytes / 512,
            // Every sector that it touches.
            (record.offset_bytes % 512 + record.len_bytes).div_ceil(512),
            u8::from(record.flags.has(Flags::SYNC)),
        );
        self.out.write_all(text.as_bytes()).map_err(failed)
    }

    fn pages(&mut self, record: &Record) -> Result<()> {
        if record.len_bytes == 0 {
            return Ok(());
        }
        let next = self.devices.len() as u64;
        let device = *self.devices.entry(record.device).or_insert(next);
        let file = self.file(record).unwrap_or(device) << 32;
        let first = record.offset_bytes / PAGE_BYTES;
        let last = (record.offset_bytes + (record.len_bytes - 1)) / PAGE_BYTES;
        for page in first..=last {
            let (id, seconds) = (file.wrapping_add(page), record.time_ns / 1_000_000_000);
            if self.format == ExportFormat::LibcachesimCsv {
                let op = record.op.name();
                let text = format!("{seconds},{id},{PAGE_BYTES},{op}\n");
                self.out.write_all(text.as_bytes()).map_err(failed)?;
                continue;
            }
            let at = self.accesses.len();
            if let Some(before) = self.last.insert(id, at) {
                self.accesses[before].next = at as i64;
            }
            let time_s = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.accesses.push(Access { time_s, id, next: -1 });
        }
        Ok(())
    }
}

impl<W: Write> Sink for Exporter<W> {
    fn record(&mut self, names: &Names, record: &Record) -> Result<()> {
        self.begin()?;
        if record.failed() {
            return Ok(());
        }
        record.check()?;
        match self.format {
            ExportFormat::Fio => self.fio(names, record),
            ExportFormat::BlkparseCsv => self.line(names, record),
            _ if matches!(record.op, Op::Read | Op::Write) => self.pages(record),
            _ => Ok(()),
        }
    }
}
