//! The thread that turns events into the three traces.
//!
//! | trace | records |
//! |---|---|
//! | calls | each request of a program; `present` before the first use of a file that was there |
//! | pages | each read and write, as the whole pages it touches |
//! | blocks | each command to the device, with origin, FUA, flush and owner ([`Owners`]) |
//!
//! Tested in `scribe_tests.rs`, without a mount.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use rustc_hash::FxHashMap;
use syncline_device::{Clock, Kind, TraceEvent, TraceOp};
use syncline_trace::{
    CallNames, Flags, Header, Names, Op, Origin, Owner, Owners, Record, Result, Sink, TraceError,
    TraceKind, TraceWriter,
};

use super::CaptureCounts;
use super::event::{Call, Detail, Event, Named, Range};
use super::order::InOrder;
use super::place::Place;
use super::process::Process;
use super::tree::{Tree, join};

const PAGE_BYTES: u64 = 4096;

/// Interval at which the queue is emptied. No request wakes this thread: that would cost it more
/// than all the rest.
const LOOK: Duration = Duration::from_millis(20);
/// Threads whose processes are remembered.
const THREADS_MAX: usize = 1 << 16;
/// A row group is ended at this age, so that a kill takes no more than that, in nanoseconds.
const GROUP_NS: u64 = 30_000_000_000;
/// Row groups that end by age; later ones are full, since a footer lists them all.
const SHORT_GROUPS_MAX: u32 = 256;

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

/// Bytes of a row group that are collected, so that a group is written at once.
const BUFFER_BYTES: usize = 2 << 20;

/// One trace on its way.
struct Stream {
    writer: TraceWriter<BufWriter<File>>,
    /// For footers on the way.
    file: File,
    names: Names,
    place: Place,
    group_ns: u64,
    short_groups: u32,
}

impl Stream {
    fn new(stem: &Path, extension: &str, kind: TraceKind) -> Result<Stream> {
        let open = || {
            let place = Place::new(&stem.with_added_extension(extension))?;
            let out = place.create()?;
            Ok((place, out.try_clone()?, BufWriter::with_capacity(BUFFER_BYTES, out)))
        };
        let (place, file, out) = open().map_err(TraceError::io("trace file"))?;
        let header = Header { kind, source: "syncline mount".to_owned() };
        let writer = TraceWriter::new(out, &header)?;
        let names = Names::default();
        Ok(Stream { writer, file, names, place, group_ns: 0, short_groups: 0 })
    }

    fn write(&mut self, draft: &Draft) -> Result<()> {
        if self.writer.is_between_batches() {
            // Numbers of names hold within a row group.
            self.names = Names::default();
            self.group_ns = draft.record.time_ns;
        }
        let mut number = |name: &Option<Arc<str>>| {
            name.as_deref().map_or_else(Default::default, |name| self.names.intern(name))
        };
        let (file, target) = (number(&draft.file), number(&draft.target));
        let process_name = number(&draft.process_name);
        let record = Record { file, target, process_name, ..draft.record };
        self.writer.record(&self.names, &record)?;
        if self.writer.is_between_batches() { self.seal() } else { Ok(()) }
    }

    /// Ends the row group and makes a file of what is written so far.
    fn seal(&mut self) -> Result<()> {
        let (place, footer) = self.writer.footer_so_far(&self.names)?;
        self.file.write_all_at(&footer, place).map_err(TraceError::io("trace file"))
    }

    fn end_old_group(&mut self, now_ns: u64) -> Result<()> {
        let old = now_ns.saturating_sub(self.group_ns) > GROUP_NS;
        if !old || self.short_groups == SHORT_GROUPS_MAX || self.writer.is_between_batches() {
            return Ok(());
        }
        self.short_groups += 1;
        self.seal()
    }

    fn finish(mut self, lost: u64) -> Result<u64> {
        if lost > 0 {
            self.writer.lost(lost);
        }
        let records = self.writer.records();
        let mut out = self.writer.finish(&self.names)?;
        // The last footer is not shorter than the one that it goes over.
        let named = out.flush().and_then(|()| self.place.commit());
        named.map_err(TraceError::io("trace file"))?;
        Ok(records)
    }
}

/// The writer of a capture.
pub(super) struct Scribe {
    clock: Arc<dyn Clock>,
    began_ns: u64,
    tree: Tree,
    processes: FxHashMap<u32, Process>,
    order: InOrder<Draft>,
    owners: Owners,
    streams: [Stream; 3],
    failed: Option<TraceError>,
}

