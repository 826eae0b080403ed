//! The model without contents: invariants under random commands, write amplification against the
//! published analysis, streams, map cache, parallelism, determinism.

use crate::analysis::greedy_write_amplification;
use syncline_device::SplitMix64;
use syncline_device::WriteLife::{Extreme, Long, Medium, NotSet, Short};
use syncline_nand::{Profile, Report, Simulator};

const MIB: u64 = 1 << 20;

fn simulator(spec: &str, size_bytes: u64) -> Simulator {
    Simulator::new(&Profile::parse_built_in(spec).unwrap(), size_bytes).unwrap()
}

/// A plain page map: one stream whose closing is free, one unit a page, no map cache, no padding.
const PLAIN: &str = "nexus7-emmc:page_kib=4,streams=1,merge_kib=4,close_map_programs=0,\
                     map_cache_segments=0";

/// Random commands of every kind; returns the report.
fn random_commands(spec: &str, size_bytes: u64, seed: u64, commands: u32) -> Report {
    println!("{spec}, seed {seed}");
    let mut s = simulator(spec, size_bytes);
    let mut rng = SplitMix64::new(seed);
    let mut now = 0;
    for i in 0..commands {
        let most = if rng.below(4) == 0 { 256 } else { 16 };
        let sectors = 1 + rng.below(most);
        let offset = rng.below(size_bytes / 512) * 512;
        let done = match rng.below(20) {
            0..=2 => s.read(now, offset, sectors * 512),
            3..=16 => {
                let fua = rng.below(10) == 0;
                let life = [NotSet, Short, Medium, Long, Extreme][i as usize % 5];
                s.write_with_life(now, offset, sectors * 512, fua, life)
            }
            17 | 18 => s.flush(now),
            _ => s.discard(now, offset, sectors * 512),
        };
        assert!(done >= now);
        now = done;
        if i % 4096 == 0 {
            s.check().unwrap_or_else(|e| panic!("seed {seed}, command {i}: {e}"));
        }
    }
    s.flush(now);
    s.check().unwrap();
    let (c, l) = (s.counters(), *s.layout());
    // Every programmed unit is a host unit, a copy, or padding; after a flush the buffer is empty.
    let written = c.host_units - c.coalesced_units + c.gc_copies + c.merge_copies + c.padded_units;
    let programmed = c.page_programs * u64::from(l.units_per_page);
    let open = written - programmed;
    let collectors = 5;
    assert!(open < collectors * u64::from(l.units_per_page), "only collectors' pages: {open}");
    // Every superblock that was erased had been filled before: erases add up.
    let sum: u64 = s.erases().iter().map(|&e| u64::from(e)).sum();
    assert_eq!((c.erases, c.erases), (sum, c.gc_runs));
    let filled = programmed / u64::from(l.units_per_block);
    let standing = u64::from(l.blocks);
    assert!(c.erases <= filled && filled <= c.erases + standing, "{filled} filled, {c:?}");
    let data = c.page_programs * l.page_bytes();
    assert_eq!(c.programmed_bytes, data + c.map_programs * l.page_bytes());
    s.report()
}

#[test]
fn invariants_hold_under_random_commands() {
    for (seed, spec) in [
        "nexus7-emmc",
        "nexus7-emmc:streams=8,merge_kib=64,map_cache_segments=1,map_segment_kib=256",
        "nexus7-emmc:map_unit_kib=8,merge_kib=8,buffer_kib=0",
        "nexus7-emmc:planes=4,channels=3,dies_per_channel=1,pages_per_block=16",
        "generic-emmc:pages_per_block=8,over_provisioning_percent=1",
        "nexus7-emmc:handles=3,pages_per_block=16,over_provisioning_percent=60",
        "nexus7-emmc:handles=5,wear_gap=2,pages_per_block=16,over_provisioning_percent=60",
        "nexus7-emmc:handles=4,victims=fifo,pages_per_block=8,over_provisioning_percent=30",
        PLAIN,
    ]
    .iter()
    .enumerate()
    {
        let r = random_commands(spec, 24 * MIB + 512, seed as u64, 30_000);
        assert!(r.counters.gc_runs > 0, "the test must reach collection: {spec}");
    }
}

