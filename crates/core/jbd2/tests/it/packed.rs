//! Packed records: the rules of a log that holds differences, by power cuts and by damage.
//!
//! The workload changes a few bytes of some blocks each round, so that every image depends on all
//! before it: a base that is not what recovery has, or a chain that was cut, leaves bytes that
//! belong to no round. Home blocks and log are torn by sector.

use crate::common::{Page, RING_BLOCKS, Volume, prepared};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::time::Instant;
use syncline_device::{BlockDevice, Kind, MemoryDevice, Origin, RecordingDevice};
use syncline_jbd2::{
    Checksums, Journal, JournalError, JournalOptions, RecoverOptions, Recovery, WriteAction,
};
use syncline_model::{FuzzRounds, ImageSpec, Need, require};
use syncline_testkit::crash::{
    Budget, CrashDevice, CrashOptions, CrashState, Explorer, FaultyFlush, StateId,
};

const ROUNDS: u64 = 60;
/// Blocks changed as metadata and as file data.
const METADATA: u64 = 5;
const DATA: u64 = 4;
const ORIGIN: Origin = Origin::new(Kind::Data { inode: 12 }, false);

fn packed(volume: &Volume) -> JournalOptions {
    JournalOptions {
        checksums: Checksums::Packed,
        checksums_at_rest: volume.options.checksums,
        checkpoint_step_blocks: 3,
        ..volume.options
    }
}

/// Changes an image as a round does: a few bytes here and there, in one or two sectors.
fn change(image: &mut [u8], round: u64, block: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(round << 8 | block);
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..4000);
        let len = rng.random_range(1..90);
        image[at..at + len].fill(rng.random());
    }
}

/// Parts that differ, as the log takes them.
fn mask(before: &[u8], after: &[u8]) -> u64 {
    let parts = before.chunks(64).zip(after.chunks(64));
    (0..).zip(parts).fold(0, |mask, (bit, (old, new))| mask | u64::from(old != new) << bit)
}

/// True if a round changes a block; the first blocks are the hottest.
fn is_changed(round: u64, block: u64) -> bool {
    round % (1 << (block % 5)) == 0
}

/// Every block after each round.
fn history() -> Vec<Vec<Vec<u8>>> {
    let mut blocks = vec![vec![0; 4096]; (METADATA + DATA) as usize];
    let mut history = vec![blocks.clone()];
    for round in 1..=ROUNDS {
        for (block, image) in (0..).zip(&mut blocks) {
            if is_changed(round, block) {
                change(image, round, block);
            }
        }
        history.push(blocks.clone());
    }
    history
}

