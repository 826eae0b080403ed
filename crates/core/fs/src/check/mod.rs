//! Our own consistency check of a file system. It reads everything and changes nothing. Each pass
//! records what later passes need, for example the "marks": which clusters something uses.
//!
//! ```text
//!   0 super    superblock, descriptors, MMP                     -> geometry
//!   1 groups   the file system's own blocks                     -> marks
//!   2 inodes   every slot: checksum, mode, size, blocks, xattrs -> marks, inodes, directories
//!   3 system   journal, resize inode, orphans, values of xattrs
//!   4 dirs     every directory: blocks, index, entries          -> references, parents
//!   5 links    references and link counts, `..`, reachability
//!   6 bitmaps  marks against bitmaps, bitmaps against counters, quota
//! ```
//!
//! Promises
//! - Every finding has a name (`kinds.rs`), a place, and what a repair does. The verdict is that of
//!   `e2fsck -fn`; `cargo xtask run e2fsprogs-suite` compares them on e2fsprogs' own images, and
//!   names the exceptions.
//! - One superblock with a usable geometry is enough, the primary or a backup. So the check also
//!   reads file systems that a mount refuses. An unreadable block is a finding; the check goes on.
//! - Memory is needed for groups with something in use: one bit for each cluster and four bits for
//!   each inode. The four bits select one of the combinations of type, flags, link count and number
//!   of names that occur in the group. A group with too many of them takes two bytes for each
//!   inode. An inode with 15 or more links or names takes 16 bytes more. In addition there are
//!   about 80 bytes for each directory, 16 for each of its extents, 24 for each user with a quota,
//!   and the hashed names of one directory at a time. At most [`FINDINGS_MAX`] findings are kept;
//!   the others are only counted.
//! - No image makes it panic or loop: it enters each block once and limits the depth.
//!
//! Assumptions: nothing writes to the volume during the check. If it is mounted for writing, it was
//! written out first (`syncfs`). The check does not replay the log, so it does not see changes that
//! are only there. Not checked: contents of files, contents of the log, and the backup copies of
//! superblock and descriptors. Tested in `tests/it/check.rs` and `check_kinds.rs`, against images
//! that debugfs broke.

mod bitmaps;
mod blockmap;
mod blocks;
mod contents;
mod dirs;
mod disguised;
mod encryption;
mod entries;
mod geometry;
mod groups;
mod index;
mod inodes;
mod journal;
mod kinds;
mod known;
mod links;
mod marks;
mod mends;
mod orphans;
pub(crate) mod quota;
mod report;
mod sealed;
mod special;
mod superblock;
mod system;
mod xattrs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use encryption::Policies;
use kinds::Kind;
use known::KnownInodes;
use marks::{BlockMarks, Dir, Runs};
pub(crate) use mends::{Answers, Edit, inspect};
use quota::Usage;
use report::At;
pub use report::{CheckProgress, CheckReport, FINDINGS_MAX, Finding};
use superblock::Opened;
use syncline_device::{BlockDevice, DeviceError};
use syncline_jbd2::BufferCache;
use syncline_ondisk::dir::DirFormat;
use syncline_ondisk::group::GroupCsum;
use syncline_ondisk::{CompatFeatures, Geometry, IncompatFeatures, RoCompatFeatures, Superblock};
use xattrs::{ValueUse, XattrUse};

use crate::error::Result;

/// Memory of the cache of a check without a volume, but for the blocks that are read ahead.
const CACHE_BYTES: usize = 512 << 10;
/// Twice as many blocks as are read ahead at once.
const CACHE_BLOCKS_MIN: usize = 128;
/// Unreadable blocks that are noted one by one.
const UNREADABLE_MAX: u32 = 100;

/// Ends a check before its end.
enum Stop {
    /// Its caller has stopped it.
    Asked,
}

type Step<T = ()> = std::result::Result<T, Stop>;

