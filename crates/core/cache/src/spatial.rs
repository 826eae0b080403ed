//! Pages in the order of their addresses, and one clock hand that sweeps them.
//!
//! ```text
//!   place = (index / 65536, file, index % 65536)      one file: the order of its pages
//!
//!   level 2   [.1..1.......]          64 children a node, made when the first page below comes
//!   level 1   [1.1....] [..1..]       one bit a leaf
//!   leaf      [.11.1...] -> slot of its first page       32 places
//!   ring       12 <-> 13 <-> 15 <-> ...                  all pages, linked in order
//! ```
//!
//! The ring makes a sweep one load a page. The bitmaps are there for inserting only: a page beside
//! the last one inserted costs no search; one in a leaf that has pages walks that leaf's part of
//! the ring (31 steps at most); a new leaf asks the bitmaps for the next one. The paper's AVL tree
//! (informed-storage paper, section 5.3) needs log2(N) dependent steps and a rebalancing each time.
//!
//! With files, an extent of 65536 pages (256 MiB) of one is followed by those of the next: a file
//! is swept in one go, a larger one in pieces.
//!
//! Tested below against a sorted map.

use crate::index::key_hash;
use crate::{Accept, FrameId, Frames, PageKey};
use hashbrown::HashTable;
use rustc_hash::FxHashMap;

const LEAF_BITS: u32 = 5;
const NODE_BITS: u32 = 6;
const SEGMENT_BITS: u32 = 16;
/// Levels of nodes above the leaves: enough for 128 bits.
const LEVELS: usize = 21;
const NONE: u32 = u32::MAX;

/// The pages `number * 32 ..` of the order.
struct Leaf {
    bits: u32,
    /// The slot of the first page; its key tells the leaf's number.
    first: u32,
}

#[derive(Clone, Copy)]
struct Link {
    next: u32,
    previous: u32,
}

const UNLINKED: Link = Link { next: NONE, previous: NONE };

/// Slots in the order of their pages' addresses.
pub(crate) struct Spatial {
    links: Vec<Link>,
    leaves: HashTable<Leaf>,
    nodes: [FxHashMap<NodeKey, u64>; LEVELS],
    first: u32,
    /// The slot and the place that were inserted last.
    recent: (u32, u128),
    len: usize,
}

/// The number of a node in halves, which align to 8 bytes and not to 16.
type NodeKey = (u64, u64);

fn node_key(number: u128) -> NodeKey {
    ((number >> u64::BITS) as u64, number as u64)
}

/// Returns the sort key of a page: segment, file, position within the segment.
fn place(key: PageKey) -> u128 {
    let segment = u128::from(key.index >> SEGMENT_BITS);
    let within = u128::from(key.index) & ((1 << SEGMENT_BITS) - 1);
    (segment << u64::BITS | u128::from(key.file)) << SEGMENT_BITS | within
}

/// The leaf of a page, as the key of the leaf's first place.
fn leaf_key(key: PageKey) -> PageKey {
    PageKey { file: key.file, index: key.index >> LEAF_BITS << LEAF_BITS }
}

fn holds(leaf: &Leaf, wanted: PageKey, frames: &Frames) -> bool {
    frames.key(FrameId(leaf.first)).map(leaf_key) == Some(wanted)
}

impl Spatial {
    /// Memory of one slot's links, in bytes; leaves and nodes come on top.
    pub const SLOT_BYTES: usize = size_of::<Link>();

    /// An empty order with room for `capacity` slots; it grows when there are more.
    pub fn new(capacity: usize) -> Self {
        Spatial {
            links: Vec::with_capacity(capacity.min(1 << 22)),
            leaves: HashTable::new(),
            nodes: [const { FxHashMap::with_hasher(rustc_hash::FxBuildHasher) }; LEVELS],
            first: NONE,
            recent: (NONE, 0),
            len: 0,
        }
    }

    /// Pages in the order.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the slot is in the order.
    pub fn contains(&self, slot: u32) -> bool {
        self.links.get(slot as usize).is_some_and(|link| link.next != NONE)
    }

    /// The slot of the page with the lowest address.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// The slot after a member; the first one after the last.
    #[inline]
    pub fn next(&self, slot: u32) -> u32 {
        self.links[slot as usize].next
    }

