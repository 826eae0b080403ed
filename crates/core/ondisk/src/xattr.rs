//! Extended attributes: in the inode after the extra fields, and in one block for each inode.
//!
//! ```text
//!  inode: magic EA020000 | entries -> ... 4 zero bytes ... <- values  offsets from the 1st entry
//!  block: magic, h_refcount, h_blocks = 1, h_hash, h_checksum, 12 B zero  offsets from the block
//!         entries -> ... 4 zero bytes ... <- values
//!  entry: name_len u8, index u8, value_offs u16, value_inum, value_size, e_hash u32, name
//! ```
//!
//! Entries and values are padded to 4 bytes; entries of a block are sorted by (index, name length,
//! name) and hashed, those of an inode have `e_hash` 0. A value in an inode of its own (`ea_inode`)
//! is [`Xattr::outside`], see [`crate::ea_inode`]. [`get`] and [`Entries`] work in
//! place; [`XattrSet`] edits by rebuilding the area, which also packs it. ACL bytes and the other
//! contents are not interpreted.
//! Tested in `tests/it/rejections.rs` (also against a map, proptest) and in `tests/it/images.rs`.

use std::ops::Range;

use crate::bytes::{le16, le32, put_bytes, put_le16, put_le32, put_u8, u8_at};
use crate::checksum;
use crate::ea_inode::Outside;
use crate::error::{OndiskError, Result};

const WHAT: &str = "xattr area";
/// Magic of an area in an inode, and of a block.
pub const XATTR_MAGIC: u32 = 0xea02_0000;
/// Largest `h_refcount` (`EXT4_XATTR_REFCOUNT_MAX`).
pub const REFCOUNT_MAX: u32 = 1024;
/// Longest name in bytes, its prefix not counted.
pub const NAME_MAX: usize = 255;
const BLOCK_HEADER: usize = 32;
const INODE_HEADER: usize = 4;
const ENTRY_HEADER: usize = 16;
const END_BYTES: usize = 4;

/// `e_name_index` and the prefix it stands for, longest prefixes first.
const PREFIXES: [(u8, &[u8]); 8] = [
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (8, b"system.richacl"),
    (1, b"user."),
    (4, b"trusted."),
    (6, b"security."),
    (7, b"system."),
    (5, b"lustre."),
];

/// Splits a full name into its index and the rest. `None`: no prefix that ext4 knows, or nothing
/// after a prefix that needs a name.
#[must_use]
pub fn split_name(name: &[u8]) -> Option<(u8, &[u8])> {
    for (index, prefix) in PREFIXES {
        if let Some(rest) = name.strip_prefix(prefix) {
            let whole = matches!(index, 2 | 3 | 8);
            if rest.is_empty() == whole && rest.len() <= NAME_MAX {
                return Some((index, rest));
            }
        }
    }
    None
}

/// The prefix of an index; `None` if unknown (such attributes are not listed).
#[must_use]
pub fn prefix(index: u8) -> Option<&'static [u8]> {
    PREFIXES.iter().find(|(i, _)| *i == index).map(|(_, prefix)| *prefix)
}

/// Storage area of extended attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The area of an inode: [`crate::Inode::xattr_range`].
    Inode,
    /// A whole xattr block.
    Block,
}

impl Place {
    /// Returns the offset of the first entry.
    fn entries_at(self) -> usize {
        match self {
            Self::Inode => INODE_HEADER,
            Self::Block => BLOCK_HEADER,
        }
    }

    /// Returns the offset that value offsets are relative to.
    fn values_from(self) -> usize {
        match self {
            Self::Inode => INODE_HEADER,
            Self::Block => 0,
        }
    }
}

/// One attribute, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// `e_name_index`.
    pub index: u8,
    /// The name after the prefix.
    pub name: &'a [u8],
    /// The value; empty if it is outside.
    pub value: &'a [u8],
    /// The inode with the value, where it has one of its own.
    pub outside: Option<Outside>,
}

impl<'a> Xattr<'a> {
    /// The value. Unsupported: it is in an inode of its own.
    fn inside(&self) -> Result<&'a [u8]> {
        match self.outside {
            None => Ok(self.value),
            Some(Outside { inum, .. }) => {
                let detail = format!("the value is in inode {inum}; it can only be read");
                Err(OndiskError::unsupported("ea_inode", detail))
            }
        }
    }

    /// The full name. `None`: unknown index.
    #[must_use]
    pub fn full_name(&self) -> Option<Vec<u8>> {
        let mut full = prefix(self.index)?.to_vec();
        full.extend_from_slice(self.name);
        Some(full)
    }
}

