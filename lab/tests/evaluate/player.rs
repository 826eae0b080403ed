//! The player in virtual time: depth, timing, flushes, figures.

use syncline_lab::evaluate::{Pace, Played, VirtualPlayer};
use syncline_lab::trace::{Flags, Op, Record};
use syncline_nand::Profile;

const MIB: u64 = 1 << 20;

fn play(profile: &str, pace: Pace, records: &[Record]) -> Played {
    let profile = Profile::parse_built_in(profile).unwrap();
    let mut player = VirtualPlayer::new(&profile, 64 * MIB, pace).unwrap();
    assert_eq!(player.size_bytes(), 64 * MIB);
    for record in records {
        player.play(record).unwrap();
    }
    player.finish()
}

fn reads(count: u64, every_ns: u64) -> Vec<Record> {
    let read = |n| Record::new(n * every_ns, Op::Read).range(n * 7919 % 16_000 * 4096, 4096);
    (0..count).map(read).collect()
}

#[test]
fn a_deeper_queue_is_faster_where_the_device_has_one_and_only_there() {
    let at = |depth| Pace { depth, timing: false };
    let deep = "ssd-850pro";
    let [one, eight] = [1, 8].map(|depth| play(deep, at(depth), &reads(500, 0)).elapsed_s);
    assert!(eight * 2.0 < one, "{one} {eight}");
    let [one, eight] = [1, 8].map(|depth| play("sd-2012", at(depth), &reads(500, 0)).elapsed_s);
    assert!((one - eight).abs() < one * 0.05, "one command at a time: {one} {eight}");
}

#[test]
fn the_timing_of_the_trace_is_kept_and_lateness_counts() {
    let timed = Pace { depth: 1, timing: true };
    let played = play("sd-2012", timed, &reads(100, 10_000_000));
    assert!((0.990..1.1).contains(&played.elapsed_s), "{played:?}");
    assert!(played.read.latency_us_max < 10_000.0, "each is done before the next: {played:?}");
    // Ten times as many as it can do: the last one is late by nearly the whole run.
    let late = play("sd-2012", timed, &reads(100, 10_000));
    let last_us = (late.elapsed_s * 1e6 - 1000.0) * 0.95;
    assert!(late.read.latency_us_max > last_us, "{late:?}");
    let fast = play("sd-2012", Pace::default(), &reads(100, 10_000_000));
    assert!(fast.elapsed_s < 0.2, "{fast:?}");
}

#[test]
fn scattered_writes_take_longer_than_the_same_in_order_and_merge() {
    let write = |page: u64| Record::new(0, Op::Write).range(page * 4096, 4096);
    let mut places: Vec<u64> = (0..200).map(|n| n * 7919 % 16_000).collect();
    let scattered: Vec<_> = places.iter().map(|page| write(*page)).collect();
    places.sort_unstable();
    let sorted: Vec<_> = places.iter().map(|page| write(*page)).collect();
    let [scattered, sorted] =
        [scattered, sorted].map(|records| play("sd-2012:log_blocks=1", Pace::default(), &records));
    assert!(scattered.elapsed_s > 5.0 * sorted.elapsed_s, "{scattered:?} {sorted:?}");
    let merges = |played: &Played| {
        let flash = played.flash.unwrap();
        flash.full_merges + flash.partial_merges + flash.switch_merges
    };
    assert!(merges(&scattered) > 5 * merges(&sorted));
    assert_eq!((sorted.writes, sorted.written_bytes), (200, 200 * 4096));
    assert_eq!(
        sorted,
        play("sd-2012:log_blocks=1", Pace::default(), &{
            places.iter().map(|page| write(*page)).collect::<Vec<_>>()
        }),
        "a run repeats"
    );
}

#[test]
fn a_flush_waits_for_all_before_and_what_is_no_request_is_nothing() {
    let write = Record::new(0, Op::Write).range(0, 1);
    let records = [
        write,
        Record::new(0, Op::Flush),
        Record { flags: Flags::PREFLUSH.with(Flags::FUA), ..write },
        Record::new(0, Op::Discard).range(MIB, MIB),
        Record::new(0, Op::Open),
        Record { result: Some(-5), ..write },
    ];
    let played = play("nexus7-emmc", Pace { depth: 32, timing: false }, &records);
    let counts = (played.reads, played.writes, played.flushes, played.discards);
    assert_eq!(counts, (0, 2, 1, 1));
    assert_eq!(played.written_bytes, 2 * 512, "whole sectors");
    let flash = played.flash.unwrap();
    assert_eq!(flash.flushes, 3, "of the trace, the preflush, the last one");
    assert!(played.flush.latency_us_max > 0.0);
}

#[test]
fn what_lies_beyond_the_device_is_refused() {
    let profile = Profile::by_name("sd-2012").unwrap();
    let mut player = VirtualPlayer::new(&profile, 1, Pace::default()).unwrap();
    let record = Record::new(0, Op::Write).range(64 * MIB, 1);
    let error = player.play(&record).unwrap_err().to_string();
    assert!(error.contains("; leave out"), "{error}");
    let error = VirtualPlayer::new(&profile, 1 << 45, Pace::default()).err().unwrap();
    assert!(error.to_string().contains("--dense"), "{error}");
    let error = VirtualPlayer::new(&profile, u64::MAX, Pace::default()).err().unwrap();
    assert!(error.to_string().contains("--dense"), "{error}");
}
