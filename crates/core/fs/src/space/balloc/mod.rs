//! Block allocation.
//!
//! ```text
//!   goal.rs     where to look first (policy)        reserve.rs  who may have how many (accounts)
//!   hot.rs      ... with zones kept for hot files
//!   lifetime.rs ... by expected lifetime
//!        \                                          /
//!         core.rs     runs out of group maps, in memory; window.rs keeps files contiguous
//!              \               trim.rs     free blocks discarded on request
//!               install.rs   bitmap bits, descriptors, checksums: in a journal handle
//!
//!   delayed data:  reserve at write -> allocate -> data written in place -> install -> commit
//!   freed blocks:  bits cleared in the handle; in memory they stay taken until it has committed
//! ```
//!
//! With `bigalloc` everything below this file counts clusters (`Shape`, `Range`, accounts, maps),
//! and [`Balloc`] turns blocks into clusters and back. Which block of a cluster a file block gets
//! is the business of `map/extents/clusters.rs`.
//!
//! `allocate` changes nothing that a transaction could carry: a crash before `install` leaves the
//! blocks free, and no committed metadata points to data that is not written.
//! Tested in `space/balloc/tests.rs` (model) and `tests/it/space.rs` (images).

pub(crate) mod bitmap;
pub(crate) mod core;
pub(crate) mod goal;
pub(crate) mod held;
pub(crate) mod hot;
pub(crate) mod install;
pub(crate) mod lifetime;
pub(crate) mod reserve;
#[cfg(test)]
mod tests;
pub(crate) mod trim;
pub(crate) mod window;

use std::collections::BTreeMap;
use std::sync::Arc;

use syncline_base::lockrank::Mutex;
use syncline_jbd2::Tid;
use syncline_ondisk::{Geometry, Superblock};

use self::core::{Core, GroupSource, RANGE_BLOCKS_MAX};
use self::goal::{AllocPolicy, LinuxPolicy, Shape};
use self::held::Held;
use self::hot::{Asked, HotZones};
use self::lifetime::ByLifetime;
use crate::error::Result;
use crate::incore::Lifetime;
use crate::options::{Alloc, MountOptions};
use crate::ranks;
use crate::store::zone::Zone;

pub(crate) use self::core::{Range, Request};
pub(crate) use self::goal::Wish;
pub(crate) use self::reserve::Source;
pub use self::reserve::SpaceCounts;

/// The block allocator of a volume.
pub(crate) struct Balloc {
    core: Arc<Core>,
    /// log2 of the blocks of a cluster.
    cluster_bits: u32,
    /// One lock per group: bits, counter and checksums of a group change together.
    install_locks: Vec<Mutex<()>>,
    /// Blocks freed by transactions that have not committed.
    freed: Arc<Mutex<BTreeMap<Tid, Vec<Range>>>>,
    /// Eager mode: freed blocks that the same inode may take again.
    held: Arc<Held>,
    privileged: bool,
    discard: bool,
}

impl Balloc {
    /// An allocator that expects `free` (`bg_free_blocks_count`) blocks in each group. Hot zones,
    /// where the options ask for them, lie behind the metadata that `zone` knows and the `log`
    /// (start, length).
    pub(crate) fn new(
        geo: &Geometry,
        sb: &Superblock,
        (free, zone, log): (&[u32], Option<&Zone>, &[(u64, u64)]),
        options: &MountOptions,
    ) -> Balloc {
        let shape = Shape {
            first_data_block: u64::from(geo.first_data_block) >> geo.cluster_bits,
            blocks_per_group: geo.clusters_per_group(),
            blocks_count: geo.blocks_count.div_ceil(1 << geo.cluster_bits),
            groups: geo.group_count,
            flex_log: geo.groups_per_flex.max(1).ilog2(),
            block_bits: geo.block_bits + geo.cluster_bits,
        };
        let asked = Asked {
            count: options.hot_zones,
            blocks: options.hot_zone_size_bytes >> shape.block_bits,
        };
        let taken = zone.map(|zone| zone.with(log).in_clusters(geo.cluster_bits));
        let policy: Box<dyn AllocPolicy> = match (&taken, options.alloc) {
            (Some(taken), Alloc::HotZones) => Box::new(HotZones::plan(&shape, taken, asked)),
            (Some(taken), Alloc::Lifetime) => Box::new(ByLifetime::plan(&shape, taken, asked)),
            _ => Box::new(LinuxPolicy),
        };
        Balloc {
            core: Arc::new(Core::new(shape, free, sb.s_r_blocks_count >> geo.cluster_bits, policy)),
            cluster_bits: geo.cluster_bits,
            install_locks: (0..geo.group_count).map(|_| Mutex::new(ranks::BITMAP, ())).collect(),
            freed: Arc::new(Mutex::new(ranks::FREED_BLOCKS, BTreeMap::new())),
            held: Arc::default(),
            privileged: options.privileged,
            discard: options.discard,
        }
    }

