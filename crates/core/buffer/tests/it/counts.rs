//! Exact requests: what a batch, a flush and a sweep cost.

use std::sync::Arc;

use syncline_buffer::{Buffer, LogArea};
use syncline_device::{BlockDevice, MemoryDevice, Op, RecordingDevice, Request};

use crate::common::{Config, ID, PAGE, STRICT, content};

const HOME: u64 = 4096 * PAGE;
const BOTH: Config = Config { ram_pages: 256, log_pages: 2 + 1024, threshold_pages: 16 };
const LOG: Config = Config { ram_pages: 0, ..BOTH };
const RAM: Config = Config { log_pages: 0, ..BOTH };

struct Bench {
    recording: Arc<RecordingDevice<MemoryDevice>>,
    buffer: Buffer,
}

fn bench(config: Config, fua: bool) -> Bench {
    let memory = MemoryDevice::new(config.total_bytes(HOME)).with_geometry(|g| g.fua = fua);
    let recording = Arc::new(RecordingDevice::new(memory));
    let device: Arc<dyn BlockDevice> = recording.clone();
    config.format(&device, HOME);
    let buffer = config.open(&device, HOME).unwrap();
    Bench { recording, buffer }
}

impl Bench {
    /// Write requests, bytes in pages, flushes that `what` causes.
    fn cost(&self, what: impl FnOnce(&Buffer)) -> (u64, u64, u64) {
        let before = self.recording.counts();
        what(&self.buffer);
        let after = self.recording.counts();
        (
            after.write_requests() - before.write_requests(),
            (after.written_bytes() - before.written_bytes()) / PAGE,
            after.flushes() - before.flushes(),
        )
    }
}

fn page(logical: u64) -> Vec<u8> {
    (logical * 8..logical * 8 + 8).flat_map(|sector| content(sector, 1)).collect()
}

fn write_each(buffer: &Buffer, pages: impl Iterator<Item = u64>) {
    for logical in pages {
        buffer.write(logical * PAGE, &page(logical), STRICT).unwrap();
    }
}

/// Scattered pages that describe themselves.
fn scattered(n: u64) -> impl Iterator<Item = u64> {
    (0..n).map(|i| 30 * (i * 37 % 100) + 2)
}

#[test]
fn small_writes_and_a_flush_are_one_request() {
    let both = bench(BOTH, true);
    assert_eq!(both.cost(|b| write_each(b, scattered(20))), (0, 0, 0), "staged");
    assert_eq!(both.cost(|b| b.flush(STRICT).unwrap()), (1, 20, 0), "one FUA write");
    assert_eq!(both.cost(|b| b.flush(STRICT).unwrap()), (0, 0, 0), "nothing to flush");
    let fua = |b: &Buffer| b.write_durable(5 * PAGE, &page(5), STRICT).unwrap();
    assert_eq!(both.cost(fua), (1, 1, 0));
    let plain = bench(BOTH, false);
    write_each(&plain.buffer, scattered(20));
    assert_eq!(plain.cost(|b| b.flush(STRICT).unwrap()), (1, 20, 1), "a write and a flush");
    let log = bench(LOG, true);
    assert_eq!(log.cost(|b| write_each(b, scattered(20))), (20, 20, 0), "one by one");
    assert_eq!(log.cost(|b| b.flush(STRICT).unwrap()), (0, 0, 1));
    let contents: Vec<(u64, Vec<u8>)> = scattered(20).map(|at| (at, page(at))).collect();
    let batch = |b: &Buffer| {
        let request = |(at, bytes)| {
            let op = Op::Write { from: vec![bytes], fua: false };
            Request { offset_bytes: at * PAGE, op, origin: STRICT }
        };
        let mut batch: Vec<_> =
            contents.iter().map(|(at, bytes)| request((at, &bytes[..]))).collect();
        b.submit(&mut batch).unwrap();
    };
    assert_eq!(log.cost(batch), (1, 20, 0), "one request per batch");
}

#[test]
fn pages_without_zero_words_cost_one_header_per_batch() {
    let both = bench(BOTH, true);
    write_each(&both.buffer, (0..20).map(|i| i * 30));
    assert_eq!(both.cost(|b| b.flush(STRICT).unwrap()), (1, 21, 0));
    let status = both.buffer.status();
    assert_eq!((status.logged_pages, status.opaque_pages, status.header_pages), (20, 20, 1));
}

#[test]
fn large_runs_go_to_their_place() {
    for config in [BOTH, LOG, RAM] {
        let bench = bench(config, true);
        let run: Vec<u8> = (100..116).flat_map(page).collect();
        let write = |b: &Buffer| b.write(100 * PAGE, &run, STRICT).unwrap();
        assert_eq!(bench.cost(write), (1, 16, 0), "{config:?}");
        assert_eq!(bench.cost(|b| b.flush(STRICT).unwrap()), (0, 0, 1), "{config:?}");
    }
    // Neighbours that came one by one are a run by the time of the flush.
    let both = bench(BOTH, true);
    write_each(&both.buffer, (100..130).rev());
    write_each(&both.buffer, [1000, 2000].into_iter());
    assert_eq!(both.cost(|b| b.flush(STRICT).unwrap()), (2, 32, 1), "a run, a batch, a flush");
    // A copy in the log that is overtaken costs one record with the flush, whatever the number.
    let all: Vec<u8> = (990..1010).flat_map(page).collect();
    both.buffer.write(990 * PAGE, &all, STRICT).unwrap();
    both.buffer.write(1990 * PAGE, &all, STRICT).unwrap();
    assert_eq!(both.cost(|b| b.flush(STRICT).unwrap()), (1, 1, 1), "the record");
    assert_eq!(both.buffer.status().mapped_pages, 0);
}

