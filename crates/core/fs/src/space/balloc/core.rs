//! The allocator proper: runs of blocks out of per-group maps, windows that keep files contiguous.
//!
//! ```text
//!   allocate ---> owner's window? ----yes---------------------------------> range
//!                   | no
//!                   small file ----> packed window of its flex group -----> range
//!                   | no (or no room)
//!                   search: at the goal, then the goal's group, then the other groups;
//!                   take the normalised length, hand out what was asked, keep the rest as window
//! ```
//!
//! If the policy keeps zones for hot files, a hot file's search looks into the zones first, then
//! elsewhere. Other files look elsewhere first. They borrow from the ends of the zones when the
//! free space elsewhere is in small pieces, and from anywhere when nothing else is free and all
//! windows are given up. No allocation fails because of a zone.
//!
//! Everything here is memory. Group maps come through [`GroupSource`]; what reaches the disk is
//! `space/balloc/install.rs`.
//!
//! Promises: a reserved block is found (windows are given up before an allocation fails, the last
//! try excludes everybody else); groups are locked one at a time, so allocations in different
//! groups do not wait for each other; same calls, same places.
//! Locks: `gate` (shared by all, alone for the last try) -> `windows` or one group; never both.
//! Tested in `space/balloc/tests.rs` against a model.

use std::sync::atomic::{AtomicU32, Ordering};

use syncline_base::lockrank::{Mutex, MutexGuard, RwLock};

use super::bitmap::{GroupMap, RunMap};
use super::goal::{AllocPolicy, Shape};
use super::reserve::{Reserve, Source};
use super::window::Windows;
use crate::error::{FsError, Result};
use crate::incore::Lifetime;
use crate::ranks;

/// Longest range that is handed out: one extent (`EXT_INIT_MAX_LEN`), in blocks.
pub(crate) const RANGE_BLOCKS_MAX: u32 = 32768;

/// A file that is not hot is not torn into pieces shorter than this, in blocks, for a zone's sake:
/// it borrows instead. ext4 packs files up to this size; each piece of a longer one is a request
/// and a jump of the device.
const PIECE_BLOCKS_MIN: u32 = 16;
/// Part of each zone, in eighths, that stays reserved for hot files when other files borrow; the
/// steps are tried in turn. A zone is borrowed from its end, and its front, where hot files gather,
/// last.
const RESERVE_STEPS: [u64; 5] = [8, 4, 2, 1, 0];

/// Consecutive physical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// First block.
    pub start: u64,
    /// Number of blocks, at least one.
    pub len: u32,
}

/// Request to the allocator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Inode number of the file; windows belong to it.
    pub owner: u32,
    /// Block to try first.
    pub goal: u64,
    /// Blocks wanted; fewer may be given.
    pub want: u32,
    /// Account that pays for the blocks.
    pub source: Source,
    /// Size of the file with these blocks, in blocks; 0 for blocks that need no window
    /// (directories, index blocks).
    pub file_blocks: u64,
    /// Expected lifetime of its blocks; metadata of a file goes with its data.
    pub life: Lifetime,
}

/// Blocks that a search may look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    /// Everywhere.
    All,
    /// Only in blocks that the policy keeps for hot files.
    Kept,
    /// Only in the others, while so many blocks are kept.
    Others(u64),
}

/// Parameters of a search.
#[derive(Clone, Copy)]
struct Wanted {
    goal: u64,
    /// Blocks, best case.
    long: u32,
    /// Blocks that are taken before runs are split.
    least: u32,
    /// Blocks that a run has at least.
    floor: u32,
    area: Area,
}

/// Source of group maps.
pub(crate) trait GroupSource {
    /// The block bitmap of a group as it stands now, metadata blocks set.
    fn load_group(&self, group: u32) -> Result<RunMap>;
}

struct GroupSlot {
    map: Mutex<Option<GroupMap>>,
    /// Copies of the map's numbers, so that hopeless groups are skipped without their lock.
    free: AtomicU32,
    longest_max: AtomicU32,
}

/// The allocator of one volume.
pub(crate) struct Core {
    pub(super) shape: Shape,
    slots: Vec<GroupSlot>,
    windows: Mutex<Windows>,
    /// Held shared by allocations, and exclusively for the last attempt.
    pub(super) gate: RwLock<()>,
    pub(super) reserve: Reserve,
    policy: Box<dyn AllocPolicy>,
    /// Only a hint: any group will do.
    hot_group: AtomicU32,
}

