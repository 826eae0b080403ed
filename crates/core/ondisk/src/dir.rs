//! Linear directory blocks: a chain of entries that fills the block exactly.
//!
//! ```text
//!  entry: inode u32, rec_len u16, name_len u8, file_type u8, name, padding to 4
//!  block: [entry][entry]...[entry whose rec_len reaches the end or the tail]
//!  tail (metadata_csum), 12 bytes: inode 0, rec_len 12, name_len 0, type 0xDE, crc32c of the rest
//! ```
//!
//! An entry with inode 0 is free space. Iteration validates as `ext4_check_dir_entry` does and
//! never leaves the block; it ends at the first bad entry. Names are bytes. Tested in
//! `tests/it/rejections.rs` (also
//! against a simple model, proptest) and in `tests/it/images.rs`.

use crate::bytes::{le16, le32, put_bytes, put_le16, put_le32, put_u8, u8_at};
use crate::checksum;
use crate::error::{OndiskError, Result};

const WHAT: &str = "directory block";
/// Bytes of the checksum tail.
pub const TAIL_BYTES: usize = 12;
/// Longest name in bytes.
pub const NAME_MAX: usize = 255;
/// `file_type` of the tail.
const TAIL_FILE_TYPE: u8 = 0xde;
const HEADER_BYTES: usize = 8;

/// `file_type` of an entry.
pub mod file_type {
    /// Not known, or no `filetype` feature.
    pub const UNKNOWN: u8 = 0;
    /// Regular file.
    pub const REG_FILE: u8 = 1;
    /// Directory.
    pub const DIR: u8 = 2;
    /// Character device.
    pub const CHRDEV: u8 = 3;
    /// Block device.
    pub const BLKDEV: u8 = 4;
    /// FIFO.
    pub const FIFO: u8 = 5;
    /// Socket.
    pub const SOCK: u8 = 6;
    /// Symbolic link.
    pub const SYMLINK: u8 = 7;

    /// The entry type for an `i_mode`.
    #[must_use]
    pub fn from_mode(i_mode: u16) -> u8 {
        match i_mode & crate::inode::S_IFMT {
            crate::inode::S_IFREG => REG_FILE,
            crate::inode::S_IFDIR => DIR,
            crate::inode::S_IFCHR => CHRDEV,
            crate::inode::S_IFBLK => BLKDEV,
            crate::inode::S_IFIFO => FIFO,
            crate::inode::S_IFSOCK => SOCK,
            crate::inode::S_IFLNK => SYMLINK,
            _ => UNKNOWN,
        }
    }
}

/// Properties shared by all directory blocks of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirFormat {
    /// True if blocks end in a checksum tail (`metadata_csum`).
    pub tail: bool,
    /// True if entries hold file types (`filetype`).
    pub filetype: bool,
    /// Largest inode number an entry may hold.
    pub inodes_count: u32,
}

impl DirFormat {
    /// The format of this file system.
    #[must_use]
    pub fn new(sb: &crate::superblock::Superblock) -> Self {
        Self {
            tail: sb.has_metadata_csum(),
            filetype: sb.s_feature_incompat.contains(crate::features::IncompatFeatures::FILETYPE),
            inodes_count: sb.s_inodes_count,
        }
    }

    /// Bytes of a block that entries may use.
    pub(crate) fn usable(&self, block: &[u8]) -> usize {
        if self.tail { block.len().saturating_sub(TAIL_BYTES) } else { block.len() }
    }
}

/// Bytes an entry with a name of `name_len` bytes needs.
#[inline]
#[must_use]
pub fn entry_bytes(name_len: usize) -> usize {
    (name_len + HEADER_BYTES + 3) & !3
}

/// `rec_len` from its 16 bits on disk; in blocks of 64 KiB the low bits hold what does not fit.
#[inline]
#[must_use]
pub fn rec_len_from_disk(raw: u16, block_size: usize) -> usize {
    let len = usize::from(raw);
    if block_size < 65536 {
        len
    } else if raw == 0xffff || raw == 0 {
        block_size
    } else {
        len & 0xfffc | (len & 3) << 16
    }
}

/// The 16 bits on disk of a `rec_len`.
#[inline]
#[must_use]
pub fn rec_len_to_disk(len: usize, block_size: usize) -> u16 {
    if block_size >= 65536 && len >= 65536 {
        return 0xffff;
    }
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// One entry, borrowed from its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// Byte offset of the entry in the block.
    pub offset: usize,
    /// Inode number; 0 is free space.
    pub inode: u32,
    /// Distance to the next entry, in bytes.
    pub rec_len: usize,
    /// `file_type::*`; [`file_type::UNKNOWN`] without the `filetype` feature.
    pub file_type: u8,
    /// The name, 0..=255 bytes.
    pub name: &'a [u8],
}

