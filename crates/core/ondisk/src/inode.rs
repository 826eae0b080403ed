//! Inodes: 128 bytes of ext2, then as many extra fields as `i_extra_isize` says, then xattrs.
//!
//! ```text
//!  0x00 mode uid size_lo atime ctime mtime dtime gid links blocks_lo flags version
//!  0x28 i_block[60]: extent root, block map, fast symlink or device number
//!  0x64 generation file_acl_lo size_high ...  0x74 high halves, checksum_lo
//!  0x80 extra_isize checksum_hi | ctime_extra mtime_extra atime_extra crtime ... projid 0xA0
//!  0x80 + extra_isize: in-inode xattrs up to the inode size
//! ```
//!
//! A time is a signed 32-bit second count plus an extra word of 2 epoch bits and 30 bits of
//! nanoseconds, which reaches from 1901 to 2446; without the extra word it ends in 2038 and has
//! whole seconds. Fields beyond `i_extra_isize` read as zero and are not written. Tested in
//! `tests/it/rejections.rs` and `images.rs`.

use std::ops::Range;

use crate::bytes::{
    array_at, hi16, hi32, join16, join32, le16, le32, lo16, lo32, put_bytes, put_le16, put_le32,
};
use crate::checksum;
use crate::error::{OndiskError, Result};

const WHAT: &str = "inode";
/// Bytes of an ext2 inode.
pub const GOOD_OLD_INODE_SIZE: usize = 128;
/// Bytes of `i_block`.
pub const I_BLOCK_BYTES: usize = 60;
/// `i_extra_isize` that covers every field known here.
pub const EXTRA_ISIZE_FULL: u16 = 32;

/// Offset of `i_block`.
pub const I_BLOCK_OFFSET: usize = 0x28;
const BLOCKS_LO: usize = 0x1c;
const CHECKSUM_LO: usize = 0x7c;
const CHECKSUM_HI: usize = 0x82;

/// `i_mode`: the type bits.
pub const S_IFMT: u16 = 0xf000;
/// `i_mode`: socket.
pub const S_IFSOCK: u16 = 0xc000;
/// `i_mode`: symbolic link.
pub const S_IFLNK: u16 = 0xa000;
/// `i_mode`: regular file.
pub const S_IFREG: u16 = 0x8000;
/// `i_mode`: block device.
pub const S_IFBLK: u16 = 0x6000;
/// `i_mode`: directory.
pub const S_IFDIR: u16 = 0x4000;
/// `i_mode`: character device.
pub const S_IFCHR: u16 = 0x2000;
/// `i_mode`: FIFO.
pub const S_IFIFO: u16 = 0x1000;

/// `i_mode`: set-user-id.
pub const S_ISUID: u16 = 0o4000;
/// `i_mode`: set-group-id.
pub const S_ISGID: u16 = 0o2000;
/// `i_mode`: execution by the group.
pub const S_IXGRP: u16 = 0o0010;

/// `i_flags` bits (`EXT4_*_FL`).
pub mod flags {
    /// Synchronous updates.
    pub const SYNC: u32 = 0x8;
    /// No changes allowed.
    pub const IMMUTABLE: u32 = 0x10;
    /// Only appends allowed.
    pub const APPEND: u32 = 0x20;
    /// Not for dump.
    pub const NODUMP: u32 = 0x40;
    /// No access time updates.
    pub const NOATIME: u32 = 0x80;
    /// Encrypted.
    pub const ENCRYPT: u32 = 0x800;
    /// Directory with an htree index.
    pub const INDEX: u32 = 0x1000;
    /// Data is journaled.
    pub const JOURNAL_DATA: u32 = 0x4000;
    /// Synchronous directory updates.
    pub const DIRSYNC: u32 = 0x1_0000;
    /// Top of a directory hierarchy (Orlov allocator).
    pub const TOPDIR: u32 = 0x2_0000;
    /// `i_blocks` counts file system blocks.
    pub const HUGE_FILE: u32 = 0x4_0000;
    /// `i_block` is an extent tree.
    pub const EXTENTS: u32 = 0x8_0000;
    /// fs-verity.
    pub const VERITY: u32 = 0x10_0000;
    /// The inode holds the value of a large xattr.
    pub const EA_INODE: u32 = 0x20_0000;
    /// Data is in the inode.
    pub const INLINE_DATA: u32 = 0x1000_0000;
    /// Project id is inherited.
    pub const PROJINHERIT: u32 = 0x2000_0000;
    /// Case-insensitive directory.
    pub const CASEFOLD: u32 = 0x4000_0000;
    /// Flags that a new file inherits from its directory (`EXT4_FL_INHERITED`).
    pub const INHERITED: u32 = 0x1
        | 0x2
        | 0x4
        | SYNC
        | NODUMP
        | NOATIME
        | 0x400
        | JOURNAL_DATA
        | 0x8000
        | DIRSYNC
        | PROJINHERIT
        | CASEFOLD;
}

