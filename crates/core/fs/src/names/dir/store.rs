//! Access of the directory algorithms to a volume: blocks of one directory by logical number.
//!
//! ```text
//!   dir::{probe, insert, remove, ...}       names
//!        |  DirRead / DirWrite              logical blocks, checksums kept right
//!   namei::live (volume, journal)   tests (memory)
//! ```
//!
//! Promises of an implementation: `block` returns checked bytes (checksum, entry chain or index
//! counts); `edit` and `append` leave a right checksum.

use std::sync::Arc;

use syncline_ondisk::OndiskError;
use syncline_ondisk::dir::{self, DirFormat, Entries};
use syncline_ondisk::htree::{self, HashKind, NameHash, Node, NodeKind};

use crate::error::{FsError, Result};
use crate::names::dir::block::{self, Scan};
use crate::store::dir_format::{Fold, name_hash};

/// Layout of a directory block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// Entries; also block 0 of a directory without index.
    Leaf,
    /// A block of the index; [`NodeKind::Root`] is block 0.
    Index(NodeKind),
}

/// Block 0 of an indexed directory.
pub(crate) const ROOT: BlockKind = BlockKind::Index(NodeKind::Root);

/// An index block below the root.
pub(crate) const INNER: BlockKind = BlockKind::Index(NodeKind::Inner);

/// Constant parameters of one directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirParams {
    /// The directory's inode number.
    pub ino: u32,
    /// Format of its blocks.
    pub format: DirFormat,
    /// How names are compared, if they fold case.
    pub fold: Option<Fold>,
    /// True if its names are encrypted.
    pub encrypted: bool,
    /// Seed of its blocks' checksums, 0 without `metadata_csum`.
    pub csum_seed: u32,
    /// Hash of new indexes (s_def_hash_version, s_hash_seed, EXT2_FLAGS_UNSIGNED_HASH).
    pub hash: HashKind,
    /// True if names are hashed as unsigned characters, for the hash that a root names.
    pub hash_unsigned: bool,
    /// True if full one-block directories become indexed (`dir_index`).
    pub dir_index: bool,
    /// True if the index may have two levels below the root (`large_dir`).
    pub large_dir: bool,
}

impl DirParams {
    /// The hash of a name in its index.
    pub(crate) fn hash_of(&self, kind: &HashKind, name: &[u8]) -> NameHash {
        name_hash(self.fold.as_ref(), kind, name)
    }

    /// Looks for a name, and for room for it, in a block.
    pub(crate) fn scan(&self, block: &[u8], name: &[u8]) -> std::result::Result<Scan, OndiskError> {
        match &self.fold {
            None => block::scan(block, &self.format, name),
            Some(fold) => block::scan_folded(block, &self.format, name, fold),
        }
    }

    /// The format of block 0: the `..` of an index root reaches over the place of the tail.
    pub(crate) fn first_format(&self, indexed: bool) -> DirFormat {
        DirFormat { tail: self.format.tail && !indexed, ..self.format }
    }
}

/// Reading one directory.
pub(crate) trait DirRead {
    /// Its constants.
    fn params(&self) -> &DirParams;
    /// Bytes of a block.
    fn block_size(&self) -> usize;
    /// Blocks it has.
    fn blocks(&self) -> u32;
    /// True if it has an index (EXT4_INDEX_FL on a `dir_index` volume).
    fn indexed(&self) -> bool;
    /// A checked snapshot of block `lblk`.
    fn block(&self, lblk: u32, kind: BlockKind) -> Result<Arc<[u8]>>;
    /// The error for something broken in block `lblk`; latches the volume.
    fn broken(&self, lblk: u32, err: OndiskError) -> FsError;
}

/// Changing one directory.
pub(crate) trait DirWrite: DirRead {
    /// Changes block `lblk` in place and sets its checksum. `f` fails before it changes anything,
    /// or not at all.
    fn edit(
        &mut self,
        lblk: u32,
        kind: BlockKind,
        f: impl FnOnce(&mut [u8]) -> std::result::Result<(), OndiskError>,
    ) -> Result<()>;
    /// Adds a block at the end, with these bytes and a checksum. Returns its logical number, which
    /// is the number of blocks before.
    fn append(&mut self, kind: BlockKind, bytes: &[u8]) -> Result<u32>;
    /// Sets EXT4_INDEX_FL.
    fn set_indexed(&mut self);
}

/// Sets the checksum of a directory block.
pub(crate) fn seal(bytes: &mut [u8], kind: BlockKind, params: &DirParams) {
    match kind {
        BlockKind::Leaf => dir::set_checksum(bytes, &params.format, params.csum_seed),
        BlockKind::Index(node) if params.format.tail => {
            htree::set_checksum(bytes, node, params.csum_seed);
        }
        BlockKind::Index(_) => {}
    }
}

/// Checks a directory block as it comes from the device.
pub(crate) fn check(
    bytes: &[u8],
    kind: BlockKind,
    params: &DirParams,
    blocks: u32,
) -> std::result::Result<(), OndiskError> {
    match kind {
        BlockKind::Leaf => {
            dir::verify_checksum(bytes, &params.format, params.csum_seed)?;
            Entries::new(bytes, &params.format).try_for_each(|entry| entry.map(|_| ()))
        }
        BlockKind::Index(node) => {
            if node == NodeKind::Root {
                htree::root_info(bytes, params.large_dir)?;
            }
            Node::parse(bytes, node, params.format.tail, u64::from(blocks))?;
            if params.format.tail {
                htree::verify_checksum(bytes, node, params.csum_seed)?;
            }
            Ok(())
        }
    }
}
