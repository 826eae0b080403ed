//! Extent trees against a map of blocks; nodes of five entries, so that trees get deep quickly.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use syncline_ondisk::OndiskError;
use syncline_ondisk::extent::{Extent, Node, NodeLimits, NodeMut};
use syncline_ondisk::inode::I_BLOCK_BYTES;

use super::convert::convert;
use super::insert::insert;
use super::remove::remove;
use super::tree::{NodeReader, NodeStore, lookup};
use crate::error::{FsError, Result};

const NODE_BYTES: usize = 12 + 5 * 12 + 4;

struct Memory {
    root: [u8; I_BLOCK_BYTES],
    blocks: BTreeMap<u64, Vec<u8>>,
    next: u64,
    room: usize,
    /// Loads without checking, as a cache does.
    trusting: bool,
}

impl Memory {
    fn new() -> Memory {
        let mut root = [0; I_BLOCK_BYTES];
        NodeMut::init(&mut root, 0);
        Memory { root, blocks: BTreeMap::new(), next: 1 << 40, room: usize::MAX, trusting: false }
    }

    /// Checks every node fully and returns the extents in order.
    fn walk(&self) -> Vec<Extent> {
        let mut nodes = 0;
        let mut extents = Vec::new();
        self.walk_node(&self.root, self.limits(), &mut nodes, &mut extents);
        assert_eq!(nodes, self.blocks.len(), "a node block leaked");
        extents
    }

    fn walk_node(
        &self,
        raw: &[u8],
        limits: NodeLimits,
        nodes: &mut usize,
        extents: &mut Vec<Extent>,
    ) {
        let node = Node::parse(raw, &limits).expect("a valid node");
        extents.extend(node.extents());
        for (i, index) in node.indexes().enumerate() {
            *nodes += 1;
            let child = &self.blocks[&index.leaf];
            let view = Node::parse_header(child).expect("header");
            assert!(!view.is_empty(), "an empty node below the root");
            assert_eq!(view.first_block(0), Some(index.block), "key differs from the first below");
            self.walk_node(child, limits.child(&node, i), nodes, extents);
        }
    }
}

impl NodeReader for Memory {
    fn limits(&self) -> NodeLimits {
        NodeLimits { first: 0, end: 1 << 32, depth: None, blocks_first: 1, blocks_end: 1 << 47 }
    }
    fn root(&self) -> &[u8] {
        &self.root
    }
    fn load(&self, block: u64, limits: &NodeLimits) -> Result<Arc<[u8]>> {
        let bytes = self.blocks.get(&block).expect("a live block");
        if !self.trusting {
            Node::parse(bytes, limits).map_err(|error| self.broken(Some(block), error))?;
        }
        Ok(Arc::from(bytes.as_slice()))
    }
    fn broken(&self, block: Option<u64>, error: OndiskError) -> FsError {
        FsError::Corrupt { inode: None, block, offset: None, what: error.to_string() }
    }
}

