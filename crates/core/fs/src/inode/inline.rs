//! Files, directories and links whose data is in the inode (`inline_data`).
//!
//! ```text
//!   read                            from the inode table each time; the page cache has none of it
//!   file: smaller                   in place
//!   file: any other change          to a block first (`data/inline.rs`), then as any file
//!   names of a directory change     in place while they fit, else to a block (`names/dir/live.rs`)
//!   a new file, directory or link   never here: blocks
//! ```
//!
//! Promises: data moves within one handle, so that a crash finds it in the inode or in the block,
//! whole. What needs no room, removing and making smaller, takes no block. An inode with the flag
//! on a volume without the feature is refused when it is loaded (`table.rs`). Tested in
//! `tests/it/inline.rs` and `tests/it/inline_changes.rs`.

use syncline_jbd2::Handle;
use syncline_ondisk::inode::{I_BLOCK_BYTES, flags};
use syncline_ondisk::{extent, inline};

use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::inode::table::inode_place;
use crate::inode::xattr::place::{read_attrs, store_in_inode};
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

/// Stores as many inline bytes as there are. The caller writes the inode.
pub(crate) fn store_inline(
    store: &Store,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    data: &[u8],
) -> Result<()> {
    let (first, second) = data.split_at(I_BLOCK_BYTES.min(data.len()));
    st.raw.i_block[..first.len()].copy_from_slice(first);
    if second.is_empty() {
        return Ok(());
    }
    let mut attrs = read_attrs(store, inode, st)?.inode;
    let (index, name) = inline::ATTRIBUTE;
    attrs.set(index, name, second)?;
    store_in_inode(store, h, inode, st, &attrs)
}

/// Makes the inode one without blocks and inline data, in memory. Returns what it was, for
/// [`become_inline_again`].
pub(crate) fn become_mapped(store: &Store, st: &mut InodeState) -> (u32, [u8; I_BLOCK_BYTES]) {
    let before = (st.raw.i_flags, st.raw.i_block);
    st.raw.i_flags &= !flags::INLINE_DATA;
    st.raw.i_block = [0; I_BLOCK_BYTES];
    if store.extents {
        st.raw.i_flags |= flags::EXTENTS;
        extent::NodeMut::init(&mut st.raw.i_block, 0);
    }
    before
}

/// Takes [`become_mapped`] back.
pub(crate) fn become_inline_again(st: &mut InodeState, before: (u32, [u8; I_BLOCK_BYTES])) {
    (st.raw.i_flags, st.raw.i_block) = before;
}

/// Removes what is left in the inode of data that has a block now. The caller writes the inode.
pub(crate) fn remove_inline(
    store: &Store,
    h: &mut Handle,
    inode: &Inode,
    st: &InodeState,
) -> Result<()> {
    let mut attrs = read_attrs(store, inode, st)?.inode;
    attrs.remove(inline::ATTRIBUTE.0, inline::ATTRIBUTE.1);
    store_in_inode(store, h, inode, st, &attrs)
}
