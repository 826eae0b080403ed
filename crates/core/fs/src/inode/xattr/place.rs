//! Storage of extended attributes: behind the inode's fields, and in one block.
//!
//! Promises: a block shared by several inodes is never changed, except for its count; an operation
//! that sets an attribute gets a block of its own. All changes of one call are in one handle.

use std::collections::BTreeMap;
use std::sync::Arc;

use syncline_jbd2::Handle;
use syncline_ondisk::ea_inode::Outside;
use syncline_ondisk::xattr::{self, Entries, Place, REFCOUNT_MAX, XattrSet};

use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::inode::table::inode_place;
use crate::map::extents::volume::{add_blocks, sub_blocks};
use crate::space::Space;
use crate::space::balloc::install::{free_blocks, install_blocks};
use crate::space::balloc::{Range, Request, Wish};
use crate::store::Store;

/// The attributes of one inode, with where they are.
pub(crate) struct Attrs {
    /// In the inode.
    pub inode: XattrSet,
    /// In its block.
    pub block: XattrSet,
    /// Bytes of the inode's area; `None` without one.
    pub room: Option<usize>,
    /// Other inodes have the block, too.
    pub shared: bool,
}

impl Attrs {
    /// Users of each value outside that this inode counts for. A shared block counts once for all
    /// of its inodes: here only if `with_shared`.
    pub(crate) fn users(&self, with_shared: bool) -> BTreeMap<u32, (i64, Outside)> {
        let mut users = BTreeMap::new();
        let block = (!self.shared || with_shared).then(|| self.block.iter());
        for outside in self.inode.iter().chain(block.into_iter().flatten()) {
            if let Some(outside) = outside.outside {
                users.entry(outside.inum).or_insert((0, outside)).0 += 1;
            }
        }
        users
    }
}

/// The in-inode area, and the bytes of the inode table block that holds it.
pub(crate) fn xattr_area(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
) -> Result<Option<(u64, std::ops::Range<usize>)>> {
    let (block, offset) = inode_place(store, inode.ino)?;
    let range = st.raw.xattr_range(store.geo.inode_size);
    Ok(range.map(|range| (block, offset + range.start..offset + range.end)))
}

/// The xattr block, checked.
pub(crate) fn xattr_block(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
) -> Result<Option<Arc<[u8]>>> {
    let block = st.raw.i_file_acl;
    if block == 0 {
        return Ok(None);
    }
    if block < u64::from(store.geo.first_data_block) || block >= store.geo.blocks_count {
        let what = "the xattr block is outside of the volume";
        return Err(store.corrupt(Some(inode.ino), Some(block), None, what));
    }
    let bytes = store.buffers.get(block, |bytes| {
        Entries::new(bytes, Place::Block)?;
        if store.geo.metadata_csum {
            xattr::verify_block_checksum(bytes, block, store.csum_seed)?;
        }
        let count = xattr::refcount(bytes);
        if count == 0 || count > REFCOUNT_MAX {
            let what = format!("an xattr block has {count} users");
            let (inode, block, offset) = (Some(inode.ino), Some(block), Some(4));
            return Err(FsError::Corrupt { inode, block, offset, what });
        }
        Ok::<(), FsError>(())
    });
    bytes.map(Some).map_err(|err| store.found_corrupt(err))
}

/// Everything, for a change.
pub(crate) fn read_attrs(store: &Store, inode: &Inode, st: &InodeState) -> Result<Attrs> {
    let place = |err: syncline_ondisk::OndiskError| {
        store.found_corrupt(FsError::from(err.in_inode(inode.ino)))
    };
    let mut attrs =
        Attrs { inode: XattrSet::default(), block: XattrSet::default(), room: None, shared: false };
    if let Some((block, range)) = xattr_area(store, inode, st)? {
        let bytes = store.buffers.read(block)?;
        let area = bytes.get(range.clone()).unwrap_or(&[]);
        attrs.inode = XattrSet::decode(area, Place::Inode).map_err(place)?;
        attrs.room = Some(range.len());
    }
    if let Some(bytes) = xattr_block(store, inode, st)? {
        attrs.block = XattrSet::decode(&bytes, Place::Block).map_err(place)?;
        attrs.shared = xattr::refcount(&bytes) > 1;
    }
    Ok(attrs)
}

