//! Extended attributes: the area in the inode, blocks, which inodes may share, and inodes that hold
//! one value each, which entries may share (`ea_inode`).

use syncline_ondisk::bytes::{le16, le32, u8_at};
use syncline_ondisk::ea_inode::{Outside, ValueInode};
use syncline_ondisk::inode::flags;
use syncline_ondisk::xattr::{
    Place, XATTR_MAGIC, entry_hash, entry_hash_signed, refcount, verify_block_checksum,
};
use syncline_ondisk::{CompatFeatures, IncompatFeatures, bitmap, checksum};

use super::inodes::Slot;
use super::kinds::Kind;
use super::marks::Runs;
use super::report::At;
use super::{Checker, Step, kinds};

const ENTRY_HEADER: usize = 16;
/// Longest value (`EXT2_XATTR_SIZE_MAX`).
const VALUE_MAX: u64 = 1 << 24;
/// Values whose contents are compared with their hash.
const HASHED_MAX: u64 = 1 << 16;

/// What attributes count in the inode that has them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Charged {
    /// Clusters in `i_blocks`.
    pub(super) clusters: u64,
    /// Inodes in the quota.
    pub(super) inodes: u64,
}

/// Users of one attribute block.
#[derive(Clone, Copy, Debug)]
pub(super) struct XattrUse {
    said: u64,
    found: u64,
    charged: Charged,
    /// It is broken, for each of its users.
    is_broken: bool,
    /// A user that e2fsck does not count: a symbolic link with its target in the inode.
    link: Option<u32>,
}

/// Entries that name one inode with a value, and what the inode says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueUse {
    found: u64,
    said: u64,
    /// As old Lustre wrote it: no hash and no count.
    is_lustre: bool,
    /// The inode was walked, and its contents do not have the hash that it says.
    is_damaged: bool,
    /// It counts its users.
    counts: bool,
}

/// An area with the bytes of it that are in use.
struct Area<'a> {
    slot: &'a Slot<'a>,
    block: Option<u64>,
    bytes: &'a [u8],
    place: Place,
    taken: Vec<u8>,
}

impl Area<'_> {
    fn at(&self) -> At {
        let at = At::ino(self.slot.ino);
        self.block.map_or(at, |block| at.in_block(block))
    }

    /// Takes bytes; false if they are outside, or in use.
    fn take(&mut self, start: usize, len: usize) -> bool {
        let Some(end) = start.checked_add(len).filter(|end| *end <= self.bytes.len()) else {
            return false;
        };
        let (start, end) = (start as u32, end as u32);
        let free = bitmap::count_set(&self.taken, start, end) == 0;
        let _ = bitmap::set_range(&mut self.taken, start, end - start);
        free
    }
}

