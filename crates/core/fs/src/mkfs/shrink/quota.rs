//! Usage in quota files, where trees of extents became larger or smaller.

use std::collections::BTreeMap;

use syncline_device::BlockDevice;
use syncline_ondisk::bytes::{le32, le64, put_le64};
use syncline_ondisk::inode::flags;
use syncline_ondisk::superblock::ROOT_INO;
use syncline_ondisk::{Inode, RoCompatFeatures, Superblock};

use super::super::builder::Builder;
use super::super::write::ORIGIN;
use super::scan::{self, Slots};
use crate::check::quota::{BLOCK, ENTRY, LEAF_HEADER, LEVELS};
use crate::error::Result;

/// Blocks by kind of quota and id.
pub(super) struct Deltas(BTreeMap<(usize, u32), i64>);

fn inodes(sb: &Superblock) -> [u32; 3] {
    [sb.s_usr_quota_inum, sb.s_grp_quota_inum, sb.s_prj_quota_inum]
}

impl Deltas {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Counts blocks of an inode, if it counts.
    pub(super) fn add(&mut self, sb: &Superblock, ino: u32, raw: &Inode, blocks: i64) {
        let counted = sb.s_feature_ro_compat.contains(RoCompatFeatures::QUOTA)
            && (ino == ROOT_INO || ino >= sb.first_ino())
            && ino != sb.s_orphan_file_inum
            && ino != sb.s_prj_quota_inum
            && !raw.has_flag(flags::EA_INODE);
        if !counted {
            return;
        }
        for (kind, id) in [raw.i_uid, raw.i_gid, raw.i_projid].into_iter().enumerate() {
            *self.0.entry((kind, id)).or_default() += blocks;
        }
    }
}

/// Changes the usage of each id.
pub(super) fn change(device: &dyn BlockDevice, of: &Builder, deltas: &Deltas) -> Result<()> {
    for ((kind, id), blocks) in &deltas.0 {
        let ino = inodes(&of.sb)[*kind];
        if ino == 0 || *blocks == 0 {
            continue;
        }
        let raw = Inode::decode(Slots::new(device).get(of, ino)?)?;
        let pieces = scan::pieces(device, &of.geo, &raw)?;
        let offset = |nr: u32| {
            let at = u64::from(nr) * BLOCK as u64;
            let block = (at >> of.geo.block_bits) as u32;
            let within = at % of.geo.block_size as u64;
            let found = pieces.iter().find_map(|piece| piece.map(block));
            found.map(|block| (block << of.geo.block_bits) + within)
        };
        let mut bytes = [0; BLOCK];
        let mut next = Some(1).and_then(offset);
        for level in 0..LEVELS {
            let Some(at) = next else { break };
            device.read(at, &mut bytes, ORIGIN)?;
            let nr = le32(&bytes, 4 * (id >> (24 - 8 * level) & 0xff) as usize);
            next = Some(nr).filter(|nr| *nr != 0).and_then(offset);
        }
        // An id without an entry is a finding of the check, which the caller made.
        let Some(at) = next else { continue };
        device.read(at, &mut bytes, ORIGIN)?;
        for entry in bytes[LEAF_HEADER..].chunks_exact_mut(ENTRY) {
            if le32(entry, 0) == *id && entry.iter().any(|byte| *byte != 0) {
                let change = blocks * of.geo.block_size as i64;
                put_le64(entry, 48, le64(entry, 48).wrapping_add_signed(change));
            }
        }
        device.write(at, &bytes, ORIGIN)?;
    }
    Ok(())
}
