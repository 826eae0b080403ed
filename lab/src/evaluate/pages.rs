//! Any trace as accesses to the pages of one address space.
//!
//! ```text
//!   record: file, range  ->  object, pages  -- finish -->  page of the address space
//!                            object 0 | object 1 | ...     one after the other, by first access
//! ```
//!
//! The rules
//! - A read or write is an access to each 4096-byte page that it touches, in ascending order. A
//!   call that returned less than it asked for touches what it returned. A page written in part
//!   counts as written whole and is not read first, as in the informed-storage paper (section
//!   5.4.1).
//! - A block trace, and a page trace without files, keeps its addresses; several devices lie one
//!   after the other.
//! - A file lies in one piece, with room up to the last page that the trace touches; files in the
//!   order of their first access. Real allocators differ; a page trace of device addresses has
//!   theirs.
//! - A file that is deleted, made anew or cut loses those pages from the cache without a write; a
//!   discard does the same for a device. The same name then takes the same place, as freed blocks
//!   are soon used again. A rename moves the file; what it replaces is lost and its place goes to
//!   the old name. A file with several names is lost with the last.
//! - fsync and its kin are kept as events of their file (`sync`: of all); a flush of a device
//!   writes nothing. Whether they count is for [`crate::evaluate::Configuration::fsync`].
//! - Left out and counted: failed calls and O_DIRECT accesses do not touch the cache; ranges beyond
//!   2 PiB or longer than 1 GiB are mistakes of a trace.
//!
//! Tested in `lab/tests/evaluate/pages.rs`.

use crate::trace::{Flags, NameId, Names, Op, Record, Sink, TraceKind};
use rustc_hash::{FxHashMap, FxHashSet};
use syncline_cache::{Access, PageAccess, PageKey};

use crate::error::{LabError, Result};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Bits of a page number within an object: 2 PiB.
const PAGE_BITS: u32 = 39;
const OBJECTS_MAX: usize = 1 << (63 - PAGE_BITS);
/// Longest access in pages.
const ACCESS_PAGES_MAX: u64 = 1 << 18;
/// Pages of the whole address space, at most.
const SPACE_PAGES_MAX: u64 = 1 << 58;

/// Events between two accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// Pages leave the cache without a write.
    Forget,
    /// Dirty pages are written, then the device is flushed.
    Sync,
}

/// An [`EventKind`] for a range of pages, before the access with number `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub at: usize,
    pub kind: EventKind,
    pub first: u64,
    pub pages: u64,
}

/// A device or file.
#[derive(Default)]
struct Object {
    /// One more than the last page that was touched.
    end: u64,
    names: u32,
}

/// Makes a [`PageTrace`] of records: a [`Sink`].
pub struct PageGather {
    kind: TraceKind,
    objects: Vec<Object>,
    by_device: FxHashMap<u32, usize>,
    by_name: FxHashMap<NameId, usize>,
    /// Object, page, write.
    accesses: Vec<u64>,
    times: Vec<(usize, u64)>,
    /// In pages of an object until they are placed; `None`: of all objects.
    events: Vec<(Event, Option<usize>)>,
    left_out: u64,
    reads: u64,
}

impl PageGather {
    /// For records of a trace of `kind`.
    pub fn new(kind: TraceKind) -> PageGather {
        PageGather {
            kind,
            objects: Vec::new(),
            by_device: FxHashMap::default(),
            by_name: FxHashMap::default(),
            accesses: Vec::new(),
            times: Vec::new(),
            events: Vec::new(),
            left_out: 0,
            reads: 0,
        }
    }

    /// Places the objects.
    pub fn finish(mut self) -> Result<PageTrace> {
        if self.accesses.is_empty() {
            let text =
                "the trace reads and writes nothing; look at it with `syncline-lab trace stat`";
            return Err(LabError::Usage(text.to_owned()));
        }
        let mut bases = Vec::with_capacity(self.objects.len());
        let mut end_page = 0u64;
        for object in &self.objects {
            bases.push(end_page);
            end_page += object.end;
            if end_page > SPACE_PAGES_MAX {
                let text = "the files of the trace are larger than any device; correct the trace";
                return Err(LabError::Usage(text.to_owned()));
            }
        }
        for access in &mut self.accesses {
            let (object, page) =
                (*access >> (PAGE_BITS + 1), *access >> 1 & ((1 << PAGE_BITS) - 1));
            *access = (bases[object as usize] + page) << 1 | (*access & 1);
        }
        let events = self.events.into_iter().map(|(event, object)| match object {
            Some(object) => Event { first: bases[object] + event.first, ..event },
            None => Event { first: 0, pages: end_page, ..event },
        });
        let distinct: FxHashSet<u64> = self.accesses.iter().map(|access| access >> 1).collect();
        Ok(PageTrace {
            working_set_pages: distinct.len() as u64,
            accesses: self.accesses,
            times: self.times,
            events: events.collect(),
            end_page,
            reads: self.reads,
            left_out: self.left_out,
        })
    }

