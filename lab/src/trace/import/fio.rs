//! fio's iolog (fio's HOWTO, "Trace file format"). Version 2 has no times but waits; version 3 has
//! microseconds before the file name. Both were checked against fio 3.33
//! (`lab/tests/trace/tools.rs`).
//!
//! ```text
//!   fio version 2 iolog            fio version 3 iolog
//!   /dev/sda add                   12 /dev/sda add
//!   /dev/sda write 4096 512        12 /dev/sda write 4096 512
//! ```

use super::text::number;
use super::{ImportOptions, Line, Out, Parser, Sample};
use crate::error::Result;
use crate::trace::model::{Op, Record};

pub(super) fn detect(sample: &Sample<'_>) -> bool {
    sample.bytes.starts_with(b"fio version ")
}

pub(super) fn parser(_: &ImportOptions) -> Result<Box<dyn Parser>> {
    Ok(Box::new(Iolog { timed: false, wait_ns: 0 }))
}

struct Iolog {
    timed: bool,
    /// Of version 2: the sum of the waits so far.
    wait_ns: u64,
}

impl Parser for Iolog {
    fn line(&mut self, line: &str, out: &mut Out<'_>) -> Line {
        if line.starts_with("fio version ") {
            self.timed = line.starts_with("fio version 3");
            return Ok(());
        }
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let mut time_ns = self.wait_ns;
        if self.timed {
            let us = words.first().and_then(|word| number(word)).ok_or("no time")?;
            time_ns = us.checked_mul(1000).ok_or("the time is too large")?;
            words.remove(0);
        }
        let [file, action, range @ ..] = words.as_slice() else {
            return Err("no file name and action".into());
        };
        let op = match *action {
            "add" => return Ok(()),
            "open" => Op::Open,
            "close" => Op::Close,
            "read" => Op::Read,
            "write" => Op::Write,
            "sync" => Op::Fsync,
            "datasync" => Op::Fdatasync,
            "trim" => Op::Discard,
            "wait" => {
                let us = range.first().and_then(|word| number(word)).ok_or("no time to wait")?;
                self.wait_ns = self.wait_ns.saturating_add(us.saturating_mul(1000));
                return Ok(());
            }
            _ => return Err("an unknown action".into()),
        };
        let mut record = Record { file: out.names.intern(file), ..Record::new(time_ns, op) };
        if op.has_range() {
            let numbers: Option<Vec<u64>> = range.iter().map(|word| number(word)).collect();
            let Some([offset, len]) = numbers.as_deref() else {
                return Err("no offset and length".into());
            };
            record = record.range(*offset, *len);
        }
        out.push(record)
    }
}
