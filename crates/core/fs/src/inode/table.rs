//! Slots of the inode table: where an inode is, reading it, writing it in a handle.
//!
//! [`write_inode`] is the only function that writes a slot.

use syncline_jbd2::Handle;
use syncline_ondisk::bytes::is_zero;
use syncline_ondisk::run_time::{Needed, SMALL_FILE_BYTES_MAX};
use syncline_ondisk::{OndiskError, checksum, inode as disk};

use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState, OrphanPlace};
use crate::inode::Inodes;
use crate::store::Store;
use crate::store::group::group_desc;
use crate::store::superblock::need_feature;

/// Block of the inode table that holds `ino`, and the byte offset of its slot.
///
/// # Errors
/// [`FsError::Corrupt`] for a number outside of the volume.
pub(crate) fn inode_place(store: &Store, ino: u32) -> Result<(u64, usize)> {
    let (group, index) = store.geo.inode_group(ino).ok_or_else(|| {
        store.corrupt(Some(ino), None, None, "inode number outside of the volume")
    })?;
    let (block, offset) = store.geo.inode_slot(index);
    Ok((group_desc(store, group)?.bg_inode_table + u64::from(block), offset))
}

/// Seed for the checksum of one inode, `None` without `metadata_csum`.
pub(crate) fn inode_csum_seed(store: &Store, ino: u32, generation: u32) -> Option<u32> {
    store.geo.metadata_csum.then(|| checksum::inode_seed(store.csum_seed, ino, generation))
}

/// Puts `st.raw`, with times that the slot can hold, into its slot of the inode table, in the
/// handle's transaction; of a file with its newest times, which cost nothing then, and notes which
/// transaction a sync of the file must wait for (`ext4_mark_inode_dirty`).
///
/// # Errors
/// Whatever reading the block or joining the transaction gives.
pub(crate) fn write_inode(
    inodes: &Inodes,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    dirty: Dirty,
) -> Result<()> {
    let (block, offset) = inode_place(inodes, inode.ino)?;
    let size = inodes.geo.inode_size;
    let seed = inode_csum_seed(inodes, inode.ino, st.raw.i_generation);
    // The lock of the orphan list is held while the slot is written: see `crate::inode::orphan`.
    let listed = (st.orphan == Some(OrphanPlace::List)).then(|| inodes.orphans.lock());
    if let Some(orphans) = &listed {
        st.raw.i_dtime = orphans.next(inode.ino);
    }
    if st.raw.i_size > SMALL_FILE_BYTES_MAX {
        need_feature(inodes, h, Needed::LargeFile)?;
    }
    if !st.raw.is_dir() {
        st.take_newer();
    }
    st.raw.fit_times();
    let (raw, fresh) = (&st.raw, st.fresh);
    h.modify_slot(block, offset..offset + size, |slot| {
        if fresh {
            slot.fill(0);
        }
        Ok::<(), FsError>(raw.encode_into(slot, seed)?)
    })?;
    drop(listed);
    st.fresh = false;
    st.times_dirty = false;
    st.sync_tid = h.tid();
    if dirty == Dirty::Data {
        st.datasync_tid = h.tid();
        st.data_changes = st.data_changes.wrapping_add(1);
    }
    Ok(())
}

/// Clears a slot that was never written: an earlier inode may have left attributes there. The
/// caller writes the inode.
///
/// # Errors
/// As [`write_inode`].
pub(crate) fn clear_fresh(
    store: &Store,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
) -> Result<()> {
    if st.fresh {
        let (block, offset) = inode_place(store, inode.ino)?;
        h.modify_slot(block, offset..offset + store.geo.inode_size, |slot| {
            slot.fill(0);
            Ok::<(), FsError>(())
        })?;
        st.fresh = false;
    }
    Ok(())
}

pub(crate) fn read_inode(store: &Store, ino: u32) -> Result<disk::Inode> {
    let (block, offset) = inode_place(store, ino)?;
    let bytes = store.buffers.read(block)?;
    let slot = bytes.get(offset..offset + store.geo.inode_size).ok_or(FsError::Stale)?;
    if is_zero(slot) {
        return Err(FsError::Stale);
    }
    let place =
        |err: OndiskError| store.found_corrupt(FsError::from(err.in_inode(ino).in_block(block)));
    let raw = disk::Inode::decode(slot).map_err(place)?;
    if let Some(seed) = inode_csum_seed(store, ino, raw.i_generation) {
        raw.verify_checksum(slot, seed).map_err(place)?;
    }
    if raw.i_mode == 0 {
        return Err(FsError::Stale);
    }
    if raw.has_flag(disk::flags::INLINE_DATA) && !store.inline_data {
        let what = "data is in the inode, and the volume does not have inline_data";
        return Err(store.corrupt(Some(ino), Some(block), None, what));
    }
    if raw.i_size > max_file_bytes(store) {
        return Err(store.corrupt(Some(ino), Some(block), None, "file size out of range"));
    }
    Ok(raw)
}

/// Largest size of a file: 2^32 - 1 blocks.
pub(crate) fn max_file_bytes(store: &Store) -> u64 {
    u64::from(u32::MAX) << store.geo.block_bits
}
