//! Tests of the plug: hand-made merges, and by proptest that order of pushing decides.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::{Durability, MemoryDevice, RecordingDevice, TraceOp, VirtualClock};

const LOG: Origin = Origin::new(Kind::Journal, true);
const META: Origin = Origin::new(Kind::Metadata, false);
const BLOCK: u64 = 4096;

fn data(inode: u64) -> Origin {
    Origin::new(Kind::Data { inode }, false)
}

fn recording(size: u64) -> RecordingDevice<MemoryDevice> {
    let clock = Arc::new(VirtualClock::default());
    RecordingDevice::with_events(MemoryDevice::new(size), clock, 1000)
}

/// Offsets and lengths of the commands, in blocks.
fn commands(device: &RecordingDevice<MemoryDevice>) -> Vec<(TraceOp, u64, u64)> {
    let events = device.take_events();
    events.iter().map(|e| (e.op, e.offset_bytes / BLOCK, e.len_bytes / BLOCK)).collect()
}

#[test]
fn neighbours_are_sorted_and_merged_across_inodes() {
    let page = [1; BLOCK as usize];
    let device = recording(1 << 20);
    let mut plug = Plug::new();
    for (block, origin) in [(9, data(12)), (8, data(13)), (2, data(12)), (10, data(14))] {
        plug.write(block * BLOCK, &page, origin);
    }
    plug.submit(&device).unwrap();
    assert_eq!(commands(&device), [(TraceOp::Write, 2, 1), (TraceOp::Write, 8, 3)]);
}

#[test]
fn kinds_fua_and_durability_keep_requests_apart() {
    let page = [1; BLOCK as usize];
    let device = recording(1 << 20);
    let mut plug = Plug::new();
    plug.write(0, &page, LOG);
    plug.write(BLOCK, &page, META);
    plug.write(2 * BLOCK, &page, data(12));
    plug.write(3 * BLOCK, &page, Origin { durability: Durability::Relaxed, ..data(12) });
    plug.write_fua(4 * BLOCK, &page, data(12));
    let mut buffer = [0; BLOCK as usize];
    plug.read(5 * BLOCK, &mut buffer, data(12));
    plug.submit(&device).unwrap();
    assert_eq!(commands(&device).len(), 6);
}

#[test]
fn a_merged_request_is_synchronous_if_any_part_is() {
    let page = [1; BLOCK as usize];
    let device = recording(1 << 20);
    let mut plug = Plug::new();
    plug.write(0, &page, data(12));
    plug.write(BLOCK, &page, Origin::new(Kind::Data { inode: 12 }, true));
    plug.submit(&device).unwrap();
    let events = device.take_events();
    assert_eq!((events.len(), events[0].origin.sync), (1, true));
}

#[test]
fn the_largest_request_is_512_kib() {
    let page = [1; BLOCK as usize];
    let large = vec![2; 150 * BLOCK as usize];
    let device = recording(4 << 20);
    let mut plug = Plug::new();
    for block in 0..200 {
        plug.write(block * BLOCK, &page, data(12));
    }
    // One write of 150 blocks is cut at 128; its rest is not filled up by a merge of parts.
    plug.write(300 * BLOCK, &large, data(12));
    plug.submit(&device).unwrap();
    let lens: Vec<u64> = commands(&device).iter().map(|c| c.2).collect();
    assert_eq!(lens, [128, 72, 128, 22]);
}

#[test]
fn a_small_device_limit_cuts_scattered_buffers() {
    let memory = MemoryDevice::new(1 << 20).with_geometry(|g| g.max_request_bytes = 3 * 512);
    let device = RecordingDevice::new(memory);
    let bytes: Vec<u8> = (0..5 * 1024).map(|i| (i / 512) as u8 + 1).collect();
    let mut plug = Plug::new();
    plug.write_run(512, bytes.chunks(1024), data(12));
    plug.submit(&device).unwrap();
    assert_eq!(device.counts().write_requests(), 4);
    let mut back = vec![0; bytes.len()];
    let mut plug = Plug::new();
    plug.read_run(512, back.chunks_mut(512), data(12));
    plug.submit(&device).unwrap();
    assert_eq!(back, bytes);
    assert_eq!(device.counts().read_requests(), 4);
}

