//! The hash index of large directories: root and inner nodes.
//!
//! ```text
//!  root (block 0 of the directory)              node
//!  0x00 entry "."   rec_len 12                  0x00 entry inode 0, rec_len = block size
//!  0x0C entry ".."  rec_len = rest              0x08 entries
//!  0x18 reserved u32, hash_version, info_length 8, indirect_levels, unused_flags
//!  0x20 entries
//!  entries: [limit u16, count u16, block u32] then [hash u32, block u32]...; count is of all
//!  tail (metadata_csum): reserved u32, crc32c, after `limit` entries
//! ```
//!
//! To a reader that ignores the index both look like directory blocks with no entries. Entry 0 has
//! no hash: it covers everything below entry 1. Bit 0 of a hash says that the leaf before continues
//! into this one. Leaves are linear blocks ([`crate::dir`]). Tested in `tests/it/rejections.rs` and
//! `tests/it/images.rs`.

use crate::bytes::{le16, le32, put_le16, put_le32, put_u8, u8_at};
use crate::checksum;
use crate::dir::{self, DirFormat};
use crate::error::{OndiskError, Result};

pub use crate::dirhash::{HashKind, HashVersion, NameHash, hash};

const WHAT: &str = "htree node";
const ROOT_INFO: usize = 0x18;
const ROOT_ENTRIES: usize = 0x20;
const NODE_ENTRIES: usize = 0x08;
const ENTRY_BYTES: usize = 8;
const TAIL_BYTES: usize = 8;

/// Bit 0 of an entry's hash: names with this hash began in the leaf before.
pub const HASH_CONTINUES: u32 = 1;
/// Most index levels below the root.
pub const MAX_INDIRECT_LEVELS: u8 = 1;
/// Most index levels below the root with `large_dir`.
pub const MAX_INDIRECT_LEVELS_LARGEDIR: u8 = 2;

/// Header of the index root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootInfo {
    /// Hash byte; see [`HashVersion::from_disk`].
    pub hash_version: u8,
    /// Index levels below the root.
    pub indirect_levels: u8,
}

/// Kind of an index block. Entries start at different offsets in a root and in an inner node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Block 0.
    Root,
    /// Any other index block.
    Inner,
}

impl NodeKind {
    fn entries_at(self) -> usize {
        match self {
            Self::Root => ROOT_ENTRIES,
            Self::Inner => NODE_ENTRIES,
        }
    }

    /// Entries a block of this kind can hold, the first included.
    #[must_use]
    pub fn limit(self, block_size: usize, metadata_csum: bool) -> usize {
        let tail = if metadata_csum { TAIL_BYTES } else { 0 };
        block_size.saturating_sub(self.entries_at() + tail) / ENTRY_BYTES
    }
}

/// One entry: names from `hash` on are below directory block `block`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Lowest hash; 0 for the first entry.
    pub hash: u32,
    /// Logical block of the directory.
    pub block: u32,
}

/// Reads the root's header. Corrupt: reserved fields set or too many levels, flags or a bad length.
pub fn root_info(block: &[u8], large_dir: bool) -> Result<RootInfo> {
    let fail = |at, detail: String| Err(OndiskError::corrupt_at(WHAT, at, detail));
    let info = RootInfo {
        hash_version: u8_at(block, ROOT_INFO + 4),
        indirect_levels: u8_at(block, ROOT_INFO + 6),
    };
    if le32(block, ROOT_INFO) != 0 {
        return fail(ROOT_INFO, "reserved field is not zero".into());
    }
    let length = u8_at(block, ROOT_INFO + 5);
    if length != 8 {
        return fail(ROOT_INFO + 5, format!("info length is {length}, not 8"));
    }
    if u8_at(block, ROOT_INFO + 7) & 1 != 0 {
        return fail(ROOT_INFO + 7, "unknown flags are set".into());
    }
    let most = if large_dir { MAX_INDIRECT_LEVELS_LARGEDIR } else { MAX_INDIRECT_LEVELS };
    if info.indirect_levels > most {
        return fail(ROOT_INFO + 6, format!("{} levels, at most {most}", info.indirect_levels));
    }
    Ok(info)
}

/// A checked view of an index block.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    block: &'a [u8],
    at: usize,
    count: usize,
    limit: usize,
}

