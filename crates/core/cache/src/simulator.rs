//! A cache without contents: runs one policy on a trace of page accesses and counts.
//!
//! ```text
//!   accesses -> [ index: hit? ] -> hit: reference, dirty
//!                               -> miss: victim out (written if dirty), page in (read if read)
//!   above the background limit: every dirty page is written, in ascending order
//!   finish: what is left leaves in the order of the policy
//! ```
//!
//! A written page is not read first: a trace's accesses are whole pages (informed-storage paper,
//! section 5.4.1). The order in which pages leave at the end is the policy's, because it is in the
//! paper's figures: with 64 MB, more than half of the writes of table 5 can only be those of the
//! last pages.
//!
//! This file is long because a run's counts, its interface without the policy's type and the engine
//! with it belong together.
//!
//! Promises: deterministic; an access is O(1) for every policy but `min`. Tested in `tests/it`
//! against plain models and exact figures.

use crate::index::PageIndex;
use crate::policy::{Accept, Access, Entry, Order, entry, simulation};
use crate::{CacheError, FrameId, Frames, PageKey};
use rustc_hash::FxHashMap;

/// A run of written pages longer than this, 64 KiB of 4 KiB pages, counts as sequential: the
/// 128 sectors of the eager-sync paper, section 5.1.
pub const LONG_RUN_PAGES: u64 = 16;

/// Accesses whose pages are looked up together: the look-ups do not depend on each other, so the
/// processor waits for the memory of all at once.
const LOOKUPS: usize = 16;

/// One use of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAccess {
    /// Page that is accessed.
    pub key: PageKey,
    /// Kind of the access.
    pub access: Access,
}

/// One page that the device reads or writes because of the cache: the after-cache trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAccess {
    /// Number of the access that caused it, from 0; the number of all at the end.
    pub at: u64,
    /// Page that is accessed.
    pub key: PageKey,
    /// Kind of the access.
    pub access: Access,
}

/// When dirty pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// When they are evicted, and at the end: the set-up of the informed-storage paper.
    Lazy,
    /// Also all of them, in ascending order, once more than this share of the cache is dirty, in
    /// per cent: as `dirty_background_ratio`.
    Background(u8),
}

/// Counters of a run so far, in pages except `write_runs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accesses to pages that were in the cache.
    pub hits: u64,
    /// Accesses to pages that were not.
    pub misses: u64,
    /// Pages given up to make room.
    pub evictions: u64,
    /// Of these, dirty.
    pub dirty_evictions: u64,
    /// Pages read from the device: misses of reads.
    pub reads: u64,
    /// Pages written to the device: at eviction, in the background, and at the end.
    pub write_backs: u64,
    /// Of these, in the background.
    pub background_writes: u64,
    /// Of these, at the end.
    pub final_writes: u64,
    /// Runs of writes, each page the one after the last.
    pub write_runs: u64,
    /// Pages written in runs longer than [`LONG_RUN_PAGES`].
    pub long_run_writes: u64,
}

