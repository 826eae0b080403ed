//! Values of attributes in inodes of their own (`ea_inode`): reading. Changes are in
//! `made.rs` and `users.rs`.
//!
//! Promises: a value is checked as Linux does before it is returned: the inode's flag and size, the
//! hash of the value, the hash of the entry that names it; of old Lustre, which had neither, that
//! the inode names the file. Tested in `tests/it/ea_inode.rs`.

use syncline_ondisk::checksum::crc32c;
use syncline_ondisk::ea_inode::{Outside, ValueInode};
use syncline_ondisk::inode::flags;

use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::table::read_inode;
use crate::map::extents::Mapping;
use crate::map::extents::search::map_blocks;
use crate::store::Store;

/// Longest value of a system call in bytes (XATTR_SIZE_MAX).
pub(crate) const VALUE_BYTES_MAX: usize = 65536;
/// Longest value that ext4 stores (EXT4_XATTR_SIZE_MAX).
const STORED_BYTES_MAX: u32 = 1 << 24;

/// Reads the value of attribute `name` of the inode `file`, a number and its generation.
///
/// # Errors
/// [`FsError::ArgumentTooBig`] for a value that no system call returns; corruption; I/O.
pub(crate) fn read_value(
    store: &Store,
    file: (u32, u32),
    name: &[u8],
    entry: &Outside,
) -> Result<Vec<u8>> {
    let (inode, said) = value_inode(store, file.0, entry)?;
    if entry.size as usize > VALUE_BYTES_MAX {
        return Err(FsError::ArgumentTooBig);
    }
    let value = contents(store, &inode, entry.size as usize)?;
    if said.is_lustre(entry, file.0, file.1) {
        return Ok(value);
    }
    if crc32c(store.csum_seed, &value) != said.hash {
        return Err(corrupt(store, entry, "does not have the hash that it says"));
    }
    if !said.has_entry(name, entry) {
        return Err(corrupt(store, entry, "is not the value that its attribute means"));
    }
    Ok(value)
}

/// The inode that an attribute of inode `ino` names, checked but for its contents.
///
/// # Errors
/// Corruption; I/O.
pub(crate) fn value_inode(store: &Store, ino: u32, entry: &Outside) -> Result<(Inode, ValueInode)> {
    let geo = &store.geo;
    if entry.inum < geo.first_ino || entry.inum > geo.inodes_count || entry.inum == ino {
        return Err(corrupt(store, entry, "cannot hold the value of an attribute"));
    }
    let raw = match read_inode(store, entry.inum) {
        Err(FsError::Stale) => return Err(corrupt(store, entry, "is not in use")),
        other => other?,
    };
    let holds_one = raw.has_flag(flags::EA_INODE) && !raw.has_flag(flags::INLINE_DATA);
    if !holds_one || !raw.is_file() {
        return Err(corrupt(store, entry, "holds no value of an attribute"));
    }
    if raw.i_size != u64::from(entry.size) || entry.size > STORED_BYTES_MAX {
        return Err(corrupt(store, entry, "is not of the size of the attribute"));
    }
    let said = ValueInode::new(&raw);
    Ok((Inode::new(entry.inum, raw, 0), said))
}

fn contents(store: &Store, inode: &Inode, size: usize) -> Result<Vec<u8>> {
    let block_size = store.block_size();
    let blocks = u32::try_from(size.div_ceil(block_size)).map_err(|_| FsError::TooBig)?;
    let mut bytes = vec![0; blocks as usize * block_size];
    let mut rest = bytes.as_mut_slice();
    let mut at = 0;
    while at < blocks {
        let mapping = map_blocks(store, inode, &inode.state.read(), at, blocks - at)?;
        let Mapping::Mapped { pblk, len, unwritten: false } = mapping else {
            let what = "hole in the value of an attribute";
            return Err(store.corrupt(Some(inode.ino), None, None, what));
        };
        let (part, behind) = rest.split_at_mut(len as usize * block_size);
        for (block, into) in (pblk..).zip(part.chunks_exact_mut(block_size)) {
            // The newest contents may be in the log alone.
            into.copy_from_slice(&store.buffers.read(block)?);
        }
        rest = behind;
        at += len;
    }
    bytes.truncate(size);
    Ok(bytes)
}

pub(crate) fn corrupt(store: &Store, entry: &Outside, what: &str) -> FsError {
    let what = format!("inode {} {what}, and an attribute names it", entry.inum);
    store.corrupt(Some(entry.inum), None, None, what)
}
