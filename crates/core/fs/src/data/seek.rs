//! Data and holes of a file: SEEK_DATA, SEEK_HOLE, extent queries (fiemap).
//!
//! Data is in written extents on disk, or in the cache on its way there: delayed blocks, and dirty
//! pages over unwritten extents. Everything else is a hole, also unwritten extents that nobody
//! wrote to (as ext4 reports them). Tested in `tests/it/space.rs`.

use syncline_ondisk::inode as disk;

use crate::data::blocks::check_regular;
use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::inode::inline::{data_len, is_inline};
use crate::inode::reference::InodeRef;
use crate::inode::table::inode_place;
use crate::map::extents::Mapping;
use crate::map::extents::search::{is_hole, map_blocks};
use crate::store::Store;

/// One piece of a file, as `FS_IOC_FIEMAP` shows it. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the device; 0 while `delalloc`.
    pub physical: u64,
    /// Length.
    pub len: u64,
    /// Allocated, reads as zeros (`FIEMAP_EXTENT_UNWRITTEN`).
    pub unwritten: bool,
    /// In memory, no place yet (`FIEMAP_EXTENT_DELALLOC`).
    pub delalloc: bool,
    /// In the inode; `physical` is where its first bytes are (`FIEMAP_EXTENT_DATA_INLINE`).
    pub inline: bool,
    /// The file's last extent (`FIEMAP_EXTENT_LAST`).
    pub last: bool,
}

/// A run of blocks of one state.
struct Piece {
    lblk: u32,
    len: u32,
    mapping: Mapping,
    /// Waiting in the cache: delayed, or written to since.
    dirty: bool,
}

impl Piece {
    fn is_data(&self) -> bool {
        self.dirty || matches!(self.mapping, Mapping::Mapped { unwritten: false, .. })
    }
}

/// The run at `lblk`, at most to `to`.
fn piece_at(store: &Store, inode: &Inode, st: &InodeState, lblk: u32, to: u32) -> Result<Piece> {
    let mapping = map_blocks(store, inode, st, lblk, to - lblk)?;
    let (mut len, mut dirty) = (mapping.len(), false);
    if !matches!(mapping, Mapping::Mapped { unwritten: false, .. }) {
        let tree = inode.pages.lock();
        let end = u64::from(lblk) + u64::from(len);
        match tree.next_dirty(lblk.into()) {
            Some(next) if next == u64::from(lblk) => {
                dirty = true;
                let alike = |i: &u32| tree.is_dirty(u64::from(lblk) + u64::from(*i));
                len = (1..len).take_while(alike).count() as u32 + 1;
            }
            Some(next) if next < end => len = (next - u64::from(lblk)) as u32,
            _ => {}
        }
    }
    Ok(Piece { lblk, len, mapping, dirty })
}

/// Finds the first byte from `offset` on that is data (or a hole).
fn seek_from(store: &Store, inode: &Inode, offset: u64, data: bool) -> Result<u64> {
    let st = inode.state.read();
    if offset >= st.size {
        return Err(FsError::NoSuchOffset);
    }
    if is_inline(&st) {
        let len = data_len(store, inode, &st)?;
        return match (data, offset < len) {
            (true, true) => Ok(offset),
            (true, false) => Err(FsError::NoSuchOffset),
            (false, _) => Ok(offset.max(len)),
        };
    }
    let bits = store.geo.block_bits;
    let block = |bytes: u64| u32::try_from(bytes >> bits).map_err(|_| FsError::TooBig);
    let end = block(st.size.saturating_add((1 << bits) - 1))?;
    let mut at = block(offset)?;
    while at < end {
        let piece = piece_at(store, inode, &st, at, end)?;
        if piece.is_data() == data {
            return Ok(offset.max(u64::from(at) << bits));
        }
        at += piece.len;
    }
    if data { Err(FsError::NoSuchOffset) } else { Ok(st.size) }
}

