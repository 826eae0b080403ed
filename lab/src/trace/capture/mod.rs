//! Import of the events of a mount (`mount -o trace=FILE`) as three traces.
//!
//! ```text
//!   events in the order in which they ended ──> paths (`tree.rs`), order of begin (`order.rs`)
//!                                                  ├─> calls
//!                                                  ├─> pages
//!                                                  └─> blocks
//! ```
//!
//! | trace | records |
//! |---|---|
//! | calls | each request of a program; `present` before the first use of a file that was there |
//! | pages | each read and write, as the whole pages it touches |
//! | blocks | each command to the device, with origin, FUA, flush and owner ([`Owners`]) |
//!
//! Promises: the three traces have one time, which begins with the capture. Memory is bounded by
//! the records that are put into order, a row group of each trace, and the names that the kernel
//! knew at the time. Tested in `tests.rs`, without a mount.

mod order;
#[cfg(test)]
mod tests;
mod tree;

use std::io::{Read, Write};
use std::sync::Arc;

use crate::error::{LabError, Result};

use rustc_hash::FxHashMap;
use syncline_device::{Kind, TraceEvent, TraceOp};
use syncline_fuse::{Call, CallFlags, CallOp, Detail, Event, EventReader, Named, Process, Range};

use crate::trace::format::TraceWriter;
use crate::trace::model::{Flags, Header, Names, Op, Origin, Record, Sink, TraceKind};
use crate::trace::owners::{CallNames, Owner, Owners};

use order::InOrder;
use tree::{Tree, join};

const PAGE_BYTES: u64 = 4096;

/// Threads whose processes are remembered.
const THREADS_MAX: usize = 1 << 16;

/// Counts of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Records of system calls.
    pub calls: u64,
    /// Records of accesses to pages.
    pub pages: u64,
    /// Records of block requests.
    pub blocks: u64,
    /// Events that are missing in the file.
    pub lost: u64,
    /// The file ends without its last event: the mount was killed, or the file was cut.
    pub cut_short: bool,
}

/// A record whose names are not numbered yet.
struct Draft {
    record: Record,
    file: Option<Arc<str>>,
    target: Option<Arc<str>>,
    process_name: Option<Arc<str>>,
}

impl Draft {
    fn new(record: Record) -> Draft {
        Draft { record, file: None, target: None, process_name: None }
    }

    fn is_block(&self) -> bool {
        self.record.device != 0
    }
}

/// One trace on its way.
struct Stream<W: Write + Send> {
    writer: TraceWriter<W>,
    names: Names,
}

impl<W: Write + Send> Stream<W> {
    fn new(out: W, kind: TraceKind) -> Result<Stream<W>> {
        let header = Header { kind, source: "syncline mount".to_owned() };
        Ok(Stream { writer: TraceWriter::new(out, &header)?, names: Names::default() })
    }

    fn write(&mut self, draft: &Draft) -> Result<()> {
        if self.writer.is_between_batches() {
            // Numbers of names hold within a row group.
            self.names = Names::default();
        }
        let mut number = |name: &Option<Arc<str>>| {
            name.as_deref().map_or_else(Default::default, |name| self.names.intern(name))
        };
        let (file, target) = (number(&draft.file), number(&draft.target));
        let process_name = number(&draft.process_name);
        let record = Record { file, target, process_name, ..draft.record };
        self.writer.record(&self.names, &record)
    }

    fn finish(mut self, lost: u64) -> Result<(u64, W)> {
        if lost > 0 {
            self.writer.lost(lost);
        }
        let records = self.writer.records();
        Ok((records, self.writer.finish(&self.names)?))
    }
}

/// Reads a file of events and writes its traces of calls, pages and blocks, in this order. Returns
/// the counts and the outputs.
pub fn import_events<W: Write + Send>(
    input: impl Read,
    [calls, pages, blocks]: [W; 3],
) -> Result<(Captured, [W; 3])> {
    let mut reader = EventReader::new(input).map_err(unreadable)?;
    let began_ns = reader.began_ns();
    convert(began_ns, || reader.next_event().map_err(unreadable), [calls, pages, blocks])
}

/// As [`import_events`], for events from anywhere.
fn convert<W: Write + Send>(
    began_ns: u64,
    mut next_event: impl FnMut() -> Result<Option<Event>>,
    [calls, pages, blocks]: [W; 3],
) -> Result<(Captured, [W; 3])> {
    let mut import = Import {
        began_ns,
        tree: Tree::default(),
        processes: FxHashMap::default(),
        order: InOrder::new(),
        owners: Owners::default(),
        streams: [
            Stream::new(calls, TraceKind::Syscall)?,
            Stream::new(pages, TraceKind::Page)?,
            Stream::new(blocks, TraceKind::Block)?,
        ],
    };
    let mut lost = None;
    while let Some(event) = next_event()? {
        match event {
            Event::End { lost: events } => lost = Some(events),
            event => import.take(event),
        }
        import.write(false)?;
    }
    import.write(true)?;
    let cut_short = lost.is_none();
    let lost = lost.unwrap_or(0);
    let [calls, pages, blocks] = import.streams;
    let (calls, pages, blocks) = (calls.finish(lost)?, pages.finish(lost)?, blocks.finish(lost)?);
    let counts = Captured { calls: calls.0, pages: pages.0, blocks: blocks.0, lost, cut_short };
    Ok((counts, [calls.1, pages.1, blocks.1]))
}

