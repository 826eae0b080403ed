//! Edits that mend what a check has found.
//!
//! ```text
//!   1 in place   checksums of inodes and descriptors, deletion times, block counts
//!   2 derived    link counts, bitmaps, counters: only if nothing else is wrong
//! ```
//!
//! Promises
//! - Bitmaps, counters and link counts are rewritten only if every other rule holds: then all that
//!   is in use was seen.
//! - An inode with a finding that is not mended here keeps its bytes, and its wrong checksum.
//! - The edits of one call are of one of the two steps; the caller checks again before the next.
//!
//! Tested in `tests/it/repair.rs`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use syncline_device::BlockDevice;
use syncline_jbd2::BufferCache;
use syncline_ondisk::bytes::{le16, le32, put_le16, put_le32};
use syncline_ondisk::group::{
    BLOCK_UNINIT, GroupDesc, INODE_UNINIT, init_block_bitmap, init_inode_bitmap,
};
use syncline_ondisk::inode::{GOOD_OLD_INODE_SIZE, Inode};
use syncline_ondisk::superblock::ROOT_INO;
use syncline_ondisk::{RoCompatFeatures, bitmap, checksum};

use super::kinds::Kind;
use super::links::LINKS_MAX;
use super::{CACHE_BYTES, CheckProgress, CheckReport, Checker, Finding, Opened, Step, Stop, kinds};
use crate::error::Result;

/// Mended in the inode itself.
const OF_INODES: [Kind; 4] =
    [kinds::INODE_CSUM, kinds::DTIME_SET, kinds::DTIME_MISSING, kinds::BLOCKS];
/// Rewritten from what was found in use.
const DERIVED: [Kind; 9] = [
    kinds::LINKS,
    kinds::BLOCK_BITMAP,
    kinds::BLOCK_BITMAP_CSUM,
    kinds::INODE_BITMAP,
    kinds::INODE_BITMAP_CSUM,
    kinds::BITMAP_PADDING,
    kinds::FREE_BLOCKS,
    kinds::FREE_INODES,
    kinds::DIR_COUNT,
];

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
) -> Result<(CheckReport, Vec<Edit>)> {
    let mut report = CheckReport::default();
    let Some(opened) = Opened::of_device(&**dev, &mut report)? else {
        return Ok((report, Vec::new()));
    };
    let block_size = opened.geo.block_size;
    let buffers = BufferCache::new(Arc::clone(dev), block_size, CACHE_BYTES / block_size);
    let mut checker = Checker::new(buffers, opened, false, report, progress);
    let edits = checker.run().and_then(|()| checker.mends());
    let stopped = matches!(edits, Err(Stop::Asked));
    let mut report = checker.report;
    report.stopped = stopped;
    Ok((report, edits.unwrap_or_else(|Stop::Asked| Vec::new())))
}

fn is_of(kinds: &[Kind], finding: &Finding) -> bool {
    kinds.iter().any(|kind| kind.name == finding.name)
}

