//! Group descriptors of a damaged volume: their own, those of a backup, or mke2fs's layout.

use syncline_ondisk::group::{BLOCK_UNINIT, GroupCsum, INODE_UNINIT};
use syncline_ondisk::{GroupDesc, IncompatFeatures};

use super::View;
use crate::error::Result;

/// Copies of the descriptors that are looked at.
const COPIES_MAX: usize = 8;

impl View {
    /// Gives every group a descriptor that a reader can use.
    pub(super) fn mend_descriptors(&mut self) -> Result<()> {
        let (sb, geo) = (self.sb.clone(), self.geo.clone());
        let csum = GroupCsum::new(&sb);
        let copies: Vec<u32> = (1..geo.group_count)
            .filter(|group| sb.group_has_super(*group))
            .take(COPIES_MAX)
            .collect();
        let mut replaced = [0u32; 3];
        for nr in 0..geo.gdt_blocks {
            let place = geo.desc_block(&sb, nr);
            let own = self.block(place);
            let mut bytes = own.clone().unwrap_or_else(|_| vec![0; geo.block_size]);
            let mut mended = own.is_err();
            let first = nr * geo.desc_per_block;
            for group in first..geo.group_count.min(first + geo.desc_per_block) {
                let at = geo.desc_slot(group).1;
                let slot = at..at + geo.desc_size;
                let parse = |block: &[u8], checked: bool| {
                    let bytes = block.get(slot.clone())?;
                    let desc = GroupDesc::decode(bytes).ok()?;
                    let sound = !checked || desc.verify_checksum(bytes, group, &csum).is_ok();
                    (sound && desc.validate(group, &geo).is_ok()).then_some(desc)
                };
                if own.is_ok() && parse(&bytes, true).is_some() {
                    continue;
                }
                let backups = copies.iter().filter_map(|copy| self.copy_of(nr, *copy));
                let backups: Vec<Vec<u8>> = backups.collect();
                let found = backups
                    .iter()
                    .find_map(|block| parse(block, true).map(|desc| (desc, 0)))
                    .or_else(|| parse(&bytes, false).map(|desc| (desc, 1)))
                    .unwrap_or_else(|| (self.usual(group), 2));
                let (mut desc, how): (GroupDesc, usize) = found;
                // It may be old, and no bit of it says which parts were never used.
                desc.bg_flags &= !(BLOCK_UNINIT | INODE_UNINIT);
                desc.bg_itable_unused = 0;
                if let Some(slot) = bytes.get_mut(slot.clone()) {
                    desc.encode_into(slot, group, &csum);
                }
                replaced.iter_mut().skip(how).take(1).for_each(|count| *count += 1);
                mended = true;
            }
            if mended {
                self.put(place << geo.block_bits, &bytes)?;
            }
        }
        let used =
            ["backups are used", "their checksums are ignored", "mke2fs's layout is assumed"];
        for (count, used) in replaced.into_iter().zip(used).filter(|(count, _)| *count > 0) {
            let what = "group descriptors are bad";
            self.missing.push(format!("{count} {what}; {used}"));
        }
        Ok(())
    }

    /// The block of descriptors `nr` in another group.
    fn copy_of(&self, nr: u32, group: u32) -> Option<Vec<u8>> {
        let geo = &self.geo;
        if nr < geo.first_meta_bg {
            return self.block(geo.group_first_block(group) + 1 + u64::from(nr)).ok();
        }
        // With meta_bg the second group and the last of each run have the copies.
        let first = nr.checked_mul(geo.desc_per_block)?;
        let second = first + if group == 1 { 1 } else { geo.desc_per_block - 1 };
        let has_super = u64::from(self.sb.group_has_super(second));
        (second < geo.group_count)
            .then(|| self.block(geo.group_first_block(second) + has_super).ok())
            .flatten()
    }

    /// A descriptor as mke2fs makes it.
    fn usual(&self, group: u32) -> GroupDesc {
        let geo = &self.geo;
        let flex = self.sb.s_feature_incompat.contains(IncompatFeatures::FLEX_BG);
        let per_flex = if flex { geo.groups_per_flex } else { 1 };
        let leader = group / per_flex * per_flex;
        let (nth, all) = (group - leader, per_flex.min(geo.group_count - leader));
        let (nth, all) = (u64::from(nth), u64::from(all));
        let base =
            geo.group_first_block(leader) + u64::from(geo.group_base_meta_blocks(&self.sb, leader));
        GroupDesc {
            bg_block_bitmap: base + nth,
            bg_inode_bitmap: base + all + nth,
            bg_inode_table: base + 2 * all + nth * u64::from(geo.itable_blocks),
            ..GroupDesc::default()
        }
    }
}