impl Scribe {
    /// Makes the files. Time zero of the traces is now.
    pub(super) fn new(stem: &Path, clock: Arc<dyn Clock>) -> Result<Scribe> {
        let streams = [
            Stream::new(stem, "calls.trace", TraceKind::Syscall)?,
            Stream::new(stem, "pages.trace", TraceKind::Page)?,
            Stream::new(stem, "blocks.trace", TraceKind::Block)?,
        ];
        Ok(Scribe {
            began_ns: clock.now_ns(),
            clock,
            tree: Tree::default(),
            processes: FxHashMap::default(),
            order: InOrder::new(),
            owners: Owners::default(),
            streams,
            failed: None,
        })
    }

    /// Takes events until the last one. After a failed write they are taken and forgotten, so that
    /// nobody waits for a place in the queue.
    pub(super) fn run(mut self, events: &Receiver<Event>) -> Result<CaptureCounts> {
        let (keep, lost) = loop {
            match events.try_recv() {
                Ok(Event::End { keep, lost }) => break (keep, lost),
                Ok(event) => self.take(event),
                Err(TryRecvError::Empty) => {
                    self.quiet();
                    thread::park_timeout(LOOK);
                }
                // Nobody is left who could send an end.
                Err(TryRecvError::Disconnected) => break (false, 0),
            }
            self.write(false);
        };
        self.write(true);
        if !keep {
            for stream in &self.streams {
                // A file that cannot be removed is empty or in the way of the next capture only.
                let _ = stream.place.remove();
            }
            return Ok(CaptureCounts::default());
        }
        if let Some(err) = self.failed {
            return Err(err);
        }
        let [calls, pages, blocks] = self.streams;
        let (calls, pages) = (calls.finish(lost)?, pages.finish(lost)?);
        Ok(CaptureCounts { calls, pages, blocks: blocks.finish(lost)?, lost })
    }

    /// Time has passed without events.
    fn quiet(&mut self) {
        let now_ns = self.clock.now_ns();
        self.order.passed(now_ns);
        self.write(false);
        for stream in &mut self.streams {
            let ended = stream.end_old_group(now_ns.saturating_sub(self.began_ns));
            self.failed = self.failed.take().or(ended.err());
        }
    }

    fn write(&mut self, all: bool) {
        while let Some((time_ns, mut draft)) = self.order.pop(all) {
            draft.record.time_ns = time_ns.saturating_sub(self.began_ns);
            if self.failed.is_none() {
                self.failed = self.write_one(&draft).err();
            }
        }
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
                self.processes.insert(thread, process);
            }
            Event::Learned { dir, name, found } => self.tree.learned(dir, &name, found, false),
            Event::Forgot { ino, lookups } => self.tree.forgot(ino, lookups),
            Event::Device { event, latency_ns, errno } => {
                let draft = Draft::new(block(&event, latency_ns, errno));
                let end_ns = event.time_ns.saturating_add(latency_ns);
                self.order.push(event.time_ns, end_ns, draft);
            }
            Event::End { .. } => {}
        }
    }

    fn push(&mut self, call: &Call, draft: Draft) {
        let mut draft = draft;
        draft.record.thread = call.thread;
        if let Some(process) = self.processes.get(&call.thread) {
            draft.record.process = process.number;
            draft.process_name = process.name.clone();
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
            Detail::Range(op, range, flags) => self.range(call, *op, range, *flags),
            Detail::Copy { from, to } => {
                self.range(call, Op::Read, from, Flags::NONE);
                self.range(call, Op::Write, to, Flags::NONE);
            }
            Detail::Inode(op, ino) => {
                if *op == Op::Open && call.result == 0 {
                    self.present(call, *ino);
                }
                self.on_inode(call, Self::record(call, *op), *ino);
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
        let mut draft = Draft::new(Self::record(call, named.op));
        if named.op == Op::Link {
            // `dir` is the inode that gets another name.
            self.present(call, named.dir);
            draft.file = Some(self.tree.path(named.dir));
        } else {
            if let Some(found) = named.found.filter(|_| named.op == Op::Rename) {
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
                (Some((dir, name)), Op::Rename) if call.result == 0 => {
                    self.tree.moved(*dir, name, found);
                    if let Some(other) = named.exchanged {
                        self.tree.moved(named.dir, &named.name, other);
                    }
                }
                (_, Op::Rename) => {}
                (Some((dir, name)), Op::Link) => self.tree.learned(*dir, name, found, false),
                _ => self.tree.learned(named.dir, &named.name, found, named.op == Op::Create),
            }
        }
        self.push(call, draft);
    }
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
