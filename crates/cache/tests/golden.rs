//! Exact counts of every policy on shared traces, against plain models written for this test.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use syncline_cache::{Access, Counts, PageKey, Simulator};

type Trace = Vec<(u64, bool)>;

/// Belady's reference string, all reads.
fn belady() -> Trace {
    [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5].iter().map(|&page| (page, false)).collect()
}

/// 20,000 accesses: 80 % to a hot tenth of 1,000 pages, with a scan every 1,000; a third writes.
fn mixed() -> Trace {
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

fn run(policy: &str, capacity: usize, trace: &Trace) -> Counts {
    let mut simulator = Simulator::new(policy, capacity).expect("a known policy");
    for &(index, write) in trace {
        let access = if write { Access::Write } else { Access::Read };
        simulator.access(PageKey { file: 0, index }, access);
    }
    simulator.finish()
}

/// LRU as one queue, searched linearly: (page, dirty), oldest first.
fn lru_model(capacity: usize, trace: &Trace) -> Counts {
    let (mut queue, mut counts) = (VecDeque::<(u64, bool)>::new(), Counts::default());
    for &(page, write) in trace {
        let mut dirty = write;
        if let Some(at) = queue.iter().position(|entry| entry.0 == page) {
            counts.hits += 1;
            dirty |= queue.remove(at).expect("found just now").1;
        } else {
            counts.misses += 1;
            if queue.len() == capacity {
                counts.evictions += 1;
                counts.write_backs += u64::from(queue.pop_front().expect("it is full").1);
            }
        }
        queue.push_back((page, dirty));
    }
    counts.write_backs += queue.iter().filter(|entry| entry.1).count() as u64;
    counts
}

/// Clock as a FIFO in which a referenced page goes to the back: the textbook equivalent.
fn clock_model(capacity: usize, trace: &Trace) -> Counts {
    let (mut queue, mut counts) = (VecDeque::<(u64, bool, bool)>::new(), Counts::default());
    for &(page, write) in trace {
        if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == page) {
            counts.hits += 1;
            entry.1 |= write;
            entry.2 = true;
            continue;
        }
        counts.misses += 1;
        while queue.len() == capacity {
            let (old, dirty, referenced) = queue.pop_front().expect("it is full");
            if referenced {
                queue.push_back((old, dirty, false));
            } else {
                counts.evictions += 1;
                counts.write_backs += u64::from(dirty);
            }
        }
        queue.push_back((page, write, false));
    }
    counts.write_backs += queue.iter().filter(|entry| entry.1).count() as u64;
    counts
}

#[test]
fn beladys_string_has_the_misses_of_the_textbook() {
    assert_eq!(run("lru", 3, &belady()).misses, 10);
    assert_eq!(run("lru", 4, &belady()).misses, 8);
    assert_eq!(run("lru", 5, &belady()).misses, 5);
    assert_eq!(run("clock", 5, &belady()).misses, 5);
}

#[test]
fn policies_agree_with_their_models_at_every_size() {
    let trace = mixed();
    for capacity in [1, 2, 10, 64, 100, 257, 900, 2_000] {
        assert_eq!(run("lru", capacity, &trace), lru_model(capacity, &trace), "lru {capacity}");
        assert_eq!(run("clock", capacity, &trace), clock_model(capacity, &trace), "{capacity}");
    }
}

#[test]
fn golden_counts() {
    let trace = mixed();
    let of = |hits, misses, evictions, write_backs| Counts { hits, misses, evictions, write_backs };
    assert_eq!(run("lru", 128, &trace), of(10_606, 9_394, 9_266, 4_379));
    assert_eq!(run("clock", 128, &trace), of(11_037, 8_963, 8_835, 4_159));
}

#[test]
fn a_forgotten_page_is_not_written_back() {
    for (policy, _) in syncline_cache::POLICIES {
        let mut simulator = Simulator::new(policy, 4).expect("a known policy");
        let key = PageKey { file: 3, index: 9 };
        simulator.access(key, Access::Write);
        simulator.forget(key);
        assert!(!simulator.access(key, Access::Read));
        assert_eq!(simulator.finish().write_backs, 0, "{policy}");
    }
}
