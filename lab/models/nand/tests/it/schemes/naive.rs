//! The schemes again as plain as possible, page by page with versions, against the simulator's
//! bitmaps: equal merges, copies, programs and erases, and the newest copy is never lost.

use super::{SMALL, simulator};
use std::collections::{BTreeMap, BTreeSet};
use syncline_device::SplitMix64;

const PER_BLOCK: u32 = 8;
const ROWS: u32 = 12;

/// Pages of a block in the order of their numbers: place within the superblock, version.
type Block = BTreeMap<u32, (u32, u64)>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    switch: u64,
    partial: u64,
    full: u64,
    copies: u64,
    programs: u64,
    erases: u64,
}

/// Data blocks, what is mapped, and counts.
#[derive(Default)]
struct Base {
    data: BTreeMap<u32, Block>,
    live: BTreeSet<u32>,
    stale: u64,
    counts: Counts,
}

impl Base {
    /// A fresh block: one that waits for its erase gets it now.
    fn take(&mut self) -> Block {
        let erased = self.stale.min(1);
        self.stale -= erased;
        self.counts.erases += erased;
        Block::new()
    }

    fn in_place(&mut self, row: u32, place: u32, version: u64) -> bool {
        if !self.data.contains_key(&row) {
            let block = self.take();
            self.data.insert(row, block);
        }
        let block = self.data.get_mut(&row).unwrap();
        if block.last_key_value().is_some_and(|(last, _)| place <= *last) {
            return false;
        }
        block.insert(place, (place, version));
        self.counts.programs += 1;
        true
    }

    /// Newest live copy of a place among the data block and `others`, given oldest first.
    fn newest(&self, row: u32, place: u32, others: &[&Block]) -> Option<u64> {
        let data = self.data.get(&row).into_iter();
        let all = data.chain(others.iter().copied()).flat_map(BTreeMap::values);
        let newest = all.filter(|(p, _)| *p == place).map(|(_, v)| *v).max();
        newest.filter(|_| self.live.contains(&(row * PER_BLOCK + place)))
    }

    fn lives(&self, row: u32) -> bool {
        (0..PER_BLOCK).any(|place| self.live.contains(&(row * PER_BLOCK + place)))
    }

    /// Completes `block` (in its places) with newest copies; installs it.
    fn complete(&mut self, row: u32, mut block: Block, others: &[&Block], full: bool) {
        let mut copied = 0;
        for place in 0..PER_BLOCK {
            if let Some(version) = self.newest(row, place, others)
                && block.get(&place).is_none_or(|(_, v)| *v != version)
            {
                block.insert(place, (place, version));
                copied += 1;
            }
        }
        self.counts.copies += copied;
        self.counts.programs += copied;
        *match (full, copied) {
            (true, _) => &mut self.counts.full,
            (false, 0) => &mut self.counts.switch,
            (false, _) => &mut self.counts.partial,
        } += 1;
        self.counts.erases += u64::from(self.data.insert(row, block).is_some());
    }

    fn drop_data(&mut self, row: u32) {
        self.stale += u64::from(self.data.remove(&row).is_some());
    }
}

trait Naive {
    fn base(&mut self) -> &mut Base;
    fn write(&mut self, row: u32, place: u32, version: u64);
    fn holds(&self, row: u32) -> bool;
    fn version(&self, row: u32, place: u32) -> Option<u64>;
}

struct Bast {
    base: Base,
    /// Superblock and log block, oldest use first.
    logs: Vec<(u32, Block)>,
    most: usize,
}

impl Bast {
    fn merge(&mut self, index: usize) {
        let (row, log) = self.logs.remove(index);
        let base = &mut self.base;
        let logged = log.values().any(|(place, version)| {
            base.newest(row, *place, &[&log]).is_some_and(|newest| newest == *version)
        });
        if !logged {
            base.counts.erases += 1;
            if !base.lives(row) {
                base.drop_data(row);
            }
        } else if log.iter().all(|(at, (place, _))| at == place) {
            base.complete(row, log.clone(), &[&log], false);
        } else {
            let fresh = base.take();
            base.complete(row, fresh, &[&log], true);
            base.counts.erases += 1;
        }
    }
}