    fn take(&mut self, record: &Record) {
        if record.failed() {
            self.left_out += 1;
            return;
        }
        match record.op {
            Op::Read | Op::Write => self.access(record),
            Op::Discard => {
                let object = self.device(record.device);
                let first = record.offset_bytes.div_ceil(PAGE_BYTES);
                let end = record.offset_bytes.saturating_add(record.len_bytes) / PAGE_BYTES;
                self.lose(object, first, end);
            }
            Op::Fsync | Op::Fdatasync => {
                if let Some(object) = self.by_name.get(&record.file).copied() {
                    self.event(EventKind::Sync, 0, self.objects[object].end, Some(object));
                }
            }
            Op::Sync => self.event(EventKind::Sync, 0, 0, None),
            Op::Create => self.cut(record.file, 0),
            Op::Truncate => {
                let size = record.size_bytes.unwrap_or(0);
                self.cut(record.file, size.div_ceil(PAGE_BYTES));
            }
            Op::Unlink => self.unlink(record.file),
            Op::Rename => self.rename(record.file, record.target),
            Op::Link => self.link(record.file, record.target),
            _ => {}
        }
    }

    /// The object of a record, a new one if it is new.
    fn object(&mut self, record: &Record) -> Option<usize> {
        // The addresses of a block trace are the device's, whatever the file.
        if !record.file.is_some() || self.kind == TraceKind::Block {
            // A system call on no known file.
            return (self.kind != TraceKind::Syscall).then(|| self.device(record.device));
        }
        if let Some(known) = self.by_name.get(&record.file) {
            return Some(*known);
        }
        if self.objects.len() >= OBJECTS_MAX {
            return None;
        }
        self.objects.push(Object { end: 0, names: 1 });
        self.by_name.insert(record.file, self.objects.len() - 1);
        Some(self.objects.len() - 1)
    }

    fn device(&mut self, device: u32) -> usize {
        let objects = &mut self.objects;
        *self.by_device.entry(device).or_insert_with(|| {
            objects.push(Object::default());
            objects.len() - 1
        })
    }

    fn access(&mut self, record: &Record) {
        let returned = record.result.and_then(|result| u64::try_from(result).ok());
        let len = match (self.kind, returned) {
            (TraceKind::Syscall, Some(returned)) => record.len_bytes.min(returned),
            _ => record.len_bytes,
        };
        if len == 0 {
            return;
        }
        let first = record.offset_bytes / PAGE_BYTES;
        let last = record.offset_bytes.saturating_add(len - 1) / PAGE_BYTES;
        let direct = self.kind == TraceKind::Syscall && record.flags.has(Flags::DIRECT);
        let wrong = last >= 1 << PAGE_BITS || last - first >= ACCESS_PAGES_MAX;
        let object = if direct || wrong { None } else { self.object(record) };
        let Some(object) = object else {
            self.left_out += 1;
            return;
        };
        if self.times.last().is_none_or(|(_, time_ns)| *time_ns != record.time_ns) {
            self.times.push((self.accesses.len(), record.time_ns));
        }
        self.objects[object].end = self.objects[object].end.max(last + 1);
        let write = record.op == Op::Write;
        let place = (object as u64) << PAGE_BITS;
        self.accesses.extend((first..=last).map(|page| (place | page) << 1 | u64::from(write)));
        self.reads += if write { 0 } else { last - first + 1 };
    }

    fn event(&mut self, kind: EventKind, first: u64, pages: u64, object: Option<usize>) {
        let event = Event { at: self.accesses.len(), kind, first, pages };
        self.events.push((event, object));
    }

    /// Pages from `first` up to `end` of an object are lost.
    fn lose(&mut self, object: usize, first: u64, end: u64) {
        let end = end.min(self.objects[object].end);
        if first < end {
            self.event(EventKind::Forget, first, end - first, Some(object));
        }
    }

    fn cut(&mut self, file: NameId, first: u64) {
        if let Some(object) = self.by_name.get(&file).copied() {
            self.lose(object, first, u64::MAX);
        }
    }

    fn unlink(&mut self, file: NameId) {
        let Some(object) = self.by_name.get(&file).copied() else { return };
        if self.objects[object].names > 1 {
            self.objects[object].names -= 1;
            self.by_name.remove(&file);
        } else {
            self.lose(object, 0, u64::MAX);
        }
    }

