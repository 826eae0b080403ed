//! Edits that mend what a check has found.
//!
//! ```text
//!   check ── findings ── stage 1 ── no edit ── stage 2 ── no edit ── ... ── bitmaps
//!                           └─ edits ─────────────┴───────── check again
//!
//!   0 unreadable  zeros for what cannot be read
//!   1 superblock  features, the primary from a backup      6 dirs     entries, blocks, indexes
//!   2 groups      descriptors, misplaced bitmaps, tables    7 links    lost+found, `..`
//!   3 special     reserved inodes, root, orphans            8 derived  bitmaps, counts, quota
//!   4 inodes      fields, attributes, maps                  9 backups  totals, and all copies
//!   5 shared      blocks with two owners
//! ```
//!
//! Promises
//! - The edits of one call are those of the first stage that has any. The caller checks again
//!   before the next, so a stage relies on what the ones before it mend.
//! - New blocks are taken only if every structure that says which blocks are in use was read, and
//!   only where neither the check nor the old bitmap says that a block is in use.
//! - Bitmaps, counters and link counts are rewritten only if every other rule holds: then all that
//!   is in use was seen.
//! - A block of the map that another inode or the file system has, too, is not written to.
//!
//! Tested in `tests/it/repair.rs`.

mod backups;
mod bad_blocks;
mod claims;
mod derived;
mod dirs;
mod entries;
mod groups;
mod grow;
mod inodes;
mod journal;
mod links;
mod maps;
mod orphans;
mod quota;
mod resize;
mod shared;
mod space;
mod special;
mod superblock;
mod xattrs;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use syncline_device::BlockDevice;
use syncline_ondisk::bytes::{is_zero, le32, put_bytes, put_le16, put_le32};
use syncline_ondisk::checksum;
use syncline_ondisk::inode::{GOOD_OLD_INODE_SIZE, Inode};

use super::inodes::decode;
use super::kinds::{self as k, Kind};
use super::{At, CheckProgress, CheckReport, Checker, Finding, Opened, Step, Stop, cache};
use crate::error::Result;

/// Findings that a repair keeps beyond those of a check.
const SPARE_FINDINGS: usize = 1 << 16;

/// New bytes at a place of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Checks `dev`, and returns edits that mend some of the findings; none if nothing can be mended.
///
/// # Errors
/// As [`super::check_device`].
pub(crate) fn inspect(
    dev: &Arc<dyn BlockDevice>,
    progress: &mut dyn FnMut(CheckProgress) -> bool,
    answers: &mut Answers<'_>,
) -> Result<(CheckReport, Vec<Edit>)> {
    let mut report = CheckReport { spare: SPARE_FINDINGS, ..CheckReport::default() };
    let Some(opened) = Opened::of_device(&**dev, &mut report)? else {
        return Ok((report, Vec::new()));
    };
    let buffers = cache(dev, opened.geo.block_size);
    let mut checker = Checker::new(buffers, opened, false, report, progress);
    checker.usage.is_strict = answers.has_mended;
    let waits = checker.report.unreplayed && !answers.mends_journal;
    let edits = checker.run().and_then(|()| {
        if let Some(why) = answers.log_lost.as_ref().filter(|_| checker.report.unreplayed) {
            let what = format!("the log cannot be replayed: {why}");
            checker.note(k::JOURNAL_SUPER, At::ino(checker.sb.s_journal_inum), what);
        }
        if waits {
            Ok(Vec::new())
        } else {
            Mender::new(&mut checker, answers).mends(answers.has_mended)
        }
    });
    let stopped = matches!(edits, Err(Stop::Asked));
    let mut edits = edits.unwrap_or_else(|Stop::Asked| Vec::new());
    // Blocks past the end of a device that was cut cannot be read either.
    let size_bytes = dev.geometry().size_bytes;
    edits.retain(|edit| edit.offset + edit.bytes.len() as u64 <= size_bytes);
    let mut report = checker.report;
    report.stopped = stopped;
    Ok((report, edits))
}

/// The choice of findings to mend: each is asked about once.
pub(crate) struct Answers<'a> {
    ask: &'a mut dyn FnMut(&Finding) -> bool,
    given: BTreeMap<String, bool>,
    /// The log cannot be replayed: the journal is mended first. Else nothing is before the replay.
    pub(crate) mends_journal: bool,
    /// Why it could not be replayed after that: it is dropped.
    pub(crate) log_lost: Option<String>,
    /// A mend was made before.
    pub(crate) has_mended: bool,
}

