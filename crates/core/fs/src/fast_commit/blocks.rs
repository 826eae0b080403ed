//! Blocks of files: whose they are, and the extents that change.
//!
//! ```text
//!   claim     blocks of ADD_RANGE that are free   -> used, unowned
//!   detach    a file loses blocks                 -> unowned
//!   attach    a file gets blocks, which must be unowned
//!   free      what is unowned in the end          -> free
//! ```
//!
//! With `bigalloc` all of this is counted in whole clusters; a block that comes into a cluster that
//! its file has needs none.
//!
//! So the allocator, which gives blocks for directories and extent trees meanwhile, never sees a
//! block as free that a file has before or after, and no block gets two owners.

use std::collections::BTreeMap;

use syncline_jbd2::Handle;
use syncline_ondisk::bitmap;
use syncline_ondisk::extent::Extent;
use syncline_ondisk::fast_commit::Tag;
use syncline_ondisk::inode::flags;

use super::{Replay, contradiction};
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode};
use crate::inode::Inodes;
use crate::inode::inline::{drop_inline, is_inline};
use crate::inode::table::write_inode;
use crate::map::extents::Mapping;
use crate::map::extents::clusters::{Place, blocks_in_clusters, place_in_cluster};
use crate::map::extents::search::map_blocks;
use crate::map::extents::volume::{
    Gone, attach_extent, detach_extents, map_credits, unmap_credits,
};
use crate::names::Names;
use crate::space::balloc::Range;
use crate::space::balloc::install::{free_blocks, install_blocks};
use crate::store::Store;
use crate::store::group::{block_bitmap, group_desc};
use crate::store::validity::check_file_blocks;

/// Credits of a handle that takes or frees blocks of one group, and of one that detaches extents.
const GROUP_CREDITS: u32 = 4;
const DETACH_CREDITS: u32 = 96;

/// Runs of blocks that are used in the bitmaps and belong to no file: start to end.
#[derive(Debug, Default)]
pub(crate) struct Unowned(BTreeMap<u64, u64>);

