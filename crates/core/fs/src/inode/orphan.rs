//! Orphans: inodes without a name, or half truncated, that recovery must finish.
//!
//! ```text
//!  list   sb.s_last_orphan -> inode.i_dtime -> inode.i_dtime -> 0         (always understood)
//!  file   inode s_orphan_file_inum: blocks of u32 inode numbers + tail    (orphan_file feature)
//! ```
//!
//! Promises: an inode is on it exactly from the transaction that took its last name (or started its
//! truncation) to the one that freed it (or finished). In core the list is a vector, newest first;
//! `i_dtime` of its members is taken from there whenever one is written, under the lock of the
//! list, so that unlinking a neighbour and writing an inode cannot lose a link.

use syncline_jbd2::Handle;
use syncline_ondisk::orphan_file;

use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState, OrphanPlace};
use crate::inode::Inodes;
use crate::inode::table::{inode_csum_seed, inode_place, write_inode};
use crate::store::superblock::write_superblock;

/// Makes the inode an orphan, in the handle's transaction. Does nothing if it is one. Joins the
/// superblock or a block of the orphan file, and the inode.
///
/// # Errors
/// Whatever joining the transaction gives.
pub(crate) fn orphan_add(
    inodes: &Inodes,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
) -> Result<()> {
    if st.orphan.is_some() {
        return Ok(());
    }
    if let Some(place) = orphan_file_add(inodes, h, inode.ino)? {
        st.orphan = Some(place);
        return write_inode(inodes, h, inode, st, Dirty::Data);
    }
    {
        let mut orphans = inodes.orphans.lock();
        orphans.list.insert(0, inode.ino);
        st.orphan = Some(OrphanPlace::List);
        inodes.sb.lock().s_last_orphan = inode.ino;
        write_superblock(inodes, h)?;
    }
    write_inode(inodes, h, inode, st, Dirty::Data)
}

/// Ends the inode's time as an orphan. The caller writes the inode afterwards.
///
/// # Errors
/// Whatever joining the transaction gives.
pub(crate) fn orphan_del(
    inodes: &Inodes,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
) -> Result<()> {
    match st.orphan.take() {
        None => Ok(()),
        Some(OrphanPlace::File(block, entry)) => orphan_file_put(inodes, h, block, entry, 0),
        Some(OrphanPlace::List) => {
            st.raw.i_dtime = 0;
            orphan_list_del(inodes, h, inode.ino)
        }
    }
}

fn orphan_list_del(inodes: &Inodes, h: &mut Handle, ino: u32) -> Result<()> {
    let mut orphans = inodes.orphans.lock();
    let Some(at) = orphans.list.iter().position(|member| *member == ino) else {
        return Ok(());
    };
    let next = orphans.next(ino);
    orphans.list.remove(at);
    if at == 0 {
        inodes.sb.lock().s_last_orphan = next;
        return write_superblock(inodes, h);
    }
    let before = orphans.list.get(at - 1).copied().unwrap_or(0);
    let (block, offset) = inode_place(inodes, before)?;
    let size = inodes.geo.inode_size;
    h.modify_slot(block, offset..offset + size, |slot| {
        let mut raw = syncline_ondisk::inode::Inode::decode(slot)?;
        raw.i_dtime = next;
        let seed = inode_csum_seed(inodes, before, raw.i_generation);
        Ok(raw.encode_into(slot, seed)?)
    })
}

/// Takes a free entry of the orphan file. `None`: there is no orphan file, or it is full.
fn orphan_file_add(inodes: &Inodes, h: &mut Handle, ino: u32) -> Result<Option<OrphanPlace>> {
    let blocks = inodes.orphans.lock().file.clone();
    for (index, block) in blocks.iter().enumerate() {
        let bytes = inodes.buffers.read(*block)?;
        if let Some(entry) = orphan_file::find_free(&bytes, 0) {
            orphan_file_put(inodes, h, index, entry, ino)?;
            return Ok(Some(OrphanPlace::File(index, entry)));
        }
    }
    Ok(None)
}

fn orphan_file_put(
    inodes: &Inodes,
    h: &mut Handle,
    index: usize,
    entry: usize,
    number: u32,
) -> Result<()> {
    let orphans = inodes.orphans.lock();
    let block = orphans.file.get(index).copied().ok_or(FsError::Stale)?;
    let seed = inode_csum_seed(inodes, orphans.file_ino, orphans.file_generation);
    h.modify_summed_slot(block, entry * 4..entry * 4 + 4, |bytes| {
        orphan_file::set(bytes, entry, number);
        if let Some(seed) = seed {
            orphan_file::set_checksum(bytes, block, seed);
        }
        Ok(())
    })
}
