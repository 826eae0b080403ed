//! The journal: its superblock is written again, its inode restored from the copy in the superblock
//! of the file system, and one that is of no use is replaced by a new one.
//!
//! A log that cannot be read is dropped, as with e2fsck: nothing can be replayed from it.

use syncline_ondisk::bytes::{be32, le32, put_be32, put_bytes, put_le16, put_le32};
use syncline_ondisk::extent::Extent;
use syncline_ondisk::inode::{EXTRA_ISIZE_FULL, I_BLOCK_OFFSET, Inode, S_IFREG, flags};
use syncline_ondisk::jbd2::{JBD2_MAGIC, JournalSuperblock};
use syncline_ondisk::superblock::JOURNAL_INO;
use syncline_ondisk::{CompatFeatures, IncompatFeatures};

use super::Mender;
use super::superblock::clear_bits;
use crate::check::Step;
use crate::check::kinds as k;

/// Offset of the fields that version 1 does not have, and where they end.
const LATER: std::ops::Range<usize> = 0x24..1024;
const HEADER_BYTES: usize = 12;
const SUPERBLOCK_V2: u32 = 4;
/// Offset of `s_jnl_blocks` in the superblock.
const BACKUP_AT: usize = 0x10c;
/// Blocks of a new journal, in volumes below and above so many blocks.
const SIZES: [(u64, u32); 3] = [(2048, 0), (32_768, 1024), (u64::MAX, 4096)];
/// Runs that a new journal may have.
const RUNS_MAX: u32 = 4;

impl Mender<'_, '_> {
    pub(super) fn mend_journal(&mut self) -> Step {
        let ino = self.c.sb.s_journal_inum;
        if self.has(&[k::JOURNAL_SUPER]) {
            return self.reset_journal_super(ino);
        }
        let torn = [k::BLOCK_RANGE, k::BLOCK_TWICE, k::EXTENT_HEADER, k::EXTENT_RANGE, k::SIZE];
        let is_torn = self.inodes_with(&torn).contains(&ino) && ino == JOURNAL_INO;
        if is_torn && (self.restore_journal_inode(ino)? || self.cut_journal(ino)?) {
            return Ok(());
        }
        if !self.has(&[k::JOURNAL_INODE]) {
            return Ok(());
        }
        if !self.c.compat(CompatFeatures::HAS_JOURNAL) {
            return self.change_super(|sb| {
                clear_bits(sb, 0x60, IncompatFeatures::RECOVER.bits());
                put_le32(sb, 0xe0, 0);
            });
        }
        if self.restore_journal_inode(ino)? {
            return Ok(());
        }
        self.replace_journal(ino)
    }

    /// Writes the superblock of the journal again.
    fn reset_journal_super(&mut self, ino: u32) -> Step {
        let Some((raw, runs)) = self.c.files.get(&ino).cloned() else { return Ok(()) };
        let Some(block) = runs.map(0).filter(|block| self.is_own(*block)) else { return Ok(()) };
        let Some(mut bytes) = self.view(block)? else { return Ok(()) };
        if let Ok(sb) = JournalSuperblock::decode(&bytes) {
            if be32(&bytes, 0x40) > 1 {
                if sb.verify_checksum(&bytes).is_ok() {
                    // Fields of version 2 that are none; the log stays.
                    bytes[LATER].fill(0);
                    self.put(block, bytes);
                    return Ok(());
                }
            } else if !sb.s_feature_incompat.unknown().is_empty() || sb.s_feature_ro_compat != 0 {
                return Ok(());
            }
        }
        let blocks = raw.i_size >> self.c.geo.block_bits;
        // What is in the log has other numbers.
        let sequence = be32(&bytes, 0x18).wrapping_add(0x4000_0000) | 1;
        let uuid = self.c.sb.s_uuid;
        new_super(&mut bytes, self.c.geo.block_size, blocks as u32, sequence, uuid);
        self.put(block, bytes);
        self.change_super(|sb| clear_bits(sb, 0x60, IncompatFeatures::RECOVER.bits()))
    }