fn unreadable(source: std::io::Error) -> LabError {
    if source.kind() == std::io::ErrorKind::InvalidData {
        return LabError::Corrupt(format!("{source}; record the mount again"));
    }
    LabError::io("file of events")(source)
}

struct Import<W: Write + Send> {
    began_ns: u64,
    tree: Tree,
    processes: FxHashMap<u32, (u32, Arc<str>)>,
    order: InOrder<Draft>,
    owners: Owners,
    streams: [Stream<W>; 3],
}

impl<W: Write + Send> Import<W> {
    fn write(&mut self, all: bool) -> Result<()> {
        while let Some((time_ns, mut draft)) = self.order.pop(all) {
            draft.record.time_ns = time_ns.saturating_sub(self.began_ns);
            self.write_one(&draft)?;
        }
        Ok(())
    }

    fn write_one(&mut self, draft: &Draft) -> Result<()> {
        let [calls, pages, blocks] = &mut self.streams;
        let record = &draft.record;
        if draft.is_block() {
            let Owner { inode, file, process, process_name } = self.owners.of(record);
            let record = Record { device: 0, inode, process, ..*record };
            blocks.write(&Draft { record, file, target: None, process_name })?;
        } else {
            self.owners.call(
                record,
                CallNames {
                    file: draft.file.as_ref(),
                    target: draft.target.as_ref(),
                    process_name: draft.process_name.as_ref(),
                },
            );
            calls.write(draft)?;
            if let Some(record) = whole_pages(record) {
                let (file, process_name) = (draft.file.clone(), draft.process_name.clone());
                pages.write(&Draft { record, file, target: None, process_name })?;
            }
        }
        Ok(())
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Call(call) => self.call(&call),
            Event::Thread { thread, process } => {
                if self.processes.len() >= THREADS_MAX {
                    self.processes.clear();
                }
                let Process { number, name } = process;
                self.processes.insert(thread, (number, name.into()));
            }
            Event::Learned { dir, name, found } => self.tree.learned(dir, &name, found, false),
            Event::Forgot { ino, lookups } => self.tree.forgot(ino, lookups),
            Event::Device { event, latency_ns, errno } => {
                let draft = Draft::new(block(&event, latency_ns, errno));
                let end_ns = event.time_ns.saturating_add(latency_ns);
                self.order.push(event.time_ns, end_ns, draft);
            }
            // The caller's, and last.
            Event::End { .. } => {}
        }
    }

    fn push(&mut self, call: &Call, draft: Draft) {
        let mut draft = draft;
        draft.record.thread = call.thread;
        if let Some((process, name)) = self.processes.get(&call.thread) {
            draft.record.process = *process;
            draft.process_name = Some(Arc::clone(name));
        }
        let end_ns = call.begin_ns.saturating_add(call.latency_ns);
        self.order.push(call.begin_ns, end_ns, draft);
    }

    fn record(call: &Call, op: Op) -> Record {
        let (result, latency_ns) = (Some(call.result), Some(call.latency_ns));
        Record { result, latency_ns, ..Record::new(0, op) }
    }

    fn call(&mut self, call: &Call) {
        match &call.detail {
            Detail::Range(op, range, flags) => self.range(call, of(*op), range, marks(*flags)),
            Detail::Copy { from, to } => {
                self.range(call, Op::Read, from, Flags::NONE);
                self.range(call, Op::Write, to, Flags::NONE);
            }
            Detail::Inode(op, ino) => {
                if *op == CallOp::Open && call.result == 0 {
                    self.present(call, *ino);
                }
                self.on_inode(call, Self::record(call, of(*op)), *ino);
            }
            Detail::Truncate { ino, size_bytes } => {
                self.present(call, *ino);
                if call.result == 0 {
                    self.tree.set_size(*ino, *size_bytes);
                }
                let size_bytes = Some(*size_bytes);
                let record = Record { size_bytes, ..Self::record(call, Op::Truncate) };
                self.on_inode(call, record, *ino);
            }
            Detail::Name(named) => self.named(call, named),
        }
    }

    fn on_inode(&mut self, call: &Call, record: Record, ino: u32) {
        let file = Some(self.tree.path(ino));
        let record = Record { inode: u64::from(ino), ..record };
        self.push(call, Draft { file, ..Draft::new(record) });
    }

    /// Says that a file was there, before its first use.
    fn present(&mut self, call: &Call, ino: u32) {
        let Some(size_bytes) = self.tree.present(ino) else { return };
        let record = Record { size_bytes: Some(size_bytes), ..Record::new(0, Op::Present) };
        self.on_inode(call, record, ino);
    }

    fn range(&mut self, call: &Call, op: Op, range: &Range, flags: Flags) {
        self.present(call, range.ino);
        let size_bytes = self.tree.size_bytes(range.ino);
        let done = match u64::try_from(call.result) {
            Ok(_) if op == Op::Fallocate => range.len_bytes,
            Ok(bytes) => bytes,
            Err(_) => 0,
        };
        if op == Op::Write && done > 0 {
            let end = range.offset_bytes.saturating_add(done);
            self.tree.set_size(range.ino, size_bytes.unwrap_or(0).max(end));
        }
        let asked = if call.result < 0 { range.len_bytes } else { done };
        let record = Record { flags, size_bytes, ..Self::record(call, op) };
        self.on_inode(call, record.range(range.offset_bytes, asked), range.ino);
    }

    fn named(&mut self, call: &Call, named: &Named) {
        let mut draft = Draft::new(Self::record(call, of(named.op)));
        if named.op == CallOp::Link {
            // `dir` is the inode that gets another name.
            self.present(call, named.dir);
            draft.file = Some(self.tree.path(named.dir));
        } else {
            if let Some(found) = named.found.filter(|_| named.op == CallOp::Rename) {
                self.present(call, found.ino);
            }
            draft.file = Some(join(&self.tree.path(named.dir), &named.name));
        }
        match &named.to {
            Some((0, text)) => draft.target = Some(String::from_utf8_lossy(text).into()),
            Some((dir, name)) => draft.target = Some(join(&self.tree.path(*dir), name)),
            None => {}
        }
        if let Some(found) = named.found {
            draft.record.inode = u64::from(found.ino);
            match (&named.to, named.op) {
                (Some((dir, name)), CallOp::Rename) if call.result == 0 => {
                    self.tree.moved(*dir, name, found);
                    if let Some(other) = named.exchanged {
                        self.tree.moved(named.dir, &named.name, other);
                    }
                }
                (_, CallOp::Rename) => {}
                (Some((dir, name)), CallOp::Link) => self.tree.learned(*dir, name, found, false),
                _ => self.tree.learned(named.dir, &named.name, found, named.op == CallOp::Create),
            }
        }
        self.push(call, draft);
    }
}