    fn rename(&mut self, from: NameId, to: NameId) {
        if from == to {
            return;
        }
        let Some(moved) = self.by_name.remove(&from) else {
            // A file that was never touched is there instead.
            return self.unlink(to);
        };
        let replaced = self.by_name.insert(to, moved);
        let Some(replaced) = replaced.filter(|replaced| *replaced != moved) else { return };
        if self.objects[replaced].names > 1 {
            self.objects[replaced].names -= 1;
            return;
        }
        self.lose(replaced, 0, u64::MAX);
        self.by_name.insert(from, replaced);
    }

    fn link(&mut self, file: NameId, target: NameId) {
        let Some(object) = self.by_name.get(&file).copied() else { return };
        if target.is_some() && !self.by_name.contains_key(&target) {
            self.objects[object].names += 1;
            self.by_name.insert(target, object);
        }
    }
}

impl Sink for PageGather {
    fn record(&mut self, _: &Names, record: &Record) -> crate::error::Result<()> {
        self.take(record);
        Ok(())
    }
}

/// Accesses to pages of one address space, in order. 8 bytes each.
#[derive(Debug)]
pub struct PageTrace {
    /// Page, write.
    accesses: Vec<u64>,
    /// First access and time in nanoseconds, where the time changes.
    times: Vec<(usize, u64)>,
    pub(crate) events: Vec<Event>,
    end_page: u64,
    working_set_pages: u64,
    reads: u64,
    left_out: u64,
}

impl PageTrace {
    /// Accesses.
    pub fn accesses(&self) -> usize {
        self.accesses.len()
    }

    /// Of these, reads.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Distinct pages.
    pub fn working_set_pages(&self) -> u64 {
        self.working_set_pages
    }

    /// End of the address space in bytes.
    pub fn end_bytes(&self) -> u64 {
        self.end_page.saturating_mul(PAGE_BYTES)
    }

    /// Records that a cache does not take, see the module's rules.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Leaves out of the address space what is never touched, in pieces of 4 MiB; the order of the
    /// rest stays. For traces whose addresses spread over more than a simulated device has.
    pub fn make_dense(&mut self) {
        let mut dense = crate::evaluate::DenseAddresses::default();
        self.accesses.iter().for_each(|access| dense.touch_pages(access >> 1, 1));
        dense.sort();
        for access in &mut self.accesses {
            *access = dense.page(*access >> 1) << 1 | (*access & 1);
        }
        for event in &mut self.events {
            let end = dense.page(event.first.saturating_add(event.pages));
            event.first = dense.page(event.first);
            event.pages = end - event.first;
        }
        self.end_page = dense.page(self.end_page);
    }

    /// One access.
    pub fn access(&self, at: usize) -> Option<PageAccess> {
        self.accesses.get(at).map(|access| unpack(*access))
    }

    /// Appends the accesses from `from` up to `to`, which is at most their number.
    pub(crate) fn copy(&self, from: usize, to: usize, into: &mut Vec<PageAccess>) {
        into.extend(self.accesses.iter().take(to).skip(from).map(|access| unpack(*access)));
    }

    /// Nanoseconds since the start of the trace at access `at`; of the last one from there on.
    pub fn time_ns(&self, at: usize) -> u64 {
        let after = self.times.partition_point(|(first, _)| *first <= at);
        self.times.get(after.saturating_sub(1)).map_or(0, |(_, time_ns)| *time_ns)
    }

    /// For each access the number of the next one to its page, `u64::MAX` if there is none or the
    /// page is lost before: what [`syncline_cache::Entry::needs_future`] wants.
    pub fn next_uses(&self) -> Vec<u64> {
        let mut last: FxHashMap<u64, u64> = FxHashMap::default();
        let mut next = vec![u64::MAX; self.accesses.len()];
        let mut events = self.events.iter().rev().peekable();
        for (at, access) in self.accesses.iter().enumerate().rev() {
            while let Some(event) = events.next_if(|event| event.at > at) {
                if event.kind == EventKind::Forget {
                    let range = event.first..event.first + event.pages;
                    if event.pages as usize <= last.len() {
                        for page in range {
                            last.remove(&page);
                        }
                    } else {
                        last.retain(|page, _| !range.contains(page));
                    }
                }
            }
            next[at] = last.insert(access >> 1, at as u64).unwrap_or(u64::MAX);
        }
        next
    }
}

fn unpack(access: u64) -> PageAccess {
    PageAccess {
        key: PageKey { file: 0, index: access >> 1 },
        access: if access & 1 == 1 { Access::Write } else { Access::Read },
    }
}
