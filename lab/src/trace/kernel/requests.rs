//! Requests from events: in order of issue, with latency, the task that asked, and its inode.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::layout::{Event, EventKind, KernelLayout, TASK_BYTES};
use super::page;
use crate::trace::import::{rwbs, valid_request};
use crate::trace::model::{Op, Origin, Record};

/// Requests that wait for their completion, or for an earlier one's.
pub const WAITING_MAX: usize = 1 << 16;
/// Ranges of sectors whose asker is remembered.
pub const OWNERS_MAX: usize = 1 << 16;
/// Tasks that write pages of an inode.
pub const TASKS_MAX: usize = 1 << 14;
/// A request is given without its latency after this time, ns.
const LATENCY_NS_MAX: u64 = 5_000_000_000;

/// One request to a device.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// All but names; the time is that of the kernel's clock.
    pub record: Record,
    /// Name of the task, ended by a zero byte if it is shorter.
    pub task: [u8; TASK_BYTES],
    /// Device of the inode's file system: the partition.
    pub volume: u32,
}

impl Request {
    /// Name of the task.
    pub fn task(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.task.split(|byte| *byte == 0).next().unwrap_or_default())
    }
}

/// Program and file that asked for sectors.
#[derive(Clone, Copy)]
struct Owner {
    end: u64,
    pid: u32,
    task: [u8; TASK_BYTES],
    inode: u64,
    volume: u32,
}

struct Waiting {
    request: Request,
    done: bool,
}

/// Events of all processors on their way to requests.
#[derive(Default)]
pub struct Events {
    layouts: Vec<KernelLayout>,
    /// Devices without requests: what is queued is what counts.
    queued: Vec<u32>,
    /// Partitions, and the disk of each.
    parts: FxHashMap<u32, u32>,
    list: Vec<Event>,
    /// Inode and device that a task writes pages of.
    tasks: FxHashMap<u32, (u64, u32)>,
    owners: BTreeMap<(u32, u64), Owner>,
    /// Program that asked last for a flush of a disk.
    flushers: FxHashMap<u32, (u32, [u8; TASK_BYTES])>,
    waiting: VecDeque<Waiting>,
    /// Number of the first that waits.
    first: u64,
    issued: FxHashMap<(u32, u64, Op), u64>,
    lost: u64,
}

impl Events {
    /// Teaches the layout of a kind of event.
    pub fn learn(&mut self, layout: KernelLayout) {
        self.layouts.push(layout);
    }

    /// Says that a device has no requests, only what is queued.
    pub fn queued(&mut self, device: u32) {
        self.queued.push(device);
    }

    /// Says that `part` is a partition of `disk`.
    pub fn part(&mut self, part: u32, disk: u32) {
        self.parts.insert(part, disk);
    }

    /// Takes the events of a page. Events may come again in the order of time with
    /// [`Events::take`].
    pub fn page(&mut self, page: &[u8]) {
        let (layouts, list) = (&self.layouts, &mut self.list);
        let lost = page::each(page, &mut |time_ns, bytes| {
            let id = bytes.first_chunk().map(|id| u16::from_ne_bytes(*id));
            let layout = layouts.iter().find(|layout| Some(layout.id) == id);
            list.extend(layout.and_then(|layout| layout.decode(time_ns, bytes)));
        });
        if lost > 0 {
            self.lost += lost;
            // Completions may be among them: what waits for one would wait in vain.
            self.issued.clear();
            self.tasks.clear();
        }
    }

    /// Events that the kernel lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Passes on the requests that all events up to `until_ns` make. Events after it wait: another
    /// processor may still have earlier ones.
    pub fn take(&mut self, until_ns: u64, give: &mut dyn FnMut(&Request)) {
        let mut list = std::mem::take(&mut self.list);
        // Pages of one processor are in order: long runs, which this sort merges.
        list.sort_by_key(|event| event.time_ns);
        let ready = list.partition_point(|event| event.time_ns <= until_ns);
        for event in list.drain(..ready) {
            self.event(&event, give);
        }
        self.list = list;
        let old_ns = until_ns.saturating_sub(LATENCY_NS_MAX);
        self.give(old_ns, give);
    }

    /// Passes on what still waits.
    pub fn end(&mut self, give: &mut dyn FnMut(&Request)) {
        self.take(u64::MAX, give);
        self.give(u64::MAX, give);
        self.issued.clear();
    }

    fn event(&mut self, event: &Event, give: &mut dyn FnMut(&Request)) {
        match event.kind {
            EventKind::Begin => {
                if self.tasks.len() >= TASKS_MAX {
                    self.tasks.clear();
                }
                self.tasks.insert(event.pid, (event.inode, event.device));
            }
            EventKind::End => drop(self.tasks.remove(&event.pid)),
            EventKind::Issue => self.issue(event, give),
            EventKind::Complete => self.complete(event),
            EventKind::Queue if self.queued.contains(&event.device) => {
                self.own(event);
                self.issue(event, give);
            }
            EventKind::Queue => self.own(event),
            EventKind::QueueDone if self.queued.contains(&event.device) => self.complete(event),
            EventKind::QueueDone => {}
        }
    }

