//! The shape of an extent tree: ways down, and the steps that make and take room.
//!
//! ```text
//!   i_block (4 entries)            root, depth d
//!     |        \
//!   index       index              depth d-1 .. 1, one block each
//!     |  \
//!   leaf  leaf                     depth 0: extents, in order of logical blocks
//! ```
//!
//! Blocks are reached through [`NodeReader`] and [`NodeStore`], so that the same code runs on a
//! volume inside a journal handle and on a map in tests.
//!
//! Promises: an index entry's key is the first key below it; no node but the root is empty; each
//! structural step leaves a valid tree, so an operation that runs out of space half way has lost
//! nothing. Work per call is bounded by the depth (at most 5).
//! Tested in `map/extents/tests.rs` against a map of blocks.

use std::sync::Arc;

use syncline_ondisk::OndiskError;
use syncline_ondisk::extent::{Extent, ExtentIndex, MAX_DEPTH, Node, NodeLimits, NodeMut};
use syncline_ondisk::inode::I_BLOCK_BYTES;

use crate::error::{FsError, Result};

/// Most retries of an operation after room was made: two for each level and the root.
pub(super) const RETRIES_MAX: u32 = 2 * (MAX_DEPTH as u32 + 2);

/// Reads the nodes of one file's tree.
pub(crate) trait NodeReader {
    /// Bounds that a valid root keeps to.
    fn limits(&self) -> NodeLimits;
    /// The root: `i_block`.
    fn root(&self) -> &[u8];
    /// A node block, checked against `limits` when it came from the device.
    fn load(&self, block: u64, limits: &NodeLimits) -> Result<Arc<[u8]>>;
    /// Reports broken bytes of the root (`None`) or of a block.
    fn broken(&self, block: Option<u64>, error: OndiskError) -> FsError;
}

/// Changes the nodes of one file's tree.
pub(crate) trait NodeStore: NodeReader {
    /// Edits the root (`None`) or a node block.
    fn edit(
        &mut self,
        block: Option<u64>,
        f: &mut dyn FnMut(&mut NodeMut<'_>) -> std::result::Result<(), OndiskError>,
    ) -> Result<()>;
    /// Allocates a node block, makes it an empty node of that depth and lets `f` fill it.
    fn create(
        &mut self,
        depth: u16,
        f: &mut dyn FnMut(&mut NodeMut<'_>) -> std::result::Result<(), OndiskError>,
    ) -> Result<u64>;
    /// Frees a node block.
    fn free(&mut self, block: u64) -> Result<()>;
}

/// A node's bytes as they were when the way was found.
enum Bytes {
    Root([u8; I_BLOCK_BYTES]),
    Block(Arc<[u8]>),
}

/// One node on the way down.
pub(super) struct Step {
    /// `None` for the root.
    pub block: Option<u64>,
    bytes: Bytes,
    /// Index nodes: the child that was taken.
    pub at: usize,
    pub limits: NodeLimits,
}

impl Step {
    pub(super) fn node<R: NodeReader>(&self, reader: &R) -> Result<Node<'_>> {
        let bytes: &[u8] = match &self.bytes {
            Bytes::Root(bytes) => bytes,
            Bytes::Block(bytes) => bytes,
        };
        parse(reader, self.block, bytes, &self.limits)
    }
}

/// Views a node. Its entries were checked when it was loaded; kind, depth and range are checked
/// again, because a corrupt image may use one block in two places: so no two of its index entries
/// lead to the same node, and a walk is bounded by the size of the volume.
fn parse<'a, R: NodeReader>(
    reader: &R,
    block: Option<u64>,
    bytes: &'a [u8],
    limits: &NodeLimits,
) -> Result<Node<'a>> {
    let node = match block {
        None => Node::parse(bytes, limits),
        Some(_) => Node::parse_header(bytes),
    };
    let node = node.map_err(|error| reader.broken(block, error))?;
    if limits.depth.is_some_and(|depth| depth != node.depth()) {
        let error = OndiskError::corrupt_at("extent node", 6, "depth differs from its parent's");
        return Err(reader.broken(block, error));
    }
    let last = node.len().checked_sub(1).and_then(|i| node.first_block(i));
    if node.first_block(0).is_some_and(|first| first < limits.first)
        || last.is_some_and(|last| u64::from(last) >= limits.end)
    {
        let error = OndiskError::corrupt("extent node", "its blocks are not its parent's");
        return Err(reader.broken(block, error));
    }
    Ok(node)
}

