//! Power cuts of `sync=periodic` under several real threads, write-back among them.
//!
//! ```text
//!   writer n   append record i to aN | set bN to i | create dN/i | unlink dN/(i-1) | count i
//!   strict     counts of all writers | write, fsync | mark
//!   tick       all that is dirty expires: write-back, sync points
//! ```
//! Judged in every state: of each writer whole records and no step but the last one in part, one
//! point in time, and with a mark nothing older than the counts that were read before its fsync.
//!
//! `SYNCLINE_CRASH_STATES` is the number of states over all configurations (default 3,000). The
//! threads of a rerun meet otherwise, so a failure keeps its image.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use syncline_device::{BlockDevice, Clock, MemoryDevice};
use syncline_fs::{FsError, InodeRef, Volume};
use syncline_testkit::crash::{
    Budget, CrashDevice, CrashOptions, CrashState, Explorer, FaultyFlush,
};
use syncline_testkit::{ImageSpec, TempImage, e2fsck_preen};

use crate::bed::{Bed, bytes, contents, names, owner, spec};

const WRITERS: usize = 4;
const RECORD: usize = 700;
/// States of one run of the threads.
const STATES: u64 = 400;

const CONFIGURATIONS: [(u32, &str); 4] = [
    (1024, "sync=periodic,strict=strict"),
    (1024, "sync=periodic,strict=strict,log=packed,discard,cache=8M"),
    (4096, "sync=periodic,strict=strict,cache=4M,writeback=space"),
    (4096, "sync=periodic,strict=strict,log=packed"),
];

fn states() -> u64 {
    let asked = std::env::var("SYNCLINE_CRASH_STATES").ok();
    asked.map_or(3000, |text| text.trim().parse().expect("a number of states"))
}

fn record(writer: usize, i: u64) -> Vec<u8> {
    bytes(i * WRITERS as u64 + writer as u64, RECORD)
}

/// The files of a writer: records, counter, directory.
fn open(volume: &Volume, writer: usize) -> Result<[InodeRef; 3], FsError> {
    let file = |name: &str| volume.resolve(format!("/{name}{writer}"));
    Ok([file("a")?, file("b")?, file("d")?])
}

fn write(volume: &Volume, writer: usize, done: &AtomicBool, count: &AtomicU64) {
    let [records, counter, dir] = open(volume, writer).expect("made before");
    for i in 1..=400u64 {
        if done.load(Ordering::Acquire) {
            break;
        }
        volume.write_append(&records, &record(writer, i)).expect("appended");
        volume.write(&counter, 0, &i.to_le_bytes()).expect("counted");
        volume.create(&dir, format!("{i}").as_bytes(), &owner()).expect("created");
        volume.unlink(&dir, format!("{}", i - 1).as_bytes()).expect("unlinked");
        count.store(i, Ordering::Release);
    }
}

/// Counts that each mark stands for.
type Acknowledged = Vec<[u64; WRITERS]>;

/// One run of the threads, over a device that remembers every request.
fn play(bed: &Bed, faulty: FaultyFlush) -> (Explorer, Acknowledged) {
    let setup = bed.mount("");
    let root = setup.root().expect("a root");
    for n in 0..WRITERS {
        for name in ["a", "b"] {
            setup.create(&root, format!("{name}{n}").as_bytes(), &owner()).expect("created");
        }
        let dir = setup.mkdir(&root, format!("d{n}").as_bytes(), &owner()).expect("made");
        setup.create(&dir, b"0", &owner()).expect("created");
    }
    setup.create(&root, b"strict", &owner()).expect("created");
    drop(root);
    setup.unmount().expect("unmounted");

    let options = CrashOptions { fua: false, faulty, ..CrashOptions::default() };
    let device = Arc::new(CrashDevice::new(&bed.dev, options));
    let volume = bed.mount_on(Arc::clone(&device) as Arc<dyn BlockDevice>, "");
    let (done, acknowledged) = (AtomicBool::new(false), Mutex::new(Acknowledged::new()));
    let counts: [AtomicU64; WRITERS] = Default::default();
    std::thread::scope(|scope| {
        for (n, count) in counts.iter().enumerate() {
            let (volume, done) = (&volume, &done);
            scope.spawn(move || write(volume, n, done, count));
        }
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                bed.wait_ms(31_000);
                volume.tick(bed.clock.now_ns()).expect("nothing fails");
            }
        });
        let strict = volume.resolve("/strict").expect("made before");
        for round in 0..40u64 {
            let before = counts.each_ref().map(|count| count.load(Ordering::Acquire));
            volume.write(&strict, 0, &round.to_le_bytes()).expect("written");
            volume.fsync(&strict, false).expect("synced");
            let mut acknowledged = acknowledged.lock();
            device.mark(acknowledged.len() as u64);
            acknowledged.push(before);
        }
        done.store(true, Ordering::Release);
    });
    (Explorer::new(device.log()), acknowledged.into_inner())
}

