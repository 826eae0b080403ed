//! Every inode slot: bitmap, checksum, type, size, `i_blocks`, blocks and attributes.

use std::sync::Arc;

use syncline_ondisk::bytes::{le16, le32};
use syncline_ondisk::dir::file_type;
use syncline_ondisk::group::{GroupDesc, INODE_UNINIT};
use syncline_ondisk::inode::{Inode, S_IFMT, S_IFREG, flags};
use syncline_ondisk::superblock::{RESIZE_INO, ROOT_INO};
use syncline_ondisk::{CompatFeatures, bitmap, inline};

use super::blocks::Mapped;
use super::marks::Dir;
use super::{Checker, Step};
use crate::inode::table::{inode_csum_seed, max_file_bytes};
use crate::store::group::inode_bitmap;

/// Inode table blocks that are read ahead at once.
const READ_AHEAD: u32 = 64;

impl Checker<'_> {
    /// Pass 2.
    pub(super) fn check_inodes(&mut self) -> Step {
        let vol = self.vol;
        for group in 0..vol.geo.group_count {
            self.tick("inodes", group.into(), vol.geo.group_count.into())?;
            let Some(desc) = self.desc(group)? else { continue };
            let map = inode_bitmap(vol, group, &desc);
            let place = Some(desc.bg_inode_bitmap);
            let map = match self.keep(map, None, place)? {
                Some(map) => map,
                // Its checksum is bad: what it says is still the best there is.
                None => vol.buffers.read(desc.bg_inode_bitmap)?,
            };
            self.check_group_inodes(group, &desc, &map)?;
        }
        Ok(())
    }

    fn check_group_inodes(&mut self, group: u32, desc: &GroupDesc, map: &[u8]) -> Step {
        let vol = self.vol;
        let geo = &vol.geo;
        let place = Some(desc.bg_inode_bitmap);
        let per_group = geo.inodes_per_group;
        let free = bitmap::count_zero(map, 0, per_group);
        if free != desc.bg_free_inodes_count {
            let said = desc.bg_free_inodes_count;
            let what = format!("group {group} has {free} free inodes, its descriptor says {said}");
            self.note(None, place, what);
        }
        let uninit = vol.csum.is_on() && desc.has_flag(INODE_UNINIT);
        let unused = if vol.csum.is_on() { desc.bg_itable_unused.min(per_group) } else { 0 };
        let scanned = if uninit { 0 } else { per_group - unused };
        if let Some(bit) = bitmap::find_set(map, scanned, per_group) {
            let ino = group * per_group + bit + 1;
            let what = "in use, but in the part of the inode table that was never used";
            self.note(Some(ino), place, what);
        }
        let mut dirs = 0;
        let mut block: Option<(u32, Arc<[u8]>)> = None;
        for index in 0..scanned {
            let (nr, offset) = geo.inode_slot(index);
            if block.as_ref().is_none_or(|(held, _)| *held != nr) {
                block = Some((nr, self.table_block(desc, nr, scanned)?));
            }
            let Some((_, bytes)) = &block else { continue };
            let slot = bytes.get(offset..offset + geo.inode_size).unwrap_or(&[]);
            let ino = group * per_group + index + 1;
            let at = desc.bg_inode_table + u64::from(nr);
            if bitmap::test(map, index) {
                dirs += u32::from(self.check_inode(ino, slot, at)?);
            } else if le16(slot, 26) != 0 && le32(slot, 20) == 0 && le16(slot, 0) != 0 {
                self.note(Some(ino), Some(at), "has links and is marked free");
            }
        }
        if dirs != desc.bg_used_dirs_count {
            let said = desc.bg_used_dirs_count;
            let what = format!("group {group} has {dirs} directories, its descriptor says {said}");
            self.note(None, place, what);
        }
        Ok(())
    }

    fn table_block(&mut self, desc: &GroupDesc, nr: u32, scanned: u32) -> Step<Arc<[u8]>> {
        let geo = &self.vol.geo;
        if nr % READ_AHEAD == 0 {
            let last = scanned.div_ceil(geo.inodes_per_block).min(geo.itable_blocks);
            let ahead = nr..nr.saturating_add(READ_AHEAD).min(last);
            let blocks: Vec<u64> = ahead.map(|nr| desc.bg_inode_table + u64::from(nr)).collect();
            self.vol.buffers.prefetch(&blocks);
        }
        Ok(self.vol.buffers.read(desc.bg_inode_table + u64::from(nr))?)
    }

    /// One inode that the bitmap says is in use; whether it is a directory.
    fn check_inode(&mut self, ino: u32, slot: &[u8], at: u64) -> Step<bool> {
        let system = self.is_system(ino);
        let known = match self.inodes.at(&self.vol.geo, ino) {
            Some(known) => known,
            None => return Ok(false),
        };
        (known.used, known.system) = (true, system);
        if system && slot.iter().all(|byte| *byte == 0) {
            return Ok(false);
        }
        let raw = match Inode::decode(slot) {
            Ok(raw) => raw,
            Err(err) => return self.note_bad(err, Some(ino), Some(at)).map(|()| false),
        };
        known.links = raw.i_links_count;
        known.file_type = file_type::from_mode(raw.i_mode);
        if let Some(seed) = inode_csum_seed(self.vol, ino, raw.i_generation) {
            if let Err(err) = raw.verify_checksum(slot, seed) {
                self.note_bad(err, Some(ino), Some(at))?;
            }
        }
        let kind = file_type::from_mode(raw.i_mode);
        if kind == file_type::UNKNOWN && !system {
            let what = format!("mode {:#o} is of no type", raw.i_mode);
            self.note(Some(ino), Some(at), what);
            return Ok(false);
        }
        if raw.i_links_count == 0 && !system && !self.orphans.contains(&ino) {
            self.note(Some(ino), Some(at), "in use without links, and not an orphan");
        }
        if ino == RESIZE_INO && self.sb.s_feature_compat.contains(CompatFeatures::RESIZE_INODE) {
            self.mark_resize_inode(ino, &raw);
            return Ok(false);
        }
        self.check_contents(ino, &raw, slot)?;
        let is_dir = raw.is_dir();
        if is_dir {
            self.report.directories += 1;
            self.dirs.insert(ino, Dir::default());
        } else if !system {
            self.report.files += 1;
        }
        Ok(is_dir)
    }

    /// True if an inode belongs to the file system and has no name.
    fn is_system(&self, ino: u32) -> bool {
        let orphan_file = self.sb.s_feature_compat.contains(CompatFeatures::ORPHAN_FILE)
            && ino == self.sb.s_orphan_file_inum;
        ino != ROOT_INO && ino < self.vol.geo.first_ino
            || orphan_file
            || ino == self.sb.s_journal_inum && ino != 0
            || [self.sb.s_usr_quota_inum, self.sb.s_grp_quota_inum, self.sb.s_prj_quota_inum]
                .contains(&ino)
    }

    fn check_contents(&mut self, ino: u32, raw: &Inode, slot: &[u8]) -> Step {
        let block_size = self.vol.geo.block_size;
        let xattr_blocks = self.check_xattrs(ino, raw, slot)?;
        let inline = raw.has_flag(flags::INLINE_DATA);
        if inline {
            self.check_inline(ino, raw, slot)?;
        }
        let fast = raw.is_fast_symlink(block_size);
        let has_map = matches!(
            file_type::from_mode(raw.i_mode),
            file_type::REG_FILE | file_type::DIR | file_type::SYMLINK
        ) || raw.i_mode & S_IFMT == 0;
        let mapped = if has_map && !fast && !inline {
            self.walk_blocks(ino, raw)?
        } else {
            Mapped::default()
        };
        if fast && !raw.fast_symlink_target(block_size).is_some_and(is_target) {
            self.note(Some(ino), None, "the target of a symbolic link is empty or has a NUL");
        }
        if !mapped.broken {
            let blocks = mapped.data + mapped.meta + xattr_blocks;
            let (sectors, per) = (raw.sectors(block_size), block_size as u64 / 512);
            if sectors != blocks.saturating_mul(per) {
                let what = format!("i_blocks is {sectors}, should be {}", blocks * per);
                self.note(Some(ino), None, what);
            }
        }
        if has_map && !fast && !inline {
            self.check_size(ino, raw, &mapped);
        }
        Ok(())
    }

    /// Data in the inode: it is where the flag says, the volume has the feature, the size is right.
    fn check_inline(&mut self, ino: u32, raw: &Inode, slot: &[u8]) -> Step {
        if !self.vol.inline_data {
            let what = "data is in the inode, and the volume does not have inline_data";
            self.note(Some(ino), None, what);
            return Ok(());
        }
        let data = match inline::stored(raw, slot) {
            Ok(data) => data,
            Err(err) => return self.note_bad(err, Some(ino), None),
        };
        let (size, stored) = (raw.i_size, data.len() as u64);
        if raw.is_dir() && size != stored {
            let what = format!("a directory of {size} bytes has {stored} in the inode");
            self.note(Some(ino), None, what);
        }
        let target = usize::try_from(size).ok().and_then(|size| data.get(..size));
        if raw.is_symlink() && !target.is_some_and(is_target) {
            self.note(Some(ino), None, "the target of a symbolic link is empty or has a NUL");
        }
        Ok(())
    }

    fn check_size(&mut self, ino: u32, raw: &Inode, mapped: &Mapped) {
        let block_size = self.vol.geo.block_size as u64;
        let size = raw.i_size;
        if mapped.broken || self.orphans.contains(&ino) {
            return;
        }
        if raw.is_dir() {
            let blocks = size / block_size;
            let whole = size % block_size == 0 && size > 0;
            if !whole || mapped.end != blocks || mapped.data != blocks {
                let what = format!(
                    "a directory of {size} bytes has {} blocks up to block {}",
                    mapped.data, mapped.end
                );
                self.note(Some(ino), None, what);
            }
            return;
        }
        if size > max_file_bytes(self.vol) {
            self.note(Some(ino), None, format!("a size of {size} bytes is out of range"));
        }
        let file = raw.i_mode & S_IFMT == S_IFREG && !raw.has_flag(flags::VERITY);
        if file && mapped.written_end > size.div_ceil(block_size) {
            let what = format!("{size} bytes long, with data up to block {}", mapped.written_end);
            self.note(Some(ino), None, what);
        }
        if raw.is_symlink() && (mapped.data != 1 || size == 0 || size >= block_size) {
            let what = format!("a symbolic link of {size} bytes in {} blocks", mapped.data);
            self.note(Some(ino), None, what);
        }
    }
}

fn is_target(target: &[u8]) -> bool {
    !target.is_empty() && !target.contains(&0)
}
