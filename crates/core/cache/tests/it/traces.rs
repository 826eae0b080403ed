//! Traces from seeds: (page, written).

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub type Trace = Vec<(u64, bool)>;

/// Belady's reference string, all reads.
pub fn belady() -> Trace {
    [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5].iter().map(|&page| (page, false)).collect()
}

/// 20,000 accesses: 80 % to a hot tenth of 1,000 pages, with a scan every 1,000; a third writes.
pub fn mixed() -> Trace {
    let mut rng = ChaCha8Rng::seed_from_u64(42);
    let mut trace = Trace::new();
    for i in 0..20_000u64 {
        let page = match i % 1_000 {
            from @ 0..150 => 5_000 + from,
            _ if rng.random_range(0..10) < 8 => rng.random_range(0..100),
            _ => rng.random_range(100..1_000),
        };
        trace.push((page, rng.random_range(0..3) == 0));
    }
    trace
}

/// 30,000 accesses as of a phone: small databases that are read and written in place, each write
/// followed by a journal's; files that are written as a sequence and read once more or never.
pub fn phone() -> Trace {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut trace, mut journal, mut next_file) = (Trace::new(), 0, 100_000);
    while trace.len() < 30_000 {
        match rng.random_range(0..10) {
            0..6 => {
                let database = rng.random_range(0..12u64) * 4_096;
                let page = rng.random_range(0..40u64).min(rng.random_range(0..200));
                trace.push((database + page, false));
                if rng.random_range(0..2) == 0 {
                    trace.push((database + page, true));
                    trace.push((60_000 + journal % 300, true));
                    journal += 1;
                }
            }
            6 => {
                let pages = rng.random_range(1..64);
                trace.extend((next_file..next_file + pages).map(|page| (page, true)));
                next_file += pages;
            }
            _ => {
                let back = rng.random_range(0..2_000).min(next_file - 100_000);
                let from = next_file - back;
                let pages = rng.random_range(1..12);
                trace.extend((from..from + pages).map(|page| (page, false)));
            }
        }
    }
    trace.truncate(30_000);
    trace
}
