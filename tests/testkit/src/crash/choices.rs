//! Choice of the combinations of the optional writes of one cut that are worth building.
//!
//! - Few writes with few sectors: every combination of sectors.
//! - Few writes: every combination of writes, each write torn between none and all of the others,
//!   and samples.
//! - Many: prefix cuts, each single one missing, each single one alone, tears, and samples. In the
//!   middle of a batch only cuts, tears and lone writes of that batch, because the others were
//!   states of an earlier cut; and at most [`SINGLES_MAX`] singles, the newest.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::crash::{Choice, ExploreOptions, Point};

/// Singles (missing or alone) per cut.
const SINGLES_MAX: usize = 64;

/// The optional writes of one cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    /// Sectors of each, oldest first; one for a discard.
    pub(crate) units: &'a [u64],
    /// Number of the newest that belong to the batch under way; all of them after a completed
    /// entry.
    pub(crate) new: usize,
}

/// Part of one optional write that is on the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Nothing.
    Lost,
    /// All.
    Kept,
    /// Those sectors that are true.
    Torn(Vec<bool>),
}

/// Returns the sectors at which a write of so many sectors is torn.
fn tears(units: u64) -> Vec<u64> {
    match units {
        0 | 1 => Vec::new(),
        2..=8 => (1..units).collect(),
        _ => vec![1, units / 2, units - 1],
    }
}

/// The combinations to build, in a fixed order.
pub(crate) fn choices(shape: Shape<'_>, options: &ExploreOptions) -> Vec<Choice> {
    let (units, n) = (shape.units, shape.units.len());
    let sectors: u64 = units.iter().sum();
    let few = n <= options.exhaustive_writes.min(20);
    if n == 0 {
        return vec![Choice::Cut(0)];
    }
    if few && sectors <= u64::from(options.exhaustive_sectors.min(20)) {
        return (0..1 << sectors).map(Choice::Sectors).collect();
    }
    let mut all = Vec::new();
    let first_new = if few { 0 } else { n - shape.new.min(n) };
    if few {
        all.extend((0..1 << n).map(Choice::Subset));
    } else {
        all.extend((first_new..=n).map(Choice::Cut));
        all.extend((n.saturating_sub(SINGLES_MAX)..n).map(Choice::Drop));
        all.extend((first_new.max(n.saturating_sub(SINGLES_MAX))..n).map(Choice::Only));
    }
    for (i, &size) in units.iter().enumerate().skip(first_new) {
        for at in tears(size) {
            all.extend([Choice::TornCut(i, at), Choice::TornOne(i, at)]);
        }
    }
    all.extend((0..u64::from(options.samples)).map(Choice::Sample));
    all
}

/// Expands a choice to each optional write; `None` where it does not fit the writes.
pub(crate) fn picks(choice: Choice, units: &[u64], seed: u64, point: Point) -> Option<Vec<Pick>> {
    let n = units.len();
    let when = |kept| if kept { Pick::Kept } else { Pick::Lost };
    let each = |f: &dyn Fn(usize) -> Pick| Some((0..n).map(f).collect());
    let torn = |i: usize, at: u64| Pick::Torn((0..units[i]).map(|s| s < at).collect());
    match choice {
        Choice::Subset(mask) => {
            (n <= 63 && mask < 1 << n).then(|| (0..n).map(|i| when(mask >> i & 1 == 1)).collect())
        }
        Choice::Sectors(mask) => {
            let total: u64 = units.iter().sum();
            if total > 63 || mask >= 1 << total {
                return None;
            }
            let mut bits = (0..total).map(|s| mask >> s & 1 == 1);
            Some(
                units
                    .iter()
                    .map(|&u| Pick::Torn(bits.by_ref().take(u as usize).collect()))
                    .collect(),
            )
        }
        Choice::Cut(cut) if cut <= n => each(&|i| when(i < cut)),
        Choice::Drop(one) if one < n => each(&|i| when(i != one)),
        Choice::Only(one) if one < n => each(&|i| when(i == one)),
        Choice::TornCut(one, at) if one < n => {
            each(&|i| if i == one { torn(i, at) } else { when(i < one) })
        }
        Choice::TornOne(one, at) if one < n => {
            each(&|i| if i == one { torn(i, at) } else { Pick::Kept })
        }
        Choice::Sample(number) => Some(sample(units, seed, point, number)),
        _ => None,
    }
}

/// A generator for one purpose at one point.
pub(crate) fn generator(seed: u64, point: Point, purpose: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    let position = (point.entries as u64) << 1 | u64::from(point.in_flight);
    for (slot, word) in key.chunks_exact_mut(8).zip([seed, position, purpose, 0]) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    ChaCha8Rng::from_seed(key)
}

/// Each write is there, lost or torn in any way, with probabilities that are drawn first, so that
/// nearly full and nearly empty states come up as well as even ones.
fn sample(units: &[u64], seed: u64, point: Point, number: u64) -> Vec<Pick> {
    let mut random = generator(seed, point, number + 1);
    let kept = [0.1, 0.3, 0.5, 0.7, 0.9][random.random_range(0..5)];
    let torn = [0.0, 0.2, 0.6][random.random_range(0..3)];
    let one = |&size: &u64| {
        if size > 1 && random.random_bool(torn) {
            Pick::Torn((0..size).map(|_| random.random_bool(kept)).collect())
        } else if random.random_bool(kept) {
            Pick::Kept
        } else {
            Pick::Lost
        }
    };
    units.iter().map(one).collect()
}
