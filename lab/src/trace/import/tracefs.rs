//! Block events of the kernel's trace file (`/sys/kernel/tracing/trace_pipe`), as `trace record
//! --block` reads them.
//!
//! ```text
//!   sqlite3-697 [001] d..2. 123.456789: block_rq_issue: 8,0 WS 4096 () 223490 + 8 [sqlite3]
//!   kworker/0:1-9 [000] ..s1. 123.456999: block_rq_complete: 8,0 WS () 223490 + 8 [0]
//! ```

use super::blkparse::{Issued, device, request, rwbs};
use super::text::{name_and_pid, number, scaled};
use super::{ImportOptions, Line, Out, Parser, Sample};
use crate::error::Result;

pub(super) fn detect(sample: &Sample<'_>) -> bool {
    sample.most(|line| line.starts_with('#') || line.contains(": block_rq_"))
        && sample.lines.iter().any(|line| line.contains(": block_rq_"))
}

pub(super) fn parser(_: &ImportOptions) -> Result<Box<dyn Parser>> {
    Ok(Box::new(Tracefs { issued: Issued::default() }))
}

struct Tracefs {
    issued: Issued,
}

impl Parser for Tracefs {
    fn line(&mut self, line: &str, out: &mut Out<'_>) -> Line {
        let issue = line.split_once(": block_rq_issue: ");
        let (complete, event) = match (issue, line.split_once(": block_rq_complete: ")) {
            (Some(parts), _) => (false, Some(parts)),
            (_, parts) => (true, parts),
        };
        let Some((before, after)) = event else {
            out.pass_over();
            return Ok(());
        };
        let (task, stamp) = before.split_once('[').ok_or("no processor")?;
        let seconds = stamp.split_whitespace().next_back().ok_or("no time")?;
        let time_ns = scaled(seconds, 1_000_000_000).ok_or("the time is no number")?;
        let words: Vec<&str> = after.split_whitespace().collect();
        let (major, minor) =
            words.first().and_then(|word| word.split_once(',')).ok_or("no device")?;
        let (Ok(major), Ok(minor)) = (major.parse(), minor.parse()) else {
            return Err("the device is no number".into());
        };
        let Some(what) = words.get(1).and_then(|word| rwbs(word)) else {
            out.pass_over();
            return Ok(());
        };
        let plus = words.iter().position(|word| *word == "+").ok_or("no length")?;
        let at = |index: Option<usize>| index.and_then(|i| words.get(i)).and_then(|w| number(w));
        let sector = at(plus.checked_sub(1)).ok_or("no sector")?;
        let sectors = at(plus.checked_add(1)).ok_or("no length")?;
        let len_bytes = sectors.checked_mul(512).ok_or("the length is too large")?;
        // A flush alone has no sector: the kernel prints its largest number.
        let sector = if sectors == 0 { 0 } else { sector };
        let mut record = request(time_ns, what, sector, len_bytes)?;
        record.device = device(major, minor);
        if complete {
            let (op, offset) = (record.op, record.offset_bytes);
            return self.issued.complete(record.device, offset, op, time_ns, out);
        }
        if let Some((name, pid)) = name_and_pid(task) {
            record.process = pid;
            record.process_name = out.names.intern(if name == "<...>" { "" } else { name });
        }
        self.issued.issue(record, out)
    }

    fn end(&mut self, out: &mut Out<'_>) -> Result<()> {
        self.issued.end(out)
    }
}
