//! Where attributes are kept: behind the inode's fields, and in one block.
//!
//! Promises: a block shared by several inodes is never changed, except for its count; whoever sets
//! an attribute gets a block of its own. All changes of one call are in one handle.

use std::sync::Arc;

use syncline_jbd2::Handle;
use syncline_ondisk::xattr::{self, Entries, Place, REFCOUNT_MAX, XattrSet};

use crate::balloc::{Range, Request, Wish};
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeState};
use crate::volume::Inner;

/// The attributes of one inode, with where they are.
pub(super) struct Attrs {
    /// In the inode.
    pub inode: XattrSet,
    /// In its block.
    pub block: XattrSet,
    /// Bytes of the inode's area; `None` without one.
    pub room: Option<usize>,
}

impl Inner {
    /// The in-inode area, and the bytes of the inode table block that holds it.
    pub(super) fn xattr_area(
        &self,
        inode: &Inode,
        st: &InodeState,
    ) -> Result<Option<(u64, std::ops::Range<usize>)>> {
        let (block, offset) = self.inode_place(inode.ino)?;
        let range = st.raw.xattr_range(self.geo.inode_size);
        Ok(range.map(|range| (block, offset + range.start..offset + range.end)))
    }

    /// The xattr block, checked.
    pub(super) fn xattr_block(&self, inode: &Inode, st: &InodeState) -> Result<Option<Arc<[u8]>>> {
        let block = st.raw.i_file_acl;
        if block == 0 {
            return Ok(None);
        }
        if block < u64::from(self.geo.first_data_block) || block >= self.geo.blocks_count {
            let what = "the xattr block is outside of the volume";
            return Err(self.corrupt(Some(inode.ino), Some(block), None, what));
        }
        let bytes = self.buffers.get(block, |bytes| {
            Entries::new(bytes, Place::Block)?;
            if self.geo.metadata_csum {
                xattr::verify_block_checksum(bytes, block, self.csum_seed)?;
            }
            let count = xattr::refcount(bytes);
            if count == 0 || count > REFCOUNT_MAX {
                let what = format!("an xattr block has {count} users");
                let (inode, block, offset) = (Some(inode.ino), Some(block), Some(4));
                return Err(FsError::Corrupt { inode, block, offset, what });
            }
            Ok::<(), FsError>(())
        });
        bytes.map(Some).map_err(|err| self.found_corrupt(err))
    }

    /// Everything, for a change.
    pub(super) fn attrs(&self, inode: &Inode, st: &InodeState) -> Result<Attrs> {
        let place = |err: syncline_ondisk::OndiskError| {
            self.found_corrupt(FsError::from(err.in_inode(inode.ino)))
        };
        let mut attrs =
            Attrs { inode: XattrSet::default(), block: XattrSet::default(), room: None };
        if let Some((block, range)) = self.xattr_area(inode, st)? {
            let bytes = self.buffers.read(block)?;
            let area = bytes.get(range.clone()).unwrap_or(&[]);
            attrs.inode = XattrSet::decode(area, Place::Inode).map_err(place)?;
            attrs.room = Some(range.len());
        }
        if let Some(bytes) = self.xattr_block(inode, st)? {
            attrs.block = XattrSet::decode(&bytes, Place::Block).map_err(place)?;
        }
        Ok(attrs)
    }

    /// Stores the in-inode part. The caller writes the inode afterwards, which renews its checksum.
    pub(super) fn store_in_inode(
        &self,
        h: &mut Handle,
        inode: &Inode,
        st: &InodeState,
        set: &XattrSet,
    ) -> Result<()> {
        let Some((block, range)) = self.xattr_area(inode, st)? else { return Ok(()) };
        h.try_modify(block, |bytes| {
            let area = bytes.get_mut(range).ok_or(FsError::Stale)?;
            Ok(set.encode_inode(area)?)
        })
    }

    /// Stores the block part: in the inode's own block, in a new one, or nowhere if it is empty.
    pub(super) fn store_in_block(
        &self,
        h: &mut Handle,
        inode: &Inode,
        st: &mut InodeState,
        set: &XattrSet,
    ) -> Result<()> {
        if set.is_empty() {
            return self.release_xattrs(h, inode, st);
        }
        let mut bytes = vec![0; self.block_size()];
        set.encode_block(&mut bytes, 1)?;
        let shared = match self.xattr_block(inode, st)? {
            Some(old) => xattr::refcount(&old) > 1,
            None => false,
        };
        let old = st.raw.i_file_acl;
        let block = if old != 0 && !shared { old } else { self.new_xattr_block(h, inode)? };
        if self.geo.metadata_csum {
            xattr::set_block_checksum(&mut bytes, block, self.csum_seed);
        }
        if block == old {
            return Ok(h.modify(block, |place| place.copy_from_slice(&bytes))?);
        }
        h.create(block, |place| place.copy_from_slice(&bytes))?;
        if shared {
            self.release_xattrs(h, inode, st)?;
        }
        st.raw.i_file_acl = block;
        self.add_blocks(st, 1)
    }

    /// Gives up the inode's xattr block: one user less, or freed. The caller writes the inode.
    ///
    /// # Errors
    /// Whatever reading the block or joining the transaction gives.
    pub(crate) fn release_xattrs(
        &self,
        h: &mut Handle,
        inode: &Inode,
        st: &mut InodeState,
    ) -> Result<()> {
        let Some(bytes) = self.xattr_block(inode, st)? else { return Ok(()) };
        let block = st.raw.i_file_acl;
        let users = xattr::refcount(&bytes);
        drop(bytes);
        if users > 1 {
            h.modify(block, |bytes| {
                xattr::set_refcount(bytes, users - 1);
                if self.geo.metadata_csum {
                    xattr::set_block_checksum(bytes, block, self.csum_seed);
                }
            })?;
        } else {
            h.forget(block)?;
            self.free_blocks(h, inode.ino, Range { start: block, len: 1 })?;
        }
        st.raw.i_file_acl = 0;
        self.sub_blocks(st, 1)
    }

    /// Takes a block near the inode.
    fn new_xattr_block(&self, h: &mut Handle, inode: &Inode) -> Result<u64> {
        let (inode_group, _) = self.geo.inode_group(inode.ino).ok_or(FsError::Stale)?;
        let life = inode.life();
        let wish = Wish { inode_group, regular: false, life, lblk: 0, near: None };
        let goal = self.balloc.goal(&wish);
        let source = self.balloc.unreserved();
        let request = Request { owner: 0, goal, want: 1, source, file_blocks: 0, life };
        let range = self.balloc.allocate(self, &request)?;
        if let Err(err) = self.install_blocks(h, range) {
            self.balloc.cancel(range, source);
            return Err(err);
        }
        Ok(range.start)
    }
}