    /// Remembers who asks for these sectors.
    fn own(&mut self, event: &Event) {
        let disk = self.parts.get(&event.device).copied().unwrap_or(event.device);
        if event.rwbs.starts_with(b"F") {
            self.flushers.insert(disk, (event.pid, event.task));
        }
        if event.sectors == 0 {
            return;
        }
        if self.owners.len() >= OWNERS_MAX {
            self.owners.clear();
        }
        // A task may write to a device itself while it writes pages of a file on another one.
        let window = self.tasks.get(&event.pid).copied();
        let inode = window.filter(|(inode, device)| match device {
            // A record has no such number.
            _ if i64::try_from(*inode).is_err() => false,
            // The kernel's write-back names the disk; the inode of a disk itself is its number.
            0 => ![u64::from(disk), u64::from(event.device)].contains(inode),
            device => *device == event.device,
        });
        let owner = Owner {
            end: event.sector.saturating_add(event.sectors),
            pid: event.pid,
            task: event.task,
            inode: inode.map_or(0, |(inode, _)| inode),
            volume: event.device,
        };
        self.owners.insert((disk, event.sector), owner);
    }

    /// The owner of a request's first sector; those of all its sectors are forgotten.
    fn owner(&mut self, device: u32, sector: u64, sectors: u64) -> Option<Owner> {
        let end = sector.saturating_add(sectors);
        let found = self.owners.range((device, 0)..=(device, sector)).next_back();
        let found = found.map(|(_, owner)| *owner).filter(|owner| owner.end > sector);
        while let Some((key, owner)) = self.owners.range((device, sector)..(device, end)).next() {
            let (key, rest) = (*key, *owner);
            self.owners.remove(&key);
            if rest.end > end {
                // The device takes it in pieces.
                self.owners.insert((device, end), rest);
                break;
            }
        }
        found
    }

    fn issue(&mut self, event: &Event, give: &mut dyn FnMut(&Request)) {
        let Some((mut record, metadata)) = record_of(event) else { return };
        let key = (event.device, record.offset_bytes, record.op);
        // A request that the driver gave back is issued again.
        if self.issued.contains_key(&key) {
            return;
        }
        let owner = match record.op {
            Op::Write => self.owner(event.device, event.sector, event.sectors),
            _ => None,
        };
        // The kernel's worker sends the flushes of all processes.
        let flusher = self.flushers.get(&event.device).filter(|_| record.op == Op::Flush);
        let asker = owner.map(|owner| (owner.pid, owner.task)).or(flusher.copied());
        let (pid, task) = asker.unwrap_or((event.pid, event.task));
        record.device = event.device;
        record.process = pid;
        record.inode = owner.map_or(0, |owner| owner.inode);
        record.origin = match (task.starts_with(b"jbd2/"), metadata) {
            (true, _) => Origin::Journal,
            (_, true) => Origin::Metadata,
            _ if record.inode != 0 => Origin::Data,
            _ => Origin::Unknown,
        };
        let request = Request { record, task, volume: owner.map_or(0, |owner| owner.volume) };
        if self.waiting.len() >= WAITING_MAX {
            self.give_first(give);
        }
        self.issued.insert(key, self.first + self.waiting.len() as u64);
        self.waiting.push_back(Waiting { request, done: false });
    }

    fn complete(&mut self, event: &Event) {
        let Some((record, _)) = record_of(event) else { return };
        let key = (event.device, record.offset_bytes, record.op);
        let Some(number) = self.issued.remove(&key) else { return };
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(waiting) = at.and_then(|at| self.waiting.get_mut(at)) {
            let record = &mut waiting.request.record;
            record.latency_ns = Some(event.time_ns.saturating_sub(record.time_ns));
            waiting.done = true;
        }
    }

    /// Passes on, in order, what is done or was issued before `old_ns`.
    fn give(&mut self, old_ns: u64, give: &mut dyn FnMut(&Request)) {
        while self.waiting.front().is_some_and(|w| w.done || w.request.record.time_ns < old_ns) {
            self.give_first(give);
        }
    }

    fn give_first(&mut self, give: &mut dyn FnMut(&Request)) {
        let Some(Waiting { request, done }) = self.waiting.pop_front() else { return };
        self.first += 1;
        if !done {
            let record = &request.record;
            self.issued.remove(&(record.device, record.offset_bytes, record.op));
        }
        give(&request);
    }
}

/// The request of an event, and whether it is marked as metadata.
fn record_of(event: &Event) -> Option<(Record, bool)> {
    let letters = event.rwbs.split(|byte| *byte == 0).next().unwrap_or_default();
    let what = std::str::from_utf8(letters).ok().and_then(rwbs)?;
    let bytes = event.sectors.checked_mul(512)?;
    // A flush alone has no sector: the kernel's largest number.
    let sector = if event.sectors == 0 { 0 } else { event.sector };
    let record = valid_request(event.time_ns, what, sector, bytes)?;
    Some((record, letters.contains(&b'M')))
}
