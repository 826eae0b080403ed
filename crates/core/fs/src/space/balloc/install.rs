//! Allocation on disk: bitmap bits, free counters, checksums, all in a journal handle.
//!
//! [`set_bits`] is the only function that changes a block bitmap. It checks before it
//! changes: a bit that already is what it should become means that the image lies (two owners, a
//! double free), and nothing is changed then.
//!
//! Linux: `ext4_mb_mark_diskspace_used`, `ext4_mb_clear_bb`, `ext4_free_data_in_buddy`.
//! Tested in `tests/it/space.rs`, checked by e2fsck.

use std::sync::Arc;

use syncline_device::{Kind, Origin};
use syncline_jbd2::{Counters, Handle};
use syncline_ondisk::group::BLOCK_UNINIT;
use syncline_ondisk::{GroupDesc, bitmap};

use super::Range;
use super::bitmap::RunMap;
use super::core::GroupSource;
use crate::error::{FsError, Result};
use crate::space::Space;
use crate::store::Store;
use crate::store::group::{block_bitmap, group_desc, update_desc};
use crate::store::validity::check_file_blocks;

impl GroupSource for Store {
    fn load_group(&self, group: u32) -> Result<RunMap> {
        let desc = group_desc(self, group)?;
        let bytes = block_bitmap(self, group, &desc)?;
        let map = RunMap::from_bytes(&bytes, self.geo.group_clusters(group));
        let (free, said) = (map.count_zeros(), desc.bg_free_blocks_count);
        if free != said {
            let text = format!("group {group} has {free} free blocks, its descriptor says {said}");
            return Err(self.corrupt(None, Some(desc.bg_block_bitmap), None, text));
        }
        for block in [desc.bg_block_bitmap, desc.bg_inode_bitmap, desc.bg_inode_table] {
            if let Some((owner, bit)) = self.geo.block_bit(block) {
                if owner == group && !bitmap::test(&bytes, bit) {
                    let text = format!("group {group}: its own metadata is marked free");
                    return Err(self.corrupt(None, Some(block), None, text));
                }
            }
        }
        Ok(map)
    }
}

/// Marks blocks, or clusters, of one group as used or free: bitmap, counter, checksums. The one
/// place where block bitmaps change.
///
/// # Errors
/// Corrupt if a bit is already as asked or the counter does not allow it; nothing is changed.
fn set_bits(
    space: &Space,
    h: &mut Handle,
    group: u32,
    bit: u32,
    len: u32,
    used: bool,
) -> Result<()> {
    let lock = space.balloc.install_locks.get(group as usize);
    let _lock = lock.ok_or(FsError::NoSpace)?.lock();
    let desc = group_desc(space, group)?;
    let before = block_bitmap(space, group, &desc)?;
    let end = bit.saturating_add(len);
    let clash = if used {
        bitmap::find_set(&before, bit, end)
    } else {
        bitmap::find_zero(&before, bit, end)
    };
    let free = if used {
        desc.bg_free_blocks_count.checked_sub(len)
    } else {
        desc.bg_free_blocks_count.checked_add(len)
    };
    let free = free.filter(|free| *free <= space.geo.group_clusters(group));
    let (None, Some(free)) = (clash, free) else {
        let within = u64::from(clash.unwrap_or(bit)) << space.geo.cluster_bits;
        let block = space.geo.group_first_block(group) + within;
        let text = if used { "a free block is in use" } else { "a free block is freed again" };
        return Err(space.corrupt(None, Some(block), None, text));
    };
    if space.csum.is_on() && desc.has_flag(BLOCK_UNINIT) {
        h.create_shared(desc.bg_block_bitmap, |bytes| bytes.copy_from_slice(&before))?;
    }
    let mut sums = desc;
    h.modify_bits(desc.bg_block_bitmap, (bit, len), |bytes| {
        // Checked above, under the group's lock: there is no clash.
        let _ = if used {
            bitmap::set_range(bytes, bit, len)
        } else {
            bitmap::clear_range(bytes, bit, len)
        };
        sums.set_block_bitmap_csum(bytes, &space.geo, &space.csum);
        Ok::<(), FsError>(())
    })?;
    let counters = Counters {
        free_blocks: if used { -i64::from(len) } else { i64::from(len) },
        flags_cleared: BLOCK_UNINIT,
        ..Counters::default()
    };
    update_desc(space, h, group, counters, |desc: &mut GroupDesc| {
        desc.bg_free_blocks_count = free;
        desc.bg_flags &= !BLOCK_UNINIT;
        desc.bg_block_bitmap_csum = sums.bg_block_bitmap_csum;
    })
}

/// Calls `each` with the group, bit and length of each part of a range, its clusters whole.
fn by_group(
    space: &Space,
    range: Range,
    mut each: impl FnMut(u32, u32, u32) -> Result<()>,
) -> Result<()> {
    let Range { mut start, len: mut left } = space.balloc.clusters_of(range);
    while left > 0 {
        let shape = &space.balloc.core.shape;
        let Some((group, bit)) = shape.locate(start) else {
            let text = "a block lies outside of the groups";
            return Err(space.corrupt(None, Some(range.start), None, text));
        };
        let part = left.min(shape.group_len(group).saturating_sub(bit)).max(1);
        each(group, bit, part)?;
        start += u64::from(part);
        left -= part;
    }
    Ok(())
}