impl Counts {
    /// Share of accesses that hit, 0 to 1; 0 without accesses.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits, self.hits + self.misses)
    }

    /// Share of written pages in long runs, 0 to 1; 0 without writes.
    pub fn sequential_ratio(&self) -> f64 {
        ratio(self.long_run_writes, self.write_backs)
    }

    /// The cost model of the informed-storage paper, section 5.4.3: each page read or written takes
    /// the same, in microseconds.
    pub fn cost_us(&self, read_us: u64, write_us: u64) -> u64 {
        self.reads.saturating_mul(read_us).saturating_add(self.write_backs.saturating_mul(write_us))
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// For each access the number of the next access to its page, `u64::MAX` if there is none: what
/// policies with [`Entry::needs_future`] are told.
pub fn next_uses(accesses: &[PageAccess]) -> Vec<u64> {
    let mut last: FxHashMap<PageKey, u64> = FxHashMap::default();
    let mut next = vec![u64::MAX; accesses.len()];
    for (at, access) in accesses.iter().enumerate().rev() {
        next[at] = last.insert(access.key, at as u64).unwrap_or(u64::MAX);
    }
    next
}

/// A policy with `capacity` frames, on a trace.
pub struct Simulator(Box<dyn Run>);

impl Simulator {
    /// Runs the policy called `policy` on `capacity` frames (at least one), writing lazily.
    ///
    /// # Errors
    /// [`CacheError::UnknownPolicy`].
    pub fn new(policy: &str, capacity: usize) -> Result<Self, CacheError> {
        Ok(Self::of(entry(policy)?, capacity, WriteBack::Lazy))
    }

    /// Runs a policy on `capacity` frames (at least one).
    pub fn of(entry: &Entry, capacity: usize, write_back: WriteBack) -> Self {
        Simulator(simulation(entry, Setup { capacity: capacity.max(1), write_back }))
    }

    /// Records accesses to the device from now on, for [`Simulator::take_device_accesses`].
    pub fn record(&mut self) {
        self.0.record();
    }

    /// Returns the device accesses since the last call, in order.
    pub fn take_device_accesses(&mut self) -> Vec<DeviceAccess> {
        self.0.take_device_accesses()
    }

    /// One access. Returns whether it hit.
    pub fn access(&mut self, key: PageKey, access: Access) -> bool {
        let hits = self.counts().hits;
        self.run(&[PageAccess { key, access }], &[]);
        self.counts().hits > hits
    }

    /// Accesses in order. `next_uses` has one entry for each access, or none if the policy does not
    /// need the future.
    pub fn run(&mut self, accesses: &[PageAccess], next_uses: &[u64]) {
        self.0.run(accesses, next_uses);
    }

    /// Drops a page without writing it, as when its file is deleted.
    pub fn forget(&mut self, key: PageKey) {
        self.0.forget(key);
    }

    /// As [`Simulator::forget`] for the pages of `file` from `first` on, at most `pages` of them.
    pub fn forget_range(&mut self, file: u64, first: u64, pages: u64) {
        self.0.forget_range(file, first, pages);
    }

    /// Writes the dirty ones of these pages in ascending order, as fsync does; they stay. Counted
    /// as background writes.
    pub fn write_range(&mut self, file: u64, first: u64, pages: u64) {
        self.0.write_range(file, first, pages);
    }

    /// Pins a cached page or unpins it; pinned pages stay. Whether it is cached.
    pub fn set_pinned(&mut self, key: PageKey, pinned: bool) -> bool {
        self.0.set_pinned(key, pinned)
    }

    /// Pages that are cached.
    pub fn pages(&self) -> usize {
        self.0.pages()
    }

    /// Memory of frames, index and policy, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }

    /// Empties the cache in the order of the policy and writes dirty pages; pinned pages are
    /// written last. Not counted as evictions.
    pub fn drain(&mut self) -> Counts {
        self.0.drain();
        self.counts()
    }

    /// [`Simulator::drain`], and the counts of the whole run.
    pub fn finish(mut self) -> Counts {
        self.drain()
    }
}

/// Cache size (in pages) and write-back of a run.
pub(crate) struct Setup {
    pub capacity: usize,
    pub write_back: WriteBack,
}

/// An engine whose policy is not known to the caller.
pub(crate) trait Run: Send {
    fn record(&mut self);
    fn take_device_accesses(&mut self) -> Vec<DeviceAccess>;
    fn run(&mut self, accesses: &[PageAccess], next_uses: &[u64]);
    fn forget(&mut self, key: PageKey);
    fn forget_range(&mut self, file: u64, first: u64, pages: u64);
    fn write_range(&mut self, file: u64, first: u64, pages: u64);
    fn set_pinned(&mut self, key: PageKey, pinned: bool) -> bool;
    fn pages(&self) -> usize;
    fn memory_bytes(&self) -> usize;
    fn counts(&self) -> Counts;
    fn drain(&mut self);
}

/// The cache with its policy inlined.
pub(crate) struct Engine<O> {
    frames: Frames,
    order: O,
    index: PageIndex,
    capacity: usize,
    /// Dirty pages that start a write-back.
    background: usize,
    dirty: usize,
    /// Slots whose pages became dirty since the last write-back, and maybe left since; empty if
    /// there is none but at the end.
    dirtied: Vec<u32>,
    counts: Counts,
    /// The last page written, and how many in a row it ends.
    run: Option<(PageKey, u64)>,
    accesses: u64,
    record: Option<Vec<DeviceAccess>>,
}

impl<O: Order> Engine<O> {
    pub fn new(setup: Setup) -> Self {
        let Setup { capacity, write_back } = setup;
        Engine {
            frames: Frames::new(capacity),
            order: O::new(capacity),
            index: PageIndex::new(capacity),
            capacity,
            background: match write_back {
                WriteBack::Lazy => usize::MAX,
                WriteBack::Background(percent) => {
                    (capacity.saturating_mul(usize::from(percent.min(100))) / 100).max(1)
                }
            },
            dirty: 0,
            dirtied: Vec::new(),
            counts: Counts::default(),
            run: None,
            accesses: 0,
            record: None,
        }
    }

    /// One access, to a page that was in `known` a moment ago.
    #[inline]
    fn access(&mut self, key: PageKey, access: Access, known: Option<FrameId>) {
        let write = access == Access::Write;
        let known = known.filter(|frame| self.frames.key(*frame) == Some(key));
        if let Some(frame) = known.or_else(|| self.index.get(&self.frames, key)) {
            self.counts.hits += 1;
            if write && !self.frames.is_dirty(frame) {
                self.frames.set_dirty(frame, true);
                self.note_dirty(frame);
                self.order.dirty(&self.frames, frame);
            }
            if O::HIT_SETS_REFERENCE {
                self.frames.reference(frame);
            } else {
                self.order.hit(&self.frames, frame, access);
            }
        } else {
            self.miss(key, access);
        }
        if self.dirty > self.background {
            self.write_back();
        }
        self.accesses += 1;
    }

    /// The page in `frame` became dirty.
    #[inline]
    fn note_dirty(&mut self, frame: FrameId) {
        self.dirty += 1;
        if self.background == usize::MAX {
            return;
        }
        if self.dirtied.len() >= self.capacity.saturating_mul(2) {
            // Each dirty page is in it, and those that left make as many again at least.
            self.dirtied.sort_unstable();
            self.dirtied.dedup();
            self.dirtied.retain(|slot| self.frames.is_dirty(FrameId(*slot)));
        }
        self.dirtied.push(frame.0);
    }

    fn miss(&mut self, key: PageKey, access: Access) {
        let write = access == Access::Write;
        self.counts.misses += 1;
        self.order.miss(key);
        let frame = if self.frames.len() < self.capacity {
            self.frames.insert(key, write)
        } else {
            self.evict().filter(|frame| self.frames.replace(*frame, key, write))
        };
        if !write {
            self.counts.reads += 1;
            self.emit(key, access);
        }
        let Some(frame) = frame else {
            // Everything is pinned: the page passes by.
            if write {
                self.write(key);
            }
            return;
        };
        if write {
            self.note_dirty(frame);
        }
        self.order.insert(&self.frames, frame, access);
        self.index.insert(key, frame);
    }

    /// Gives up one page; its frame stays in use, for the next page.
    fn evict(&mut self) -> Option<FrameId> {
        let frame = self.order.pick(&self.frames, Accept::Any)?;
        self.counts.evictions += 1;
        if self.take_out(frame) {
            self.counts.dirty_evictions += 1;
        }
        Some(frame)
    }

    /// Takes a page out of order and index, and writes it if it is dirty: then true.
    fn take_out(&mut self, frame: FrameId) -> bool {
        let dirty = self.frames.is_dirty(frame);
        if let Some(key) = self.frames.key(frame) {
            self.order.remove(&self.frames, frame);
            self.index.remove(key, frame);
            if dirty {
                self.dirty -= 1;
                self.write(key);
            }
        }
        dirty
    }

    /// All pages, in no order.
    fn all(&self) -> impl Iterator<Item = (PageKey, FrameId)> {
        // Slots fit, see `Frames::new`.
        let slots = (0..self.frames.high_water() as u32).map(FrameId);
        slots.filter_map(|frame| Some((self.frames.key(frame)?, frame)))
    }

    /// The cached ones of a range, in ascending order: looked up one by one, or picked of all.
    fn cached(&self, file: u64, first: u64, pages: u64) -> Vec<(PageKey, FrameId)> {
        let range = first..first.saturating_add(pages);
        if pages <= self.frames.high_water() as u64 {
            let keys = range.map(|index| PageKey { file, index });
            return keys
                .filter_map(|key| Some((key, self.index.get(&self.frames, key)?)))
                .collect();
        }
        let inside = |key: &PageKey| key.file == file && range.contains(&key.index);
        let mut found: Vec<_> = self.all().filter(|(key, _)| inside(key)).collect();
        found.sort_unstable();
        found
    }

    /// Writes every dirty page in ascending order.
    fn write_back(&mut self) {
        let mut pages: Vec<(PageKey, FrameId)> = Vec::with_capacity(self.dirty);
        for slot in self.dirtied.drain(..) {
            let frame = FrameId(slot);
            if self.frames.is_dirty(frame) {
                if let Some(key) = self.frames.key(frame) {
                    pages.push((key, frame));
                }
            }
        }
        pages.sort_unstable();
        // A slot whose page left and came again is there twice; `clean` finds it clean then.
        self.clean(pages);
    }

    /// Writes those of these pages that are dirty, in this order.
    fn clean(&mut self, pages: Vec<(PageKey, FrameId)>) {
        for (key, frame) in pages {
            if !self.frames.is_dirty(frame) {
                continue;
            }
            self.counts.background_writes += 1;
            self.dirty -= 1;
            self.frames.set_dirty(frame, false);
            self.order.dirty(&self.frames, frame);
            self.write(key);
        }
    }

    fn write(&mut self, key: PageKey) {
        self.counts.write_backs += 1;
        let length = match self.run {
            Some((last, length)) if follows(last, key) => length + 1,
            _ => {
                self.counts.write_runs += 1;
                1
            }
        };
        self.run = Some((key, length));
        match length {
            0..=LONG_RUN_PAGES => {}
            // It has become a long one.
            length if length == LONG_RUN_PAGES + 1 => self.counts.long_run_writes += length,
            _ => self.counts.long_run_writes += 1,
        }
        self.emit(key, Access::Write);
    }

    #[inline]
    fn emit(&mut self, key: PageKey, access: Access) {
        if let Some(record) = &mut self.record {
            record.push(DeviceAccess { at: self.accesses, key, access });
        }
    }
}

fn follows(last: PageKey, key: PageKey) -> bool {
    last.file == key.file && last.index + 1 == key.index
}

impl<O: Order> Run for Engine<O> {
    fn record(&mut self) {
        self.record.get_or_insert_default();
    }

    fn take_device_accesses(&mut self) -> Vec<DeviceAccess> {
        self.record.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn run(&mut self, accesses: &[PageAccess], next_uses: &[u64]) {
        let mut next_uses = next_uses.iter().copied();
        for batch in accesses.chunks(LOOKUPS) {
            let mut known = [None; LOOKUPS];
            for (known, access) in known.iter_mut().zip(batch) {
                *known = self.index.get(&self.frames, access.key);
            }
            for (access, known) in batch.iter().zip(known) {
                if O::NEEDS_FUTURE {
                    self.order.foresee(next_uses.next().unwrap_or(u64::MAX));
                }
                self.access(access.key, access.access, known);
            }
        }
    }

    fn forget(&mut self, key: PageKey) {
        self.forget_range(key.file, key.index, 1);
    }

    fn forget_range(&mut self, file: u64, first: u64, pages: u64) {
        for (key, frame) in self.cached(file, first, pages) {
            self.dirty -= usize::from(self.frames.is_dirty(frame));
            self.order.remove(&self.frames, frame);
            self.index.remove(key, frame);
            self.frames.release(frame);
        }
    }

    fn write_range(&mut self, file: u64, first: u64, pages: u64) {
        let pages = self.cached(file, first, pages);
        self.clean(pages);
    }

    fn set_pinned(&mut self, key: PageKey, pinned: bool) -> bool {
        let frame = self.index.get(&self.frames, key);
        frame.inspect(|frame| self.frames.set_pinned(*frame, pinned)).is_some()
    }

    fn pages(&self) -> usize {
        self.frames.len()
    }

    fn memory_bytes(&self) -> usize {
        let frames = self.frames.high_water() * Frames::FRAME_BYTES;
        let dirtied = self.dirtied.capacity() * size_of::<u32>();
        frames + self.index.memory_bytes() + self.order.memory_bytes(&self.frames) + dirtied
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn drain(&mut self) {
        let before = self.counts.write_backs;
        self.order.empty(&self.frames);
        while let Some(frame) = self.order.pick(&self.frames, Accept::Any) {
            self.take_out(frame);
            self.frames.release(frame);
        }
        let background = self.counts.background_writes;
        // What was pinned. Slots fit, see `Frames::new`.
        self.dirtied = (0..self.frames.high_water() as u32).collect();
        self.write_back();
        self.counts.background_writes = background;
        self.counts.final_writes += self.counts.write_backs - before;
    }
}