#[test]
fn ram_alone_sorts_and_merges() {
    let ram = bench(RAM, true);
    write_each(&ram.buffer, [7, 3, 5, 4, 100, 6].into_iter());
    assert_eq!(ram.cost(|b| b.flush(STRICT).unwrap()), (2, 6, 1));
}

#[test]
fn sub_page_writes_share_a_page() {
    let both = bench(BOTH, true);
    for sector in [3, 1, 2] {
        let at = 8 * 50 + sector;
        both.buffer.write(at * 512, &content(at, 1), STRICT).unwrap();
    }
    assert_eq!(both.cost(|b| b.flush(STRICT).unwrap()), (1, 1, 0));
    let ram = bench(RAM, true);
    for sector in [3, 1, 2] {
        let at = 8 * 50 + sector;
        ram.buffer.write(at * 512, &content(at, 1), STRICT).unwrap();
    }
    let before = ram.recording.counts();
    ram.buffer.flush(STRICT).unwrap();
    let after = ram.recording.counts();
    assert_eq!(after.written_bytes() - before.written_bytes(), 3 * 512, "only what was written");
    assert_eq!(after.write_requests() - before.write_requests(), 1);
}

#[test]
fn a_foreground_write_waits_for_its_steps_only() {
    let both = bench(BOTH, true);
    let (mut worst, mut state) = ((0, 0), 1_u64);
    for round in 0..4000_u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        write_each(&both.buffer, [(state >> 33) % 4096].into_iter());
        let (requests, pages, _) = both.cost(|b| b.flush(STRICT).unwrap());
        worst = (worst.0.max(requests), worst.1.max(pages));
        let status = both.buffer.status();
        assert!(status.ring_used_pages <= status.ring_pages, "round {round}");
    }
    let status = both.buffer.status();
    // Two pages of its own, one step of 8 pages to clean with its gaps, one superblock.
    assert!(worst.0 <= 1 + 8 + 1 && worst.1 <= 2 + 128 + 1, "{worst:?} requests and pages");
    assert!(status.sweeps >= 5, "{status:?}");
    assert_eq!(status.mapped_pages.min(1), 1);
    // Sorted: what 4000 scattered writes became.
    assert!(status.cleaned_pages < status.logged_pages, "{status:?}");
}

#[test]
fn the_log_is_read_once() {
    // Every page of it at most once, 1 MiB at a time.
    let config = Config { log_pages: 2 + 4096, ..BOTH };
    let memory = MemoryDevice::new(config.total_bytes(HOME));
    let recording = Arc::new(RecordingDevice::new(memory));
    let device: Arc<dyn BlockDevice> = recording.clone();
    config.format(&device, HOME);
    let buffer = config.open(&device, HOME).unwrap();
    write_each(&buffer, scattered(100));
    buffer.flush(STRICT).unwrap();
    drop(buffer);
    let before = recording.counts();
    let buffer = config.open(&device, HOME).unwrap();
    let after = recording.counts();
    assert_eq!(buffer.status().recovered_pages, 100);
    let read = after.other.read_bytes - before.other.read_bytes;
    assert!(read <= (2 + 4096) * PAGE, "{read} bytes");
    assert!(after.other.read_requests - before.other.read_requests <= 2 + 2 * 4096 / 256);
}

#[test]
fn logs_are_refused_by_what_is_wrong() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(BOTH.total_bytes(HOME)));
    let said = |config: Config, home| match config.open(&device, home) {
        Ok(_) => String::from("opened"),
        Err(error) => error.to_string(),
    };
    assert!(said(BOTH, HOME).contains("no write log"), "{}", said(BOTH, HOME));
    BOTH.format(&device, HOME);
    assert_eq!(said(BOTH, HOME), "opened");
    let area = BOTH.log(&device, HOME).unwrap();
    let again = Buffer::create_log(&area, HOME, ID, false).unwrap_err().to_string();
    assert!(again.contains("a write log"), "{again}");
    Buffer::create_log(&area, HOME, ID, true).unwrap();
    let other = Buffer::open(Arc::new(MemoryDevice::new(PAGE)), Some(area.clone()), BOTH.options());
    let other = other.err().unwrap().to_string();
    assert!(other.contains("of a device of 16777216 bytes, this one has 4096"), "{other}");
    let tiny = LogArea { device: Arc::new(MemoryDevice::new(PAGE)), same_medium: false };
    let small = Buffer::create_log(&tiny, HOME, ID, false).unwrap_err().to_string();
    assert!(small.contains("needs 270336 bytes"), "{small}");
    let used = MemoryDevice::new(HOME);
    used.write_at(5, b"data").unwrap();
    let used = LogArea { device: Arc::new(used), same_medium: false };
    let used = Buffer::create_log(&used, HOME, ID, false).unwrap_err().to_string();
    assert!(used.contains("not zero"), "{used}");
}