impl<'a> Answers<'a> {
    pub(crate) fn new(ask: &'a mut dyn FnMut(&Finding) -> bool) -> Self {
        Self {
            ask,
            given: BTreeMap::new(),
            mends_journal: false,
            log_lost: None,
            has_mended: false,
        }
    }

    fn allows(&mut self, finding: &Finding) -> bool {
        let key = format!("{} {finding}", finding.name);
        *self.given.entry(key).or_insert_with(|| (self.ask)(finding))
    }
}

/// True if a finding is of one of these kinds.
fn is_of(finding: &Finding, kinds: &[Kind]) -> bool {
    kinds.iter().any(|kind| kind.name == finding.name)
}

/// The edits of one round.
struct Mender<'m, 'c> {
    c: &'m mut Checker<'c>,
    /// Findings to be mended, and others.
    errors: Vec<Finding>,
    refused: Vec<Finding>,
    /// Notices to be mended.
    notices: Vec<Finding>,
    /// The superblock forgets that errors were found, once there are none.
    forgets_errors: bool,
    /// Inodes that change.
    slots: BTreeMap<u32, Vec<u8>>,
    /// Blocks that change.
    blocks: BTreeMap<u64, Vec<u8>>,
    /// Group in which the last free block was found.
    cursor: u32,
}

impl<'m, 'c> Mender<'m, 'c> {
    fn new(c: &'m mut Checker<'c>, answers: &mut Answers<'_>) -> Self {
        let errors = c.report.findings.iter().filter(|finding| finding.is_error).cloned();
        let errors: Vec<Finding> = errors.collect();
        // What follows from the rest is asked about when nothing else is left.
        let is_last = errors.iter().all(|finding| is_of(finding, &derived::DERIVED));
        let (errors, refused) = errors.into_iter().partition(|finding| {
            !is_last && is_of(finding, &derived::DERIVED) || answers.allows(finding)
        });
        let notices = c.report.findings.iter().filter(|found| is_of(found, &superblock::NOTICES));
        let notices = notices.filter(|notice| answers.allows(notice)).cloned().collect();
        Self {
            c,
            errors,
            refused,
            notices,
            forgets_errors: false,
            slots: BTreeMap::new(),
            blocks: BTreeMap::new(),
            cursor: 0,
        }
    }

    fn mends(&mut self, has_mended: bool) -> Step<Vec<Edit>> {
        // What cannot be read cannot be judged.
        if self.lingers(&[k::UNREADABLE]) {
            return Ok(self.mend_unreadable());
        }
        if self.lingers(&[k::SUPERBLOCK_FIELD]) && self.c.backup == 0 {
            // What the rest is judged by is wrong.
            self.mend_super_fields()?;
            return self.take_edits();
        }
        if self.mend_notices()? {
            return self.take_edits();
        }
        if self.errors.is_empty() {
            if (has_mended || self.forgets_errors) && self.refused.is_empty() {
                self.mend_totals()?;
                self.mend_backups()?;
            }
            return self.take_edits();
        }
        let stages = [
            Self::mend_superblock,
            Self::mend_groups,
            Self::mend_journal,
            Self::mend_special,
            Self::mend_inodes,
            Self::mend_shared,
            Self::mend_dirs,
            Self::mend_links,
            Self::mend_derived,
        ];
        // Until the log was replayed only what keeps it from that is mended.
        let count = if self.c.report.unreplayed { 3 } else { stages.len() };
        for (nr, stage) in stages.into_iter().take(count).enumerate() {
            stage(self)?;
            let edits = self.take_edits()?;
            if !edits.is_empty() {
                return Ok(edits);
            }
            // Without all tables nothing else is known.
            let hidden = [k::INODE_TABLE_PLACE, k::TABLE_CONFLICT];
            if self.c.backup > 0 || nr > 0 && self.lingers(&hidden) {
                break;
            }
        }
        Ok(Vec::new())
    }

    /// Zeros for blocks that cannot be read, as e2fsck forces: what they held is then mended.
    fn mend_unreadable(&self) -> Vec<Edit> {
        let geo = &self.c.geo;
        let unreadable = self.found(&[k::UNREADABLE]).into_iter().filter_map(|found| found.block);
        unreadable
            .map(|block| Edit { offset: block << geo.block_bits, bytes: vec![0; geo.block_size] })
            .collect()
    }

    /// Findings of these kinds.
    fn found(&self, kinds: &[Kind]) -> Vec<Finding> {
        self.errors.iter().filter(|finding| is_of(finding, kinds)).cloned().collect()
    }

