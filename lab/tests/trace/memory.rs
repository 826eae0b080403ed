//! Memory of a writer: counted by the allocator, on this thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;

use syncline_lab::trace::{
    Header, Names, Op, ROWS_PER_BATCH, Record, Sink, TraceKind, TraceWriter,
};
use syncline_testkit::Random;

struct Counting;

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: usize, sign: i64) {
    // A thread that ends frees its own counter last.
    let _ = BYTES.try_with(|sum| {
        sum.set(sum.get() + sign * bytes as i64);
        PEAK.try_with(|peak| peak.set(peak.get().max(sum.get())))
    });
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

/// Takes what is written.
struct Nowhere;

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Records of which a batch of 131,072 is some 4 MB, compressed.
struct Noise(Random);

impl Noise {
    fn record(&mut self) -> Record {
        let mut noise = || self.0.below(1 << 48);
        Record {
            inode: noise(),
            latency_ns: Some(noise()),
            size_bytes: Some(noise()),
            result: Some(noise() as i64),
            ..Record::new(0, Op::Write).range(noise(), noise())
        }
    }
}

fn header() -> Header {
    Header { kind: TraceKind::Block, source: "test".to_owned() }
}

/// The part that a writer keeps of each row group is all that grows with the file.
#[test]
fn a_row_group_leaves_less_than_3_kib() {
    let (names, mut noise) = (Names::default(), Noise(Random::new(1)));
    let mut writer = TraceWriter::new(Nowhere, &header()).unwrap();
    let mut groups = |n: usize| {
        for _ in 0..n {
            writer.record(&names, &noise.record()).unwrap();
            drop(writer.footer_so_far(&names).unwrap());
        }
        BYTES.get()
    };
    // A power of two plus one, so that no list has doubled since.
    let before = groups(65);
    let (more, after) = (60, groups(60));
    let each = (after - before) / more;
    assert!((1000..3 << 10).contains(&each), "{each} bytes each");
}

/// Pages wait in pieces that are used again, so a group takes no more than those before it.
#[test]
fn later_row_groups_take_no_more_than_the_first() {
    let (names, mut noise) = (Names::default(), Noise(Random::new(2)));
    let mut writer = TraceWriter::new(Nowhere, &header()).unwrap();
    let mut peak_of = |batches: usize| {
        PEAK.set(BYTES.get());
        for _ in 0..batches * ROWS_PER_BATCH {
            writer.record(&names, &noise.record()).unwrap();
        }
        PEAK.get()
    };
    // A group is four batches.
    let first = peak_of(8);
    let later = peak_of(8);
    assert!(first < 96 << 20, "{first}");
    // What compression gives differs by a little from group to group: a piece of a few columns.
    assert!(later < first + (256 << 10), "{first}, {later}");
}
