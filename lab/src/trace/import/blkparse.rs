//! blkparse's default text: one event a line.
//!
//! ```text
//!   8,0    3       11     0.009507758   697  D  WS 223490 + 8 [kjournald]
//!   maj,min cpu  number  seconds        pid  action RWBS sector + sectors [process]
//! ```
//!
//! A request is taken when it is issued (action D) and gets its latency from its completion
//! (action C); other stages are passed over.

use rustc_hash::FxHashMap;

use super::text::{number, scaled};
use super::{Bad, ImportOptions, Line, Out, Parser, Sample};
use crate::error::Result;
use crate::trace::model::{Flags, NameId, Op, Record};

/// Requests that wait for their completion.
const PENDING_MAX: usize = 1 << 14;

pub(super) fn detect(sample: &Sample<'_>) -> bool {
    // A short trace has more lines of summary than of events.
    sample.lines.first().is_some_and(|line| fields(line).is_some())
        && sample.most(|line| fields(line).is_some() || is_summary(line))
}

/// The end: "CPU0 (sda):", " Reads Queued: ...", "Total (sda):".
fn is_summary(line: &str) -> bool {
    line.contains(':') || line.starts_with(' ') || line.starts_with("Input")
}

pub(super) fn parser(_: &ImportOptions) -> Result<Box<dyn Parser>> {
    Ok(Box::new(Blkparse { issued: Issued::default() }))
}

/// Major and minor number as one.
pub(super) fn device(major: u32, minor: u32) -> u32 {
    (major & 0xFFF) << 20 | minor & 0xF_FFFF
}

/// Meaning of a request's letters: operation, marks, whether it is metadata. The order of the
/// letters is that of the kernel's blk_fill_rwbs: F before the operation is a flush before, F after
/// it is FUA.
pub(crate) fn rwbs(text: &str) -> Option<(Op, Flags)> {
    let letters = text.as_bytes();
    let (mut at, mut flags) = (0, Flags::NONE);
    if letters.first() == Some(&b'F') && letters.len() > 1 && b"WRDFN".contains(&letters[1]) {
        flags = Flags::PREFLUSH;
        at = 1;
    }
    let op = match letters.get(at)? {
        b'R' => Op::Read,
        b'W' => Op::Write,
        b'D' => Op::Discard,
        b'F' => Op::Flush,
        b'N' if flags != Flags::NONE => Op::Flush,
        _ => return None,
    };
    for letter in letters.get(at + 1..)? {
        flags = flags.with(match letter {
            b'F' => Flags::FUA,
            b'S' => Flags::SYNC,
            b'A' => Flags::READAHEAD,
            b'M' | b'E' => Flags::NONE,
            _ => return None,
        });
    }
    Some((op, flags))
}

/// A request from its parts. A write of nothing with a flush before is a flush.
pub(super) fn request(
    time_ns: u64,
    (op, flags): (Op, Flags),
    sector: u64,
    len_bytes: u64,
) -> std::result::Result<Record, Bad> {
    if op == Op::Flush || (len_bytes == 0 && flags.has(Flags::PREFLUSH)) {
        return Ok(Record {
            flags: Flags(flags.0 & Flags::SYNC.0),
            ..Record::new(time_ns, Op::Flush)
        });
    }
    let offset = sector.checked_mul(512).ok_or("the sector is too large")?;
    Ok(Record { flags, ..Record::new(time_ns, op).range(offset, len_bytes) })
}

/// As [`request`]; none for what is no request of a device.
pub(crate) fn valid_request(
    time_ns: u64,
    what: (Op, Flags),
    sector: u64,
    len_bytes: u64,
) -> Option<Record> {
    request(time_ns, what, sector, len_bytes).ok().filter(|record| record.check().is_ok())
}

/// Requests that were issued and have not completed.
#[derive(Default)]
pub(super) struct Issued {
    pending: FxHashMap<(u32, u64, Op), Record>,
}

