//! Extent trees from the bottom up: full nodes, each level behind the one below it.

use syncline_ondisk::extent::{self, ENTRY_BYTES, Extent, ExtentIndex, NodeMut, ROOT_MAX};
use syncline_ondisk::inode::I_BLOCK_BYTES;

use crate::error::{FsError, Result};

/// The root of a tree of `count` extents for an inode, and the number of blocks below it. `put`
/// places a block and says where.
pub(super) fn encode(
    count: usize,
    extent: &dyn Fn(usize) -> Extent,
    block_size: usize,
    csum_seed: Option<u32>,
    put: &mut dyn FnMut(&[u8]) -> Result<u64>,
) -> Result<([u8; I_BLOCK_BYTES], u64)> {
    let of_block = (block_size - ENTRY_BYTES) / ENTRY_BYTES;
    let mut root = [0; I_BLOCK_BYTES];
    if count <= usize::from(ROOT_MAX) {
        let mut node = NodeMut::init(&mut root, 0);
        for i in 0..count {
            node.insert_extent(i, &extent(i))?;
        }
        return Ok((root, 0));
    }
    let (mut blocks, mut block) = (0, vec![0; block_size]);
    let mut sealed = |block: &mut [u8]| {
        if let Some(seed) = csum_seed {
            extent::set_block_checksum(block, seed);
        }
        blocks += 1;
        put(block)
    };
    let mut level = Vec::with_capacity(count.div_ceil(of_block));
    for from in (0..count).step_by(of_block) {
        let mut node = NodeMut::init(&mut block, 0);
        for i in from..count.min(from + of_block) {
            node.insert_extent(i - from, &extent(i))?;
        }
        level.push(ExtentIndex { block: extent(from).block, leaf: sealed(&mut block)? });
    }
    let mut depth = 1;
    while level.len() > usize::from(ROOT_MAX) {
        let mut above = Vec::with_capacity(level.len().div_ceil(of_block));
        for part in level.chunks(of_block) {
            let mut node = NodeMut::init(&mut block, depth);
            for (i, index) in part.iter().enumerate() {
                node.insert_index(i, index)?;
            }
            above.push(ExtentIndex { block: part[0].block, leaf: sealed(&mut block)? });
        }
        level = above;
        depth += 1;
        if depth > extent::MAX_DEPTH {
            return Err(FsError::TooBig);
        }
    }
    let mut node = NodeMut::init(&mut root, depth);
    for (i, index) in level.iter().enumerate() {
        node.insert_index(i, index)?;
    }
    Ok((root, blocks))
}
