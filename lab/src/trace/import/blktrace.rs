//! blktrace's binary stream (`struct blk_io_trace` of the kernel's `blktrace_api.h`, version 7).
//!
//! ```text
//!   0 magic 0x65617407   4 sequence   8 time, ns   16 sector   24 bytes   28 action
//!  32 pid   36 device   40 cpu   44 error, 2   46 length of what follows, 2      48 bytes
//! ```
//!
//! Either byte order. Requests are taken when issued and get their latency from the completion, as
//! in `blkparse`. Streams of several processors are merged first: `blkparse -i NAME -d merged.bin`.

use std::io::Read;

use rustc_hash::FxHashMap;

use super::blkparse::{Issued, request};
use super::{Bad, Out, Sample};
use crate::error::{LabError, Result};
use crate::trace::model::{Flags, NameId, Op};

const MAGIC: u32 = 0x6561_7407;
const EVENT_BYTES: usize = 48;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;
/// Processes whose names are kept.
const PROCESSES_MAX: usize = 1 << 16;

pub(super) fn detect(sample: &Sample<'_>) -> bool {
    sample.bytes.first_chunk().is_some_and(|magic| {
        u32::from_le_bytes(*magic) == MAGIC || u32::from_be_bytes(*magic) == MAGIC
    })
}

/// One event.
struct Event<'a> {
    bytes: &'a [u8; EVENT_BYTES],
    swapped: bool,
}

impl Event<'_> {
    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut part = [0; N];
        for (to, from) in part.iter_mut().zip(self.bytes.iter().skip(at)) {
            *to = *from;
        }
        if self.swapped {
            part.reverse();
        }
        part
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.part(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.part(at))
    }

    /// Operation and marks from the categories in the upper half of the action.
    fn what(&self) -> (Op, Flags) {
        let category = |bit: u32| self.u32(28) >> (16 + bit) & 1 == 1;
        let op = match (category(13), category(1)) {
            (true, _) => Op::Discard,
            (_, true) => Op::Write,
            _ if category(2) => Op::Flush,
            _ => Op::Read,
        };
        let flags = Flags::when(category(2) && op != Op::Flush, Flags::PREFLUSH)
            .with(Flags::when(category(3), Flags::SYNC))
            .with(Flags::when(category(11), Flags::READAHEAD))
            .with(Flags::when(category(15), Flags::FUA));
        (op, flags)
    }
}

/// As many bytes as there are, up to all of `into`.
pub(super) fn fill(input: &mut dyn Read, into: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match input.read(&mut into[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
            Err(err) => return Err(LabError::io("reading the trace")(err)),
        }
    }
    Ok(done)
}

/// Reads all events. Returns where the stream ends early.
pub(super) fn read(input: &mut dyn Read, out: &mut Out<'_>) -> Result<Option<String>> {
    let (mut issued, mut processes) = (Issued::default(), FxHashMap::default());
    let (mut bytes, mut more) = ([0; EVENT_BYTES], vec![0; usize::from(u16::MAX)]);
    let (mut number, mut cut) = (0u64, None);
    loop {
        let n = fill(input, &mut bytes)?;
        if n == 0 {
            break;
        }
        number += 1;
        let magic = bytes.first_chunk().copied().map_or(0, u32::from_le_bytes);
        let event = Event { bytes: &bytes, swapped: magic == MAGIC.swap_bytes() };
        if n < EVENT_BYTES {
            cut = Some(format!("event {number} is not whole"));
            break;
        }
        if event.u32(0) != MAGIC {
            out.bad(number, "", "no event starts here; the rest is not read".to_owned());
            cut = Some(format!("event {number} is damaged"));
            break;
        }
        let len = usize::from(u16::from_le_bytes(event.part(46)));
        if fill(input, &mut more[..len])? < len {
            cut = Some(format!("event {number} is not whole"));
            break;
        }
        match take(&event, &more[..len], &mut issued, &mut processes, out) {
            Ok(()) => {}
            Err(Bad::Fatal(err)) => return Err(err),
            Err(Bad::Line(why)) => out.bad(number, "", why),
        }
    }
    issued.end(out)?;
    Ok(cut)
}

fn take(
    event: &Event<'_>,
    more: &[u8],
    issued: &mut Issued,
    processes: &mut FxHashMap<u32, NameId>,
    out: &mut Out<'_>,
) -> super::Line {
    let (action, process, device) = (event.u32(28), event.u32(32), event.u32(36));
    let notify = action >> 26 & 1 == 1;
    if notify {
        // The name of a process: action 0.
        if action & 0xFFFF == 0 && processes.len() < PROCESSES_MAX {
            let name = more.split(|byte| *byte == 0).next().unwrap_or_default();
            processes.insert(process, out.names.intern(&String::from_utf8_lossy(name)));
        }
        return Ok(());
    }
    if !matches!(action & 0xFFFF, ISSUE | COMPLETE) {
        out.pass_over();
        return Ok(());
    }
    let time_ns = event.u64(8);
    let mut record = request(time_ns, event.what(), event.u64(16), u64::from(event.u32(24)))?;
    record.device = device;
    if action & 0xFFFF == COMPLETE {
        return issued.complete(device, record.offset_bytes, record.op, time_ns, out);
    }
    record.process = process;
    record.process_name = processes.get(&process).copied().unwrap_or_default();
    issued.issue(record, out)
}