    /// The clusters that hold any block of a range: a range of the allocator proper.
    fn clusters_of(&self, blocks: Range) -> Range {
        let start = blocks.start >> self.cluster_bits;
        let end = blocks.start + u64::from(blocks.len);
        // No more of them than blocks.
        Range { start, len: (end.div_ceil(1 << self.cluster_bits) - start) as u32 }
    }

    /// All blocks of these clusters. `Core` hands out a run of blocks or one cluster at most.
    fn blocks_of(&self, clusters: Range) -> Range {
        let Range { start, len } = clusters;
        Range { start: start << self.cluster_bits, len: len << self.cluster_bits }
    }

    /// Promises `blocks` to delayed data; every block of it can be allocated later. A cluster
    /// counts as one, here and in the accounts.
    ///
    /// # Errors
    /// [`crate::FsError::NoSpace`]. Blocks may be waiting for a commit: see
    /// [`install::wait_for_freed_blocks`].
    pub(crate) fn reserve(&self, blocks: u64) -> Result<()> {
        self.core.reserve.reserve(blocks, self.privileged)
    }

    /// True if write-back of what is promised could need more clusters for nodes of extent trees
    /// than are left. A node takes a cluster, of which a volume has few: the pool alone does not
    /// do, as it does where a node takes a block.
    pub(crate) fn is_crowded(&self) -> bool {
        if self.cluster_bits == 0 {
            return false;
        }
        let (counts, shape) = (self.core.reserve.counts(), &self.core.shape);
        let (cluster_blocks, block_bits) =
            (1 << self.cluster_bits, shape.block_bits - self.cluster_bits);
        // A cluster gets an extent in every second block at most, and a split leaves half of the
        // entries of a node, of 12 bytes each. It may need a node if it gets one extent.
        let nodes = 1 + ((12_u64 * cluster_blocks) >> block_bits);
        let (free, promised) = (counts.free.saturating_sub(counts.pending), counts.delayed);
        promised > 0 && promised.saturating_mul(nodes) > free
    }

    /// Takes back a promise of [`Balloc::reserve`].
    pub(crate) fn release(&self, blocks: u64) {
        self.core.reserve.release(blocks);
    }

    /// Blocks taken without an earlier promise (fallocate, directories).
    pub(crate) fn unreserved(&self) -> Source {
        Source::Free { privileged: self.privileged }
    }

    /// Takes blocks in memory; at most `request.want` and the rest of their clusters, consecutive,
    /// inside one group.
    ///
    /// # Errors
    /// [`crate::FsError::NoSpace`] (never for [`Source::Reserved`] within its promise); I/O and
    /// corruption from loading a bitmap.
    pub(crate) fn allocate(&self, groups: &dyn GroupSource, request: &Request) -> Result<Range> {
        let bits = self.cluster_bits;
        // A run of clusters is no longer than one of blocks may be, unless it is one cluster.
        let most = (RANGE_BLOCKS_MAX >> bits).max(1);
        let clusters = Request {
            goal: request.goal >> bits,
            want: request.want.div_ceil(1 << bits).min(most),
            file_blocks: request.file_blocks.div_ceil(1 << bits),
            ..*request
        };
        self.core.allocate(groups, &clusters).map(|range| self.blocks_of(range))
    }

