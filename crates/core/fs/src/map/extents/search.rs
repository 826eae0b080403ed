//! Looking blocks up, with a small cache per inode.
//!
//! Only mapped runs are cached, never holes, so mapping something new invalidates nothing; what is
//! unmapped or converted is forgotten first. Files whose extents fit the inode need no cache.
//! Tested in `map/extents/tests.rs` and `tests/it/space.rs`.

use syncline_ondisk::extent::Extent;
use syncline_ondisk::inode::flags;

use super::tree::{NodeReader, last_step, lookup, way};
use super::volume::Tree;
use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::map::blockmap::{lookup_map, nearest_in_map};
use crate::space::Space;
use crate::space::balloc::Wish;
use crate::store::Store;
use crate::store::validity::check_file_blocks;

/// Mapping of a logical block and the `len - 1` blocks behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Nothing on disk.
    Hole {
        /// Blocks, at least one.
        len: u32,
    },
    /// Consecutive blocks on disk.
    Mapped {
        /// First physical block.
        pblk: u64,
        /// Blocks, at least one.
        len: u32,
        /// Allocated, reads as zeros.
        unwritten: bool,
    },
}

impl Mapping {
    /// Blocks described, at least one.
    pub(crate) fn len(&self) -> u32 {
        match self {
            Mapping::Hole { len } | Mapping::Mapped { len, .. } => *len,
        }
    }
}

/// Looks up the mapping of `lblk` on disk, for at most `max` blocks. Delayed data is not on disk:
/// it is a hole here.
///
/// # Errors
/// Corrupt trees and block maps; I/O.
pub(crate) fn map_blocks(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    lblk: u32,
    max: u32,
) -> Result<Mapping> {
    let max = max.max(1);
    if st.raw.has_flag(flags::INLINE_DATA) {
        let what = "data is in the inode, and its blocks were asked for";
        return Err(FsError::Corrupt {
            inode: Some(inode.ino),
            block: None,
            offset: None,
            what: what.into(),
        });
    }
    if let Some(run) = st.extent_cache.get(lblk) {
        return Ok(cut(&run, lblk, max));
    }
    let (found, end) = if st.raw.i_flags & flags::EXTENTS != 0 {
        lookup(&Tree::reader(store, inode, st), lblk)?
    } else {
        lookup_map(store, inode, st, lblk, max)?
    };
    let Some(run) = found else {
        let len = end.saturating_sub(lblk.into()).clamp(1, max.into());
        return Ok(Mapping::Hole { len: len as u32 });
    };
    // The journal's own blocks are file blocks too, but no file may be on the metadata areas.
    check_file_blocks(store, inode.ino, run.start, run.len.into())?;
    st.extent_cache.put(run);
    Ok(cut(&run, lblk, max))
}

/// Returns the goal for new blocks of `lblk`.
///
/// # Errors
/// As [`map_blocks`].
pub(crate) fn find_goal(space: &Space, inode: &Inode, st: &InodeState, lblk: u32) -> Result<u64> {
    let near = if st.raw.i_flags & flags::EXTENTS != 0 {
        nearest(&Tree::reader(space, inode, st), lblk)?
    } else {
        nearest_in_map(space, inode, st, lblk)?
    };
    let (inode_group, _) = space.geo.inode_group(inode.ino).unwrap_or((0, 0));
    let regular = st.raw.is_file();
    let life = inode.life();
    Ok(space.balloc.goal(&Wish { inode_group, regular, life, lblk, near }))
}

fn cut(run: &Extent, lblk: u32, max: u32) -> Mapping {
    let skip = lblk.saturating_sub(run.block);
    Mapping::Mapped {
        pblk: run.start.saturating_add(skip.into()),
        len: run.len.saturating_sub(skip).clamp(1, max),
        unwritten: run.unwritten,
    }
}

/// The extent nearest to `lblk` in its leaf, before it if there is one: logical, physical.
fn nearest<R: NodeReader>(
    reader: &R,
    lblk: u32,
) -> std::result::Result<Option<(u32, u64)>, FsError> {
    let steps = way(reader, lblk)?;
    let leaf = last_step(&steps)?.node(reader)?;
    let at = leaf.search(lblk).unwrap_or(0);
    Ok(leaf.extent(at).map(|extent| (extent.block, extent.start)))
}

/// One past the last block of a file with extents; 0 without any.
///
/// # Errors
/// As [`map_blocks`].
pub(crate) fn extents_end(store: &Store, inode: &Inode, st: &InodeState) -> Result<u64> {
    let reader = Tree::reader(store, inode, st);
    let steps = way(&reader, u32::MAX)?;
    let leaf = last_step(&steps)?.node(&reader)?;
    let last = leaf.len().checked_sub(1).and_then(|at| leaf.extent(at));
    Ok(last.map_or(0, |extent| u64::from(extent.block) + u64::from(extent.len)))
}

/// True if no block of `from..to` is on disk.
pub(crate) fn is_hole(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    from: u32,
    to: u32,
) -> Result<bool> {
    if from >= to {
        return Ok(true);
    }
    let mut at = from;
    // Block maps answer for one table at a time; their holes are few and large.
    while let Mapping::Hole { len } = map_blocks(store, inode, st, at, to - at)? {
        at = at.saturating_add(len);
        if at >= to {
            return Ok(true);
        }
    }
    Ok(false)
}
