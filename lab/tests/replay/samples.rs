//! The traces that ship: each reads, has the figures that it had when it was captured, and its two
//! sides agree.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use syncline_lab::replay::ReplayTrace;
use syncline_lab::trace::{Gather, Op, Origin, Record, Sink, Statistics, TraceKind, TraceReader};

fn path(name: &str, kind: &str) -> PathBuf {
    let samples = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../samples"));
    samples.join(format!("{name}.{kind}.trace"))
}

fn read(name: &str, kind: &str, of: TraceKind) -> (Vec<Record>, Statistics) {
    let mut reader = TraceReader::open(File::open(path(name, kind)).unwrap()).unwrap();
    assert_eq!((reader.header().kind, reader.lost()), (of, 0), "{name}");
    let (mut records, mut gather) = (Vec::new(), Gather::new(of));
    while let Some((batch, names)) = reader.next_batch().unwrap() {
        for record in batch {
            gather.record(names, record).unwrap();
        }
        records.extend_from_slice(batch);
    }
    assert!(records.is_sorted_by_key(|record| record.time_ns), "{name}.{kind}");
    let found = gather.finish(reader.names());
    (records, found)
}

/// Name; calls, files, bytes written, syncs; page records; block writes, bytes, flushes.
type Golden = (&'static str, [u64; 4], u64, [u64; 3]);
const GOLDEN: [Golden; 9] = [
    ("chromium-cold", [4871, 257, 5_951_288, 229], 2372, [639, 13_375_488, 240]),
    ("chromium-warm", [3601, 232, 3_620_623, 32], 1666, [407, 6_273_024, 44]),
    ("mail", [2412, 150, 7_889_436, 295], 739, [455, 17_102_848, 325]),
    ("dpkg", [4886, 305, 3_872_400, 127], 488, [313, 6_830_080, 129]),
    ("pip", [2087, 193, 382_342, 9], 276, [200, 1_562_624, 16]),
    ("pocketdata", [6123, 2, 4_628_080, 968], 2999, [747, 13_699_072, 734]),
    ("rlbench", [3094, 4, 5_066_788, 601], 2460, [630, 22_444_032, 613]),
    ("video", [3098, 1, 25_165_824, 0], 3059, [108, 25_233_408, 7]),
    ("git", [22_136, 655, 1_451_852, 135], 4767, [432, 9_947_136, 170]),
];

#[test]
fn every_sample_has_its_figures() {
    let shipped = ReplayTrace::shipped().unwrap();
    assert_eq!(shipped.len(), GOLDEN.len());
    for (trace, (name, calls, pages, blocks)) in shipped.iter().zip(&GOLDEN) {
        assert_eq!(trace.name, *name);
        let (records, found) = read(name, "calls", TraceKind::Syscall);
        assert_eq!(records.len(), trace.records.len(), "{name}: the built-in one is another");
        let got = [found.records, found.files, found.write.bytes, found.sync_calls];
        assert_eq!(got, *calls, "{name}");
        let (_, found) = read(name, "pages", TraceKind::Page);
        assert_eq!(found.records, *pages, "{name}");
        let (_, found) = read(name, "blocks", TraceKind::Block);
        let flushes = found.calls.iter().find(|call| call.0 == "flush").map_or(0, |call| call.1);
        assert_eq!([found.write.calls, found.write.bytes, flushes], *blocks, "{name}");
    }
}

/// Checks that the two sides of a run agree; returns the first difference.
fn agree(calls: &[Record], pages: &[Record], blocks: &[Record]) -> Result<(), String> {
    let touches = |op| matches!(op, Op::Write | Op::Truncate | Op::Fallocate);
    let mut first_ns = BTreeMap::new();
    for record in calls.iter().filter(|record| touches(record.op) && !record.failed()) {
        first_ns.entry(record.inode).or_insert(record.time_ns);
    }
    let writes = |records: &[Record]| -> u64 {
        let moved = |r: &&Record| r.op == Op::Write && !r.failed() && r.len_bytes > 0;
        records.iter().filter(moved).count() as u64
    };
    if writes(calls) != writes(pages) {
        return Err(format!("{} writes, {} of pages", writes(calls), writes(pages)));
    }
    let mut bytes = BTreeMap::<Option<&str>, u64>::new();
    for block in blocks.iter().filter(|block| block.op == Op::Write) {
        *bytes.entry(block.origin.name()).or_default() += block.len_bytes;
        let first = first_ns.get(&block.inode);
        if block.origin == Origin::Data && first.is_none_or(|first| *first >= block.time_ns) {
            return Err(format!("data of an inode that nobody wrote before: {block:?}"));
        }
    }
    // Eager mode: what is synced goes through the journal.
    if calls.iter().any(|call| call.op.is_sync()) && !bytes.contains_key(&Some("journal")) {
        return Err("syncs, and nothing in the journal".to_owned());
    }
    Ok(())
}

#[test]
fn both_sides_of_a_run_agree() {
    for (name, ..) in GOLDEN {
        let sides = [
            ("calls", TraceKind::Syscall),
            ("pages", TraceKind::Page),
            ("blocks", TraceKind::Block),
        ];
        let [calls, pages, blocks] = sides.map(|(kind, of)| read(name, kind, of).0);
        agree(&calls, &pages, &blocks).unwrap_or_else(|why| panic!("{name}: {why}"));
        // The check can fail: without the writes of one inode, its data has no reason.
        let inode = blocks.iter().find(|b| b.origin == Origin::Data).unwrap().inode;
        let others: Vec<Record> = calls.iter().copied().filter(|c| c.inode != inode).collect();
        agree(&others, &pages, &blocks).unwrap_err();
    }
}