#[test]
fn equal_seeds_give_equal_results() {
    let spec = "generic-emmc:pages_per_block=8";
    let a = random_commands(spec, 16 * MIB, 99, 20_000);
    let b = random_commands(spec, 16 * MIB, 99, 20_000);
    assert_eq!(a, b);
    assert_ne!(a, random_commands(spec, 16 * MIB, 100, 20_000));
    let mut c = simulator(spec, 16 * MIB);
    let mut d = simulator(spec, 16 * MIB);
    c.precondition(90, 5);
    d.precondition(90, 5);
    assert_eq!(c.erases(), d.erases());
    assert_eq!(c.write(7, 0, 4096, true), d.write(7, 0, 4096, true));
}

#[test]
fn greedy_write_amplification_is_the_published_one() {
    for op in [10, 20, 40] {
        let spec = format!("{PLAIN},pages_per_block=64,over_provisioning_percent={op}");
        let mut s = simulator(&spec, 256 * MIB);
        let l = *s.layout();
        let units = u64::from(l.host_units);
        for unit in 0..units {
            s.write(0, unit * 4096, 4096, false);
        }
        let mut rng = SplitMix64::new(op);
        let mut random = |s: &mut Simulator, n| {
            let before = s.counters();
            for _ in 0..n {
                s.write(0, rng.below(units) * 4096, 4096, false);
            }
            s.counters().since(&before)
        };
        random(&mut s, units * 6);
        let got = random(&mut s, units * 4).write_amplification();
        // The reserve and, half filled on average, the two frontiers hold no garbage to speak of.
        let total = f64::from(l.blocks - 3) * f64::from(l.units_per_block);
        let n = f64::from(l.units_per_block);
        let want = greedy_write_amplification(units as f64, total, n);
        println!("over-provisioning {op} %: {got:.3}, analysis {want:.3}");
        let wear = s.report().wear;
        assert!(f64::from(wear.erases_max) < 1.5 * wear.erases_mean + 2.0, "uneven: {wear:?}");
        assert!((got / want - 1.0).abs() < 0.02, "{op} %: {got:.3}, analysis {want:.3}");
    }
}

#[test]
fn a_sequential_overwrite_is_not_amplified() {
    let mut s = simulator(PLAIN, 64 * MIB);
    for _ in 0..6 {
        for unit in 0..64 * MIB / 4096 {
            s.write(0, unit * 4096, 4096, false);
        }
    }
    let c = s.counters();
    assert!(c.erases > 0);
    assert_eq!((c.gc_copies, c.write_amplification()), (0, 1.0));
}

/// Two interleaved sequential runs with a flush after each write: cost of the second half.
fn interleaved(streams: u32, runs: u64) -> (u64, u64) {
    let mut s = simulator(&format!("nexus7-emmc:streams={streams}"), 256 * MIB);
    let (mut now, mut half) = (0, 0);
    for i in 0..200 {
        for run in 0..runs {
            now = s.write(now, run * 16 * MIB + i * 8192, 8192, false);
            now = s.flush(now);
        }
        if i == 99 {
            half = now;
        }
    }
    (now - half, s.counters().stream_closes)
}

#[test]
fn more_runs_than_streams_pay_for_each_switch() {
    for streams in [1, 2, 4, 8] {
        let fits = interleaved(streams, u64::from(streams));
        assert_eq!(fits.1, 0, "{streams} runs in {streams} streams close none");
        let (cost, closes) = interleaved(streams, u64::from(streams) + 1);
        assert_eq!(closes, 200 * (u64::from(streams) + 1) - u64::from(streams));
        let each = fits.0 / u64::from(streams);
        let each_more = cost / (u64::from(streams) + 1);
        println!("{streams} streams: {each} ns, one run more: {each_more} ns");
        assert!(each_more > each + each / 4, "{streams}: {each} against {each_more}");
    }
}

#[test]
fn a_closed_run_completes_its_clusters() {
    let mut s = simulator("nexus7-emmc:streams=1,merge_kib=32", 64 * MIB);
    let mut now = s.write(0, 0, MIB, false);
    now = s.flush(now);
    // One unit in the middle of a cluster of eight, then another place: seven are copied.
    now = s.write(now, 5 * 4096, 4096, false);
    let before = s.counters();
    now = s.write(now, 512 * 1024, 32 * 1024, false);
    let c = s.counters().since(&before);
    assert_eq!((c.merge_copies, c.stream_closes, c.map_programs), (7, 1, 1));
    // That run filled its cluster: closing it copies nothing.
    let before = s.counters();
    s.write(now, 0, 4096, false);
    assert_eq!(s.counters().since(&before).merge_copies, 0);
    s.check().unwrap();
}