    /// The slot before a member; the last one before the first.
    fn previous(&self, slot: u32) -> u32 {
        self.links[slot as usize].previous
    }

    /// Memory of leaves and nodes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let nodes: usize = self.nodes.iter().map(FxHashMap::capacity).sum();
        let node_bytes = size_of::<(NodeKey, u64)>() + 1;
        self.leaves.allocation_size() + nodes * 8 / 7 * node_bytes
    }

    /// Adds a slot that is in use in `frames` and not in the order.
    pub fn insert(&mut self, frames: &Frames, slot: u32) {
        let Some(key) = frames.key(FrameId(slot)) else { return };
        if slot as usize >= self.links.len() {
            self.links.resize(slot as usize + 1, UNLINKED);
        }
        let (wanted, place) = (leaf_key(key), place(key));
        let bit = 1u32 << (key.index % (1 << LEAF_BITS));
        let beside = self.recent.1.wrapping_add(1) == place && self.contains(self.recent.0);
        let mut before = if beside { self.next(self.recent.0) } else { NONE };
        match self.leaves.find_mut(key_hash(wanted), |leaf| holds(leaf, wanted, frames)) {
            Some(leaf) => {
                let below = (leaf.bits & (bit - 1)).count_ones();
                if !beside {
                    before = leaf.first;
                    (0..below).for_each(|_| before = self.links[before as usize].next);
                }
                leaf.bits |= bit;
                if below == 0 {
                    leaf.first = slot;
                }
            }
            None => {
                if before == NONE {
                    before = self.first_from(frames, place >> LEAF_BITS);
                }
                self.set_nodes(place >> LEAF_BITS);
                let hash = |leaf: &Leaf| leaf_hash(leaf, frames);
                self.leaves.insert_unique(key_hash(wanted), Leaf { bits: bit, first: slot }, hash);
            }
        }
        self.link(frames, place, slot, before);
        self.recent = (slot, place);
        self.len += 1;
    }

    /// Takes out a slot that still has its key; others are left alone.
    pub fn remove(&mut self, frames: &Frames, slot: u32) {
        let (true, Some(key)) = (self.contains(slot), frames.key(FrameId(slot))) else { return };
        let wanted = leaf_key(key);
        let bit = 1u32 << (key.index % (1 << LEAF_BITS));
        let link = self.links[slot as usize];
        if let Ok(mut entry) =
            self.leaves.find_entry(key_hash(wanted), |leaf| holds(leaf, wanted, frames))
        {
            let leaf = entry.get_mut();
            leaf.bits &= !bit;
            if leaf.bits == 0 {
                entry.remove();
                self.clear_nodes(place(key) >> LEAF_BITS);
            } else if leaf.first == slot {
                leaf.first = link.next;
            }
        }
        self.links[link.previous as usize].next = link.next;
        self.links[link.next as usize].previous = link.previous;
        if self.first == slot {
            self.first = if link.next == slot { NONE } else { link.next };
        }
        self.links[slot as usize] = UNLINKED;
        self.len -= 1;
    }

    /// Links `slot` before the member `before`; `NONE` or the first: at the end or the start.
    fn link(&mut self, frames: &Frames, at: u128, slot: u32, before: u32) {
        if self.first == NONE {
            self.links[slot as usize] = Link { next: slot, previous: slot };
            self.first = slot;
            return;
        }
        let next = if before == NONE { self.first } else { before };
        let previous = self.links[next as usize].previous;
        self.links[slot as usize] = Link { next, previous };
        self.links[previous as usize].next = slot;
        self.links[next as usize].previous = slot;
        if next == self.first && frames.key(FrameId(next)).is_some_and(|key| at < place(key)) {
            self.first = slot;
        }
    }

    /// The first page of the next leaf after the number `leaf`; `NONE`: there is none.
    fn first_from(&self, frames: &Frames, leaf: u128) -> u32 {
        let mut number = leaf;
        for level in 0..LEVELS {
            let (parent, child) = (number >> NODE_BITS, number as u32 % (1 << NODE_BITS));
            let bits = self.nodes[level].get(&node_key(parent)).copied().unwrap_or(0);
            let above = bits & (u64::MAX << 1).wrapping_shl(child);
            if above != 0 {
                number = parent << NODE_BITS | u128::from(above.trailing_zeros());
                return self.first_below(frames, number, level);
            }
            number = parent;
        }
        NONE
    }

    /// The first page below the child `number` of a node of `level`, which has pages.
    fn first_below(&self, frames: &Frames, mut number: u128, level: usize) -> u32 {
        for below in (0..level).rev() {
            let bits = self.nodes[below].get(&node_key(number)).copied().unwrap_or(0);
            number = number << NODE_BITS | u128::from(bits.trailing_zeros() & 63);
        }
        let within = (number << LEAF_BITS) & ((1 << SEGMENT_BITS) - 1);
        let above = number >> (SEGMENT_BITS - LEAF_BITS);
        // The parts of a place as `place` put them together.
        let segment = (above >> u64::BITS) as u64;
        let wanted = PageKey { file: above as u64, index: segment << SEGMENT_BITS | within as u64 };
        let found = self.leaves.find(key_hash(wanted), |leaf| holds(leaf, wanted, frames));
        found.map_or(NONE, |leaf| leaf.first)
    }

    fn set_nodes(&mut self, mut number: u128) {
        for nodes in &mut self.nodes {
            let bits = nodes.entry(node_key(number >> NODE_BITS)).or_insert(0);
            let known = *bits != 0;
            *bits |= 1 << (number % (1 << NODE_BITS));
            if known {
                return;
            }
            number >>= NODE_BITS;
        }
    }

    fn clear_nodes(&mut self, mut number: u128) {
        for nodes in &mut self.nodes {
            let Some(bits) = nodes.get_mut(&node_key(number >> NODE_BITS)) else { return };
            *bits &= !(1 << (number % (1 << NODE_BITS)));
            if *bits != 0 {
                return;
            }
            nodes.remove(&node_key(number >> NODE_BITS));
            number >>= NODE_BITS;
        }
    }
}

