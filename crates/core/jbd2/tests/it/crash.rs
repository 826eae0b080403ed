//! Power cuts at every request, with reordering and tearing, also within recovery. Judged by our
//! own recovery and by e2fsck, which must agree. A ring of 80 log blocks makes the log wrap every
//! few transactions.
//!
//! The workload, round r of R: blocks A..A+4 all get the value r (atomicity); block X(r/3) is
//! created, freed a round later, and then overwritten as file data, which the next commit's flush
//! makes durable (revokes, no in-place write of a freed block). A mark follows each acknowledged
//! commit.

use crate::common::{Volume, difference, fill, prepared};
use std::sync::Arc;
use syncline_device::{BlockDevice, FileMirror, Kind, MemoryDevice, Origin};
use syncline_jbd2::{Journal, JournalOptions, RecoverOptions};
use syncline_model::{Need, TempImage, e2fsck_preen, require};
use syncline_testkit::crash::{
    Budget, CrashDevice, CrashOptions, CrashState, Explorer, FaultyFlush, StateId,
};

const ROUNDS: u64 = 42;
const DATA: Origin = Origin::new(Kind::Data { inode: 12 }, false);

fn only() -> Option<StateId> {
    let text = std::env::var("SYNCLINE_CRASH_STATE").ok()?;
    Some(text.parse().expect("SYNCLINE_CRASH_STATE holds a state id from a failure report"))
}

/// Block that chain `k` uses.
fn chain(volume: &Volume, k: u64) -> u64 {
    volume.free + 100 + k
}

fn workload(volume: &Volume, dev: &Arc<CrashDevice>) {
    let options = JournalOptions { checkpoint_step_blocks: 16, ..volume.options };
    let journal = volume.open_with(dev.clone(), options);
    for round in 1..=ROUNDS {
        let (k, phase) = (round / 3, round % 3);
        let mut handle = journal.start(16).unwrap();
        for i in 0..4 {
            handle.create(volume.free + i, |b| fill(b, round as u8)).unwrap();
        }
        match phase {
            0 => handle.create(chain(volume, k), |b| fill(b, 1)).unwrap(),
            1 if round > 3 => handle.forget(chain(volume, k)).unwrap(),
            _ => {}
        }
        if round % 10 == 0 {
            for i in 0..9 {
                handle.create(volume.free + 50 + i, |b| fill(b, round as u8)).unwrap();
            }
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
        dev.mark(round);
        if phase == 1 && round > 3 {
            dev.write(chain(volume, k) * 4096, &[0xDA; 4096], DATA).unwrap();
        }
        if round % 11 == 0 {
            journal.write_back().unwrap();
        }
    }
    journal.shutdown().unwrap();
    dev.mark(ROUNDS + 1);
}

/// Checks the volume against the rounds that recovery must have left.
fn check(volume: &Volume, image: &MemoryDevice, marks: &[u64]) -> Result<(), String> {
    let acknowledged = marks.last().copied().unwrap_or(0).min(ROUNDS);
    let values: Vec<u8> =
        (0..4).map(|i| volume.block(image, volume.free + i)).map(|b| b[77]).collect();
    if values.windows(2).any(|w| w[0] != w[1]) {
        return Err(format!("half a transaction: {values:?}"));
    }
    if u64::from(values[0]) < acknowledged {
        return Err(format!("round {acknowledged} was acknowledged, found {}", values[0]));
    }
    for k in 1..=ROUNDS / 3 {
        // Created in round 3k, freed in 3k+1, data from then on, durable with round 3k+2.
        let block = volume.block(image, chain(volume, k));
        if acknowledged >= 3 * k + 2 && block.iter().any(|b| *b != 0xDA) {
            return Err(format!("data over freed block {k} is gone (round {acknowledged})"));
        }
    }
    Ok(())
}

fn recover(volume: &Volume, dev: &dyn BlockDevice) -> Result<(), String> {
    Journal::recover(dev, &volume.log, RecoverOptions::default())
        .map(|_| ())
        .map_err(|e| e.to_string())
}

fn explorer(volume: &Volume, options: CrashOptions) -> Explorer {
    let dev = Arc::new(CrashDevice::new(&volume.image, options));
    workload(volume, &dev);
    Explorer::new(dev.log())
}

fn judge(volume: &Volume, state: &CrashState) -> Result<(), String> {
    recover(volume, &state.image)?;
    check(volume, &state.image, state.marks())
}

#[test]
fn every_cut_recovers_to_whole_transactions() {
    if !require("jbd2 crash", &[Need::E2fsck]) {
        return;
    }
    let volume = prepared();
    for fua in [true, false] {
        let explorer = explorer(&volume, CrashOptions { fua, ..CrashOptions::default() });
        let budget = Budget::new(3000, 1).with_only(only());
        let command = "cargo test -p syncline-jbd2 --test it crash::every_cut";
        let summary = syncline_testkit::crash::run(&explorer, &budget, command, |state| {
            judge(&volume, state)
        });
        println!("fua {fua}: {summary}");
        summary.into_result().unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn e2fsck_recovers_every_cut_to_the_same_blocks() {
    if !require("jbd2 crash e2fsck", &[Need::E2fsck]) {
        return;
    }
    let volume = prepared();
    let explorer = explorer(&volume, CrashOptions::default());
    let file = TempImage::zeroed(volume.image.geometry().size_bytes);
    let mut mirror = FileMirror::create(file.path(), &volume.image).unwrap();
    let budget = Budget::new(400, 2).with_only(only());
    let command = "cargo test -p syncline-jbd2 --test it crash::e2fsck_recovers";
    let summary = syncline_testkit::crash::run(&explorer, &budget, command, |state| {
        mirror.restore(&state.image).map_err(|e| e.to_string())?;
        e2fsck_preen(file.path())?;
        let theirs = MemoryDevice::load(file.path()).map_err(|e| e.to_string())?;
        check(&volume, &theirs, state.marks())?;
        judge(&volume, state)?;
        match difference(&volume.log, &state.image, &theirs) {
            Some(block) => Err(format!("block {block} differs between e2fsck and us")),
            None => Ok(()),
        }
    });
    println!("{summary}");
    summary.into_result().unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_cut_recovery_recovers() {
    if !require("jbd2 crash nested", &[Need::E2fsck]) {
        return;
    }
    let volume = prepared();
    let explorer = explorer(&volume, CrashOptions::default());
    let (outer, inner) = (Budget::new(60, 3).with_only(only()), Budget::new(30, 4));
    let command = "cargo test -p syncline-jbd2 --test it crash::a_cut_recovery";
    let summary = syncline_testkit::crash::run_nested(
        &explorer,
        &outer,
        &inner,
        command,
        |dev| recover(&volume, &*dev),
        |state| judge(&volume, state),
    );
    println!("{summary}");
    assert!(summary.judged > 200, "{summary}");
    summary.into_result().unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_device_that_lies_about_flushes_is_caught() {
    if !require("jbd2 crash canary", &[Need::E2fsck]) {
        return;
    }
    let volume = prepared();
    for faulty in [FaultyFlush::EveryFlush, FaultyFlush::Fua] {
        let explorer = explorer(&volume, CrashOptions { faulty, ..CrashOptions::default() });
        let summary = syncline_testkit::crash::run(&explorer, &Budget::new(3000, 5), "", |state| {
            judge(&volume, state)
        });
        assert!(!summary.failures.is_empty(), "{faulty:?} was not noticed");
    }
}
