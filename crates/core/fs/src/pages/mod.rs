//! The page cache: every cached block of every file, counted together, bounded by `cache=`.
//!
//! ```text
//!   Inode::pages: PageTree  (contents, masks)          one per file, under the inode's lock
//!        |  frame number, +-dirty, hit
//!        v
//!   PageCache: Frames + Policy   which clean page goes       evict.rs
//!              dirty count       who must write back         ../throttle.rs
//!              dirty files       by (dirtied, inode)         ../sync.rs
//!              cleaner           in an order of pages        victims.rs
//! ```
//!
//! Promises
//! - No more than the limit of pages stay once their write-back is done; dirty pages are at most
//!   `dirty_ratio` per cent of it plus what one call of each writer adds.
//! - Deterministic: the list of dirty files is ordered by time, then by inode number.
//!
//! Assumptions: everything in here is below `Inode::pages` in the lock order; nothing in this file
//! does I/O. Tested in `tree.rs` and `tests/it/file_io.rs`.

mod changes;
mod limits;
#[cfg(test)]
mod model_tests;
mod rewrites;
mod stats;
mod tree;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use limits::Limits;
use rewrites::Rewrites;
use syncline_base::lockrank::{Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
use syncline_cache::{Access, FrameId, Frames, Policy};
use syncline_device::Clock;
use tree::UNTRACKED;

use crate::options::{LiveLimits, LogFormat, METADATA_SHARE, MountOptions, Writeback};
use crate::ranks;

pub(crate) use changes::Changes;
pub use stats::CacheStats;
pub(crate) use tree::{Outgoing, PageTree, Pick, SyncDirty, UNLOGGED, WriteEnd};

/// Pages of one group.
pub(crate) const GROUP_PAGES: usize = 256;

/// Frames beyond the limit that the table can hold: dirty pages of many writers at once.
const FRAMES_SLACK: usize = 64 * 1024;

/// Attempts to get a file between two of its requests to the device.
const CHANGE_TRIES: usize = 64;

/// Smallest limit, in pages: one write and one readahead window at once.
const PAGES_MIN: usize = 64;

/// Accounting and replacement of all cached file pages of one volume.
pub(crate) struct PageCache {
    pub(crate) frames: Frames,
    pub(crate) policy: Box<dyn Policy>,
    /// A policy over the dirty pages alone: with `writeback=policy` the same one, with
    /// `writeback=space` full blocks and SpatialClock. The page that it evicts is written back
    /// next.
    pub(crate) cleaner: Option<Box<dyn Policy>>,
    pages_max: usize,
    limits: Limits,
    dirty: AtomicUsize,
    files: Mutex<BTreeSet<(u64, u32)>>,
    /// Memory of evicted pages, for new ones; the allocator would return it to the system and fault
    /// it in again. Together with the frames in use at most the limit.
    spare: Mutex<Vec<Arc<[u8]>>>,
    /// Of spare pages and frames together so many stay, also in idleness.
    reserve: usize,
    block_size: usize,
    /// Pages keep the changes since their base: the log has packed records.
    tracks_changes: bool,
    /// Device flush that covers all that was written in place without being logged; 0: none.
    flush_needed: AtomicU64,
    /// Dirty pages with a block on disk that the log does not have as they are.
    overwritten: AtomicUsize,
    /// When the first page since the last sync point got dirty; 0: none.
    unlogged_since_ns: AtomicU64,
    /// `sync=eager`: the share of logged pages that are written back.
    pub(crate) rewrites: Rewrites,
    /// `sync=periodic`: held shared while pages or sizes change.
    changes: Option<RwLock<()>>,
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) evicted: AtomicU64,
}

