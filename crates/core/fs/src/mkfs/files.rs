//! The files of a new file system: root, lost+found, reserved descriptors, journal, orphan file.
//!
//! They are made in the order of mke2fs, which decides where their blocks are. The calls of
//! `note_*` and of [`super::traffic`] repeat what it reads and writes meanwhile.

use syncline_ondisk::blockmap::DIND_BLOCK;
use syncline_ondisk::bytes::{le32, put_le32};
use syncline_ondisk::dir::{self, DirFormat};
use syncline_ondisk::inode::{S_IFDIR, S_IFREG};
use syncline_ondisk::jbd2::{BlockType, HEADER_BYTES, Header, JournalSuperblock};
use syncline_ondisk::superblock::{JOURNAL_INO, RESIZE_INO, ROOT_INO};
use syncline_ondisk::{CompatFeatures, Inode, RoCompatFeatures, orphan_file};

use super::builder::{Builder, full};
use super::geometry::{FIRST_INO, Sizes};
use super::map::FileMap;
use crate::error::{FsError, Result};

/// Inode of bad blocks.
const BAD_INO: u32 = 1;
/// Name of the directory for what e2fsck finds.
const LOST_FOUND: &[u8] = b"lost+found";
/// lost+found gets blocks up to this size, and at most 12.
const LOST_FOUND_BYTES: usize = 16 << 10;
const LOST_FOUND_BLOCKS: u32 = 12;
/// Largest file without the feature `large_file`.
const SMALL_FILE_BYTES: u64 = (1 << 31) - 1;

impl Builder {
    pub(super) fn make_files(&mut self, sizes: &Sizes) -> Result<()> {
        let root = self.make_root()?;
        self.make_lost_found(root)?;
        self.make_system_files(sizes)
    }

    /// The files that no directory has.
    pub(super) fn make_system_files(&mut self, sizes: &Sizes) -> Result<()> {
        for ino in ROOT_INO + 1..FIRST_INO {
            self.take_inode(ino, false);
        }
        self.make_bad_blocks();
        if self.sb.s_feature_compat.contains(CompatFeatures::RESIZE_INODE) {
            self.make_resize_inode()?;
        }
        if self.sb.has_journal() {
            self.sb.s_overhead_clusters += sizes.journal_blocks + sizes.fast_commit_blocks;
            if sizes.journal_blocks == 0 {
                self.sb.s_feature_compat.remove(CompatFeatures::HAS_JOURNAL);
                self.sb.s_feature_compat.remove(CompatFeatures::ORPHAN_FILE);
            } else {
                self.make_journal(sizes)?;
            }
        }
        self.sb.s_overhead_clusters += self.sb.s_first_data_block;
        if self.sb.s_feature_compat.contains(CompatFeatures::ORPHAN_FILE) {
            self.make_orphan_file()?;
        }
        Ok(())
    }

    fn dir_inode(&self, permissions: u16) -> Inode {
        let mut inode = self.inode(S_IFDIR | permissions);
        inode.i_links_count = 2;
        inode
    }

    /// Sets map, size and blocks of a file.
    fn finish(&mut self, ino: u32, mut inode: Inode, map: &mut FileMap) -> Result<()> {
        let (blocks, own) = map.encode(self, ino, &mut inode)?;
        inode.i_size = blocks * self.geo.block_size as u64;
        inode.i_blocks = self.sectors(blocks + own);
        self.need_large_file(&inode);
        self.inodes.insert(ino, inode);
        Ok(())
    }

    fn need_large_file(&mut self, inode: &Inode) {
        if inode.is_file() && inode.i_size > SMALL_FILE_BYTES {
            self.sb.s_feature_ro_compat.insert(RoCompatFeatures::LARGE_FILE);
        }
    }

    fn put_dir(
        &mut self,
        ino: u32,
        at: u64,
        fill: impl FnOnce(&mut [u8], &DirFormat) -> Result<()>,
    ) -> Result<()> {
        let format = DirFormat::new(&self.sb);
        let mut block = vec![0; self.geo.block_size];
        fill(&mut block, &format)?;
        dir::set_checksum(&mut block, &format, self.inode_seed(ino));
        self.blocks.insert(at, block);
        Ok(())
    }

    fn make_root(&mut self) -> Result<u64> {
        let mut map = FileMap::default();
        let at = self.take_one(self.inode_goal(ROOT_INO))?;
        map.push(self, ROOT_INO, at, 1)?;
        self.note_write(ROOT_INO, true);
        self.note_dir_write(ROOT_INO, at);
        self.note_map_insert(ROOT_INO);
        self.take_inode(ROOT_INO, true);
        let mut inode = self.dir_inode(0o755);
        inode.i_links_count = 3;
        (inode.i_uid, inode.i_gid) = self.options.root_owner;
        if self.options.root_owner != (0, 0) {
            self.note_read(ROOT_INO);
            self.note_write(ROOT_INO, true);
        }
        self.finish(ROOT_INO, inode, &mut map)?;
        self.put_dir(ROOT_INO, at, |block, format| {
            dir::init_dots(block, format, ROOT_INO, ROOT_INO);
            dir::insert(block, format, LOST_FOUND, FIRST_INO, dir::file_type::DIR)?;
            Ok(())
        })?;
        Ok(at)
    }