fn leaf_hash(leaf: &Leaf, frames: &Frames) -> u64 {
    frames.key(FrameId(leaf.first)).map_or(0, |key| key_hash(leaf_key(key)))
}

/// The number of a page's block, of `pages` pages, as an index.
fn block_of(frames: &Frames, slot: u32, pages: u64) -> Option<PageKey> {
    let key = frames.key(FrameId(slot))?;
    Some(PageKey { file: key.file, index: key.index / pages })
}

/// A clock hand over the pages in the order of their addresses.
pub(crate) struct Sweep {
    order: Spatial,
    /// The page that is looked at next; `NONE`: the one with the lowest address.
    hand: u32,
}

impl Sweep {
    /// An empty clock.
    pub fn new(capacity: usize) -> Self {
        Sweep { order: Spatial::new(capacity), hand: NONE }
    }

    /// The order that is swept.
    pub fn order(&self) -> &Spatial {
        &self.order
    }

    /// Adds a page. The hand stays where it is.
    pub fn insert(&mut self, frames: &Frames, frame: FrameId) {
        self.order.insert(frames, frame.0);
    }

    /// Takes a page out; the hand moves on if it pointed there.
    pub fn remove(&mut self, frames: &Frames, frame: FrameId) {
        if self.hand == frame.0 && self.order.contains(frame.0) {
            self.advance(frame.0);
        }
        self.order.remove(frames, frame.0);
    }

    /// The next page that may go and that `spare` does not let pass, in at most `turns` turns.
    #[inline]
    pub fn pick(
        &mut self,
        frames: &Frames,
        accept: Accept,
        turns: usize,
        mut spare: impl FnMut(FrameId) -> bool,
    ) -> Option<FrameId> {
        for _ in 0..self.order.len().saturating_mul(turns) {
            if self.hand == NONE {
                self.hand = self.order.first()?;
            }
            let slot = self.hand;
            self.advance(slot);
            let frame = FrameId(slot);
            if frames.evictable(frame, accept) && !spare(frame) {
                return Some(frame);
            }
        }
        None
    }

