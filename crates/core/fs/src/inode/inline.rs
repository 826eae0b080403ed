//! Files, directories and links whose data is in the inode (`inline_data`).
//!
//! ```text
//!   read                            from the inode table each time; the page cache has none of it
//!   file: bytes, a size             in place while they fit (`data/inline.rs`)
//!   file: any other change          to a block first, then as any file
//!   file without bytes and blocks   the next write puts its data here, if it fits
//!   new directory                   here; names change in place while they fit, else all go to a
//!                                   block (`names/dir/live.rs`)
//! ```
//!
//! Promises: data moves within one handle, so that a crash finds it in the inode or in the block,
//! whole. What needs no room, removing and making smaller, takes no block. Data and other
//! attributes share the inode's room: what comes later and finds none goes elsewhere. An inode with
//! the flag on a volume without the feature is refused when it is loaded (`table.rs`). Tested in
//! `tests/it/inline.rs`, `tests/it/inline_changes.rs`, `tests/it/inline_write.rs`, and by the model
//! and crash tests of `syncline-model`.

use syncline_jbd2::Handle;
use syncline_ondisk::inode::{I_BLOCK_BYTES, flags};
use syncline_ondisk::xattr::Place;
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

/// Most bytes that the inode can hold beside its other attributes; 0 without room for the one that
/// it takes.
///
/// # Errors
/// Corruption of its attributes; I/O.
pub(crate) fn inline_room(store: &Store, inode: &Inode, st: &InodeState) -> Result<usize> {
    let mut attrs = read_attrs(store, inode, st)?;
    let Some(room) = attrs.room else { return Ok(0) };
    attrs.inode.set(inline::ATTRIBUTE.0, inline::ATTRIBUTE.1, &[])?;
    let free = (room & !3).checked_sub(attrs.inode.bytes(Place::Inode));
    Ok(free.map_or(0, |free| I_BLOCK_BYTES + free))
}

/// Makes these the inline bytes, at most [`inline_room`]. The caller sets the sizes and writes the
/// inode, whose slot has been written before.
pub(crate) fn store_inline(
    store: &Store,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    data: &[u8],
) -> Result<()> {
    let (first, second) = data.split_at(I_BLOCK_BYTES.min(data.len()));
    let before = read_attrs(store, inode, st)?.inode;
    let mut attrs = before.clone();
    attrs.set(inline::ATTRIBUTE.0, inline::ATTRIBUTE.1, second)?;
    if attrs != before {
        store_in_inode(store, h, inode, st, &attrs)?;
    }
    st.raw.i_block.fill(0);
    st.raw.i_block[..first.len()].copy_from_slice(first);
    st.raw.i_flags = st.raw.i_flags & !flags::EXTENTS | flags::INLINE_DATA;
    Ok(())
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

/// Takes the data out of the inode, which is empty and without blocks then. The caller writes the
/// inode.
///
/// # Errors
/// As [`remove_inline`].
pub(crate) fn drop_inline(
    store: &Store,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
) -> Result<()> {
    become_mapped(store, st);
    remove_inline(store, h, inode, st)
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
