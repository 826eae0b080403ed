//! Format of directories, from the superblock: hash, checksum tail, index.

use std::borrow::Cow;

use syncline_ondisk::casefold::Casefold;
use syncline_ondisk::dir::DirFormat;
use syncline_ondisk::htree::{self, HashKind, NameHash};
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
    is_strict: bool,
}

impl Fold {
    /// As the superblock says; `None` without `casefold`.
    pub(crate) fn of(sb: &Superblock) -> Option<Fold> {
        sb.s_feature_incompat
            .contains(IncompatFeatures::CASEFOLD)
            .then(|| Fold { table: Casefold::utf8_12_1(), is_strict: sb.s_encoding_flags & 1 != 0 })
    }

    /// The name as it is hashed: folded, or as it is if it is not valid.
    pub(crate) fn key<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        self.table.fold(name).map_or(Cow::Borrowed(name), Cow::Owned)
    }

    /// The name as it is compared. `None`: only with names of the same bytes (`generic_ci_match`).
    pub(crate) fn compared(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.table.fold(name).filter(|folded| !folded.is_empty())
    }

    /// The name as two are told apart in one directory.
    pub(crate) fn distinct<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        self.compared(name).map_or(Cow::Borrowed(name), Cow::Owned)
    }

    /// The place of the first byte that makes a name invalid where names must be valid.
    pub(crate) fn refused_at(&self, name: &[u8]) -> Option<usize> {
        if !self.is_strict || self.table.fold(name).is_some() {
            return None;
        }
        match std::str::from_utf8(name) {
            Err(err) => Some(err.valid_up_to()),
            Ok(text) => {
                text.char_indices().map(|(at, char)| at..at + char.len_utf8()).find_map(|bytes| {
                    self.table.fold(&name[bytes.clone()]).is_none().then_some(bytes.start)
                })
            }
        }
    }
}

/// The hash of a name in the index of a directory.
pub(crate) fn name_hash(fold: Option<&Fold>, kind: &HashKind, name: &[u8]) -> NameHash {
    match fold {
        None => htree::hash(kind, name),
        Some(fold) => htree::hash(kind, &fold.key(name)),
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
            fold: Fold::of(sb),
        }
    }
}
