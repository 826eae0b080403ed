//! Blocks of a file: its extent tree, loaded node by node.

use std::collections::BTreeMap;
use std::ops::Range;

use syncline_ondisk::Geometry;
use syncline_ondisk::extent::{Extent, Node, NodeLimits, verify_block_checksum};
use syncline_ondisk::inode::I_BLOCK_BYTES;

/// Nodes of a tree in blocks, at most: 256 of 4 KiB have 86,000 extents.
const NODES_MAX: usize = 256;

/// A tree.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Its root, in the inode.
    pub(crate) root: [u8; I_BLOCK_BYTES],
    /// In logical order.
    pub(crate) extents: Vec<Extent>,
    /// Its nodes in blocks, by their block.
    pub(crate) nodes: BTreeMap<u64, Vec<u8>>,
}

impl Tree {
    /// Loads what hangs on `root`. `fetch` gives the newest content of a block; `seed` is that of
    /// the nodes' checksums, if there are any.
    pub(crate) fn load(
        root: &[u8; I_BLOCK_BYTES],
        geometry: &Geometry,
        seed: Option<u32>,
        fetch: &mut dyn FnMut(u64) -> Result<Vec<u8>, String>,
    ) -> Result<Tree, String> {
        let mut tree = Tree { root: *root, extents: Vec::new(), nodes: BTreeMap::new() };
        let top = Node::parse(root, &NodeLimits::root(geometry)).map_err(|err| err.to_string())?;
        tree.add(&top, &NodeLimits::root(geometry), seed, fetch)?;
        Ok(tree)
    }

    /// Adds a node and those below it; the depth of a checked node is at most five.
    fn add(
        &mut self,
        node: &Node<'_>,
        limits: &NodeLimits,
        seed: Option<u32>,
        fetch: &mut dyn FnMut(u64) -> Result<Vec<u8>, String>,
    ) -> Result<(), String> {
        self.extents.extend(node.extents());
        for (nr, index) in node.indexes().enumerate() {
            let raw = fetch(index.leaf)?;
            if let Some(seed) = seed {
                verify_block_checksum(&raw, seed).map_err(|err| err.to_string())?;
            }
            let below = limits.child(node, nr);
            let child = Node::parse(&raw, &below).map_err(|err| err.to_string())?;
            self.add(&child, &below, seed, fetch)?;
            if self.nodes.len() == NODES_MAX || self.nodes.insert(index.leaf, raw).is_some() {
                return Err("its extents are too many, or in a circle".to_owned());
            }
        }
        Ok(())
    }

    /// Bytes of the device that hold written data, in order.
    pub(crate) fn written(&self, geometry: &Geometry) -> Vec<Range<u64>> {
        let bytes = |block: u64| block * geometry.block_size as u64;
        let written = self.extents.iter().filter(|extent| !extent.unwritten);
        let mut ranges: Vec<_> = written
            .map(|extent| bytes(extent.start)..bytes(extent.start + u64::from(extent.len)))
            .collect();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges
    }
}
