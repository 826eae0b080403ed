//! Directories of a mounted volume: blocks through the buffer cache, changes through a handle.
//!
//! Promises: a block is checked when it is loaded; whatever is found broken latches the volume.
//! Assumptions: the caller holds the directory's `rwsem` (or, for `..`, the rename lock).

use std::sync::Arc;

use syncline_jbd2::Handle;
use syncline_ondisk::dir::{DirFormat, Entries, entry_bytes, max_free, salvage};
use syncline_ondisk::htree::HashVersion;
use syncline_ondisk::inode::{I_BLOCK_BYTES, flags};
use syncline_ondisk::{OndiskError, checksum, inline};

use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::inode::inline::{
    become_inline_again, become_mapped, inline_bytes, inline_room, is_inline, remove_inline,
    store_inline,
};
use crate::inode::table::clear_fresh;
use crate::map::extents::Mapping;
use crate::map::extents::search::map_blocks;
use crate::map::extents::volume::bmap_create;
use crate::names::dir::store::{self, BlockKind, DirParams, DirRead, DirWrite};
use crate::space::Space;
use crate::store::Store;

/// Blocks of a directory at most: an index entry has 28 bits for a block number.
const BLOCKS_MAX: u32 = 1 << 28;

/// A directory that is only read.
pub(crate) struct View<'a> {
    store: &'a Store,
    inode: &'a Inode,
    st: &'a InodeState,
    params: DirParams,
    /// Its entries, where they are in the inode: as the one block of a directory without a tail.
    inline: Option<Arc<[u8]>>,
    /// Blocks of it.
    blocks: u32,
}

/// A directory that is changed within a handle.
pub(crate) struct Edit<'a> {
    vol: &'a Space,
    inode: &'a Inode,
    st: &'a mut InodeState,
    h: &'a mut Handle,
    params: DirParams,
}

impl<'a> View<'a> {
    /// Views a directory.
    ///
    /// # Errors
    /// [`FsError::NotDir`], or a directory of a form that is not handled.
    pub(crate) fn new(store: &'a Store, inode: &'a Inode, st: &'a InodeState) -> Result<Self> {
        let mut params = dir_params(store, inode, st)?;
        let mut inline = None;
        params.format.tail &= !is_inline(st);
        if is_inline(st) {
            let data = inline_bytes(store, inode, st)?;
            let block = inline::dir_block(&data, inode.ino, &params.format, store.block_size());
            let block =
                block.map_err(|err| store.found_corrupt(FsError::from(err.in_inode(inode.ino))))?;
            inline = Some(block.into());
        }
        let blocks = match store.options.rescue {
            _ if inline.is_some() => 1,
            Some(_) => mapped_blocks(store, inode, st),
            None => dir_blocks(store, st),
        };
        Ok(View { store, inode, st, params, inline, blocks })
    }
}

impl<'a> Edit<'a> {
    /// As [`View::new`], for changes in the handle's transaction. The caller writes the inode.
    pub(crate) fn new(
        vol: &'a Space,
        h: &'a mut Handle,
        inode: &'a Inode,
        st: &'a mut InodeState,
    ) -> Result<Self> {
        let mut params = dir_params(vol, inode, st)?;
        params.format.tail &= !is_inline(st);
        Ok(Edit { vol, inode, st, h, params })
    }
}

/// Entries of an inline directory, as the begin of a block.
fn inline_area(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    params: &DirParams,
) -> Result<Vec<u8>> {
    let data = inline_bytes(store, inode, st)?;
    inline::dir_area(&data, inode.ino, &params.format)
        .map_err(|err| store.found_corrupt(FsError::from(err.in_inode(inode.ino))))
}

/// Puts the entries of a new directory into its inode. False: that has no room for the attribute.
///
/// # Errors
/// Whatever joining the transaction gives.
pub(crate) fn new_inline(
    vol: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    (parent, params): (u32, &DirParams),
) -> Result<bool> {
    clear_fresh(vol, h, inode, st)?;
    if inline_room(vol, inode, st)? == 0 {
        return Ok(false);
    }
    set_inline(vol, h, inode, st, &inline::new_dir(parent, &params.format))?;
    Ok(true)
}

/// Stores entries in the inode, as long as they are.
fn set_inline(
    vol: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    data: &[u8],
) -> Result<()> {
    store_inline(vol, h, inode, st, data)?;
    (st.size, st.raw.i_size) = (data.len() as u64, data.len() as u64);
    Ok(())
}