/// The nodes from the root to the leaf that holds, or would hold, `lblk`.
pub(super) fn way<R: NodeReader>(reader: &R, lblk: u32) -> Result<Vec<Step>> {
    let mut root = [0; I_BLOCK_BYTES];
    root.copy_from_slice(reader.root().get(..I_BLOCK_BYTES).unwrap_or(&[0; I_BLOCK_BYTES]));
    let mut steps = Vec::with_capacity(2);
    let mut step = Step { block: None, bytes: Bytes::Root(root), at: 0, limits: reader.limits() };
    loop {
        let node = step.node(reader)?;
        if node.depth() == 0 {
            steps.push(step);
            return Ok(steps);
        }
        let at = node.search(lblk).unwrap_or(0);
        let limits = step.limits.child(&node, at);
        let Some(child) = node.index(at) else {
            let error = OndiskError::corrupt_at("extent node", 2, "an index node without entries");
            return Err(reader.broken(step.block, error));
        };
        // Depth falls by one with each step (checked by `parse`), so this ends.
        let bytes = Bytes::Block(reader.load(child.leaf, &limits)?);
        step.at = at;
        steps.push(step);
        step = Step { block: Some(child.leaf), bytes, at: 0, limits };
    }
}

/// The extent that holds `lblk`, and one past the last block with the same answer.
pub(super) fn lookup<R: NodeReader>(reader: &R, lblk: u32) -> Result<(Option<Extent>, u64)> {
    let steps;
    let limits = reader.limits();
    let root = parse(reader, None, reader.root(), &limits)?;
    // Small files have no more than the root: no way to build then.
    let (leaf, end) = if root.depth() == 0 {
        (root, limits.end)
    } else {
        steps = way(reader, lblk)?;
        let last = last_step(&steps)?;
        (last.node(reader)?, last.limits.end)
    };
    let at = leaf.insert_position(lblk);
    if let Some(extent) = at.checked_sub(1).and_then(|i| leaf.extent(i)) {
        if extent.map(lblk).is_some() {
            return Ok((Some(extent), extent.end()));
        }
    }
    Ok((None, leaf.extent(at).map_or(end, |next| next.block.into())))
}

pub(super) fn last_step(steps: &[Step]) -> Result<&Step> {
    steps.last().ok_or_else(|| FsError::invalid("an extent tree without a root"))
}

/// Replaces `remove` extents at position `at` of the leaf by `new`. False: there was no room; some
/// was made, and the caller has to look for the place again.
pub(super) fn replace<S: NodeStore>(
    store: &mut S,
    steps: &[Step],
    at: usize,
    remove: usize,
    new: &[Extent],
) -> Result<bool> {
    let step = last_step(steps)?;
    let leaf = step.node(store)?;
    let (len, max) = (leaf.len(), leaf.max());
    if len.saturating_sub(remove) + new.len() > max {
        let key = new.first().map_or(0, |extent| extent.block);
        make_room(store, steps, steps.len() - 1, at, key)?;
        return Ok(false);
    }
    let first = new.first().map(|e| e.block).or_else(|| leaf.first_block(at + remove));
    store.edit(step.block, &mut |node| {
        node.remove(at..at + remove);
        for (i, extent) in new.iter().enumerate() {
            node.insert_extent(at + i, extent)?;
        }
        Ok(())
    })?;
    let level = steps.len() - 1;
    if len - remove + new.len() == 0 {
        prune(store, steps, level)?;
    } else if at == 0 {
        if let Some(first) = first {
            fix_keys(store, steps, level, first)?;
        }
    }
    Ok(true)
}

/// The first key of the node at `level` became `key`: says so above.
fn fix_keys<S: NodeStore>(store: &mut S, steps: &[Step], level: usize, key: u32) -> Result<()> {
    for step in steps.iter().take(level).rev() {
        let at = step.at;
        if step.node(store)?.first_block(at) == Some(key) {
            break;
        }
        store.edit(step.block, &mut |node| {
            node.set_first_block(at, key);
            Ok(())
        })?;
        if at != 0 {
            break;
        }
    }
    Ok(())
}

