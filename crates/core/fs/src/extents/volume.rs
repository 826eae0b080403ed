//! Extent trees on a volume: node blocks as journaled metadata, and what a file does with its tree.
//!
//! [`Tree`] lends one inode's tree to the algorithms. Node blocks are checked (header, order,
//! block ranges, checksum) when they come from the device; new ones are allocated near the data,
//! from the pool kept for metadata, so that write-back of reserved data does not run out of space.
//! Tested in `tests/space.rs`, judged by e2fsck.

use super::convert::convert;
use super::insert::insert;
use super::remove::remove;
use super::tree::{NodeReader, NodeStore};
use crate::balloc::{Range, Request, Source};
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeState};
use crate::volume::Inner;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use syncline_jbd2::Handle;
use syncline_ondisk::checksum;
use syncline_ondisk::extent::{
    self, Extent, MAX_DEPTH, Node, NodeLimits, NodeMut, verify_block_checksum,
};
use syncline_ondisk::inode::flags;
use syncline_ondisk::{OndiskError, RoCompatFeatures};

/// The tree of one inode; `S` is what lends the inode's state.
pub(crate) struct Tree<'a, S> {
    vol: &'a Inner,
    inode: &'a Inode,
    st: S,
    /// For changes only.
    h: Option<&'a mut Handle>,
}

impl<'a> Tree<'a, &'a InodeState> {
    /// A tree to look into.
    pub(super) fn reader(vol: &'a Inner, inode: &'a Inode, st: &'a InodeState) -> Self {
        Tree { vol, inode, st, h: None }
    }
}

impl<'a> Tree<'a, &'a mut InodeState> {
    fn writer(vol: &'a Inner, inode: &'a Inode, st: &'a mut InodeState, h: &'a mut Handle) -> Self {
        Tree { vol, inode, st, h: Some(h) }
    }

    fn handle(&mut self) -> Result<&mut Handle> {
        self.h.as_deref_mut().ok_or(FsError::ReadOnly)
    }
}

impl<'a, S: std::ops::Deref<Target = InodeState>> Tree<'a, S> {
    fn seed(&self) -> Option<u32> {
        let generation = self.st.raw.i_generation;
        let seed = || checksum::inode_seed(self.vol.csum_seed, self.inode.ino, generation);
        self.vol.geo.metadata_csum.then(seed)
    }
}

impl<'a, S: std::ops::Deref<Target = InodeState>> NodeReader for Tree<'a, S> {
    fn limits(&self) -> NodeLimits {
        NodeLimits::root(&self.vol.geo)
    }

    fn root(&self) -> &[u8] {
        &self.st.raw.i_block
    }

    fn load(&self, block: u64, limits: &NodeLimits) -> Result<Arc<[u8]>> {
        let seed = self.seed();
        let check = |bytes: &[u8]| {
            Node::parse(bytes, limits).and_then(|_| match seed {
                Some(seed) => verify_block_checksum(bytes, seed),
                None => Ok(()),
            })
        };
        self.vol
            .buffers
            .get(block, |bytes| {
                self.vol.check_file_blocks(self.inode.ino, block, 1)?;
                check(bytes).map_err(|error| error.in_inode(self.inode.ino).in_block(block).into())
            })
            .map_err(|error: FsError| self.vol.found_corrupt(error))
    }

    fn broken(&self, block: Option<u64>, error: OndiskError) -> FsError {
        let error = error.in_inode(self.inode.ino);
        let error = match block {
            Some(block) => error.in_block(block),
            None => error,
        };
        self.vol.found_corrupt(error.into())
    }
}