/// A point in time: seconds since 1970 (negative before) and nanoseconds in 0..1e9 after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: i64,
    /// Nanoseconds of the second.
    pub nanoseconds: u32,
}

/// Earliest second an inode can hold (1901-12-13).
pub const TIME_MIN_SECONDS: i64 = i32::MIN as i64;
/// Latest second with the extra word (2446-05-10).
pub const TIME_MAX_SECONDS: i64 = i32::MAX as i64 + 3 * (1i64 << 32);

impl Timestamp {
    fn from_disk(seconds: u32, extra: u32) -> Self {
        let low = i64::from(seconds as i32);
        Self { seconds: low + (i64::from(extra & 3) << 32), nanoseconds: extra >> 2 }
    }

    /// The nearest time that an inode can hold, with or without the extra word
    /// (`timestamp_truncate`): whole seconds without it, and where it was out of range. Linux also
    /// drops the fraction of the first and the last second, which an inode can hold.
    #[must_use]
    pub fn fitted(self, with_extra: bool) -> Self {
        let max = if with_extra { TIME_MAX_SECONDS } else { i64::from(i32::MAX) };
        let seconds = self.seconds.clamp(TIME_MIN_SECONDS, max);
        let whole = !with_extra || seconds != self.seconds;
        Self { seconds, nanoseconds: if whole { 0 } else { self.nanoseconds } }
    }

    /// The two words. A time out of range is clamped to the nearest one that can be held.
    fn to_disk(self, with_extra: bool) -> (u32, u32) {
        let max = if with_extra { TIME_MAX_SECONDS } else { i64::from(i32::MAX) };
        let seconds = self.seconds.clamp(TIME_MIN_SECONDS, max);
        let low = lo32(seconds as u64);
        let epoch = (seconds - i64::from(low as i32)) >> 32;
        let nanoseconds = self.nanoseconds & 0x3fff_ffff;
        (low, nanoseconds << 2 | (lo32(epoch as u64) & 3))
    }
}

/// An inode's fields. Times have nanoseconds only if [`Inode::i_extra_isize`] covers them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_field_names)]
pub struct Inode {
    /// Type and permissions.
    pub i_mode: u16,
    /// Owner, 32 bits.
    pub i_uid: u32,
    /// Group, 32 bits.
    pub i_gid: u32,
    /// Size in bytes, 64 bits for every type.
    pub i_size: u64,
    /// Hard links.
    pub i_links_count: u16,
    /// Space used, in units that [`flags::HUGE_FILE`] selects; see [`Inode::sectors`].
    pub i_blocks: u64,
    /// `flags::*`.
    pub i_flags: u32,
    /// Low word of the version (NFS change counter).
    pub i_version_lo: u32,
    /// High word of the version.
    pub i_version_hi: u32,
    /// Extent root, block map, fast symlink target or device number.
    pub i_block: [u8; I_BLOCK_BYTES],
    /// Generation, part of the checksum seed.
    pub i_generation: u32,
    /// Block of the xattr block, 48 bits; 0 is none.
    pub i_file_acl: u64,
    /// Deletion time in seconds; in an orphan the next inode of the list.
    pub i_dtime: u32,
    /// Last access.
    pub i_atime: Timestamp,
    /// Last inode change.
    pub i_ctime: Timestamp,
    /// Last data change.
    pub i_mtime: Timestamp,
    /// Creation; zero where the inode does not hold it.
    pub i_crtime: Timestamp,
    /// Bytes of extra fields after the first 128; 0 in 128-byte inodes.
    pub i_extra_isize: u16,
    /// Project id.
    pub i_projid: u32,
    /// Checksum as read (16 bits where the high half is not held).
    pub i_checksum: u32,
}

