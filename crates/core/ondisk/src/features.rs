//! Feature words of the ext4 superblock, as typed bit sets with the names mke2fs uses.
//!
//! Every bit has one of three classes. An unknown or unhandled *compat* bit is harmless, a
//! *ro_compat* bit allows read-only mounts, an *incompat* bit forbids any. [`check`] answers what
//! may be done with a file system; it refuses by name. A few incompat ones are read correctly but
//! not written. Tested here, one case per refusal.

use crate::error::{OndiskError, Result};

macro_rules! feature_set {
    ($(#[$meta:meta])* $name:ident { $($flag:ident = $bit:expr, $text:expr;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            $(#[doc = concat!("`", $text, "`")] pub const $flag: Self = Self($bit);)*
            /// Every bit with a name, in bit order.
            pub const NAMES: &'static [(u32, &'static str)] = &[$(($bit, $text),)*];

            /// Wraps the word, known and unknown bits alike.
            #[must_use]
            pub const fn from_bits(bits: u32) -> Self {
                Self(bits)
            }

            /// The word.
            #[must_use]
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// True if all bits of `other` are set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// True if any bit of `other` is set.
            #[must_use]
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Sets the bits of `other`.
            pub fn insert(&mut self, other: Self) {
                self.0 |= other.0;
            }

            /// Clears the bits of `other`.
            pub fn remove(&mut self, other: Self) {
                self.0 &= !other.0;
            }

            /// Both sets together.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// The bits not in `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// The bits that have no name.
            #[must_use]
            pub fn unknown(self) -> Self {
                let known = Self::NAMES.iter().fold(0, |all, (bit, _)| all | bit);
                Self(self.0 & !known)
            }

            /// True if no bit is set.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Name of each set bit; a nameless bit as `<class>_bit_N`.
            pub fn names(self) -> impl Iterator<Item = String> {
                (0..32u32).filter(move |n| self.0 >> n & 1 != 0).map(|n| {
                    match Self::NAMES.iter().find(|(bit, _)| *bit == 1 << n) {
                        Some((_, name)) => (*name).to_owned(),
                        None => format!("{}_bit_{n}", Self::CLASS),
                    }
                })
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_set().entries(self.names()).finish()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                for (i, name) in self.names().enumerate() {
                    if i > 0 {
                        f.write_str(" ")?;
                    }
                    f.write_str(&name)?;
                }
                Ok(())
            }
        }
    };
}

pub(crate) use feature_set;

feature_set! {
    /// `s_feature_compat`.
    CompatFeatures {
        DIR_PREALLOC = 0x1, "dir_prealloc";
        IMAGIC_INODES = 0x2, "imagic_inodes";
        HAS_JOURNAL = 0x4, "has_journal";
        EXT_ATTR = 0x8, "ext_attr";
        RESIZE_INODE = 0x10, "resize_inode";
        DIR_INDEX = 0x20, "dir_index";
        LAZY_BG = 0x40, "lazy_bg";
        EXCLUDE_INODE = 0x80, "snapshot_exclude_inode";
        EXCLUDE_BITMAP = 0x100, "snapshot_bitmap";
        SPARSE_SUPER2 = 0x200, "sparse_super2";
        FAST_COMMIT = 0x400, "fast_commit";
        STABLE_INODES = 0x800, "stable_inodes";
        ORPHAN_FILE = 0x1000, "orphan_file";
    }
}

feature_set! {
    /// `s_feature_incompat`.
    IncompatFeatures {
        COMPRESSION = 0x1, "compression";
        FILETYPE = 0x2, "filetype";
        RECOVER = 0x4, "needs_recovery";
        JOURNAL_DEV = 0x8, "journal_dev";
        META_BG = 0x10, "meta_bg";
        EXTENTS = 0x40, "extent";
        BIT64 = 0x80, "64bit";
        MMP = 0x100, "mmp";
        FLEX_BG = 0x200, "flex_bg";
        EA_INODE = 0x400, "ea_inode";
        DIRDATA = 0x1000, "dirdata";
        CSUM_SEED = 0x2000, "metadata_csum_seed";
        LARGEDIR = 0x4000, "large_dir";
        INLINE_DATA = 0x8000, "inline_data";
        ENCRYPT = 0x1_0000, "encrypt";
        CASEFOLD = 0x2_0000, "casefold";
        PACKED_LOG = 0x2000_0000, "packed_log";
        WRITE_LOG = 0x4000_0000, "write_log";
    }
}

feature_set! {
    /// `s_feature_ro_compat`.
    RoCompatFeatures {
        SPARSE_SUPER = 0x1, "sparse_super";
        LARGE_FILE = 0x2, "large_file";
        BTREE_DIR = 0x4, "btree_dir";
        HUGE_FILE = 0x8, "huge_file";
        GDT_CSUM = 0x10, "uninit_bg";
        DIR_NLINK = 0x20, "dir_nlink";
        EXTRA_ISIZE = 0x40, "extra_isize";
        HAS_SNAPSHOT = 0x80, "snapshot";
        QUOTA = 0x100, "quota";
        BIGALLOC = 0x200, "bigalloc";
        METADATA_CSUM = 0x400, "metadata_csum";
        REPLICA = 0x800, "replica";
        READONLY = 0x1000, "read-only";
        PROJECT = 0x2000, "project";
        SHARED_BLOCKS = 0x4000, "shared_blocks";
        VERITY = 0x8000, "verity";
        ORPHAN_PRESENT = 0x1_0000, "orphan_present";
    }
}