/// A group's map under its lock; publishes the numbers when it goes.
pub(super) struct Locked<'a> {
    guard: MutexGuard<'a, Option<GroupMap>>,
    slot: &'a GroupSlot,
}

impl Locked<'_> {
    pub(super) fn map(&mut self) -> Option<&mut GroupMap> {
        self.guard.as_mut()
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(map) = self.guard.as_ref() {
            self.slot.free.store(map.free(), Ordering::Relaxed);
            self.slot.longest_max.store(map.longest_max(), Ordering::Relaxed);
        }
    }
}

impl Core {
    /// `free` holds `bg_free_blocks_count` of each group, `root` is `s_r_blocks_count`.
    pub(crate) fn new(shape: Shape, free: &[u32], root: u64, policy: Box<dyn AllocPolicy>) -> Core {
        let slot = |group: u32| {
            let count = free.get(group as usize).copied().unwrap_or(0);
            let bound = count.min(shape.group_len(group));
            GroupSlot {
                map: Mutex::new(ranks::GROUP_MAP, None),
                free: AtomicU32::new(bound),
                longest_max: AtomicU32::new(bound),
            }
        };
        let slots: Vec<GroupSlot> = (0..shape.groups).map(slot).collect();
        let total = slots.iter().map(|s| u64::from(s.free.load(Ordering::Relaxed))).sum();
        Core {
            shape,
            slots,
            windows: Mutex::new(ranks::WINDOWS, Windows::default()),
            gate: RwLock::new(ranks::ALLOCATION, ()),
            reserve: Reserve::new(shape.blocks_count, total, root),
            policy,
            hot_group: AtomicU32::new(0),
        }
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> &dyn AllocPolicy {
        &*self.policy
    }

    pub(super) fn lock(&self, group: u32, source: &dyn GroupSource) -> Result<Locked<'_>> {
        let slot = self.slots.get(group as usize).ok_or(FsError::NoSpace)?;
        let mut guard = slot.map.lock();
        if guard.is_none() {
            *guard = Some(GroupMap::new(source.load_group(group)?));
        }
        Ok(Locked { guard, slot })
    }

    /// Makes sure that a group's map is in memory, before its on-disk bitmap is changed.
    pub(crate) fn ensure_loaded(&self, group: u32, source: &dyn GroupSource) -> Result<()> {
        self.lock(group, source).map(|_| ())
    }

    /// Takes blocks in memory: at most `want`, consecutive, as near to the goal as can be had.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when the account is empty; I/O and corruption from loading a bitmap.
    pub(crate) fn allocate(&self, source: &dyn GroupSource, request: &Request) -> Result<Range> {
        let want = request.want.clamp(1, RANGE_BLOCKS_MAX);
        let granted = self.reserve.draw(request.source, want)?;
        let found = match self.find(source, request, granted) {
            Ok(found) => found,
            Err(error) => {
                self.reserve.undraw(request.source, granted);
                return Err(error);
            }
        };
        if found.len < granted {
            self.reserve.undraw(request.source, granted - found.len);
        }
        Ok(found)
    }

    fn find(&self, source: &dyn GroupSource, request: &Request, granted: u32) -> Result<Range> {
        {
            let _shared = self.gate.read();
            if let Some(range) = self.take_from_window(request, granted) {
                return Ok(range);
            }
            let kept = self.window_to_keep(request, granted);
            let long = match kept {
                Keep::Packed(len) | Keep::Owner(len) => len,
                Keep::Nothing => granted,
            };
            if let Some(found) = self.search_areas(source, request, (long, granted))? {
                return Ok(self.keep_rest(request, kept, found, granted));
            }
        }
        // Only windows hold free blocks back now. Alone, so that no run is on its way into one.
        let _alone = self.gate.write();
        let dropped = self.windows.lock().remove_all();
        for range in dropped {
            self.give(range);
        }
        let found = match self.search_areas(source, request, (granted, granted))? {
            None if self.policy.has_zones() => {
                let (goal, long, least) = (request.goal, granted, granted);
                self.search(source, Wanted { goal, long, least, floor: 1, area: Area::All })?
            }
            found => found,
        };
        found.map(|r| Range { len: r.len.min(granted), ..r }).ok_or(FsError::NoSpace)
    }