impl Inode {
    /// An inode with everything zero but mode and `i_extra_isize`.
    #[must_use]
    pub fn new(i_mode: u16, i_extra_isize: u16) -> Self {
        Self {
            i_mode,
            i_uid: 0,
            i_gid: 0,
            i_size: 0,
            i_links_count: 0,
            i_blocks: 0,
            i_flags: 0,
            i_version_lo: 0,
            i_version_hi: 0,
            i_block: [0; I_BLOCK_BYTES],
            i_generation: 0,
            i_file_acl: 0,
            i_dtime: 0,
            i_atime: Timestamp::default(),
            i_ctime: Timestamp::default(),
            i_mtime: Timestamp::default(),
            i_crtime: Timestamp::default(),
            i_extra_isize,
            i_projid: 0,
            i_checksum: 0,
        }
    }

    /// Reads an inode of `raw.len()` bytes. Corrupt: shorter than 128 bytes, or `i_extra_isize`
    /// odd or past the end. A free (all zero) inode decodes.
    pub fn decode(raw: &[u8]) -> Result<Self> {
        if raw.len() < GOOD_OLD_INODE_SIZE {
            return Err(OndiskError::corrupt(WHAT, format!("only {} bytes", raw.len())));
        }
        let i_extra_isize = le16(raw, 0x80);
        let end = GOOD_OLD_INODE_SIZE + usize::from(i_extra_isize);
        if raw.len() > GOOD_OLD_INODE_SIZE && (end > raw.len() || i_extra_isize % 4 != 0) {
            let detail = format!("i_extra_isize {i_extra_isize} is not a multiple of 4 in range");
            return Err(OndiskError::corrupt_at(WHAT, 0x80, detail));
        }
        // Bytes past the extra fields are xattrs: cut there, and they read as zero.
        let full = raw;
        let raw = full.get(..end).unwrap_or(full);
        let time = |at, extra| Timestamp::from_disk(le32(raw, at), le32(raw, extra));
        Ok(Self {
            i_mode: le16(raw, 0x00),
            i_uid: join16(le16(raw, 0x02), le16(raw, 0x78)),
            i_gid: join16(le16(raw, 0x18), le16(raw, 0x7a)),
            i_size: join32(le32(raw, 0x04), le32(raw, 0x6c)),
            i_links_count: le16(raw, 0x1a),
            i_blocks: join32(le32(raw, BLOCKS_LO), le16(raw, 0x74).into()),
            i_flags: le32(raw, 0x20),
            i_version_lo: le32(raw, 0x24),
            i_version_hi: le32(raw, 0x98),
            i_block: array_at(raw, I_BLOCK_OFFSET),
            i_generation: le32(raw, 0x64),
            i_file_acl: join32(le32(raw, 0x68), le16(raw, 0x76).into()),
            i_dtime: le32(raw, 0x14),
            i_atime: time(0x08, 0x8c),
            i_ctime: time(0x0c, 0x84),
            i_mtime: time(0x10, 0x88),
            i_crtime: time(0x90, 0x94),
            i_extra_isize: if raw.len() > GOOD_OLD_INODE_SIZE { i_extra_isize } else { 0 },
            i_projid: le32(raw, 0x9c),
            i_checksum: join16(le16(raw, CHECKSUM_LO), le16(raw, CHECKSUM_HI)),
        })
    }

    /// Writes the fields over `raw`, whose length is the inode size. `csum_seed` is
    /// `Some(checksum::inode_seed(..))` with `metadata_csum`: the checksum of the result, xattrs
    /// included, is then stored. Usage error: `raw` cannot hold the extra fields.
    pub fn encode_into(&self, raw: &mut [u8], csum_seed: Option<u32>) -> Result<()> {
        let end = GOOD_OLD_INODE_SIZE + usize::from(self.i_extra_isize);
        if raw.len() < end {
            return Err(OndiskError::usage(WHAT, format!("{} bytes, needs {end}", raw.len())));
        }
        if raw.len() > GOOD_OLD_INODE_SIZE {
            put_le16(raw, 0x80, self.i_extra_isize);
        }
        if let Some(fields) = raw.get_mut(..end) {
            self.encode_fields(fields);
        }
        if let Some(seed) = csum_seed {
            Self::set_checksum(raw, seed);
        }
        Ok(())
    }

    /// Stores the checksum of an inode's bytes, at least 128.
    pub fn set_checksum(raw: &mut [u8], inode_seed: u32) {
        let crc = Self::checksum_of(raw, inode_seed);
        put_le16(raw, CHECKSUM_LO, lo16(crc));
        if has_checksum_hi(raw) {
            put_le16(raw, CHECKSUM_HI, hi16(crc));
        }
    }