impl Issued {
    /// The record of a request that is issued waits for its completion.
    pub(super) fn issue(&mut self, record: Record, out: &mut Out<'_>) -> Line {
        if self.pending.len() >= PENDING_MAX {
            self.flush(out)?;
        }
        let key = (record.device, record.offset_bytes, record.op);
        match self.pending.insert(key, record) {
            Some(before) => out.push(before),
            None => Ok(()),
        }
    }

    pub(super) fn complete(
        &mut self,
        device: u32,
        offset_bytes: u64,
        op: Op,
        time_ns: u64,
        out: &mut Out<'_>,
    ) -> Line {
        match self.pending.remove(&(device, offset_bytes, op)) {
            Some(mut record) => {
                record.latency_ns = Some(time_ns.saturating_sub(record.time_ns));
                out.push(record)
            }
            None => {
                out.pass_over();
                Ok(())
            }
        }
    }

    /// Passes on what never completed.
    pub(super) fn flush(&mut self, out: &mut Out<'_>) -> Line {
        let mut left: Vec<Record> = self.pending.drain().map(|(_, record)| record).collect();
        left.sort_unstable_by_key(|record| (record.time_ns, record.offset_bytes));
        left.into_iter().try_for_each(|record| out.push(record))
    }

    pub(super) fn end(&mut self, out: &mut Out<'_>) -> Result<()> {
        match self.flush(out) {
            Err(Bad::Fatal(err)) => Err(err),
            _ => Ok(()),
        }
    }
}

struct Fields<'a> {
    device: u32,
    time_ns: u64,
    process: u32,
    action: &'a str,
    rwbs: &'a str,
    rest: Vec<&'a str>,
}

fn fields(line: &str) -> Option<Fields<'_>> {
    let mut words = line.split_whitespace();
    let (major, minor) = words.next()?.split_once(',')?;
    let device = device(major.parse().ok()?, minor.parse().ok()?);
    number(words.next()?)?;
    number(words.next()?)?;
    let time_ns = scaled(words.next()?, 1_000_000_000)?;
    let process = words.next()?.parse().ok()?;
    let (action, rwbs) = (words.next()?, words.next().unwrap_or(""));
    Some(Fields { device, time_ns, process, action, rwbs, rest: words.collect() })
}

/// Sector and bytes of `223490 + 8 [name]`, and the name.
pub(super) fn place<'a>(rest: &[&'a str]) -> Option<(u64, u64, &'a str)> {
    let name = rest.last().and_then(|word| word.strip_prefix('[')).unwrap_or("");
    let name = name.trim_end_matches(']');
    match rest {
        [sector, "+", sectors, ..] => {
            let bytes = number(sectors)?.checked_mul(512)?;
            Some((number(sector)?, bytes, name))
        }
        _ => Some((0, 0, name)),
    }
}

struct Blkparse {
    issued: Issued,
}

impl Parser for Blkparse {
    fn line(&mut self, line: &str, out: &mut Out<'_>) -> Line {
        let Some(fields) = fields(line) else {
            if !is_summary(line) {
                return Err("not a line of blkparse".into());
            }
            out.pass_over();
            return Ok(());
        };
        if !matches!(fields.action, "D" | "C") {
            out.pass_over();
            return Ok(());
        }
        let Some(what) = rwbs(fields.rwbs) else {
            out.pass_over();
            return Ok(());
        };
        let (sector, len_bytes, name) = place(&fields.rest).ok_or("no sector and length")?;
        let mut record = request(fields.time_ns, what, sector, len_bytes)?;
        record.device = fields.device;
        if fields.action == "C" {
            let (op, offset) = (record.op, record.offset_bytes);
            return self.issued.complete(fields.device, offset, op, fields.time_ns, out);
        }
        record.process = fields.process;
        record.process_name = if name.is_empty() { NameId::NONE } else { out.names.intern(name) };
        self.issued.issue(record, out)
    }

    fn end(&mut self, out: &mut Out<'_>) -> Result<()> {
        self.issued.end(out)
    }
}
