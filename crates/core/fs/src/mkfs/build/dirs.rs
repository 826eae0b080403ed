//! The blocks of a directory: one with the entries in the order of their names, or an htree with
//! full leaves.
//!
//! ```text
//!   block 0: root | inner nodes | leaves in the order of hashes
//! ```

use syncline_ondisk::dir::{self, DirFormat, Filler};
use syncline_ondisk::htree::{
    self, Entry, HASH_CONTINUES, HashKind, MAX_INDIRECT_LEVELS, NameHash, NodeKind,
};

use crate::error::{FsError, Result};

/// Name, inode number, type.
pub(super) type Named<'a> = (&'a [u8], u32, u8);

/// Parameters that all directories of a file system share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) format: DirFormat,
    pub(super) hash: HashKind,
    pub(super) block_size: usize,
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
        let (leaves, starts) = self.leaves(entries, seed);
        let bytes = self.index((ino, parent), &starts, leaves, seed)?;
        Ok(Encoded { bytes, indexed: true })
    }

    /// An empty block of a directory.
    pub(super) fn empty(&self, seed: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.block_size];
        dir::init_empty(&mut bytes, &self.format);
        dir::set_checksum(&mut bytes, &self.format, seed);
        bytes
    }

    /// The leaves, one behind the other, and the hash at which each begins.
    fn leaves(&self, entries: &[Named<'_>], seed: u32) -> (Vec<u8>, Vec<u32>) {
        let mut order: Vec<(NameHash, u32)> =
            (0..).zip(entries).map(|(i, entry)| (htree::hash(&self.hash, entry.0), i)).collect();
        order.sort_unstable();
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        let mut left = &order[..];
        let mut before = None;
        while let Some((first, _)) = left.first() {
            let continues = if before == Some(first.major) { HASH_CONTINUES } else { 0 };
            starts.push(first.major | continues);
            let at = bytes.len();
            bytes.resize(at + self.block_size, 0);
            let leaf = &mut bytes[at..];
            let mut filler = Filler::new(leaf, &self.format);
            let fits = left
                .iter()
                .take_while(|(_, i)| {
                    let (name, ino, kind) = entries[*i as usize];
                    filler.push(name, ino, kind)
                })
                .count();
            dir::set_checksum(leaf, &self.format, seed);
            // A name of 255 bytes fits into an empty block of any size.
            before = left[..fits].last().map(|(hash, _)| hash.major);
            left = &left[fits.max(1)..];
        }
        (bytes, starts)
    }

    /// Root and inner nodes, then the leaves.
    fn index(
        &self,
        (ino, parent): (u32, u32),
        starts: &[u32],
        leaves: Vec<u8>,
        seed: u32,
    ) -> Result<Vec<u8>> {
        let csum = self.format.tail;
        let of_root = NodeKind::Root.limit(self.block_size, csum);
        let of_node = NodeKind::Inner.limit(self.block_size, csum);
        let inner = if starts.len() > of_root { starts.len().div_ceil(of_node) } else { 0 };
        if inner > of_root {
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
