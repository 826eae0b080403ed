//! Block mapping: a superblock is replaced as a whole, a few replacements are open at once.
//!
//! ```text
//!   old data block       [0][1][2][3][4][5]
//!   replacement block    [0][1][2'][ ][ ][ ]     0 and 1 were copied when 2 was written;
//!                                                3, 4, 5 are copied when it is ended
//! ```
//!
//! Behaviour after the SD specification (Physical Layer 4.10, 4.13.1.3): into a used allocation
//! unit the card writes by preparing a new one, copying what is kept. A write behind the end of
//! the replacement copies what lies between; a write before its end, or one superblock more than
//! there are replacements, ends it: the rest is copied, the old block erased. Nothing copied: a
//! switch merge; else a partial one. Full merges do not occur.

use super::hybrid::{BlockScheme, Core, Merge, NONE};
use super::lru::Lru;
use crate::flash::Flash;

#[derive(Clone, Copy, Debug)]
struct Replacement {
    row: u32,
    block: u32,
    /// Places programmed or passed over.
    next: u32,
    /// Units copied into it.
    copied: u32,
}

/// The replacement blocks.
pub(super) struct BlockMap {
    open: Vec<Replacement>,
    recent: Lru,
    free: Vec<u32>,
    /// Replacement of each logical superblock.
    open_of: Vec<u32>,
}

impl BlockMap {
    /// `open_blocks` replacements at once, 1 or more.
    pub(super) fn new(core: &Core, open_blocks: u32) -> Self {
        let unused = Replacement { row: NONE, block: NONE, next: 0, copied: 0 };
        BlockMap {
            open: vec![unused; open_blocks as usize],
            recent: Lru::new(open_blocks as usize),
            free: (0..open_blocks).rev().collect(),
            open_of: vec![NONE; core.rows() as usize],
        }
    }

    /// Copies what is left and installs the replacement.
    fn end(&mut self, slot: u32, core: &mut Core, at_ns: u64, flash: &mut Flash) -> u64 {
        let at_ns = self.fill(slot, core.layout.units_per_block, core, at_ns, flash);
        let Replacement { row, block, next, copied } = self.open[slot as usize];
        self.recent.unlink(slot);
        self.free.push(slot);
        self.open_of[row as usize] = NONE;
        self.open[slot as usize].row = NONE;
        let kind = if copied == 0 { Merge::Switch } else { Merge::Partial };
        core.merged(kind, (row, block, next), at_ns, flash)
    }

    /// Copies what the old block has from the end of the replacement to `place`.
    fn fill(
        &mut self,
        slot: u32,
        place: u32,
        core: &mut Core,
        at_ns: u64,
        flash: &mut Flash,
    ) -> u64 {
        let open = &mut self.open[slot as usize];
        let copies = core.in_data.count_range(open.row, open.next, place);
        open.copied += copies;
        // At the end of the block the free places behind the last unit stay usable.
        let last = core.in_data.end(open.row).clamp(open.next, place);
        open.next = if place == core.layout.units_per_block { last } else { place };
        core.copy(copies, at_ns, flash)
    }
}

impl BlockScheme for BlockMap {
    fn locate(&self, core: &Core, unit: u32) -> Option<u32> {
        let (row, place) = core.split(unit);
        core.in_data.get(row, place).then(|| {
            let replacement = self.open_of[row as usize];
            let block = match self.open.get(replacement as usize) {
                Some(open) if place < open.next => open.block,
                _ => core.data[row as usize],
            };
            core.page(block, place)
        })
    }

    fn place(&mut self, core: &mut Core, unit: u32, at_ns: u64, flash: &mut Flash) -> (u32, u64) {
        let (row, place) = core.split(unit);
        let mut at_ns = at_ns;
        let mut slot = self.open_of[row as usize];
        if slot != NONE && place < self.open[slot as usize].next {
            at_ns = self.end(slot, core, at_ns, flash);
            slot = NONE;
        }
        if slot == NONE {
            if let Some(found) = core.in_place(row, place, at_ns, flash) {
                return found;
            }
            if self.free.is_empty()
                && let Some(oldest) = self.recent.oldest()
            {
                at_ns = self.end(oldest, core, at_ns, flash);
            }
            slot = self.free.pop().expect("an ended replacement gave its place back");
            let (block, taken_ns) = core.take(at_ns, flash);
            at_ns = taken_ns;
            self.open[slot as usize] = Replacement { row, block, next: 0, copied: 0 };
            self.open_of[row as usize] = slot;
            self.recent.push(slot);
        }
        self.recent.used(slot);
        at_ns = self.fill(slot, place, core, at_ns, flash);
        let open = &mut self.open[slot as usize];
        open.next = place + 1;
        core.in_data.set(row, place);
        (core.page(open.block, place), at_ns)
    }

    fn forget(&mut self, core: &mut Core, unit: u32) -> bool {
        let (row, place) = core.split(unit);
        let was = core.in_data.take(row, place);
        if was && self.open_of[row as usize] == NONE && core.in_data.count(row) == 0 {
            core.drop_data(row);
        }
        was
    }

    fn movable(&self, row: u32) -> bool {
        self.open_of[row as usize] == NONE
    }

    fn blocks(&self) -> Vec<u32> {
        self.open.iter().filter(|o| o.row != NONE).map(|o| o.block).collect()
    }

    fn memory_bytes(&self) -> u64 {
        let tables = self.open_of.len() + 4 * self.open.len();
        tables as u64 * 4 + self.recent.memory_bytes()
    }
}