    /// Moves the hand over the block at which it is, of `pages` pages, and adds those that are
    /// there to `block` in ascending order. Returns the block's number as an index, `None` if
    /// there is no page.
    pub fn take_block(
        &mut self,
        frames: &Frames,
        pages: u64,
        block: &mut Vec<u32>,
    ) -> Option<PageKey> {
        if self.hand == NONE {
            self.hand = self.order.first()?;
        }
        let number = block_of(frames, self.hand, pages)?;
        // Pages may have come in before the one at which the hand is.
        self.step_back(frames, pages, number);
        while self.hand != NONE && block_of(frames, self.hand, pages) == Some(number) {
            block.push(self.hand);
            self.advance(self.hand);
        }
        Some(number)
    }

    /// Moves the hand back over pages of this block.
    pub fn step_back(&mut self, frames: &Frames, pages: u64, number: PageKey) {
        let Some(first) = self.order.first() else { return };
        while self.hand != first {
            let at = if self.hand == NONE { first } else { self.hand };
            let before = self.order.previous(at);
            if block_of(frames, before, pages) != Some(number) {
                return;
            }
            self.hand = before;
        }
    }

    /// Past the last page the next turn starts at the lowest, whatever that is by then.
    #[inline]
    fn advance(&mut self, slot: u32) {
        let next = self.order.next(slot);
        self.hand = if Some(next) == self.order.first() { NONE } else { next };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    fn ring(order: &Spatial) -> Vec<u32> {
        let Some(first) = order.first() else { return Vec::new() };
        let walk = std::iter::successors(Some(first), |slot| {
            Some(order.next(*slot)).filter(|next| *next != first)
        });
        walk.collect()
    }

    /// 20,000 inserts and removals of runs and single pages in three shapes of address space.
    #[test]
    fn the_ring_is_a_sorted_map_in_any_address_space() {
        let spaces: [(u64, u64); 3] = [(1, 600), (40, 100_000), (u64::MAX, 1 << 60)];
        for (seed, (files, pages)) in spaces.into_iter().enumerate() {
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed as u64);
            let (frames, mut order) = (Frames::new(4096), Spatial::new(0));
            let mut model = BTreeMap::new();
            for step in 0..20_000 {
                let key =
                    PageKey { file: rng.random_range(0..files), index: rng.random_range(0..pages) };
                let run = if step % 3 == 0 { rng.random_range(1..40) } else { 1 };
                for index in key.index..(key.index + run).min(pages) {
                    let key = PageKey { index, ..key };
                    if model.len() < 400 && !model.contains_key(&place(key)) {
                        let slot = frames.insert(key, false).unwrap();
                        order.insert(&frames, slot.0);
                        model.insert(place(key), slot.0);
                    }
                }
                let at = model.range(place(key)..).nth(2).or(model.first_key_value());
                if let Some((&at, &slot)) = at.filter(|_| model.len() > 200 || step % 2 == 0) {
                    model.remove(&at);
                    order.remove(&frames, slot);
                    frames.release(FrameId(slot));
                }
                assert_eq!(order.len(), model.len());
                if step % 16 == 0 || step > 19_900 {
                    assert_eq!(ring(&order), model.values().copied().collect::<Vec<_>>());
                }
            }
            for slot in model.into_values() {
                order.remove(&frames, slot);
                frames.release(FrameId(slot));
            }
            assert!(order.first().is_none() && order.leaves.is_empty());
            assert!(order.nodes.iter().all(FxHashMap::is_empty));
        }
    }

    #[test]
    fn the_hand_points_at_a_page_and_not_between_two() {
        let (frames, mut sweep) = (Frames::new(8), Sweep::new(8));
        let add = |sweep: &mut Sweep, index| {
            let frame = frames.insert(PageKey { file: 0, index }, false).unwrap();
            sweep.insert(&frames, frame);
            frame
        };
        let pick = |sweep: &mut Sweep| sweep.pick(&frames, Accept::Any, 1, |_| false);
        let [b, d] = [20, 40].map(|index| add(&mut sweep, index));
        assert_eq!(pick(&mut sweep), Some(b));
        let [c, a] = [30, 10].map(|index| add(&mut sweep, index));
        assert_eq!(pick(&mut sweep), Some(d), "it was next when {c:?} came in before it");
        add(&mut sweep, 50);
        assert_eq!(pick(&mut sweep), Some(a), "the turn had ended");
        sweep.remove(&frames, b);
        assert_eq!(pick(&mut sweep), Some(c));
    }
}
