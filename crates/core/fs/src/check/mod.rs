//! Our own consistency check of a volume: reads everything, changes nothing.
//!
//! ```text
//!   1 groups   descriptors; the file system's own blocks        -> marks
//!   2 inodes   every slot: checksum, mode, size, blocks, xattrs -> marks, inodes, directories
//!   3 dirs     every directory: blocks, index, entries          -> references, parents
//!   4 links    references and link counts, `..`, reachability, orphans
//!   5 bitmaps  marks against bitmaps, bitmaps against counters
//! ```
//!
//! Promises
//! - Every finding names an inode or a block, and is a breach of a rule that e2fsck knows too.
//! - Memory: one bit a block and 12 bytes an inode for groups in use, some 80 bytes a directory,
//!   one directory's names as hashes; at most [`FINDINGS_MAX`] findings are kept, the rest counted.
//! - No image makes it panic or go round: a block is walked into once, levels are bounded.
//!
//! Assumptions: the volume is quiet, and written out (`syncfs`) if it is mounted for writing. What
//! it does not judge: the copies of the superblock and descriptors, file contents, the journal's
//! inside, directories with inline data (refused). It is a reader of our own and no replacement for
//! the stock judge: `e2fsck -fn`. Tested in `tests/it/check.rs`, against images that debugfs broke.

mod bitmaps;
mod blocks;
mod dirs;
mod index;
mod inodes;
mod links;
mod marks;
mod orphans;
mod xattrs;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use marks::{BlockMarks, Dir, KnownInodes};
use syncline_ondisk::{OndiskError, RoCompatFeatures, Superblock};
use xattrs::XattrUse;

use crate::error::{FsError, Result};
use crate::inode::Inodes;

/// Findings that a report keeps.
pub const FINDINGS_MAX: usize = 1000;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Inode number, where one is involved.
    pub inode: Option<u32>,
    /// Block number, where one is involved.
    pub block: Option<u64>,
    /// Description of the error.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.inode, self.block) {
            (Some(ino), Some(block)) => write!(f, "inode {ino}, block {block}: {}", self.what),
            (Some(ino), None) => write!(f, "inode {ino}: {}", self.what),
            (None, Some(block)) => write!(f, "block {block}: {}", self.what),
            (None, None) => f.write_str(&self.what),
        }
    }
}

/// Progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckProgress {
    /// Current pass: `groups`, `inodes`, `directories`, `links`, `bitmaps`.
    pub stage: &'static str,
    /// Steps of the stage that are done.
    pub done: u64,
    /// Steps of the stage.
    pub total: u64,
}

/// Results of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Broken rules, in the order they were met, at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Findings that were not kept.
    pub more: u64,
    /// True if the check was stopped before its end.
    pub stopped: bool,
    /// Inodes in use that are not directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Blocks that something uses.
    pub blocks_used: u64,
    /// Inodes on the orphan list or in the orphan file, to be finished at the next mount.
    pub orphans: u64,
}

impl CheckReport {
    /// True if the check reached its end and found nothing.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && !self.stopped
    }
}

/// Ends a check that its caller has stopped.
enum Stop {
    Asked,
    Error(FsError),
}

impl<E: Into<FsError>> From<E> for Stop {
    fn from(err: E) -> Stop {
        Stop::Error(err.into())
    }
}

type Step<T = ()> = std::result::Result<T, Stop>;

/// A check under way.
struct Checker<'a> {
    vol: &'a Arc<Inodes>,
    sb: Superblock,
    report: CheckReport,
    progress: &'a mut dyn FnMut(CheckProgress) -> bool,
    blocks: BlockMarks,
    /// Blocks of file data, of which several files may have one (`shared_blocks`).
    shared: BlockMarks,
    inodes: KnownInodes,
    dirs: BTreeMap<u32, Dir>,
    xattrs: BTreeMap<u64, XattrUse>,
    values: BTreeMap<u32, XattrUse>,
    orphans: BTreeSet<u32>,
}