impl PageCache {
    /// The file pages' share of `cache=` in pages of `block_size` bytes; the dirty limits are per
    /// cent of it.
    pub(crate) fn new(options: &MountOptions, block_size: usize) -> PageCache {
        let bytes = options.cache_bytes - options.cache_bytes / METADATA_SHARE;
        let pages = bytes / (block_size.max(512) as u64);
        let pages_max = usize::try_from(pages).unwrap_or(usize::MAX).clamp(PAGES_MIN, 1 << 30);
        let limits = Limits::default();
        let live = LiveLimits::of(options);
        limits.set(pages_max, live.dirty_background_ratio, live.dirty_ratio);
        let cleaner = match options.writeback_order() {
            Writeback::File => None,
            Writeback::Policy => Some(options.policy.make(pages_max)),
            Writeback::Space => Some(syncline_cache::write_back_order(pages_max)),
        };
        let reserve = options.cache_reserve_bytes / block_size.max(512) as u64;
        let reserve = usize::try_from(reserve).unwrap_or(usize::MAX).min(pages_max);
        // Writing the zeros makes the system give each page now and not at its first use.
        let spare = (0..reserve).map(|_| std::iter::repeat_n(0, block_size).collect()).collect();
        PageCache {
            frames: Frames::new(pages_max + FRAMES_SLACK),
            policy: options.policy.make(pages_max),
            cleaner,
            pages_max,
            limits,
            dirty: AtomicUsize::new(0),
            files: Mutex::new(ranks::DIRTY_FILES, BTreeSet::new()),
            spare: Mutex::new(ranks::SPARE_PAGES, spare),
            reserve,
            block_size,
            tracks_changes: options.log == LogFormat::Packed,
            flush_needed: AtomicU64::new(0),
            overwritten: AtomicUsize::new(0),
            unlogged_since_ns: AtomicU64::new(0),
            rewrites: Rewrites::default(),
            changes: None,
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// Makes [`PageCache::hold_changes`] available: each change holds a lock shared from now on.
    pub(crate) fn with_changes_held(self) -> PageCache {
        PageCache { changes: Some(RwLock::new(ranks::CHANGES, ())), ..self }
    }

    /// Sets the limits of dirty data, in per cent of the cache.
    pub(crate) fn set_dirty_limits(&self, background_ratio: u32, ratio: u32) {
        self.limits.set(self.pages_max, background_ratio, ratio);
    }

    /// The limit, in pages.
    pub(crate) fn pages_max(&self) -> usize {
        self.pages_max
    }

    /// Pages that are dirty or being written.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty.load(Ordering::Relaxed)
    }

    /// True if a writer has to write back before it dirties more.
    #[inline]
    pub(crate) fn above_throttle(&self) -> bool {
        self.above_throttle_by(0)
    }

    /// As [`PageCache::above_throttle`] once `pages` are clean.
    #[inline]
    pub(crate) fn above_throttle_by(&self, pages: usize) -> bool {
        self.dirty_pages() > self.limits.throttle_pages.load(Ordering::Relaxed) + pages
    }

    /// True if background write-back has to go on, whatever the age of the pages.
    pub(crate) fn above_background(&self) -> bool {
        self.above_background_by(0)
    }

    /// As [`PageCache::above_background`] once `pages` are clean.
    pub(crate) fn above_background_by(&self, pages: usize) -> bool {
        self.dirty_pages() > self.limits.background_pages.load(Ordering::Relaxed) + pages
    }

    /// True if a writer will soon have to write back itself: half way from the background limit to
    /// the other one, where Linux begins to slow writers down (`dirty_freerun_ceiling`).
    pub(crate) fn above_free_run(&self) -> bool {
        let load = |pages: &AtomicUsize| pages.load(Ordering::Relaxed);
        let Limits { background_pages, throttle_pages } = &self.limits;
        self.dirty_pages() * 2 > load(background_pages) + load(throttle_pages)
    }

    /// Dirty pages beyond half of the background limit: what write-back in an order of pages
    /// goes down to, so that it sends several pages at a time.
    pub(crate) fn excess(&self) -> usize {
        let background = self.limits.background_pages.load(Ordering::Relaxed);
        self.dirty_pages().saturating_sub(background / 2)
    }

    /// The page in `frame` was used.
    #[inline]
    fn hit(&self, frame: FrameId, access: Access) {
        self.policy.on_hit(&self.frames, frame, access);
        if let Some(cleaner) = &self.cleaner {
            if self.frames.is_dirty(frame) {
                cleaner.on_hit(&self.frames, frame, access);
            }
        }
    }

    /// The page in `frame`, whose flag says so, waits to be written back from now on.
    fn waits(&self, frame: FrameId) {
        if let Some(cleaner) = &self.cleaner {
            if frame != UNTRACKED {
                cleaner.on_insert(&self.frames, frame, Access::Write);
            }
        }
    }

    /// The page in `frame` waits to be written back from now on, or does not any more.
    fn set_dirty(&self, frame: FrameId, dirty: bool) {
        if self.frames.is_dirty(frame) == dirty {
            return;
        }
        self.frames.set_dirty(frame, dirty);
        match &self.cleaner {
            Some(_) if dirty => self.waits(frame),
            Some(cleaner) => cleaner.on_remove(&self.frames, frame),
            None => {}
        }
    }

    fn dirtied(&self, pages: usize) {
        self.dirty.fetch_add(pages, Ordering::Relaxed);
    }

    fn cleaned(&self, pages: usize) {
        self.dirty.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Bytes of `page` from `at` on become `new`.
    #[inline]
    fn note_changes(&self, changes: &mut Changes, page: &[u8], at: usize, new: &[u8]) {
        if self.tracks_changes {
            changes.note_write(page, at, new);
        }
    }

    /// Held while the pages of a file, or its size with them, change: with `sync=periodic` a sync
    /// point has all of the change or nothing. Taken after `rwsem`, before `io`; not twice.
    #[inline]
    pub(crate) fn change(&self) -> Option<ReadGuard<'_, ()>> {
        self.changes.as_ref().map(|changes| changes.read())
    }

    /// As [`PageCache::change`] with the `io` of the file: it is not held while a request of this
    /// file is waited for, because a sync point and every other change would wait for that request.
    pub(crate) fn change_with<'a>(
        &'a self,
        io: &'a Mutex<()>,
    ) -> (Option<ReadGuard<'a, ()>>, MutexGuard<'a, ()>) {
        for _ in 0..CHANGE_TRIES {
            let change = self.change();
            if change.is_none() {
                break;
            }
            if let Some(io) = io.try_lock() {
                return (change, io);
            }
            drop(change);
            drop(io.lock());
        }
        (self.change(), io.lock())
    }

