//! Values of attributes in inodes of their own (`ea_inode`): what the entry says, and what the
//! inode says in fields that mean something else in files.
//!
//! ```text
//!  entry: e_value_inum, e_value_size, e_hash = name and hash of the value
//!  inode: EA_INODE, i_size = e_value_size, atime = hash, ctime and version = users
//!  old Lustre: no hash, no count; mtime = the file's number, and the file's generation
//! ```
//!
//! Tested in `syncline-fs` on values that Linux wrote.

use crate::bytes::lo32;
use crate::inode::{Inode, Timestamp};
use crate::xattr::{entry_hash, entry_hash_signed};

/// A value in an inode of its own, as its entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outside {
    /// `e_value_inum`, not 0.
    pub inum: u32,
    /// `e_value_size`.
    pub size: u32,
    /// `e_hash`.
    pub hash: u32,
}

/// Fields that an inode with a value (`EA_INODE`) has in places of others (fs/ext4/xattr.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueInode {
    /// crc32c of the value (`i_atime`).
    pub hash: u32,
    /// Entries that name it (`i_ctime` and the version); old Lustre has none.
    pub users: u64,
    /// The one file whose it is, as old Lustre wrote it (`i_mtime`).
    pub parent: u32,
    /// `i_generation`.
    generation: u32,
}

impl ValueInode {
    /// From the inode.
    #[must_use]
    pub fn new(raw: &Inode) -> Self {
        let low = |time: Timestamp| lo32(time.seconds as u64);
        Self {
            hash: low(raw.i_atime),
            users: u64::from(low(raw.i_ctime)) << 32 | u64::from(raw.i_version_lo),
            parent: low(raw.i_mtime),
            generation: raw.i_generation,
        }
    }

    /// True if old Lustre wrote it for this file: it has no hash and counts no users.
    #[must_use]
    pub fn is_lustre(&self, entry: &Outside, ino: u32, generation: u32) -> bool {
        entry.hash != self.hash && self.parent == ino && self.generation == generation
    }

    /// True if an entry of this name and hash belongs to it. Kernels before 6.2 took the name's
    /// bytes for signed.
    #[must_use]
    pub fn has_entry(&self, name: &[u8], entry: &Outside) -> bool {
        let value = self.hash.to_le_bytes();
        entry.hash == entry_hash(name, &value) || entry.hash == entry_hash_signed(name, &value)
    }
}