#[test]
fn flush_costs_only_when_something_is_dirty() {
    let mut s = simulator("nexus7-emmc:request_us=0,command_us=10,flush_us=5000", 16 * MIB);
    assert_eq!(s.flush(0), 10_000);
    let written = s.write(10_000, 0, 4096, false);
    assert!(written < 600_000, "a map read, and the buffer took it: {written}");
    let flushed = s.flush(written);
    assert!(flushed > written + 890_000 + 5_000_000, "program and flush: {flushed}");
    assert_eq!(s.flush(flushed), flushed + 10_000);
}

#[test]
fn a_flush_of_a_protected_buffer_waits_for_nothing() {
    let spec = "nexus7-emmc:request_us=0,command_us=10,flush_us=5000,protected=true,fua=true";
    let mut s = simulator(spec, 16 * MIB);
    let written = s.write(0, 0, 4096, true);
    assert!(written < 600_000, "a map read, and the buffer took it: {written}");
    assert!(s.durable(0, written));
    assert_eq!(s.flush(written), written + 10_000);
    assert_eq!(s.counters().page_programs, 0);
    s.power_cycle();
    assert!(s.locate(0).is_some(), "in the cells");
    s.check().unwrap();
}

#[test]
fn one_command_at_a_time_is_dispatched() {
    let spec = "nexus7-emmc:request_us=5,command_us=10,dispatch_us=20,queue_depth=4";
    let mut s = simulator(spec, 16 * MIB);
    let done: Vec<u64> = (0..4).map(|_| s.flush(0)).collect();
    assert_eq!(done, [35_000, 55_000, 75_000, 95_000]);
    // The first place of the queue is free at 35 us, the controller at 85.
    assert_eq!(s.flush(0), 115_000);
    assert_eq!(s.flush(200_000), 235_000, "idle");
}

#[test]
fn a_large_write_uses_all_dies() {
    let time = |dies| {
        let spec = format!("generic-emmc:channels={dies},dies_per_channel=1,queue_depth=1");
        let mut s = simulator(&spec, 64 * MIB);
        let now = s.write(0, 0, MIB, false);
        s.flush(now)
    };
    let (one, four) = (time(1), time(4));
    assert!(one > 3 * four, "{one} ns with one die, {four} with four");
}

#[test]
fn queue_depth_one_is_one_command_at_a_time() {
    let reads = |depth| {
        let mut s = simulator(&format!("generic-emmc:queue_depth={depth}"), 64 * MIB);
        let now = s.write(0, 0, MIB, false);
        let now = s.flush(now);
        (0..4).map(|i| s.read(now, i * 16384, 4096)).max().unwrap() - now
    };
    let (serial, parallel) = (reads(1), reads(4));
    assert!(serial > 3 * parallel, "{serial} against {parallel}");
}

#[test]
fn map_misses_cost_reads_beyond_the_cache() {
    let read_all = |segments: u32| {
        let spec = format!("nexus7-emmc:map_segment_kib=1024,map_cache_segments={segments}");
        let mut s = simulator(&spec, 16 * MIB);
        let mut now = s.write(0, 0, 16 * MIB, false);
        now = s.flush(now);
        let before = s.counters();
        for i in 0..64 {
            now = s.read(now, (i % 16) * MIB, 4096);
        }
        s.counters().since(&before).map_reads
    };
    assert_eq!(read_all(16), 0, "the writes loaded all of them");
    assert_eq!(read_all(0), 0);
    assert_eq!(read_all(15), 64, "round robin over one segment too many misses always");
}

#[test]
fn writes_smaller_than_a_unit_read_it_first() {
    let mut s = simulator("nexus7-emmc", 16 * MIB);
    let now = s.write(0, 512, 512, false);
    assert_eq!(s.counters().rmw_reads, 0, "nothing was mapped");
    let now = s.flush(now);
    let now = s.write(now, 512, 512, false);
    assert_eq!(s.counters().rmw_reads, 1);
    s.write(now, 1024, 512, false);
    let c = s.counters();
    assert_eq!((c.rmw_reads, c.coalesced_units), (1, 1), "the unit was in the buffer");
}