/// A check under way.
struct Checker<'a> {
    buffers: Arc<BufferCache>,
    sb: Superblock,
    geo: Geometry,
    /// log2 of the blocks of a cluster (`bigalloc`).
    cluster_bits: u32,
    /// Group whose descriptors are read: 0 but for a backup superblock.
    backup: u32,
    csum: GroupCsum,
    format: DirFormat,
    /// The volume is mounted for writing: its journal and its orphans are in use.
    live: bool,
    report: CheckReport,
    progress: &'a mut dyn FnMut(CheckProgress) -> bool,
    unreadable: u32,
    blocks: BlockMarks,
    /// Blocks of the file system itself.
    metadata: BlockMarks,
    /// Blocks that cannot be used.
    bad: BlockMarks,
    inodes: KnownInodes,
    /// Inodes of each group that were ever used.
    scanned: Vec<u32>,
    dirs: BTreeMap<u32, Dir>,
    /// Further names of directories: the directory, where the name is, and how it is shown.
    second_names: Vec<(u32, u32, String)>,
    /// Blocks of the journal, of the orphan file, of quota files and of values of attributes.
    files: BTreeMap<u32, (syncline_ondisk::Inode, Runs)>,
    xattrs: BTreeMap<u64, XattrUse>,
    values: BTreeMap<u32, ValueUse>,
    policies: Policies,
    /// Groups whose inode table has blocks of another structure: it is not read.
    overlapping: BTreeSet<u32>,
    usage: Usage,
    orphans: BTreeSet<u32>,
    /// Files with fs-verity.
    sealed: Vec<u32>,
}

impl crate::Volume {
    /// Checks the whole volume. `progress` is called about once per group and per directory; the
    /// check stops if it returns false.
    ///
    /// # Errors
    /// [`crate::FsError::Unsupported`] for features that cannot be checked. Broken rules and blocks
    /// that cannot be read are findings, not errors.
    pub fn check(&self, progress: &mut dyn FnMut(CheckProgress) -> bool) -> Result<CheckReport> {
        let sb = self.0.sb.lock().clone();
        let mut report = CheckReport::default();
        let live = self.0.journal.get().is_some();
        let buffers = Arc::clone(&self.0.buffers);
        let device_bytes = self.0.dev.geometry().size_bytes;
        let Some(opened) = Opened::of_volume(sb, device_bytes, &mut report) else {
            return Ok(report);
        };
        let (mut report, sealed) = run(buffers, opened, live, report, progress);
        sealed::check_files(self, &sealed, &mut report, progress)?;
        Ok(report)
    }
}

/// Checks the file system on `dev`, which need not be one that can be mounted. `progress` as for
/// [`crate::Volume::check`].
///
/// # Errors
/// I/O errors of the superblock; [`crate::FsError::Unsupported`] for features that cannot be
/// checked.
pub fn check_device(
    dev: &Arc<dyn BlockDevice>,
    progress: &mut dyn FnMut(CheckProgress) -> bool,
) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let Some(opened) = Opened::of_device(&**dev, &mut report)? else { return Ok(report) };
    let buffers = cache(dev, opened.geo.block_size);
    let (mut report, sealed) = run(buffers, opened, false, report, progress);
    sealed::check_device_files(dev, &sealed, &mut report, progress)?;
    Ok(report)
}

fn cache(dev: &Arc<dyn BlockDevice>, block_size: usize) -> Arc<BufferCache> {
    let blocks = (CACHE_BYTES / block_size).max(CACHE_BLOCKS_MIN);
    BufferCache::new(Arc::clone(dev), block_size, blocks)
}

/// Returns the report and the files with fs-verity.
fn run(
    buffers: Arc<BufferCache>,
    opened: Opened,
    live: bool,
    report: CheckReport,
    progress: &mut dyn FnMut(CheckProgress) -> bool,
) -> (CheckReport, Vec<u32>) {
    let mut checker = Checker::new(buffers, opened, live, report, progress);
    if let Err(Stop::Asked) = checker.run() {
        checker.report.stopped = true;
    }
    (checker.report, checker.sealed)
}