    /// Waits for the changes under way and keeps others from beginning.
    pub(crate) fn hold_changes(&self) -> Option<WriteGuard<'_, ()>> {
        self.changes.as_ref().map(|changes| changes.write())
    }

    fn count_overwritten(&self, before: usize, now: usize) {
        if now > before {
            self.overwritten.fetch_add(now - before, Ordering::Relaxed);
        } else if now < before {
            self.overwritten.fetch_sub(before - now, Ordering::Relaxed);
        }
    }

    /// Dirty pages with a block on disk that the log does not have as they are.
    pub(crate) fn overwritten(&self) -> usize {
        self.overwritten.load(Ordering::Relaxed)
    }

    #[inline]
    fn note_unlogged_since(&self, clock: &dyn Clock) {
        if self.unlogged_since_ns.load(Ordering::Relaxed) == 0 {
            let now_ns = clock.now_ns().max(1);
            let _ = self.unlogged_since_ns.compare_exchange(
                0,
                now_ns,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// When the first page since the last sync point got dirty, in nanoseconds of the clock.
    pub(crate) fn unlogged_since_ns(&self) -> Option<u64> {
        Some(self.unlogged_since_ns.load(Ordering::Relaxed)).filter(|since_ns| *since_ns > 0)
    }

    /// A sync point has every page.
    pub(crate) fn forget_unlogged_since(&self) {
        self.unlogged_since_ns.store(0, Ordering::Relaxed);
    }

    /// Device flush that covers all that was written in place without being logged; 0: none.
    pub(crate) fn flush_needed(&self) -> u64 {
        self.flush_needed.load(Ordering::Acquire)
    }

    /// Pages were written in place that the log does not have; flush `number` covers them.
    pub(crate) fn note_unlogged(&self, number: u64) {
        self.flush_needed.fetch_max(number, Ordering::AcqRel);
    }

    /// A page with these bytes, which are a whole block.
    pub(crate) fn page(&self, bytes: &[u8]) -> Arc<[u8]> {
        if bytes.len() == self.block_size {
            if let Some(mut page) = self.spare.lock().pop() {
                if let Some(own) = Arc::get_mut(&mut page) {
                    own.copy_from_slice(bytes);
                    return page;
                }
            }
        }
        Arc::from(bytes)
    }

    /// Returns a page without other references and with undefined bytes, to be filled before it is
    /// cached.
    pub(crate) fn page_to_fill(&self) -> Arc<[u8]> {
        let spare = self.spare.lock().pop();
        spare.unwrap_or_else(|| std::iter::repeat_n(0, self.block_size).collect())
    }

    /// Takes the memory of a page that left the cache, if no snapshot of it is out.
    fn recycle(&self, mut page: Arc<[u8]>) {
        if page.len() != self.block_size || Arc::get_mut(&mut page).is_none() {
            return;
        }
        let mut spare = self.spare.lock();
        if spare.len() + self.frames.len() < self.pages_max {
            spare.push(page);
        }
    }

    /// Pages whose memory is kept for new ones.
    pub(crate) fn spare_pages(&self) -> usize {
        self.spare.lock().len()
    }

    /// Frees the memory that is kept for new pages, except the reserve.
    pub(crate) fn release_spare_pages(&self) {
        let mut spare = self.spare.lock();
        let kept = self.reserve.saturating_sub(self.frames.len()).min(spare.len());
        let released = spare.split_off(kept);
        spare.shrink_to_fit();
        // The allocator may take a while.
        drop(spare);
        drop(released);
    }

    /// Moves a file in the list of dirty files, in one step: a walk over the list meets it.
    fn relist(&self, ino: u32, before_ns: Option<u64>, since_ns: Option<u64>) {
        let mut files = self.files.lock();
        if let Some(before_ns) = before_ns {
            files.remove(&(before_ns, ino));
        }
        if let Some(since_ns) = since_ns {
            files.insert((since_ns, ino));
        }
    }

    /// Numbers of the dirty files: all of them, unlike a walk by [`PageCache::next_dirty_file`].
    pub(crate) fn dirty_files(&self) -> BTreeSet<u32> {
        self.files.lock().iter().map(|(_, ino)| *ino).collect()
    }

    /// The file that has been dirty longest, after `after` in the order of (dirtied, inode).
    pub(crate) fn next_dirty_file(&self, after: Option<(u64, u32)>) -> Option<(u64, u32)> {
        let files = self.files.lock();
        match after {
            None => files.first().copied(),
            Some(after) => files
                .range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded))
                .next()
                .copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(policy: &str, background: u32, ratio: u32) -> MountOptions {
        MountOptions {
            cache_bytes: 4_000 << 10,
            policy: policy.parse().expect("it is known"),
            dirty_background_ratio: Some(background),
            dirty_ratio: Some(ratio),
            ..MountOptions::default()
        }
    }

    #[test]
    fn limits_follow_the_ratios() {
        let cache = PageCache::new(&options("lru", 10, 20), 1024);
        assert_eq!((cache.pages_max, cache.limits.get()), (3000, (300, 600)));
        cache.set_dirty_limits(1, 2);
        assert_eq!(cache.limits.get(), (30, 60));
        let cache = PageCache::new(&options("lru", 50, 20), 1024);
        assert_eq!(cache.limits.get(), (300, 600));
    }

    #[test]
    fn memory_of_pages_that_went_is_used_again_and_bounded() {
        let cache = PageCache::new(&options("lru", 10, 20), 1024);
        let page = cache.page(&[7; 1024]);
        let address = page.as_ptr();
        cache.recycle(Arc::clone(&page));
        assert_ne!(cache.page(&[8; 1024]).as_ptr(), address, "a snapshot was out");
        cache.recycle(page);
        let again = cache.page(&[9; 1024]);
        assert_eq!((again.as_ptr(), again[1023]), (address, 9));
        for _ in 0..4000 {
            cache.recycle(vec![0; 1024].into());
        }
        assert_eq!(cache.spare_pages(), cache.pages_max);
        cache.release_spare_pages();
        assert_eq!(cache.spare_pages(), 0);
    }

    #[test]
    fn reserved_pages_are_there_before_the_first_use_and_within_the_limit() {
        let reserve = |kib: u64| {
            let options = MountOptions { cache_reserve_bytes: kib << 10, ..options("lru", 10, 20) };
            PageCache::new(&options, 1024)
        };
        let cache = reserve(100);
        let reserved: Vec<_> = cache.spare.lock().iter().map(|page| page.as_ptr()).collect();
        assert_eq!(reserved.len(), 100);
        let pages: Vec<_> = (0..100).map(|_| cache.page(&[1; 1024])).collect();
        assert!(pages.iter().all(|page| reserved.contains(&page.as_ptr())));
        assert!(!reserved.contains(&cache.page(&[1; 1024]).as_ptr()), "none is given twice");
        pages.into_iter().for_each(|page| cache.recycle(page));
        cache.release_spare_pages();
        assert_eq!(cache.spare_pages(), 100, "they stay in idleness");
        assert_eq!(reserve(1 << 20).spare.lock().len(), cache.pages_max);
    }

    /// A file whose write-back ends while it is dirty is moved, and met wherever it is.
    #[test]
    fn a_file_that_stays_dirty_is_in_every_list_of_dirty_files() {
        let cache = PageCache::new(&options("clock", 10, 20), 4096);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let clock = syncline_device::VirtualClock::default();
                let mut tree = PageTree::new(7);
                tree.insert_dirty(&cache, 0, vec![0; 4096].into(), false);
                tree.note_dirty(&cache, &clock);
                for round in 0.. {
                    if done.load(Ordering::Acquire) {
                        break;
                    }
                    clock.sleep_until(round);
                    tree.end_pass(&cache, &clock);
                }
            });
            while cache.dirty_files().is_empty() {
                std::thread::yield_now();
            }
            let missed = (0..200_000).find(|_| !cache.dirty_files().contains(&7));
            done.store(true, Ordering::Release);
            assert_eq!(missed, None);
        });
    }

    #[test]
    fn dirty_files_come_by_age_then_number() {
        let cache = PageCache::new(&options("clock", 10, 20), 4096);
        for (since, ino) in [(20, 3), (10, 9), (10, 2)] {
            cache.relist(ino, None, Some(since));
        }
        assert_eq!(cache.next_dirty_file(None), Some((10, 2)));
        assert_eq!(cache.next_dirty_file(Some((10, 2))), Some((10, 9)));
        assert_eq!(cache.dirty_files(), [2, 3, 9].into());
        cache.relist(9, Some(10), None);
        assert_eq!(cache.next_dirty_file(Some((10, 2))), Some((20, 3)));
        assert_eq!(cache.next_dirty_file(Some((20, 3))), None);
    }
}