/// The operation of a request in a trace.
fn of(op: CallOp) -> Op {
    match op {
        CallOp::Read => Op::Read,
        CallOp::Write => Op::Write,
        CallOp::Fallocate => Op::Fallocate,
        CallOp::Open => Op::Open,
        CallOp::Close => Op::Close,
        CallOp::Stat => Op::Stat,
        CallOp::Fsync => Op::Fsync,
        CallOp::Fdatasync => Op::Fdatasync,
        CallOp::Create => Op::Create,
        CallOp::Unlink => Op::Unlink,
        CallOp::Rename => Op::Rename,
        CallOp::Link => Op::Link,
        CallOp::Symlink => Op::Symlink,
        CallOp::Mkdir => Op::Mkdir,
        CallOp::Rmdir => Op::Rmdir,
    }
}

/// The marks of a request in a trace.
fn marks(flags: CallFlags) -> Flags {
    Flags::when(flags.has(CallFlags::SYNC), Flags::SYNC)
        .with(Flags::when(flags.has(CallFlags::DIRECT), Flags::DIRECT))
        .with(Flags::when(flags.has(CallFlags::APPEND), Flags::APPEND))
}

/// The pages that a read or write touches, as one range; none if it moved nothing.
fn whole_pages(record: &Record) -> Option<Record> {
    if !matches!(record.op, Op::Read | Op::Write) || record.failed() || record.len_bytes == 0 {
        return None;
    }
    let first = record.offset_bytes / PAGE_BYTES;
    let end = record.offset_bytes.saturating_add(record.len_bytes).div_ceil(PAGE_BYTES);
    let whole = record.range(first * PAGE_BYTES, (end - first) * PAGE_BYTES);
    Some(Record { size_bytes: None, result: None, latency_ns: None, ..whole })
}

/// A command to the device. Its device number marks it as a block request on the way.
fn block(event: &TraceEvent, latency_ns: u64, errno: Option<i32>) -> Record {
    let op = match event.op {
        TraceOp::Read => Op::Read,
        TraceOp::Write => Op::Write,
        TraceOp::Flush => Op::Flush,
        TraceOp::Discard => Op::Discard,
    };
    let (origin, inode) = match event.origin.kind {
        Kind::Journal => (Origin::Journal, 0),
        Kind::Metadata => (Origin::Metadata, 0),
        Kind::Data { inode } => (Origin::Data, inode),
        Kind::Other => (Origin::Unknown, 0),
    };
    let flags =
        Flags::when(event.origin.sync, Flags::SYNC).with(Flags::when(event.fua, Flags::FUA));
    Record {
        flags,
        origin,
        inode,
        device: 1,
        result: errno.map(|errno| -i64::from(errno)),
        latency_ns: Some(latency_ns),
        ..Record::new(0, op).range(event.offset_bytes, event.len_bytes)
    }
}