    /// Searches for (best case, least) blocks where the request belongs.
    fn search_areas(
        &self,
        source: &dyn GroupSource,
        request: &Request,
        (long, least): (u32, u32),
    ) -> Result<Option<Range>> {
        let goal = request.goal;
        let look = |area, floor| self.search(source, Wanted { goal, long, least, floor, area });
        if !self.policy.has_zones() {
            return look(Area::All, 1);
        }
        let all = self.policy.kept_blocks();
        if request.life.is_hot() {
            if let Some(found) = look(Area::Kept, 1)? {
                let group = self.shape.locate(found.start).map_or(0, |(group, _)| group);
                self.hot_group.store(group, Ordering::Relaxed);
                return Ok(Some(found));
            }
            return look(Area::Others(all), 1);
        }
        for kept in RESERVE_STEPS.map(|part| all * part / RESERVE_STEPS[0]) {
            if let Some(found) = look(Area::Others(kept), PIECE_BLOCKS_MIN.min(least))? {
                return Ok(Some(found));
            }
        }
        look(Area::Others(all), 1)
    }

    /// A group with a zone: that of the last allocation for a hot file. New hot files go there, so
    /// that zones are filled one after the other; files that have blocks stay with these.
    pub(super) fn hot_group(&self) -> u32 {
        self.hot_group.load(Ordering::Relaxed)
    }

    /// The parts of a group that lie in the area: first and one past the last block of each. `None`
    /// is the whole group.
    fn parts(&self, group: u32, area: Area) -> Option<[(u32, u32); 2]> {
        let all = (0, self.shape.blocks_per_group);
        let kept = |most| self.policy.kept_for_hot(&self.shape, group, most);
        match area {
            Area::All => None,
            Area::Kept => Some([kept(u64::MAX).unwrap_or((0, 0)), (0, 0)]),
            Area::Others(most) => kept(most).map(|(from, to)| [(to, all.1), (0, from)]),
        }
    }

    fn take_from_window(&self, request: &Request, granted: u32) -> Option<Range> {
        if request.file_blocks == 0 {
            return None;
        }
        let flex = self.packed_key(request);
        let packed = self.policy.window_blocks(&self.shape, request.file_blocks).is_none();
        let flex = packed.then_some(flex);
        self.windows.lock().take(request.owner, request.goal, granted, flex)
    }

    fn flex_of(&self, block: u64) -> u32 {
        let group = self.shape.locate(block).map_or(0, |(group, _)| group);
        group.checked_shr(self.shape.flex_log).unwrap_or(0)
    }

    /// With zones only small files of equal lifetime are packed together.
    fn packed_key(&self, request: &Request) -> (u32, Lifetime) {
        let life = if self.policy.has_zones() { request.life } else { Lifetime::Long };
        (self.flex_of(request.goal), life)
    }

    fn window_to_keep(&self, request: &Request, granted: u32) -> Keep {
        // Near the end there is nothing to keep apart, and what is held back would only be missed.
        let plenty = self.reserve.counts().available
            > u64::from(RANGE_BLOCKS_MAX).min(self.shape.blocks_count / 16);
        if request.file_blocks == 0 || !plenty {
            return Keep::Nothing;
        }
        match self.policy.window_blocks(&self.shape, request.file_blocks) {
            None => Keep::Packed(self.policy.packed_window_blocks(&self.shape).max(granted)),
            Some(len) if len > granted => Keep::Owner(len),
            Some(_) => Keep::Nothing,
        }
    }

    /// Returns the front of the found run and keeps the rest as a window.
    fn keep_rest(&self, request: &Request, kept: Keep, found: Range, granted: u32) -> Range {
        let given = Range { start: found.start, len: found.len.min(granted) };
        let rest = Range { start: given.start + u64::from(given.len), len: found.len - given.len };
        if rest.len == 0 {
            return given;
        }
        let dropped = match kept {
            Keep::Packed(_) => {
                let flex = self.packed_key(request);
                self.windows.lock().put_packed(flex, request.owner, rest)
            }
            Keep::Owner(_) | Keep::Nothing => self.windows.lock().put(request.owner, rest),
        };
        if let Some(range) = dropped {
            self.give(range);
        }
        given
    }

