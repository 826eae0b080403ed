//! The orphan list and the orphan file, read without trust.

use syncline_ondisk::{CompatFeatures, RoCompatFeatures, checksum, orphan_file};

use super::report::At;
use super::{Checker, Step, kinds};

/// Blocks of an orphan file that are looked at (mke2fs makes at most 512 of 4 KiB).
const FILE_BLOCKS_MAX: usize = 4096;

impl Checker<'_> {
    fn may_be_orphan(&mut self, ino: u32, at: At) -> bool {
        let geo = &self.geo;
        if ino < geo.first_ino || ino > geo.inodes_count {
            self.note(kinds::ORPHAN_INVALID, at, "an orphan with an impossible number");
            return false;
        }
        if !self.orphans.insert(ino) {
            self.note(kinds::ORPHAN_INVALID, at, "an orphan twice");
            return false;
        }
        true
    }

    pub(super) fn follow_orphan_list(&mut self) -> Step {
        let mut ino = self.sb.s_last_orphan;
        while ino != 0 && self.may_be_orphan(ino, At::ino(ino)) {
            let Some(raw) = self.read_inode(ino)? else { break };
            ino = raw.i_dtime;
        }
        self.report.orphans = self.orphans.len() as u64;
        Ok(())
    }

    pub(super) fn check_orphan_file(&mut self) -> Step {
        let present = self.ro_compat(RoCompatFeatures::ORPHAN_PRESENT);
        if !self.compat(CompatFeatures::ORPHAN_FILE) {
            if present && !self.live {
                let what = "orphan_present is set, and there is no orphan file";
                self.note(kinds::ORPHAN_NO_FILE, At::NOWHERE, what);
            }
            self.check_stray(self.sb.s_orphan_file_inum, "orphan_file");
            return Ok(());
        }
        let ino = self.sb.s_orphan_file_inum;
        let at = At::ino(ino);
        if !self.compat(CompatFeatures::HAS_JOURNAL) {
            self.note(kinds::ORPHAN_FILE, at, "an orphan file without a journal");
            return Ok(());
        }
        let Some((raw, runs)) = self.files.get(&ino).cloned() else {
            self.note(kinds::ORPHAN_FILE, at, "the orphan file is not in use");
            return Ok(());
        };
        let blocks = raw.i_size >> self.geo.block_bits;
        let mapped = runs.blocks().take(FILE_BLOCKS_MAX + 1).count() as u64;
        if raw.i_size % self.geo.block_size as u64 != 0 || mapped != blocks {
            let what = format!("an orphan file of {} bytes in {mapped} blocks", raw.i_size);
            self.note(kinds::ORPHAN_FILE, at, what);
            return Ok(());
        }
        let seed = self
            .geo
            .metadata_csum
            .then(|| checksum::inode_seed(self.sb.csum_seed(), ino, raw.i_generation));
        let before = self.report.orphans;
        for (_, block) in runs.blocks().take(FILE_BLOCKS_MAX) {
            let Some(bytes) = self.read(block)? else { continue };
            let at = at.in_block(block);
            if let Err(err) = orphan_file::verify(&bytes, block, seed) {
                self.note_bad(kinds::ORPHAN_FILE, at, &err);
                continue;
            }
            for (_, orphan) in orphan_file::orphans(&bytes) {
                if self.may_be_orphan(orphan, At::ino(orphan).in_block(block)) && !self.live {
                    self.note(kinds::ORPHAN_PENDING, At::ino(orphan), "in the orphan file");
                }
            }
        }
        self.report.orphans = self.orphans.len() as u64;
        if present && !self.live && self.report.orphans == before {
            let what = "orphan_present is set, and the orphan file is empty";
            self.note(kinds::ORPHAN_PRESENT, at, what);
        }
        Ok(())
    }
}