impl crate::Volume {
    /// Checks the whole volume. `progress` is called about once per group and per directory; the
    /// check stops if it returns false.
    ///
    /// # Errors
    /// I/O; [`FsError::Unsupported`] for a volume that cannot be checked. Broken rules are
    /// findings, not errors.
    pub fn check(&self, progress: &mut dyn FnMut(CheckProgress) -> bool) -> Result<CheckReport> {
        let sb = self.0.sb.lock().clone();
        let mut checker = Checker {
            vol: &self.0,
            sb,
            report: CheckReport::default(),
            progress,
            blocks: BlockMarks::default(),
            shared: BlockMarks::default(),
            inodes: KnownInodes::default(),
            dirs: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            values: BTreeMap::new(),
            orphans: BTreeSet::new(),
        };
        match checker.run() {
            Ok(()) => {}
            Err(Stop::Asked) => checker.report.stopped = true,
            Err(Stop::Error(err)) => return Err(err),
        }
        Ok(checker.report)
    }
}
impl Checker<'_> {
    fn run(&mut self) -> Step {
        self.mark_groups()?;
        self.find_orphans()?;
        self.check_inodes()?;
        self.check_dirs()?;
        self.check_links()?;
        self.check_xattr_users();
        self.check_bitmaps()
    }

    /// Notes a broken rule.
    fn note(&mut self, inode: Option<u32>, block: Option<u64>, what: impl Into<String>) {
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(Finding { inode, block, what: what.into() });
        } else {
            self.report.more += 1;
        }
    }

    /// Notes the refusal of a decoder.
    fn note_bad(&mut self, err: OndiskError, inode: Option<u32>, block: Option<u64>) -> Step {
        self.keep::<()>(Err(err.into()), inode, block).map(|_| ())
    }

    /// Turns corruption into a finding and `None`; other errors end the check.
    fn keep<T>(
        &mut self,
        result: Result<T>,
        inode: Option<u32>,
        block: Option<u64>,
    ) -> Step<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(FsError::Corrupt { inode: ino, block: blk, offset, what }) => {
                let at = offset.map_or(String::new(), |offset| format!(" (byte {offset})"));
                self.note(ino.or(inode), blk.or(block), format!("{what}{at}"));
                Ok(None)
            }
            Err(other) => Err(Stop::Error(other)),
        }
    }

    fn tick(&mut self, stage: &'static str, done: u64, total: u64) -> Step {
        let go_on = (self.progress)(CheckProgress { stage, done, total });
        if go_on { Ok(()) } else { Err(Stop::Asked) }
    }

    /// As [`Checker::mark`], of blocks of file data, which files may share (`shared_blocks`).
    fn mark_data(&mut self, ino: u32, start: u64, len: u64) {
        if !self.sb.s_feature_ro_compat.contains(RoCompatFeatures::SHARED_BLOCKS) {
            self.mark(ino, start, len);
            return;
        }
        match self.shared.mark(&self.vol.geo, start, len) {
            None => drop(self.mark(ino, start, len)),
            Some((_, count)) if count >= len => {}
            Some(_) => {
                // Those that are new: marked as shared by now, and not yet as used.
                for block in start..start.saturating_add(len) {
                    if !self.blocks.is_marked(&self.vol.geo, block) {
                        self.mark(ino, block, 1);
                    }
                }
            }
        }
    }

    /// Marks blocks as used; `ino` 0 is the file system itself. The range lies in the volume.
    fn mark(&mut self, ino: u32, start: u64, len: u64) -> bool {
        self.report.blocks_used = self.report.blocks_used.saturating_add(len);
        let Some((block, count)) = self.blocks.mark(&self.vol.geo, start, len) else { return true };
        let inode = (ino != 0).then_some(ino);
        let what = format!("{count} blocks from here are used twice");
        self.note(inode, Some(block), what);
        false
    }
}