    /// Clears `s_errno` of the superblock of the journal.
    pub(super) fn forget_error(&mut self, block: u64) -> Step {
        let Some(mut bytes) = self.view(block)?.filter(|_| self.is_own(block)) else {
            return Ok(());
        };
        if let Ok(mut sb) = JournalSuperblock::decode(&bytes) {
            sb.s_errno = 0;
            let _ = sb.encode_into(&mut bytes);
            self.put(block, bytes);
        }
        Ok(())
    }

    /// Restores the map of the journal from the superblock. False: it is no journal either.
    fn restore_journal_inode(&mut self, ino: u32) -> Step<bool> {
        let sb = &self.c.sb;
        let words = sb.s_jnl_blocks;
        let size = u64::from(words[15]) << 32 | u64::from(words[16]);
        if sb.s_jnl_backup_type != 1 || size == 0 || ino == 0 {
            return Ok(false);
        }
        let mut raw = Inode::new(S_IFREG | 0o600, 0);
        for (i, word) in words.iter().take(15).enumerate() {
            put_le32(&mut raw.i_block, 4 * i, *word);
        }
        raw.i_links_count = 1;
        raw.i_size = size;
        let is_tree = crate::check::blocks::extent_header(&raw.i_block).is_ok();
        if is_tree {
            raw.i_flags = flags::EXTENTS;
        }
        let mapped = self.rewalk(ino, &raw)?;
        let blocks = size.div_ceil(self.c.geo.block_size as u64);
        let Some(first) = mapped.runs.map(0).filter(|_| !mapped.broken) else { return Ok(false) };
        let Some(bytes) = self.view(first)? else { return Ok(false) };
        let is_journal = JournalSuperblock::decode(&bytes).is_ok();
        let whole = (0..).zip(mapped.runs.blocks()).take_while(|(nr, (lblk, _))| nr == lblk);
        if !is_journal || (whole.count() as u64) < blocks {
            return Ok(false);
        }
        let now = self.raw(ino)?.filter(|_| ino == JOURNAL_INO);
        if now.is_some_and(|now| {
            now.i_block == raw.i_block && now.i_size == size && now.i_links_count > 0
        }) {
            return Ok(false);
        }
        if ino != JOURNAL_INO {
            // One that had a name is hidden, and another inode was named by mistake.
            self.change_super(|sb| put_le32(sb, 0xe0, JOURNAL_INO))?;
        }
        self.change(JOURNAL_INO, |slot| {
            put_le16(slot, 0x1a, 1);
            put_le16(slot, 0x00, raw.i_mode);
            put_le32(slot, 0x04, words[16]);
            put_le32(slot, 0x6c, words[15]);
            put_le32(slot, 0x14, 0);
            put_le32(slot, 0x20, raw.i_flags);
            put_bytes(slot, I_BLOCK_OFFSET, &raw.i_block);
        })?;
        Ok(true)
    }

    /// Drops what a journal maps behind its size. False: there is nothing, or the size is wrong.
    fn cut_journal(&mut self, ino: u32) -> Step<bool> {
        let Some(raw) = self.raw(ino)? else { return Ok(false) };
        let mapped = self.rewalk(ino, &raw)?;
        let Some(first) = mapped.runs.map(0) else { return Ok(false) };
        let Some(bytes) = self.view(first)? else { return Ok(false) };
        let Ok(sb) = JournalSuperblock::decode(&bytes) else { return Ok(false) };
        let blocks = raw.i_size.div_ceil(self.c.geo.block_size as u64);
        if u64::from(sb.s_maxlen) != blocks || mapped.end <= blocks {
            return Ok(false);
        }
        self.cut_to_size(ino, &raw)?;
        Ok(true)
    }

    /// Moves a journal that had a name, and has none, to its reserved inode.
    pub(super) fn hide_journal(&mut self, ino: u32) -> Step {
        let Some(old) = self.slot(ino)?.map(|slot| slot.clone()) else { return Ok(()) };
        self.change(JOURNAL_INO, |slot| put_bytes(slot, 0, &old))?;
        self.change(ino, |slot| slot.fill(0))?;
        self.change_super(|sb| put_le32(sb, 0xe0, JOURNAL_INO))
    }

