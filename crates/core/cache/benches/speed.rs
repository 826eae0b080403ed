//! Accesses a second of every policy in the simulator: `cargo xtask run bench-cache`.
//!
//! A trace of 10 million accesses to 4 KiB pages of a 16 GiB space, half of them writes: nine of
//! ten go to an eighth of the cache's size, to places picked at random; the others are runs of 8 to
//! 64 pages anywhere. The cache has 1 GiB, dirty pages are written in the background above 10 %.
//! Each figure is the best of the rounds, in processor time of one thread. Arguments:
//! `accesses=10000000 cache_mib=1024 rounds=3 only=POLICY`.

use rand::{Rng, SeedableRng};
use rustix::time::{ClockId, clock_gettime};
use syncline_cache::{Access, POLICIES, PageAccess, PageKey, Simulator, WriteBack, next_uses};

const SPACE_PAGES: u64 = 16 << 18;

fn trace(accesses: usize, cache_pages: u64) -> Vec<PageAccess> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    let hot = (cache_pages / 8).max(1);
    let mut trace = Vec::with_capacity(accesses + 64);
    while trace.len() < accesses {
        let draw: u64 = rng.random();
        let access = if draw & 1 == 0 { Access::Read } else { Access::Write };
        let mut push = |index| trace.push(PageAccess { key: PageKey { file: 0, index }, access });
        // One run of 36 pages in 324 single accesses.
        if (draw >> 1) % 325 == 0 {
            let from = rng.random_range(0..SPACE_PAGES - 64);
            (from..from + rng.random_range(8..=64)).for_each(&mut push);
        } else {
            // Spread over the space, so that the hot pages are no neighbours.
            push((draw >> 16) % hot * 61 % SPACE_PAGES);
        }
    }
    trace.truncate(accesses);
    trace
}

/// Processor time of this thread so far, which other load disturbs least.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let (mut accesses, mut cache_mib, mut rounds, mut only) = (10_000_000, 1024, 3, None);
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("accesses", value)) => accesses = value.parse().unwrap_or(accesses),
            Some(("cache_mib", value)) => cache_mib = value.parse().unwrap_or(cache_mib),
            Some(("rounds", value)) => rounds = value.parse().unwrap_or(rounds),
            Some(("only", value)) => only = Some(value.to_owned()),
            _ => {}
        }
    }
    let pages = cache_mib << 8;
    let trace = trace(accesses, pages as u64);
    let next = next_uses(&trace);
    println!("{:<18} {:>13} {:>11} {:>10}", "policy", "million_per_s", "hit_percent", "page_bytes");
    for entry in POLICIES.iter().filter(|entry| only.as_deref().is_none_or(|o| o == entry.name)) {
        let (mut best_s, mut hit, mut bytes) = (f64::MAX, 0.0, 0.0);
        for _ in 0..rounds {
            let mut simulator = Simulator::of(entry, pages, WriteBack::Background(10));
            let start_s = processor_s();
            simulator.run(&trace, &next);
            best_s = best_s.min(processor_s() - start_s);
            hit = simulator.counts().hit_ratio();
            bytes = simulator.memory_bytes() as f64 / simulator.pages() as f64;
        }
        let rate = trace.len() as f64 / best_s;
        println!("{:<18} {:>13.2} {:>11.2} {bytes:>10.1}", entry.name, rate / 1e6, hit * 100.0);
    }
}