impl Unowned {
    /// Adds a run, which may overlap others.
    fn add(&mut self, range: Range) {
        let (mut start, mut end) = (range.start, range.start.saturating_add(range.len.into()));
        while let Some((&from, &to)) = self.0.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// Takes a run out; false, and nothing is done, if not all of it is there.
    fn take(&mut self, range: Range) -> bool {
        let (start, end) = (range.start, range.start.saturating_add(range.len.into()));
        let Some((&from, &to)) = self.0.range(..=start).next_back() else { return false };
        if to < end {
            return false;
        }
        self.0.remove(&from);
        for (from, to) in [(from, start), (end, to)] {
            if from < to {
                self.0.insert(from, to);
            }
        }
        true
    }

    /// Frees all of it.
    pub(super) fn free(&self, names: &Names) -> Result<()> {
        // A multiple of a cluster.
        let most = u64::from(names.geo.blocks_per_group.max(1));
        for (&start, &end) in &self.0 {
            let mut at = start;
            while at < end {
                let len = (end - at).min(most);
                let mut h = names.start(GROUP_CREDITS)?;
                free_blocks(names, &mut h, 0, Range { start: at, len: len as u32 })?;
                at += len;
            }
        }
        Ok(())
    }
}

/// Takes the free blocks among those that files get. Nothing else may have been allocated yet.
///
/// # Errors
/// [`FsError::Corrupt`] for blocks that no file can have.
pub(crate) fn claim(names: &Names, tags: &[Tag<'_>]) -> Result<Unowned> {
    let mut unowned = Unowned::default();
    for tag in tags {
        let Tag::AddRange { ino, extent } = tag else { continue };
        check_file_blocks(names, *ino, extent.start, extent.len.into())?;
        let bits = names.geo.cluster_bits;
        let (mut at, end) = (extent.start, extent.start + u64::from(extent.len));
        while at < end {
            let Some((group, bit)) = names.geo.block_bit(at) else {
                return Err(contradiction(names, *ino, "a block outside of the groups"));
            };
            let group_end = names.geo.group_clusters(group);
            let start = names.geo.group_first_block(group) + (u64::from(bit) << bits);
            let last = u64::from(bit) + (end - start).div_ceil(1 << bits);
            let last = u32::try_from(last).unwrap_or(u32::MAX).min(group_end).max(bit + 1);
            claim_in_group(names, &mut unowned, group, (bit, last))?;
            at = start + (u64::from(last - bit) << bits);
        }
    }
    Ok(unowned)
}

fn claim_in_group(
    names: &Names,
    unowned: &mut Unowned,
    group: u32,
    (from, to): (u32, u32),
) -> Result<()> {
    let mut at = from;
    loop {
        let map = block_bitmap(names, group, &group_desc(names, group)?)?;
        let Some((bit, len)) = bitmap::next_zero_run(&map, at, to, u32::MAX) else {
            return Ok(());
        };
        // Held on to, it would have to be copied for the change.
        drop(map);
        let bits = names.geo.cluster_bits;
        let start = names.geo.group_first_block(group) + (u64::from(bit) << bits);
        let range = Range { start, len: len << bits };
        let mut h = names.start(GROUP_CREDITS)?;
        install_blocks(names, &mut h, range)?;
        unowned.add(range);
        at = bit + len;
    }
}

impl Replay<'_> {
    /// Blocks of a file: what is there instead goes now, they come at the end of the fast commit.
    pub(super) fn add_range(&mut self, ino: u32, extent: Extent) -> Result<()> {
        self.leave_inode(ino)?;
        if self.with_extents(ino)?.is_none() {
            return Ok(());
        }
        self.merge(ino, extent, false)?;
        self.added.push((ino, extent));
        Ok(())
    }

    /// Maps the extents of the fast commit that ends.
    pub(super) fn map_added(&mut self) -> Result<()> {
        for (ino, extent) in std::mem::take(&mut self.added) {
            self.check_end(ino, extent)?;
            self.merge(ino, extent, true)?;
        }
        Ok(())
    }

    /// Refuses written blocks past the end of the file: Linux logs the size with them, and e2fsck
    /// takes such blocks for damage.
    fn check_end(&mut self, ino: u32, extent: Extent) -> Result<()> {
        let Some(inode) = self.get(ino)? else { return Ok(()) };
        let blocks = inode.state.read().raw.i_size.div_ceil(self.names.geo.block_size as u64);
        if !extent.unwritten && extent.end() > blocks {
            return Err(contradiction(self.names, ino, "written blocks past the end"));
        }
        Ok(())
    }

    /// A hole in a file.
    pub(super) fn del_range(&mut self, ino: u32, first: u32, end: u32) -> Result<()> {
        if self.get(ino)?.is_some_and(|inode| is_inline(&inode.state.read())) {
            return Ok(());
        }
        match self.with_extents(ino)? {
            Some(()) => self.detach(ino, first, end),
            None => Ok(()),
        }
    }

    /// A file whose data was in the inode has blocks from now on: its slot comes after them.
    fn leave_inode(&mut self, ino: u32) -> Result<()> {
        let Some(inode) = self.get(ino)? else { return Ok(()) };
        if inode.is_dir() || !is_inline(&inode.state.read()) {
            return Ok(());
        }
        let mut h = self.names.start(1)?;
        let mut st = inode.state.write();
        drop_inline(self.names, &mut h, &inode, &mut st)?;
        write_inode(self.names, &mut h, &inode, &mut st, Dirty::Data)
    }

    /// Checks that a file may have extents; `None` if it is gone.
    fn with_extents(&mut self, ino: u32) -> Result<Option<()>> {
        let Some(inode) = self.get(ino)? else { return Ok(None) };
        let st = inode.state.read();
        if !st.raw.is_file() && !st.raw.is_symlink() {
            return Err(contradiction(self.names, ino, "blocks of what is no file"));
        }
        if st.raw.i_flags & flags::EXTENTS == 0 {
            return Err(FsError::Unsupported(format!(
                "fast commits of inode {ino}, which has no extents; mount the image once with \
                 Linux"
            )));
        }
        Ok(Some(()))
    }

    /// Takes away what is mapped otherwise than `extent` says, and with `attach` maps it.
    fn merge(&mut self, ino: u32, extent: Extent, attach: bool) -> Result<()> {
        let end = extent.end() as u32;
        let mut at = extent.block;
        while at < end {
            let Some(inode) = self.get(ino)? else { return Ok(()) };
            let found = map_blocks(self.names, &inode, &inode.state.read(), at, end - at)?;
            let len = found.len().min(end - at);
            let start = extent.start + u64::from(at - extent.block);
            match found {
                Mapping::Mapped { pblk, unwritten, .. }
                    if (pblk, unwritten) == (start, extent.unwritten) =>
                {
                    at += len;
                    continue;
                }
                Mapping::Mapped { .. } => self.detach(ino, at, at + len)?,
                Mapping::Hole { .. } => {}
            }
            if attach {
                let unwritten = extent.unwritten;
                self.attach(&inode, Extent { block: at, len, start, unwritten })?;
            }
            at += len;
        }
        Ok(())
    }

    /// Maps a hole: the parts of it that lie in clusters of the file, and those that need others.
    fn attach(&mut self, inode: &Inode, extent: Extent) -> Result<()> {
        let mut rest = extent;
        while rest.len > 0 {
            let at = (rest.block, rest.len);
            let (len, owned) = match place_in_cluster(self.names, inode, &inode.state.read(), at)? {
                Place::Owned(range) => (range.len, true),
                Place::New(len) => (len, false),
            };
            self.attach_part(inode, Extent { len, ..rest }, owned)?;
            (rest.block, rest.start) = (rest.block + len, rest.start + u64::from(len));
            rest.len -= len;
        }
        Ok(())
    }

    fn attach_part(&mut self, inode: &Inode, extent: Extent, owned: bool) -> Result<()> {
        let range = Range { start: extent.start, len: extent.len };
        if !owned && !self.unowned.take(whole_clusters(self.names, range)) {
            return Err(contradiction(self.names, inode.ino, "a block that has an owner"));
        }
        let credits = map_credits(self.names, &inode.state.read()) + GROUP_CREDITS;
        let mut h = self.names.start(credits)?;
        let mut st = inode.state.write();
        attach_extent(self.names, &mut h, inode, &mut st, extent)?;
        write_inode(self.names, &mut h, inode, &mut st, Dirty::Data)
    }

    /// Takes the blocks `from..to` away from a file.
    pub(super) fn detach(&mut self, ino: u32, from: u32, to: u32) -> Result<()> {
        let Some(inode) = self.get(ino)? else { return Ok(()) };
        let names = self.names;
        let mut to = to;
        while to > from {
            let credits = DETACH_CREDITS.max(unmap_credits(names, &inode.state.read()));
            let mut h = names.start(credits)?;
            let mut st = inode.state.write();
            let is_metadata = !st.raw.is_file();
            let unowned = &mut self.unowned;
            let left = detach_extents(
                names,
                &mut h,
                &inode,
                &mut st,
                ((from, to), credits),
                &mut |h: &mut Handle, Gone { run, freed }| {
                    check_file_blocks(names, ino, run.start, run.len.into())?;
                    if is_metadata {
                        forget(h, run)?;
                    }
                    freed.into_iter().for_each(|freed| unowned.add(freed));
                    Ok(())
                },
            );
            write_inode(names as &Inodes, &mut h, &inode, &mut st, Dirty::Data)?;
            to = left?;
        }
        Ok(())
    }
}

/// A range with the rest of its clusters.
fn whole_clusters(store: &Store, range: Range) -> Range {
    let mask = u64::from(store.geo.cluster_blocks()) - 1;
    let len = blocks_in_clusters(&store.geo, range);
    // No longer than a hole and two clusters.
    Range { start: range.start & !mask, len: len as u32 }
}

/// Drops blocks from the journal in memory, which would write them over a file's data.
fn forget(h: &mut Handle, range: Range) -> Result<()> {
    for block in range.start..range.start.saturating_add(range.len.into()) {
        h.forget(block)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u32) -> Range {
        Range { start, len }
    }

    #[test]
    fn runs_join_and_are_taken_whole() {
        let mut unowned = Unowned::default();
        for (start, len) in [(10, 5), (20, 5), (15, 5), (8, 3), (40, 1)] {
            unowned.add(range(start, len));
        }
        assert_eq!(unowned.0, BTreeMap::from([(8, 25), (40, 41)]));
        assert!(!unowned.take(range(24, 2)) && !unowned.take(range(7, 1)));
        assert!(!unowned.take(range(30, 1)));
        assert!(unowned.take(range(10, 4)) && !unowned.take(range(10, 1)));
        assert_eq!(unowned.0, BTreeMap::from([(8, 10), (14, 25), (40, 41)]));
        assert!(unowned.take(range(14, 11)) && unowned.take(range(40, 1)));
        assert_eq!(unowned.0, BTreeMap::from([(8, 10)]));
    }
}
