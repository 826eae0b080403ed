//! BAST: a log block belongs to one data block.
//!
//! ```text
//!   data block of 7   [0][1][2][3]       log block of 7   [2'][0'][2"][ ]   newest last
//!   data block of 9   [0][1][2][3]       log block of 9   [0'][1'][ ][ ]    in order so far
//! ```
//!
//! Block-associative sector translation (Kim et al., "A space-efficient flash translation layer for
//! CompactFlash systems", 2002). A unit whose place in the data block is taken goes to the next
//! place of its log block. A log block is merged when it is full and another unit comes, or when it
//! is the one not used for longest and another superblock needs one. Written in order from place 0:
//! switch (complete) or partial merge; else full. Random writes over more superblocks than there
//! are log blocks merge each time: the cheap card's 100 ms writes.

use super::bits::Bits;
use super::hybrid::{BlockScheme, Core, Merge, NONE};
use super::lru::Lru;
use crate::flash::Flash;

#[derive(Clone, Copy, Debug)]
struct Log {
    row: u32,
    block: u32,
    /// Places programmed.
    next: u32,
    /// True if place i holds unit i, for all of them.
    in_order: bool,
}

/// The log blocks.
pub(super) struct Bast {
    logs: Vec<Log>,
    /// Places of units: one row of a superblock's units for each log block.
    places: Vec<u32>,
    recent: Lru,
    free: Vec<u32>,
    /// Log block of each logical superblock.
    log_of: Vec<u32>,
    in_log: Bits,
}

impl Bast {
    /// `log_blocks` of them, 1 or more.
    pub(super) fn new(core: &Core, log_blocks: u32) -> Self {
        let per_block = core.layout.units_per_block;
        let unused = Log { row: NONE, block: NONE, next: 0, in_order: true };
        Bast {
            logs: vec![unused; log_blocks as usize],
            places: vec![0; log_blocks as usize * per_block as usize],
            recent: Lru::new(log_blocks as usize),
            free: (0..log_blocks).rev().collect(),
            log_of: vec![NONE; core.rows() as usize],
            in_log: Bits::new(core.rows(), per_block),
        }
    }

    /// Makes the log block and the data block one.
    fn merge(&mut self, slot: u32, core: &mut Core, at_ns: u64, flash: &mut Flash) -> u64 {
        let log = self.logs[slot as usize];
        let row = log.row;
        self.recent.unlink(slot);
        self.free.push(slot);
        self.log_of[row as usize] = NONE;
        self.logs[slot as usize].row = NONE;
        let (logged, others) = (self.in_log.count(row), core.in_data.count(row));
        if logged == 0 {
            if others == 0 {
                core.drop_data(row);
            }
            return core.erase(log.block, at_ns, flash);
        }
        core.in_data.move_row(row, &mut self.in_log, row);
        if log.in_order {
            // What is still valid in the data block lies behind the log's units.
            let kind = if others == 0 { Merge::Switch } else { Merge::Partial };
            let at_ns = core.copy(others, at_ns, flash);
            return core.merged(kind, (row, log.block, log.next), at_ns, flash);
        }
        let (block, at_ns) = core.take(at_ns, flash);
        let at_ns = core.copy(logged + others, at_ns, flash);
        let at_ns = core.merged(Merge::Full, (row, block, 0), at_ns, flash);
        core.erase(log.block, at_ns, flash)
    }

    /// A log block for a superblock that has none.
    fn open(&mut self, row: u32, core: &mut Core, at_ns: u64, flash: &mut Flash) -> (u32, u64) {
        let mut at_ns = at_ns;
        if self.free.is_empty()
            && let Some(oldest) = self.recent.oldest()
        {
            at_ns = self.merge(oldest, core, at_ns, flash);
        }
        let slot = self.free.pop().expect("a merge gave a log block back");
        let (block, at_ns) = core.take(at_ns, flash);
        self.logs[slot as usize] = Log { row, block, next: 0, in_order: true };
        self.log_of[row as usize] = slot;
        self.recent.push(slot);
        (slot, at_ns)
    }
}

impl BlockScheme for Bast {
    fn locate(&self, core: &Core, unit: u32) -> Option<u32> {
        let (row, place) = core.split(unit);
        if core.in_data.get(row, place) {
            return Some(core.page(core.data[row as usize], place));
        }
        let slot = self.log_of[row as usize];
        (slot != NONE && self.in_log.get(row, place)).then(|| {
            let at = self.places[(slot * core.layout.units_per_block + place) as usize];
            core.page(self.logs[slot as usize].block, at)
        })
    }

    fn place(&mut self, core: &mut Core, unit: u32, at_ns: u64, flash: &mut Flash) -> (u32, u64) {
        let (row, place) = core.split(unit);
        let mut at_ns = at_ns;
        let full = |log: &Log| log.next == core.layout.units_per_block;
        let slot = self.log_of[row as usize];
        if slot != NONE && full(&self.logs[slot as usize]) {
            at_ns = self.merge(slot, core, at_ns, flash);
        }
        if let Some(found) = core.in_place(row, place, at_ns, flash) {
            return found;
        }
        let mut slot = self.log_of[row as usize];
        if slot == NONE {
            (slot, at_ns) = self.open(row, core, at_ns, flash);
        }
        self.recent.used(slot);
        let log = &mut self.logs[slot as usize];
        self.places[(slot * core.layout.units_per_block + place) as usize] = log.next;
        log.in_order &= log.next == place;
        log.next += 1;
        core.in_data.take(row, place);
        self.in_log.set(row, place);
        (core.page(log.block, log.next - 1), at_ns)
    }

    fn forget(&mut self, core: &mut Core, unit: u32) -> bool {
        let (row, place) = core.split(unit);
        let was = core.in_data.take(row, place) | self.in_log.take(row, place);
        if was && self.log_of[row as usize] == NONE && core.in_data.count(row) == 0 {
            core.drop_data(row);
        }
        was
    }

    fn blocks(&self) -> Vec<u32> {
        self.logs.iter().filter(|l| l.row != NONE).map(|l| l.block).collect()
    }

    fn memory_bytes(&self) -> u64 {
        let tables = self.places.len() + self.log_of.len() + 4 * self.logs.len();
        tables as u64 * 4 + self.recent.memory_bytes() + self.in_log.memory_bytes()
    }
}