impl<'a> Node<'a> {
    /// Checks limit, count, hash order and that children lie in `1..dir_blocks`. Corrupt otherwise.
    pub fn parse(
        block: &'a [u8],
        kind: NodeKind,
        metadata_csum: bool,
        dir_blocks: u64,
    ) -> Result<Self> {
        let node = Self::parse_header(block, kind, metadata_csum)?;
        let mut before = 0;
        for i in 0..node.count {
            let entry = node.entry_unchecked(i);
            let at = node.offset(i);
            if entry.block == 0 || u64::from(entry.block) >= dir_blocks {
                let detail = format!("block {} is outside the directory", entry.block);
                return Err(OndiskError::corrupt_at(WHAT, at, detail));
            }
            if entry.hash < before {
                let detail = format!("hash {:#x} is out of order", entry.hash);
                return Err(OndiskError::corrupt_at(WHAT, at, detail));
            }
            before = entry.hash;
        }
        Ok(node)
    }

    /// Checks limit and count only: for blocks that passed [`Node::parse`] and are still in a
    /// cache.
    pub fn parse_header(block: &'a [u8], kind: NodeKind, metadata_csum: bool) -> Result<Self> {
        let at = kind.entries_at();
        let (limit, count) = (usize::from(le16(block, at)), usize::from(le16(block, at + 2)));
        let fits = kind.limit(block.len(), metadata_csum);
        if limit != fits {
            let detail = format!("limit is {limit}, a block has room for {fits}");
            return Err(OndiskError::corrupt_at(WHAT, at, detail));
        }
        if count == 0 || count > limit {
            let detail = format!("{count} entries of at most {limit}");
            return Err(OndiskError::corrupt_at(WHAT, at + 2, detail));
        }
        Ok(Self { block, at, count, limit })
    }

    fn offset(&self, i: usize) -> usize {
        self.at + i * ENTRY_BYTES
    }

    #[inline]
    fn entry_unchecked(&self, i: usize) -> Entry {
        let at = self.offset(i);
        Entry {
            hash: if i == 0 { 0 } else { le32(self.block, at) },
            // Linux keeps flags for merging in the top bits and masks them off.
            block: le32(self.block, at + 4) & 0x0fff_ffff,
        }
    }

    /// Number of entries, at least 1.
    #[allow(clippy::len_without_is_empty)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Most entries.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// True if no entry can be added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count >= self.limit
    }

    /// Entry `i`.
    #[inline]
    #[must_use]
    pub fn entry(&self, i: usize) -> Option<Entry> {
        (i < self.count).then(|| self.entry_unchecked(i))
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + use<'a> {
        let node = *self;
        (0..node.count).map(move |i| node.entry_unchecked(i))
    }

    /// Position of the entry whose leaf (or child) a name with this hash belongs to: the last whose
    /// hash is not above it (`dx_probe`).
    #[inline]
    #[must_use]
    pub fn search(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let mid = low.midpoint(high);
            if self.entry_unchecked(mid).hash > hash {
                high = mid;
            } else {
                low = mid + 1;
            }
        }
        low - 1
    }
}

/// Makes block 0 of an indexed directory: dots, header and one entry for `first_leaf`. `..` of the
/// directory is `parent`.
pub fn init_root(
    block: &mut [u8],
    format: &DirFormat,
    ino: u32,
    parent: u32,
    version: HashVersion,
    first_leaf: u32,
) {
    let no_tail = DirFormat { tail: false, ..*format };
    dir::init_dots(block, &no_tail, ino, parent);
    put_u8(block, ROOT_INFO + 4, version.to_disk());
    put_u8(block, ROOT_INFO + 5, 8);
    init_entries(block, NodeKind::Root, format.tail, first_leaf);
}

/// Makes an inner node with one entry for `first_child`.
pub fn init_node(block: &mut [u8], format: &DirFormat, first_child: u32) {
    let no_tail = DirFormat { tail: false, ..*format };
    dir::init_empty(block, &no_tail);
    init_entries(block, NodeKind::Inner, format.tail, first_child);
}

fn init_entries(block: &mut [u8], kind: NodeKind, metadata_csum: bool, first: u32) {
    let (at, limit) = (kind.entries_at(), kind.limit(block.len(), metadata_csum));
    put_le16(block, at, u16::try_from(limit).unwrap_or(u16::MAX));
    put_le16(block, at + 2, 1);
    put_le32(block, at + 4, first);
}

/// Sets the root's number of levels below it.
pub fn set_indirect_levels(block: &mut [u8], levels: u8) {
    put_u8(block, ROOT_INFO + 6, levels);
}

/// Inserts an entry after position `after` (`dx_insert_block`). Full: no room.
pub fn insert_entry(
    block: &mut [u8],
    kind: NodeKind,
    metadata_csum: bool,
    after: usize,
    entry: Entry,
) -> Result<()> {
    let node = Node::parse_header(block, kind, metadata_csum)?;
    let (count, from, end) = (node.len(), node.offset(after + 1), node.offset(node.len()));
    if node.is_full() {
        return Err(OndiskError::Full { what: WHAT });
    }
    if after >= count {
        return Err(OndiskError::usage(WHAT, format!("position {after} of {count} entries")));
    }
    block.copy_within(from..end, from + ENTRY_BYTES);
    put_le32(block, from, entry.hash);
    put_le32(block, from + 4, entry.block);
    set_count(block, kind, count + 1);
    Ok(())
}