/// Iterator over the attributes of an area, checked; after an error it ends.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    area: &'a [u8],
    place: Place,
    at: usize,
    done: bool,
}

impl<'a> Entries<'a> {
    /// The attributes of an area. An inode area without the magic has none. Corrupt: a block
    /// without it, or with `h_blocks` other than 1.
    pub fn new(area: &'a [u8], place: Place) -> Result<Self> {
        let has_magic = area.len() >= place.entries_at() && le32(area, 0) == XATTR_MAGIC;
        if place == Place::Block {
            if !has_magic {
                return Err(OndiskError::corrupt_at(WHAT, 0, "no magic"));
            }
            if le32(area, 8) != 1 {
                let detail = format!("h_blocks is {}", le32(area, 8));
                return Err(OndiskError::corrupt_at(WHAT, 8, detail));
            }
        }
        Ok(Self { area, place, at: place.entries_at(), done: !has_magic })
    }

    fn entry(&mut self) -> Result<Option<Xattr<'a>>> {
        let (area, at) = (self.area, self.at);
        let fail = |detail: &'static str| Err(OndiskError::corrupt_at(WHAT, at, detail));
        if at + END_BYTES > area.len() {
            return fail("entries run into the end");
        }
        if le32(area, at) == 0 {
            return Ok(None);
        }
        let name_len = usize::from(u8_at(area, at));
        let name_start = at + ENTRY_HEADER;
        let next = at + entry_bytes(name_len);
        let Some(name) = area.get(name_start..name_start + name_len) else {
            return fail("a name runs past the end");
        };
        if next + END_BYTES > area.len() {
            return fail("entries run into the end");
        }
        let inum = le32(area, at + 4);
        let outside = Outside { inum, size: le32(area, at + 8), hash: le32(area, at + 12) };
        let outside = (inum != 0).then_some(outside);
        let value = if outside.is_some() { Some(&[][..]) } else { self.value(at, next) };
        let Some(value) = value else {
            return fail("a value is outside the area");
        };
        self.at = next;
        Ok(Some(Xattr { index: u8_at(area, at + 1), name, value, outside }))
    }

    fn value(&self, at: usize, next: usize) -> Option<&'a [u8]> {
        let size = usize::try_from(le32(self.area, at + 8)).ok()?;
        if size == 0 {
            return Some(&[]);
        }
        let start = self.place.values_from() + usize::from(le16(self.area, at + 2));
        if start < next {
            return None;
        }
        // The padding after a value belongs to it and must be inside as well, as Linux asks.
        let padded = size.checked_add(3)? & !3;
        self.area.get(start..start.checked_add(padded)?)?.get(..size)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Xattr<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let entry = self.entry().transpose();
        self.done = !matches!(entry, Some(Ok(_)));
        entry
    }
}

/// One attribute. Corrupt: as met before it.
pub fn find<'a>(area: &'a [u8], place: Place, index: u8, name: &[u8]) -> Result<Option<Xattr<'a>>> {
    for entry in Entries::new(area, place)? {
        let entry = entry?;
        if entry.index == index && entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// The value of one attribute. Corrupt: as met before it. Unsupported: the value is outside.
pub fn get<'a>(area: &'a [u8], place: Place, index: u8, name: &[u8]) -> Result<Option<&'a [u8]>> {
    find(area, place, index, name)?.map(|found| found.inside()).transpose()
}

fn entry_bytes(name_len: usize) -> usize {
    (ENTRY_HEADER + name_len + 3) & !3
}

fn value_bytes(size: usize) -> usize {
    (size + 3) & !3
}

/// `e_hash` of an entry in a block (`ext4_xattr_hash_entry`): name bytes, then the padded value.
#[must_use]
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash_value(name.iter().fold(0, |hash, byte| mix(hash, u32::from(*byte))), value)
}

/// As [`entry_hash`], of a kernel whose `char` is signed.
#[must_use]
pub fn entry_hash_signed(name: &[u8], value: &[u8]) -> u32 {
    let signed = |byte: u8| i32::from(byte as i8) as u32;
    hash_value(name.iter().fold(0, |hash, byte| mix(hash, signed(*byte))), value)
}

fn mix(hash: u32, byte: u32) -> u32 {
    hash << 5 ^ hash >> 27 ^ byte
}

