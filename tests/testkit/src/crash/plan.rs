//! Number of states for each cut: all of them if they fit the budget, otherwise a fair share.
//!
//! Cuts with few combinations are kept whole; the largest number per cut is lowered until the sum
//! fits ("water filling"). Which combinations of a large cut are taken is drawn from the seed.

use std::collections::BTreeSet;

use rand::Rng;

use crate::crash::choices::{Shape, choices, generator};
use crate::crash::{Choice, CrashLog, Entry, ExploreOptions, LoggedWrite, Point, StateId};

/// Purposes of [`generator`] beyond samples.
const PURPOSE_THIN: u64 = u64::MAX;
const PURPOSE_POINTS: u64 = u64::MAX - 1;

/// One part of the states, for several processes: together they judge each state once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of this part, from 0.
    pub index: u64,
    /// Number of parts.
    pub count: u64,
}

/// Limits of an exploration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// At most so many states are built, over all shards, equal ones included.
    pub states: u64,
    /// Seed of samples and selections.
    pub seed: u64,
    /// Part of the states to explore.
    pub shard: Shard,
    /// Stop after so many failures.
    pub failures_max: usize,
    /// Judge this state and no other (the rerun of a failure).
    pub only: Option<StateId>,
}

impl Budget {
    /// So many states of a seed, all in this process, up to the first failure.
    pub fn new(states: u64, seed: u64) -> Self {
        let shard = Shard { index: 0, count: 1 };
        Budget { states, seed, shard, failures_max: 1, only: None }
    }

    /// One part of the states.
    pub fn with_shard(mut self, index: u64, count: u64) -> Self {
        self.shard = Shard { index, count: count.max(1) };
        self
    }

    /// Only the state with this id, if there is one.
    pub fn with_only(mut self, only: Option<StateId>) -> Self {
        self.only = only;
        self
    }
}

/// Sizes of the optional writes while walking the log.
#[derive(Default)]
struct Sizes {
    /// Units of each pending write, whether it is fixed, and the barriers before it.
    pending: Vec<(u64, bool, usize)>,
    barriers: usize,
}

impl Sizes {
    fn optional(&self) -> Vec<u64> {
        self.pending.iter().filter(|p| !p.1).map(|p| p.0).collect()
    }

    fn push(&mut self, write: &LoggedWrite) {
        let barriers = self.barriers;
        if write.durable {
            let before = self.pending.iter_mut().filter(|p| p.2 < barriers);
            before.for_each(|p| p.1 = true);
        }
        self.pending.push((write.units(), write.durable, barriers));
    }
}

/// Every cut of the log in order, with its number of combinations to build.
fn cuts(log: &CrashLog, options: &ExploreOptions) -> Vec<(Point, u64)> {
    let mut cuts = Vec::new();
    let mut sizes = Sizes::default();
    let mut count = |entries, in_flight, units: &[u64], new| {
        let shape = Shape { units, new };
        cuts.push((Point { entries, in_flight }, choices(shape, options).len() as u64));
    };
    if matches!(log.entries.first(), None | Some(Entry::Flush | Entry::Barrier)) {
        count(0, false, &[], 0);
    }
    for (index, entry) in log.entries.iter().enumerate() {
        let next_is_mark = matches!(log.entries.get(index + 1), Some(Entry::Mark(_)));
        // What a completed entry leaves is new if it made something durable or acknowledged it;
        // otherwise the cut within the batch has covered it. Marks in a row are one cut, the last:
        // the content is the same and the most is acknowledged.
        let changed = match entry {
            Entry::Batch(writes) => {
                let mut units = sizes.optional();
                units.extend(writes.iter().map(|w| w.units()));
                count(index, true, &units, writes.len());
                writes.iter().for_each(|write| sizes.push(write));
                writes.iter().any(|w| w.durable)
            }
            Entry::Flush => {
                sizes.pending.clear();
                true
            }
            Entry::Barrier => {
                sizes.barriers += 1;
                false
            }
            Entry::Mark(_) => true,
        };
        if (changed && !next_is_mark) || index + 1 == log.entries.len() {
            let units = sizes.optional();
            count(index + 1, false, &units, units.len());
        }
    }
    cuts
}

/// The largest number per cut for which the sum of all is within `states`.
fn water_level(counts: &[u64], states: u64) -> u64 {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    let mut left = states;
    for (done, &count) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - done) as u64;
        if count > share {
            return share;
        }
        left -= count;
    }
    u64::MAX
}

/// `amount` different numbers below `total`, each set equally likely (Floyd's method).
fn pick_some(random: &mut impl Rng, total: usize, amount: usize) -> BTreeSet<usize> {
    let mut chosen = BTreeSet::new();
    for last in total - amount.min(total)..total {
        let drawn = random.random_range(0..=last);
        if !chosen.insert(drawn) {
            chosen.insert(last);
        }
    }
    chosen
}

/// Plan of the states to build: every cut in order, with the number of its combinations.
pub(crate) struct Plan {
    /// Cuts with something to build.
    pub(crate) cuts: Vec<Point>,
    /// Combinations per cut at most.
    level: u64,
    /// Combinations of the whole log.
    pub(crate) possible: u64,
}

impl Plan {
    pub(crate) fn new(log: &CrashLog, options: &ExploreOptions, budget: &Budget) -> Plan {
        let cuts = cuts(log, options);
        let counts: Vec<u64> = cuts.iter().map(|c| c.1).collect();
        let possible = counts.iter().sum();
        let mut points: Vec<Point> = cuts.iter().map(|c| c.0).collect();
        let mut level = water_level(&counts, budget.states);
        if level == 0 {
            // Fewer states than cuts: one each of some, and of the last, after which all that was
            // acknowledged has to be there, however many cuts there are.
            let origin = Point { entries: 0, in_flight: false };
            let mut random = generator(budget.seed, origin, PURPOSE_POINTS);
            let amount = usize::try_from(budget.states).unwrap_or(usize::MAX);
            let last = points.len() - 1;
            let mut chosen = pick_some(&mut random, last, amount.saturating_sub(1));
            chosen.extend((amount > 0).then_some(last));
            points = chosen.into_iter().map(|i| points[i]).collect();
            level = 1;
        }
        Plan { cuts: points, level, possible }
    }

    /// The combinations to build at one cut.
    pub(crate) fn choices(
        &self,
        shape: Shape<'_>,
        options: &ExploreOptions,
        seed: u64,
        point: Point,
    ) -> Vec<Choice> {
        let all = choices(shape, options);
        let amount = usize::try_from(self.level).unwrap_or(usize::MAX);
        if all.len() <= amount {
            return all;
        }
        let mut random = generator(seed, point, PURPOSE_THIN);
        let chosen = pick_some(&mut random, all.len(), amount);
        chosen.into_iter().map(|i| all[i]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_keeps_small_cuts_whole() {
        assert_eq!(water_level(&[1, 2, 3], 6), u64::MAX);
        assert_eq!(water_level(&[1, 100, 2, 100], 103), 50);
        assert_eq!(water_level(&[4, 4, 4], 2), 0);
        assert_eq!(water_level(&[], 0), u64::MAX);
    }
}
