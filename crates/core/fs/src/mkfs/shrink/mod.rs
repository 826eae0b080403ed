//! Smaller file systems: everything moves below the new end, then the groups behind it go.
//!
//! ```text
//!            0                              new end                 old end
//!   before   | sb | tables | file A | free   |  B | free | C | journal |
//!   blocks   | sb | tables | file A | copies of B, C, journal |  old places, still marked
//!   inodes   | entries name inodes of the groups that stay    |  no inode in use
//!   cut      | sb | tables | A | B | C | journal              |
//!
//!   Target ── Plan (reads only) ── blocks ── inodes ── cut
//!              └ lacks room: nothing was written
//! ```
//!
//! 1. *blocks*: contents, attribute blocks and new extent nodes are written into free blocks. After
//!    a flush the inodes are changed to point to them. The change of an inode is inside one sector.
//!    Tables of block maps change in place: the old and the new pointer lead to the same bytes.
//! 2. *inodes*: an inode of a group that goes gets another number. Its names change with it:
//!    entries, `..`, values of attributes. One transaction of the journal has all of that. A file
//!    system without a journal has one in free blocks meanwhile. The generation of the inode is
//!    chosen so that the seed of its checksums stays. Then its tree and its directory blocks are
//!    right as they are.
//! 3. *cut*: the superblock gets the new size. Everything else that the cut writes follows from the
//!    rest of the file system.
//!
//! Promises
//! - The result depends on the file system and the size only. Contents, names, attributes, modes,
//!   owners, times, links and holes stay. Inode numbers and generations of step 2 do not.
//! - What does not fit is refused before anything is written.
//! - A power cut leaves the old size or the new one, marked as not clean. No file byte is lost:
//!   `e2fsck -f` and `syncline repair` mend bitmaps, counters, quotas, backups of the superblock
//!   and the map of the resize inode, and nothing else.
//! - Two cases are weaker, and only in step 2: no journal and not 1024 free blocks for one, and an
//!   inode whose names are in more blocks than a transaction holds. There `e2fsck` may find an
//!   inode under both numbers; it gives each its own copy of the contents. A cut in step 2 may
//!   leave a journal to a file system that had none.
//! - The minimum needs several rounds: tables of groups that went are free in the next.
//!
//! Refused: a log or orphans that wait, bigalloc, mmp, stable_inodes, shared_blocks, a journal on
//! another device, a list of bad blocks. Attributes as old Lustre stored them are refused in step
//! 2, when blocks have moved already; the file system is then not clean and has its old size.
//!
//! Memory: 24 bytes for each piece that moves, 100 for each inode that changes, 32 for each entry
//! of step 2. Assumptions: the caller has checked the file system and replayed its journal, and
//! nothing else writes to the device. Tested in `tests/it/shrink.rs`.

mod blocks;
mod cut;
mod inodes;
mod log;
mod quota;
mod scan;
mod target;

use std::sync::Arc;