impl Dirent<'_> {
    /// True if the name is valid: not empty, no slash, no NUL.
    #[must_use]
    pub fn has_valid_name(&self) -> bool {
        !self.name.is_empty() && !self.name.iter().any(|b| *b == b'/' || *b == 0)
    }

    /// Hash and minor hash behind the name in `block`, which entries of encrypted directories that
    /// fold case hold; 0 where there is no room for them.
    #[must_use]
    pub fn stored_hash(&self, block: &[u8]) -> [u32; 2] {
        let at = entry_bytes(self.name.len());
        if self.rec_len < at + 8 {
            return [0; 2];
        }
        [le32(block, self.offset + at), le32(block, self.offset + at + 4)]
    }

    /// Bytes of the entry that its name does not need (all of a free one).
    fn free_bytes(&self) -> usize {
        if self.inode == 0 { self.rec_len } else { self.rec_len - entry_bytes(self.name.len()) }
    }
}

/// Iterator over the entries of a block, free ones included, tail excluded. After an error it ends.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    block: &'a [u8],
    at: usize,
    end: usize,
    format: DirFormat,
}

impl<'a> Entries<'a> {
    /// All entries of `block`.
    #[must_use]
    pub fn new(block: &'a [u8], format: &DirFormat) -> Self {
        Self { block, at: 0, end: format.usable(block), format: *format }
    }

    /// Entries from byte `offset` on, which must be where an entry starts.
    #[must_use]
    pub fn from_offset(block: &'a [u8], format: &DirFormat, offset: usize) -> Self {
        Self { at: offset, ..Self::new(block, format) }
    }

    fn entry(&self) -> Result<Dirent<'a>> {
        let at = self.at;
        let fail = |detail: String| Err(OndiskError::corrupt_at(WHAT, at, detail));
        let (Some(header), left) = (self.block.get(at..at + HEADER_BYTES), self.end - at) else {
            return fail("no room for an entry".into());
        };
        let inode = le32(header, 0);
        let rec_len = rec_len_from_disk(le16(header, 4), self.block.len());
        let name_len = usize::from(u8_at(header, 6));
        if rec_len < entry_bytes(1) || rec_len % 4 != 0 {
            return fail(format!("rec_len {rec_len} is too small or not a multiple of 4"));
        }
        if rec_len > left {
            return fail(format!("rec_len {rec_len} crosses the end of the block"));
        }
        if rec_len < left && left - rec_len < entry_bytes(1) {
            return fail(format!("rec_len {rec_len} leaves no room for a last entry"));
        }
        if rec_len < entry_bytes(name_len) {
            return fail(format!("rec_len {rec_len} is too small for a name of {name_len}"));
        }
        if inode > self.format.inodes_count {
            return fail(format!("inode number {inode} is out of range"));
        }
        if inode != 0 && name_len == 0 {
            return fail(format!("entry of inode {inode} has no name"));
        }
        let start = at + HEADER_BYTES;
        let name = self.block.get(start..start + name_len).unwrap_or(&[]);
        let file_type = if self.format.filetype { u8_at(header, 7) } else { file_type::UNKNOWN };
        Ok(Dirent { offset: at, inode, rec_len, file_type, name })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Dirent<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let entry = self.entry();
        self.at = match &entry {
            Ok(entry) => self.at + entry.rec_len,
            Err(_) => self.end,
        };
        Some(entry)
    }
}

