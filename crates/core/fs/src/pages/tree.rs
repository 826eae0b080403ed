//! The cached blocks of one file.
//!
//! ```text
//!   chunks: block / 64 -> Chunk { slots[64], present, dirty, delalloc, writeback : u64 masks }
//!
//!   absent --load--> clean --write--> dirty --collect--> writeback --done--> clean --evict-->
//!                                       ^                  | written to meanwhile: dirty again
//!                                       +------ failed ----+
//! ```
//!
//! Promises
//! - A page's bytes are an `Arc<[u8]>`: readers and write-back hold a snapshot, a writer copies
//!   only when one is out, so what write-back sends cannot change under it (stable pages).
//! - A page is only present if its block is allocated on disk or reserved (`delalloc`): holes and
//!   unwritten blocks without new data are never cached.
//! - `delalloc` pages are dirty or in write-back; each holds one reserved block, which the caller
//!   of [`PageTree::remove_range`] gives back and the caller of [`PageTree::end_writeback`] uses
//!   up.
//! - Pages in write-back are pinned: eviction passes them over.
//! - With packed records each page knows its base, and which 64ths of it may differ from that
//!   (`changes.rs`). Memory: 16 bytes a page.
//!
//! This file is long because every state change of a page has to keep the same few masks and
//! counts in step.
//!
//! Assumptions: the tree is under the inode's `pages` lock, which is a leaf but for the policy's.
//! Tested in `tree_tests.rs` and by `tests/it/file_io.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use syncline_cache::{Access, FrameId, PageKey};
use syncline_device::Clock;

use super::PageCache;
use crate::pages::GROUP_PAGES;
use crate::pages::changes::Changes;

/// Blocks in one chunk.
const CHUNK: u64 = 64;

/// A frame number that names no frame: the table was full. Such a page goes when it is clean.
pub(super) const UNTRACKED: FrameId = FrameId(u32::MAX);

#[derive(Clone)]
struct Page {
    data: Arc<[u8]>,
    frame: FrameId,
    changes: Changes,
}

struct Chunk {
    slots: [Option<Page>; CHUNK as usize],
    present: u64,
    dirty: u64,
    delalloc: u64,
    writeback: u64,
    /// Dirty, and changed since the last eager sync put it into the log.
    sync_dirty: u64,
    /// An eager sync made it durable, and write-back did not write it since.
    synced: u64,
}

impl Chunk {
    /// True if the log does not have the page as it is, and if it has a block on disk then.
    fn unlogged(&self, bit: u64) -> (bool, bool) {
        let unlogged = self.sync_dirty & bit != 0;
        (unlogged, unlogged && self.delalloc & bit == 0)
    }
}

impl Default for Chunk {
    fn default() -> Self {
        let slots = [const { None }; CHUNK as usize];
        Chunk { slots, present: 0, dirty: 0, delalloc: 0, writeback: 0, sync_dirty: 0, synced: 0 }
    }
}

/// A page on its way to the device.
pub(crate) struct Outgoing {
    /// Logical block.
    pub lblk: u64,
    /// Bytes to write: a snapshot, the page may change meanwhile.
    pub data: Arc<[u8]>,
    /// True if it holds a reserved block.
    pub delalloc: bool,
    /// True if it changed since it was last journaled, or was never journaled.
    pub sync_dirty: bool,
    /// Its changes since its base; those of the page begin anew with the snapshot.
    pub changes: Changes,
    /// A clean page, sent so that its neighbours become one request.
    pub fill: bool,
}

/// Pages that an eager sync has to make durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncDirty {
    /// All of them.
    pub pages: usize,
    /// Those without a block on disk yet.
    pub fresh: usize,
    /// Runs of consecutive ones.
    pub runs: usize,
}