impl CompatFeatures {
    const CLASS: &'static str = "compat";
}

impl IncompatFeatures {
    const CLASS: &'static str = "incompat";

    /// Handled for reading and writing. `needs_recovery` and `packed_log` are the caller's to
    /// handle.
    pub const WRITABLE: Self = Self(
        Self::FILETYPE.0
            | Self::RECOVER.0
            | Self::META_BG.0
            | Self::EXTENTS.0
            | Self::BIT64.0
            | Self::FLEX_BG.0
            | Self::CSUM_SEED.0
            | Self::LARGEDIR.0
            | Self::INLINE_DATA.0
            | Self::CASEFOLD.0
            | Self::EA_INODE.0
            | Self::PACKED_LOG.0,
    );

    /// Handled for reading only. `mmp` is here because a writer must keep beating the MMP block.
    pub const READABLE: Self = Self(Self::MMP.0 | Self::ENCRYPT.0);
}

impl RoCompatFeatures {
    const CLASS: &'static str = "ro_compat";

    /// Handled for reading and writing.
    pub const WRITABLE: Self = Self(
        Self::SPARSE_SUPER.0
            | Self::LARGE_FILE.0
            | Self::HUGE_FILE.0
            | Self::GDT_CSUM.0
            | Self::DIR_NLINK.0
            | Self::EXTRA_ISIZE.0
            | Self::BIGALLOC.0
            | Self::METADATA_CSUM.0
            | Self::VERITY.0
            | Self::ORPHAN_PRESENT.0,
    );
}

/// Access that the features of a file system allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeatureCheck {
    /// Everything it has is handled.
    ReadWrite,
    /// Only reading is safe, because of the features named here.
    ReadOnly(Vec<String>),
}

impl FeatureCheck {
    /// Refuses unless writing is allowed, naming the features in the way.
    pub fn require_writable(&self) -> Result<()> {
        match self {
            Self::ReadWrite => Ok(()),
            Self::ReadOnly(names) => Err(OndiskError::unsupported(
                names.join(", "),
                "it cannot be written by this program; mount it read-only",
            )),
        }
    }
}

/// Judges the three words. Whether the journal needs recovery is the caller's business, and so is
/// the external journal (`Superblock::check_features` does both).
pub fn check(incompat: IncompatFeatures, ro_compat: RoCompatFeatures) -> Result<FeatureCheck> {
    let readable = IncompatFeatures::WRITABLE.union(IncompatFeatures::READABLE);
    let refused: Vec<String> = incompat.without(readable).names().collect();
    if incompat.contains(IncompatFeatures::WRITE_LOG) {
        return Err(OndiskError::unsupported(
            "write_log",
            "the newest data of this image is in a write log; mount it with its log, \
             `syncline mount -o buffer_log=LOG`, and unmount it",
        ));
    }
    if incompat.contains(IncompatFeatures::JOURNAL_DEV) {
        return Err(OndiskError::unsupported(
            "journal_dev",
            "this is the journal of another file system; replay it with \
             `e2fsck -j` and this device on that file system",
        ));
    }
    if !refused.is_empty() {
        return Err(OndiskError::unsupported(
            refused.join(", "),
            "this file system cannot be opened; use the kernel's ext4 for it",
        ));
    }
    let mut read_only: Vec<String> = incompat.without(IncompatFeatures::WRITABLE).names().collect();
    read_only.extend(ro_compat.without(RoCompatFeatures::WRITABLE).names());
    if read_only.is_empty() {
        Ok(FeatureCheck::ReadWrite)
    } else {
        Ok(FeatureCheck::ReadOnly(read_only))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(incompat: u32, ro_compat: u32) -> Result<FeatureCheck> {
        check(IncompatFeatures::from_bits(incompat), RoCompatFeatures::from_bits(ro_compat))
    }

    #[test]
    fn defaults_are_writable() {
        assert_eq!(answer(0x2c2, 0x46b), Ok(FeatureCheck::ReadWrite));
        assert_eq!(answer(0x22c6, 0x1_846b), Ok(FeatureCheck::ReadWrite));
        assert_eq!(answer(0x86c6, 0x1_046b), Ok(FeatureCheck::ReadWrite));
        assert_eq!(answer(0x2c2, 0x66b), Ok(FeatureCheck::ReadWrite));
    }

    #[test]
    fn refused_features_are_named() {
        let cases: [(u32, u32, &str); 5] = [
            (0x4000_0000, 0, "write_log"),
            (0x8, 0, "journal_dev"),
            (0x1, 0, "compression"),
            (0x1000, 0, "dirdata"),
            (0x8000_0000, 0, "incompat_bit_31"),
        ];
        for (incompat, ro_compat, name) in cases {
            match answer(incompat, ro_compat) {
                Err(OndiskError::Unsupported { feature, .. }) => assert_eq!(feature, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn read_only_features_are_named() {
        let cases: [(u32, u32, &str); 6] = [
            (0x1_0000, 0, "encrypt"),
            (0x100, 0, "mmp"),
            (0, 0x100, "quota"),
            (0, 0x2000, "project"),
            (0, 0x1000, "read-only"),
            (0, 0x4000_0000, "ro_compat_bit_30"),
        ];
        for (incompat, ro_compat, name) in cases {
            let check = answer(incompat, ro_compat).expect("readable");
            assert_eq!(check, FeatureCheck::ReadOnly(vec![name.to_owned()]));
            assert!(check.require_writable().unwrap_err().to_string().contains(name));
        }
    }
}
