//! Texts of one request a line, in columns: the engine behind `layouts` and `--columns`.

use super::text::{name_and_pid, number, scaled, time};
use super::{Bad, ImportOptions, Line, Out, Parser, Sample};
use crate::error::{LabError, Result};
use crate::trace::model::{Flags, Op, Record};

/// 1970 in Windows' FILETIME.
const FILETIME_1970: u64 = 116_444_736_000_000_000;

/// Content of a column. Numbers are units in nanoseconds or bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Skip,
    Time(u64),
    /// Windows' FILETIME: 100 ns since 1601.
    FileTime,
    Op,
    Offset(u64),
    /// The number of a page, as cache simulators have it: [`page_of_object`].
    Object,
    Len(u64),
    Latency(u64),
    Device,
    Process,
    Thread,
    ProcessName,
    /// `name-pid`; the number is missing where the name was cut at a blank.
    NameAndPid,
    File,
    /// A truth value.
    Sync,
    /// Lines with another word here are passed over.
    Only(&'static str),
}

/// A text format in columns.
pub(super) struct Layout {
    /// None: any white space.
    pub(super) separator: Option<char>,
    /// Prefix of the first line.
    pub(super) header: Option<&'static str>,
    pub(super) columns: Vec<Column>,
    /// Columns that may be absent at the end.
    pub(super) optional: usize,
    /// More columns than these may follow.
    pub(super) more: bool,
    pub(super) op: fn(&str) -> Option<Op>,
    /// Lengths above 4096 are rounded down to a multiple of it.
    pub(super) round_len: bool,
}

impl Layout {
    pub(super) fn new(separator: Option<char>, columns: Vec<Column>) -> Layout {
        Layout {
            separator,
            header: None,
            columns,
            optional: 0,
            more: false,
            op: op_of_word,
            round_len: false,
        }
    }

    pub(super) fn fits(&self, sample: &Sample<'_>) -> bool {
        match self.header {
            Some(header) => sample.lines.first().is_some_and(|line| line.starts_with(header)),
            None => sample.most(|line| self.record(line, |_| Default::default()).is_ok()),
        }
    }

    fn split<'a>(&self, line: &'a str) -> Vec<&'a str> {
        match self.separator {
            Some(separator) => line.split(separator).map(str::trim).collect(),
            None => line.split_whitespace().collect(),
        }
    }

    /// The record of a line; none for lines that are passed over.
    fn record(
        &self,
        line: &str,
        mut intern: impl FnMut(&str) -> crate::trace::model::NameId,
    ) -> std::result::Result<Option<Record>, Bad> {
        let cells = self.split(line);
        let least = self.columns.len() - self.optional;
        if cells.len() < least || (cells.len() > self.columns.len() && !self.more) {
            return Err(Bad::Line(format!("{} columns, {least} expected", cells.len())));
        }
        let mut record = Record::new(0, Op::Read);
        for (column, cell) in self.columns.iter().zip(&cells) {
            let bad = || Bad::Line(format!("`{}` is no {}", short(cell), column.what()));
            let scaled = |unit: u64| scaled(cell, unit).ok_or_else(bad);
            match column {
                Column::Skip => {}
                Column::Time(unit) => record.time_ns = time(cell, *unit).ok_or_else(bad)?,
                Column::FileTime => {
                    let ticks = number(cell).and_then(|n| n.checked_sub(FILETIME_1970));
                    record.time_ns = ticks.and_then(|n| n.checked_mul(100)).ok_or_else(bad)?;
                }
                Column::Op => record.op = (self.op)(cell).ok_or_else(bad)?,
                Column::Offset(unit) => record.offset_bytes = scaled(*unit)?,
                Column::Object => {
                    let object = number(cell).ok_or_else(bad)?;
                    (record.device, record.offset_bytes) = page_of_object(object);
                }
                Column::Len(unit) => record.len_bytes = scaled(*unit)?,
                Column::Latency(unit) => record.latency_ns = Some(scaled(*unit)?),
                Column::Device => record.device = narrow(cell).ok_or_else(bad)?,
                Column::Process => record.process = narrow(cell).ok_or_else(bad)?,
                Column::Thread => record.thread = narrow(cell).ok_or_else(bad)?,
                Column::ProcessName => record.process_name = intern(cell),
                Column::NameAndPid => {
                    let (name, pid) = name_and_pid(cell).unwrap_or((cell, 0));
                    record.process = pid;
                    record.process_name = intern(if name == "<...>" { "" } else { name });
                }
                Column::File => record.file = intern(cell),
                Column::Sync => {
                    let set = truth(cell).ok_or_else(bad)?;
                    record.flags = record.flags.with(Flags::when(set, Flags::SYNC));
                }
                Column::Only(word) if cell == word => {}
                Column::Only(_) => return Ok(None),
            }
        }
        if self.round_len && record.len_bytes > 4096 {
            record.len_bytes -= record.len_bytes % 4096;
        }
        Ok(Some(record))
    }
}

/// Device and offset in bytes of an object of a cache simulator. Its lower half is the number of a
/// page of 4096 bytes; the upper half, of a hash or of a file that `trace export` numbered, tells
/// address spaces apart.
pub(super) fn page_of_object(object: u64) -> (u32, u64) {
    ((object >> 32) as u32, (object & u64::from(u32::MAX)) * 4096)
}

fn narrow(cell: &str) -> Option<u32> {
    number(cell).and_then(|n| u32::try_from(n).ok())
}

fn short(cell: &str) -> String {
    cell.chars().take(24).collect()
}

fn truth(cell: &str) -> Option<bool> {
    match cell.to_ascii_lowercase().as_str() {
        "true" | "1" | "y" | "yes" => Some(true),
        "false" | "0" | "n" | "no" | "" => Some(false),
        _ => None,
    }
}

