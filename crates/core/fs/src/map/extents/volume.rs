//! Extent trees on a volume: node blocks as journaled metadata, and the operations of a file on its
//! tree.
//!
//! [`Tree`] lends one inode's tree to the algorithms. Node blocks are checked (header, order,
//! block ranges, checksum) when they come from the device; new ones are allocated near the data,
//! from the pool kept for metadata, so that write-back of reserved data does not run out of space.
//! Tested in `tests/it/space.rs`, judged by e2fsck.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use syncline_jbd2::Handle;
use syncline_ondisk::extent::{
    self, Extent, MAX_DEPTH, Node, NodeLimits, NodeMut, verify_block_checksum,
};
use syncline_ondisk::inode::{self as disk, flags};
use syncline_ondisk::{OndiskError, checksum};

use super::clusters::{
    Place, blocks_in_clusters, check_congruent, freed_with, is_owned, place_in_cluster,
    refuse_block_map,
};
use super::convert::convert;
use super::insert::insert;
use super::remove::remove;
use super::tree::{NodeReader, NodeStore};
use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::map::blockmap::{insert_in_map, map_run, remove_from_map};
use crate::map::extents::search::find_goal;
use crate::space::Space;
use crate::space::balloc::install::{free_blocks, install_blocks};
use crate::space::balloc::{Range, Request, Source};
use crate::store::Store;
use crate::store::validity::check_file_blocks;

/// The tree of one inode; `S` is what lends the inode's state.
pub(crate) struct Tree<'a, S> {
    store: &'a Store,
    inode: &'a Inode,
    st: S,
    /// For changes only: where blocks come from, and the handle that carries them.
    change: Option<(&'a Space, &'a mut Handle)>,
}

impl<'a> Tree<'a, &'a InodeState> {
    /// A tree to look into.
    pub(super) fn reader(store: &'a Store, inode: &'a Inode, st: &'a InodeState) -> Self {
        Tree { store, inode, st, change: None }
    }
}

impl<'a> Tree<'a, &'a mut InodeState> {
    fn writer(
        space: &'a Space,
        inode: &'a Inode,
        st: &'a mut InodeState,
        h: &'a mut Handle,
    ) -> Self {
        Tree { store: space, inode, st, change: Some((space, h)) }
    }

    fn change(&mut self) -> Result<(&'a Space, &mut Handle)> {
        let (space, h) = self.change.as_mut().ok_or(FsError::ReadOnly)?;
        Ok((space, h))
    }
}

impl<'a, S: std::ops::Deref<Target = InodeState>> Tree<'a, S> {
    fn seed(&self) -> Option<u32> {
        let generation = self.st.raw.i_generation;
        let seed = || checksum::inode_seed(self.store.csum_seed, self.inode.ino, generation);
        self.store.geo.metadata_csum.then(seed)
    }
}

impl<'a, S: std::ops::Deref<Target = InodeState>> NodeReader for Tree<'a, S> {
    fn limits(&self) -> NodeLimits {
        NodeLimits::root(&self.store.geo)
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
        // Before the block is held, whatever it was verified as: it may be one of the descriptors
        // that say where metadata lies.
        check_file_blocks(self.store, self.inode.ino, block, 1)?;
        self.store
            .buffers
            .get(block, |bytes| {
                check(bytes).map_err(|error| error.in_inode(self.inode.ino).in_block(block).into())
            })
            .map_err(|error: FsError| self.store.found_corrupt(error))
    }