/// End of the write-back of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteEnd {
    /// It is on the device and its block is installed, so a reservation is used up.
    Written,
    /// The journal takes care of it: it stays dirty until it is in its place, but an eager sync
    /// need not log it again. A reservation is used up.
    Logged,
    /// It is dirty again, with its reservation.
    Failed,
}

/// Selection of pages for write-back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    /// First block.
    pub from: u64,
    /// Block after the last.
    pub to: u64,
    /// Most pages.
    pub max: usize,
    /// Most pages if they are consecutive: one request.
    pub run_max: usize,
    /// Clean pages between two dirty ones are taken along if there are at most this many.
    pub gap_max: usize,
    /// Only pages that no transaction has as they are.
    pub unlogged: bool,
}

/// All pages that no transaction has as they are.
pub(crate) const UNLOGGED: Pick =
    Pick { from: 0, to: u64::MAX, max: usize::MAX, run_max: 0, gap_max: 0, unlogged: true };

/// Sequential read detection, as Linux's `file_ra_state`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readahead {
    /// Block after the last one read.
    pub next_lblk: u64,
    /// Blocks of the last window.
    pub window: u64,
}

/// The cached blocks of one file.
#[derive(Default)]
pub(crate) struct PageTree {
    ino: u32,
    chunks: BTreeMap<u64, Box<Chunk>>,
    pages: usize,
    dirty: usize,
    writeback: usize,
    delalloc: usize,
    /// Dirty pages that the log does not have as they are.
    unlogged: usize,
    /// When the first page that is still waiting became dirty; the key in the list of dirty files.
    dirtied_ns: Option<u64>,
    /// Readahead state of the sequential reader.
    pub readahead: Readahead,
}

/// Counts anew whether the log has a page; `before` and `now` are from [`Chunk::unlogged`].
fn recount(pages: &mut usize, cache: &PageCache, before: (bool, bool), now: (bool, bool)) {
    if now != before {
        *pages = *pages + usize::from(now.0) - usize::from(before.0);
        cache.count_overwritten(usize::from(before.1), usize::from(now.1));
    }
}

/// The slots of `chunk` that lie in `from..to`.
fn mask(chunk: u64, from: u64, to: u64) -> u64 {
    let base = chunk * CHUNK;
    let low = from.saturating_sub(base).min(CHUNK);
    let high = to.saturating_sub(base).min(CHUNK);
    let below = |n: u64| if n >= CHUNK { u64::MAX } else { (1u64 << n) - 1 };
    below(high) & !below(low)
}

/// The numbers of the set bits, lowest first.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let bit = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(bit)
    })
}

impl PageTree {
    /// An empty tree of inode `ino`.
    pub fn new(ino: u32) -> Self {
        PageTree { ino, ..PageTree::default() }
    }

    /// The frame of a cached block.
    #[cfg(test)]
    pub fn frame(&self, lblk: u64) -> Option<FrameId> {
        self.slot(lblk).map(|(_, page)| page.frame)
    }

