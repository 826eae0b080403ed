//! Extent trees from the bottom up: full nodes, each level behind the one below it.

use syncline_ondisk::extent::{self, ENTRY_BYTES, Extent, ExtentIndex, NodeMut, ROOT_MAX};
use syncline_ondisk::inode::I_BLOCK_BYTES;

use super::contents::Run;
use crate::error::{FsError, Result};

/// The root for an inode, and the number of blocks below it. `put` places a block and says where.
pub(super) fn encode(
    runs: &[Run],
    block_size: usize,
    csum_seed: Option<u32>,
    mut put: impl FnMut(&[u8]) -> Result<u64>,
) -> Result<([u8; I_BLOCK_BYTES], u64)> {
    let of_block = (block_size - ENTRY_BYTES) / ENTRY_BYTES;
    let extent =
        |run: &Run| Extent { block: run.block, len: run.len, start: run.start, unwritten: false };
    let mut root = [0; I_BLOCK_BYTES];
    if runs.len() <= usize::from(ROOT_MAX) {
        let mut node = NodeMut::init(&mut root, 0);
        for (i, run) in runs.iter().enumerate() {
            node.insert_extent(i, &extent(run))?;
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
    let mut level = Vec::with_capacity(runs.len().div_ceil(of_block));
    for part in runs.chunks(of_block) {
        let mut node = NodeMut::init(&mut block, 0);
        for (i, run) in part.iter().enumerate() {
            node.insert_extent(i, &extent(run))?;
        }
        level.push(ExtentIndex { block: part[0].block, leaf: sealed(&mut block)? });
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