impl NodeStore for Memory {
    fn edit(
        &mut self,
        block: Option<u64>,
        f: &mut dyn FnMut(&mut NodeMut<'_>) -> std::result::Result<(), OndiskError>,
    ) -> Result<()> {
        let raw = match block {
            None => &mut self.root[..],
            Some(block) => self.blocks.get_mut(&block).expect("a live block"),
        };
        f(&mut NodeMut::parse(raw).expect("header")).expect("there is room");
        Ok(())
    }
    fn create(
        &mut self,
        depth: u16,
        f: &mut dyn FnMut(&mut NodeMut<'_>) -> std::result::Result<(), OndiskError>,
    ) -> Result<u64> {
        if self.blocks.len() >= self.room {
            return Err(FsError::NoSpace);
        }
        let mut raw = vec![0; NODE_BYTES];
        f(&mut NodeMut::init(&mut raw, depth)).expect("there is room");
        self.next += 1;
        self.blocks.insert(self.next, raw);
        Ok(self.next)
    }
    fn free(&mut self, block: u64) -> Result<()> {
        self.blocks.remove(&block).expect("freed twice");
        Ok(())
    }
}

/// Logical block -> (physical block, unwritten).
type Model = BTreeMap<u32, (u64, bool)>;

fn flat(extents: &[Extent]) -> Model {
    let block = |e: &Extent, i: u32| (e.block + i, (e.start + u64::from(i), e.unwritten));
    extents.iter().flat_map(|e| (0..e.len).map(move |i| block(e, i))).collect()
}

fn extent(block: u32, len: u32, start: u64, unwritten: bool) -> Extent {
    Extent { block, len, start, unwritten }
}

#[test]
fn a_file_written_in_order_is_one_extent_per_128_mib() {
    let mut tree = Memory::new();
    for i in 0..70_000_u32 {
        insert(&mut tree, extent(i, 1, 5000 + u64::from(i), false)).unwrap();
    }
    let lens: Vec<u32> = tree.walk().iter().map(|e| e.len).collect();
    assert_eq!(lens, [32768, 32768, 4464]);
}

#[test]
fn appended_nodes_stay_full() {
    let mut tree = Memory::new();
    for i in 0..1000_u32 {
        insert(&mut tree, extent(i * 2, 1, 10_000 + u64::from(i) * 3, false)).unwrap();
    }
    tree.walk();
    assert!(tree.blocks.len() < 200 + 60 + 20, "{} nodes", tree.blocks.len());
}

#[test]
fn a_long_written_extent_becomes_two_unwritten_ones() {
    let mut tree = Memory::new();
    insert(&mut tree, extent(0, 32768, 100, false)).unwrap();
    let mut at = 0;
    while at < 32768 {
        at = convert(&mut tree, at, 32768, true).unwrap();
    }
    let lens: Vec<u32> = tree.walk().iter().map(|e| e.len).collect();
    assert_eq!(lens, [32767, 1]);
}

#[test]
fn the_last_block_of_a_file_is_reachable() {
    let mut tree = Memory::new();
    insert(&mut tree, extent(0xffff_fffe, 1, 77, false)).unwrap();
    assert_eq!(lookup(&tree, 0).unwrap(), (None, 0xffff_fffe));
    assert_eq!(lookup(&tree, 0xffff_fffe).unwrap().0.unwrap().start, 77);
    assert_eq!(lookup(&tree, 0xffff_ffff).unwrap(), (None, 1 << 32));
    remove(&mut tree, 0, 0xffff_ffff, 1000, &mut |_, _| Ok(true)).unwrap();
    assert!(tree.walk().is_empty());
}

#[test]
fn a_tree_that_was_emptied_is_a_leaf_again() {
    let mut tree = Memory::new();
    for i in 0..500_u32 {
        insert(&mut tree, extent(i * 2, 1, 10_000 + u64::from(i) * 3, false)).unwrap();
    }
    remove(&mut tree, 0, 2000, 3, &mut |_, _| Ok(true)).unwrap();
    assert!(tree.walk().is_empty() && tree.blocks.is_empty());
    assert_eq!(Node::parse(&tree.root, &tree.limits()).unwrap().depth(), 0);
    insert(&mut tree, extent(3, 1, 7, false)).unwrap();
    assert_eq!(tree.walk().len(), 1);
}

#[test]
fn mapping_a_block_twice_is_corruption() {
    let mut tree = Memory::new();
    insert(&mut tree, extent(10, 10, 100, false)).unwrap();
    for (block, len) in [(5, 6), (10, 1), (19, 1), (0, 100)] {
        let again = insert(&mut tree, extent(block, len, 500, false));
        assert!(matches!(again, Err(FsError::Corrupt { .. })), "{block}+{len}");
    }
}

#[test]
fn a_header_of_the_wrong_depth_is_refused() {
    let mut tree = Memory::new();
    for i in 0..40_u32 {
        insert(&mut tree, extent(i * 2, 1, 10_000 + u64::from(i) * 3, false)).unwrap();
    }
    let child = *tree.blocks.keys().next().unwrap();
    tree.blocks.get_mut(&child).unwrap()[6] = 4;
    assert!(matches!(lookup(&tree, 0), Err(FsError::Corrupt { .. })));
}

#[test]
fn a_node_in_two_places_is_refused() {
    let mut tree = Memory::new();
    for i in 0..12_u32 {
        insert(&mut tree, extent(i * 2, 1, 10_000 + u64::from(i) * 3, false)).unwrap();
    }
    // Cached nodes are not checked entry by entry again; the second place is found all the same.
    let root = Node::parse_header(&tree.root).unwrap();
    let (first, second) = (root.index(0).unwrap(), root.index(1).unwrap());
    let bytes = tree.blocks[&first.leaf].clone();
    *tree.blocks.get_mut(&second.leaf).unwrap() = bytes;
    tree.trusting = true;
    assert!(lookup(&tree, 0).is_ok());
    assert!(matches!(lookup(&tree, second.block), Err(FsError::Corrupt { .. })));
}

#[derive(Clone, Debug)]
enum Step {
    Insert { block: u32, len: u32, unwritten: bool, gap: u64 },
    Remove { from: u32, len: u32, stop: u32 },
    Convert { from: u32, len: u32, unwritten: bool },
    Room { nodes: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0_u32..600, 1_u32..6, any::<bool>(), 0_u64..2)
            .prop_map(|(block, len, unwritten, gap)| Step::Insert { block, len, unwritten, gap }),
        2 => (0_u32..600, prop_oneof![6 => 1_u32..80, 1 => Just(700)], 1_u32..20)
            .prop_map(|(from, len, stop)| Step::Remove { from, len, stop }),
        3 => (0_u32..600, 1_u32..30, any::<bool>())
            .prop_map(|(from, len, unwritten)| Step::Convert { from, len, unwritten }),
        1 => (0_usize..60).prop_map(|nodes| Step::Room { nodes }),
    ];
    prop::collection::vec(step, 1..300)
}

/// Inserts into the holes of `block..block + len`; a block's place follows from its number, so
/// that neighbours can merge unless `gap` keeps them apart.
fn insert_holes(tree: &mut Memory, model: &mut Model, at: (u32, u32), unwritten: bool, gap: u64) {
    for block in at.0..at.0 + at.1 {
        if model.contains_key(&block) {
            continue;
        }
        let start = 1000 + u64::from(block) * (1 + gap);
        if insert(tree, extent(block, 1, start, unwritten)).is_ok() {
            model.insert(block, (start, unwritten));
        } else {
            assert!(tree.blocks.len() + 8 > tree.room, "no space with room left");
        }
    }
}

fn run(steps: Vec<Step>) -> std::result::Result<(), TestCaseError> {
    let mut tree = Memory::new();
    let mut model = Model::new();
    for step in steps {
        match step {
            Step::Insert { block, len, unwritten, gap } => {
                insert_holes(&mut tree, &mut model, (block, len), unwritten, gap);
            }
            Step::Remove { from, len, stop } => {
                let mut to = from + len;
                while to > from {
                    let (mut left, mut freed) = (stop, Vec::new());
                    let done = remove(&mut tree, from, to, 3, &mut |_, extent| {
                        freed.push(extent);
                        left -= 1;
                        Ok(left > 0)
                    });
                    for (block, place) in flat(&freed) {
                        prop_assert_eq!(model.remove(&block), Some(place));
                    }
                    let Ok(done) = done else { break };
                    prop_assert!(model.range(done..to).next().is_none());
                    to = done;
                }
            }
            Step::Convert { from, len, unwritten } => {
                let mut at = from;
                while at < from + len {
                    let Ok(next) = convert(&mut tree, at, from + len, unwritten) else { break };
                    prop_assert!(next > at);
                    for (_, place) in model.range_mut(at..next) {
                        place.1 = unwritten;
                    }
                    at = next;
                }
            }
            Step::Room { nodes } => tree.room = tree.blocks.len() + nodes,
        }
        prop_assert_eq!(&flat(&tree.walk()), &model);
    }
    for block in 0..700 {
        let (found, end) = lookup(&tree, block).unwrap();
        let place = found.map(|e| (e.map(block).unwrap(), e.unwritten));
        prop_assert_eq!(place, model.get(&block).copied());
        prop_assert!(end > block.into());
        if found.is_none() {
            prop_assert_eq!(model.range(block..).next().map_or(1 << 32, |n| (*n.0).into()), end);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// proptest prints the seed and the shrunk steps of a failure.
    #[test]
    fn a_tree_maps_what_the_model_maps(steps in steps()) {
        run(steps)?;
    }
}
