//! Format of directories, from the superblock: hash, checksum tail, index.

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
        }
    }
}