/// Gives an inline directory that has no room for `name` the rest of its inode, once; or else moves
/// its entries to a block. Each stays at its place. Returns the block with room, as far as it is
/// known: `place` for others. For a handle with the credits of an insertion; the caller writes the
/// inode.
///
/// # Errors
/// [`FsError::NoSpace`], with nothing changed; corruption, I/O.
pub(crate) fn make_room(
    vol: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    (name, place): (&[u8], Option<u32>),
) -> Result<Option<u32>> {
    if !is_inline(st) {
        return Ok(place);
    }
    let params = dir_params(vol, inode, st)?;
    let broken = |err: OndiskError| vol.found_corrupt(FsError::from(err.in_inode(inode.ino)));
    let format = DirFormat { tail: false, ..params.format };
    let mut data = inline_bytes(vol, inode, st)?;
    let has_room = |data: &[u8]| {
        let area = inline::dir_area(data, inode.ino, &params.format)?;
        Ok(max_free(&area, &format)? >= entry_bytes(name.len()))
    };
    if has_room(&data).map_err(broken)? {
        return Ok(Some(0));
    }
    if inline::grow_dir(&mut data, inline_room(vol, inode, st)?, &params.format) {
        if has_room(&data).map_err(broken)? {
            set_inline(vol, h, inode, st, &data)?;
            return Ok(Some(0));
        }
        data.truncate(I_BLOCK_BYTES);
    }
    let bytes = inline::dir_block(&data, inode.ino, &params.format, vol.block_size());
    let bytes = bytes.map_err(broken)?;
    let free = max_free(&bytes, &params.format).map_err(broken)?;
    let before = become_mapped(vol, st);
    let pblk = match bmap_create(vol, h, inode, st, 0) {
        Ok(pblk) => pblk,
        Err(err) => {
            become_inline_again(st, before);
            return Err(err);
        }
    };
    h.create(pblk, |block| {
        block.copy_from_slice(&bytes);
        store::seal(block, BlockKind::Leaf, &params);
    })?;
    remove_inline(vol, h, inode, st)?;
    st.size = vol.block_size() as u64;
    st.raw.i_size = st.size;
    st.raw.i_flags &= !flags::INDEX;
    Ok((free >= entry_bytes(name.len())).then_some(0))
}

/// Returns the format parameters of a directory.
pub(crate) fn dir_params(store: &Store, inode: &Inode, st: &InodeState) -> Result<DirParams> {
    if !st.raw.is_dir() {
        return Err(FsError::NotDir);
    }
    let (encrypted, folds) = (st.raw.has_flag(flags::ENCRYPT), st.raw.has_flag(flags::CASEFOLD));
    let all = &store.dir_format;
    if folds && all.fold.is_none() {
        let what = "a directory folds case, and the volume does not have casefold";
        return Err(store.corrupt(Some(inode.ino), None, None, what));
    }
    let mut hash = all.hash.clone()?;
    if encrypted && folds {
        hash.version = HashVersion::SipHash;
    }
    Ok(DirParams {
        ino: inode.ino,
        format: all.format,
        encrypted,
        fold: all.fold.filter(|_| folds && !encrypted),
        csum_seed: checksum::inode_seed(store.csum_seed, inode.ino, st.raw.i_generation),
        hash,
        hash_unsigned: all.hash_unsigned,
        dir_index: all.dir_index,
        large_dir: all.large_dir,
    })
}

fn dir_blocks(store: &Store, st: &InodeState) -> u32 {
    u32::try_from(st.size >> store.geo.block_bits).unwrap_or(BLOCKS_MAX).min(BLOCKS_MAX)
}

/// Blocks of a directory up to the last that has a place: its size may be damaged.
fn mapped_blocks(store: &Store, inode: &Inode, st: &InodeState) -> u32 {
    let (all, mut at, mut end, mut step) = (dir_blocks(store, st), 0, 0, 1);
    while at < all {
        match map_blocks(store, inode, st, at, all - at) {
            Ok(mapping) => {
                at = at.saturating_add(mapping.len());
                if matches!(mapping, Mapping::Mapped { .. }) {
                    (end, step) = (at, 1);
                }
            }
            // How far a bad node reaches is not known.
            Err(_) => {
                at = at.saturating_add(step);
                step = step.saturating_mul(2);
            }
        }
    }
    end.min(all)
}

fn dir_place(store: &Store, inode: &Inode, st: &InodeState, lblk: u32) -> Result<u64> {
    match map_blocks(store, inode, st, lblk, 1)? {
        Mapping::Mapped { pblk, unwritten: false, .. } => Ok(pblk),
        _ => {
            let offset = Some(u64::from(lblk) << store.geo.block_bits);
            Err(store.corrupt(Some(inode.ino), None, offset, "hole in a directory"))
        }
    }
}

fn dir_block(
    store: &Store,
    (inode, st): (&Inode, &InodeState),
    params: &DirParams,
    lblk: u32,
    kind: BlockKind,
) -> Result<(u64, Arc<[u8]>)> {
    let pblk = dir_place(store, inode, st, lblk)?;
    let blocks = dir_blocks(store, st);
    let checked = store.buffers.get(pblk, |bytes| {
        store::check(bytes, kind, params, blocks)
            .map_err(|err| FsError::from(err.in_inode(inode.ino).in_block(pblk)))
    });
    Ok((pblk, checked.map_err(|err| store.found_corrupt(err))?))
}

fn dir_broken(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    lblk: u32,
    err: OndiskError,
) -> FsError {
    let err = match dir_place(store, inode, st, lblk) {
        Ok(pblk) => err.in_block(pblk),
        Err(_) => err,
    };
    store.found_corrupt(FsError::from(err.in_inode(inode.ino)))
}