/// Stores the in-inode part. The caller writes the inode afterwards, which renews its checksum.
pub(crate) fn store_in_inode(
    store: &Store,
    h: &mut Handle,
    inode: &Inode,
    st: &InodeState,
    set: &XattrSet,
) -> Result<()> {
    let size = store.geo.inode_size;
    let Some(range) = st.raw.xattr_range(size) else { return Ok(()) };
    let (block, offset) = inode_place(store, inode.ino)?;
    h.modify_slot(block, offset..offset + size, |slot| {
        let area = slot.get_mut(range).ok_or(FsError::Stale)?;
        Ok(set.encode_inode(area)?)
    })
}

/// Stores the block part: in the inode's own block, in a new one, or nowhere if it is empty.
pub(crate) fn store_in_block(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    set: &XattrSet,
) -> Result<()> {
    if set.is_empty() {
        return release_xattrs(space, h, inode, st);
    }
    let mut bytes = vec![0; space.block_size()];
    set.encode_block(&mut bytes, 1)?;
    let shared = match xattr_block(space, inode, st)? {
        Some(old) => xattr::refcount(&old) > 1,
        None => false,
    };
    let old = st.raw.i_file_acl;
    let block = if old != 0 && !shared { old } else { new_xattr_block(space, h, inode)? };
    if space.geo.metadata_csum {
        xattr::set_block_checksum(&mut bytes, block, space.csum_seed);
    }
    if block == old {
        return Ok(h.modify(block, |place| place.copy_from_slice(&bytes))?);
    }
    h.create(block, |place| place.copy_from_slice(&bytes))?;
    if shared {
        release_xattrs(space, h, inode, st)?;
    }
    st.raw.i_file_acl = block;
    add_blocks(space, st, space.geo.cluster_blocks().into())
}

/// Gives up the inode's xattr block: one user less, or freed. The caller writes the inode.
///
/// # Errors
/// Whatever reading the block or joining the transaction gives.
pub(crate) fn release_xattrs(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
) -> Result<()> {
    let Some(bytes) = xattr_block(space, inode, st)? else { return Ok(()) };
    let block = st.raw.i_file_acl;
    let users = xattr::refcount(&bytes);
    drop(bytes);
    if users > 1 {
        h.modify(block, |bytes| {
            xattr::set_refcount(bytes, users - 1);
            if space.geo.metadata_csum {
                xattr::set_block_checksum(bytes, block, space.csum_seed);
            }
        })?;
    } else {
        h.forget(block)?;
        free_blocks(space, h, inode.ino, Range { start: block, len: 1 })?;
    }
    st.raw.i_file_acl = 0;
    sub_blocks(space, st, space.geo.cluster_blocks().into())
}

/// Takes a block near the inode, with a cluster for itself.
fn new_xattr_block(space: &Space, h: &mut Handle, inode: &Inode) -> Result<u64> {
    let (inode_group, _) = space.geo.inode_group(inode.ino).ok_or(FsError::Stale)?;
    let life = inode.life();
    let wish = Wish { inode_group, regular: false, life, lblk: 0, near: None };
    let goal = space.balloc.goal(&wish);
    let source = space.balloc.unreserved();
    let request = Request { owner: 0, goal, want: 1, source, file_blocks: 0, life };
    let range = space.balloc.allocate(&*space.store, &request)?;
    if let Err(err) = install_blocks(space, h, range) {
        space.balloc.cancel(range, source);
        return Err(err);
    }
    Ok(range.start)
}
