//! Values of attributes in inodes of their own (`ea_inode`): what the entry says, and what the
//! inode says in fields that mean something else in files.
//!
//! ```text
//!  entry: e_value_inum, e_value_size, e_hash = name and hash of the value
//!  inode: EA_INODE, i_size = e_value_size, atime = hash, ctime and version = users
//!  old Lustre: no hash, no count; mtime = the file's number, and the file's generation
//! ```
//!
//! Tested here, and in `syncline-fs` on values that Linux wrote and reads.

use crate::bytes::{hi32, lo32};
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

impl Outside {
    /// The entry of attribute `name` whose value, with this hash, is in inode `inum`.
    #[must_use]
    pub fn new(inum: u32, size: u32, name: &[u8], value_hash: u32) -> Self {
        Self { inum, size, hash: entry_hash(name, &value_hash.to_le_bytes()) }
    }
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

    /// Puts hash and users of a value into its inode. Without room for the upper bits of times
    /// Linux keeps the lower 32 of the hash as they are.
    pub fn put(raw: &mut Inode, hash: u32, users: u64) {
        let seconds = |low: u32| match raw.has_fine_times() {
            true => i64::from(low),
            false => i64::from(low as i32),
        };
        let at = |seconds| Timestamp { seconds, nanoseconds: 0 };
        let (hash, users_hi) = (at(seconds(hash)), at(seconds(hi32(users))));
        (raw.i_atime, raw.i_ctime) = (hash, users_hi);
        (raw.i_version_lo, raw.i_version_hi) = (lo32(users), 0);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::S_IFREG;

    #[test]
    fn hash_and_users_are_read_back_with_and_without_long_times() {
        for (extra, bytes) in [(32, 256), (0, 128)] {
            for (hash, users) in [(1, 1), (0xffff_fff0, 3), (0x8000_0000, 1 << 32 | 7)] {
                let mut raw = Inode::new(S_IFREG, extra);
                ValueInode::put(&mut raw, hash, users);
                raw.fit_times();
                let mut slot = vec![0; bytes];
                raw.encode_into(&mut slot, None).unwrap();
                let said = ValueInode::new(&Inode::decode(&slot).unwrap());
                assert_eq!((said.hash, said.users), (hash, users), "{bytes} bytes");
            }
        }
        let entry = Outside::new(12, 5, b"name", 77);
        let mut raw = Inode::new(S_IFREG, 32);
        ValueInode::put(&mut raw, 77, 1);
        assert!(ValueInode::new(&raw).has_entry(b"name", &entry));
        assert!(!ValueInode::new(&raw).has_entry(b"other", &entry));
    }
}