    fn has(&self, kinds: &[Kind]) -> bool {
        self.errors.iter().any(|finding| is_of(finding, kinds))
    }

    /// True if there are such findings, to be mended or not.
    fn lingers(&self, kinds: &[Kind]) -> bool {
        self.has(kinds) || self.refused.iter().any(|finding| is_of(finding, kinds))
    }

    /// Inodes with findings of these kinds, ascending.
    fn inodes_with(&self, kinds: &[Kind]) -> Vec<u32> {
        let found = self.errors.iter().filter(|finding| is_of(finding, kinds));
        let mut inodes: Vec<u32> = found.filter_map(|finding| finding.inode).collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    /// The bytes of an inode, to be changed; `None` if it has no place.
    fn slot(&mut self, ino: u32) -> Step<Option<&mut Vec<u8>>> {
        Ok(match self.slots.entry(ino) {
            Entry::Occupied(slot) => Some(slot.into_mut()),
            Entry::Vacant(place) => {
                let slot = self.c.read_slot(ino)?;
                slot.filter(|slot| slot.len() >= GOOD_OLD_INODE_SIZE).map(|slot| place.insert(slot))
            }
        })
    }

    /// The fields of an inode as they will be.
    fn raw(&mut self, ino: u32) -> Step<Option<Inode>> {
        Ok(self.slot(ino)?.map(|slot| decode(slot).0))
    }

    /// Changes an inode, if it has a place.
    fn change(&mut self, ino: u32, change: impl FnOnce(&mut [u8])) -> Step {
        if let Some(slot) = self.slot(ino)? {
            change(slot);
        }
        Ok(())
    }

    /// The bytes of a block as they will be.
    fn view(&mut self, block: u64) -> Step<Option<Vec<u8>>> {
        if let Some(bytes) = self.blocks.get(&block) {
            return Ok(Some(bytes.clone()));
        }
        Ok(self.c.read(block)?.map(|bytes| bytes.to_vec()))
    }

    /// Writes a block.
    fn put(&mut self, block: u64, bytes: Vec<u8>) {
        self.blocks.insert(block, bytes);
    }

    /// Changes bytes of a block, if it can be read.
    fn patch(&mut self, block: u64, at: usize, new: &[u8]) -> Step {
        if let Some(mut bytes) = self.view(block)? {
            put_bytes(&mut bytes, at, new);
            self.put(block, bytes);
        }
        Ok(())
    }

    /// Seed of the checksums of what an inode has; `None` without them.
    fn seed(&self, ino: u32, generation: u32) -> Option<u32> {
        let seed = self.c.sb.csum_seed();
        self.c.geo.metadata_csum.then(|| checksum::inode_seed(seed, ino, generation))
    }

    /// A deletion time. No clock is asked: it is the time of the last write, and no inode number.
    fn deletion_time(&self) -> u32 {
        let written = u32::try_from(self.c.sb.s_wtime).unwrap_or(u32::MAX);
        written.max(self.c.geo.inodes_count)
    }

    /// Clears an inode: its blocks are free, and the check finds what named it.
    fn clear_inode(&mut self, ino: u32) -> Step {
        let (dtime, is_plain) = (self.deletion_time(), ino >= self.c.geo.first_ino);
        self.change(ino, |slot| {
            if ino == super::special::BAD_INO {
                return slot.fill(0);
            }
            put_le32(slot, 0x14, dtime);
            put_le16(slot, 0x1a, 0);
            put_le32(slot, 0x20, 0);
            if !is_plain {
                put_bytes(slot, 0x28, &[0; 60]);
            }
        })
    }

    /// Edits of the changed blocks and inodes, each inode with its checksum.
    fn take_edits(&mut self) -> Step<Vec<Edit>> {
        for (ino, mut bytes) in std::mem::take(&mut self.slots) {
            let Some((block, offset)) = self.c.slot_place(ino)? else { continue };
            let is_free = is_zero(&bytes);
            if let Some(seed) = self.seed(ino, le32(&bytes, 0x64)).filter(|_| !is_free) {
                Inode::set_checksum(&mut bytes, seed);
            }
            self.patch(block, offset, &bytes)?;
        }
        let mut edits = Vec::new();
        for (block, bytes) in std::mem::take(&mut self.blocks) {
            if self.c.read(block)?.is_some_and(|now| *now != *bytes) {
                edits.push(Edit { offset: block << self.c.geo.block_bits, bytes });
            }
        }
        Ok(edits)
    }
}