/// The entry called `name`. Corrupt: a bad entry before it.
pub fn find<'a>(block: &'a [u8], format: &DirFormat, name: &[u8]) -> Result<Option<Dirent<'a>>> {
    for entry in Entries::new(block, format) {
        let entry = entry?;
        if entry.inode != 0 && entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// The entry at `offset`, and the one before it in the block (that a removal would extend).
fn entry_at(block: &[u8], format: &DirFormat, offset: usize) -> Result<(Option<usize>, usize)> {
    let mut previous = None;
    for entry in Entries::new(block, format) {
        let entry = entry?;
        if entry.offset == offset {
            return Ok((previous, entry.rec_len));
        }
        previous = Some(entry.offset);
    }
    Err(OndiskError::usage(WHAT, format!("no entry starts at byte {offset}")))
}

/// Largest number of bytes one new entry could use.
pub fn max_free(block: &[u8], format: &DirFormat) -> Result<usize> {
    let mut most = 0;
    for entry in Entries::new(block, format) {
        most = most.max(entry?.free_bytes());
    }
    Ok(most)
}

/// True if a block holds no entries other than `.` and `..`.
pub fn is_empty(block: &[u8], format: &DirFormat) -> Result<bool> {
    for entry in Entries::new(block, format) {
        let entry = entry?;
        if entry.inode != 0 && entry.name != b"." && entry.name != b".." {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes one entry's bytes.
pub(crate) fn put_entry(
    block: &mut [u8],
    format: &DirFormat,
    offset: usize,
    rec_len: usize,
    entry: (u32, u8, &[u8]),
) {
    let (inode, file_type, name) = entry;
    let raw_len = rec_len_to_disk(rec_len, block.len());
    put_le32(block, offset, inode);
    put_le16(block, offset + 4, raw_len);
    put_u8(block, offset + 6, name.len().to_le_bytes()[0]);
    put_u8(block, offset + 7, if format.filetype { file_type } else { 0 });
    put_bytes(block, offset + HEADER_BYTES, name);
}

/// Sets the `rec_len` of the entry at `offset`.
pub(crate) fn set_rec_len(block: &mut [u8], offset: usize, rec_len: usize) {
    let raw_len = rec_len_to_disk(rec_len, block.len());
    put_le16(block, offset + 4, raw_len);
}

/// Adds an entry in the first place with room, splitting an entry's `rec_len`
/// (`add_dirent_to_buf`). Returns its offset. Full: no place has room. Usage: a name that no entry
/// can have. Whether the name exists already is not checked.
pub fn insert(
    block: &mut [u8],
    format: &DirFormat,
    name: &[u8],
    inode: u32,
    file_type: u8,
) -> Result<usize> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(OndiskError::usage(WHAT, format!("a name of {} bytes", name.len())));
    }
    let need = entry_bytes(name.len());
    let mut place = None;
    for entry in Entries::new(block, format) {
        let entry = entry?;
        if entry.free_bytes() >= need {
            let used = if entry.inode == 0 { 0 } else { entry_bytes(entry.name.len()) };
            place = Some((entry.offset, used, entry.rec_len));
            break;
        }
    }
    let Some((offset, used, rec_len)) = place else {
        return Err(OndiskError::Full { what: WHAT });
    };
    if used > 0 {
        set_rec_len(block, offset, used);
    }
    put_entry(block, format, offset + used, rec_len - used, (inode, file_type, name));
    Ok(offset + used)
}

/// Removes the entry at `offset`: its space goes to the entry before it, or, for the first in the
/// block, it becomes free space (`ext4_generic_delete_entry`). The bytes are zeroed, as Linux does.
pub fn remove(block: &mut [u8], format: &DirFormat, offset: usize) -> Result<()> {
    let (previous, rec_len) = entry_at(block, format, offset)?;
    match previous {
        Some(previous) => {
            let merged = rec_len_to_disk(offset - previous + rec_len, block.len());
            put_le16(block, previous + 4, merged);
            if let Some(bytes) = block.get_mut(offset..offset + rec_len) {
                bytes.fill(0);
            }
        }
        None => {
            put_le32(block, offset, 0);
            if let Some(bytes) = block.get_mut(offset + 6..offset + rec_len) {
                bytes.fill(0);
            }
        }
    }
    Ok(())
}

/// Points the entry at `offset` to another inode, the name stays (rename over, `..` of a move).
pub fn set_inode(
    block: &mut [u8],
    format: &DirFormat,
    offset: usize,
    inode: u32,
    file_type: u8,
) -> Result<()> {
    entry_at(block, format, offset)?;
    put_le32(block, offset, inode);
    if format.filetype {
        put_u8(block, offset + 7, file_type);
    }
    Ok(())
}

/// Makes a block that is all free space, with a tail where the format has one (its checksum unset).
pub fn init_empty(block: &mut [u8], format: &DirFormat) {
    block.fill(0);
    put_entry(block, format, 0, format.usable(block), (0, 0, b""));
    init_tail(block, format);
}

/// Makes the first block of a directory: `.` and `..`.
pub fn init_dots(block: &mut [u8], format: &DirFormat, ino: u32, parent: u32) {
    block.fill(0);
    let dot = entry_bytes(1);
    put_entry(block, format, 0, dot, (ino, file_type::DIR, b"."));
    let rest = format.usable(block).saturating_sub(dot);
    put_entry(block, format, dot, rest, (parent, file_type::DIR, b".."));
    init_tail(block, format);
}

/// Fills a block from its start, one entry behind the other.
#[derive(Debug)]
pub struct Filler<'a> {
    block: &'a mut [u8],
    format: DirFormat,
    /// The last entry, whose `rec_len` reaches the end; none in an empty block.
    last: Option<usize>,
    /// First byte behind the last name.
    at: usize,
}

impl<'a> Filler<'a> {
    /// Makes an empty block.
    pub fn new(block: &'a mut [u8], format: &DirFormat) -> Self {
        init_empty(block, format);
        Self { block, format: *format, last: None, at: 0 }
    }

    /// Makes the first block of a directory.
    pub fn with_dots(block: &'a mut [u8], format: &DirFormat, ino: u32, parent: u32) -> Self {
        init_dots(block, format, ino, parent);
        let last = entry_bytes(1);
        Self { block, format: *format, last: Some(last), at: last + entry_bytes(2) }
    }

    /// Adds an entry with a valid name. False: it has no room.
    pub fn push(&mut self, name: &[u8], inode: u32, file_type: u8) -> bool {
        let rest = self.format.usable(self.block) - self.at;
        if name.len() > NAME_MAX || entry_bytes(name.len()) > rest {
            return false;
        }
        if let Some(last) = self.last {
            set_rec_len(self.block, last, self.at - last);
        }
        put_entry(self.block, &self.format, self.at, rest, (inode, file_type, name));
        self.last = Some(self.at);
        self.at += entry_bytes(name.len());
        true
    }
}

/// Returns a block with the entries of a damaged one that can be made out, in their order.
#[must_use]
pub fn salvage(block: &[u8], format: &DirFormat) -> Vec<u8> {
    let mut kept = vec![0; block.len()];
    let mut filler = Filler::new(&mut kept, format);
    let mut at = 0;
    while at < format.usable(block) {
        match Entries::from_offset(block, format, at).next() {
            Some(Ok(entry)) if entry.inode == 0 => at += entry.rec_len,
            Some(Ok(entry)) if entry.has_valid_name() && entry.file_type <= file_type::SYMLINK => {
                filler.push(entry.name, entry.inode, entry.file_type);
                at += entry.rec_len;
            }
            _ => at += 4,
        }
    }
    init_tail(&mut kept, format);
    kept
}

/// Writes the tail, its checksum zero. Nothing where the format has none.
pub fn init_tail(block: &mut [u8], format: &DirFormat) {
    if !format.tail {
        return;
    }
    let at = format.usable(block);
    put_le32(block, at, 0);
    put_le16(block, at + 4, 12);
    put_u8(block, at + 6, 0);
    put_u8(block, at + 7, TAIL_FILE_TYPE);
    put_le32(block, at + 8, 0);
}

/// True if the block ends in a well-formed tail.
#[must_use]
pub fn has_tail(block: &[u8]) -> bool {
    let at = block.len().saturating_sub(TAIL_BYTES);
    le32(block, at) == 0
        && le16(block, at + 4) == 12
        && u8_at(block, at + 6) == 0
        && u8_at(block, at + 7) == TAIL_FILE_TYPE
}

/// Stores the checksum in the tail. `inode_seed` as in [`checksum::inode_seed`]. Nothing where the
/// format has no tail.
pub fn set_checksum(block: &mut [u8], format: &DirFormat, inode_seed: u32) {
    if !format.tail {
        return;
    }
    let at = format.usable(block);
    let crc = checksum::crc32c(inode_seed, block.get(..at).unwrap_or(&[]));
    put_le32(block, at + 8, crc);
}

/// Checks tail and checksum of a linear block; fine where the format has none. Blocks of an index
/// ([`crate::htree`]) have their own.
pub fn verify_checksum(block: &[u8], format: &DirFormat, inode_seed: u32) -> Result<()> {
    if !format.tail {
        return Ok(());
    }
    let at = format.usable(block);
    if !has_tail(block) {
        return Err(OndiskError::corrupt_at(WHAT, at, "no checksum tail; run `e2fsck -D`"));
    }
    let found = checksum::crc32c(inode_seed, block.get(..at).unwrap_or(&[]));
    let stored = le32(block, at + 8);
    if found != stored {
        let detail = format!("checksum is {stored:#x}, bytes give {found:#x}");
        return Err(OndiskError::corrupt_at(WHAT, at + 8, detail));
    }
    Ok(())
}