impl<'a> NodeStore for Tree<'a, &'a mut InodeState> {
    fn edit(
        &mut self,
        block: Option<u64>,
        f: &mut dyn FnMut(&mut NodeMut<'_>) -> std::result::Result<(), OndiskError>,
    ) -> Result<()> {
        let Some(block) = block else {
            let mut root = self.st.raw.i_block;
            let edited = NodeMut::parse(&mut root).and_then(|mut node| f(&mut node));
            edited.map_err(|error| self.broken(None, error))?;
            self.st.raw.i_block = root;
            return Ok(());
        };
        let seed = self.seed();
        let edited = self.handle()?.modify(block, |bytes| {
            f(&mut NodeMut::parse(bytes)?)?;
            if let Some(seed) = seed {
                extent::set_block_checksum(bytes, seed);
            }
            Ok(())
        })?;
        edited.map_err(|error| self.broken(Some(block), error))
    }

    fn create(
        &mut self,
        depth: u16,
        f: &mut dyn FnMut(&mut NodeMut<'_>) -> std::result::Result<(), OndiskError>,
    ) -> Result<u64> {
        let goal = self.vol.find_goal(self.inode, self.st, 0)?;
        let block = self.vol.new_metadata_block(self.handle()?, goal)?;
        let seed = self.seed();
        let mut filled = Ok(());
        self.handle()?.create(block, |bytes| {
            filled = f(&mut NodeMut::init(bytes, depth));
            if let Some(seed) = seed {
                extent::set_block_checksum(bytes, seed);
            }
        })?;
        filled.map_err(|error| self.broken(Some(block), error))?;
        self.vol.add_blocks(self.st, 1)?;
        Ok(block)
    }

    fn free(&mut self, block: u64) -> Result<()> {
        let (vol, ino) = (self.vol, self.inode.ino);
        let h = self.handle()?;
        h.forget(block)?;
        vol.free_blocks(h, ino, Range { start: block, len: 1 })?;
        vol.sub_blocks(self.st, 1)
    }
}

impl Inner {
    /// Takes and installs one block for metadata of a file (index or indirect block).
    pub(crate) fn new_metadata_block(&self, h: &mut Handle, goal: u64) -> Result<u64> {
        let source = Source::Metadata;
        let life = self.balloc.life_at(goal);
        let request = Request { owner: 0, goal, want: 1, source, file_blocks: 0, life };
        let range = self.balloc.allocate(self, &request)?;
        self.install_blocks(h, range)?;
        Ok(range.start)
    }

    /// Counts blocks into `i_blocks`.
    ///
    /// # Errors
    /// [`FsError::TooBig`] when `i_blocks` cannot hold them.
    pub(crate) fn add_blocks(&self, st: &mut InodeState, blocks: u64) -> Result<()> {
        let sectors = blocks * (self.geo.block_size as u64 / 512);
        let sum = st.raw.sectors(self.geo.block_size).saturating_add(sectors);
        self.set_blocks(st, sum)
    }

    /// Counts blocks out of `i_blocks`. A count that was too low stops at zero.
    ///
    /// # Errors
    /// As [`Inner::add_blocks`].
    pub(crate) fn sub_blocks(&self, st: &mut InodeState, blocks: u64) -> Result<()> {
        let sectors = blocks * (self.geo.block_size as u64 / 512);
        let left = st.raw.sectors(self.geo.block_size).saturating_sub(sectors);
        self.set_blocks(st, left)
    }

    fn set_blocks(&self, st: &mut InodeState, sectors: u64) -> Result<()> {
        let features = self.sb.lock().s_feature_ro_compat;
        let huge = features.contains(RoCompatFeatures::HUGE_FILE);
        st.raw.set_sectors(sectors, self.geo.block_size, huge).map_err(|_| FsError::TooBig)
    }

    /// Depth of a file's tree; for block maps, the indirect levels.
    fn map_depth(&self, st: &InodeState) -> u32 {
        if st.raw.i_flags & flags::EXTENTS == 0 {
            return 3;
        }
        let depth = Node::parse_header(&st.raw.i_block).map_or(0, |root| root.depth());
        depth.min(MAX_DEPTH).into()
    }

    /// Journal credits that mapping one run needs at most: the inode, the run's bitmap and
    /// descriptor, and for each level a node, a new node and its bitmap and descriptor.
    pub(crate) fn map_credits(&self, st: &InodeState) -> u32 {
        1 + 2 + (self.map_depth(st) + 1) * 4
    }

    /// Maps blocks that were allocated, and whose data is written (or that are `unwritten`): bits,
    /// descriptor, tree, `i_blocks`. Credits: [`Inner::map_credits`].
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when a node block cannot be had (nothing is mapped then); corruption.
    pub(crate) fn install_extent(
        &self,
        h: &mut Handle,
        inode: &Inode,
        st: &mut InodeState,
        lblk: u32,
        range: Range,
        unwritten: bool,
    ) -> Result<()> {
        if st.raw.i_flags & flags::EXTENTS == 0 {
            self.insert_in_map(h, inode, st, lblk, range)?;
        } else {
            let extent = Extent { block: lblk, len: range.len, start: range.start, unwritten };
            insert(&mut Tree::writer(self, inode, st, h), extent)?;
        }
        self.install_blocks(h, range)?;
        self.add_blocks(st, range.len.into())
    }

    /// Makes the first unwritten extent of `from..to` written (or the reverse), returns where to go
    /// on. Credits: [`Inner::map_credits`].
    ///
    /// # Errors
    /// As [`Inner::install_extent`].
    pub(crate) fn convert_extent(
        &self,
        h: &mut Handle,
        inode: &Inode,
        st: &mut InodeState,
        (from, to): (u32, u32),
        unwritten: bool,
    ) -> Result<u32> {
        st.extent_cache.forget(from, to);
        if st.raw.i_flags & flags::EXTENTS == 0 {
            return Ok(to);
        }
        convert(&mut Tree::writer(self, inode, st, h), from, to, unwritten)
    }

    /// Unmaps and frees blocks of `from..to`, from the end, as far as `credits` of the handle
    /// reach. Returns the new `to`; the range is done when that is `from`. `metadata`: the blocks
    /// are journaled (directories, long symlinks). `credits` is at least [`Inner::unmap_credits`].
    ///
    /// # Errors
    /// As [`Inner::install_extent`] (a hole in the middle may need a node block).
    pub(crate) fn unmap_blocks(
        &self,
        h: &mut Handle,
        inode: &Inode,
        st: &mut InodeState,
        (from, to): (u32, u32),
        credits: u32,
    ) -> Result<u32> {
        st.extent_cache.forget(from, to);
        let cost = self.unmap_credits(st);
        let mut left = credits;
        let metadata = !st.raw.is_file();
        if st.raw.i_flags & flags::EXTENTS == 0 {
            return self.remove_from_map(h, inode, st, (from, to), credits);
        }
        let mut tree = Tree::writer(self, inode, st, h);
        remove(&mut tree, from, to, self.piece_max(), &mut |tree, extent| {
            let (vol, ino) = (tree.vol, tree.inode.ino);
            let h = tree.handle()?;
            vol.release_run(h, ino, Range { start: extent.start, len: extent.len }, metadata)?;
            vol.sub_blocks(tree.st, extent.len.into())?;
            left = left.saturating_sub(cost);
            Ok(left >= cost)
        })
    }

    /// Frees the blocks of a run that is no longer mapped.
    pub(crate) fn release_run(
        &self,
        h: &mut Handle,
        ino: u32,
        range: Range,
        metadata: bool,
    ) -> Result<()> {
        if metadata {
            for block in range.start..range.start.saturating_add(range.len.into()) {
                h.forget(block)?;
            }
        }
        self.free_blocks(h, ino, range)
    }

    /// Longest run that is freed at once, so that small groups do not need many credits.
    fn piece_max(&self) -> u32 {
        self.geo.blocks_per_group.saturating_mul(4).min(extent::INIT_MAX_LEN)
    }

    /// Credits that unmapping one piece needs at most: the inode, the groups that the longest
    /// piece can touch, the nodes on the way, and each of them freed or split.
    pub(crate) fn unmap_credits(&self, st: &InodeState) -> u32 {
        let groups = self.piece_max().div_ceil(self.geo.blocks_per_group.max(1)) + 1;
        1 + 2 * groups + (self.map_depth(st) + 1) * 4
    }

    /// Allocates blocks for `lblk`, at most `want`, in memory. `goal` overrides where to look
    /// first. Install them with [`Inner::install_extent`] or give them back with `Balloc::cancel`.
    ///
    /// # Errors
    /// As `Balloc::allocate`.
    pub(crate) fn allocate_blocks(
        &self,
        inode: &Inode,
        st: &InodeState,
        (lblk, want): (u32, u32),
        source: Source,
        goal: Option<u64>,
    ) -> Result<Range> {
        let goal = match goal {
            Some(goal) => goal,
            None => self.find_goal(inode, st, lblk)?,
        };
        // The pointers of one run must share a table, or a handle's credits would not reach.
        let has_extents = st.raw.i_flags & flags::EXTENTS != 0;
        let want = if has_extents { want } else { want.min(self.map_run(lblk)?) };
        let file_blocks = if st.raw.is_file() {
            let end = u64::from(lblk) + u64::from(want);
            end.max(st.size.div_ceil(self.geo.block_size as u64))
        } else {
            0
        };
        let life = inode.life();
        let request = Request { owner: inode.ino, goal, want, source, file_blocks, life };
        inode.may_have_window.store(true, Ordering::Release);
        self.balloc.allocate(self, &request)
    }

    /// Allocates and maps one block of a directory (or long symlink) at `lblk`; the caller fills it
    /// with `Handle::create`. Credits: [`Inner::map_credits`].
    ///
    /// # Errors
    /// As [`Inner::install_extent`].
    pub(crate) fn bmap_create(
        &self,
        h: &mut Handle,
        inode: &Inode,
        st: &mut InodeState,
        lblk: u32,
    ) -> Result<u64> {
        let source = self.balloc.unreserved();
        let range = self.allocate_blocks(inode, st, (lblk, 1), source, None)?;
        match self.install_extent(h, inode, st, lblk, range, false) {
            Ok(()) => Ok(range.start),
            Err(error) => {
                self.balloc.cancel(range, source);
                Err(error)
            }
        }
    }
}
