//! Fields of the superblock that Linux changes while it runs, apart from times and counts: what an
//! old volume does not say yet, and features that are set when they are first needed.
//!
//! | when | changed | Linux |
//! | --- | --- | --- |
//! | mount for writing | how names are hashed | `ext4_hash_info_init` |
//! | | revision 1, 20 mounts until a check | `ext4_setup_super` |
//! | corruption found | state, count, first and last error | `save_error_info` |
//! | first attribute | `ext_attr` | `ext4_xattr_update_super_block` |
//! | first file of 2 GiB | `large_file` | `ext4_do_update_inode` |
//!
//! Tested in `syncline-fs`, against Linux.

use crate::bytes::put_bytes;
use crate::features::{CompatFeatures, RoCompatFeatures};
use crate::inode::GOOD_OLD_INODE_SIZE;
use crate::superblock::{
    FLAG_SIGNED_HASH, FLAG_UNSIGNED_HASH, GOOD_OLD_FIRST_INO, STATE_ERROR, Superblock,
};

/// `s_max_mnt_count` where there is none (`EXT4_DFL_MAX_MNT_COUNT`).
const MAX_MNT_COUNT: u16 = 20;

/// Name of the finder of an error, where Linux has that of a function.
const ERROR_FUNC: &[u8] = b"syncline";

/// Longest file of a volume without `large_file`, in bytes.
pub const SMALL_FILE_BYTES_MAX: u64 = 0x7fff_ffff;

/// A feature that is set when it is first needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// `ext_attr`, by an attribute.
    ExtAttr,
    /// `large_file`, by a file above [`SMALL_FILE_BYTES_MAX`].
    LargeFile,
}

/// An error that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundError {
    /// Seconds since 1970.
    pub time_s: u64,
    /// Inode number; 0: none.
    pub inode: u32,
    /// Block; 0: none.
    pub block: u64,
}

/// Errors that were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundErrors {
    /// The first.
    pub first: FoundError,
    /// The newest.
    pub last: FoundError,
    /// Number of all.
    pub count: u32,
}

impl From<FoundError> for FoundErrors {
    fn from(error: FoundError) -> Self {
        Self { first: error, last: error, count: 1 }
    }
}

impl Superblock {
    /// True if the bytes of names are hashed as unsigned characters. Where no flag says which, they
    /// are what `char` is in Linux: unsigned, everywhere since 6.2 (`ext4_hash_info_init`).
    #[must_use]
    pub fn hash_unsigned(&self) -> bool {
        self.s_flags & (FLAG_SIGNED_HASH | FLAG_UNSIGNED_HASH) != FLAG_SIGNED_HASH
    }

    /// Writes down what an old volume does not say, as Linux does when it mounts for writing: how
    /// names are hashed, that the fields of revision 1 hold, how many mounts until a check.
    pub fn modernise(&mut self) {
        let indexed = self.s_feature_compat.contains(CompatFeatures::DIR_INDEX);
        if indexed && self.s_flags & (FLAG_SIGNED_HASH | FLAG_UNSIGNED_HASH) == 0 {
            self.s_flags |= FLAG_UNSIGNED_HASH;
        }
        if self.s_rev_level == 0 {
            self.s_rev_level = 1;
            self.s_first_ino = GOOD_OLD_FIRST_INO;
            self.s_inode_size = GOOD_OLD_INODE_SIZE as u16;
        }
        if self.s_max_mnt_count == 0 {
            self.s_max_mnt_count = MAX_MNT_COUNT;
        }
    }

    /// Notes errors that were found. Their codes stay away: those are in the second sector (see
    /// [`crate::superblock`]).
    pub fn note_errors(&mut self, found: &FoundErrors) {
        let mut func = [0; 32];
        put_bytes(&mut func, 0, ERROR_FUNC);
        self.s_state |= STATE_ERROR;
        if self.s_error_count == 0 {
            self.s_first_error_time = found.first.time_s;
            self.s_first_error_ino = found.first.inode;
            self.s_first_error_block = found.first.block;
            (self.s_first_error_func, self.s_first_error_line) = (func, 0);
        }
        self.s_last_error_time = found.last.time_s;
        self.s_last_error_ino = found.last.inode;
        self.s_last_error_block = found.last.block;
        (self.s_last_error_func, self.s_last_error_line) = (func, 0);
        self.s_error_count = self.s_error_count.saturating_add(found.count);
    }

    /// True if a feature is set.
    #[must_use]
    pub fn has(&self, needed: Needed) -> bool {
        match needed {
            Needed::ExtAttr => self.s_feature_compat.contains(CompatFeatures::EXT_ATTR),
            Needed::LargeFile => self.s_feature_ro_compat.contains(RoCompatFeatures::LARGE_FILE),
        }
    }

    /// Sets a feature.
    pub fn set(&mut self, needed: Needed) {
        match needed {
            Needed::ExtAttr => self.s_feature_compat.insert(CompatFeatures::EXT_ATTR),
            Needed::LargeFile => self.s_feature_ro_compat.insert(RoCompatFeatures::LARGE_FILE),
        }
    }
}