    /// Takes a run of `long` blocks, or else of `least`, or else the longest there is from `floor`
    /// on.
    fn search(&self, source: &dyn GroupSource, wanted: Wanted) -> Result<Option<Range>> {
        let home = self.shape.locate(wanted.goal).unwrap_or((0, 0));
        if let Some(range) = self.take_at(source, home, wanted)? {
            return Ok(Some(range));
        }
        let mut want = wanted.long.min(self.shape.blocks_per_group);
        loop {
            if let Some(range) = self.scan(source, home, want, wanted.area)? {
                return Ok(Some(range));
            }
            if want <= wanted.floor {
                return Ok(None);
            }
            // Steps: the window, the request, then halves. Each failed scan tightens the bounds, so
            // that the next one looks only into groups that can serve it.
            let least = wanted.least.min(self.shape.blocks_per_group);
            want = if want > wanted.least { least } else { (want / 2).max(wanted.floor) };
        }
    }

    /// Takes at the goal itself if that serves the request.
    fn take_at(
        &self,
        source: &dyn GroupSource,
        (group, bit): (u32, u32),
        wanted: Wanted,
    ) -> Result<Option<Range>> {
        let end = match self.parts(group, wanted.area) {
            None => self.shape.blocks_per_group,
            Some(parts) => {
                let Some(part) = parts.iter().find(|part| (part.0..part.1).contains(&bit)) else {
                    return Ok(None);
                };
                part.1
            }
        };
        let mut locked = self.lock(group, source)?;
        let Some(map) = locked.map() else { return Ok(None) };
        let run = map.run_at(bit, wanted.long).min(end.saturating_sub(bit));
        if run < wanted.least {
            return Ok(None);
        }
        map.take(bit, run);
        Ok(Some(Range { start: self.shape.group_start(group) + u64::from(bit), len: run }))
    }

    fn scan(
        &self,
        source: &dyn GroupSource,
        (home, bit): (u32, u32),
        want: u32,
        area: Area,
    ) -> Result<Option<Range>> {
        let groups = self.shape.groups;
        for group in (home..groups).chain(0..home) {
            let Some(slot) = self.slots.get(group as usize) else { continue };
            let bound = slot.longest_max.load(Ordering::Relaxed);
            if bound.min(slot.free.load(Ordering::Relaxed)) < want {
                continue;
            }
            let parts = self.parts(group, area);
            if parts.is_some_and(|parts| parts.iter().all(|(from, to)| to - from < want)) {
                continue;
            }
            let mut locked = self.lock(group, source)?;
            let Some(map) = locked.map() else { continue };
            let from = if group == home { bit } else { 0 };
            let found = match parts {
                None => map.find(from, want),
                Some(parts) => parts.iter().find_map(|part| map.find_within(*part, from, want)),
            };
            if let Some(start) = found {
                map.take(start, want);
                let start = self.shape.group_start(group) + u64::from(start);
                return Ok(Some(Range { start, len: want }));
            }
        }
        Ok(None)
    }

    /// Takes the free blocks at the start of a run of a loaded group.
    pub(super) fn take_run(&self, group: u32, run: std::ops::Range<u32>) -> Option<Range> {
        let slot = self.slots.get(group as usize)?;
        let mut locked = Locked { guard: slot.map.lock(), slot };
        let map = locked.map()?;
        let len = map.run_at(run.start, run.end - run.start);
        if len == 0 {
            return None;
        }
        map.take(run.start, len);
        Some(Range { start: self.shape.group_start(group) + u64::from(run.start), len })
    }

    /// Makes blocks of a loaded group free in memory.
    pub(super) fn give(&self, range: Range) {
        let mut start = range.start;
        let mut left = range.len;
        while left > 0 {
            let Some((group, bit)) = self.shape.locate(start) else { return };
            let n = left.min(self.shape.group_len(group) - bit);
            if let Some(slot) = self.slots.get(group as usize) {
                let mut locked = Locked { guard: slot.map.lock(), slot };
                if let Some(map) = locked.map() {
                    map.give(bit, n);
                }
            }
            start += u64::from(n);
            left -= n;
        }
    }

    /// Undoes an allocation that was never installed.
    pub(crate) fn cancel(&self, range: Range, source: Source) {
        self.give(range);
        self.reserve.undraw(source, range.len);
    }

    /// Releases a file's window: the file was truncated, or no longer open.
    pub(crate) fn drop_window(&self, owner: u32) {
        let _shared = self.gate.read();
        let dropped = self.windows.lock().remove(owner);
        if let Some(range) = dropped {
            self.give(range);
        }
    }
}

#[derive(Clone, Copy)]
enum Keep {
    Nothing,
    Owner(u32),
    Packed(u32),
}
