//! The journal's inode and superblock. What is in the log is not judged.

use syncline_ondisk::CompatFeatures;
use syncline_ondisk::bytes::be32;
use syncline_ondisk::inode::flags;
use syncline_ondisk::jbd2::{JournalIncompat, JournalSuperblock};
use syncline_ondisk::superblock::STATE_ERROR;

use super::report::At;
use super::{Checker, Step, kinds};

/// Fewest blocks of a journal.
const BLOCKS_MIN: u64 = 1024;

impl Checker<'_> {
    pub(super) fn check_journal(&mut self) -> Step {
        let has = self.compat(CompatFeatures::HAS_JOURNAL);
        if !self.live && self.sb.s_state & STATE_ERROR != 0 {
            let what = "an earlier mount found errors";
            self.note(kinds::ERROR_RECORDED, At::NOWHERE, what);
        }
        let (ino, external) = (self.sb.s_journal_inum, self.sb.s_journal_uuid != [0; 16]);
        if !has && ino == 0 && !external {
            if self.sb.needs_recovery() {
                let what = "a journal needs recovery, and there is none";
                self.note(kinds::JOURNAL_INODE, At::NOWHERE, what);
            }
            return Ok(());
        }
        if external {
            let what = "the journal is on another device, and was not looked at";
            self.note(kinds::JOURNAL_EXTERNAL, At::NOWHERE, what);
            return Ok(());
        }
        let at = At::ino(ino);
        if !has {
            let what = "has_journal is clear, and there is a journal";
            self.note(kinds::JOURNAL_FLAG, at, what);
        }
        let Some((raw, runs)) = self.files.get(&ino).cloned() else {
            self.note(kinds::JOURNAL_INODE, at, "the journal is not in use");
            return Ok(());
        };
        let blocks = raw.i_size >> self.geo.block_bits;
        // One with a hole ends there.
        let mapped =
            (0..).zip(runs.blocks()).take_while(|(nr, (block, _))| nr == block).count() as u64;
        if raw.i_links_count == 0
            || !raw.is_file()
            || raw.has_flag(flags::ENCRYPT)
            || blocks < BLOCKS_MIN
            || mapped < raw.i_size.div_ceil(self.geo.block_size as u64)
        {
            let size = raw.i_size;
            let what = format!("a journal of {size} bytes, of which {mapped} blocks are mapped");
            self.note(kinds::JOURNAL_INODE, at, what);
            return Ok(());
        }
        let Some(first) = runs.map(0) else {
            self.note(kinds::JOURNAL_INODE, at, "the journal does not have its first block");
            return Ok(());
        };
        let Some(bytes) = self.read(first)? else { return Ok(()) };
        self.check_journal_superblock(at.in_block(first), &bytes, blocks);
        Ok(())
    }

    fn check_journal_superblock(&mut self, at: At, bytes: &[u8], blocks: u64) {
        let kind = kinds::JOURNAL_SUPER;
        let sb = match JournalSuperblock::decode(bytes) {
            Ok(sb) => sb,
            Err(err) => return self.note_bad(kind, at, &err),
        };
        let later = bytes.get(0x24..0x30).is_some_and(|fields| fields.iter().any(|b| *b != 0));
        // `decode` does not read what version 1 does not have; e2fsck does.
        let users = be32(bytes, 0x40);
        if sb.version == 1 && (later || users != 0) {
            let what = "a journal of version 1 with fields of version 2";
            self.note(kinds::JOURNAL_FLAG, at, what);
        }
        if sb.version > 1 && users > 1 {
            self.note(kind, at, format!("a journal inside with {users} users"));
        }
        let unknown = sb.s_feature_incompat.unknown();
        if !unknown.is_empty() || sb.s_feature_ro_compat != 0 {
            self.note(kind, at, format!("the journal has unknown features: {unknown}"));
            return;
        }
        if let Err(err) = sb.checksum_kind().and_then(|_| sb.verify_checksum(bytes)) {
            self.note_bad(kind, at, &err);
        } else if sb.s_errno != 0 {
            let what = format!("an earlier mount ended with errno {}", sb.s_errno);
            self.note(kinds::ERROR_RECORDED, at, what);
        }
        if usize::try_from(sb.s_blocksize) != Ok(self.geo.block_size) {
            let what = format!("the journal has a block size of {}", sb.s_blocksize);
            self.note(kind, at, what);
        }
        if u64::from(sb.s_maxlen) > blocks {
            let what = format!("a journal of {} blocks in {blocks}", sb.s_maxlen);
            self.note(kind, at, what);
        }
        let fast = sb.s_feature_incompat.contains(JournalIncompat::FAST_COMMIT);
        if fast && sb.log_end().is_err() {
            self.note(kind, at, "fast commit blocks leave no room for the log");
        }
        if !self.live && sb.s_start != 0 && !self.sb.needs_recovery() {
            let what = "the journal is not empty, and the superblock says that it is";
            self.note(kinds::JOURNAL_PENDING, at, what);
        }
    }
}
