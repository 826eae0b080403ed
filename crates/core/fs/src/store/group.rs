//! Group descriptors and bitmaps through the journal: the one place that changes them.
//!
//! Every change of a descriptor goes through [`update_desc`] and every bitmap change through
//! the allocators' `set bits` functions, so that checksums are always renewed together with what
//! they cover. Readers get decoded copies from the buffer cache's snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use syncline_jbd2::{Counters, Handle};
use syncline_ondisk::group::{BLOCK_UNINIT, INODE_UNINIT, init_block_bitmap, init_inode_bitmap};
use syncline_ondisk::{GroupDesc, OndiskError};

use crate::error::{FsError, Result};
use crate::store::Store;

/// Block that holds the descriptor of `group`, and its byte range inside it.
fn desc_place(store: &Store, group: u32) -> (u64, std::ops::Range<usize>) {
    let (nr, offset) = store.geo.desc_slot(group);
    let block = store.desc_blocks.get(nr as usize).copied().unwrap_or(0);
    (block, offset..offset + store.geo.desc_size)
}

/// The descriptor of `group`, checksum and ranges verified when its block is first read.
pub(crate) fn group_desc(store: &Store, group: u32) -> Result<GroupDesc> {
    let (block, range) = desc_place(store, group);
    let bytes = store
        .buffers
        .get(block, |bytes| verify_desc_block(store, group, block, bytes))
        .map_err(|err| store.found_corrupt(err))?;
    let slot = bytes.get(range).ok_or_else(|| {
        store.corrupt(None, Some(block), None, "group descriptor outside of its block")
    })?;
    Ok(GroupDesc::decode(slot)?)
}

fn verify_desc_block(store: &Store, group: u32, block: u64, bytes: &[u8]) -> Result<()> {
    let first = group - group % store.geo.desc_per_block;
    let count = store.geo.desc_per_block.min(store.geo.group_count - first);
    for (index, slot) in bytes.chunks_exact(store.geo.desc_size).take(count as usize).enumerate() {
        let group = first + index as u32;
        let desc = GroupDesc::decode(slot)?;
        let check = |result: std::result::Result<(), OndiskError>| {
            result.map_err(|err| FsError::from(err.in_block(block)))
        };
        check(desc.verify_checksum(slot, group, &store.csum))?;
        check(desc.validate(group, &store.geo))?;
    }
    Ok(())
}

/// Changes the descriptor of `group` in the handle's transaction and renews its checksum.
/// `counters` says the same in a form that can be applied to an older descriptor.
///
/// # Errors
/// Whatever reading the block or joining the transaction gives.
pub(crate) fn update_desc<R>(
    store: &Store,
    h: &mut Handle,
    group: u32,
    counters: Counters,
    change: impl FnOnce(&mut GroupDesc) -> R,
) -> Result<R> {
    group_desc(store, group)?;
    let (block, range) = desc_place(store, group);
    h.modify_group(block, range, (group, counters), |slot| {
        let mut desc = GroupDesc::decode(slot)?;
        let result = change(&mut desc);
        desc.encode_into(slot, group, &store.csum);
        Ok(result)
    })
}

/// Applies changes of counters to an older image of a descriptor block, whose bitmaps are
/// `bitmap` where they change as well. `None` if the block is not what it should be.
pub(crate) fn apply_counters(
    store: &Store,
    block: u64,
    image: &mut [u8],
    groups: &BTreeMap<u32, Counters>,
    bitmap: &dyn Fn(u64) -> Option<Arc<[u8]>>,
) -> Option<()> {
    for (&group, counters) in groups {
        let (place, range) = desc_place(store, group);
        let slot = image.get_mut(range).filter(|_| place == block)?;
        let mut desc = GroupDesc::decode(slot).ok()?;
        let plus = |count: u32, change: i64| {
            (i64::from(count).saturating_add(change)).clamp(0, u32::MAX.into()) as u32
        };
        if let (Some(most), true) = (counters.itable_unused_max, store.csum.is_on()) {
            let uninit = desc.has_flag(INODE_UNINIT);
            let unused = if uninit { store.geo.inodes_per_group } else { desc.bg_itable_unused };
            desc.bg_itable_unused = unused.min(most);
        }
        desc.bg_flags &= !counters.flags_cleared;
        desc.bg_free_blocks_count = plus(desc.bg_free_blocks_count, counters.free_blocks);
        desc.bg_free_inodes_count = plus(desc.bg_free_inodes_count, counters.free_inodes);
        desc.bg_used_dirs_count = plus(desc.bg_used_dirs_count, counters.used_dirs);
        if let Some(bytes) = bitmap(desc.bg_block_bitmap) {
            desc.set_block_bitmap_csum(&bytes, &store.geo, &store.csum);
        }
        if let Some(bytes) = bitmap(desc.bg_inode_bitmap) {
            desc.set_inode_bitmap_csum(&bytes, &store.geo, &store.csum);
        }
        desc.encode_into(slot, group, &store.csum);
    }
    Some(())
}

/// The inode bitmap of `group`; synthesised while the group is `INODE_UNINIT`.
pub(crate) fn inode_bitmap(store: &Store, group: u32, desc: &GroupDesc) -> Result<Arc<[u8]>> {
    if store.csum.is_on() && desc.has_flag(INODE_UNINIT) {
        let mut bytes = vec![0; store.block_size()];
        init_inode_bitmap(&mut bytes, &store.geo);
        return Ok(bytes.into());
    }
    store
        .buffers
        .get(desc.bg_inode_bitmap, |bytes| {
            Ok(desc.verify_inode_bitmap(group, bytes, &store.geo, &store.csum)?)
        })
        .map_err(|err| store.found_corrupt(err))
}

/// The block bitmap of `group`; synthesised while the group is `BLOCK_UNINIT`.
pub(crate) fn block_bitmap(store: &Store, group: u32, desc: &GroupDesc) -> Result<Arc<[u8]>> {
    if store.csum.is_on() && desc.has_flag(BLOCK_UNINIT) {
        let mut bytes = vec![0; store.block_size()];
        init_block_bitmap(&mut bytes, &store.sb.lock(), &store.geo, group, desc);
        return Ok(bytes.into());
    }
    store
        .buffers
        .get(desc.bg_block_bitmap, |bytes| {
            Ok(desc.verify_block_bitmap(group, bytes, &store.geo, &store.csum)?)
        })
        .map_err(|err| store.found_corrupt(err))
}