    /// Cached pages.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.pages
    }

    /// Pages that were written to since they were last sent.
    pub fn dirty(&self) -> usize {
        self.dirty
    }

    /// True if any page is dirty or in write-back.
    pub fn has_dirty(&self) -> bool {
        self.dirty + self.writeback > 0
    }

    /// Dirty pages that the log does not have as they are; none that is in write-back.
    pub fn unlogged(&self) -> usize {
        self.unlogged
    }

    /// True if a page is on its way to the device.
    pub fn in_writeback(&self) -> bool {
        self.writeback > 0
    }

    /// Files the inode under the present time in the list of dirty files, unless it is there
    /// already or has nothing dirty.
    #[inline]
    pub fn note_dirty(&mut self, cache: &PageCache, clock: &dyn Clock) {
        if self.dirtied_ns.is_none() && self.has_dirty() {
            self.relist(cache, Some(clock.now_ns()));
        }
        if self.unlogged > 0 {
            cache.note_unlogged_since(clock);
        }
    }

    /// Ends one pass of write-back: without dirty pages the file leaves the list; otherwise pages
    /// written meanwhile count as dirty from now on (`redirty_tail`).
    pub fn end_pass(&mut self, cache: &PageCache, clock: &dyn Clock) {
        self.relist(cache, self.has_dirty().then(|| clock.now_ns()));
        self.note_dirty(cache, clock);
    }

    fn relist(&mut self, cache: &PageCache, since_ns: Option<u64>) {
        let before_ns = std::mem::replace(&mut self.dirtied_ns, since_ns);
        if before_ns != since_ns {
            cache.relist(self.ino, before_ns, since_ns);
        }
    }

    /// Pages that hold a reserved block.
    pub fn delalloc(&self) -> usize {
        self.delalloc
    }

    fn slot(&self, lblk: u64) -> Option<(&Chunk, &Page)> {
        let chunk = self.chunks.get(&(lblk / CHUNK))?;
        let page = chunk.slots[(lblk % CHUNK) as usize].as_ref()?;
        Some((chunk, page))
    }

    /// True if the block is cached.
    pub fn contains(&self, lblk: u64) -> bool {
        self.slot(lblk).is_some()
    }

    /// A snapshot of the block for a reader; counts as a use.
    #[inline]
    pub fn read(&self, cache: &PageCache, lblk: u64) -> Option<Arc<[u8]>> {
        let (_, page) = self.slot(lblk)?;
        cache.hit(page.frame, Access::Read);
        Some(Arc::clone(&page.data))
    }

    /// A snapshot that does not count as a use.
    pub fn peek(&self, lblk: u64) -> Option<Arc<[u8]>> {
        self.slot(lblk).map(|(_, page)| Arc::clone(&page.data))
    }

    /// Adds a page that is what the device has. One that is there already stays.
    pub fn insert_clean(&mut self, cache: &PageCache, lblk: u64, data: Arc<[u8]>) {
        if self.contains(lblk) {
            return;
        }
        let key = PageKey { file: u64::from(self.ino), index: lblk };
        let Some(frame) = cache.frames.insert(key, false) else { return };
        cache.policy.on_insert(&cache.frames, frame, Access::Read);
        let changes = Changes::since_flush(cache.flush_needed());
        let chunk = self.chunks.entry(lblk / CHUNK).or_default();
        let at = (lblk % CHUNK) as usize;
        chunk.slots[at] = Some(Page { data, frame, changes });
        chunk.present |= 1 << at;
        self.pages += 1;
    }

    /// Adds a modified page in place of whatever is there. `delalloc`: it comes with a reserved
    /// block (the caller found no page there).
    pub fn insert_dirty(&mut self, cache: &PageCache, lblk: u64, data: Arc<[u8]>, delalloc: bool) {
        let chunk = self.chunks.entry(lblk / CHUNK).or_default();
        let at = (lblk % CHUNK) as usize;
        if chunk.slots[at].is_some() {
            self.modify(cache, lblk, |page, changes| {
                cache.note_changes(changes, page, 0, &data);
                *page = data;
            });
            return;
        }
        let key = PageKey { file: u64::from(self.ino), index: lblk };
        let frame = cache.frames.insert(key, true).unwrap_or(UNTRACKED);
        if frame != UNTRACKED {
            cache.policy.on_insert(&cache.frames, frame, Access::Write);
            cache.waits(frame);
        }
        let bit = 1u64 << at;
        chunk.slots[at] = Some(Page { data, frame, changes: Changes::UNKNOWN });
        chunk.present |= bit;
        chunk.dirty |= bit;
        chunk.sync_dirty |= bit;
        if delalloc {
            chunk.delalloc |= bit;
            self.delalloc += 1;
        }
        self.pages += 1;
        self.dirty += 1;
        self.unlogged += 1;
        cache.count_overwritten(0, usize::from(!delalloc));
        cache.dirtied(1);
    }

    /// Adds a page that a transaction holds as it is, in place of whatever is there: it stays dirty
    /// until it is in its place, but no eager sync logs it again.
    pub fn insert_logged(&mut self, cache: &PageCache, lblk: u64, data: Arc<[u8]>) {
        self.insert_dirty(cache, lblk, data, false);
        let Some(chunk) = self.chunks.get_mut(&(lblk / CHUNK)) else { return };
        let bit = 1u64 << (lblk % CHUNK);
        let before = chunk.unlogged(bit);
        chunk.sync_dirty &= !bit;
        if let Some(page) = &mut chunk.slots[(lblk % CHUNK) as usize] {
            page.changes = Changes::NONE;
        }
        recount(&mut self.unlogged, cache, before, chunk.unlogged(bit));
    }

    /// Changes of a block since its base if its page became `data`.
    pub fn changes_to(&self, cache: &PageCache, lblk: u64, data: &[u8]) -> Changes {
        let Some((_, page)) = self.slot(lblk) else { return Changes::UNKNOWN };
        let mut changes = page.changes;
        cache.note_changes(&mut changes, &page.data, 0, data);
        changes
    }

    /// Copies `bytes` over a cached page from byte `at` on and marks it dirty. False: not cached.
    /// `at + bytes.len()` is at most the block size.
    #[inline]
    pub fn overwrite(&mut self, cache: &PageCache, lblk: u64, at: usize, bytes: &[u8]) -> bool {
        self.modify(cache, lblk, |data, changes| {
            cache.note_changes(changes, data, at, bytes);
            let full = bytes.len() == data.len();
            if full && Arc::get_mut(data).is_none() {
                *data = cache.page(bytes);
                return;
            }
            Arc::make_mut(data)[at..at + bytes.len()].copy_from_slice(bytes);
        })
    }

    /// Zeroes bytes `from..to` of a cached page; dirty only if that changed something. False: not
    /// cached.
    pub fn zero(&mut self, cache: &PageCache, lblk: u64, from: usize, to: usize) -> bool {
        match self.slot(lblk) {
            None => false,
            Some((_, page)) if page.data[from..to].iter().all(|byte| *byte == 0) => true,
            Some(_) => self.modify(cache, lblk, |data, changes| {
                changes.note_range(from..to, data.len());
                Arc::make_mut(data)[from..to].fill(0);
            }),
        }
    }

    fn modify(
        &mut self,
        cache: &PageCache,
        lblk: u64,
        change: impl FnOnce(&mut Arc<[u8]>, &mut Changes),
    ) -> bool {
        let Some(chunk) = self.chunks.get_mut(&(lblk / CHUNK)) else { return false };
        let at = (lblk % CHUNK) as usize;
        let Some(page) = chunk.slots[at].as_mut() else { return false };
        change(&mut page.data, &mut page.changes);
        let frame = page.frame;
        let newly = chunk.sync_dirty & (1 << at) == 0;
        chunk.sync_dirty |= 1 << at;
        if newly {
            self.unlogged += 1;
            cache.count_overwritten(0, usize::from(chunk.delalloc & (1 << at) == 0));
        }
        if chunk.dirty & (1 << at) == 0 {
            chunk.dirty |= 1 << at;
            self.dirty += 1;
            if chunk.writeback & (1 << at) == 0 {
                cache.dirtied(1);
            }
            cache.set_dirty(frame, true);
            cache.policy.on_dirty(&cache.frames, frame);
        }
        cache.hit(frame, Access::Write);
        true
    }

    /// Moves dirty pages, lowest first, to write-back, with copies of clean ones between them.
    pub fn collect(&mut self, cache: &PageCache, pick: &Pick) -> Vec<Outgoing> {
        let dirty = self.collect_dirty(cache, pick);
        self.with_gaps(dirty, pick.gap_max)
    }

    /// As [`PageTree::collect`], of these pages. Of blocks that are reserved only, those beside a
    /// page go with it, so that they get one place; from `unreached` on all up to the last.
    pub fn collect_chosen(
        &mut self,
        cache: &PageCache,
        chosen: &BTreeSet<u64>,
        unreached: u64,
        gap_max: usize,
    ) -> Vec<Outgoing> {
        let mut ranges: Vec<Range<u64>> = chosen.iter().map(|at| self.reserved_run(*at)).collect();
        if let Some(last) = ranges.last().filter(|last| last.end > unreached) {
            ranges.push(unreached..last.end);
        }
        let picks = ranges.into_iter().map(|range| Pick {
            from: range.start,
            to: range.end,
            run_max: 0,
            max: usize::MAX,
            gap_max,
            unlogged: false,
        });
        let mut dirty: Vec<Outgoing> =
            picks.flat_map(|pick| self.collect_dirty(cache, &pick)).collect();
        dirty.sort_unstable_by_key(|page| page.lblk);
        self.with_gaps(dirty, gap_max)
    }

    /// The pages beside `lblk`, itself included, that hold reserved blocks if it does.
    fn reserved_run(&self, lblk: u64) -> Range<u64> {
        let reserved = |at: &u64| self.is_delalloc(*at);
        let above = (lblk..).take(GROUP_PAGES).take_while(reserved).count() as u64;
        let below = (0..lblk).rev().take(GROUP_PAGES).take_while(reserved).count() as u64;
        if above == 0 { lblk..lblk + 1 } else { lblk - below..lblk + above }
    }

    /// Puts copies of clean pages between dirty ones that have at most `gap_max` between them.
    fn with_gaps(&self, dirty: Vec<Outgoing>, gap_max: usize) -> Vec<Outgoing> {
        if gap_max == 0 {
            return dirty;
        }
        let mut out: Vec<Outgoing> = Vec::with_capacity(dirty.len());
        for page in dirty {
            if let Some(last) = out.last().filter(|last| !last.delalloc && !page.delalloc) {
                let gap = last.lblk + 1..page.lblk;
                let short = gap.end.saturating_sub(gap.start) <= gap_max as u64;
                let clean: Option<Vec<Outgoing>> =
                    if short { gap.map(|lblk| self.fill(lblk)).collect() } else { None };
                out.extend(clean.unwrap_or_default());
            }
            out.push(page);
        }
        out
    }

    /// A copy of a clean page.
    fn fill(&self, lblk: u64) -> Option<Outgoing> {
        let (chunk, page) = self.slot(lblk)?;
        let bit = 1u64 << (lblk % CHUNK);
        let clean = (chunk.dirty | chunk.writeback | chunk.delalloc) & bit == 0;
        let data = Arc::clone(&page.data);
        clean.then_some(Outgoing {
            lblk,
            data,
            delalloc: false,
            sync_dirty: false,
            changes: Changes::UNKNOWN,
            fill: true,
        })
    }

    fn collect_dirty(&mut self, cache: &PageCache, pick: &Pick) -> Vec<Outgoing> {
        let Pick { from, to, max, run_max, unlogged, .. } = *pick;
        let mut out: Vec<Outgoing> = Vec::with_capacity(max.max(run_max).min(self.dirty));
        let mut overwritten = 0;
        let is_enough = |out: &[Outgoing], next: u64| {
            let follows = |first: &Outgoing| first.lblk + out.len() as u64 == next;
            out.len() >= max && !(out.len() < run_max && out.first().is_some_and(follows))
        };
        if self.dirty == 0 {
            return out;
        }
        for (&number, chunk) in self.chunks.range_mut(from / CHUNK..) {
            if number * CHUNK >= to || is_enough(&out, number * CHUNK) {
                break;
            }
            // A page whose older content is still on its way waits for the next pass.
            let wanted = if unlogged { chunk.sync_dirty } else { chunk.dirty };
            let ready = chunk.dirty & wanted & !chunk.writeback;
            for at in bits(ready & mask(number, from, to)) {
                if is_enough(&out, number * CHUNK + at as u64) {
                    break;
                }
                let Some(page) = chunk.slots[at].as_mut() else { continue };
                let bit = 1u64 << at;
                let sync_dirty = chunk.sync_dirty & bit != 0;
                overwritten += usize::from(sync_dirty && chunk.delalloc & bit == 0);
                chunk.sync_dirty &= !bit;
                chunk.dirty &= !bit;
                chunk.writeback |= bit;
                cache.frames.set_pinned(page.frame, true);
                cache.set_dirty(page.frame, false);
                out.push(Outgoing {
                    lblk: number * CHUNK + at as u64,
                    data: Arc::clone(&page.data),
                    delalloc: chunk.delalloc & bit != 0,
                    sync_dirty,
                    changes: page.changes.take(),
                    fill: false,
                });
            }
        }
        self.dirty -= out.len();
        self.writeback += out.len();
        self.unlogged -= out.iter().filter(|page| page.sync_dirty).count();
        cache.count_overwritten(overwritten, 0);
        out
    }

    /// Ends the write-back of `lblk`. `base`: an image of the page that recovery gives, since its
    /// snapshot was taken; a page without one is logged whole.
    pub fn end_writeback(&mut self, cache: &PageCache, lblk: u64, end: WriteEnd, base: Changes) {
        let Some(chunk) = self.chunks.get_mut(&(lblk / CHUNK)) else { return };
        let at = (lblk % CHUNK) as usize;
        let Some(page) = chunk.slots[at].as_mut() else { return };
        page.changes.rebase(base);
        let (frame, bit) = (page.frame, 1u64 << at);
        if chunk.writeback & bit == 0 {
            return;
        }
        let before = chunk.unlogged(bit);
        chunk.writeback &= !bit;
        self.writeback -= 1;
        cache.frames.set_pinned(frame, false);
        if end != WriteEnd::Failed && chunk.delalloc & bit != 0 {
            chunk.delalloc &= !bit;
            self.delalloc -= 1;
        }
        let waits = chunk.dirty & bit == 0;
        if waits && end == WriteEnd::Written {
            chunk.sync_dirty &= !bit;
            chunk.synced &= !bit;
            cache.cleaned(1);
            cache.policy.on_dirty(&cache.frames, frame);
        } else if waits {
            chunk.dirty |= bit;
            if end == WriteEnd::Failed {
                chunk.sync_dirty |= bit;
            }
            self.dirty += 1;
            cache.set_dirty(frame, true);
        }
        recount(&mut self.unlogged, cache, before, chunk.unlogged(bit));
        if waits && end == WriteEnd::Written && frame == UNTRACKED {
            self.take(cache, lblk);
        }
    }

    /// The pages of these blocks have no base any more: their contents are elsewhere.
    pub fn forget_bases(&mut self, range: Range<u64>) {
        for (_, chunk) in self.chunks.range_mut(range.start / CHUNK..range.end.div_ceil(CHUNK)) {
            for page in chunk.slots.iter_mut().flatten() {
                page.changes = Changes::UNKNOWN;
            }
        }
    }

    /// True if the log holds the current content of any dirty page.
    pub fn has_logged(&self) -> bool {
        self.chunks.values().any(|chunk| chunk.dirty & !chunk.sync_dirty != 0)
    }

    /// Pages of `from..to` that an eager sync has to make durable.
    pub fn sync_dirty_in(&self, from: u64, to: u64) -> SyncDirty {
        let (mut found, mut end) = (SyncDirty::default(), None);
        for (&number, chunk) in self.chunks.range(from / CHUNK..) {
            if number * CHUNK >= to {
                break;
            }
            let due = chunk.sync_dirty & chunk.dirty & mask(number, from, to);
            found.pages += due.count_ones() as usize;
            found.fresh += (due & chunk.delalloc).count_ones() as usize;
            // A run begins where the page before is not due.
            let follows = end == Some(number * CHUNK);
            found.runs += (due & !(due << 1 | u64::from(follows))).count_ones() as usize;
            end = (due >> (CHUNK - 1) != 0).then_some((number + 1) * CHUNK);
        }
        found
    }

    /// The runs of these pages.
    pub fn sync_runs(&self, from: u64, to: u64) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (&number, chunk) in self.chunks.range(from / CHUNK..) {
            if number * CHUNK >= to {
                break;
            }
            for at in bits(chunk.sync_dirty & chunk.dirty & mask(number, from, to)) {
                let lblk = number * CHUNK + at as u64;
                match runs.last_mut().filter(|run| run.end == lblk) {
                    Some(run) => run.end += 1,
                    None => runs.push(lblk..lblk + 1),
                }
            }
        }
        runs
    }

    /// An eager sync writes these pages in place. The same again with `is_over` once it has.
    pub fn note_in_place(&mut self, cache: &PageCache, runs: &[Range<u64>], is_over: bool) {
        for run in runs {
            let chunks = run.start / CHUNK..run.end.div_ceil(CHUNK);
            for (&number, chunk) in self.chunks.range_mut(chunks) {
                let pages = mask(number, run.start, run.end);
                if is_over {
                    chunk.synced |= pages & chunk.present;
                } else {
                    cache.rewrites.note_synced(pages, chunk.delalloc, chunk.synced);
                }
            }
        }
    }

    /// Snapshots of the pages that an eager sync of `from..to` logs. They stay dirty; end with
    /// [`PageTree::end_log`] each. The caller holds `io`, so that none is in write-back.
    pub fn collect_sync(&mut self, cache: &PageCache, from: u64, to: u64) -> Vec<Outgoing> {
        let (mut out, mut overwritten) = (Vec::new(), 0);
        for (&number, chunk) in self.chunks.range_mut(from / CHUNK..) {
            if number * CHUNK >= to {
                break;
            }
            let due = chunk.sync_dirty & chunk.dirty & mask(number, from, to);
            cache.rewrites.note_synced(due, chunk.delalloc, chunk.synced);
            chunk.synced |= due;
            for at in bits(due) {
                let Some(page) = chunk.slots[at].as_mut() else { continue };
                let bit = 1u64 << at;
                overwritten += usize::from(chunk.delalloc & bit == 0);
                chunk.sync_dirty &= !bit;
                out.push(Outgoing {
                    lblk: number * CHUNK + at as u64,
                    data: Arc::clone(&page.data),
                    delalloc: chunk.delalloc & bit != 0,
                    sync_dirty: true,
                    changes: page.changes.take(),
                    fill: false,
                });
            }
        }
        self.unlogged -= out.len();
        cache.count_overwritten(overwritten, 0);
        out
    }

    /// Ends [`PageTree::collect_sync`] of one page. `logged`: a transaction has it, with its block;
    /// otherwise it has to be logged again.
    pub fn end_log(&mut self, cache: &PageCache, lblk: u64, logged: bool, changes: Changes) {
        let Some(chunk) = self.chunks.get_mut(&(lblk / CHUNK)) else { return };
        let at = (lblk % CHUNK) as usize;
        if let Some(page) = chunk.slots[at].as_mut() {
            page.changes.rebase(if logged { Changes::NONE } else { changes });
        }
        let bit = 1u64 << at;
        let before = chunk.unlogged(bit);
        if !logged {
            chunk.sync_dirty |= bit & chunk.dirty;
        } else if chunk.delalloc & bit != 0 {
            chunk.delalloc &= !bit;
            self.delalloc -= 1;
        }
        recount(&mut self.unlogged, cache, before, chunk.unlogged(bit));
    }

    /// Gives up a clean page. False: `frame` is not this page's, or it is dirty or on its way.
    pub fn evict(&mut self, cache: &PageCache, lblk: u64, frame: FrameId) -> bool {
        let bit = 1u64 << (lblk % CHUNK);
        match self.slot(lblk) {
            Some((chunk, page))
                if page.frame == frame && (chunk.dirty | chunk.writeback) & bit == 0 =>
            {
                // What was written stays: nothing was freed.
                if let Some(chunk) = self.chunks.get_mut(&(lblk / CHUNK)) {
                    chunk.synced &= !bit;
                }
                self.take(cache, lblk);
                true
            }
            _ => false,
        }
    }

    /// Forgets every page of `from..to`, dirty ones too, and returns how many reserved blocks they
    /// held. The caller holds the inode's `io` lock, so that none is in write-back.
    pub fn remove_range(&mut self, cache: &PageCache, from: u64, to: u64) -> usize {
        let before = self.delalloc;
        let mut gone = Vec::new();
        for (&number, chunk) in self.chunks.range(from / CHUNK..) {
            if number * CHUNK >= to {
                break;
            }
            let slots = bits(chunk.present & mask(number, from, to));
            gone.extend(slots.map(|at| number * CHUNK + at as u64));
        }
        for lblk in gone {
            self.take(cache, lblk);
        }
        if !self.has_dirty() {
            self.relist(cache, None);
        }
        before - self.delalloc
    }

    /// Removes one page with everything that is counted about it.
    fn take(&mut self, cache: &PageCache, lblk: u64) {
        let Some(chunk) = self.chunks.get_mut(&(lblk / CHUNK)) else { return };
        let at = (lblk % CHUNK) as usize;
        let bit = 1u64 << at;
        let before = chunk.unlogged(bit);
        let Some(page) = chunk.slots[at].take() else { return };
        if (chunk.dirty | chunk.writeback) & bit != 0 {
            cache.cleaned(1);
        }
        self.dirty -= usize::from(chunk.dirty & bit != 0);
        self.writeback -= usize::from(chunk.writeback & bit != 0);
        self.delalloc -= usize::from(chunk.delalloc & bit != 0);
        self.pages -= 1;
        chunk.present &= !bit;
        chunk.dirty &= !bit;
        chunk.writeback &= !bit;
        chunk.delalloc &= !bit;
        chunk.sync_dirty &= !bit;
        cache.rewrites.note_dropped(chunk.synced & bit != 0);
        chunk.synced &= !bit;
        recount(&mut self.unlogged, cache, before, chunk.unlogged(bit));
        if chunk.present == 0 {
            self.chunks.remove(&(lblk / CHUNK));
        }
        if page.frame != UNTRACKED {
            cache.set_dirty(page.frame, false);
            cache.policy.on_remove(&cache.frames, page.frame);
            cache.frames.release(page.frame);
        }
        cache.recycle(page.data);
    }

    /// The first page at `from` or later that is dirty or in write-back: data that the extents may
    /// not show yet (`SEEK_DATA`, extent queries).
    pub fn next_dirty(&self, from: u64) -> Option<u64> {
        for (&number, chunk) in self.chunks.range(from / CHUNK..) {
            let waiting = (chunk.dirty | chunk.writeback) & mask(number, from, u64::MAX);
            if let Some(at) = bits(waiting).next() {
                return Some(number * CHUNK + at as u64);
            }
        }
        None
    }

    /// True if the page is dirty or in write-back.
    pub fn is_dirty(&self, lblk: u64) -> bool {
        let bit = 1u64 << (lblk % CHUNK);
        self.chunks.get(&(lblk / CHUNK)).is_some_and(|c| (c.dirty | c.writeback) & bit != 0)
    }

    /// True if the page holds a reserved block.
    pub fn is_delalloc(&self, lblk: u64) -> bool {
        let bit = 1u64 << (lblk % CHUNK);
        self.chunks.get(&(lblk / CHUNK)).is_some_and(|c| c.delalloc & bit != 0)
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
