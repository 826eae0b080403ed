//! FAB: whole blocks leave, the one with the most cached pages first.
//!
//! ```text
//!   64 pages   newest ... oldest        lists of blocks by their number of cached pages
//!   63 pages   newest ... oldest        victim: the oldest block of the highest list; its pages
//!   ...                                 leave in ascending order, one as each is needed
//! ```
//!
//! Source: H. Jo et al., "FAB: flash-aware buffer management policy for portable media players",
//! 2006; 64 pages a block as in the informed-storage paper, section 5.4.1. A use of any page makes
//! its block the newest of its list. The paper's form drops the block at once; here a page that is
//! asked for while its block is leaving may still be there.
//!
//! When not to use it: in a small cache, where the block with the most pages is the one in use:
//! the hit ratio suffers most of all policies (informed-storage paper, table 5, 4 MB).
//!
//! Promises: a hit is one look in a hash table; a victim block is found in 64 steps, its pages are
//! sorted once. If nothing of the block may go, up to 4096 pages of others are looked at. Tested
//! below and in `tests/it`.

use super::{Accept, Access, Order};
use crate::index::key_hash;
use crate::lists::{Lists, SCAN_MAX};
use crate::{FrameId, Frames, PageKey};
use hashbrown::HashTable;

/// Pages of a block.
const BLOCK_PAGES: u64 = 64;
const LISTS: usize = BLOCK_PAGES as usize;

#[derive(Clone, Copy)]
struct Link {
    next: u32,
    previous: u32,
}

/// The policy `fab`.
pub struct Fab {
    /// By slot: the ring of the block's pages.
    pages: Vec<Link>,
    /// By block: one of its pages.
    members: Vec<u32>,
    /// Blocks by number of pages less one.
    lists: Lists<LISTS>,
    blocks: HashTable<u32>,
    free: Vec<u32>,
    /// Remaining pages of the victim block, the next one last.
    leaving: Vec<u32>,
    /// Full blocks that were offered since the last change.
    offered: Vec<u32>,
}

fn block_key(key: PageKey) -> PageKey {
    PageKey { file: key.file, index: key.index / BLOCK_PAGES }
}

fn page_block(frames: &Frames, slot: u32) -> PageKey {
    frames.key(FrameId(slot)).map_or(PageKey { file: 0, index: u64::MAX }, block_key)
}

impl Fab {
    fn block(&self, frames: &Frames, frame: FrameId) -> Option<u32> {
        let wanted = block_key(frames.key(frame)?);
        let members = &self.members;
        let is = |block: &u32| page_block(frames, members[*block as usize]) == wanted;
        self.blocks.find(key_hash(wanted), is).copied()
    }

    fn new_block(&mut self, frames: &Frames, slot: u32) {
        let block = self.free.pop().unwrap_or_else(|| {
            self.members.push(slot);
            // Blocks are no more than slots.
            self.members.len() as u32 - 1
        });
        self.members[block as usize] = slot;
        self.pages[slot as usize] = Link { next: slot, previous: slot };
        let members = &self.members;
        let hash = |block: &u32| key_hash(page_block(frames, members[*block as usize]));
        self.blocks.insert_unique(key_hash(page_block(frames, slot)), block, hash);
        self.lists.push_newest(0, block);
    }

    /// The pages of a block that may go, the highest first.
    fn pages_of(&self, block: u32, frames: &Frames, accept: Accept) -> Vec<u32> {
        let first = self.members[block as usize];
        let next = |slot: &u32| Some(self.pages[*slot as usize].next).filter(|next| *next != first);
        let ring = std::iter::successors(Some(first), next);
        let mut pages: Vec<u32> =
            ring.filter(|slot| frames.evictable(FrameId(*slot), accept)).collect();
        pages.sort_unstable_by_key(|slot| std::cmp::Reverse(frames.key(FrameId(*slot))));
        pages
    }

    /// The next page of a full block, the one that was completed first before the others, in
    /// ascending order.
    pub(crate) fn pick_full(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        loop {
            while let Some(slot) = self.leaving.pop() {
                if frames.evictable(FrameId(slot), accept) {
                    return Some(FrameId(slot));
                }
            }
            let mut block = self.lists.oldest(LISTS - 1);
            while block.is_some_and(|block| self.offered.contains(&block)) {
                block = block.and_then(|block| self.lists.newer(block));
            }
            let block = block?;
            self.offered.push(block);
            self.leaving = self.pages_of(block, frames, accept);
        }
    }

    /// Chooses the next block with a page that may go.
    fn choose(&mut self, frames: &Frames, accept: Accept) {
        let mut looked_at = 0;
        for list in (0..LISTS).rev() {
            let mut block = self.lists.oldest(list);
            while let Some(candidate) = block {
                self.leaving = self.pages_of(candidate, frames, accept);
                looked_at += list + 1;
                if !self.leaving.is_empty() || looked_at > SCAN_MAX {
                    return;
                }
                block = self.lists.newer(candidate);
            }
        }
    }
}

