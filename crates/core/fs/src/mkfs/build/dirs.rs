//! The blocks of a directory: one with the entries in the order of their names, or an htree with
//! full leaves. A repair fills the blocks that a directory has: its leaves are equally full.
//!
//! ```text
//!   block 0: root | inner nodes | leaves in the order of hashes
//! ```

use syncline_ondisk::dir::{self, DirFormat, Filler};
use syncline_ondisk::htree::{
    self, Entry, HASH_CONTINUES, HashKind, MAX_INDIRECT_LEVELS, NameHash, NodeKind,
};

use crate::error::{FsError, Result};
use crate::store::dir_format::{Fold, name_hash};

/// Name, inode number, type.
pub(crate) type Named<'a> = (&'a [u8], u32, u8);

/// Parameters that all directories of a file system share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) format: DirFormat,
    pub(crate) hash: HashKind,
    /// How names fold, if they do.
    pub(crate) fold: Option<Fold>,
    pub(crate) block_size: usize,
}

/// A directory: its blocks, and whether it has an index.
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) indexed: bool,
}

impl Shape {
    /// The blocks of directory `ino`. `seed` is that of its checksums.
    pub(super) fn encode(
        &self,
        (ino, parent): (u32, u32),
        entries: &[Named<'_>],
        seed: u32,
    ) -> Result<Encoded> {
        let mut bytes = vec![0; self.block_size];
        let mut block = Filler::with_dots(&mut bytes, &self.format, ino, parent);
        if entries.iter().all(|entry| block.push(entry.0, entry.1, entry.2)) {
            dir::set_checksum(&mut bytes, &self.format, seed);
            return Ok(Encoded { bytes, indexed: false });
        }
        let (leaves, starts) = self.leaves(entries, seed, None).ok_or(FsError::NoSpace)?;
        let of_node = self.limit(NodeKind::Inner);
        let is_flat = starts.len() <= self.limit(NodeKind::Root);
        let inner = if is_flat { 0 } else { starts.len().div_ceil(of_node) };
        let bytes = self.index((ino, parent), &starts, (inner, of_node), leaves, seed)?;
        Ok(Encoded { bytes, indexed: true })
    }

    /// An htree of `count` blocks. `None` if the entries do not fit, or would leave a block empty.
    pub(crate) fn spread(
        &self,
        (ino, parent): (u32, u32),
        entries: &[Named<'_>],
        seed: u32,
        count: usize,
    ) -> Option<Vec<u8>> {
        let below = count.checked_sub(1)?;
        let of_node = self.limit(NodeKind::Inner);
        let inner = if below <= self.limit(NodeKind::Root) {
            0
        } else {
            (1..below).find(|inner| (below - inner).div_ceil(of_node) <= *inner)?
        };
        let leaves = below - inner;
        let share = leaves.checked_div(inner).map_or(leaves, |_| leaves.div_ceil(inner));
        if leaves == 0 || inner > 0 && leaves.div_ceil(share) != inner {
            return None;
        }
        let (bytes, starts) = self.leaves(entries, seed, Some(leaves))?;
        if starts.len() != leaves {
            return None;
        }
        self.index((ino, parent), &starts, (inner, share), bytes, seed).ok()
    }

    fn limit(&self, kind: NodeKind) -> usize {
        kind.limit(self.block_size, self.format.tail)
    }

    /// An empty block of a directory.
    pub(super) fn empty(&self, seed: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.block_size];
        dir::init_empty(&mut bytes, &self.format);
        dir::set_checksum(&mut bytes, &self.format, seed);
        bytes
    }

    /// The leaves, one behind the other, and the hash at which each begins: as few as hold the
    /// entries, or `count` that are equally full. `None` if that cannot be.
    fn leaves(
        &self,
        entries: &[Named<'_>],
        seed: u32,
        count: Option<usize>,
    ) -> Option<(Vec<u8>, Vec<u32>)> {
        let hash = |name| name_hash(self.fold.as_ref(), &self.hash, name);
        let mut order: Vec<(NameHash, u32)> =
            (0..).zip(entries).map(|(i, entry)| (hash(entry.0), i)).collect();
        order.sort_unstable();
        let size = |entry: &Named<'_>| dir::entry_bytes(entry.0.len());
        let mut bytes_left: usize = entries.iter().map(size).sum();
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        let mut left = &order[..];
        let mut before = None;
        while let Some((first, _)) = left.first() {
            // The bytes of this leaf, and the entries that later leaves need.
            let (share, kept) = match count.map(|count| count.checked_sub(starts.len())) {
                None => (usize::MAX, 0),
                Some(blocks) => {
                    let blocks = blocks.filter(|blocks| *blocks > 0)?;
                    (bytes_left.div_ceil(blocks), blocks - 1)
                }
            };
            let most = left.len().checked_sub(kept).filter(|most| *most > 0)?;
            let continues = if before == Some(first.major) { HASH_CONTINUES } else { 0 };
            starts.push(first.major | continues);
            let at = bytes.len();
            bytes.resize(at + self.block_size, 0);
            let leaf = &mut bytes[at..];
            let mut filler = Filler::new(leaf, &self.format);
            let mut filled = 0;
            let fits = left[..most]
                .iter()
                .take_while(|(_, i)| {
                    let entry = entries[*i as usize];
                    let fits = filled < share && filler.push(entry.0, entry.1, entry.2);
                    filled += if fits { size(&entry) } else { 0 };
                    fits
                })
                .count();
            dir::set_checksum(leaf, &self.format, seed);
            bytes_left -= filled;
            // A name of 255 bytes fits into an empty block of any size.
            before = left[..fits].last().map(|(hash, _)| hash.major);
            left = &left[fits.max(1)..];
        }
        Some((bytes, starts))
    }

    /// Root and `inner` nodes of `of_node` entries, then the leaves.
    fn index(
        &self,
        (ino, parent): (u32, u32),
        starts: &[u32],
        (inner, of_node): (usize, usize),
        leaves: Vec<u8>,
        seed: u32,
    ) -> Result<Vec<u8>> {
        let csum = self.format.tail;
        if inner > self.limit(NodeKind::Root) {
            return Err(FsError::NoSpace);
        }
        let first_leaf = 1 + inner as u32;
        let mut bytes = vec![0; (1 + inner) * self.block_size];
        let (root, nodes) = bytes.split_at_mut(self.block_size);
        let child = if inner > 0 { 1 } else { first_leaf };
        htree::init_root(root, &self.format, ino, parent, self.hash.version, child);
        let add = |block: &mut [u8], kind, i: usize, hash, child| {
            htree::insert_entry(block, kind, csum, i - 1, Entry { hash, block: child })
        };
        for (n, part) in starts.chunks(of_node).enumerate().take(inner) {
            let node = &mut nodes[n * self.block_size..(n + 1) * self.block_size];
            let leaf = first_leaf + (n * of_node) as u32;
            htree::init_node(node, &self.format, leaf);
            for (i, hash) in part.iter().enumerate().skip(1) {
                add(node, NodeKind::Inner, i, *hash, leaf + i as u32)?;
            }
            if n > 0 {
                add(root, NodeKind::Root, n, part[0], 1 + n as u32)?;
            }
            if csum {
                htree::set_checksum(node, NodeKind::Inner, seed);
            }
        }
        if inner > 0 {
            htree::set_indirect_levels(root, MAX_INDIRECT_LEVELS);
        } else {
            for (i, hash) in starts.iter().enumerate().skip(1) {
                add(root, NodeKind::Root, i, *hash, first_leaf + i as u32)?;
            }
        }
        if csum {
            htree::set_checksum(root, NodeKind::Root, seed);
        }
        bytes.extend(leaves);
        Ok(bytes)
    }
}
