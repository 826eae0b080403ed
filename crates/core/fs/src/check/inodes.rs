//! Every inode slot: checksum, links, deletion time, flags, type.

use std::sync::Arc;

use syncline_ondisk::bytes::{le16, le32, put_le16};
use syncline_ondisk::dir::file_type;
use syncline_ondisk::group::{GroupDesc, INODE_UNINIT};
use syncline_ondisk::inode::{GOOD_OLD_INODE_SIZE, Inode, flags};
use syncline_ondisk::superblock::ROOT_INO;
use syncline_ondisk::{CompatFeatures, IncompatFeatures, bitmap, checksum, inline};

use super::blocks::extent_header;
use super::report::At;
use super::{Checker, Step, kinds};

/// Inode table blocks that are read ahead at once.
const READ_AHEAD: u32 = 64;
/// Bytes of `i_block`.
pub(super) const I_BLOCK: std::ops::Range<usize> = 0x28..0x64;
/// `i_flags`: an AFS inode.
pub(super) const IMAGIC: u32 = 0x2000;
/// Offsets of the low words of times, and of their extra words.
pub(super) const TIMES: [(usize, usize); 4] =
    [(0x08, 0x8c), (0x0c, 0x84), (0x10, 0x88), (0x90, 0x94)];

/// One inode with its bytes.
pub(super) struct Slot<'a> {
    pub(super) ino: u32,
    pub(super) raw: Inode,
    pub(super) bytes: &'a [u8],
    /// Its blocks are wanted after the walk over all inodes.
    pub(super) keeps_runs: bool,
}

