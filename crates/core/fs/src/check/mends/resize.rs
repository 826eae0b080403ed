//! The resize inode: its tables follow from the geometry, so it is made again.

use syncline_ondisk::blockmap::DIND_BLOCK;
use syncline_ondisk::bytes::{le32, put_le16, put_le32};
use syncline_ondisk::inode::{I_BLOCK_OFFSET, S_IFREG};
use syncline_ondisk::superblock::RESIZE_INO;
use syncline_ondisk::{CompatFeatures, IncompatFeatures};

use super::Mender;
use crate::check::Step;
use crate::check::kinds as k;

impl Mender<'_, '_> {
    pub(super) fn mend_resize_inode(&mut self) -> Step {
        let of_inode = |found: &&crate::check::Finding| found.inode == Some(RESIZE_INO);
        let is_wrong = self.errors.iter().filter(of_inode).any(|found| {
            super::is_of(
                found,
                &[
                    k::RESIZE_INODE,
                    k::BLOCK_RANGE,
                    k::BLOCK_TWICE,
                    k::SIZE,
                    k::INODE_FLAG,
                    k::EXTENT_FLAG,
                    k::INLINE_DATA,
                ],
            )
        });
        if !is_wrong {
            return Ok(());
        }
        let is_on = self.c.compat(CompatFeatures::RESIZE_INODE);
        if is_on && self.c.incompat(IncompatFeatures::META_BG) {
            self.change_super(|sb| {
                let left = le32(sb, 0x5c) & !CompatFeatures::RESIZE_INODE.bits();
                put_le32(sb, 0x5c, left);
                put_le16(sb, 0xce, 0);
            })?;
        }
        if !is_on || self.c.incompat(IncompatFeatures::META_BG) {
            return self.change(RESIZE_INO, |slot| slot.fill(0));
        }
        self.make_resize_inode()
    }

    fn make_resize_inode(&mut self) -> Step {
        let Some(dind) = self.take_block()? else { return Ok(()) };
        let geo = self.c.geo.clone();
        let size = geo.block_size;
        let per = (size / 4) as u32;
        let boot = u32::from(size == 1024 && geo.first_data_block == 0);
        let first = geo.first_data_block + 1 + geo.gdt_blocks + boot;
        let groups: Vec<u32> =
            (1..geo.group_count).filter(|group| self.c.sb.group_has_super(*group)).collect();
        let mut table = vec![0; size];
        for nr in 0..geo.reserved_gdt_blocks {
            let slot = ((geo.gdt_blocks + nr) % per) as usize;
            put_le32(&mut table, 4 * slot, first + nr);
            let mut copies = vec![0; size];
            for (at, group) in groups.iter().enumerate() {
                let copy =
                    u64::from(first + nr) + u64::from(*group) * u64::from(geo.blocks_per_group);
                put_le32(&mut copies, 4 * at, copy as u32);
            }
            self.put((first + nr).into(), copies);
        }
        self.put(dind, table);
        let blocks = 1 + u64::from(geo.reserved_gdt_blocks) * (1 + groups.len() as u64);
        let apb = u64::from(per);
        let bytes = (apb * apb + apb + 12) * size as u64;
        let extra = geo.inode_size.saturating_sub(128).min(32) as u16;
        self.change(RESIZE_INO, |slot| {
            slot.fill(0);
            put_le16(slot, 0x00, S_IFREG | 0o600);
            put_le16(slot, 0x1a, 1);
            put_le32(slot, 0x04, (bytes & 0xffff_ffff) as u32);
            put_le32(slot, 0x6c, (bytes >> 32) as u32);
            put_le32(slot, 0x1c, (blocks * (size as u64 / 512)) as u32);
            put_le32(slot, I_BLOCK_OFFSET + 4 * DIND_BLOCK as usize, dind as u32);
            if slot.len() > 128 {
                put_le16(slot, 0x80, extra);
            }
        })
    }
}