impl Order for Fab {
    const NAME: &'static str = "fab";

    fn new(capacity: usize) -> Self {
        Fab {
            pages: Vec::with_capacity(capacity.min(1 << 22)),
            members: Vec::new(),
            lists: Lists::new(0),
            blocks: HashTable::new(),
            free: Vec::new(),
            leaving: Vec::new(),
            offered: Vec::new(),
        }
    }

    fn insert(&mut self, frames: &Frames, frame: FrameId, _access: Access) {
        let slot = frame.0;
        self.offered.clear();
        if slot as usize >= self.pages.len() {
            self.pages.resize(slot as usize + 1, Link { next: 0, previous: 0 });
        }
        let Some(block) = self.block(frames, frame) else {
            self.new_block(frames, slot);
            return;
        };
        let next = self.members[block as usize];
        let previous = self.pages[next as usize].previous;
        self.pages[slot as usize] = Link { next, previous };
        self.pages[previous as usize].next = slot;
        self.pages[next as usize].previous = slot;
        let list = self.lists.list_of(block).unwrap_or(0);
        self.lists.push_newest((list + 1).min(LISTS - 1), block);
    }

    #[inline]
    fn hit(&mut self, frames: &Frames, frame: FrameId, _access: Access) {
        if let Some(block) = self.block(frames, frame) {
            self.lists.refresh(block);
        }
    }

    fn remove(&mut self, frames: &Frames, frame: FrameId) {
        let slot = frame.0;
        self.offered.clear();
        self.leaving.retain(|leaving| *leaving != slot);
        let Some(block) = self.block(frames, frame) else { return };
        let Link { next, previous } = self.pages[slot as usize];
        if next == slot {
            let entry = self.blocks.find_entry(key_hash(page_block(frames, slot)), |b| *b == block);
            if let Ok(entry) = entry {
                entry.remove();
            }
            self.lists.unlink(block);
            self.free.push(block);
            return;
        }
        self.pages[previous as usize].next = next;
        self.pages[next as usize].previous = previous;
        self.members[block as usize] = next;
        let list = self.lists.list_of(block).unwrap_or(0);
        self.lists.push_newest(list.saturating_sub(1), block);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        for _ in 0..2 {
            while let Some(slot) = self.leaving.pop() {
                if frames.evictable(FrameId(slot), accept) {
                    return Some(FrameId(slot));
                }
            }
            self.choose(frames, accept);
        }
        None
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        let blocks = self.members.len() * (size_of::<u32>() + Lists::<LISTS>::SLOT_BYTES);
        frames.high_water() * size_of::<Link>() + blocks + self.blocks.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    #[test]
    fn the_fullest_block_goes_whole_and_in_order() {
        let mut small = Small::<Fab>::new(6);
        // Three pages of block 1, two of block 0, one of block 2.
        small.run(&[70, 3, -65, 130, 66, 1]);
        assert_eq!(small.run(&[1000, 2000, 3000]), [65, 66, 70]);
        assert_eq!(small.run(&[4000, 5000]), [1, 3]);
    }

    /// Blocks A (pages 0 to 63), B (64 to 127), C (128 to 191), D (192 to 255), as `count: oldest
    /// use first`; clean and dirty pages count the same.
    #[test]
    fn a_sequence_by_hand() {
        let mut small = Small::<Fab>::new(6);
        // 2: A B C
        assert_eq!(small.run(&[-0, 65, 128, -1, 66, -129]), []);
        // 2: A B C         200 and 201 take the places of A's pages     2: B C D
        assert_eq!(small.run(&[200, 201]), [0, 1]);
        // 2: B C D         65 is used                                   2: C D B
        // 2: C D B         300 and 400 take the places of C's pages     2: D B, 1: 300, 400
        assert_eq!(small.run(&[65, 300, 400]), [128, 129]);
        // The fullest first, the older of two as full before the other.
        assert_eq!(small.drain(), [200, 201, 65, 66, 300, 400]);
    }

    #[test]
    fn of_blocks_as_full_the_one_used_last_stays() {
        let mut small = Small::<Fab>::new(4);
        small.run(&[0, 1, 64, 65, 0]);
        assert_eq!(small.run(&[200]), [64]);
        // 65 is still cached although its block is leaving.
        assert_eq!(small.run(&[65, 300]), [65]);
    }

    #[test]
    fn blocks_without_a_page_that_may_go_are_passed_over() {
        let mut small = Small::<Fab>::new(4);
        small.run(&[-0, 1, 2, 64]);
        for index in 0..3 {
            small.frames.set_pinned(small.frame(index), true);
        }
        assert_eq!(small.drain(), [64]);
        small.frames.set_pinned(small.frame(1), false);
        assert_eq!(small.drain(), [1]);
    }
}
