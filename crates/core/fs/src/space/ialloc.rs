//! Inode allocation: Orlov for directories, near the parent for everything else.
//!
//! A new directory below the root goes to a group with above-average room and few directories;
//! other directories and files stay in their parent's flexible group, then its neighbours
//! (`find_group_orlov`, `find_group_other` in the kernel's `fs/ext4/ialloc.c`). Groups are locked
//! one at a time, so creations in different groups do not wait for each other. Within the group a
//! free inode in the same block of the table as the parent's is preferred: both change when
//! a file is made, and an eager sync logs both.
//!
//! A number freed by a transaction that has not committed is not handed out again: a crash could
//! otherwise bring the old file back with the new one's inode (`ext4_recently_deleted`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use syncline_base::lockrank::Mutex;
use syncline_jbd2::{Counters, Handle, Tid};
use syncline_ondisk::group::{INODE_UNINIT, init_inode_bitmap};
use syncline_ondisk::inode::{self as disk, flags};
use syncline_ondisk::{GroupDesc, IncompatFeatures, RoCompatFeatures, bitmap, extent};

use crate::error::{FsError, Result};
use crate::incore::{Inode, Lifetime};
use crate::ranks;
use crate::space::Space;
use crate::store::Store;
use crate::store::group::{group_desc, inode_bitmap, update_desc};

pub(crate) struct Ialloc {
    groups: Vec<Mutex<GroupHint>>,
    free_inodes: AtomicU64,
    used_dirs: AtomicU64,
    generation: AtomicU32,
    /// Numbers freed by a transaction that has not committed, with it.
    freed: Arc<Mutex<BTreeMap<u32, Tid>>>,
}

#[derive(Default)]
struct GroupHint {
    /// No inode below this index is free.
    first_free: u32,
}

/// Attributes of a new inode.
pub(crate) struct NewInode {
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Of its blocks; the inode goes to the flex group of their zone.
    pub(crate) life: Lifetime,
}

impl Ialloc {
    pub(crate) fn new(group_count: u32, free_inodes: u64, used_dirs: u64, seed: u32) -> Ialloc {
        Ialloc {
            groups: (0..group_count)
                .map(|_| Mutex::new(ranks::INODE_GROUP, GroupHint::default()))
                .collect(),
            free_inodes: AtomicU64::new(free_inodes),
            used_dirs: AtomicU64::new(used_dirs),
            generation: AtomicU32::new(seed),
            freed: Arc::new(Mutex::new(ranks::FREED_INODES, BTreeMap::new())),
        }
    }

    pub(crate) fn free_inodes(&self) -> u64 {
        self.free_inodes.load(Ordering::Relaxed)
    }

    /// True if freed inode numbers wait for their commit.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.lock().is_empty()
    }

    /// A different number for every inode of this mount; spread by a multiplicative hash.
    fn next_generation(&self) -> u32 {
        self.generation.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b1)
    }
}

pub(crate) fn blank_inode(space: &Space, parent: &Inode, new: &NewInode) -> disk::Inode {
    let sb = space.sb.lock();
    let room = space.geo.inode_size.saturating_sub(disk::GOOD_OLD_INODE_SIZE);
    let want = sb.s_want_extra_isize.max(sb.s_min_extra_isize).max(disk::EXTRA_ISIZE_FULL);
    let mut raw = disk::Inode::new(new.mode, want.min(room as u16) & !3);
    let extents = sb.s_feature_incompat.contains(IncompatFeatures::EXTENTS);
    drop(sb);
    let now = space.now();
    (raw.i_uid, raw.i_gid) = (new.uid, new.gid);
    (raw.i_atime, raw.i_ctime, raw.i_mtime, raw.i_crtime) = (now, now, now, now);
    raw.i_generation = space.ialloc.next_generation();
    raw.i_links_count = if raw.is_dir() { 2 } else { 1 };
    let mut inherited = parent.state.read().raw.i_flags & flags::INHERITED;
    match raw.i_mode & disk::S_IFMT {
        disk::S_IFDIR => {}
        disk::S_IFREG => inherited &= !(flags::DIRSYNC | flags::PROJINHERIT | flags::CASEFOLD),
        _ => inherited &= flags::NODUMP | flags::NOATIME,
    }
    raw.i_flags = inherited;
    if extents && (raw.is_dir() || raw.is_file() || raw.is_symlink()) {
        raw.i_flags |= flags::EXTENTS;
        extent::NodeMut::init(&mut raw.i_block, 0);
    }
    raw
}