impl Checker<'_> {
    fn mends(&mut self) -> Step<Vec<Edit>> {
        // What a backup says of groups is old; what was not kept cannot be judged.
        let is_judged = self.report.more == 0 && self.unreadable == 0;
        if self.backup > 0 || !is_judged || self.has_bad_metadata() {
            return Ok(Vec::new());
        }
        let errors: Vec<Finding> =
            self.report.findings.iter().filter(|finding| finding.is_error).cloned().collect();
        let mut edits = self.inode_mends(&errors)?;
        for finding in errors.iter().filter(|finding| is_of(&[kinds::DESC_CSUM], finding)) {
            if let Some(group) = finding.group {
                edits.extend(self.desc_mend(group)?);
            }
        }
        let derived = !errors.is_empty() && errors.iter().all(|finding| is_of(&DERIVED, finding));
        if edits.is_empty() && derived {
            return self.derived_mends(&errors);
        }
        Ok(edits)
    }

    /// True if a block of the file system itself is among those that cannot be used.
    fn has_bad_metadata(&self) -> bool {
        (0..self.geo.group_count).any(|group| {
            let marks = self.bad.group(group).zip(self.metadata.group(group));
            marks.is_some_and(|(bad, own)| bad.iter().zip(own).any(|(bad, own)| bad & own != 0))
        })
    }

    /// Edits of inodes of which every finding can be mended in the inode.
    fn inode_mends(&mut self, errors: &[Finding]) -> Step<Vec<Edit>> {
        let others: BTreeSet<u32> = errors
            .iter()
            .filter(|finding| !is_of(&OF_INODES, finding) && !is_of(&DERIVED, finding))
            .filter_map(|finding| finding.inode)
            .collect();
        let mut slots = BTreeMap::new();
        for finding in errors.iter().filter(|finding| is_of(&OF_INODES, finding)) {
            // A reserved inode with a wrong count may be broken otherwise.
            let is_plain = |ino: &u32| *ino >= self.geo.first_ino || *ino == ROOT_INO;
            let ino = finding.inode.filter(is_plain);
            let Some(ino) = ino.filter(|ino| !others.contains(ino)) else { continue };
            self.mend_inode(ino, &mut slots, |checker, slot| checker.mend_slot(finding, slot))?;
        }
        self.slot_edits(slots)
    }

    fn mend_inode(
        &mut self,
        ino: u32,
        slots: &mut BTreeMap<u32, Vec<u8>>,
        mend: impl FnOnce(&Self, &mut [u8]),
    ) -> Step {
        let slot = match slots.entry(ino) {
            Entry::Occupied(slot) => slot.into_mut(),
            Entry::Vacant(place) => {
                let Some(slot) = self.read_slot(ino)? else { return Ok(()) };
                place.insert(slot)
            }
        };
        if slot.len() >= GOOD_OLD_INODE_SIZE {
            mend(self, slot);
        }
        Ok(())
    }

    fn mend_slot(&self, finding: &Finding, slot: &mut [u8]) {
        if finding.name == kinds::DTIME_SET.name {
            put_le32(slot, 0x14, 0);
        } else if finding.name == kinds::DTIME_MISSING.name {
            // A smaller number would be a link of the orphan list.
            let written = u32::try_from(self.sb.s_wtime).unwrap_or(u32::MAX);
            put_le32(slot, 0x14, written.max(self.geo.inodes_count));
        } else if let Some(right) = finding.right {
            put_le32(slot, 0x1c, (right & 0xffff_ffff) as u32);
            if self.ro_compat(RoCompatFeatures::HUGE_FILE) {
                put_le16(slot, 0x74, (right >> 32 & 0xffff) as u16);
            }
        }
    }

    /// Edits that write inodes, each with its checksum.
    fn slot_edits(&mut self, slots: BTreeMap<u32, Vec<u8>>) -> Step<Vec<Edit>> {
        let mut edits = Vec::new();
        for (ino, mut bytes) in slots {
            let Some((block, offset)) = self.slot_place(ino)? else { continue };
            if self.geo.metadata_csum {
                let seed = checksum::inode_seed(self.sb.csum_seed(), ino, le32(&bytes, 0x64));
                let crc = Inode::checksum_of(&bytes, seed);
                put_le16(&mut bytes, 0x7c, (crc & 0xffff) as u16);
                if bytes.len() > GOOD_OLD_INODE_SIZE && le16(&bytes, 0x80) >= 4 {
                    put_le16(&mut bytes, 0x82, (crc >> 16) as u16);
                }
            }
            self.push(&mut edits, block, offset, bytes)?;
        }
        Ok(edits)
    }

    /// Adds an edit, if it changes a byte.
    fn push(&mut self, edits: &mut Vec<Edit>, block: u64, at: usize, bytes: Vec<u8>) -> Step {
        let now = self.read(block)?;
        if now.is_some_and(|now| now.get(at..at + bytes.len()) != Some(&*bytes)) {
            edits.push(Edit { offset: (block << self.geo.block_bits) + at as u64, bytes });
        }
        Ok(())
    }

    /// A descriptor with a wrong checksum: what it says of unused parts is not believed.
    fn desc_mend(&mut self, group: u32) -> Step<Vec<Edit>> {
        let mut edits = Vec::new();
        if let Some(mut desc) = self.desc(group)? {
            desc.bg_flags &= !(BLOCK_UNINIT | INODE_UNINIT);
            desc.bg_itable_unused = 0;
            self.push_desc(&mut edits, group, &desc)?;
        }
        Ok(edits)
    }

    fn push_desc(&mut self, edits: &mut Vec<Edit>, group: u32, desc: &GroupDesc) -> Step {
        let (nr, offset) = self.geo.desc_slot(group);
        let Some((_, mut bytes)) = self.desc_bytes(group)? else { return Ok(()) };
        desc.encode_into(&mut bytes, group, &self.csum);
        self.push(edits, self.desc_block(nr), offset, bytes)
    }

    /// Link counts, bitmaps, counters.
    fn derived_mends(&mut self, errors: &[Finding]) -> Step<Vec<Edit>> {
        let mut slots = BTreeMap::new();
        for finding in errors.iter().filter(|finding| is_of(&[kinds::LINKS], finding)) {
            let right = finding.right.and_then(|right| u16::try_from(right).ok());
            let (Some(ino), Some(links)) = (finding.inode, right) else { continue };
            if (1..LINKS_MAX).contains(&links) {
                self.mend_inode(ino, &mut slots, |_, slot| put_le16(slot, 0x1a, links))?;
            }
        }
        let mut edits = self.slot_edits(slots)?;
        for group in 0..self.geo.group_count {
            let Some(mut desc) = self.desc(group)? else { continue };
            self.mend_block_bitmap(group, &mut desc, &mut edits)?;
            self.mend_inode_bitmap(group, &mut desc, &mut edits)?;
            self.push_desc(&mut edits, group, &desc)?;
        }
        Ok(edits)
    }

    fn mend_block_bitmap(
        &mut self,
        group: u32,
        desc: &mut GroupDesc,
        edits: &mut Vec<Edit>,
    ) -> Step {
        let clusters = self.blocks.in_group(group);
        let map = self.full_map(self.blocks.group(group).unwrap_or(&[]), clusters);
        desc.bg_free_blocks_count = bitmap::count_zero(&map, 0, clusters);
        if self.csum.is_on() && desc.has_flag(BLOCK_UNINIT) {
            let mut implied = vec![0; map.len()];
            init_block_bitmap(&mut implied, &self.sb, &self.geo, group, desc);
            if implied == map || self.cluster_bits > 0 {
                return Ok(());
            }
            desc.bg_flags &= !BLOCK_UNINIT;
        }
        if self.geo.metadata_csum {
            let per_group = self.geo.blocks_per_group >> self.cluster_bits;
            let crc = self.csum.of_bitmap(&map, per_group);
            desc.bg_block_bitmap_csum = self.narrow(crc);
        }
        self.push(edits, desc.bg_block_bitmap, 0, map)
    }

    fn mend_inode_bitmap(
        &mut self,
        group: u32,
        desc: &mut GroupDesc,
        edits: &mut Vec<Edit>,
    ) -> Step {
        let per_group = self.geo.inodes_per_group;
        let mut map = self.full_map(&[], per_group);
        let mut dirs = 0;
        for (bit, known) in (0..).zip(self.inodes.group(group)).filter(|(_, known)| known.used) {
            let _ = bitmap::set_range(&mut map, bit, 1);
            dirs += u32::from(known.file_type == syncline_ondisk::dir::file_type::DIR);
        }
        desc.bg_free_inodes_count = bitmap::count_zero(&map, 0, per_group);
        desc.bg_used_dirs_count = dirs;
        if self.csum.is_on() && desc.has_flag(INODE_UNINIT) {
            let mut implied = vec![0; map.len()];
            init_inode_bitmap(&mut implied, &self.geo);
            if implied == map {
                return Ok(());
            }
            desc.bg_flags &= !INODE_UNINIT;
        }
        if self.geo.metadata_csum {
            desc.bg_inode_bitmap_csum = self.narrow(self.csum.of_bitmap(&map, per_group));
        }
        self.push(edits, desc.bg_inode_bitmap, 0, map)
    }

    /// A bitmap of one block with the marks of a group, and every bit behind them set.
    fn full_map(&self, marks: &[u8], bits: u32) -> Vec<u8> {
        let mut map = vec![0; self.geo.block_size];
        map.iter_mut().zip(marks).for_each(|(to, from)| *to = *from);
        let total = u32::try_from(map.len() * 8).unwrap_or(u32::MAX);
        if bits < total {
            let _ = bitmap::set_range(&mut map, bits, total - bits);
        }
        map
    }
}
