//! Orphans, which a mount would have finished: those without links are deleted, the others cut to
//! their size. The list and the file are empty afterwards.

use syncline_ondisk::blockmap::{NDIR_BLOCKS, pointer};
use syncline_ondisk::bytes::{put_bytes, put_le32};
use syncline_ondisk::extent::Extent;
use syncline_ondisk::inode::{I_BLOCK_OFFSET, Inode, flags};
use syncline_ondisk::{CompatFeatures, RoCompatFeatures, orphan_file};

use super::Mender;
use super::superblock::clear_bits;
use crate::check::Step;
use crate::check::kinds as k;

impl Mender<'_, '_> {
    pub(super) fn mend_orphans(&mut self) -> Step {
        let mut orphans = self.c.orphans.clone();
        orphans.extend(self.inodes_with(&[k::ORPHAN_PENDING]));
        let has_any = !orphans.is_empty();
        for ino in orphans {
            let time = self.deletion_time();
            let Some(raw) = self.raw(ino)? else { continue };
            if raw.i_mode == 0 && raw.i_links_count == 0 && raw.i_dtime == 0 {
                continue;
            }
            if raw.i_links_count > 0 && self.c.orphans.contains(&ino) {
                self.cut_to_size(ino, &raw)?;
            }
            let dtime = if raw.i_links_count > 0 { 0 } else { time };
            self.change(ino, |slot| put_le32(slot, 0x14, dtime))?;
        }
        let is_wrong = has_any || self.has(&[k::ORPHAN_INVALID]);
        if is_wrong && self.c.sb.s_last_orphan != 0 {
            self.change_super(|sb| put_le32(sb, 0xe8, 0))?;
        }
        if self.has(&[k::ORPHAN_FILE]) && !self.has_orphan_file()? {
            return self.drop_orphan_file();
        }
        if has_any || self.has(&[k::ORPHAN_FILE]) {
            self.empty_orphan_file()?;
        }
        Ok(())
    }

    /// True if the orphan file can be one: only what is in some of its blocks may be wrong. A file
    /// that has none of them is somebody else's, which the superblock names by mistake.
    fn has_orphan_file(&mut self) -> Step<bool> {
        let ino = self.c.sb.s_orphan_file_inum;
        let Some((raw, runs)) = self.c.files.get(&ino).cloned() else { return Ok(false) };
        let blocks: Vec<u64> = runs.blocks().map(|(_, block)| block).collect();
        let is_whole =
            raw.i_size > 0 && raw.i_size == (blocks.len() as u64) << self.c.geo.block_bits;
        if !self.c.compat(CompatFeatures::HAS_JOURNAL)
            || ino < self.c.geo.first_ino
            || !raw.is_file()
            || raw.i_links_count == 0
            || !is_whole
            || !blocks.iter().all(|block| self.is_own(*block))
        {
            return Ok(false);
        }
        for block in blocks {
            if self
                .view(block)?
                .is_some_and(|bytes| orphan_file::verify(&bytes, block, None).is_ok())
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A file system without one keeps a list. A file that the superblock names by mistake stays.
    fn drop_orphan_file(&mut self) -> Step {
        self.change_super(|sb| {
            clear_bits(sb, 0x5c, CompatFeatures::ORPHAN_FILE.bits());
            clear_bits(sb, 0x64, RoCompatFeatures::ORPHAN_PRESENT.bits());
            put_le32(sb, 0x280, 0);
        })
    }

    /// Frees the blocks of a file that are behind its size.
    pub(super) fn cut_to_size(&mut self, ino: u32, raw: &Inode) -> Step {
        if !raw.is_file() || raw.has_flag(flags::INLINE_DATA) {
            return Ok(());
        }
        self.cut_at(ino, raw, raw.i_size.div_ceil(self.c.geo.block_size as u64))
    }

    /// Frees the blocks of an inode from block `end` on.
    pub(super) fn cut_at(&mut self, ino: u32, raw: &Inode, end: u64) -> Step {
        if !raw.has_flag(flags::EXTENTS) {
            return self.cut_pointers(ino, raw, end);
        }
        let mapped = self.rewalk(ino, raw)?;
        if mapped.broken {
            return Ok(());
        }
        let kept: Vec<Extent> = mapped
            .extents
            .into_iter()
            .filter(|extent| u64::from(extent.block) < end)
            .map(|extent| {
                let room = (end - u64::from(extent.block)).min(extent.len.into());
                Extent { len: room as u32, ..extent }
            })
            .collect();
        self.write_extents(ino, raw, &kept, mapped.nodes)
    }

    fn cut_pointers(&mut self, ino: u32, raw: &Inode, end: u64) -> Step {
        let mut root = raw.i_block;
        let mut lblk = 0;
        for slot in 0..15 {
            let levels = slot.max(NDIR_BLOCKS - 1) - (NDIR_BLOCKS - 1);
            self.cut_pointer(&mut root, (slot, levels), &mut lblk, end)?;
        }
        self.change(ino, |slot| put_bytes(slot, I_BLOCK_OFFSET, &root))
    }

    /// Clears a pointer if all that it maps is behind the end, and else those below it that are.
    fn cut_pointer(
        &mut self,
        table: &mut [u8],
        (slot, levels): (u32, u32),
        lblk: &mut u64,
        end: u64,
    ) -> Step {
        let per = self.c.geo.block_size as u64 / 4;
        let (here, block) = (*lblk, u64::from(pointer(table, slot).unwrap_or(0)));
        *lblk = here.saturating_add(per.saturating_pow(levels));
        if here >= end {
            put_le32(table, 4 * slot as usize, 0);
            return Ok(());
        }
        if levels == 0 || block == 0 || *lblk <= end || !self.is_own(block) {
            return Ok(());
        }
        let Some(mut below) = self.view(block)? else { return Ok(()) };
        let mut at = here;
        for slot in 0..per as u32 {
            self.cut_pointer(&mut below, (slot, levels - 1), &mut at, end)?;
        }
        self.put(block, below);
        Ok(())
    }

    /// Makes the blocks of the orphan file empty ones.
    fn empty_orphan_file(&mut self) -> Step {
        let ino = self.c.sb.s_orphan_file_inum;
        let known = self.c.files.get(&ino).cloned();
        let Some((raw, runs)) = known.filter(|_| self.c.compat(CompatFeatures::ORPHAN_FILE)) else {
            return Ok(());
        };
        let seed = self.seed(ino, raw.i_generation);
        for (_, block) in runs.blocks() {
            if !self.is_own(block) {
                continue;
            }
            let mut bytes = vec![0; self.c.geo.block_size];
            orphan_file::init(&mut bytes);
            if let Some(seed) = seed {
                orphan_file::set_checksum(&mut bytes, block, seed);
            }
            self.put(block, bytes);
        }
        self.change_super(|sb| clear_bits(sb, 0x64, RoCompatFeatures::ORPHAN_PRESENT.bits()))
    }
}
