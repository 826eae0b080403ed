//! Looking blocks up, with a small cache per inode.
//!
//! Only mapped runs are cached, never holes, so mapping something new invalidates nothing; what is
//! unmapped or converted is forgotten first. Files whose extents fit the inode need no cache.
//! Tested in `extents/tests.rs` and `tests/space.rs`.

use super::tree::{NodeReader, last_step, lookup, way};
use super::volume::Tree;
use crate::balloc::Wish;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeState};
use crate::volume::Inner;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use syncline_ondisk::extent::Extent;
use syncline_ondisk::inode::flags;

/// Runs kept per inode.
const CACHED_RUNS: usize = 512;

/// What is at a logical block, for `len` blocks.
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

/// Runs that were looked up before.
#[derive(Default)]
pub(crate) struct ExtentCache(Mutex<BTreeMap<u32, Extent>>);

impl ExtentCache {
    fn get(&self, lblk: u32) -> Option<Extent> {
        let runs = self.0.lock();
        let (_, run) = runs.range(..=lblk).next_back()?;
        run.map(lblk).map(|_| *run)
    }

    fn put(&self, run: Extent) {
        let mut runs = self.0.lock();
        if runs.len() >= CACHED_RUNS {
            runs.clear();
        }
        runs.insert(run.block, run);
    }

    /// Forgets what overlaps `from..to`.
    pub(super) fn forget(&self, from: u32, to: u32) {
        let mut runs = self.0.lock();
        // Runs that begin before `from` may reach into it, and being from different times they may
        // nest: look at all of them. There are few, and this is not the way of reads.
        runs.retain(|_, run| run.end() <= from.into() || run.block >= to);
    }
}

impl Inner {
    /// What is at `lblk` on disk, for at most `max` blocks. Delayed data is not on disk: it is a
    /// hole here.
    ///
    /// # Errors
    /// Corrupt trees and block maps; I/O.
    pub(crate) fn map_blocks(
        &self,
        inode: &Inode,
        st: &InodeState,
        lblk: u32,
        max: u32,
    ) -> Result<Mapping> {
        let max = max.max(1);
        if let Some(run) = st.extent_cache.get(lblk) {
            return Ok(cut(&run, lblk, max));
        }
        let (found, end) = if st.raw.i_flags & flags::EXTENTS != 0 {
            lookup(&Tree::reader(self, inode, st), lblk)?
        } else {
            self.lookup_map(inode, st, lblk, max)?
        };
        let Some(run) = found else {
            let len = end.saturating_sub(lblk.into()).clamp(1, max.into());
            return Ok(Mapping::Hole { len: len as u32 });
        };
        // The journal's own blocks are file blocks too, but no file may be on the metadata areas.
        self.check_file_blocks(inode.ino, run.start, run.len.into())?;
        st.extent_cache.put(run);
        Ok(cut(&run, lblk, max))
    }

    /// Where new blocks for `lblk` should go.
    ///
    /// # Errors
    /// As [`Inner::map_blocks`].
    pub(crate) fn find_goal(&self, inode: &Inode, st: &InodeState, lblk: u32) -> Result<u64> {
        let near = if st.raw.i_flags & flags::EXTENTS != 0 {
            nearest(&Tree::reader(self, inode, st), lblk)?
        } else {
            self.nearest_in_map(inode, st, lblk)?
        };
        let (inode_group, _) = self.geo.inode_group(inode.ino).unwrap_or((0, 0));
        let regular = st.raw.is_file();
        let life = inode.life();
        Ok(self.balloc.goal(&Wish { inode_group, regular, life, lblk, near }))
    }
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