fn hash_value(hash: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(hash, |hash, chunk| {
        let mut word = [0; 4];
        for (dst, src) in word.iter_mut().zip(chunk) {
            *dst = *src;
        }
        hash << 16 ^ hash >> 16 ^ u32::from_le_bytes(word)
    })
}

/// An owned attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    index: u8,
    name: Vec<u8>,
    /// Empty if the value is outside.
    value: Vec<u8>,
    outside: Option<Outside>,
}

impl Owned {
    fn bytes(&self) -> usize {
        entry_bytes(self.name.len()) + value_bytes(self.value.len())
    }

    /// Order of entries in a block.
    fn key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }
}

/// The attributes of one area, for editing: decode, change, encode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XattrSet {
    entries: Vec<Owned>,
}

impl XattrSet {
    /// Reads an area. Errors as [`Entries`].
    pub fn decode(area: &[u8], place: Place) -> Result<Self> {
        let mut entries = Vec::new();
        for entry in Entries::new(area, place)? {
            let entry = entry?;
            let Xattr { index, name, value, outside } = entry;
            entries.push(Owned { index, name: name.to_vec(), value: value.to_vec(), outside });
        }
        Ok(Self { entries })
    }

    /// Number of attributes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no attributes. An empty block is freed, not written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The attributes, in order.
    pub fn iter(&self) -> impl Iterator<Item = Xattr<'_>> {
        self.entries.iter().map(|e| Xattr {
            index: e.index,
            name: &e.name,
            value: &e.value,
            outside: e.outside,
        })
    }

    /// One attribute.
    #[must_use]
    pub fn get(&self, index: u8, name: &[u8]) -> Option<Xattr<'_>> {
        self.find(index, name).and_then(|i| self.iter().nth(i))
    }

    fn find(&self, index: u8, name: &[u8]) -> Option<usize> {
        self.entries.iter().position(|e| e.index == index && e.name == name)
    }

    /// Sets an attribute; returns whether it existed. Usage error: the name is too long, or empty
    /// together with index 0. Whether it fits is asked with [`XattrSet::fits`].
    pub fn set(&mut self, index: u8, name: &[u8], value: &[u8]) -> Result<bool> {
        self.put(index, name, value, None)
    }

    /// As [`XattrSet::set`] of an attribute whose value is in an inode of its own.
    pub fn set_outside(&mut self, index: u8, name: &[u8], outside: Outside) -> Result<bool> {
        self.put(index, name, &[], Some(outside))
    }

    fn put(
        &mut self,
        index: u8,
        name: &[u8],
        value: &[u8],
        outside: Option<Outside>,
    ) -> Result<bool> {
        if name.len() > NAME_MAX || (name.is_empty() && index == 0) {
            return Err(OndiskError::usage(WHAT, format!("a name of {} bytes", name.len())));
        }
        if let Some(entry) = self.find(index, name).and_then(|i| self.entries.get_mut(i)) {
            (entry.value, entry.outside) = (value.to_vec(), outside);
            return Ok(true);
        }
        self.entries.push(Owned { index, name: name.to_vec(), value: value.to_vec(), outside });
        Ok(false)
    }

    /// Removes an attribute; returns whether it existed.
    pub fn remove(&mut self, index: u8, name: &[u8]) -> bool {
        let at = self.find(index, name);
        if let Some(at) = at {
            self.entries.remove(at);
        }
        at.is_some()
    }

    /// Bytes of the values in an area, padding included.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.entries.iter().map(|entry| value_bytes(entry.value.len())).sum()
    }

    /// Bytes the attributes need in an area, headers included.
    #[must_use]
    pub fn bytes(&self, place: Place) -> usize {
        place.entries_at() + END_BYTES + self.entries.iter().map(Owned::bytes).sum::<usize>()
    }

    /// True if the attributes fit an area of `len` bytes.
    #[must_use]
    pub fn fits(&self, place: Place, len: usize) -> bool {
        self.bytes(place) <= len & !3
    }

    /// Rebuilds the area of an inode: all of it is overwritten; with no attributes it is all zero,
    /// magic included. Full: they do not fit.
    pub fn encode_inode(&self, area: &mut [u8]) -> Result<()> {
        if !self.is_empty() && !self.fits(Place::Inode, area.len()) {
            return Err(OndiskError::Full { what: WHAT });
        }
        area.fill(0);
        if self.is_empty() {
            return Ok(());
        }
        put_le32(area, 0, XATTR_MAGIC);
        let order: Vec<&Owned> = self.entries.iter().collect();
        put_entries(area, Place::Inode, &order);
        Ok(())
    }

    /// Rebuilds a block: all of it is overwritten. The checksum is left 0: [`set_block_checksum`]
    /// comes last. Full: they do not fit.
    pub fn encode_block(&self, block: &mut [u8], refcount: u32) -> Result<()> {
        if !self.fits(Place::Block, block.len()) {
            return Err(OndiskError::Full { what: WHAT });
        }
        block.fill(0);
        put_le32(block, 0, XATTR_MAGIC);
        put_le32(block, 4, refcount);
        put_le32(block, 8, 1);
        let mut order: Vec<&Owned> = self.entries.iter().collect();
        order.sort_by(|a, b| a.key().cmp(&b.key()));
        let hash = put_entries(block, Place::Block, &order);
        put_le32(block, 12, hash);
        Ok(())
    }
}