/// Changes where entry `i` points to. Nothing if there is no such entry.
pub fn set_entry_block(block: &mut [u8], kind: NodeKind, i: usize, child: u32) {
    let at = kind.entries_at();
    if i < usize::from(le16(block, at + 2)) {
        put_le32(block, at + i * ENTRY_BYTES + 4, child);
    }
}

/// Moves the entries from position `from` (at least 1) on into the fresh inner node `other`, and
/// returns the hash at which `other` begins: the hash of its entry in the parent.
pub fn split_node(
    block: &mut [u8],
    kind: NodeKind,
    format: &DirFormat,
    from: usize,
    other: &mut [u8],
) -> Result<u32> {
    let node = Node::parse_header(block, kind, format.tail)?;
    let Some(first) = node.entry(from).filter(|_| from > 0) else {
        return Err(OndiskError::usage(WHAT, format!("split at {from} of {}", node.len())));
    };
    let count = node.len();
    init_node(other, format, first.block);
    let target = NodeKind::Inner.entries_at();
    for i in 1..count - from {
        let entry = node.entry_unchecked(from + i);
        put_le32(other, target + i * ENTRY_BYTES, entry.hash);
        put_le32(other, target + i * ENTRY_BYTES + 4, entry.block);
    }
    set_count(other, NodeKind::Inner, count - from);
    set_count(block, kind, from);
    Ok(first.hash)
}

/// Moves all entries of a full root into the fresh inner node `child`, at directory block
/// `child_block`; the root is left with one entry for it and one level more.
pub fn push_down_root(
    root: &mut [u8],
    format: &DirFormat,
    child: &mut [u8],
    child_block: u32,
) -> Result<()> {
    let node = Node::parse_header(root, NodeKind::Root, format.tail)?;
    let first = node.entry_unchecked(0);
    let count = node.len();
    init_node(child, format, first.block);
    let target = NodeKind::Inner.entries_at();
    for i in 1..count {
        let entry = node.entry_unchecked(i);
        put_le32(child, target + i * ENTRY_BYTES, entry.hash);
        put_le32(child, target + i * ENTRY_BYTES + 4, entry.block);
    }
    set_count(child, NodeKind::Inner, count);
    set_count(root, NodeKind::Root, 1);
    put_le32(root, ROOT_ENTRIES + 4, child_block);
    let levels = u8_at(root, ROOT_INFO + 6);
    set_indirect_levels(root, levels.saturating_add(1));
    Ok(())
}

fn set_count(block: &mut [u8], kind: NodeKind, count: usize) {
    put_le16(block, kind.entries_at() + 2, u16::try_from(count).unwrap_or(u16::MAX));
}

/// crc32c of an index block (`ext4_dx_csum`) and where it is stored. `None`: count or limit is bad.
fn checksum_of(block: &[u8], kind: NodeKind, inode_seed: u32) -> Option<(u32, usize)> {
    let at = kind.entries_at();
    let (limit, count) = (usize::from(le16(block, at)), usize::from(le16(block, at + 2)));
    let tail = at + limit * ENTRY_BYTES;
    if count > limit || tail + TAIL_BYTES > block.len() {
        return None;
    }
    let crc = checksum::crc32c(inode_seed, block.get(..at + count * ENTRY_BYTES)?);
    let crc = checksum::crc32c(crc, block.get(tail..tail + 4)?);
    Some((checksum::crc32c(crc, &[0; 4]), tail + 4))
}

/// Stores the checksum of an index block. Nothing where count or limit is bad.
pub fn set_checksum(block: &mut [u8], kind: NodeKind, inode_seed: u32) {
    if let Some((crc, at)) = checksum_of(block, kind, inode_seed) {
        put_le32(block, at, crc);
    }
}

/// Checks the checksum of an index block.
pub fn verify_checksum(block: &[u8], kind: NodeKind, inode_seed: u32) -> Result<()> {
    match checksum_of(block, kind, inode_seed) {
        Some((crc, at)) if crc == le32(block, at) => Ok(()),
        Some((crc, at)) => {
            let detail = format!("checksum is {:#x}, bytes give {crc:#x}", le32(block, at));
            Err(OndiskError::corrupt_at(WHAT, at, detail))
        }
        None => Err(OndiskError::corrupt(WHAT, "count and limit leave no room for a checksum")),
    }
}
