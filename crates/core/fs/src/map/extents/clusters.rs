//! Clusters of blocks (`bigalloc`): the place of each block of a file within them.
//!
//! ```text
//!   logical    | 0  1  2  3 | 4  5  6  7 |       clusters of 4 blocks
//!   mapped       a  .  .  b   c  c  .  .
//!   physical   | 40 .. .. 43| 88 89 .. ..|       a, b in one cluster; .. are the file's, unmapped
//! ```
//!
//! Promises
//! - All mapped blocks of a logical cluster lie in one physical cluster, each at its own place in
//!   it: block numbers are congruent. A new block goes there if any of its cluster is mapped, or
//!   else into a new cluster.
//! - Blocks of a cluster that are not mapped are holes: nobody reads what is in them.
//! - A cluster is freed with the last of its mapped blocks. `i_blocks` counts whole clusters.
//!
//! Linux: `get_implied_cluster_alloc`, `ext4_remove_blocks` (fs/ext4/extents.c). Tested in
//! `tests/it/bigalloc.rs`.

use syncline_ondisk::Geometry;
use syncline_ondisk::extent::Extent;
use syncline_ondisk::inode::flags;

use super::tree::{NodeReader, lookup};
use super::volume::Tree;
use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::space::balloc::Range;
use crate::store::Store;

/// Where the next blocks of a hole belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// To these, in a cluster that the file has.
    Owned(Range),
    /// Into clusters that the file has not got yet: so many of the blocks.
    New(u32),
}

/// Finds where the first of `want` blocks of a hole from `lblk` on belong.
///
/// # Errors
/// Corrupt trees, and extents that are not congruent; I/O.
pub(crate) fn place_in_cluster(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    (lblk, want): (u32, u32),
) -> Result<Place> {
    if store.geo.cluster_bits == 0 {
        return Ok(Place::New(want));
    }
    let mask = store.geo.cluster_blocks() - 1;
    let skip = lblk & mask;
    if let Some(start) = cluster_of(store, inode, st, lblk)? {
        let len = want.min(mask + 1 - skip);
        return Ok(Place::Owned(Range { start: start + u64::from(skip), len }));
    }
    // The end of the run may lie in a cluster of which the file has other blocks.
    let end = lblk.saturating_add(want);
    let last = end & !mask;
    if last > lblk && last < end && cluster_of(store, inode, st, last)?.is_some() {
        return Ok(Place::New(last - lblk));
    }
    Ok(Place::New(want))
}

/// The first block of the physical cluster in which blocks of the logical cluster of `lblk` are
/// mapped; `None`: none of them is.
///
/// # Errors
/// As [`place_in_cluster`].
pub(crate) fn cluster_of(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    lblk: u32,
) -> Result<Option<u64>> {
    refuse_block_map(store, inode, st)?;
    let mask = store.geo.cluster_blocks() - 1;
    let first = lblk & !mask;
    let reader = Tree::reader(store, inode, st);
    let found = first_mapped(&reader, first, u64::from(first) + u64::from(mask) + 1)?;
    let Some((at, pblk)) = found else { return Ok(None) };
    match pblk.checked_sub(u64::from(at & mask)) {
        Some(start) if start & u64::from(mask) == 0 => Ok(Some(start)),
        _ => Err(not_congruent(store, inode, at)),
    }
}

/// True if a range that `lblk` is to be mapped to lies in a cluster that the file has.
///
/// # Errors
/// As [`place_in_cluster`]; corrupt if it has another one.
pub(crate) fn is_owned(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    lblk: u32,
    range: Range,
) -> Result<bool> {
    if store.geo.cluster_bits == 0 {
        return Ok(false);
    }
    match place_in_cluster(store, inode, st, (lblk, range.len))? {
        Place::Owned(owned) if owned == range => Ok(true),
        Place::New(len) if len == range.len && is_congruent(&store.geo, lblk, range.start) => {
            Ok(false)
        }
        _ => Err(not_congruent(store, inode, lblk)),
    }
}

/// Number of blocks in the clusters that hold any block of a range.
pub(crate) fn blocks_in_clusters(geo: &Geometry, range: Range) -> u64 {
    let mask = u64::from(geo.cluster_blocks()) - 1;
    let end = range.start + u64::from(range.len);
    ((end + mask) & !mask) - (range.start & !mask)
}

/// The blocks that go with an extent that was just removed: the clusters of which nothing is mapped
/// any more, whole.
///
/// # Errors
/// As [`place_in_cluster`].
pub(super) fn freed_with<R: NodeReader>(
    reader: &R,
    geo: &Geometry,
    gone: &Extent,
) -> Result<Option<Range>> {
    let mask = u64::from(geo.cluster_blocks()) - 1;
    let (first, end) = (u64::from(gone.block), gone.end());
    if mask == 0 {
        return Ok(Some(Range { start: gone.start, len: gone.len }));
    }
    let (mut from, mut to) = (first & !mask, (end + mask) & !mask);
    let Some(mut start) = gone.start.checked_sub(first - from) else { return Ok(None) };
    let mapped = |from: u64, to: u64| match u32::try_from(from) {
        Ok(at) if from < to => Ok(first_mapped(reader, at, to)?.is_some()),
        _ => Ok::<bool, FsError>(false),
    };
    let last = to - mask - 1;
    // Both edges may be in one cluster.
    let left = mapped(from, first)? || last == from && mapped(end, to)?;
    let right = last > from && mapped(end, to)?;
    if left {
        (from, start) = (from + mask + 1, start + mask + 1);
    }
    if right {
        to = last;
    }
    // At most one extent and two clusters.
    Ok((from < to).then(|| Range { start, len: (to - from) as u32 }))
}

/// Refuses a file without extents, which no volume of clusters has.
pub(crate) fn refuse_block_map(store: &Store, inode: &Inode, st: &InodeState) -> Result<()> {
    if store.geo.cluster_bits == 0 || st.raw.has_flag(flags::EXTENTS) {
        return Ok(());
    }
    let what = "a file without extents on a volume of clusters";
    Err(store.corrupt(Some(inode.ino), None, None, what))
}

/// Refuses an extent whose blocks are not at their places in their clusters.
pub(super) fn check_congruent(store: &Store, inode: &Inode, lblk: u32, pblk: u64) -> Result<()> {
    match is_congruent(&store.geo, lblk, pblk) {
        true => Ok(()),
        false => Err(not_congruent(store, inode, lblk)),
    }
}

fn is_congruent(geo: &Geometry, lblk: u32, pblk: u64) -> bool {
    let mask = u64::from(geo.cluster_blocks()) - 1;
    u64::from(lblk) & mask == pblk & mask
}

fn not_congruent(store: &Store, inode: &Inode, lblk: u32) -> FsError {
    let what = format!("logical block {lblk} is not at its place in its cluster");
    store.corrupt(Some(inode.ino), None, None, what)
}

/// The first mapped block of `from..to`: logical, physical.
fn first_mapped<R: NodeReader>(reader: &R, from: u32, to: u64) -> Result<Option<(u32, u64)>> {
    let mut at = from;
    while u64::from(at) < to {
        let end = match lookup(reader, at)? {
            (Some(extent), _) => return Ok(extent.map(at).map(|pblk| (at, pblk))),
            (None, end) => end,
        };
        at = match u32::try_from(end) {
            Ok(end) if end > at => end,
            _ => return Ok(None),
        };
    }
    Ok(None)
}