/// Makes allocated blocks, and what else is in their clusters, used on disk. Credits: two, for
/// bitmap and descriptor.
///
/// # Errors
/// Corrupt if one is already in use; journal errors.
pub(crate) fn install_blocks(space: &Space, h: &mut Handle, range: Range) -> Result<()> {
    by_group(space, range, |group, bit, len| set_bits(space, h, group, bit, len, true))
}

/// Frees blocks of inode `ino`, and what else is in their clusters: on disk in this transaction, in
/// memory once it has committed. Credits: two for each group touched.
///
/// # Errors
/// Corrupt for blocks that are free already, metadata, or outside of the volume.
pub(crate) fn free_blocks(space: &Space, h: &mut Handle, ino: u32, range: Range) -> Result<()> {
    check_file_blocks(space, ino, range.start, range.len.into())?;
    by_group(space, range, |group, bit, len| {
        // The map in memory must know the blocks as taken before the bitmap says free.
        space.balloc.core.ensure_loaded(group, &*space.store)?;
        set_bits(space, h, group, bit, len, false)
    })?;
    let clusters = space.balloc.clusters_of(range);
    space.balloc.core.reserve.freed(clusters.len.into());
    hold_until_commit(space, h, ino, clusters);
    Ok(())
}

/// Files freed clusters under the handle's transaction; its commit makes them allocatable.
fn hold_until_commit(space: &Space, h: &mut Handle, ino: u32, range: Range) {
    if h.is_eager() {
        return hold_until_free(space, h, ino, range);
    }
    let tid = h.tid();
    let mut freed = space.balloc.freed.lock();
    if let Some(ranges) = freed.get_mut(&tid) {
        match ranges.last_mut() {
            Some(last)
                if last.start + u64::from(last.len) == range.start
                    && last.len.checked_add(range.len).is_some() =>
            {
                last.len += range.len;
            }
            Some(last)
                if range.start + u64::from(range.len) == last.start
                    && last.len.checked_add(range.len).is_some() =>
            {
                last.start = range.start;
                last.len += range.len;
            }
            _ => ranges.push(range),
        }
        return;
    }
    freed.insert(tid, vec![range]);
    drop(freed);
    let (freed, core) = (Arc::clone(&space.balloc.freed), Arc::clone(&space.balloc.core));
    let discard = space.balloc.discard && space.dev.geometry().discard;
    let dev = discard.then(|| Arc::clone(&space.dev));
    let cluster_bits = space.balloc.core.shape.block_bits;
    h.on_commit(Box::new(move || {
        let ranges = freed.lock().get_mut(&tid).map(std::mem::take).unwrap_or_default();
        for range in ranges {
            if let Some(dev) = &dev {
                let origin = Origin::new(Kind::Metadata, false);
                let bytes = u64::from(range.len) << cluster_bits;
                // Only advice: a device that cannot do it keeps working.
                let _ = dev.discard(range.start << cluster_bits, bytes, origin);
            }
            core.give(range);
            core.reserve.committed(range.len.into());
        }
        // Until here somebody without room has something to wait for.
        freed.lock().remove(&tid);
    }));
}

/// As [`hold_until_commit`] where each set of operations commits by itself; also until
/// the log holds no copy of the blocks that recovery would write over them. Meanwhile the inode
/// itself may take them again.
fn hold_until_free(space: &Space, h: &mut Handle, ino: u32, range: Range) {
    let held = Arc::clone(&space.balloc.held);
    let free = held.put(ino, range);
    let core = Arc::clone(&space.balloc.core);
    let discard = space.balloc.discard && space.dev.geometry().discard;
    let dev = discard.then(|| Arc::clone(&space.dev));
    let cluster_bits = space.balloc.core.shape.block_bits;
    let give = Box::new(move || {
        for range in held.end(free) {
            if let Some(dev) = &dev {
                let origin = Origin::new(Kind::Metadata, false);
                let bytes = u64::from(range.len) << cluster_bits;
                // Only advice: a device that cannot do it keeps working.
                let _ = dev.discard(range.start << cluster_bits, bytes, origin);
            }
            core.give(range);
            core.reserve.committed(range.len.into());
        }
    });
    let blocks = space.balloc.blocks_of(range);
    h.on_free(blocks.start, blocks.len.into(), give);
}

/// Waits for the commit that makes freed blocks and inodes allocatable; false if none are
/// waiting and none came back since the caller found no room. Call it without a handle or
/// inode locks below `rwsem`, then try again (`ext4_should_retry_alloc`).
///
/// # Errors
/// The journal's.
pub(crate) fn wait_for_freed_blocks(space: &Space) -> Result<bool> {
    let journal = space.journal()?;
    if journal.is_eager() {
        let waiting = space.balloc.counts().pending > 0 || space.ialloc.has_freed();
        if waiting {
            space.commit(journal.newest_tid())?;
        }
        if journal.has_deferred_frees() {
            journal.checkpoint_all()?;
        }
        return Ok(waiting || space.balloc.counts().available > 0);
    }
    // Transactions commit in order: the newest one that freed something is enough. Numbers
    // wrap, but two live ones are never far apart, so the map's order only matters for which is
    // last.
    let tids: Vec<_> = space.balloc.freed.lock().keys().copied().collect();
    for tid in &tids {
        space.commit(*tid)?;
    }
    let inodes = space.ialloc.has_freed();
    if inodes {
        if let Some(tid) = space.journal()?.running_tid() {
            space.commit(tid)?;
        }
    }
    Ok(inodes || !tids.is_empty() || space.balloc.counts().available > 0)
}