impl Naive for Bast {
    fn base(&mut self) -> &mut Base {
        &mut self.base
    }

    fn write(&mut self, row: u32, place: u32, version: u64) {
        let mut index = self.logs.iter().position(|(r, _)| *r == row);
        if let Some(i) = index.filter(|i| self.logs[*i].1.len() as u32 == PER_BLOCK) {
            self.merge(i);
            index = None;
        }
        if self.base.in_place(row, place, version) {
            return;
        }
        let (_, mut log) = match index {
            Some(i) => self.logs.remove(i),
            None => {
                if self.logs.len() == self.most {
                    self.merge(0);
                }
                (row, self.base.take())
            }
        };
        log.insert(log.len() as u32, (place, version));
        self.base.counts.programs += 1;
        self.logs.push((row, log));
    }

    fn holds(&self, row: u32) -> bool {
        self.logs.iter().any(|(r, _)| *r == row)
    }

    fn version(&self, row: u32, place: u32) -> Option<u64> {
        let log = self.logs.iter().filter(|(r, _)| *r == row).map(|(_, b)| b);
        self.base.newest(row, place, &log.collect::<Vec<_>>())
    }
}

struct Fast {
    base: Base,
    sequential: Option<(u32, Block)>,
    /// Blocks of (row, place, version), oldest first.
    ring: Vec<Vec<(u32, u32, u64)>>,
    most: usize,
}

impl Fast {
    /// The ring's copies of a superblock, as if they were a block.
    fn of_ring(&self, row: u32) -> Block {
        let entries = self.ring.iter().flatten().filter(|(r, ..)| *r == row);
        (0..).zip(entries.map(|(_, place, version)| (*place, *version))).collect()
    }

    fn end_sequential(&mut self) {
        if let Some((row, block)) = self.sequential.take() {
            let others = self.of_ring(row);
            self.base.complete(row, block.clone(), &[&others, &block], false);
            self.forget_ring(row);
        }
    }

    fn forget_ring(&mut self, row: u32) {
        // Marked with a row that does not exist: the place stays used.
        for entry in self.ring.iter_mut().flatten().filter(|(r, ..)| *r == row) {
            entry.0 = u32::MAX;
        }
    }

    fn merge(&mut self, row: u32) {
        let others = self.of_ring(row);
        let fresh = self.base.take();
        let sequential = self.sequential.take_if(|(r, _)| *r == row);
        let mut all = vec![&others];
        all.extend(sequential.as_ref().map(|(_, b)| b));
        self.base.complete(row, fresh, &all, true);
        self.base.counts.erases += u64::from(sequential.is_some());
        self.forget_ring(row);
    }

    fn make_room(&mut self) {
        if self.ring.last().is_some_and(|b| (b.len() as u32) < PER_BLOCK) {
            return;
        }
        if self.ring.len() == self.most {
            for i in 0..PER_BLOCK as usize {
                let (row, place, version) = self.ring[0][i];
                if row != u32::MAX && self.version(row, place) == Some(version) {
                    self.merge(row);
                }
            }
            self.ring.remove(0);
            self.base.counts.erases += 1;
        }
        self.base.take();
        self.ring.push(Vec::new());
    }
}

impl Naive for Fast {
    fn base(&mut self) -> &mut Base {
        &mut self.base
    }

    fn write(&mut self, row: u32, place: u32, version: u64) {
        let next = |s: &Option<(u32, Block)>| {
            s.as_ref().filter(|(r, _)| *r == row).map(|(_, b)| b.len() as u32)
        };
        let data_end = |base: &Base| {
            let last = base.data.get(&row).and_then(|b| b.last_key_value().map(|(l, _)| *l + 1));
            last.unwrap_or(0)
        };
        if next(&self.sequential).is_some_and(|n| n != place) && place < data_end(&self.base) {
            self.end_sequential();
        }
        if self.base.in_place(row, place, version) {
            return;
        }
        if place == 0 {
            self.end_sequential();
            let block = self.base.take();
            self.sequential = Some((row, block));
        }
        if next(&self.sequential) == Some(place) {
            let (_, block) = self.sequential.as_mut().unwrap();
            block.insert(place, (place, version));
            self.base.counts.programs += 1;
            return;
        }
        self.make_room();
        if self.base.in_place(row, place, version) {
            return;
        }
        self.ring.last_mut().unwrap().push((row, place, version));
        self.base.counts.programs += 1;
    }

