//! Files, directories and links whose data is in the inode (`inline_data`), for reading.
//!
//! Volumes with the feature are mounted read-only, so the data does not change: it is read from
//! the inode table each time, and is not in the page cache. An inode with the flag on a volume
//! without the feature is refused when it is loaded (`table.rs`). Tested in `tests/it/inline.rs`.

use syncline_ondisk::inline;
use syncline_ondisk::inode::flags;

use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::inode::table::inode_place;
use crate::store::Store;

/// True if the data of an inode is in it.
pub(crate) fn is_inline(st: &InodeState) -> bool {
    st.raw.has_flag(flags::INLINE_DATA)
}

/// The inline bytes, as many as are stored: fewer or more than the size.
///
/// # Errors
/// Corruption of the attribute that holds them; I/O.
pub(crate) fn inline_bytes(store: &Store, inode: &Inode, st: &InodeState) -> Result<Vec<u8>> {
    let (block, offset) = inode_place(store, inode.ino)?;
    let table = store.buffers.read(block)?;
    let slot = table.get(offset..offset + store.geo.inode_size).unwrap_or(&[]);
    inline::stored(&st.raw, slot)
        .map_err(|err| store.found_corrupt(FsError::from(err.in_inode(inode.ino).in_block(block))))
}

/// Reads from an inline file, whose size `offset + into.len()` does not pass. What it has beyond
/// its inline bytes is a hole.
pub(crate) fn read_inline(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    offset: u64,
    into: &mut [u8],
) -> Result<()> {
    let data = inline_bytes(store, inode, st)?;
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
    let found = data.get(from..).unwrap_or(&[]);
    let (there, behind) = into.split_at_mut(found.len().min(into.len()));
    there.copy_from_slice(&found[..there.len()]);
    behind.fill(0);
    Ok(())
}

/// Bytes of an inline file that are data; the rest of its size is a hole.
pub(crate) fn data_len(store: &Store, inode: &Inode, st: &InodeState) -> Result<u64> {
    Ok((inline_bytes(store, inode, st)?.len() as u64).min(st.size))
}
