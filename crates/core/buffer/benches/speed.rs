//! Cost of the buffer itself: real time on memory devices, which take no time of their own.
//!
//! `cargo xtask run bench-buffer`; `LOG_MIB` is the size of the log whose recovery is timed
//! (default 1024). Each figure is the best of three rounds; bare device and buffer take turns.

use std::sync::Arc;
use std::time::Instant;

use syncline_buffer::{Buffer, BufferOptions, LogArea};
use syncline_device::{BlockDevice, Kind, MemoryDevice, Origin};

const ROUNDS: usize = 3;
const ORIGIN: Origin = Origin::new(Kind::Other, true);
const HOME_BYTES: u64 = 512 << 20;
const PAGE: usize = 4096;
/// A prime: its multiples come in a scattered order.
const SCATTER: u64 = 1_000_003;
/// Small writes of a round.
const WRITES: u64 = 100_000;
/// Small writes between two flushes, as a database has them.
const FLUSH_EVERY: u64 = 8;
const LARGE: usize = 1 << 20;

fn memory(bytes: u64) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(bytes);
    device.populate();
    Arc::new(device)
}

fn log(bytes: u64) -> LogArea {
    LogArea { device: memory(bytes), same_medium: false }
}

fn buffer(home: &Arc<dyn BlockDevice>, log: Option<&LogArea>) -> Buffer {
    Buffer::open(Arc::clone(home), log.cloned(), BufferOptions::default()).expect("it opens")
}

fn seconds(what: impl FnOnce()) -> f64 {
    let start = Instant::now();
    what();
    start.elapsed().as_secs_f64()
}

/// Scattered pages; `opaque` ones have no zero words.
fn small(device: &dyn BlockDevice, flush_every: u64, opaque: bool) -> f64 {
    let mut page = [if opaque { 0x5a } else { 0 }; PAGE];
    let pages = HOME_BYTES / PAGE as u64;
    let took = seconds(|| {
        for n in 0..WRITES {
            page[..8].copy_from_slice(&(n + 1).to_le_bytes());
            let at = n * SCATTER % pages * PAGE as u64;
            device.write(at, &page, ORIGIN).expect("memory takes it");
            if n % flush_every == flush_every - 1 {
                device.flush(ORIGIN).expect("memory takes it");
            }
        }
    });
    took / WRITES as f64 * 1e6
}

/// Sequential writes of 1 MiB, 10^9 bytes a second.
fn large(device: &dyn BlockDevice) -> f64 {
    let bytes = vec![0x5a; LARGE];
    let took = seconds(|| {
        for at in (0..HOME_BYTES).step_by(LARGE) {
            device.write(at, &bytes, ORIGIN).expect("memory takes it");
        }
        device.flush(ORIGIN).expect("memory takes it");
    });
    HOME_BYTES as f64 / took / 1e9
}

fn show(what: &str, bare: f64, buffered: f64, unit: &str) {
    println!("{what:<58} {bare:>8.2} {buffered:>9.2}  {unit}");
}

fn best(of: impl Iterator<Item = f64>) -> f64 {
    of.fold(f64::INFINITY, f64::min)
}

fn writes() {
    println!("{:<58} {:>8} {:>9}", "on memory devices", "bare", "buffered");
    for (what, flush_every, with_log, opaque) in [
        ("4 KiB, scattered, no flush, RAM alone", u64::MAX, false, false),
        ("4 KiB, scattered, no flush, RAM and log", u64::MAX, true, false),
        ("4 KiB, scattered, a flush each 8, zero words", FLUSH_EVERY, true, false),
        ("4 KiB, scattered, a flush each 8, no zero words", FLUSH_EVERY, true, true),
    ] {
        let home = memory(HOME_BYTES);
        let (mut bare, mut buffered) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..ROUNDS {
            bare = bare.min(small(&*home, flush_every, opaque));
            let area = with_log.then(|| log(1 << 30));
            if let Some(area) = &area {
                Buffer::create_log(area, HOME_BYTES, [1; 16], true).expect("memory takes it");
            }
            buffered = buffered.min(small(&buffer(&home, area.as_ref()), flush_every, opaque));
        }
        show(what, bare, buffered, "us a write");
    }
    let (home, area) = (memory(HOME_BYTES), log(64 << 20));
    Buffer::create_log(&area, HOME_BYTES, [1; 16], true).expect("memory takes it");
    let device = buffer(&home, Some(&area));
    let mut figures = [0.0f64; 2];
    for _ in 0..ROUNDS {
        figures[0] = figures[0].max(large(&*home));
        figures[1] = figures[1].max(large(&device));
    }
    show("1 MiB, sequential", figures[0], figures[1], "GB/s");
}

/// Fills the ring to nearly half, where cleaning would begin, and opens the log again: all of the
/// ring is read, the rest of it to find damage.
fn recovery() {
    let mib = std::env::var("LOG_MIB").ok().and_then(|n| n.parse().ok()).unwrap_or(1024u64);
    for (what, opaque) in [("zero words", false), ("no zero words", true)] {
        let (home, area) = (memory(HOME_BYTES), log(mib << 20));
        Buffer::create_log(&area, HOME_BYTES, [1; 16], true).expect("memory takes it");
        let options = BufferOptions { ram_bytes: 1 << 20, ..BufferOptions::default() };
        let device =
            Buffer::open(Arc::clone(&home), Some(area.clone()), options).expect("it opens");
        let mut page = [if opaque { 0x5a } else { 0 }; PAGE];
        let mut n = 0;
        while device.status().ring_used_pages < (mib << 20) / PAGE as u64 / 2 - 256 {
            for _ in 0..64 {
                n += 1u64;
                page[..8].copy_from_slice(&n.to_le_bytes());
                let at = n * SCATTER % (HOME_BYTES / PAGE as u64) * PAGE as u64;
                device.write(at, &page, ORIGIN).expect("memory takes it");
            }
            device.flush(ORIGIN).expect("memory takes it");
        }
        drop(device);
        let mut found = 0;
        let took = best(
            (0..ROUNDS)
                .map(|_| seconds(|| found = buffer(&home, Some(&area)).status().recovered_pages)),
        );
        println!("recovery of a log of {mib} MiB, {what}: {took:.3} s, {found} pages");
    }
}

fn main() {
    writes();
    recovery();
}