/// The node at `level` has no entries left: frees it and takes it out of its parent. A root without
/// entries becomes a leaf in the same edit, as an index node is never empty.
fn prune<S: NodeStore>(store: &mut S, steps: &[Step], level: usize) -> Result<()> {
    let mut level = level;
    while let Some(block) = steps.get(level).and_then(|step| step.block) {
        store.free(block)?;
        level -= 1;
        let Some(parent) = steps.get(level) else { return Ok(()) };
        let at = parent.at;
        let node = parent.node(store)?;
        let (left, next) = (node.len() - 1, node.first_block(at + 1));
        if left > 0 || parent.block.is_none() {
            store.edit(parent.block, &mut |node| {
                node.remove(at..at + 1);
                if left == 0 {
                    node.set_depth(0);
                }
                Ok(())
            })?;
            return match next {
                Some(key) if at == 0 => fix_keys(store, steps, level, key),
                _ => Ok(()),
            };
        }
        // The parent goes as well: no need to change it first.
    }
    Ok(())
}

/// Makes room in the node at `level`, or, if its parent is full, there. One step at a time; the
/// caller looks for its place again afterwards.
fn make_room<S: NodeStore>(
    store: &mut S,
    steps: &[Step],
    level: usize,
    at: usize,
    key: u32,
) -> Result<()> {
    let mut level = level;
    loop {
        let Some(parent) = level.checked_sub(1).and_then(|up| steps.get(up)) else {
            return grow(store, steps);
        };
        if !parent.node(store)?.is_full() {
            let at = if level + 1 == steps.len() { Some(at) } else { None };
            return split(store, steps, level, at, key);
        }
        level -= 1;
    }
}

/// Splits the node at `level`, whose parent has room. `at`: where the leaf needs room.
fn split<S: NodeStore>(
    store: &mut S,
    steps: &[Step],
    level: usize,
    at: Option<usize>,
    key: u32,
) -> Result<()> {
    let (Some(step), Some(parent)) = (steps.get(level), steps.get(level - 1)) else {
        return Ok(());
    };
    let node = step.node(store)?;
    let len = node.len();
    // Files mostly grow at their end: what is full stays full then, and the new node takes what
    // comes. Otherwise the halves go apart.
    let cut = match at {
        Some(at) if at == len => len,
        None if step.at + 1 == len => len - 1,
        _ => len / 2,
    };
    let key = node.first_block(cut).unwrap_or(key);
    let block = store.create(node.depth(), &mut |new| copy_entries(&node, cut, new))?;
    store.edit(step.block, &mut |node| {
        node.remove(cut..len);
        Ok(())
    })?;
    let position = parent.at + 1;
    store.edit(parent.block, &mut |node| {
        node.insert_index(position, &ExtentIndex { block: key, leaf: block })
    })
}

/// The root is full: its entries move into a block, the root gets one level higher.
fn grow<S: NodeStore>(store: &mut S, steps: &[Step]) -> Result<()> {
    let Some(step) = steps.first() else { return Ok(()) };
    let root = step.node(store)?;
    let depth = root.depth();
    if depth >= MAX_DEPTH {
        return Err(FsError::TooBig);
    }
    let key = root.first_block(0).unwrap_or(0);
    let len = root.len();
    let block = store.create(depth, &mut |new| copy_entries(&root, 0, new))?;
    store.edit(None, &mut |node| {
        node.remove(0..len);
        node.set_depth(depth + 1);
        node.insert_index(0, &ExtentIndex { block: key, leaf: block })
    })
}

fn copy_entries(
    from: &Node<'_>,
    cut: usize,
    to: &mut NodeMut<'_>,
) -> std::result::Result<(), OndiskError> {
    for i in cut..from.len() {
        if let Some(extent) = from.extent(i) {
            to.insert_extent(i - cut, &extent)?;
        } else if let Some(index) = from.index(i) {
            to.insert_index(i - cut, &index)?;
        }
    }
    Ok(())
}