fn judge(state: &CrashState, acknowledged: &Acknowledged) -> Result<(), String> {
    let options = syncline_fs::MountOptions::default();
    let clock = Arc::new(syncline_device::VirtualClock::default()) as Arc<dyn Clock>;
    let device = Arc::new(state.image.snapshot()) as Arc<dyn BlockDevice>;
    let volume = Volume::mount(device, clock, options).map_err(|err| err.to_string())?;
    let durable = state.marks().last().map(|mark| acknowledged[*mark as usize]);
    for n in 0..WRITERS {
        let [records, counter, dir] = open(&volume, n).map_err(|err| err.to_string())?;
        let found = contents(&volume, &records);
        let counted = contents(&volume, &counter).try_into().map_or(0, u64::from_le_bytes);
        let appended = (found.len() / RECORD) as u64;
        let said = |what: &str| Err(format!("writer {n}, {appended} records, {counted}: {what}"));
        if found.len() % RECORD != 0 {
            return said("a torn record");
        }
        for (i, part) in (1..).zip(found.chunks(RECORD)) {
            if *part != record(n, i) {
                return said("a record has other bytes");
            }
        }
        if appended != counted && appended != counted + 1 {
            return said("not one point in time");
        }
        let mut listed: Vec<u64> = names(&volume, &dir)
            .iter()
            .map(|name| String::from_utf8_lossy(name).parse().expect("a number"))
            .collect();
        listed.sort_unstable();
        let between = [vec![counted], vec![counted.saturating_sub(1), counted]];
        let before = counted > 0 && listed == [counted - 1];
        if !before && !between.contains(&listed) || appended > counted && listed != [counted] {
            return said(&format!("names {listed:?}"));
        }
        if durable.is_some_and(|counts| counted < counts[n]) {
            return said(&format!("older than the strict sync, {durable:?}"));
        }
    }
    volume.unmount().map_err(|err| err.to_string())
}

fn explore(
    (block_size, options): (u32, &str),
    seed: u64,
    faulty: FaultyFlush,
) -> Result<u64, String> {
    let image = ImageSpec {
        journal_size_mib: Some(if block_size == 1024 { 1 } else { 4 }),
        ..spec(block_size)
    };
    let bed = Bed::new(&image, 0).with(options);
    let (explorer, acknowledged) = play(&bed, faulty);
    let (mut kept, mut seen) = (None, 0);
    let command = "cargo test -p syncline-fs --test it crowd_crash::";
    let summary =
        syncline_testkit::crash::run(&explorer, &Budget::new(STATES, seed), command, |state| {
            seen += 1;
            // Stock recovery in every fiftieth state.
            let theirs = seen % 50 == 0 && !options.contains("packed");
            let stock = if theirs { stock_recovery(&state.image) } else { Ok(()) };
            let verdict = stock.and_then(|()| judge(state, &acknowledged));
            if verdict.is_err() && kept.is_none() {
                kept = keep(&state.image);
            }
            verdict
        });
    let judged = summary.judged as u64;
    summary.into_result().map_err(|err| format!("{options}: {err}\nthe image is {kept:?}"))?;
    Ok(judged)
}

fn stock_recovery(image: &MemoryDevice) -> Result<(), String> {
    let file = TempImage::zeroed(0);
    image.to_file(file.path()).map_err(|err| err.to_string())?;
    e2fsck_preen(file.path())
}

fn keep(image: &MemoryDevice) -> Option<std::path::PathBuf> {
    let path = std::env::temp_dir().join("syncline-crowd-failure.img");
    image.to_file(&path).ok().map(|()| path)
}

#[test]
fn threads_beside_sync_points_and_cuts_see_one_point_in_time() {
    let (wanted, mut judged) = (states(), 0);
    for seed in 0.. {
        if judged >= wanted {
            break;
        }
        let configuration = CONFIGURATIONS[seed as usize % CONFIGURATIONS.len()];
        judged +=
            explore(configuration, seed, FaultyFlush::None).unwrap_or_else(|err| panic!("{err}"));
    }
    println!("{judged} states judged");
}

#[test]
fn a_dropped_flush_under_threads_is_caught() {
    let caught =
        (0..20).any(|seed| explore(CONFIGURATIONS[0], seed, FaultyFlush::EveryFlush).is_err());
    assert!(caught, "no state of a device that never flushes was refused");
}