impl Checker<'_> {
    /// Checks the attributes of an inode.
    pub(super) fn check_xattrs(&mut self, slot: &Slot<'_>) -> Step<Charged> {
        let mut charged = Charged::default();
        let range = slot.raw.xattr_range(slot.bytes.len());
        if let Some(bytes) = range.and_then(|range| slot.bytes.get(range)) {
            if le32(bytes, 0) == XATTR_MAGIC && !self.is_system(slot.ino) {
                let inner = self.check_area(slot, None, bytes, Place::Inode)?;
                charged.clusters += inner.clusters;
                charged.inodes += inner.inodes;
            }
        }
        let block = slot.raw.i_file_acl;
        if block == 0 {
            return Ok(charged);
        }
        let at = At::ino(slot.ino).in_block(block);
        let is_right = self.compat(CompatFeatures::EXT_ATTR) && self.in_volume(block);
        if !is_right && self.is_system(slot.ino) {
            // Old reserved inodes have anything there.
            return Ok(charged);
        }
        if !self.compat(CompatFeatures::EXT_ATTR) {
            let what = "has a block of attributes, and the file system does not have ext_attr";
            self.note(kinds::XATTR_BLOCK, at, what);
            return Ok(charged);
        }
        if !self.in_volume(block) {
            self.note(kinds::XATTR_BLOCK, at, "the xattr block is outside of the volume");
            return Ok(charged);
        }
        let used = match self.xattrs.get_mut(&block) {
            Some(known) => {
                known.found += 1;
                let known = *known;
                if known.is_broken {
                    self.note(kinds::XATTR_BLOCK, at, "the xattr block is broken");
                }
                known
            }
            None => {
                let before = self.report.findings.len();
                let mut used = self.check_xattr_block(slot, block)?;
                let new = self.report.findings.get(before..).unwrap_or(&[]);
                let is_mended = [kinds::XATTR_CSUM.name, kinds::XATTR_PLACE.name];
                used.is_broken = new.iter().any(|it| !is_mended.contains(&it.name));
                self.xattrs.insert(block, used);
                used
            }
        };
        if slot.raw.is_symlink() && slot.raw.has_flag(flags::INLINE_DATA) {
            self.xattrs.entry(block).and_modify(|used| used.link = Some(slot.ino));
        }
        charged.clusters += used.charged.clusters;
        charged.inodes += used.charged.inodes;
        Ok(charged)
    }

    fn check_xattr_block(&mut self, slot: &Slot<'_>, block: u64) -> Step<XattrUse> {
        let at = At::ino(slot.ino).in_block(block);
        self.mark(slot.ino, block, 1);
        let mut used = XattrUse {
            said: 1,
            found: 1,
            charged: Charged { clusters: 1, inodes: 0 },
            is_broken: false,
            link: None,
        };
        let Some(bytes) = self.read(block)? else { return Ok(used) };
        if self.geo.metadata_csum {
            if let Err(err) = verify_block_checksum(&bytes, block, self.sb.csum_seed()) {
                self.note_bad(kinds::XATTR_CSUM, at, &err);
            }
        }
        if le32(&bytes, 0) != XATTR_MAGIC {
            self.note(kinds::XATTR_BLOCK, at, "xattr area: no magic");
            return Ok(used);
        }
        if le32(&bytes, 8) != 1 {
            let what = format!("xattr area: h_blocks is {}", le32(&bytes, 8));
            self.note(kinds::XATTR_BLOCK, at, what);
        }
        used.said = refcount(&bytes).into();
        let inner = self.check_area(slot, Some(block), &bytes, Place::Block)?;
        used.charged.clusters += inner.clusters;
        used.charged.inodes += inner.inodes;
        Ok(used)
    }

    /// Checks the entries of an area: they and their values do not overlap.
    fn check_area(
        &mut self,
        slot: &Slot<'_>,
        block: Option<u64>,
        bytes: &[u8],
        place: Place,
    ) -> Step<Charged> {
        let taken = vec![0; bytes.len().div_ceil(8)];
        let mut area = Area { slot, block, bytes, place, taken };
        let mut at = if place == Place::Inode { 4 } else { 32 };
        area.take(0, at);
        let mut charged = Charged::default();
        while at + ENTRY_HEADER <= bytes.len() && le32(bytes, at) != 0 {
            match self.check_entry_of(&mut area, at)? {
                Ok(more) => {
                    charged.clusters += more.clusters;
                    charged.inodes += more.inodes;
                }
                Err((kind, what)) => {
                    self.note(kind, area.at(), format!("xattr area: {what} (byte {at})"));
                    return Ok(charged);
                }
            }
            at += ENTRY_HEADER + ((usize::from(u8_at(bytes, at)) + 3) & !3);
        }
        if !area.take(at, 4) {
            let what = format!("xattr area: entries run into the end (byte {at})");
            self.note(kinds::XATTR_ENTRY, area.at(), what);
        }
        Ok(charged)
    }

    fn check_entry_of(
        &mut self,
        area: &mut Area<'_>,
        at: usize,
    ) -> Step<std::result::Result<Charged, (Kind, &'static str)>> {
        let bytes = area.bytes;
        let name_len = usize::from(u8_at(bytes, at));
        if !area.take(at, ENTRY_HEADER + ((name_len + 3) & !3)) {
            return Ok(Err((kinds::XATTR_ENTRY, "a name runs past the end")));
        }
        let name = bytes.get(at + ENTRY_HEADER..at + ENTRY_HEADER + name_len).unwrap_or(&[]);
        if area.place == Place::Block && u8_at(bytes, at + 1) == 0 {
            return Ok(Err((kinds::XATTR_ENTRY, "an attribute without a prefix")));
        }
        let outside = Outside {
            inum: le32(bytes, at + 4),
            size: le32(bytes, at + 8),
            hash: le32(bytes, at + 12),
        };
        if outside.inum != 0 {
            return self.check_outside(area, name, &outside);
        }
        let size = u64::from(outside.size);
        let base = if area.place == Place::Inode { 4 } else { 0 };
        let start = base + usize::from(le16(bytes, at + 2));
        let padded = ((size + 3) & !3) as usize;
        if size > VALUE_MAX || size > 0 && !area.take(start, padded) {
            return Ok(Err((kinds::XATTR_ENTRY, "a value is outside the area")));
        }
        if size == 0 && start > bytes.len() && Self::needs_places(area) {
            let what = format!("xattr area: an empty value is outside the area (byte {at})");
            self.note(kinds::XATTR_PLACE, area.at(), what);
        }
        let value = bytes.get(start..start + size as usize).unwrap_or(&[]);
        let right = outside.hash == entry_hash(name, value)
            || outside.hash == entry_hash_signed(name, value)
            || outside.hash == 0 && area.place == Place::Inode;
        if !right {
            return Ok(Err((
                kinds::XATTR_HASH,
                "an attribute does not have the hash of its value",
            )));
        }
        Ok(Ok(Charged::default()))
    }

    /// True if e2fsprogs reads all attributes of an area, and an empty value with a place outside
    /// of it ends that. Linux ignores the place.
    fn needs_places(area: &Area<'_>) -> bool {
        area.place == Place::Block || area.slot.raw.has_flag(flags::INLINE_DATA)
    }

    /// An entry whose value is in an inode of its own.
    fn check_outside(
        &mut self,
        area: &Area<'_>,
        name: &[u8],
        outside: &Outside,
    ) -> Step<std::result::Result<Charged, (Kind, &'static str)>> {
        let wrong = |what| Ok(Err((kinds::XATTR_VALUE, what)));
        if !self.incompat(IncompatFeatures::EA_INODE) {
            let what = "a value is in an inode, and the file system does not have ea_inode";
            self.note(kinds::XATTR_VALUE, area.at(), what);
        }
        if outside.inum < self.geo.first_ino || outside.inum > self.geo.inodes_count {
            return wrong("an inode that cannot hold the value of an attribute is named");
        }
        let Some(raw) = self.read_inode(outside.inum)? else {
            return wrong("the inode with a value cannot be read");
        };
        let said = ValueInode::new(&raw);
        let generation = area.slot.raw.i_generation;
        let lustre = said.is_lustre(outside, area.slot.ino, generation);
        let used = self.values.entry(outside.inum).or_default();
        used.found += 1;
        used.is_lustre |= lustre;
        if outside.size == 0 || u64::from(outside.size) != raw.i_size {
            return wrong("the inode with a value is not of the size of the attribute");
        }
        if !said.has_entry(name, outside) && !lustre {
            return wrong("an attribute does not have the hash of its value");
        }
        if !raw.has_flag(flags::EA_INODE) || !raw.is_file() {
            return wrong("the inode with a value holds no value of an attribute");
        }
        let cluster = (self.geo.block_size as u64) << self.cluster_bits;
        let clusters = if lustre { 0 } else { u64::from(outside.size).div_ceil(cluster) };
        Ok(Ok(Charged { clusters, inodes: 1 }))
    }

    /// True if an inode holds a value that some attribute has: it has no name.
    pub(super) fn holds_value(&self, ino: u32) -> bool {
        self.values.get(&ino).is_some_and(|used| used.found > 0)
    }

    /// An inode with a value: its users, and whether its contents have the hash that it says.
    pub(super) fn check_value_inode(&mut self, slot: &Slot<'_>, runs: &Runs) -> Step {
        let (raw, said) = (&slot.raw, ValueInode::new(&slot.raw));
        let mut is_damaged = false;
        if raw.i_size <= HASHED_MAX {
            let mut value = Vec::new();
            for (_, block) in runs.blocks().take(HASHED_MAX as usize / 1024) {
                let Some(bytes) = self.read(block)? else { break };
                value.extend_from_slice(&bytes);
            }
            value.resize(raw.i_size as usize, 0);
            is_damaged = checksum::crc32c(self.sb.csum_seed(), &value) != said.hash;
        }
        let used = self.values.entry(slot.ino).or_default();
        used.said = said.users;
        used.is_damaged = is_damaged;
        used.counts = raw.i_ctime.seconds != raw.i_atime.seconds;
        Ok(())
    }

    /// Compares the users of each value with its count.
    pub(super) fn check_values(&mut self) {
        let used: Vec<(u32, ValueUse)> = self
            .values
            .iter()
            .filter(|(_, used)| used.found > 0 && !used.is_lustre)
            .map(|(ino, used)| (*ino, *used))
            .collect();
        for (ino, ValueUse { found, said, is_damaged, counts, .. }) in used {
            if counts && said != found {
                let what = format!("the value of an attribute says {said} users and has {found}");
                self.note(kinds::XATTR_VALUE_USERS, At::ino(ino).right(found), what);
            }
            if is_damaged {
                let what = "the value of an attribute does not have the hash that it says";
                self.note(kinds::XATTR_VALUE, At::ino(ino), what);
            }
        }
    }

    /// Compares the users of each block with its count.
    pub(super) fn check_xattr_users(&mut self) {
        let wrong: Vec<(u64, XattrUse)> = self
            .xattrs
            .iter()
            .filter(|(_, used)| used.said != used.found)
            .map(|(block, used)| (*block, *used))
            .collect();
        for (block, XattrUse { said, found, link, .. }) in wrong {
            let what = format!("an xattr block says {said} users and has {found}");
            let at = link.map_or(At::NOWHERE, At::ino).in_block(block).right(found);
            self.note(kinds::XATTR_USERS, at, what);
        }
    }
}