    /// Drops the journal, and makes a new one where there is room.
    fn replace_journal(&mut self, old: u32) -> Step {
        self.change_super(|sb| {
            clear_bits(sb, 0x5c, CompatFeatures::HAS_JOURNAL.bits());
            clear_bits(sb, 0x60, IncompatFeatures::RECOVER.bits());
            put_le32(sb, 0xe0, 0);
        })?;
        if old == JOURNAL_INO {
            self.change(old, |slot| slot.fill(0))?;
        }
        let blocks = self.c.geo.blocks_count;
        let size = SIZES.iter().find(|(below, _)| blocks < *below).map_or(0, |(_, size)| *size);
        let Some(extents) = self.journal_runs(size)? else { return Ok(()) };
        self.make_journal(size, &extents)
    }

    /// Runs of free blocks for a journal.
    fn journal_runs(&mut self, size: u32) -> Step<Option<Vec<Extent>>> {
        if size == 0 || self.c.cluster_bits > 0 {
            return Ok(None);
        }
        for runs in [1, RUNS_MAX] {
            let len = size / runs;
            let mut extents = Vec::new();
            for nr in 0..runs {
                let Some(start) = self.take_clusters(len)? else { break };
                extents.push(Extent { block: nr * len, len, start, unwritten: false });
            }
            if extents.len() == runs as usize {
                return Ok(Some(extents));
            }
        }
        Ok(None)
    }

    fn make_journal(&mut self, size: u32, extents: &[Extent]) -> Step {
        let block_size = self.c.geo.block_size;
        let room = self.c.geo.inode_size.saturating_sub(128) as u16;
        let mut raw = Inode::new(S_IFREG | 0o600, room.min(EXTRA_ISIZE_FULL));
        raw.i_links_count = 1;
        raw.i_size = u64::from(size) * block_size as u64;
        let is_tree = self.c.incompat(IncompatFeatures::EXTENTS);
        raw.i_flags = if is_tree { flags::EXTENTS } else { 0 };
        self.change(JOURNAL_INO, |slot| {
            slot.fill(0);
            let _ = raw.encode_into(slot, None);
        })?;
        for extent in extents {
            for nr in 0..extent.len {
                let block = extent.start + u64::from(nr);
                self.put(block, vec![0; block_size]);
                if !is_tree && !self.set_pointer(JOURNAL_INO, extent.block + nr, block)? {
                    self.slots.remove(&JOURNAL_INO);
                    return Ok(());
                }
            }
        }
        if is_tree {
            self.write_extents(JOURNAL_INO, &raw, extents, Vec::new())?;
        }
        let mut first = vec![0; block_size];
        new_super(&mut first, block_size, size, 1, self.c.sb.s_uuid);
        if let Some(extent) = extents.first() {
            self.put(extent.start, first);
        }
        let map = self.raw(JOURNAL_INO)?.map_or([0; 60], |raw| raw.i_block);
        let len = raw.i_size;
        self.change_super(|sb| {
            let all = le32(sb, 0x5c) | CompatFeatures::HAS_JOURNAL.bits();
            put_le32(sb, 0x5c, all);
            put_le32(sb, 0xe0, JOURNAL_INO);
            sb[0xfd] = 1;
            put_bytes(sb, BACKUP_AT, &map);
            put_le32(sb, BACKUP_AT + 60, (len >> 32) as u32);
            put_le32(sb, BACKUP_AT + 64, (len & 0xffff_ffff) as u32);
        })
    }
}

/// The superblock of an empty journal.
fn new_super(bytes: &mut [u8], block_size: usize, blocks: u32, sequence: u32, uuid: [u8; 16]) {
    bytes[HEADER_BYTES..].fill(0);
    put_be32(bytes, 0x00, JBD2_MAGIC);
    put_be32(bytes, 0x04, SUPERBLOCK_V2);
    put_be32(bytes, 0x08, 0);
    put_be32(bytes, 0x0c, block_size as u32);
    put_be32(bytes, 0x10, blocks);
    put_be32(bytes, 0x14, 1);
    put_be32(bytes, 0x18, sequence);
    put_bytes(bytes, 0x30, &uuid);
    put_be32(bytes, 0x40, 1);
}
