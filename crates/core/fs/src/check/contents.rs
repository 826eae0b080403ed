//! Contents of an inode: attributes, data in the inode, blocks, and the sizes that follow.

use syncline_ondisk::bytes::le16;
use syncline_ondisk::dir::file_type;
use syncline_ondisk::inode::{I_BLOCK_BYTES, Inode, S_IFMT, S_IFREG, flags};
use syncline_ondisk::superblock::ROOT_INO;
use syncline_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures, blockmap, inline};

use super::blocks::{Keeps, Mapped, extent_header};
use super::inodes::Slot;
use super::kinds::Kind;
use super::marks::Dir;
use super::report::At;
use super::{Checker, Step, kinds};

/// Largest file without the feature `large_file`, and one byte.
const LARGE_FILE_BYTES: u64 = 1 << 31;
/// Offset of `s_prealloc_dir_blocks`.
const PREALLOC_DIR_BLOCKS: usize = 0xcd;

impl Checker<'_> {
    /// True if `i_block` has block numbers or extents , as libext2fs tells.
    pub(super) fn has_map(raw: &Inode) -> bool {
        match file_type::from_mode(raw.i_mode) {
            file_type::REG_FILE | file_type::DIR => !raw.has_flag(flags::INLINE_DATA),
            file_type::SYMLINK if raw.i_file_acl == 0 => {
                // With the count lost, its one block is still the target's.
                let has_block = raw.has_flag(flags::EXTENTS) && link_block(raw).is_some();
                !is_fast(raw) && (raw.i_blocks & u64::from(u32::MAX) != 0 || has_block)
            }
            file_type::SYMLINK => {
                let second = blockmap::pointer(&raw.i_block, 1).unwrap_or(0);
                raw.i_size >= I_BLOCK_BYTES as u64 || raw.i_size > 4 && second == 0
            }
            _ => false,
        }
    }

    /// Checks everything that an inode holds.
    pub(super) fn check_contents(&mut self, slot: &Slot<'_>) -> Step {
        let (ino, raw) = (slot.ino, &slot.raw);
        let xattr = self.check_xattrs(slot)?;
        let inline =
            raw.has_flag(flags::INLINE_DATA) && self.incompat(IncompatFeatures::INLINE_DATA);
        let is_dir = raw.is_dir();
        let keeps = if is_dir || slot.keeps_runs { Keeps::Runs } else { Keeps::Nothing };
        let mut mapped = if !inline && Self::has_map(raw) {
            self.walk_blocks(ino, raw, keeps)?
        } else {
            Mapped::default()
        };
        mapped.clusters += xattr.clusters;
        if is_dir && !inline && mapped.clusters == 0 {
            self.note(kinds::DIR_EMPTY, At::ino(ino), "a directory without blocks");
        } else if is_dir && !inline && mapped.end == 0 && !mapped.broken {
            self.note(kinds::DIR_HOLE, At::ino(ino), "directory block 0 is not mapped");
        }
        if raw.has_flag(flags::INDEX) {
            if !is_dir {
                self.note(kinds::INODE_FLAG, At::ino(ino), "has the flag of an indexed directory");
            } else if inline {
                let what = "a directory in its inode has the flag of an indexed one";
                self.note(kinds::INODE_FLAG, At::ino(ino), what);
            } else if !self.compat(CompatFeatures::DIR_INDEX) {
                let what = "a directory is indexed, and the file system does not have dir_index";
                self.note(kinds::INODE_FLAG, At::ino(ino), what);
            }
        }
        self.usage.add(
            slot,
            mapped.clusters << self.cluster_bits << self.geo.block_bits,
            xattr.inodes,
        );
        if !mapped.broken {
            self.check_block_count(slot, mapped.clusters);
            self.check_size(slot, &mapped, inline)?;
        }
        let large = raw.i_mode & S_IFMT == S_IFREG && raw.i_size >= LARGE_FILE_BYTES;
        if large && !self.ro_compat(RoCompatFeatures::LARGE_FILE) {
            let what = format!("{} bytes long, and the file system has no large_file", raw.i_size);
            self.note(kinds::LARGE_FILE, At::ino(ino), what);
        }
        let is_mapped = mapped.clusters > xattr.clusters && !raw.has_flag(flags::EXTENTS);
        let is_plain = ino >= self.geo.first_ino || ino == ROOT_INO;
        let is_of_clusters = self.ro_compat(RoCompatFeatures::BIGALLOC) && is_plain;
        if is_mapped && is_of_clusters && (is_dir || raw.is_file()) {
            let what = "blocks are mapped without extents, in clusters";
            self.note(kinds::BLOCK_MAPPED, At::ino(ino), what);
        }
        if raw.has_flag(flags::EA_INODE) {
            self.check_value_inode(slot, &mapped.runs)?;
        }
        if raw.is_file() && raw.has_flag(flags::VERITY) && self.ro_compat(RoCompatFeatures::VERITY)
        {
            self.sealed.push(ino);
        }
        if is_dir {
            self.dirs.insert(ino, Dir { runs: mapped.runs, ..Dir::default() });
        } else if self.keeps_file(ino) {
            self.files.insert(ino, (raw.clone(), mapped.runs));
        }
        Ok(())
    }

    fn check_block_count(&mut self, slot: &Slot<'_>, clusters: u64) {
        let raw = &slot.raw;
        let blocks = clusters << self.cluster_bits;
        let huge = self.ro_compat(RoCompatFeatures::HUGE_FILE) && raw.has_flag(flags::HUGE_FILE);
        let want = if huge { blocks } else { blocks * (self.geo.block_size as u64 / 512) };
        let found = if self.ro_compat(RoCompatFeatures::HUGE_FILE) {
            raw.i_blocks
        } else {
            raw.i_blocks & u64::from(u32::MAX)
        };
        if found != want {
            let what = format!("i_blocks is {found}, should be {want}");
            self.note(kinds::BLOCKS, At::ino(slot.ino).right(want), what);
        }
    }

    fn check_size(&mut self, slot: &Slot<'_>, mapped: &Mapped, inline: bool) -> Step {
        let (ino, raw) = (slot.ino, &slot.raw);
        let block_size = self.geo.block_size as u64;
        let size = raw.i_size;
        if self.live && self.orphans.contains(&ino) {
            return Ok(());
        }
        if raw.is_dir() {
            return self.check_dir_size(slot, mapped, inline);
        }
        if raw.is_symlink() {
            return Ok(());
        }
        let max = if raw.has_flag(flags::EXTENTS) {
            (1u64 << (32 + self.geo.block_bits)) - 1
        } else {
            blockmap::max_blocks(self.geo.block_size).saturating_mul(block_size)
        };
        let file = raw.i_mode & S_IFMT == S_IFREG && !raw.has_flag(flags::VERITY);
        // The journals of mke2fs of 2007 have one block more than their size says.
        let last = mapped.written_end.saturating_sub(1);
        // e2fsck lets an index block end with the size.
        let is_indexed = raw.has_flag(flags::EXTENTS) && le16(&raw.i_block, 6) > 0 && last > 0;
        let least = last * block_size + u64::from(is_indexed);
        let at = At::ino(ino).right((mapped.end * block_size).min(max));
        if file && mapped.written_end > 0 && size < least {
            let what = format!("{size} bytes long, with data up to block {}", mapped.written_end);
            self.note(kinds::SIZE, at, what);
        } else if size > max {
            self.note(kinds::SIZE, at, format!("a size of {size} bytes is out of range"));
        }
        Ok(())
    }

    fn check_dir_size(&mut self, slot: &Slot<'_>, mapped: &Mapped, inline: bool) -> Step {
        let (ino, size) = (slot.ino, slot.raw.i_size);
        let block_size = self.geo.block_size as u64;
        if inline {
            let stored = inline::stored(&slot.raw, slot.bytes).map_or(0, |data| data.len() as u64);
            if stored != size {
                let what = format!("a directory of {size} bytes has {stored} in the inode");
                self.note(kinds::SIZE, At::ino(ino).right(stored), what);
            }
            return Ok(());
        }
        let blocks = (size / block_size) & u64::from(u32::MAX);
        let spare = mapped.end.saturating_sub(blocks);
        let spare_max = if spare == 0 { 0 } else { self.spare_dir_blocks()? };
        if size % block_size != 0 || blocks > mapped.end || spare > spare_max {
            let (data, end) = (mapped.data, mapped.end);
            let what = format!("a directory of {size} bytes has {data} blocks up to block {end}");
            self.note(kinds::SIZE, At::ino(ino).right(end * block_size), what);
        }
        Ok(())
    }

    /// Blocks that a directory may have behind its size (`s_prealloc_dir_blocks`).
    fn spare_dir_blocks(&mut self) -> Step<u64> {
        let Some(bytes) = self.superblock_bytes()? else { return Ok(0) };
        Ok(bytes.get(PREALLOC_DIR_BLOCKS).copied().unwrap_or(0).into())
    }

    fn superblock_bytes(&mut self) -> Step<Option<Vec<u8>>> {
        let at = syncline_ondisk::superblock::SUPERBLOCK_OFFSET;
        let Some(bytes) = self.read(at >> self.geo.block_bits)? else { return Ok(None) };
        let offset = (at % self.geo.block_size as u64) as usize;
        Ok(bytes.get(offset..).map(<[u8]>::to_vec))
    }

    /// Device, pipe or socket: it has no blocks, no size, and no flags of files.
    pub(super) fn check_special(&mut self, slot: &Slot<'_>) {
        let raw = &slot.raw;
        let mut note = |kind: Kind, what: &str| self.note(kind, At::ino(slot.ino), what);
        let fixed = raw.i_flags & (flags::IMMUTABLE | flags::APPEND) != 0;
        if raw.i_flags & (flags::INDEX | flags::EXTENTS) != 0
            || fixed && (4..15).any(|at| blockmap::pointer(&raw.i_block, at) != Some(0))
        {
            return note(kinds::SPECIAL, "a special file has blocks");
        }
        if raw.has_flag(flags::INLINE_DATA) {
            note(kinds::SPECIAL_FLAG, "a special file has the flag of data in the inode");
        }
        if fixed {
            note(kinds::SPECIAL_FLAG, "a special file is immutable or append-only");
        }
        if raw.i_size != 0 {
            let at = At::ino(slot.ino).right(0);
            self.note(kinds::SIZE, at, "a special file has a size");
        }
    }

    /// A symbolic link: the length of its target is its size.
    pub(super) fn check_symlink(&mut self, slot: &Slot<'_>) -> Step {
        if let Some(what) = self.symlink_problem(slot)? {
            self.note(kinds::SYMLINK, At::ino(slot.ino), what);
        }
        if slot.raw.i_flags & (flags::IMMUTABLE | flags::APPEND) != 0 {
            let what = "a symbolic link is immutable or append-only";
            self.note(kinds::SPECIAL_FLAG, At::ino(slot.ino), what);
        }
        Ok(())
    }

    fn symlink_problem(&mut self, slot: &Slot<'_>) -> Step<Option<&'static str>> {
        let raw = &slot.raw;
        let wrong = Some("the target of a symbolic link is empty, has a NUL, or is too long");
        if raw.i_size == 0 || raw.i_size >> 32 != 0 || raw.has_flag(flags::INDEX) {
            return Ok(wrong);
        }
        let mut target = raw.i_block.to_vec();
        if raw.has_flag(flags::INLINE_DATA) {
            let Ok(data) = inline::stored(raw, slot.bytes) else { return Ok(wrong) };
            // As e2fsck, which does not look at the text; the kernel ends it at a NUL.
            let whole = data.len() as u64 == raw.i_size;
            return Ok(if whole { None } else { wrong });
        } else if is_fast(raw) {
            if raw.has_flag(flags::EXTENTS) {
                return Ok(Some("a symbolic link in the inode has the flag of extents"));
            }
        } else {
            let Some(block) = link_block(raw) else {
                return Ok(Some("a symbolic link does not have one block"));
            };
            if !self.in_volume(block) {
                return Ok(Some("the block of a symbolic link is outside of the volume"));
            }
            let Some(bytes) = self.read(block)? else { return Ok(None) };
            target = bytes.to_vec();
        }
        let len = if raw.has_flag(flags::ENCRYPT) {
            usize::from(le16(&target, 0)) + 2
        } else {
            target.iter().position(|byte| *byte == 0).unwrap_or(target.len())
        };
        let right = len < target.len() && len as u64 == raw.i_size;
        Ok(if right { None } else { wrong })
    }
}

/// True if a target of this size is in the inode.
fn is_fast(raw: &Inode) -> bool {
    raw.is_symlink() && raw.i_size > 0 && raw.i_size < I_BLOCK_BYTES as u64
}

/// The one block of a symbolic link.
fn link_block(raw: &Inode) -> Option<u64> {
    use syncline_ondisk::bytes::{join32, le32};
    if !raw.has_flag(flags::EXTENTS) {
        let rest = (1..15).all(|at| blockmap::pointer(&raw.i_block, at) == Some(0));
        return rest.then(|| le32(&raw.i_block, 0).into());
    }
    let single = matches!(extent_header(&raw.i_block), Ok((1, 0)));
    let (block, len) = (le32(&raw.i_block, 12), le16(&raw.i_block, 16));
    let start = join32(le32(&raw.i_block, 20), le16(&raw.i_block, 18).into());
    (single && block == 0 && len == 1).then_some(start)
}