    fn make_lost_found(&mut self, root: u64) -> Result<()> {
        let ino = self.new_inode()?;
        let mut map = FileMap::default();
        let mut at = self.take_one(self.inode_goal(ino))?;
        map.push(self, ino, at, 1)?;
        self.note_read(ROOT_INO);
        self.note_write(ino, true);
        self.note_dir_write(ino, at);
        self.note_map_insert(ino);
        self.take_inode(ino, true);
        // Its name is looked for, entered and looked for again.
        for enters in [false, true, false] {
            self.note_read(ROOT_INO);
            self.traffic.read(root);
            if enters {
                self.note_dir_write(ROOT_INO, root);
                self.note_read(ROOT_INO);
                self.note_write(ROOT_INO, false);
            }
        }
        self.put_dir(ino, at, |block, format| {
            dir::init_dots(block, format, ino, ROOT_INO);
            Ok(())
        })?;
        let bytes = self.geo.block_size;
        let mut count = 1;
        while count < LOST_FOUND_BLOCKS
            && ((count as usize) * bytes < LOST_FOUND_BYTES || count < 2)
        {
            at = self.take_one(at)?;
            map.push(self, ino, at, 1)?;
            self.note_read(ino);
            self.note_dir_write(ino, at);
            self.note_write(ino, false);
            self.put_dir(ino, at, |block, format| {
                dir::init_empty(block, format);
                Ok(())
            })?;
            count += 1;
        }
        let inode = self.dir_inode(0o700);
        self.finish(ino, inode, &mut map)
    }

    fn make_bad_blocks(&mut self) {
        self.take_inode(BAD_INO, false);
        let mut inode = Inode::new(0, 0);
        let now = self.time();
        (inode.i_atime, inode.i_ctime, inode.i_mtime) = (now, now, now);
        self.inodes.insert(BAD_INO, inode);
        self.note_read(BAD_INO);
        self.note_write(BAD_INO, false);
    }

    /// The inode that owns the reserved descriptor blocks: those of group 0 are its indirect
    /// blocks, and hold the addresses of those in the groups with backups.
    fn make_resize_inode(&mut self) -> Result<()> {
        self.note_read(RESIZE_INO);
        let first = u64::from(self.geo.first_data_block);
        let (descs, reserved) = (self.geo.gdt_blocks, self.geo.reserved_gdt_blocks);
        let goal = first + u64::from(descs + reserved + 2 + self.geo.itable_blocks);
        let at = self.take_one(goal)?;
        let count = self.map_reserved(at);
        self.note_write(RESIZE_INO, true);
        let mut inode = self.inode(S_IFREG | 0o600);
        put_le32(&mut inode.i_block, 4 * DIND_BLOCK as usize, at as u32);
        let slots = self.geo.block_size as u64 / 4;
        inode.i_size = (slots * slots + slots + 12) * self.geo.block_size as u64;
        inode.i_blocks = self.sectors(count);
        self.need_large_file(&inode);
        self.inodes.insert(RESIZE_INO, inode);
        Ok(())
    }

    /// Fills the map of the resize inode, whose top is `at`; returns its blocks.
    pub(super) fn map_reserved(&mut self, at: u64) -> u64 {
        let first = u64::from(self.geo.first_data_block);
        let (descs, reserved) = (self.geo.gdt_blocks, self.geo.reserved_gdt_blocks);
        let slots = (self.geo.block_size / 4) as u32;
        let mut top = vec![0; self.geo.block_size];
        let backups: Vec<u64> = (1..self.geo.group_count)
            .filter(|group| self.sb.group_has_super(*group))
            .map(|group| u64::from(group) * u64::from(self.geo.blocks_per_group))
            .collect();
        for i in 0..reserved {
            let own = first + 1 + u64::from(descs + i);
            let mut block = vec![0; 4 * backups.len()];
            for (slot, backup) in backups.iter().enumerate() {
                put_le32(&mut block, 4 * slot, (own + backup) as u32);
            }
            put_le32(&mut top, (4 * ((descs + i) % slots)) as usize, own as u32);
            self.traffic.write(own);
            self.blocks.insert(own, block);
        }
        self.traffic.write(at);
        self.blocks.insert(at, top);
        1 + u64::from(reserved) * (1 + backups.len() as u64)
    }