/// Writes entries upwards and values downwards; returns the block hash (`ext4_xattr_rehash`).
fn put_entries(area: &mut [u8], place: Place, entries: &[&Owned]) -> u32 {
    let mut at = place.entries_at();
    let mut end = area.len() & !3;
    let mut block_hash = 0u32;
    let mut shared = true;
    for entry in entries {
        let value_at = end - value_bytes(entry.value.len());
        let offset = if entry.value.is_empty() { 0 } else { value_at - place.values_from() };
        put_u8(area, at, entry.name.len().to_le_bytes()[0]);
        put_u8(area, at + 1, entry.index);
        put_le16(area, at + 2, u16::try_from(offset).unwrap_or(0));
        put_le32(area, at + 8, u32::try_from(entry.value.len()).unwrap_or(0));
        if let Some(Outside { inum, size, hash }) = entry.outside {
            put_le32(area, at + 4, inum);
            put_le32(area, at + 8, size);
            put_le32(area, at + 12, hash);
        }
        if place == Place::Block {
            let hash = match entry.outside {
                None => entry_hash(&entry.name, &entry.value),
                Some(outside) => outside.hash,
            };
            put_le32(area, at + 12, hash);
            shared &= hash != 0;
            block_hash = block_hash << 16 ^ block_hash >> 16 ^ hash;
        }
        put_bytes(area, at + ENTRY_HEADER, &entry.name);
        put_bytes(area, value_at, &entry.value);
        at += entry_bytes(entry.name.len());
        end = value_at;
    }
    // An entry hash of 0 means "do not share this block": so does a block hash of 0.
    if shared { block_hash } else { 0 }
}

/// `h_refcount` of a block: the inodes that share it.
#[must_use]
pub fn refcount(block: &[u8]) -> u32 {
    le32(block, 4)
}

/// Sets `h_refcount`; the checksum must be set after it.
pub fn set_refcount(block: &mut [u8], refcount: u32) {
    put_le32(block, 4, refcount);
}

/// `h_hash` of a block: equal attributes have equal hashes; 0 is not to be shared.
#[must_use]
pub fn block_hash(block: &[u8]) -> u32 {
    le32(block, 12)
}

/// Bytes of the checksum field in a block.
const CHECKSUM: Range<usize> = 16..20;

fn checksum_of(block: &[u8], block_nr: u64, fs_seed: u32) -> u32 {
    let crc = checksum::crc32c(fs_seed, &block_nr.to_le_bytes());
    checksum::crc32c_skipping(crc, block, CHECKSUM.start)
}

/// Stores the checksum of a block at physical block `block_nr`; `fs_seed` is
/// [`crate::Superblock::csum_seed`] (`ext4_xattr_block_csum`). Only with `metadata_csum`.
pub fn set_block_checksum(block: &mut [u8], block_nr: u64, fs_seed: u32) {
    let crc = checksum_of(block, block_nr, fs_seed);
    put_le32(block, CHECKSUM.start, crc);
}

/// Checks the checksum of a block.
pub fn verify_block_checksum(block: &[u8], block_nr: u64, fs_seed: u32) -> Result<()> {
    if checksum_of(block, block_nr, fs_seed) == le32(block, CHECKSUM.start) {
        return Ok(());
    }
    let error = OndiskError::corrupt_at(WHAT, CHECKSUM.start, "checksum does not match");
    Err(error.in_block(block_nr))
}