    /// Takes up to `want` blocks that `ino` freed, on the account of a promise, for data that goes
    /// to the log in the handle that installs them (`held.rs`); none outside of the zones for a
    /// file that belongs into one. None in clusters, since the file may have the cluster of the
    /// freed one's other blocks by now.
    pub(crate) fn claim(&self, ino: u32, life: Lifetime, want: u32) -> Option<(Range, Source)> {
        if self.cluster_bits > 0 {
            return None;
        }
        let (free, range) = self.held.claim(ino, want)?;
        let outside = life.is_hot() && !self.life_at(range.start).is_hot();
        if outside && self.has_zones() && self.held.cancel(free, range) {
            return None;
        }
        self.core.reserve.claim(range.len.into());
        Some((range, Source::Held { free }))
    }

    /// Undoes an allocation that was not installed. [`Source::Reserved`] is promised again.
    pub(crate) fn cancel(&self, range: Range, source: Source) {
        let range = self.clusters_of(range);
        match source {
            Source::Owned => {}
            Source::Held { free } if self.held.cancel(free, range) => {
                self.core.reserve.unclaim(range.len.into());
            }
            Source::Held { .. } => self.core.cancel(range, Source::Reserved),
            other => self.core.cancel(range, other),
        }
    }

    /// Returns the block that the policy prefers.
    pub(crate) fn goal(&self, wish: &Wish) -> u64 {
        let bits = self.cluster_bits;
        let near = wish.near.map(|(lblk, pblk)| (lblk >> bits, pblk >> bits));
        let wish = Wish { lblk: wish.lblk >> bits, near, ..*wish };
        self.core.policy().goal(&self.core.shape, &wish) << bits
    }

    /// True if files of some lifetimes have blocks of their own.
    pub(crate) fn has_zones(&self) -> bool {
        self.core.policy().has_zones()
    }

    /// The lifetime of the files around a block: a zone holds files that are updated often.
    pub(crate) fn life_at(&self, block: u64) -> Lifetime {
        let (core, shape) = (&self.core, &self.core.shape);
        let kept = shape.locate(block >> self.cluster_bits).is_some_and(|(group, bit)| {
            let kept = core.policy().kept_for_hot(shape, group, u64::MAX);
            kept.is_some_and(|(from, to)| (from..to).contains(&bit))
        });
        if kept { Lifetime::Updated } else { Lifetime::Long }
    }

    /// The first group of the flex group for new hot files: that of the zone which is being filled.
    pub(crate) fn hot_flex_start(&self) -> u32 {
        let (shape, group) = (&self.core.shape, self.core.hot_group());
        let life = Lifetime::Updated;
        let wish = Wish { inode_group: group, regular: true, life, lblk: 0, near: None };
        let goal = self.core.policy().goal(shape, &wish);
        let at = shape.locate(goal).map_or(group, |(at, _)| at);
        at >> shape.flex_log << shape.flex_log
    }

    /// Zones for hot files, and bytes in them.
    pub(crate) fn zones(&self) -> (u32, u64) {
        let policy = self.core.policy();
        (policy.zone_count(), policy.kept_blocks() << self.core.shape.block_bits)
    }

    /// True if inodes of all files belong to the zone's flex group.
    pub(crate) fn gathers_inodes(&self) -> bool {
        self.core.policy().gathers_inodes()
    }

    /// Gives up the window kept for a file, when it is truncated, closed or evicted.
    pub(crate) fn drop_window(&self, ino: u32) {
        self.core.drop_window(ino);
    }

    /// Free blocks for the superblock's counter: those on disk, with delayed data still free.
    pub(crate) fn free_blocks(&self) -> u64 {
        let counts = self.core.reserve.counts();
        counts.free + counts.delayed
    }

    /// Numbers for `statfs`.
    pub(crate) fn counts(&self) -> SpaceCounts {
        self.core.reserve.counts()
    }
}