#[test]
fn discard_makes_collection_cheap() {
    let copies = |discard: bool| {
        let mut s = simulator("nexus7-emmc:pages_per_block=16", 32 * MIB);
        s.precondition(90, 3);
        if discard {
            s.discard(0, 0, 16 * MIB);
        }
        let mut rng = SplitMix64::new(1);
        for _ in 0..4000 {
            s.write(0, 16 * MIB + rng.below(2048) * 4096, 4096, false);
        }
        s.check().unwrap();
        s.counters().gc_copies
    };
    let (with, without) = (copies(true), copies(false));
    assert!(with * 2 < without, "{with} copies with discard, {without} without");
}

#[test]
fn requests_beyond_the_end_are_clamped() {
    let mut s = simulator("nexus7-emmc", MIB + 512);
    s.write(0, MIB, 4096, false);
    s.write(0, u64::MAX - 511, 512, true);
    s.read(0, u64::MAX, u64::MAX);
    s.discard(0, 0, u64::MAX);
    assert_eq!(s.counters().discarded_units, 1, "the partial last unit counts as whole");
    s.check().unwrap();
}

/// Units that are overwritten soon between units that stay: superblocks with both, and copies.
fn mixed_lives(spec: &str) -> (usize, u64) {
    let size = 64 * MIB;
    let mut s = simulator(spec, size);
    let l = *s.layout();
    let units = u64::from(l.host_units);
    let mut rng = SplitMix64::new(5);
    let life = |unit: u64| if unit < units / 8 { Short } else { Long };
    let write = |s: &mut Simulator, unit: u64| {
        s.write_with_life(0, unit * 4096, 4096, false, life(unit));
    };
    (0..units).for_each(|unit| write(&mut s, unit));
    for n in 0..units * 4 {
        let among = if n % 8 == 0 { units } else { units / 8 };
        write(&mut s, rng.below(among));
    }
    s.flush(0);
    s.check().unwrap();
    let mut lives = vec![[false; 2]; l.blocks as usize];
    for unit in 0..l.host_units {
        let block = s.locate(unit).unwrap() / l.units_per_block;
        lives[block as usize][usize::from(life(u64::from(unit)) == Short)] = true;
    }
    let both = lives.iter().filter(|found| **found == [true; 2]).count();
    (both, s.counters().gc_copies)
}

#[test]
fn handles_keep_lifetimes_in_superblocks_of_their_own() {
    let with =
        |handles| mixed_lives(&format!("{PLAIN},over_provisioning_percent=30,handles={handles}"));
    let (one, two, five) = (with(1), with(2), with(5));
    println!("{one:?}, {two:?}, {five:?}");
    assert!(one.0 > 0 && one.1 > 0);
    assert_eq!(five.0, 0, "collection does not mix them either");
    assert!(five.1 * 4 < one.1 * 3);
    assert_eq!(two.0, 0, "a lifetime without a handle goes to the first");
}

#[test]
fn handles_need_room_and_a_map_by_page() {
    let handles = |mib| simulator("nexus7-emmc:handles=4", mib * MIB).layout().handles;
    assert_eq!([16, 256, 512].map(handles), [1, 3, 4]);
    let same = |spec| mixed_lives(&format!("{PLAIN},{spec}"));
    assert_eq!(same("handles=4,pages_per_block=4096"), same("handles=1,pages_per_block=4096"));
    let refused = |spec: &str| Profile::parse_built_in(spec).unwrap_err().to_string();
    for spec in ["nexus7-emmc:handles=0", "nexus7-emmc:handles=6"] {
        assert!(refused(spec).contains("not within 1 to 5"), "{spec}");
    }
    let spec = "sd-pny:mapping=fast,handles=2";
    assert!(refused(spec).contains("handles"), "{spec}");
}

#[test]
fn what_is_initially_isolated_is_mixed_by_the_collector() {
    let with =
        |more: &str| mixed_lives(&format!("{PLAIN},over_provisioning_percent=30,handles=2{more}"));
    let (kept, mixed) = (with(""), with(",initially_isolated=true"));
    println!("{kept:?}, {mixed:?}");
    assert_eq!(kept.0, 0);
    assert!(mixed.0 > 0);
}
