//! Reserved inodes: bad blocks, root, journal, quota, resize inode, orphan file.

use syncline_ondisk::dir::file_type;
use syncline_ondisk::inode::{Inode, flags};
use syncline_ondisk::superblock::{JOURNAL_INO, RESIZE_INO, ROOT_INO};
use syncline_ondisk::{CompatFeatures, RoCompatFeatures};

use super::blocks::Keeps;
use super::inodes::Slot;
use super::report::At;
use super::{Checker, Step, kinds};

pub(super) const BAD_INO: u32 = 1;
const USER_QUOTA_INO: u32 = 3;
const GROUP_QUOTA_INO: u32 = 4;
const BOOT_LOADER_INO: u32 = 5;
const UNDELETE_INO: u32 = 6;
/// Inodes that no quota can have (snapshots' and replicas' are the last two).
const NO_QUOTA: [u32; 8] =
    [BAD_INO, ROOT_INO, BOOT_LOADER_INO, UNDELETE_INO, RESIZE_INO, JOURNAL_INO, 9, 10];

impl Checker<'_> {
    /// True if an inode belongs to the file system and has no name.
    pub(super) fn is_system(&self, ino: u32) -> bool {
        ino != ROOT_INO && ino < self.geo.first_ino || self.is_system_file(ino)
    }

    /// True if the superblock names an inode.
    pub(super) fn is_system_file(&self, ino: u32) -> bool {
        let sb = &self.sb;
        let orphan_file = self.compat(CompatFeatures::ORPHAN_FILE) && ino == sb.s_orphan_file_inum;
        orphan_file || self.quota_inodes().contains(&ino)
    }

    /// True if the blocks of an inode are looked at later. The journal of an old file system may
    /// have a name.
    pub(super) fn keeps_file(&self, ino: u32) -> bool {
        self.is_system_file(ino) || ino == self.sb.s_journal_inum
    }

    /// Inodes of the quotas of users, groups and projects; 0 is none.
    pub(super) fn quota_inodes(&self) -> [u32; 3] {
        [self.sb.s_usr_quota_inum, self.sb.s_grp_quota_inum, self.sb.s_prj_quota_inum]
    }

    /// One reserved inode.
    pub(super) fn check_reserved(&mut self, slot: &Slot<'_>) -> Step {
        let (ino, raw) = (slot.ino, &slot.raw);
        self.inodes.change(&self.geo, ino, |known| {
            known.used = true;
            known.system = true;
            known.links = raw.i_links_count;
            known.file_type = file_type::from_mode(raw.i_mode);
        });
        if ino == BAD_INO {
            return self.check_bad_blocks(raw);
        }
        let at = At::ino(ino);
        let (is_file, has_mode) = (raw.is_file(), raw.i_mode != 0);
        let sb = &self.sb;
        let quota = self.quota_inodes().contains(&ino);
        // As e2fsck reads it: the low half of the count, and the first pointer.
        let in_use =
            raw.i_links_count != 0 || raw.i_blocks as u32 != 0 || raw.i_block[..4] != [0; 4];
        let has_quota = quota && self.ro_compat(RoCompatFeatures::QUOTA);
        let is_unnamed_quota = [USER_QUOTA_INO, GROUP_QUOTA_INO].contains(&ino) && !has_quota;
        let journal = ino == sb.s_journal_inum;
        if (is_unnamed_quota || ino == JOURNAL_INO && !journal) && !in_use {
            return Ok(());
        }
        let orphans = ino == sb.s_orphan_file_inum && self.compat(CompatFeatures::ORPHAN_FILE);
        if journal && !is_file {
            self.note(kinds::JOURNAL_INODE, at, "the journal is no file");
        } else if has_quota && !is_file {
            self.note(kinds::QUOTA_INODE, at, "the quota is no file");
        } else if orphans && (!is_file || raw.i_links_count == 0) {
            self.note(kinds::ORPHAN_FILE, at, "the orphan file is no file");
        } else if ino == JOURNAL_INO && !journal && in_use {
            let what = "the inode of the journal is in use, and the superblock names none";
            self.note(kinds::JOURNAL_UNUSED, at, what);
        } else if is_unnamed_quota && in_use {
            let what = "the inode of a quota is in use, and the superblock names none";
            self.note(kinds::QUOTA_INODE, at, what);
        } else if ino < self.geo.first_ino && !journal && !quota && !orphans {
            let bad = match ino {
                BOOT_LOADER_INO => raw.is_dir(),
                RESIZE_INO => has_mode && !is_file,
                _ => has_mode,
            };
            if bad {
                let what = format!("mode {:#o} of a reserved inode", raw.i_mode);
                self.note(kinds::RESERVED_MODE, at, what);
            }
        }
        self.check_contents(slot)
    }

    /// Blocks that cannot be used.
    fn check_bad_blocks(&mut self, raw: &Inode) -> Step {
        let at = At::ino(BAD_INO);
        if has_fields_of_a_file(raw) {
            self.note(kinds::BAD_BLOCKS, at, "the inode of bad blocks has fields of a file");
        }
        self.walk_blocks(BAD_INO, raw, Keeps::Nothing)?;
        Ok(())
    }

    /// Takes bad blocks. They may be in an inode table, whose inodes there are lost.
    pub(super) fn take_bad(&mut self, start: u64, len: u64) -> Step {
        for block in start..start + len {
            self.bad.mark(block, 1);
            if !self.metadata.is_marked(block) {
                self.mark(BAD_INO, block, 1);
            } else if self.is_critical(block)? {
                let what = "a bad block has a structure of the file system";
                self.note(kinds::BAD_BLOCKS, At::ino(BAD_INO).in_block(block), what);
            }
        }
        Ok(())
    }

    /// True for superblocks, descriptors and bitmaps.
    fn is_critical(&mut self, block: u64) -> Step<bool> {
        for group in 0..self.geo.group_count {
            let first = self.geo.group_first_block(group);
            let head = u64::from(self.sb.group_has_super(group))
                + u64::from(self.geo.group_gdt_blocks(&self.sb, group));
            let Some(desc) = self.desc(group)? else { continue };
            let bitmaps = [desc.bg_block_bitmap, desc.bg_inode_bitmap];
            if (first..first + head).contains(&block) || bitmaps.contains(&block) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if an inode can hold no quota.
    pub(super) fn is_no_quota(&self, ino: u32) -> bool {
        NO_QUOTA.contains(&ino)
    }

    /// A number in the superblock without its feature: e2fsck takes the file that has it for one of
    /// the file system, and clears it.
    pub(super) fn check_stray(&mut self, ino: u32, feature: &str) {
        let is_file = ino >= self.geo.first_ino && ino <= self.geo.inodes_count;
        if is_file && self.inodes.get(&self.geo, ino).links > 0 {
            let what = format!("the superblock names it, and does not have {feature}");
            self.note(kinds::STRAY_NUMBER, At::ino(ino), what);
        }
    }

    /// The superblock's numbers of quota inodes.
    pub(super) fn check_quota_inodes(&mut self) {
        for ino in self.quota_inodes() {
            if ino != 0 && (NO_QUOTA.contains(&ino) || ino > self.geo.inodes_count) {
                let what = format!("inode {ino} cannot hold a quota");
                self.note(kinds::QUOTA_INODE, At::NOWHERE, what);
            }
        }
    }
}

/// True if an inode is no list of blocks that cannot be used.
pub(super) fn has_fields_of_a_file(raw: &Inode) -> bool {
    raw.i_mode != 0
        || (raw.i_uid | raw.i_gid) & 0xffff != 0
        || raw.i_links_count != 0
        || raw.i_file_acl & u64::from(u32::MAX) != 0
        || raw.has_flag(flags::INLINE_DATA)
}