use syncline_device::BlockDevice;
use syncline_ondisk::group::INODE_UNINIT;
use syncline_ondisk::superblock::{STATE_VALID, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use syncline_ondisk::{
    CompatFeatures, Geometry, IncompatFeatures, RoCompatFeatures, Superblock, bitmap,
};

use super::builder::Builder;
use super::grow::{block, check_clean};
use super::options::{Options, invalid};
use super::write::ORIGIN;
use crate::error::{FsError, Result};
use blocks::Plan;
use target::Target;

type Device<'a> = &'a Arc<dyn BlockDevice>;

/// Features that change nothing of what is done here.
const INCOMPAT: IncompatFeatures = IncompatFeatures::WRITABLE
    .union(IncompatFeatures::EA_INODE)
    .union(IncompatFeatures::CASEFOLD)
    .union(IncompatFeatures::ENCRYPT)
    .without(IncompatFeatures::PACKED_LOG);
const REFUSED: RoCompatFeatures = RoCompatFeatures::BIGALLOC.union(RoCompatFeatures::SHARED_BLOCKS);

/// Shrinks the file system on `device` to at most `size_bytes`, or as far as its files allow.
/// Returns its bytes; a last group without room for its tables is left out. The device keeps its
/// size.
///
/// # Errors
/// Invalid: larger than it is, with a log or orphans that wait, or too small; nothing was written.
/// Unsupported: its features. Corrupt. Io.
pub fn shrink(device: Device<'_>, size_bytes: Option<u64>) -> Result<u64> {
    loop {
        let mut old = load(device)?;
        let block_bytes = old.geo.block_size as u64;
        let (plan, target) = match size_bytes {
            None => {
                let Some(found) = smallest(device, &old)? else {
                    return Ok(old.geo.blocks_count * block_bytes);
                };
                found
            }
            Some(bytes) => to_size(device, &old, bytes / block_bytes)?,
        };
        let bytes = target.geo.blocks_count * block_bytes;
        let freed = plan.apply(&mut old)?;
        let numbers = inodes::renumber(device, &mut old, target.geo.inodes_count)?;
        cut::cut(device, &mut old, target, &freed, &numbers)?;
        if size_bytes.is_some() {
            return Ok(bytes);
        }
    }
}

/// The plan for a size that was asked for.
fn to_size(device: Device<'_>, old: &Builder, blocks: u64) -> Result<(Plan, Target)> {
    if blocks > old.geo.blocks_count {
        return invalid("the new size is above that of the file system; lower it".into());
    }
    if let Some(target) = Target::new(old, blocks, false) {
        if target.lacks(old) == 0 {
            let plan = Plan::new(device, old, &target)?;
            if plan.missing == 0 {
                return Ok((plan, target));
            }
        }
    }
    let least = smallest(device, old)?.map_or(old.geo.blocks_count, |(_, t)| t.geo.blocks_count);
    invalid(format!("its files need {} bytes; choose at least that", least << old.geo.block_bits))
}

/// The smallest size that one round reaches. `None`: it has it.
fn smallest(device: Device<'_>, old: &Builder) -> Result<Option<(Plan, Target)>> {
    let end = old.geo.blocks_count;
    let (mut low, mut high) = (u64::from(old.geo.first_data_block), end);
    while low + 1 < high {
        let middle = low.midpoint(high);
        let fits = Target::new(old, middle, true)
            .is_some_and(|target| target.geo.blocks_count < end && target.lacks(old) == 0);
        if fits { high = middle } else { low = middle }
    }
    while high < end {
        let Some(target) = Target::new(old, high, true) else { break };
        if target.geo.blocks_count >= end {
            break;
        }
        let plan = Plan::new(device, old, &target)?;
        if plan.missing == 0 {
            return Ok(Some((plan, target)));
        }
        high = target.geo.blocks_count + plan.missing;
    }
    Ok(None)
}

/// Descriptors, used blocks and used inodes.
fn load(device: Device<'_>) -> Result<Builder> {
    let mut raw = vec![0; SUPERBLOCK_BYTES];
    device.read(SUPERBLOCK_OFFSET, &mut raw, ORIGIN)?;
    let sb = Superblock::decode(&raw)?;
    sb.verify_checksum(&raw)?;
    check(&sb)?;
    let geo = Geometry::new(&sb, device.geometry().size_bytes)?;
    let options = Options { discard: false, ..Options::default() };
    let mut old = Builder::empty(&options, sb.clone(), geo.clone(), raw);
    old.load(&**device, &sb, &geo)?;
    for group in 0..geo.group_count {
        let desc = old.groups[group as usize];
        if old.csum.is_on() && desc.has_flag(INODE_UNINIT) {
            continue;
        }
        let map = block(&**device, &geo, desc.bg_inode_bitmap)?;
        let (first, count) = (1 + group * geo.inodes_per_group, geo.inodes_per_group);
        let mut at = 0;
        while let Some(start) = bitmap::find_set(&map, at, count) {
            at = bitmap::find_zero(&map, start, count).unwrap_or(count);
            old.inodes_used.insert(u64::from(first + start), u64::from(at - start));
        }
    }
    Ok(old)
}

/// Refuses what cannot be shrunk.
fn check(sb: &Superblock) -> Result<()> {
    let mut names: Vec<String> = sb.s_feature_incompat.without(INCOMPAT).names().collect();
    let refused = sb.s_feature_ro_compat.without(sb.s_feature_ro_compat.without(REFUSED));
    names.extend(refused.names());
    let stable = CompatFeatures::STABLE_INODES;
    if sb.s_feature_compat.contains(stable) {
        names.push("stable_inodes".into());
    }
    if !names.is_empty() {
        return Err(FsError::Unsupported(format!("shrinking with {}", names.join(", "))));
    }
    if sb.has_journal() && sb.s_journal_inum == 0 {
        return Err(FsError::Unsupported("shrinking with a journal on another device".into()));
    }
    check_clean(sb)
}

impl Builder {
    /// Writes the superblock as that of a file system that is not clean. Its checksum is right in
    /// each mix of its old and new sectors if only one of them changes.
    fn write_unclean(&mut self, device: &dyn BlockDevice, recover: bool) -> Result<()> {
        let mut sb = self.sb.clone();
        sb.s_state &= !STATE_VALID;
        sb.set_needs_recovery(recover);
        sb.encode_into(&mut self.raw)?;
        device.write(SUPERBLOCK_OFFSET, &self.raw, ORIGIN)?;
        Ok(device.flush(ORIGIN)?)
    }
}