impl Column {
    fn what(&self) -> &'static str {
        match self {
            Column::Time(_) | Column::FileTime => "time",
            Column::Op => "operation",
            Column::Offset(_) => "offset",
            Column::Len(_) => "length",
            Column::Latency(_) => "latency",
            Column::Sync => "truth value",
            _ => "number",
        }
    }

    /// A column by its name in `--columns`.
    fn by_name(name: &str) -> Option<Column> {
        let (what, unit) = name.rsplit_once('_').unwrap_or((name, ""));
        let time_ns = match unit {
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" => 1000,
            "100ns" => 100,
            _ => 1,
        };
        let bytes = match unit {
            "sectors" => 512,
            "pages" => 4096,
            "kib" => 1024,
            _ => 1,
        };
        let time = ["s", "ms", "us", "100ns", "ns"].contains(&unit);
        let size = ["bytes", "sectors", "pages", "kib"].contains(&unit);
        Some(match (what, name) {
            ("time", _) if time => Column::Time(time_ns),
            ("latency", _) if time => Column::Latency(time_ns),
            ("offset", _) if size => Column::Offset(bytes),
            ("len", _) if size => Column::Len(bytes),
            (_, "op") => Column::Op,
            (_, "device") => Column::Device,
            (_, "process") => Column::Process,
            (_, "thread") => Column::Thread,
            (_, "process_name") => Column::ProcessName,
            (_, "file") => Column::File,
            (_, "sync") => Column::Sync,
            (_, "-") => Column::Skip,
            _ => return None,
        })
    }
}

/// `R`, `write`, `28`: names of operations in use.
pub(super) fn op_of_word(word: &str) -> Option<Op> {
    Some(match word.to_ascii_lowercase().as_str() {
        "r" | "rs" | "read" | "irp_mj_read" => Op::Read,
        "w" | "ws" | "write" | "irp_mj_write" => Op::Write,
        "d" | "discard" | "trim" | "unmap" => Op::Discard,
        "f" | "flush" | "sync" => Op::Flush,
        _ => return None,
    })
}

/// 0 read, 1 write.
pub(super) fn op_write_is_one(word: &str) -> Option<Op> {
    match word {
        "0" => Some(Op::Read),
        "1" => Some(Op::Write),
        other => op_of_word(other),
    }
}

/// 0 write, 1 read.
pub(super) fn op_read_is_one(word: &str) -> Option<Op> {
    match word {
        "0" => Some(Op::Write),
        "1" => Some(Op::Read),
        _ => None,
    }
}

/// Operation codes of SCSI commands, hexadecimal.
pub(super) fn op_scsi(word: &str) -> Option<Op> {
    u8::from_str_radix(word, 16).ok().and_then(scsi_op)
}

/// The operation code of a SCSI command; `None` if it names no blocks.
pub(super) fn scsi_op(code: u8) -> Option<Op> {
    Some(match code {
        0x08 | 0x28 | 0x88 | 0xA8 => Op::Read,
        0x0A | 0x2A | 0x8A | 0xAA | 0x2E => Op::Write,
        0x35 | 0x91 => Op::Flush,
        0x42 => Op::Discard,
        _ => return None,
    })
}

/// Lines of a [`Layout`].
pub(super) struct Columns {
    layout: Layout,
    first: bool,
}

impl Columns {
    pub(super) fn new(layout: Layout) -> Columns {
        Columns { layout, first: true }
    }
}

impl Parser for Columns {
    fn line(&mut self, line: &str, out: &mut Out<'_>) -> Line {
        let first = std::mem::take(&mut self.first);
        if line.starts_with('#') || self.layout.header.is_some_and(|h| line.starts_with(h)) {
            return Ok(());
        }
        match self.layout.record(line, |name| out.names.intern(name)) {
            Ok(Some(record)) => out.push(record),
            Ok(None) => {
                out.pass_over();
                Ok(())
            }
            // A first line without a digit names the columns.
            Err(_) if first && !line.bytes().any(|b| b.is_ascii_digit()) => Ok(()),
            Err(bad) => Err(bad),
        }
    }
}

/// `--columns time_s,op,offset_sectors,len_bytes`, with the separator that the lines show.
pub(super) fn generic(options: &ImportOptions) -> Result<Box<dyn Parser>> {
    let list = options.columns.as_deref().unwrap_or_default();
    let mut columns = Vec::new();
    for name in list.split(',').map(str::trim) {
        let column = Column::by_name(name).ok_or_else(|| {
            LabError::Usage(format!(
                "`{name}` is no column; choose of time_s, time_ms, time_us, time_100ns, time_ns, \
                 op, offset_bytes, offset_sectors, offset_pages, len_bytes, len_sectors, \
                 len_pages, latency_us, device, process, thread, process_name, file, sync, and - \
                 for what is not used"
            ))
        })?;
        columns.push(column);
    }
    if !columns.iter().any(|column| matches!(column, Column::Offset(_))) {
        let text = "--columns has no offset; name one, such as offset_sectors".to_owned();
        return Err(LabError::Usage(text));
    }
    Ok(Box::new(Guessed { columns, inner: None }))
}

/// Columns whose separator the first line shows.
struct Guessed {
    columns: Vec<Column>,
    inner: Option<Columns>,
}

impl Parser for Guessed {
    fn line(&mut self, line: &str, out: &mut Out<'_>) -> Line {
        let inner = self.inner.get_or_insert_with(|| {
            let separator = [',', '\t', ';'].into_iter().find(|c| line.contains(*c));
            let mut layout = Layout::new(separator, std::mem::take(&mut self.columns));
            layout.op = op_write_is_one;
            layout.more = true;
            Columns::new(layout)
        });
        inner.line(line, out)
    }
}