/// Groups in the order in which they are tried.
pub(crate) fn group_order(
    space: &Space,
    parent: &Inode,
    is_dir: bool,
    hot: bool,
) -> Result<impl Iterator<Item = u32>> {
    let count = space.geo.group_count;
    let (parent_group, _) = space.geo.inode_group(parent.ino).ok_or(FsError::Stale)?;
    let flex = space.geo.groups_per_flex.max(1);
    let top = parent.ino == syncline_ondisk::superblock::ROOT_INO
        || parent.state.read().raw.has_flag(flags::TOPDIR);
    let start = if hot || space.balloc.gathers_inodes() {
        space.balloc.hot_flex_start()
    } else if is_dir && top {
        spread_group(space, parent_group)?
    } else {
        parent_group - parent_group % flex
    };
    let inner = flex.min(count);
    Ok((0..count).map(move |step| {
        let group = (start + step) % count;
        if !hot {
            return group;
        }
        // Hot files from the last group of a flex group on, apart from others.
        let first = group - group % inner;
        first + (first + inner).min(count) - 1 - group
    }))
}

/// For a top-level directory: the flexible group with above-average free inodes and blocks and
/// the fewest directories, searched from a start that the number of directories chooses.
fn spread_group(space: &Space, fallback: u32) -> Result<u32> {
    let flex = space.geo.groups_per_flex.max(1);
    let flex_count = space.geo.group_count.div_ceil(flex);
    let average_inodes = space.ialloc.free_inodes() / u64::from(flex_count);
    let average_blocks = space.balloc.free_blocks() / u64::from(flex_count);
    let used = space.ialloc.used_dirs.load(Ordering::Relaxed);
    let first = (used.wrapping_mul(0x9e37_79b9) >> 7) % u64::from(flex_count);
    let mut best: Option<(u64, u32)> = None;
    for step in 0..flex_count {
        let index = (first as u32 + step) % flex_count;
        let groups = index * flex..((index + 1) * flex).min(space.geo.group_count);
        let (mut inodes, mut blocks, mut dirs) = (0u64, 0u64, 0u64);
        for group in groups.clone() {
            let desc = group_desc(space, group)?;
            inodes += u64::from(desc.bg_free_inodes_count);
            blocks += u64::from(desc.bg_free_blocks_count);
            dirs += u64::from(desc.bg_used_dirs_count);
        }
        let roomy = inodes > 0 && inodes >= average_inodes && blocks >= average_blocks;
        if roomy && best.is_none_or(|(fewest, _)| dirs < fewest) {
            best = Some((dirs, groups.start));
        }
    }
    Ok(best.map_or(fallback - fallback % flex, |(_, group)| group))
}

/// Takes an inode of `group`, if one is free: in the block of the table that holds the inode of
/// index `near`, or else the first.
pub(crate) fn take_inode(
    space: &Space,
    h: &mut Handle,
    group: u32,
    near: Option<u32>,
    is_dir: bool,
) -> Result<Option<u32>> {
    let Some(lock) = space.ialloc.groups.get(group as usize) else { return Ok(None) };
    let mut hint = lock.lock();
    let desc = group_desc(space, group)?;
    if desc.bg_free_inodes_count == 0 {
        return Ok(None);
    }
    let map = inode_bitmap(space, group, &desc)?;
    let first_number = group * space.geo.inodes_per_group + 1;
    let first = hint.first_free.max(reserved_inodes(space, group));
    let usable = |from: u32, to: u32| {
        let mut free = std::iter::successors(bitmap::find_zero(&map, from, to), |index| {
            bitmap::find_zero(&map, index + 1, to)
        });
        let freed = space.ialloc.freed.lock();
        free.find(|index| !freed.contains_key(&(first_number + index)))
    };
    let lowest = bitmap::find_zero(&map, first, space.geo.inodes_per_group);
    let beside = near.and_then(|near| {
        let in_block = ((space.geo.block_size / space.geo.inode_size.max(1)) as u32).max(1);
        let block = near - near % in_block;
        usable(first.max(block), (block + in_block).min(space.geo.inodes_per_group))
    });
    let index = beside.or_else(|| usable(first, space.geo.inodes_per_group));
    let Some(index) = index else { return Ok(None) };
    // Held on to, it would have to be copied for the change.
    drop(map);
    mark_inode_used(space, h, group, index, &desc, is_dir)?;
    hint.first_free = lowest.filter(|low| *low != index).unwrap_or(index + 1);
    space.ialloc.free_inodes.fetch_sub(1, Ordering::Relaxed);
    if is_dir {
        space.ialloc.used_dirs.fetch_add(1, Ordering::Relaxed);
    }
    Ok(Some(first_number + index))
}