    fn broken(&self, block: Option<u64>, error: OndiskError) -> FsError {
        let error = error.in_inode(self.inode.ino);
        let error = match block {
            Some(block) => error.in_block(block),
            None => error,
        };
        self.store.found_corrupt(error.into())
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
        let edited = self.change()?.1.modify(block, |bytes| {
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
        let (seed, inode) = (self.seed(), self.inode);
        let mut filled = Ok(());
        let (space, _) = self.change()?;
        let goal = find_goal(space, inode, self.st, 0)?;
        let (space, h) = self.change()?;
        let block = new_metadata_block(space, h, goal)?;
        h.create(block, |bytes| {
            filled = f(&mut NodeMut::init(bytes, depth));
            if let Some(seed) = seed {
                extent::set_block_checksum(bytes, seed);
            }
        })?;
        filled.map_err(|error| self.broken(Some(block), error))?;
        add_blocks(self.store, self.st, self.store.geo.cluster_blocks().into())?;
        Ok(block)
    }

    fn free(&mut self, block: u64) -> Result<()> {
        let ino = self.inode.ino;
        let (space, h) = self.change()?;
        h.forget(block)?;
        free_blocks(space, h, ino, Range { start: block, len: 1 })?;
        sub_blocks(self.store, self.st, self.store.geo.cluster_blocks().into())
    }
}

/// Takes and installs one block for metadata of a file (index or indirect block). It has a cluster
/// for itself.
pub(crate) fn new_metadata_block(space: &Space, h: &mut Handle, goal: u64) -> Result<u64> {
    let source = Source::Metadata;
    let life = space.balloc.life_at(goal);
    let request = Request { owner: 0, goal, want: 1, source, file_blocks: 0, life };
    let range = space.balloc.allocate(&*space.store, &request)?;
    install_blocks(space, h, range)?;
    Ok(range.start)
}

/// Counts blocks into `i_blocks`.
///
/// # Errors
/// [`FsError::TooBig`] when `i_blocks` cannot hold them.
pub(crate) fn add_blocks(store: &Store, st: &mut InodeState, blocks: u64) -> Result<()> {
    let sectors = blocks * (store.geo.block_size as u64 / 512);
    let sum = st.raw.sectors(store.geo.block_size).saturating_add(sectors);
    set_blocks(store, st, sum)
}

/// Counts blocks out of `i_blocks`. A count that was too low stops at zero.
///
/// # Errors
/// As [`add_blocks`].
pub(crate) fn sub_blocks(store: &Store, st: &mut InodeState, blocks: u64) -> Result<()> {
    let sectors = blocks * (store.geo.block_size as u64 / 512);
    let left = st.raw.sectors(store.geo.block_size).saturating_sub(sectors);
    set_blocks(store, st, left)
}

fn set_blocks(store: &Store, st: &mut InodeState, sectors: u64) -> Result<()> {
    st.raw.set_sectors(sectors, store.geo.block_size, store.huge_files).map_err(|_| FsError::TooBig)
}

/// Depth of a file's tree; for block maps, the indirect levels.
fn map_depth(st: &InodeState) -> u32 {
    if st.raw.i_flags & flags::EXTENTS == 0 {
        return 3;
    }
    let depth = Node::parse_header(&st.raw.i_block).map_or(0, |root| root.depth());
    depth.min(MAX_DEPTH).into()
}

/// Journal credits that mapping one run needs at most: the inode, the run's bitmap and
/// descriptor, and for each level a node, a new node and its bitmap and descriptor.
pub(crate) fn map_credits(_store: &Store, st: &InodeState) -> u32 {
    1 + 2 + (map_depth(st) + 1) * 4
}

/// Maps blocks that were allocated, and whose data is written (or that are `unwritten`): bits,
/// descriptor, tree, `i_blocks`. Credits: [`map_credits`].
///
/// # Errors
/// [`FsError::NoSpace`] when a node block cannot be had (nothing is mapped then); corruption.
pub(crate) fn install_extent(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    lblk: u32,
    range: Range,
    unwritten: bool,
) -> Result<()> {
    let owned = is_owned(space, inode, st, lblk, range)?;
    if st.raw.i_flags & flags::EXTENTS == 0 {
        insert_in_map(space, h, inode, st, lblk, range)?;
    } else {
        let extent = Extent { block: lblk, len: range.len, start: range.start, unwritten };
        insert(&mut Tree::writer(space, inode, st, h), extent)?;
    }
    if owned {
        return Ok(());
    }
    install_blocks(space, h, range)?;
    add_blocks(space, st, blocks_in_clusters(&space.geo, range))
}

/// Credits of [`replace_extent`].
pub(crate) fn replace_credits(store: &Store, st: &InodeState) -> u32 {
    2 * unmap_credits(store, st) + map_credits(store, st)
}

/// Maps blocks that were allocated, and whose data is written or will be before the commit, in
/// place of written blocks of one extent, and frees these. Credits: [`replace_credits`].
///
/// # Errors
/// [`FsError::NoSpace`] when a node block cannot be had (nothing has changed then); corruption.
pub(crate) fn replace_extent(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    lblk: u32,
    range: Range,
) -> Result<()> {
    let end = lblk.saturating_add(range.len);
    // From the end of the range; they are freed once the new ones are there.
    let (mut old, mut at) = (Vec::new(), end);
    let mut keep = |_: &mut Handle, Gone { run, .. }: Gone| {
        at = at.saturating_sub(run.len);
        old.push(Extent { block: at, len: run.len, start: run.start, unwritten: false });
        Ok(())
    };
    let detached = detach_extents(space, h, inode, st, ((lblk, end), u32::MAX), &mut keep);
    let mapped = detached.and_then(|left| match left == lblk && at == lblk {
        true => install_extent(space, h, inode, st, lblk, range, false),
        false => Err(space.corrupt(Some(inode.ino), None, None, "an extent has moved")),
    });
    if let Err(err) = mapped {
        for extent in old {
            // It merges with the parts that it was cut out of, so no block is needed for it.
            attach_extent(space, h, inode, st, extent)
                .map_err(|err| space.give_up(err, "putting an extent back failed"))?;
        }
        return Err(err);
    }
    for Extent { start, len, .. } in old {
        free_blocks(space, h, inode.ino, Range { start, len })?;
    }
    Ok(())
}

/// Maps blocks that are used already to a hole of a file with extents. Credits: [`map_credits`].
///
/// # Errors
/// As [`install_extent`].
pub(crate) fn attach_extent(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    extent: Extent,
) -> Result<()> {
    let range = Range { start: extent.start, len: extent.len };
    let owned = is_owned(space, inode, st, extent.block, range)?;
    insert(&mut Tree::writer(space, inode, st, h), extent)?;
    if owned { Ok(()) } else { add_blocks(space, st, blocks_in_clusters(&space.geo, range)) }
}

/// Makes the first unwritten extent of `from..to` written (or the reverse), returns where to go
/// on. Credits: [`map_credits`].
///
/// # Errors
/// As [`install_extent`].
pub(crate) fn convert_extent(
    space: &Space,
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
    convert(&mut Tree::writer(space, inode, st, h), from, to, unwritten)
}

/// Unmaps and frees blocks of `from..to`, from the end, as far as `credits` of the handle
/// reach. Returns the new `to`; the range is done when that is `from`. `credits` is at least
/// [`unmap_credits`].
///
/// # Errors
/// As [`install_extent`] (a hole in the middle may need a node block).
pub(crate) fn unmap_blocks(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    (from, to): (u32, u32),
    credits: u32,
) -> Result<u32> {
    if st.raw.i_flags & flags::EXTENTS == 0 {
        st.extent_cache.forget(from, to);
        refuse_block_map(space, inode, st)?;
        return remove_from_map(space, h, inode, st, (from, to), credits);
    }
    let metadata = is_metadata(&st.raw);
    detach_extents(space, h, inode, st, ((from, to), credits), &mut |h, gone| {
        release_run(space, h, inode.ino, gone, metadata)
    })
}

/// Blocks that were unmapped.
pub(crate) struct Gone {
    pub run: Range,
    /// Blocks that are freed with them: `run`, or the clusters of which nothing is mapped any more.
    pub freed: Option<Range>,
}

/// As [`unmap_blocks`], for extents only: `release` gets the handle and each run instead of having
/// what goes with it freed.
///
/// # Errors
/// As [`unmap_blocks`], and those of `release`.
pub(crate) fn detach_extents(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    ((from, to), credits): ((u32, u32), u32),
    release: &mut dyn FnMut(&mut Handle, Gone) -> Result<()>,
) -> Result<u32> {
    st.extent_cache.forget(from, to);
    let cost = unmap_credits(space, st);
    let mut left = credits;
    let mut tree = Tree::writer(space, inode, st, h);
    remove(&mut tree, from, to, piece_max(space), &mut |tree, extent| {
        check_congruent(space, inode, extent.block, extent.start)?;
        let freed = freed_with(tree, &space.geo, &extent)?;
        let freed_blocks = freed.map_or(0, |freed| freed.len.into());
        let run = Range { start: extent.start, len: extent.len };
        let (_, h) = tree.change()?;
        release(h, Gone { run, freed })?;
        if freed_blocks < blocks_in_clusters(&space.geo, run) {
            // The file keeps the blocks, and may get them again before this is durable.
            tree.st.unwrote_tid = h.tid();
        }
        sub_blocks(space, tree.st, freed_blocks)?;
        left = left.saturating_sub(cost);
        Ok(left >= cost)
    })
}

/// True if the blocks of an inode are journaled: those of directories, symbolic links and values of
/// attributes.
pub(crate) fn is_metadata(raw: &disk::Inode) -> bool {
    !raw.is_file() || raw.has_flag(flags::EA_INODE)
}

/// Frees what goes with a `run` that is no longer mapped.
pub(crate) fn release_run(
    space: &Space,
    h: &mut Handle,
    ino: u32,
    Gone { run, freed }: Gone,
    metadata: bool,
) -> Result<()> {
    if metadata {
        for block in run.start..run.start.saturating_add(run.len.into()) {
            h.forget(block)?;
        }
    }
    freed.map_or(Ok(()), |freed| free_blocks(space, h, ino, freed))
}

/// Longest run that is freed at once, so that small groups do not need many credits.
pub(crate) fn piece_max(store: &Store) -> u32 {
    store.geo.blocks_per_group.saturating_mul(4).min(extent::INIT_MAX_LEN)
}

/// Credits that unmapping one piece needs at most: the inode, the groups that the longest
/// piece can touch, the nodes on the way, and each of them freed or split.
pub(crate) fn unmap_credits(store: &Store, st: &InodeState) -> u32 {
    let groups = piece_max(store).div_ceil(store.geo.blocks_per_group.max(1)) + 1;
    1 + 2 * groups + (map_depth(st) + 1) * 4
}

/// Finds or allocates blocks for `lblk`, at most `want`, in memory, and says on whose account.
/// `goal` overrides where to look first. Install them with [`install_extent`] or release them with
/// `Balloc::cancel`.
///
/// # Errors
/// As `Balloc::allocate`.
pub(crate) fn allocate_blocks(
    space: &Space,
    inode: &Inode,
    st: &InodeState,
    (lblk, want): (u32, u32),
    source: Source,
    goal: Option<u64>,
) -> Result<(Range, Source)> {
    let want = match place_in_cluster(space, inode, st, (lblk, want))? {
        Place::Owned(range) => return Ok((range, Source::Owned)),
        Place::New(want) => want,
    };
    let goal = match goal {
        Some(goal) => goal,
        None => find_goal(space, inode, st, lblk)?,
    };
    // The pointers of one run must share a table, or a handle's credits would not reach.
    let has_extents = st.raw.i_flags & flags::EXTENTS != 0;
    let want = if has_extents { want } else { want.min(map_run(space, lblk)?) };
    let file_blocks = if st.raw.is_file() {
        let end = u64::from(lblk) + u64::from(want);
        end.max(st.size.div_ceil(space.geo.block_size as u64))
    } else {
        0
    };
    let life = inode.life();
    let skip = lblk & (space.geo.cluster_blocks() - 1);
    let request = Request { owner: inode.ino, goal, want: skip + want, source, file_blocks, life };
    inode.may_have_window.store(true, Ordering::Release);
    let taken = space.balloc.allocate(&*space.store, &request)?;
    let range = Range { start: taken.start + u64::from(skip), len: want.min(taken.len - skip) };
    Ok((range, source))
}

/// Allocates and maps one block of a directory (or long symlink) at `lblk`; the caller fills it
/// with `Handle::create`. Credits: [`map_credits`].
///
/// # Errors
/// As [`install_extent`].
pub(crate) fn bmap_create(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    lblk: u32,
) -> Result<u64> {
    let source = space.balloc.unreserved();
    let (range, source) = allocate_blocks(space, inode, st, (lblk, 1), source, None)?;
    match install_extent(space, h, inode, st, lblk, range, false) {
        Ok(()) => Ok(range.start),
        Err(error) => {
            space.balloc.cancel(range, source);
            Err(error)
        }
    }
}