    /// First block of the group in the middle that has most free blocks.
    fn journal_goal(&self) -> u64 {
        if let Some(place) = self.options.journal_location {
            return place.blocks(self.geo.block_size as u64);
        }
        if self.options.packed_meta_blocks {
            return 0;
        }
        let first = u64::from(self.geo.first_data_block);
        let count = self.geo.group_count;
        let free = |group: u32| self.groups[group as usize].bg_free_blocks_count;
        let mut group = self.group_of((self.geo.blocks_count - first) / 2);
        let flex = 1_u32 << self.sb.s_log_groups_per_flex;
        let mut start = group.saturating_sub(1);
        if self.is_flex() && group > flex {
            group &= !(flex - 1);
            group = (group..count).find(|group| free(*group) > 0).unwrap_or(0);
            start = group;
        }
        let end = (group + 1).min(count - 1);
        let mut best = start;
        for group in start + 1..=end {
            if free(group) > free(best) {
                best = group;
            }
        }
        self.geo.group_first_block(best)
    }

    fn make_journal(&mut self, sizes: &Sizes) -> Result<()> {
        self.note_read(JOURNAL_INO);
        let total = u64::from(sizes.journal_blocks) + u64::from(sizes.fast_commit_blocks);
        let mut map = FileMap::default();
        if self.has_extents() {
            let goal = self.journal_goal();
            map.fill(self, JOURNAL_INO, goal, total)?;
        } else {
            map.fill(self, JOURNAL_INO, self.inode_goal(JOURNAL_INO), total)?;
        }
        self.note_write(JOURNAL_INO, true);
        if !self.options.zeroed && !self.options.lazy_journal_init {
            self.zeros.extend(map.ranges());
        }
        let Some((at, _)) = map.ranges().next() else { return full() };
        let inode = self.inode(S_IFREG | 0o600);
        self.finish(JOURNAL_INO, inode, &mut map)?;
        self.traffic.write(at);
        let block = self.journal_superblock(total as u32, sizes.fast_commit_blocks)?;
        self.blocks.insert(at, block);
        let inode = &self.inodes[&JOURNAL_INO];
        for (i, word) in self.sb.s_jnl_blocks.iter_mut().take(15).enumerate() {
            *word = le32(&inode.i_block, 4 * i);
        }
        self.sb.s_jnl_blocks[15] = (inode.i_size >> 32) as u32;
        self.sb.s_jnl_blocks[16] = inode.i_size as u32;
        self.sb.s_jnl_backup_type = 1;
        self.sb.s_journal_inum = JOURNAL_INO;
        Ok(())
    }

    /// That of an empty log.
    pub(super) fn journal_superblock(&self, blocks: u32, fast_commit: u32) -> Result<Vec<u8>> {
        let mut block = vec![0; self.geo.block_size];
        let header = Header { block_type: BlockType::SuperblockV2, sequence: 0 };
        header.encode_into(&mut block[..HEADER_BYTES]);
        let mut sb = JournalSuperblock::decode(&block)?;
        sb.s_blocksize = self.geo.block_size as u32;
        sb.s_maxlen = blocks;
        (sb.s_first, sb.s_sequence, sb.s_nr_users) = (1, 1, 1);
        sb.s_num_fc_blks = fast_commit;
        sb.s_uuid = self.sb.s_uuid;
        sb.encode_into(&mut block)?;
        Ok(block)
    }

    fn make_orphan_file(&mut self) -> Result<()> {
        let blocks = match (self.options.orphan_file, self.geo.blocks_count) {
            (Some(amount), _) => amount.blocks(self.geo.block_size as u64),
            (None, 0..0x2_0000) => 32,
            (None, blocks @ 0x2_0000..0x20_0000) => blocks / 4096,
            (None, _) => 512,
        };
        if blocks == 0 || blocks > self.sb.s_free_blocks_count {
            return Err(FsError::Invalid(
                "the orphan file does not fit; correct orphan_file_size".into(),
            ));
        }
        let ino = self.new_inode()?;
        self.take_inode(ino, false);
        self.note_read(ino);
        let mut map = FileMap::default();
        let seed = self.inode_seed(ino);
        let extents = self.has_extents();
        if extents {
            self.note_write(ino, false);
        }
        let mut goal = 0;
        for _ in 0..blocks {
            if let Some(inner) = map.next_map_block(self, goal)? {
                goal = inner;
            }
            goal = self.take_one(goal)?;
            map.push(self, ino, goal, 1)?;
            self.traffic.write(goal);
            if extents {
                self.note_write(ino, false);
            }
            let mut block = vec![0; self.geo.block_size];
            orphan_file::init(&mut block);
            if self.geo.metadata_csum {
                orphan_file::set_checksum(&mut block, goal, seed);
            }
            self.blocks.insert(goal, block);
        }
        map.note_map_blocks(self);
        self.note_read(ino);
        if !extents {
            self.note_write(ino, false);
        }
        self.note_write(ino, true);
        let inode = self.inode(S_IFREG | 0o600);
        self.finish(ino, inode, &mut map)?;
        self.sb.s_orphan_file_inum = ino;
        Ok(())
    }

    /// The first extent goes into an inode.
    pub(super) fn note_map_insert(&mut self, ino: u32) {
        if self.has_extents() {
            self.note_write(ino, false);
            self.note_write(ino, false);
        }
    }
}
