//! Memory of the map, counted by the allocator on this thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use syncline_flashlite::{Log, Options};
use syncline_testkit::Random;

use crate::fuzz::Nowhere;

struct Counting;

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: usize, sign: i64) {
    // What a size takes in a common allocator: eight bytes more, in steps of 16.
    let taken = (bytes + 8).next_multiple_of(16) as i64;
    // A thread that ends frees its own counter last.
    let _ = BYTES.try_with(|sum| {
        sum.set(sum.get() + sign * taken);
        PEAK.try_with(|peak| peak.set(peak.get().max(sum.get())))
    });
}

/// Runs `what`. Returns its result and the peak memory of this thread above the level before, in
/// bytes.
pub fn peak_bytes<T>(what: impl FnOnce() -> T) -> (T, u64) {
    let before = BYTES.get();
    PEAK.set(before);
    let done = what();
    (done, u64::try_from(PEAK.get() - before).unwrap_or(0))
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CHUNKS: u64 = 100_000;
const CHUNK: u64 = 4096;

fn bytes_per_extent(order: impl Iterator<Item = u64>) -> (u64, f64) {
    let log = Log::create(Arc::new(Nowhere), Options::default()).unwrap();
    let before = BYTES.get();
    for chunk in order {
        log.write_at(&[0; CHUNK as usize], chunk * CHUNK).unwrap();
    }
    let (after, extents) = (BYTES.get(), log.info().extents);
    (extents, (after - before) as f64 / extents as f64)
}

#[test]
fn an_extent_takes_under_64_bytes() {
    let mut random = Random::new(1);
    let mut shuffled: Vec<u64> = (0..CHUNKS).collect();
    for at in (1..shuffled.len()).rev() {
        shuffled.swap(at, random.index(at + 1));
    }
    let orders: [(&str, Vec<u64>); 4] = [
        ("every second, ascending", (0..CHUNKS).map(|chunk| chunk * 2).collect()),
        ("descending", (0..CHUNKS).rev().collect()),
        ("random", shuffled),
        ("ascending", (0..CHUNKS).collect()),
    ];
    for (name, order) in orders {
        let (extents, bytes) = bytes_per_extent(order.into_iter());
        println!("{name}: {extents} extents, {bytes:.1} bytes each");
        if name == "ascending" {
            // One a group: heads of 4 to 16 KiB hold the tags of 0.5 to 2 MiB.
            assert!(extents < 400, "{extents}");
        } else {
            assert!(bytes < 64.0, "{name}: {bytes:.1} bytes an extent");
        }
    }
}