impl crate::Volume {
    /// Returns the first offset from `offset` on that holds data (`SEEK_DATA`).
    ///
    /// # Errors
    /// [`FsError::NoSuchOffset`] (ENXIO) if none does before the end.
    pub fn seek_data(&self, inode: &InodeRef, offset: u64) -> Result<u64> {
        check_regular(inode)?;
        let _shared = inode.rwsem.read();
        seek_from(&self.0, inode, offset, true)
    }

    /// Returns the first offset from `offset` on that is in a hole; the end counts as a hole
    /// (`SEEK_HOLE`).
    ///
    /// # Errors
    /// [`FsError::NoSuchOffset`] (ENXIO) behind the end.
    pub fn seek_hole(&self, inode: &InodeRef, offset: u64) -> Result<u64> {
        check_regular(inode)?;
        let _shared = inode.rwsem.read();
        seek_from(&self.0, inode, offset, false)
    }

    /// Returns the extents that touch `len` bytes from `start`, in order, also those behind the
    /// end.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for special files, I/O, corrupt trees.
    pub fn fiemap(&self, inode: &InodeRef, start: u64, len: u64) -> Result<Vec<FileExtent>> {
        let store: &Store = &self.0;
        let _shared = inode.rwsem.read();
        let st = inode.state.read();
        if !(st.raw.is_file() || st.raw.is_dir()) {
            return Err(FsError::invalid("this inode has no extents"));
        }
        if is_inline(&st) {
            return inline_extent(store, inode, &st, start, len);
        }
        let bits = store.geo.block_bits;
        let clamp = |block: u64| u32::try_from(block).unwrap_or(u32::MAX);
        let bytes_to = start.saturating_add(len);
        let to = clamp((bytes_to >> bits) + u64::from(bytes_to & ((1 << bits) - 1) != 0));
        let mut at = clamp(start >> bits);
        let mut found: Vec<FileExtent> = Vec::new();
        while at < to {
            let piece = piece_at(store, inode, &st, at, to)?;
            at = piece.lblk.saturating_add(piece.len);
            let logical = u64::from(piece.lblk) << bits;
            let (physical, unwritten, delalloc) = match piece.mapping {
                Mapping::Hole { .. } if !piece.dirty => continue,
                Mapping::Hole { .. } => (0, false, true),
                Mapping::Mapped { pblk, unwritten, .. } => (pblk << bits, unwritten, false),
            };
            let len = u64::from(piece.len) << bits;
            let next = FileExtent {
                logical,
                physical,
                len,
                unwritten,
                delalloc,
                inline: false,
                last: false,
            };
            match found.last_mut().filter(|last| continues(last, &next)) {
                Some(last) => last.len += next.len,
                None => found.push(next),
            }
        }
        if let Some(last) = found.last_mut() {
            let end = clamp((last.logical + last.len) >> bits);
            last.last = is_hole(store, inode, &st, end, u32::MAX)?
                && inode.pages.lock().next_dirty(end.into()).is_none();
        }
        Ok(found)
    }
}
/// The extent of a file or directory whose data is in the inode (`ext4_inline_data_iomap`).
fn inline_extent(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    start: u64,
    len: u64,
) -> Result<Vec<FileExtent>> {
    let data = data_len(store, inode, st)?;
    if start >= data || len == 0 {
        return Ok(Vec::new());
    }
    let (block, offset) = inode_place(store, inode.ino)?;
    let physical = store.block_offset(block) + (offset + disk::I_BLOCK_OFFSET) as u64;
    let (unwritten, delalloc) = (false, false);
    let extent = FileExtent {
        logical: 0,
        physical,
        len: data,
        unwritten,
        delalloc,
        inline: true,
        last: true,
    };
    Ok(vec![extent])
}

fn continues(last: &FileExtent, next: &FileExtent) -> bool {
    last.unwritten == next.unwritten
        && last.delalloc == next.delalloc
        && last.logical + last.len == next.logical
        && (next.delalloc || last.physical + last.len == next.physical)
}