    /// Makes the times what this inode holds of them, as [`Inode::i_extra_isize`] says: no reader
    /// sees a time that is another one after the next mount.
    pub fn fit_times(&mut self) {
        let end = GOOD_OLD_INODE_SIZE + usize::from(self.i_extra_isize);
        let times = [
            (&mut self.i_atime, 0x8c),
            (&mut self.i_ctime, 0x84),
            (&mut self.i_mtime, 0x88),
            (&mut self.i_crtime, 0x94),
        ];
        for (time, extra_at) in times {
            *time = time.fitted(end >= extra_at + 4);
        }
        if end < 0x90 + 4 {
            self.i_crtime = Timestamp::default();
        }
    }

    /// True if mtime and ctime keep their nanoseconds.
    pub fn has_fine_times(&self) -> bool {
        self.i_extra_isize >= 0x8c - GOOD_OLD_INODE_SIZE as u16
    }

    fn encode_fields(&self, raw: &mut [u8]) {
        put_le16(raw, 0x00, self.i_mode);
        put_le16(raw, 0x02, lo16(self.i_uid));
        put_le32(raw, 0x04, lo32(self.i_size));
        put_le32(raw, 0x14, self.i_dtime);
        put_le16(raw, 0x18, lo16(self.i_gid));
        put_le16(raw, 0x1a, self.i_links_count);
        put_le32(raw, BLOCKS_LO, lo32(self.i_blocks));
        put_le32(raw, 0x20, self.i_flags);
        put_le32(raw, 0x24, self.i_version_lo);
        put_bytes(raw, I_BLOCK_OFFSET, &self.i_block);
        put_le32(raw, 0x64, self.i_generation);
        put_le32(raw, 0x68, lo32(self.i_file_acl));
        put_le32(raw, 0x6c, hi32(self.i_size));
        put_le16(raw, 0x74, lo16(hi32(self.i_blocks)));
        put_le16(raw, 0x76, lo16(hi32(self.i_file_acl)));
        put_le16(raw, 0x78, hi16(self.i_uid));
        put_le16(raw, 0x7a, hi16(self.i_gid));
        let times = [
            (self.i_atime, 0x08, 0x8c),
            (self.i_ctime, 0x0c, 0x84),
            (self.i_mtime, 0x10, 0x88),
            (self.i_crtime, 0x90, 0x94),
        ];
        for (time, at, extra_at) in times {
            let (seconds, extra) = time.to_disk(raw.len() >= extra_at + 4);
            put_le32(raw, at, seconds);
            put_le32(raw, extra_at, extra);
        }
        put_le32(raw, 0x98, self.i_version_hi);
        put_le32(raw, 0x9c, self.i_projid);
    }

    /// crc32c of an inode's bytes with both checksum fields as zero (`ext4_inode_csum`); the low
    /// 16 bits where the high half is not held.
    #[must_use]
    pub fn checksum_of(raw: &[u8], inode_seed: u32) -> u32 {
        let part = |range: Range<usize>| raw.get(range).unwrap_or(&[]);
        let crc = checksum::crc32c(inode_seed, part(0..CHECKSUM_LO));
        let crc = checksum::crc32c(crc, &[0; 2]);
        let crc = checksum::crc32c(crc, part(CHECKSUM_LO + 2..GOOD_OLD_INODE_SIZE));
        if !has_checksum_hi(raw) {
            let rest = raw.get(GOOD_OLD_INODE_SIZE..).unwrap_or(&[]);
            return checksum::crc32c(crc, rest) & 0xffff;
        }
        let crc = checksum::crc32c(crc, part(GOOD_OLD_INODE_SIZE..CHECKSUM_HI));
        let crc = checksum::crc32c(crc, &[0; 2]);
        checksum::crc32c(crc, part(CHECKSUM_HI + 2..raw.len()))
    }

    /// Checks the checksum of the bytes this was decoded from.
    pub fn verify_checksum(&self, raw: &[u8], inode_seed: u32) -> Result<()> {
        let found = Self::checksum_of(raw, inode_seed);
        let stored = if has_checksum_hi(raw) { self.i_checksum } else { self.i_checksum & 0xffff };
        if found != stored {
            let detail = format!("checksum is {stored:#x}, bytes give {found:#x}");
            return Err(OndiskError::corrupt_at(WHAT, CHECKSUM_LO, detail));
        }
        Ok(())
    }