    fn holds(&self, row: u32) -> bool {
        self.sequential.as_ref().is_some_and(|(r, _)| *r == row)
    }

    fn version(&self, row: u32, place: u32) -> Option<u64> {
        let ring = self.of_ring(row);
        let mut others = vec![&ring];
        others.extend(self.sequential.as_ref().filter(|(r, _)| *r == row).map(|(_, b)| b));
        self.base.newest(row, place, &others)
    }
}

/// The same random commands to both; counts are compared after each.
fn compare(spec: &str, mut naive: impl Naive, seed: u64) {
    println!("{spec}, seed {seed}");
    let mut s = simulator(&format!("{SMALL},{spec}"), u64::from(ROWS * PER_BLOCK) * 4096);
    let mut rng = SplitMix64::new(seed);
    let mut written = vec![0u64; (ROWS * PER_BLOCK) as usize];
    let mut run = 0;
    for version in 1..30_000u64 {
        // Runs, a hot superblock and random places; now and then a whole superblock is discarded.
        let unit = match rng.below(8) {
            0..=2 => (run + 1) % (ROWS * PER_BLOCK),
            3 => rng.below(u64::from(ROWS)) as u32 * PER_BLOCK,
            4 => rng.below(u64::from(PER_BLOCK)) as u32,
            _ => rng.below(u64::from(ROWS * PER_BLOCK)) as u32,
        };
        if rng.below(12) == 0 {
            let units = 1 + rng.below(12) as u32;
            let end = (unit + units).min(ROWS * PER_BLOCK);
            s.discard(0, u64::from(unit) * 4096, u64::from(end - unit) * 4096);
            for u in unit..end {
                let row = u / PER_BLOCK;
                if naive.base().live.remove(&u) && !naive.holds(row) && !naive.base().lives(row) {
                    naive.base().drop_data(row);
                }
            }
        } else {
            run = unit;
            written[unit as usize] = version;
            s.write(0, u64::from(unit) * 4096, 4096, false);
            // Live only afterwards: merges before it must not find the copy that it replaces
            // unless it was live.
            naive.write(unit / PER_BLOCK, unit % PER_BLOCK, version);
            naive.base().live.insert(unit);
        }
        let (c, want) = (s.counters(), naive.base().counts.clone());
        let got = Counts {
            switch: c.switch_merges,
            partial: c.partial_merges,
            full: c.full_merges,
            copies: c.merge_copies,
            programs: c.page_programs,
            erases: c.erases,
        };
        assert_eq!(got, want, "{spec}, seed {seed}, command {version}");
        if version % 500 == 0 {
            s.check().unwrap();
            for unit in 0..ROWS * PER_BLOCK {
                let live = naive.base().live.contains(&unit);
                let version = naive.version(unit / PER_BLOCK, unit % PER_BLOCK);
                assert_eq!(version, live.then_some(written[unit as usize]), "unit {unit}");
                assert_eq!(s.locate(unit).is_some(), live, "unit {unit}");
            }
        }
    }
    let c = s.counters();
    assert!(c.full_merges > 100 && c.partial_merges > 100 && c.switch_merges > 3, "{c:?}");
}

#[test]
fn bast_equals_a_plain_model() {
    for (seed, logs) in [1, 2, 5].into_iter().enumerate() {
        let naive = Bast { base: Base::default(), logs: Vec::new(), most: logs };
        compare(&format!("mapping=bast,log_blocks={logs}"), naive, seed as u64);
    }
}

#[test]
fn fast_equals_a_plain_model() {
    for (seed, most) in [1, 2, 5].into_iter().enumerate() {
        let naive = Fast { base: Base::default(), sequential: None, ring: Vec::new(), most };
        compare(&format!("mapping=fast,log_blocks={most}"), naive, seed as u64);
    }
}