impl<'a> Checker<'a> {
    fn new(
        buffers: Arc<BufferCache>,
        opened: Opened,
        live: bool,
        report: CheckReport,
        progress: &'a mut dyn FnMut(CheckProgress) -> bool,
    ) -> Self {
        let Opened { sb, geo, cluster_bits, backup } = opened;
        Checker {
            csum: GroupCsum::new(&sb),
            format: DirFormat::new(&sb),
            blocks: BlockMarks::new(&geo, cluster_bits),
            metadata: BlockMarks::new(&geo, 0),
            bad: BlockMarks::new(&geo, 0),
            usage: Usage::new(&sb),
            buffers,
            sb,
            geo,
            cluster_bits,
            backup,
            live,
            report,
            progress,
            unreadable: 0,
            inodes: KnownInodes::default(),
            scanned: Vec::new(),
            dirs: BTreeMap::new(),
            second_names: Vec::new(),
            files: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            values: BTreeMap::new(),
            policies: Policies::default(),
            overlapping: BTreeSet::new(),
            orphans: BTreeSet::new(),
            sealed: Vec::new(),
        }
    }
}

impl Checker<'_> {
    fn run(&mut self) -> Step {
        self.check_mmp()?;
        self.check_quota_inodes();
        self.check_descriptors()?;
        self.mark_groups()?;
        self.follow_orphan_list()?;
        self.check_inodes()?;
        self.check_journal()?;
        self.check_resize_inode()?;
        self.check_orphan_file()?;
        self.check_values();
        self.check_dirs()?;
        self.check_links()?;
        self.check_xattr_users();
        self.check_bitmaps()?;
        self.check_quota()
    }

    /// Notes a broken rule.
    fn note(&mut self, kind: Kind, at: At, what: impl Into<String>) {
        self.report.note(kind, at, what.into());
    }

    /// A block; `None` if it cannot be read, which is a finding.
    fn read(&mut self, block: u64) -> Step<Option<Arc<[u8]>>> {
        match self.buffers.read(block) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(err) => {
                self.note_unreadable(block, &err);
                Ok(None)
            }
        }
    }

    fn note_unreadable(&mut self, block: u64, err: &DeviceError) {
        self.unreadable += 1;
        if self.unreadable <= UNREADABLE_MAX {
            self.note(kinds::UNREADABLE, At::block(block), format!("cannot be read: {err}"));
        }
    }

    fn tick(&mut self, stage: &'static str, done: u64, total: u64) -> Step {
        let go_on = (self.progress)(CheckProgress { stage, done, total });
        if go_on { Ok(()) } else { Err(Stop::Asked) }
    }

    fn compat(&self, feature: CompatFeatures) -> bool {
        self.sb.s_feature_compat.contains(feature)
    }

    fn incompat(&self, feature: IncompatFeatures) -> bool {
        self.sb.s_feature_incompat.contains(feature)
    }

    fn ro_compat(&self, feature: RoCompatFeatures) -> bool {
        self.sb.s_feature_ro_compat.contains(feature)
    }

    /// True if a block is one that an inode may use.
    fn in_volume(&self, block: u64) -> bool {
        block > 0 && (u64::from(self.geo.first_data_block)..self.geo.blocks_count).contains(&block)
    }

    /// Marks blocks as used by an inode; `count` clusters are new to it. False if another has them.
    fn mark(&mut self, ino: u32, start: u64, len: u64) -> bool {
        let bits = self.cluster_bits;
        let first = start >> bits;
        let end = start.saturating_add(len).div_ceil(1 << bits);
        self.report.blocks_used = self.report.blocks_used.saturating_add((end - first) << bits);
        let Some((cluster, count)) = self.blocks.mark(first, end - first) else { return true };
        if self.ro_compat(RoCompatFeatures::SHARED_BLOCKS) {
            return true;
        }
        let what = format!("{count} blocks from here are used twice");
        self.note(kinds::BLOCK_TWICE, At::ino(ino).in_block(cluster << bits), what);
        false
    }
}