/// Takes this inode number, which must be free.
///
/// # Errors
/// [`FsError::Corrupt`] if it is not.
pub(crate) fn take_number(space: &Space, h: &mut Handle, ino: u32, is_dir: bool) -> Result<()> {
    let (group, index) = space.geo.inode_group(ino).ok_or(FsError::Stale)?;
    let lock = space.ialloc.groups.get(group as usize).ok_or(FsError::Stale)?;
    let _hint = lock.lock();
    let desc = group_desc(space, group)?;
    inode_bitmap(space, group, &desc)?;
    mark_inode_used(space, h, group, index, &desc, is_dir)?;
    space.ialloc.free_inodes.fetch_sub(1, Ordering::Relaxed);
    if is_dir {
        space.ialloc.used_dirs.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn reserved_inodes(store: &Store, group: u32) -> u32 {
    if group == 0 { store.geo.first_ino.saturating_sub(1) } else { 0 }
}

/// Sets the bit and the counters of one inode, bringing the group to life if it was
/// `INODE_UNINIT`.
fn mark_inode_used(
    store: &Store,
    h: &mut Handle,
    group: u32,
    index: u32,
    desc: &GroupDesc,
    is_dir: bool,
) -> Result<()> {
    let uninit = store.csum.is_on() && desc.has_flag(INODE_UNINIT);
    if uninit {
        h.create_shared(desc.bg_inode_bitmap, |bytes| init_inode_bitmap(bytes, &store.geo))?;
    }
    let crc = h.modify_bits(desc.bg_inode_bitmap, (index, 1), |bytes| {
        if bitmap::set(bytes, index) {
            let block = Some(desc.bg_inode_bitmap);
            return Err(store.corrupt(None, block, None, "free inode is marked used"));
        }
        let mut renewed = *desc;
        renewed.set_inode_bitmap_csum(bytes, &store.geo, &store.csum);
        Ok(renewed.bg_inode_bitmap_csum)
    })?;
    let (per_group, csum_on) = (store.geo.inodes_per_group, store.csum.is_on());
    let counters = Counters {
        free_inodes: -1,
        used_dirs: i64::from(is_dir),
        flags_cleared: INODE_UNINIT,
        itable_unused_max: csum_on.then_some(per_group - index - 1),
        ..Counters::default()
    };
    update_desc(store, h, group, counters, |desc| {
        desc.bg_flags &= !INODE_UNINIT;
        desc.bg_free_inodes_count = desc.bg_free_inodes_count.saturating_sub(1);
        desc.bg_used_dirs_count += u32::from(is_dir);
        desc.bg_inode_bitmap_csum = crc;
        let unused = if uninit { per_group } else { desc.bg_itable_unused };
        if csum_on {
            desc.bg_itable_unused = unused.min(per_group - index - 1);
        }
    })
}

/// Gives an inode number back in the handle's transaction; it can be used again once that has
/// committed.
///
/// # Errors
/// [`FsError::Corrupt`] if the number was free already.
pub(crate) fn free_inode(space: &Space, h: &mut Handle, ino: u32, is_dir: bool) -> Result<()> {
    let (group, index) = space.geo.inode_group(ino).ok_or(FsError::Stale)?;
    let Some(lock) = space.ialloc.groups.get(group as usize) else {
        return Err(FsError::Stale);
    };
    let mut hint = lock.lock();
    let desc = group_desc(space, group)?;
    inode_bitmap(space, group, &desc)?;
    let crc = h.modify_bits(desc.bg_inode_bitmap, (index, 1), |bytes| {
        if !bitmap::clear(bytes, index) {
            let block = Some(desc.bg_inode_bitmap);
            return Err(space.corrupt(Some(ino), block, None, "inode freed twice"));
        }
        let mut renewed = desc;
        renewed.set_inode_bitmap_csum(bytes, &space.geo, &space.csum);
        Ok(renewed.bg_inode_bitmap_csum)
    })?;
    let counters =
        Counters { free_inodes: 1, used_dirs: -i64::from(is_dir), ..Counters::default() };
    update_desc(space, h, group, counters, |desc| {
        desc.bg_free_inodes_count += 1;
        desc.bg_used_dirs_count = desc.bg_used_dirs_count.saturating_sub(u32::from(is_dir));
        desc.bg_inode_bitmap_csum = crc;
    })?;
    hint.first_free = hint.first_free.min(index);
    // In eager mode the slot itself links the old file with the next: they commit together.
    if !h.is_eager() {
        space.ialloc.freed.lock().insert(ino, h.tid());
        let freed = Arc::clone(&space.ialloc.freed);
        h.on_commit(Box::new(move || {
            freed.lock().remove(&ino);
        }));
    }
    space.ialloc.free_inodes.fetch_add(1, Ordering::Relaxed);
    if is_dir {
        space.ialloc.used_dirs.fetch_sub(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Waits for the commits that make freed inode numbers usable; false if none are waiting. Call
/// it without a handle or inode locks below `rwsem`, then try again.
///
/// # Errors
/// The journal's.
pub(crate) fn wait_for_freed_inodes(space: &Space) -> Result<bool> {
    let mut tids: Vec<Tid> = space.ialloc.freed.lock().values().copied().collect();
    tids.dedup();
    for tid in &tids {
        space.commit(*tid)?;
    }
    Ok(!tids.is_empty())
}

/// True if the format counts links of large directories as 1 (`dir_nlink`).
pub(crate) fn has_dir_nlink(store: &Store) -> bool {
    store.sb.lock().s_feature_ro_compat.contains(RoCompatFeatures::DIR_NLINK)
}
