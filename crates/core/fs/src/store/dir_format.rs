//! Format of directories, from the superblock: hash, checksum tail, index.

use std::borrow::Cow;

use syncline_ondisk::casefold::Casefold;
use syncline_ondisk::dir::DirFormat;
use syncline_ondisk::htree::HashKind;
use syncline_ondisk::{CompatFeatures, IncompatFeatures, OndiskError, Superblock};

/// Directory properties from the superblock; constant while mounted.
pub(crate) struct DirConstants {
    pub(crate) format: DirFormat,
    /// An unknown hash version is an error only for those who use directories.
    pub(crate) hash: std::result::Result<HashKind, OndiskError>,
    pub(crate) hash_unsigned: bool,
    pub(crate) dir_index: bool,
    pub(crate) large_dir: bool,
    /// With `casefold`.
    pub(crate) fold: Option<Fold>,
}

/// How names are compared in a directory that folds case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold {
    table: &'static Casefold,
    /// Names must be valid.
    pub(crate) is_strict: bool,
}

impl Fold {
    /// The name as it is hashed: folded, or as it is if it is not valid.
    pub(crate) fn key<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        self.table.fold(name).map_or(Cow::Borrowed(name), Cow::Owned)
    }

    /// The name as it is compared. `None`: only with names of the same bytes (`generic_ci_match`).
    pub(crate) fn compared(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.table.fold(name).filter(|folded| !folded.is_empty())
    }

    /// True if it is valid.
    pub(crate) fn is_valid(&self, name: &[u8]) -> bool {
        self.table.fold(name).is_some()
    }
}

impl DirConstants {
    /// From the superblock.
    pub(crate) fn new(sb: &Superblock) -> DirConstants {
        DirConstants {
            format: DirFormat::new(sb),
            hash: sb.hash_kind(),
            hash_unsigned: sb.hash_unsigned(),
            dir_index: sb.s_feature_compat.contains(CompatFeatures::DIR_INDEX),
            large_dir: sb.s_feature_incompat.contains(IncompatFeatures::LARGEDIR),
            fold: sb.s_feature_incompat.contains(IncompatFeatures::CASEFOLD).then(|| Fold {
                table: Casefold::utf8_12_1(),
                is_strict: sb.s_encoding_flags & 1 != 0,
            }),
        }
    }
}
