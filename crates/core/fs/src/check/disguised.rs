//! Directories whose type is lost: what says to be a special file and has `.` and `..`.

use syncline_ondisk::blockmap::pointer;
use syncline_ondisk::bytes::{join32, le16, le32, u8_at};
use syncline_ondisk::dir::{file_type, rec_len_from_disk};
use syncline_ondisk::inode::flags;
use syncline_ondisk::superblock::ROOT_INO;
use syncline_ondisk::{IncompatFeatures, inline};

use super::blocks::extent_header;
use super::inodes::Slot;
use super::{Checker, Step};

impl Checker<'_> {
    /// True if an inode that is no file, directory or symbolic link has the contents of a
    /// directory.
    pub(super) fn is_disguised_dir(&mut self, slot: &Slot<'_>) -> Step<bool> {
        let raw = &slot.raw;
        let kind = file_type::from_mode(raw.i_mode);
        let typed = [file_type::REG_FILE, file_type::DIR, file_type::SYMLINK];
        if typed.contains(&kind) || le32(&raw.i_block, 0) == 0 {
            return Ok(false);
        }
        if raw.has_flag(flags::INLINE_DATA) && self.incompat(IncompatFeatures::INLINE_DATA) {
            let size = inline::stored(raw, slot.bytes).map_or(1, |data| data.len());
            return Ok(size % 4 == 0 && self.starts_inline_dir(&raw.i_block));
        }
        let mut is_device = kind == file_type::CHRDEV || kind == file_type::BLKDEV;
        let block = if raw.has_flag(flags::EXTENTS) && self.incompat(IncompatFeatures::EXTENTS) {
            let start = join32(le32(&raw.i_block, 20), le16(&raw.i_block, 18).into());
            let is_leaf = matches!(extent_header(&raw.i_block), Ok((1.., 0)));
            let is_first = is_leaf && le32(&raw.i_block, 12) == 0;
            is_device = false;
            if is_first { start } else { 0 }
        } else {
            let blocks = (0..15).filter_map(|at| pointer(&raw.i_block, at)).map(u64::from);
            for block in blocks.filter(|block| *block != 0) {
                let is_new = !self.blocks.is_marked(block >> self.cluster_bits);
                if !self.in_volume(block) || !is_new {
                    return Ok(false);
                }
            }
            is_device &= (4..15).all(|at| pointer(&raw.i_block, at) == Some(0));
            le32(&raw.i_block, 0).into()
        };
        if is_device && raw.i_links_count == 1 || !self.in_volume(block) {
            return Ok(false);
        }
        let Some(bytes) = self.read(block)? else { return Ok(false) };
        Ok(self.starts_dir(&bytes, slot.ino))
    }

    fn starts_inline_dir(&self, data: &[u8]) -> bool {
        let (parent, first) = (le32(data, 0), le32(data, 4));
        let (low, high) = (self.geo.first_ino, self.geo.inodes_count);
        let rec_len = rec_len_from_disk(le16(data, 8), self.geo.block_size);
        (parent == ROOT_INO || (low..high).contains(&parent))
            && (first == 0 || (low..high).contains(&first))
            && rec_len <= 56
    }

    fn starts_dir(&self, bytes: &[u8], ino: u32) -> bool {
        let size = bytes.len();
        let first = rec_len_from_disk(le16(bytes, 4), size);
        let fits = |len: usize| len >= 12 && len % 4 == 0;
        let dot = u8_at(bytes, 6) == 1 && u8_at(bytes, 8) == b'.' && le32(bytes, 0) == ino;
        if !dot || !fits(first) || first >= size - 12 {
            return false;
        }
        let second = rec_len_from_disk(le16(bytes, first + 4), size);
        u8_at(bytes, first + 6) == 2
            && bytes.get(first + 8..first + 10) == Some(&b".."[..])
            && fits(second)
    }
}