impl View<'_> {
    /// A block as far as it can be made out: empty if it cannot be read.
    fn salvaged(&self, lblk: u32) -> Arc<[u8]> {
        let read = dir_place(self.store, self.inode, self.st, lblk)
            .and_then(|pblk| Ok(self.store.buffers.read(pblk)?));
        let empty = || vec![0; self.store.block_size()].into();
        let (bytes, lost) = match read {
            Ok(bytes) => {
                let entries = Entries::new(&bytes, &self.params.format);
                match entries.into_iter().find_map(std::result::Result::err) {
                    None => return bytes,
                    Some(err) => (bytes, err.to_string()),
                }
            }
            Err(err) => (empty(), err.to_string()),
        };
        let ino = self.inode.ino;
        self.store.note_missing(format!("block {lblk} of directory inode {ino}: {lost}"));
        salvage(&bytes, &self.params.format).into()
    }
}

impl DirRead for View<'_> {
    fn params(&self) -> &DirParams {
        &self.params
    }
    fn block_size(&self) -> usize {
        self.store.block_size()
    }
    fn blocks(&self) -> u32 {
        self.blocks
    }
    fn indexed(&self) -> bool {
        self.inline.is_none() && self.params.dir_index && self.st.raw.has_flag(flags::INDEX)
    }
    fn block(&self, lblk: u32, kind: BlockKind) -> Result<Arc<[u8]>> {
        if let Some(bytes) = &self.inline {
            return Ok(Arc::clone(bytes));
        }
        if self.store.options.rescue.is_some() {
            return Ok(self.salvaged(lblk));
        }
        Ok(dir_block(self.store, (self.inode, self.st), &self.params, lblk, kind)?.1)
    }
    fn broken(&self, lblk: u32, err: OndiskError) -> FsError {
        if self.inline.is_some() {
            return self.store.found_corrupt(FsError::from(err.in_inode(self.inode.ino)));
        }
        dir_broken(self.store, self.inode, self.st, lblk, err)
    }
}

impl DirRead for Edit<'_> {
    fn params(&self) -> &DirParams {
        &self.params
    }
    fn block_size(&self) -> usize {
        self.vol.block_size()
    }
    fn blocks(&self) -> u32 {
        dir_blocks(self.vol, self.st)
    }
    fn indexed(&self) -> bool {
        self.params.dir_index && self.st.raw.has_flag(flags::INDEX)
    }
    fn block(&self, lblk: u32, kind: BlockKind) -> Result<Arc<[u8]>> {
        if is_inline(self.st) {
            return Ok(inline_area(self.vol, self.inode, self.st, &self.params)?.into());
        }
        Ok(dir_block(self.vol, (self.inode, self.st), &self.params, lblk, kind)?.1)
    }
    fn broken(&self, lblk: u32, err: OndiskError) -> FsError {
        dir_broken(self.vol, self.inode, self.st, lblk, err)
    }
}

impl DirWrite for Edit<'_> {
    fn edit(
        &mut self,
        lblk: u32,
        kind: BlockKind,
        f: impl FnOnce(&mut [u8]) -> std::result::Result<(), OndiskError>,
    ) -> Result<()> {
        if is_inline(self.st) {
            let mut area = inline_area(self.vol, self.inode, self.st, &self.params)?;
            let changed =
                f(&mut area).and_then(|()| inline::from_dir_area(area, &self.params.format));
            let data = changed.map_err(|err| {
                self.vol.found_corrupt(FsError::from(err.in_inode(self.inode.ino)))
            })?;
            return store_inline(self.vol, self.h, self.inode, self.st, &data);
        }
        // Read through the cache first: a block that is not there is checked before it is changed.
        // The root of an index that is being made is still a leaf when it comes here.
        let loaded = if self.indexed() { kind } else { BlockKind::Leaf };
        let (pblk, bytes) = dir_block(self.vol, (self.inode, self.st), &self.params, lblk, loaded)?;
        drop(bytes);
        let (ino, params) = (self.inode.ino, &self.params);
        let result = self.h.modify(pblk, |bytes| {
            f(bytes).map_err(|err| FsError::from(err.in_inode(ino).in_block(pblk)))?;
            store::seal(bytes, kind, params);
            Ok::<(), FsError>(())
        })?;
        result.map_err(|err| self.vol.found_corrupt(err))
    }

    fn append(&mut self, kind: BlockKind, bytes: &[u8]) -> Result<u32> {
        let lblk = self.blocks();
        if lblk >= BLOCKS_MAX - 1 {
            return Err(FsError::NoSpace);
        }
        let pblk = bmap_create(self.vol, self.h, self.inode, self.st, lblk)?;
        let params = &self.params;
        self.h.create(pblk, |block| {
            block.copy_from_slice(bytes);
            store::seal(block, kind, params);
        })?;
        self.st.size = u64::from(lblk + 1) << self.vol.geo.block_bits;
        self.st.raw.i_size = self.st.size;
        Ok(lblk)
    }

    fn set_indexed(&mut self) {
        self.st.raw.i_flags |= flags::INDEX;
    }
}