#[test]
fn a_flush_stands_alone_and_fua_becomes_a_flush_where_missing() {
    let page = [1; BLOCK as usize];
    let memory = MemoryDevice::new(1 << 20).with_geometry(|g| g.fua = false);
    let device = RecordingDevice::with_events(memory, Arc::new(VirtualClock::default()), 100);
    let mut plug = Plug::new();
    plug.write(0, &page, LOG);
    plug.flush(LOG);
    plug.write_fua(BLOCK, &page, LOG);
    plug.submit(&device).unwrap();
    let ops: Vec<TraceOp> = commands(&device).iter().map(|c| c.0).collect();
    assert_eq!(ops, [TraceOp::Write, TraceOp::Flush, TraceOp::Write, TraceOp::Flush]);
    assert_eq!(device.counts().flushes(), 2);
}

#[test]
fn an_overlap_is_done_after_what_it_overlaps() {
    let (old, new) = ([1; BLOCK as usize], [2; 512]);
    let device = recording(1 << 20);
    let mut plug = Plug::new();
    plug.write(BLOCK, &old, data(12));
    plug.write(BLOCK + 512, &new, data(12));
    let mut seen = [0; 1024];
    plug.read(BLOCK, &mut seen, data(12));
    plug.submit(&device).unwrap();
    assert_eq!((seen[0], seen[512]), (1, 2));
}

#[derive(Clone, Debug)]
enum Step {
    Write { sector: u64, sectors: u64, kind: u8, fua: bool },
    Read { sector: u64, sectors: u64 },
    Discard { sector: u64, sectors: u64 },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..100u64, 1..20u64, 0..4u8, any::<bool>())
            .prop_map(|(sector, sectors, kind, fua)| Step::Write { sector, sectors, kind, fua }),
        2 => (0..100u64, 1..20u64).prop_map(|(sector, sectors)| Step::Read { sector, sectors }),
        1 => (0..100u64, 1..20u64).prop_map(|(sector, sectors)| Step::Discard { sector, sectors }),
        1 => Just(Step::Flush),
    ]
}

fn origin_of(kind: u8) -> Origin {
    [LOG, META, data(12), data(13)][usize::from(kind % 4)]
}

/// Does the steps through one plug or one by one; returns the bytes that the reads saw.
fn play(steps: &[Step], device: &dyn BlockDevice, plugged: bool) -> Vec<Vec<u8>> {
    let bytes_of = |sectors: &u64| vec![0; (*sectors * 512) as usize];
    let mut writes: Vec<Vec<u8>> = Vec::new();
    let mut reads: Vec<Vec<u8>> = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        match step {
            Step::Write { sectors, .. } => {
                let fill = (i as u8).wrapping_add(1);
                writes.push(bytes_of(sectors).iter().map(|_| fill).collect());
            }
            Step::Read { sectors, .. } => reads.push(bytes_of(sectors)),
            _ => {}
        }
    }
    {
        let (mut write, mut read) = (writes.iter(), reads.iter_mut());
        let mut plug = Plug::new();
        for step in steps {
            match step {
                Step::Write { sector, kind, fua, .. } => {
                    let op = Op::Write { from: vec![write.next().unwrap()], fua: *fua };
                    let origin = origin_of(*kind);
                    plug.push(Request { offset_bytes: sector * 512, op, origin });
                }
                Step::Read { sector, .. } => {
                    plug.read(sector * 512, read.next().unwrap(), data(12));
                }
                Step::Discard { sector, sectors } => {
                    plug.discard(sector * 512, sectors * 512, META);
                }
                Step::Flush => plug.flush(LOG),
            }
            if !plugged {
                std::mem::take(&mut plug).submit(device).unwrap();
            }
        }
        plug.submit(device).unwrap();
    }
    reads
}

proptest! {
    // Always the same cases: a failure prints its smallest input and comes back on every run.
    #![proptest_config(ProptestConfig {
        cases: 512,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_plug_equals_doing_it_in_order(
        steps in proptest::collection::vec(step(), 1..40),
        limit_sectors in 1..40u64,
        fua in any::<bool>(),
    ) {
        let make = || MemoryDevice::new(64 << 10).with_geometry(|g| {
            g.max_request_bytes = limit_sectors * 512;
            g.fua = fua;
        });
        let (plugged, in_order) = (RecordingDevice::new(make()), RecordingDevice::new(make()));
        let seen = play(&steps, &plugged, true);
        prop_assert_eq!(&seen, &play(&steps, &in_order, false));
        prop_assert_eq!(plugged.inner().first_difference(in_order.inner()), None);
        let (a, b) = (plugged.counts(), in_order.counts());
        prop_assert_eq!(a.written_bytes(), b.written_bytes());
        prop_assert!(a.write_requests() <= b.write_requests());
        let longest = limit_sectors * 512;
        prop_assert!(a.write_requests() >= a.written_bytes().div_ceil(longest));
    }
}