impl Checker<'_> {
    /// Pass 2.
    pub(super) fn check_inodes(&mut self) -> Step {
        let groups = self.geo.group_count;
        for group in 0..groups {
            self.tick("inodes", group.into(), groups.into())?;
            let desc = self.desc(group)?.filter(|desc| self.has_table(group, desc));
            self.scanned.push(desc.as_ref().map_or(0, |desc| self.initialised(group, desc)));
            if let Some(desc) = desc {
                self.check_table(group, &desc)?;
            }
        }
        Ok(())
    }

    /// Inodes of a group that names may have, as its descriptor says.
    fn initialised(&self, group: u32, desc: &GroupDesc) -> u32 {
        let (per_group, unused) = (self.geo.inodes_per_group, desc.bg_itable_unused);
        match self.csum.is_on() {
            _ if desc.has_flag(INODE_UNINIT) => 0,
            true => per_group - unused.min(per_group),
            // As e2fsck counts: from the first inode of all on.
            false => {
                let first = u64::from(group) * u64::from(per_group);
                let end = first + u64::from(per_group);
                let left = (end + 1).checked_sub(unused.into()).map(|end| end.saturating_sub(1));
                left.map_or(per_group, |end| end.saturating_sub(first) as u32)
            }
        }
    }

    fn check_table(&mut self, group: u32, desc: &GroupDesc) -> Step {
        // Without checksums nothing says that a part was never used.
        let is_told = self.csum.is_on();
        let scanned =
            if is_told { self.initialised(group, desc) } else { self.geo.inodes_per_group };
        let mut block: Option<(u32, Option<Arc<[u8]>>)> = None;
        for index in 0..scanned {
            let (nr, offset) = self.geo.inode_slot(index);
            if block.as_ref().is_none_or(|(held, _)| *held != nr) {
                let bytes = self.table_block(desc, nr, scanned)?;
                self.check_neighbours(group, (desc, nr, scanned), bytes.as_deref());
                block = Some((nr, bytes));
            }
            let Some((_, Some(bytes))) = &block else { continue };
            let slot = bytes.get(offset..offset + self.geo.inode_size).unwrap_or(&[]);
            let ino = group * self.geo.inodes_per_group + index + 1;
            let at = desc.bg_inode_table + u64::from(nr);
            if self.bad.is_marked(at) {
                // Nothing is known of it, and it is not to be used.
                self.inodes.change(&self.geo, ino, |known| {
                    (known.used, known.system) = (true, true);
                });
                continue;
            }
            self.check_slot(ino, slot, at)?;
        }
        if let Some(map) = self.inode_bitmap(group, desc)? {
            let per_group = self.geo.inodes_per_group;
            if let Some(bit) = bitmap::find_set(&map, scanned, per_group) {
                let ino = group * per_group + bit + 1;
                let what = "in use, but in the part of the inode table that was never used";
                self.note(kinds::INODE_BITMAP, At::ino(ino).right(ino.into()), what);
            }
        }
        Ok(())
    }

    /// A block of a table: inodes are not trusted where most slots of their block are garbage,
    /// those that are not in use as well.
    fn check_neighbours(
        &mut self,
        group: u32,
        (desc, nr, scanned): (&GroupDesc, u32, u32),
        bytes: Option<&[u8]>,
    ) {
        let block = desc.bg_inode_table + u64::from(nr);
        let (per_block, size) = (self.geo.inodes_per_block, self.geo.inode_size);
        let Some(bytes) = bytes.filter(|_| per_block > 1 && !self.bad.is_marked(block)) else {
            return;
        };
        let first = nr * per_block;
        let slots = || (first..scanned.min(first + per_block)).zip(bytes.chunks_exact(size));
        let is_used = |slot: &[u8]| le16(slot, 0x1a) > 0;
        let garbage = slots().filter(|(_, slot)| is_garbage(slot));
        if garbage.count() <= per_block as usize / 2 || !slots().any(|(_, slot)| is_used(slot)) {
            return;
        }
        for (index, _) in slots().filter(|(_, slot)| is_garbage(slot) && !is_used(slot)) {
            let at = At::ino(group * self.geo.inodes_per_group + index + 1).in_block(block);
            let what = "not in use, and garbage beside inodes that are";
            self.note(kinds::INODE_GARBAGE, at, what);
        }
    }

    fn inode_bitmap(&mut self, group: u32, desc: &GroupDesc) -> Step<Option<Arc<[u8]>>> {
        let uninit = self.csum.is_on() && desc.has_flag(INODE_UNINIT);
        if uninit || !self.has_bitmap(group, desc.bg_inode_bitmap) {
            return Ok(None);
        }
        self.read(desc.bg_inode_bitmap)
    }

    fn table_block(&mut self, desc: &GroupDesc, nr: u32, scanned: u32) -> Step<Option<Arc<[u8]>>> {
        let geo = &self.geo;
        if nr % READ_AHEAD == 0 {
            let last = scanned.div_ceil(geo.inodes_per_block).min(geo.itable_blocks);
            let ahead = nr..nr.saturating_add(READ_AHEAD).min(last);
            let blocks: Vec<u64> = ahead.map(|nr| desc.bg_inode_table + u64::from(nr)).collect();
            self.buffers.prefetch(&blocks);
        }
        self.read(desc.bg_inode_table + u64::from(nr))
    }

    /// One slot, in use or not.
    fn check_slot(&mut self, ino: u32, bytes: &[u8], block: u64) -> Step {
        let at = At::ino(ino).in_block(block);
        let (raw, extra_is_right) = decode(bytes);
        if self.geo.metadata_csum && bytes.iter().any(|byte| *byte != 0) {
            let seed = checksum::inode_seed(self.sb.csum_seed(), ino, raw.i_generation);
            let found = Inode::checksum_of(bytes, seed);
            let wide = bytes.len() > GOOD_OLD_INODE_SIZE && le16(bytes, 0x80) >= 4;
            let mask = if wide { u32::MAX } else { 0xffff };
            let said = u32::from(le16(bytes, 0x7c)) | u32::from(le16(bytes, 0x82)) << 16;
            if found != said & mask {
                let what = format!("inode: checksum is {:#x}, bytes give {found:#x}", said & mask);
                self.note(kinds::INODE_CSUM, at, what);
            }
        }
        let system = self.is_system(ino);
        let is_orphan = self.orphans.contains(&ino);
        if !self.live && raw.i_dtime != 0 && self.dtime_may_be_inode(raw.i_dtime) {
            self.note(kinds::ORPHAN_PENDING, at, "part of the list of orphans");
        }
        if raw.i_links_count == 0 && !system && ino != ROOT_INO {
            if self.live && is_orphan {
                return self.check_used(Slot { ino, raw, bytes, keeps_runs: false }, at);
            }
            if raw.i_dtime == 0 && raw.i_mode != 0 {
                let what = "in use without links, and not an orphan";
                self.note(kinds::DTIME_MISSING, at, what);
            }
            return Ok(());
        }
        let keeps_runs = raw.has_flag(flags::EA_INODE) || self.keeps_file(ino);
        let slot = Slot { ino, raw, bytes, keeps_runs };
        self.check_flags_of(&slot);
        if system {
            return self.check_reserved(&slot);
        }
        if slot.raw.i_links_count == 0 {
            // The root directory: pass 5 says that there is none.
            return Ok(());
        }
        if !extra_is_right {
            self.note(kinds::EXTRA_ISIZE, at, "the size of the extra fields is out of range");
        }
        self.check_used(slot, at)
    }

    /// A deletion time that is the number of an inode is a link of the orphan list, unless the
    /// clock was wrong.
    fn dtime_may_be_inode(&self, dtime: u32) -> bool {
        let count = self.geo.inodes_count;
        let low = |time: u64| time != 0 && time < count.into();
        let sb = &self.sb;
        dtime < count && ![sb.s_wtime, sb.s_mtime, sb.s_mkfs_time].into_iter().any(low)
    }

    /// Flags that contradict each other or the features.
    fn check_flags_of(&mut self, slot: &Slot<'_>) {
        let (ino, raw) = (slot.ino, &slot.raw);
        let at = At::ino(ino);
        let mut wrong = Vec::new();
        let mut rule = |broken: bool, kind, what: &'static str| {
            if broken {
                wrong.push((kind, what));
            }
        };
        let (is_dir, is_file) = (raw.is_dir(), raw.is_file());
        let inline = raw.has_flag(flags::INLINE_DATA);
        let has_inline = self.incompat(IncompatFeatures::INLINE_DATA);
        let has_extents = self.incompat(IncompatFeatures::EXTENTS);
        let folds = raw.has_flag(flags::CASEFOLD);
        rule(folds && !is_dir, kinds::INODE_FLAG, "folds case and is no directory");
        let what = "folds case, and the file system does not have casefold";
        let has_casefold = self.incompat(IncompatFeatures::CASEFOLD);
        rule(folds && is_dir && !has_casefold, kinds::INODE_FLAG, what);
        let what = "has the flag of a value of an attribute and is no file";
        rule(raw.has_flag(flags::EA_INODE) && !is_file, kinds::INODE_FLAG, what);
        let what = "has the flags of data in the inode and of extents";
        rule(inline && raw.has_flag(flags::EXTENTS), kinds::INODE_FLAG, what);
        let plain = ino >= self.geo.first_ino;
        let what = "data is in the inode, and the volume does not have inline_data";
        rule(inline && !has_inline && plain, kinds::INLINE_DATA, what);
        let what = "data is in the inode, and its attribute is missing or broken";
        let is_told = inline && has_inline && plain;
        rule(is_told && inline::stored(raw, slot.bytes).is_err(), kinds::INLINE_DATA, what);
        let what = "has extents, and the file system does not";
        rule(raw.has_flag(flags::EXTENTS) && !has_extents, kinds::EXTENT_FLAG, what);
        let looks = has_extents && !raw.has_flag(flags::EXTENTS) && (is_dir || is_file);
        let header = looks && !inline && extent_header(&raw.i_block).is_ok();
        rule(header, kinds::EXTENT_FLAG, "has extents and not their flag");
        for (kind, what) in wrong {
            self.note(kind, at, what);
        }
    }

    /// One inode in use that is not reserved.
    fn check_used(&mut self, slot: Slot<'_>, at: At) -> Step {
        let (ino, raw) = (slot.ino, &slot.raw);
        let kind = file_type::from_mode(raw.i_mode);
        let has_imagic = self.compat(CompatFeatures::IMAGIC_INODES);
        self.inodes.change(&self.geo, ino, |known| {
            known.used = true;
            known.links = raw.i_links_count;
            known.file_type = kind;
            known.indexed = raw.has_flag(flags::INDEX);
            known.imagic = raw.has_flag(IMAGIC) && has_imagic;
        });
        if raw.i_dtime != 0 && raw.i_links_count > 0 && !self.orphans.contains(&ino) {
            self.note(kinds::DTIME_SET, at, "has links and a deletion time");
        }
        if raw.has_flag(IMAGIC) && !has_imagic {
            let what = "is imagic, and the file system does not have imagic_inodes";
            self.note(kinds::INODE_FLAG, at, what);
        }
        self.check_fields(&slot, at);
        if ino == ROOT_INO && !raw.is_dir() {
            self.note(kinds::ROOT, at, "the root is no directory");
        }
        if raw.has_flag(flags::ENCRYPT) {
            self.check_policy(&slot)?;
        }
        let is_disguised = self.is_disguised_dir(&slot)?;
        if is_disguised {
            self.note(
                kinds::MODE_OF_DIR,
                at,
                "is no directory by its type, and one by its contents",
            );
        }
        match kind {
            file_type::DIR => self.report.directories += 1,
            file_type::UNKNOWN if is_disguised => {}
            file_type::UNKNOWN => {
                let what = format!("mode {:#o} is of no type", raw.i_mode);
                self.note(kinds::MODE, at, what);
            }
            _ => self.report.files += 1,
        }
        match kind {
            file_type::SYMLINK => self.check_symlink(&slot)?,
            file_type::REG_FILE | file_type::DIR | file_type::UNKNOWN => {}
            _ if is_disguised => {}
            _ => self.check_special(&slot),
        }
        self.check_contents(&slot)
    }

    /// Fields that no feature gives a meaning, and times.
    fn check_fields(&mut self, slot: &Slot<'_>, at: At) {
        let (raw, bytes) = (&slot.raw, slot.bytes);
        let hurd = self.sb.s_creator_os == 1;
        let huge = self.ro_compat(syncline_ondisk::RoCompatFeatures::HUGE_FILE);
        let wrong = [
            ("the address of a fragment", le32(bytes, 0x70) != 0),
            ("the high half of the number of blocks", !hurd && !huge && le16(bytes, 0x74) != 0),
            (
                "the high half of the block of attributes",
                !hurd && !self.sb.is_64bit() && le16(bytes, 0x76) != 0,
            ),
            (
                "the high half of the size of a directory",
                raw.is_dir() && raw.i_size >> 32 != 0 && !self.incompat(IncompatFeatures::LARGEDIR),
            ),
        ];
        for (what, _) in wrong.into_iter().filter(|(_, is_wrong)| *is_wrong) {
            self.note(kinds::INODE_FIELD, at, format!("{what} is not zero"));
        }
        let end = GOOD_OLD_INODE_SIZE + usize::from(raw.i_extra_isize);
        let before_1970 = |(low, extra): (usize, usize)| {
            end >= extra + 4 && le32(bytes, low) >> 31 == 1 && le32(bytes, extra) & 3 == 3
        };
        if bytes.len() > GOOD_OLD_INODE_SIZE && TIMES.into_iter().any(before_1970) {
            self.note(kinds::TIME_RANGE, at, "a time before 1970 is written as one after 2310");
        }
    }
}

/// True if a slot has the flag of extents and none.
fn is_garbage(slot: &[u8]) -> bool {
    let is_tree = le32(slot, 0x20) & flags::EXTENTS != 0;
    is_tree && slot.get(I_BLOCK).is_some_and(|map| extent_header(map).is_err())
}

/// Decodes an inode; a wrong size of its extra fields counts as none, and is returned as false.
pub(super) fn decode(bytes: &[u8]) -> (Inode, bool) {
    if let Ok(raw) = Inode::decode(bytes) {
        let extra = raw.i_extra_isize;
        return (raw, extra == 0 || extra >= 4);
    }
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().max(GOOD_OLD_INODE_SIZE), 0);
    if bytes.len() > GOOD_OLD_INODE_SIZE {
        put_le16(&mut bytes, 0x80, 0);
    }
    // 128 bytes without extra fields always decode.
    (Inode::decode(&bytes).unwrap_or_else(|_| Inode::new(0, 0)), false)
}