fn workload(volume: &Volume, dev: &Arc<CrashDevice>) {
    let journal = volume.open_with(dev.clone(), packed(volume));
    let mut data = vec![vec![0; 4096]; DATA as usize];
    for round in 1..=ROUNDS {
        let mut handle = journal.start(16).unwrap();
        for block in (0..METADATA).filter(|block| is_changed(round, *block)) {
            handle.modify(volume.free + block, |image| change(image, round, block)).unwrap();
        }
        for (block, image) in (METADATA..).zip(&mut data) {
            if is_changed(round, block) {
                let before = image.clone();
                change(image, round, block);
                let changed = ((round + block) % 3 == 0).then(|| mask(&before, image));
                let image = image.clone().into();
                handle.journal_data(volume.free + block, image, ORIGIN, changed).unwrap();
            }
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
        dev.mark(round);
        match round % 7 {
            2 => {
                let upto = journal.next_sequence();
                journal.checkpoint_step(upto, round % 2 == 0).unwrap();
            }
            4 => write_data_back(volume, &journal, dev, &data),
            6 if round > 40 => journal.flush_all().unwrap(),
            _ => {}
        }
    }
    journal.shutdown().unwrap();
    dev.mark(ROUNDS + 1);
}

/// As the file system's write-back: pages that the log holds go in place as they are.
fn write_data_back(volume: &Volume, journal: &Journal, dev: &CrashDevice, data: &[Vec<u8>]) {
    let mut pages: Vec<Page> = (METADATA..)
        .zip(data)
        .map(|(block, image)| Page {
            block: volume.free + block,
            image: image.clone().into(),
            newer: false,
            action: WriteAction::Write,
        })
        .collect();
    journal.begin_in_place(&mut pages, false).unwrap();
    for page in &pages {
        assert!(matches!(page.action, WriteAction::Write | WriteAction::Skip));
        if page.action == WriteAction::Write {
            dev.write(page.block * 4096, &page.image, ORIGIN).unwrap();
        }
    }
    journal.end_in_place(&pages);
}

fn recover(volume: &Volume, dev: &dyn BlockDevice) -> Result<Recovery, JournalError> {
    Journal::recover(dev, &volume.log, RecoverOptions::default())
}

/// Recovery must have left the blocks of one round, not older than the last acknowledged one.
fn judge(volume: &Volume, history: &[Vec<Vec<u8>>], state: &CrashState) -> Result<(), String> {
    recover(volume, &state.image).map_err(|e| e.to_string())?;
    let found: Vec<Vec<u8>> =
        (0..METADATA + DATA).map(|block| volume.block(&state.image, volume.free + block)).collect();
    let acknowledged = state.marks().last().copied().unwrap_or(0).min(ROUNDS) as usize;
    let rounds = history[acknowledged..].iter().take(2);
    if rounds.into_iter().any(|blocks| *blocks == found) {
        return Ok(());
    }
    let near = |block: usize| history.iter().rposition(|blocks| blocks[block] == found[block]);
    let rounds: Vec<Option<usize>> = (0..found.len()).map(near).collect();
    Err(format!("round {acknowledged} was acknowledged; blocks are of rounds {rounds:?}"))
}

fn explorer(volume: &Volume, options: CrashOptions) -> Explorer {
    let dev = Arc::new(CrashDevice::new(&volume.image, options));
    workload(volume, &dev);
    Explorer::new(dev.log())
}

fn ready(name: &str) -> Option<Volume> {
    require(name, &[Need::E2fsck]).then(|| {
        let volume = prepared();
        let zeros = vec![0; 4096];
        for block in 0..METADATA + DATA {
            volume.image.write_at((volume.free + block) * 4096, &zeros).unwrap();
        }
        volume
    })
}

fn only() -> Option<StateId> {
    let text = std::env::var("SYNCLINE_CRASH_STATE").ok()?;
    Some(text.parse().expect("SYNCLINE_CRASH_STATE holds a state id from a failure report"))
}

#[test]
fn every_cut_recovers_to_one_round() {
    let Some(volume) = ready("packed crash") else { return };
    let history = history();
    for fua in [true, false] {
        let explorer = explorer(&volume, CrashOptions { fua, ..CrashOptions::default() });
        let budget = Budget::new(6000, 1).with_only(only());
        let command = "cargo test -p syncline-jbd2 --test it packed::every_cut";
        let summary = syncline_testkit::crash::run(&explorer, &budget, command, |state| {
            judge(&volume, &history, state)
        });
        println!("fua {fua}: {summary}");
        summary.into_result().unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn a_cut_recovery_recovers() {
    let Some(volume) = ready("packed nested crash") else { return };
    let history = history();
    let explorer = explorer(&volume, CrashOptions::default());
    let (outer, inner) = (Budget::new(80, 3).with_only(only()), Budget::new(30, 4));
    let command = "cargo test -p syncline-jbd2 --test it packed::a_cut_recovery";
    let summary = syncline_testkit::crash::run_nested(
        &explorer,
        &outer,
        &inner,
        command,
        |dev| recover(&volume, &*dev).map(|_| ()).map_err(|e| e.to_string()),
        |state| judge(&volume, &history, state),
    );
    println!("{summary}");
    assert!(summary.judged > 200, "{summary}");
    summary.into_result().unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_device_that_lies_about_flushes_is_caught() {
    let Some(volume) = ready("packed canary") else { return };
    let history = history();
    let options = CrashOptions { faulty: FaultyFlush::EveryFlush, ..CrashOptions::default() };
    let explorer = explorer(&volume, options);
    let summary = syncline_testkit::crash::run(&explorer, &Budget::new(3000, 5), "", |state| {
        judge(&volume, &history, state)
    });
    assert!(!summary.failures.is_empty(), "the faulty was not noticed");
}

/// A journal over a copy of the volume after `rounds` commits of a few bytes, and where each record
/// went.
fn crashed(volume: &Volume, rounds: u64) -> (MemoryDevice, Vec<u64>) {
    let image = volume.image.snapshot();
    let dev = Arc::new(RecordingDevice::new(image.snapshot()));
    let journal = volume.open_with(dev.clone(), packed(volume));
    for round in 1..=rounds {
        let mut handle = journal.start(4).unwrap();
        handle.modify(volume.free, |bytes| bytes[100] = round as u8).unwrap();
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
    }
    let mut whole = vec![0; image.geometry().size_bytes as usize];
    dev.read(0, &mut whole, Origin::new(Kind::Other, true)).unwrap();
    let image = MemoryDevice::new(whole.len() as u64);
    image.write_at(0, &whole).unwrap();
    let starts = (0..RING_BLOCKS)
        .filter_map(|block| volume.log.physical(volume.log.len_blocks() - RING_BLOCKS + block))
        .map(|block| block * 4096)
        .filter(|at| whole[*at as usize..].starts_with(b"sLp1"))
        .collect();
    (image, starts)
}

fn flip(image: &MemoryDevice, at: u64) {
    let mut byte = [0];
    image.read_at(at, &mut byte).unwrap();
    image.write_at(at, &[byte[0] ^ 1]).unwrap();
}

#[test]
fn a_small_commit_is_one_request_of_4_kib_and_one_flush() {
    let Some(volume) = ready("packed counts") else { return };
    let dev = Arc::new(RecordingDevice::new(volume.image.snapshot()));
    let journal = volume.open_with(dev.clone(), packed(&volume));
    let commit = |value| {
        let before = dev.counts();
        let mut handle = journal.start(4).unwrap();
        for block in 0..4 {
            handle.modify(volume.free + block, |bytes| bytes[200] = value).unwrap();
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
        dev.counts() - before
    };
    commit(1);
    let counts = commit(2);
    assert_eq!((counts.write_requests(), counts.written_bytes(), counts.flushes()), (1, 4096, 1));
}

#[test]
fn a_torn_last_record_is_dropped_and_one_in_the_middle_is_damage() {
    let Some(volume) = ready("packed damage") else { return };
    let (image, starts) = crashed(&volume, 3);
    assert_eq!(starts.len(), 3);
    let whole = recover(&volume, &image.snapshot()).unwrap();
    assert_eq!((whole.transactions, whole.blocks_replayed, whole.dropped_torn), (3, 1, false));
    let torn = image.snapshot();
    flip(&torn, starts[2] + 40);
    let recovery = recover(&volume, &torn).unwrap();
    assert_eq!((recovery.transactions, recovery.dropped_torn), (2, true));
    assert_eq!(recovery.next_sequence, whole.next_sequence.wrapping_sub(1));
    assert_eq!(volume.block(&torn, volume.free)[100], 2);
    for damaged in starts.iter().take(2) {
        let bad = image.snapshot();
        flip(&bad, damaged + 40);
        let error = recover(&volume, &bad).unwrap_err().to_string();
        assert!(error.contains("is corrupt") && error.contains("follows"), "{error}");
        assert_eq!(volume.block(&bad, volume.free)[100], 0, "nothing was written");
    }
}

#[test]
fn recovery_leaves_a_stock_journal_and_records_of_earlier_uses_do_not_count() {
    let Some(volume) = ready("packed epochs") else { return };
    let (image, starts) = crashed(&volume, 3);
    let marked = Journal::open(
        Arc::new(image.snapshot()),
        volume.log.clone(),
        syncline_jbd2::BufferCache::new(Arc::new(image.snapshot()), 4096, 16),
        Arc::new(syncline_device::VirtualClock::default()),
        volume.options,
        None,
    );
    assert!(matches!(marked, Err(JournalError::NeedsRecovery)));
    recover(&volume, &image).unwrap();
    assert!(!recover(&volume, &image).unwrap().was_needed);
    let superblock = volume.block(&image, volume.log.physical(0).unwrap());
    let decoded = syncline_ondisk::jbd2::JournalSuperblock::decode(&superblock).unwrap();
    assert_eq!((decoded.s_start, decoded.s_packed_epoch), (0, 0));
    assert!(!decoded.s_feature_incompat.names().any(|name| name == "packed_log"));
    // The next use begins where the first did, and its only record is shorter than what lies
    // behind it: records with newer sequences of another epoch.
    let dev: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    let journal = volume.open_with(dev.clone(), packed(&volume));
    let mut handle = journal.start(4).unwrap();
    handle.modify(volume.free + 1, |bytes| bytes[100] = 9).unwrap();
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
    let mut stale = vec![0; 4096];
    image.read_at(starts[1], &mut stale).unwrap();
    stale[8..12].copy_from_slice(&journal.next_sequence().to_le_bytes());
    dev.write(starts[1], &stale, Origin::new(Kind::Other, true)).unwrap();
    assert_eq!(recover(&volume, &*dev).unwrap().transactions, 1);
}

#[test]
fn an_unmount_leaves_a_stock_journal() {
    let Some(volume) = ready("packed shutdown") else { return };
    let dev = Arc::new(volume.image.snapshot());
    let journal = volume.open_with(dev.clone(), packed(&volume));
    let mut handle = journal.start(4).unwrap();
    handle.modify(volume.free, |bytes| bytes[0] = 1).unwrap();
    drop(handle);
    let at = volume.log.physical(0).unwrap();
    let features = |dev: &MemoryDevice| {
        let superblock = volume.block(dev, at);
        let decoded = syncline_ondisk::jbd2::JournalSuperblock::decode(&superblock).unwrap();
        decoded.s_feature_incompat.names().collect::<Vec<_>>().join(" ")
    };
    let before = features(&dev);
    journal.commit(journal.newest_tid()).unwrap();
    assert!(features(&dev).contains("packed_log"));
    // Cut before the stock features are back: recovery brings them.
    journal.flush_all().unwrap();
    assert!(features(&dev).contains("packed_log"));
    let cut = dev.snapshot();
    assert!(!recover(&volume, &cut).unwrap().was_needed);
    assert!(!features(&cut).contains("packed_log"));
    journal.shutdown().unwrap();
    assert_eq!(features(&dev), before);
}

/// Rule 2: the tail stays behind the first record of a chain whose end is not in place, however hot
/// the block is, and the log still makes room.
#[test]
fn a_hot_block_does_not_fill_the_log() {
    let Some(volume) = ready("packed hot block") else { return };
    let dev = Arc::new(volume.image.snapshot());
    let journal = volume.open_with(dev.clone(), packed(&volume));
    for round in 0..u64::from(RING_BLOCKS) * 4 {
        let mut handle = journal.start(4).unwrap();
        handle.modify(volume.free, |bytes| change(bytes, round, 0)).unwrap();
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
        if round % 50 == 49 {
            let crashed = dev.snapshot();
            recover(&volume, &crashed).unwrap();
            let newest = journal.buffers().read(volume.free).unwrap();
            assert!(volume.block(&crashed, volume.free)[..] == newest[..], "round {round}");
        }
    }
    let stats = journal.stats();
    assert!(stats.blocks_checkpointed > 0 && stats.blocks_checkpointed < 100, "{stats:?}");
}

#[test]
fn a_full_log_of_64_mib_is_recovered_quickly() {
    if !require("packed recovery time", &[Need::E2fsck]) {
        return;
    }
    let spec =
        ImageSpec { size_bytes: 256 << 20, journal_size_mib: Some(64), ..ImageSpec::default() };
    let volume = crate::common::volume(&spec);
    let dev = Arc::new(volume.image.snapshot());
    let options = JournalOptions { checkpoint_step_blocks: 512, ..packed(&volume) };
    let journal = volume.open_with(dev.clone(), options);
    let ring = journal.stats().log_blocks;
    let mut round = 0u64;
    while journal.stats().log_blocks_free > 600 {
        let mut handle = journal.start(40).unwrap();
        for block in 0..40 {
            let at = volume.free + (round * 40 + block) % 700;
            handle.modify(at, |bytes| change(bytes, round, block)).unwrap();
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
        round += 1;
    }
    // The best of three: other tests run beside this one.
    let took = (0..3).map(|_| {
        let image = dev.snapshot();
        let started = Instant::now();
        let recovery = recover(&volume, &image).unwrap();
        assert_eq!(u64::from(recovery.transactions), round);
        started.elapsed()
    });
    let took = took.min().unwrap();
    println!("{round} records, {ring} blocks: {took:?}");
    assert!(took.as_secs_f64() < 2.0, "{took:?}");
}

#[test]
fn fuzz_mutated_logs() {
    let Some(volume) = ready("packed fuzz") else { return };
    let (image, starts) = crashed(&volume, 6);
    let superblock = volume.log.physical(0).unwrap() * 4096;
    let (mut seeds, mut accepted) = (FuzzRounds::at_least(2000), 0u64);
    for seed in &mut seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let image = image.snapshot();
        for _ in 0..rng.random_range(1..5) {
            let at = if rng.random_bool(0.2) {
                superblock + rng.random_range(0..256)
            } else {
                starts[rng.random_range(0..starts.len())] + rng.random_range(0..90)
            };
            image.write_at(at, &[rng.random()]).unwrap();
        }
        // A checksum that holds brings the change to the parser.
        for at in &starts {
            let mut block = vec![0; 4096];
            image.read_at(*at, &mut block).unwrap();
            let len = u32::from_le_bytes(block[12..16].try_into().unwrap()) as usize;
            if rng.random() && (32..=4096).contains(&len) {
                let mut journal = vec![0; 4096];
                image.read_at(superblock, &mut journal).unwrap();
                let uuid: &[u8; 16] = journal[0x30..0x40].try_into().unwrap();
                let key = syncline_ondisk::packed::seed(uuid);
                let crc = syncline_ondisk::checksum::crc32c_skipping(key, &block[..len], 0x1c);
                image.write_at(at + 0x1c, &crc.to_le_bytes()).unwrap();
            }
        }
        if recover(&volume, &image).is_ok() {
            accepted += 1;
            assert!(!recover(&volume, &image).unwrap().was_needed, "seed {seed}");
        }
    }
    println!("{} logs, {accepted} accepted", seeds.begun());
    assert!(accepted > 0);
}
