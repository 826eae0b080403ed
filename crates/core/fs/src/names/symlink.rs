//! Symbolic links: targets of up to 59 bytes in the inode, longer ones in one block. With
//! `inline_data` longer ones may also be in the inode.
//!
//! The block is metadata: it is journaled, as ext4 does since Linux 5.19, so the link and its
//! target appear together. Tested in `tests/it/namespace.rs`.

use syncline_jbd2::Handle;
use syncline_ondisk::bytes::le16;
use syncline_ondisk::inode::{I_BLOCK_BYTES, flags};
use syncline_ondisk::nokey;

use crate::data::read::touch_atime;
use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::inode::Inodes;
use crate::inode::inline::{inline_bytes, is_inline};
use crate::inode::reference::InodeRef;
use crate::map::extents::Mapping;
use crate::map::extents::search::map_blocks;
use crate::map::extents::volume::bmap_create;
use crate::names::path::PATH_BYTES_MAX;
use crate::space::Space;
use crate::store::Store;

/// Length of the ciphertext, in front of it.
const LEN_BYTES: usize = 2;

impl crate::Volume {
    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it is not one.
    pub fn readlink(&self, inode: &InodeRef) -> Result<Vec<u8>> {
        readlink(&self.0, inode)
    }
}

/// Reads the target of a symbolic link and moves its access time.
pub(crate) fn readlink(inodes: &Inodes, inode: &InodeRef) -> Result<Vec<u8>> {
    let target = target(inodes, inode)?;
    touch_atime(inodes, inode);
    Ok(target)
}

pub(crate) fn target(store: &Store, inode: &InodeRef) -> Result<Vec<u8>> {
    let st = inode.state.read();
    if !st.raw.is_symlink() {
        return Err(FsError::invalid("not a symbolic link"));
    }
    let encrypted = st.raw.has_flag(flags::ENCRYPT);
    if let Some(target) = st.raw.fast_symlink_target(store.geo.cluster_bytes(), store.ea_inode) {
        return match encrypted {
            true => shown_target(store, inode, &st.raw.i_block),
            false => Ok(until_nul(target).to_vec()),
        };
    }
    let len = usize::try_from(st.size).unwrap_or(usize::MAX);
    if len == 0 || len > store.block_size() {
        let what = format!("a symbolic link of {len} bytes");
        return Err(store.corrupt(Some(inode.ino), None, None, what));
    }
    if is_inline(&st) {
        let data = inline_bytes(store, inode, &st)?;
        return match data.get(..len) {
            Some(target) => Ok(until_nul(target).to_vec()),
            None => {
                let what = format!("a symbolic link of {len} bytes has {} inline", data.len());
                Err(store.corrupt(Some(inode.ino), None, None, what))
            }
        };
    }
    match map_blocks(store, inode, &st, 0, 1)? {
        Mapping::Mapped { pblk, unwritten: false, .. } => {
            let block = store.buffers.read(pblk)?;
            if encrypted {
                return shown_target(store, inode, &block);
            }
            Ok(until_nul(block.get(..len).unwrap_or(&[])).to_vec())
        }
        _ => Err(store.corrupt(Some(inode.ino), None, None, "a symbolic link without its block")),
    }
}

/// The target of an encrypted link as it is shown without the key (`fscrypt_get_symlink`).
fn shown_target(store: &Store, inode: &Inode, bytes: &[u8]) -> Result<Vec<u8>> {
    let len = usize::from(le16(bytes, 0));
    match bytes.get(LEN_BYTES..LEN_BYTES + len) {
        Some(target) if len >= nokey::CIPHERTEXT_BYTES_MIN => Ok(nokey::encode([0; 2], target)),
        _ => {
            let what = format!("an encrypted symbolic link of {len} bytes");
            Err(store.corrupt(Some(inode.ino), None, None, what))
        }
    }
}

fn until_nul(target: &[u8]) -> &[u8] {
    let end = target.iter().position(|byte| *byte == 0).unwrap_or(target.len());
    &target[..end]
}

/// Refuses targets that cannot be stored.
pub(crate) fn check_target(store: &Store, target: &[u8]) -> Result<()> {
    if target.is_empty() {
        return Err(FsError::NotFound);
    }
    if target.contains(&0) {
        return Err(FsError::invalid("a symbolic link's target cannot contain NUL"));
    }
    // Linux stores the terminating NUL too.
    let most = (store.block_size() - 1).min(PATH_BYTES_MAX);
    if target.len() > most { Err(FsError::NameTooLong) } else { Ok(()) }
}

/// Gives a new symbolic link its target.
pub(crate) fn fill_symlink(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    target: &[u8],
) -> Result<()> {
    st.size = target.len() as u64;
    st.raw.i_size = st.size;
    if target.len() < I_BLOCK_BYTES {
        st.raw.i_flags &= !flags::EXTENTS;
        st.raw.i_block = [0; I_BLOCK_BYTES];
        st.raw.i_block[..target.len()].copy_from_slice(target);
        return Ok(());
    }
    let pblk = bmap_create(space, h, inode, st, 0)?;
    h.create(pblk, |block| block[..target.len()].copy_from_slice(target))?;
    Ok(())
}