    /// Byte range of the in-inode xattr area (magic included) in an inode of `inode_size` bytes.
    /// `None` where there is no room for one.
    #[must_use]
    pub fn xattr_range(&self, inode_size: usize) -> Option<Range<usize>> {
        let start = GOOD_OLD_INODE_SIZE + usize::from(self.i_extra_isize);
        let usable = self.i_extra_isize > 0 && inode_size >= start + 4;
        usable.then_some(start..inode_size)
    }

    /// The type bits of the mode.
    #[inline]
    #[must_use]
    pub fn file_type(&self) -> u16 {
        self.i_mode & S_IFMT
    }

    /// True if the inode is a directory.
    #[inline]
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type() == S_IFDIR
    }

    /// True if the inode is a regular file.
    #[inline]
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type() == S_IFREG
    }

    /// True if the inode is a symbolic link.
    #[inline]
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.file_type() == S_IFLNK
    }

    /// True if all bits of `flag` are set.
    #[inline]
    #[must_use]
    pub fn has_flag(&self, flag: u32) -> bool {
        self.i_flags & flag == flag
    }

    /// True if the target of a symbolic link is stored in `i_block`: such a link owns no blocks
    /// except an xattr block, a cluster of `cluster_size` bytes (without `bigalloc` a block). With
    /// `ea_inode` it counts those of its values, too, and its size decides, as in Linux.
    #[must_use]
    pub fn is_fast_symlink(&self, cluster_size: usize, ea_inode: bool) -> bool {
        let is_short = self.i_size < I_BLOCK_BYTES as u64 && !self.has_flag(flags::INLINE_DATA);
        let by_size = ea_inode && self.i_size > 0 && !self.has_flag(flags::EXTENTS);
        let xattr = if self.i_file_acl == 0 { 0 } else { cluster_size as u64 / 512 };
        self.is_symlink() && is_short && (by_size || self.sectors(cluster_size) == xattr)
    }

    /// Target of a fast symlink. `None`: not one, or the size does not fit.
    #[must_use]
    pub fn fast_symlink_target(&self, cluster_size: usize, ea_inode: bool) -> Option<&[u8]> {
        if !self.is_fast_symlink(cluster_size, ea_inode) {
            return None;
        }
        self.i_block.get(..usize::try_from(self.i_size).ok()?)
    }

    /// Space used in 512-byte sectors.
    #[must_use]
    pub fn sectors(&self, block_size: usize) -> u64 {
        if self.has_flag(flags::HUGE_FILE) {
            self.i_blocks.saturating_mul(block_size as u64 / 512)
        } else {
            self.i_blocks
        }
    }

    /// Sets `i_blocks` and its unit flag (`ext4_inode_blocks_set`). Usage error: too large to hold;
    /// the caller answers EFBIG.
    pub fn set_sectors(&mut self, sectors: u64, block_size: usize, huge_file: bool) -> Result<()> {
        let per_block = (block_size as u64 / 512).max(1);
        let too_large = || OndiskError::usage(WHAT, format!("{sectors} sectors are too many"));
        if sectors <= u64::from(u32::MAX) || (huge_file && sectors < 1 << 48) {
            self.i_flags &= !flags::HUGE_FILE;
            self.i_blocks = sectors;
        } else if huge_file && sectors / per_block < 1 << 48 {
            self.i_flags |= flags::HUGE_FILE;
            self.i_blocks = sectors / per_block;
        } else {
            return Err(too_large());
        }
        Ok(())
    }

    /// Device number (major, minor) of a block or character device.
    #[must_use]
    pub fn device_number(&self) -> (u32, u32) {
        let (old, new) = (le32(&self.i_block, 0), le32(&self.i_block, 4));
        if old != 0 {
            (old >> 8 & 0xff, old & 0xff)
        } else {
            (new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xf_ff00)
        }
    }

    /// Stores a device number: 8:8 bits where it fits, else Linux's 12:20 bits.
    pub fn set_device_number(&mut self, major: u32, minor: u32) {
        self.i_block.fill(0);
        if major < 256 && minor < 256 {
            put_le32(&mut self.i_block, 0, major << 8 | minor);
        } else {
            let new = minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12;
            put_le32(&mut self.i_block, 4, new);
        }
    }
}

/// True if the inode is long enough to hold `i_checksum_hi`.
fn has_checksum_hi(raw: &[u8]) -> bool {
    raw.len() > GOOD_OLD_INODE_SIZE && le16(raw, 0x80) >= 4
}
