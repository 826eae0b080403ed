//! The k-th I/O fails, for every k of a workload: the caller gets an error, the volume latches, and
//! what is left on the device is recoverable with everything that was acknowledged. And: nobody
//! waits for another file's fsync.

use crate::bed::{Bed, assert_same, bytes, contents, spec};
use std::sync::Arc;
use syncline_device::{BlockDevice, FailingDevice, FaultPlan, OpClass};
use syncline_fs::{FsError, Volume};

/// Returns the bytes that a round of the workload writes; a round is acknowledged by its fsync.
fn round_bytes(round: usize) -> Vec<u8> {
    bytes(100 + round as u64, 3 * 4096 + 77)
}

const ROUNDS: usize = 6;

/// Appends and syncs; returns the rounds that were acknowledged, and the first error.
fn workload(bed: &Bed, volume: &Volume) -> (usize, Option<FsError>) {
    let file = bed.file(volume, 0);
    for round in 0..ROUNDS {
        bed.wait_ms(10);
        let written = volume.write_append(&file, &round_bytes(round));
        let synced = written.and_then(|_| volume.fsync(&file, round % 2 == 1));
        if let Err(err) = synced {
            return (round, Some(err));
        }
    }
    (ROUNDS, None)
}

fn fail_at(mode: &str, class: OpClass, k: u64) -> bool {
    let bed = Bed::without_fua(&spec(4096), 1);
    let dev = Arc::new(FailingDevice::new(Arc::clone(&bed.dev)));
    let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, mode);
    dev.arm(FaultPlan::once(class, k));
    let (acknowledged, error) = workload(&bed, &volume);
    let hit = dev.hits() > 0;
    dev.disarm();
    assert_eq!(error.is_some(), hit, "{mode} {class:?} {k}: {error:?}");
    let mut file = Some(bed.file(&volume, 0));
    if hit {
        let file = file.take().expect("taken once");
        assert!(
            volume.fsync(&file, false).is_err(),
            "{mode} {class:?} {k}: fsync after the failure"
        );
        assert!(volume.fsync(&file, true).is_err(), "{mode} {class:?} {k}: again");
        assert!(volume.write(&file, 0, b"more").is_err(), "{mode} {class:?} {k}: write");
        drop(file);
        assert!(volume.unmount().is_err(), "{mode} {class:?} {k}: unmount");
    } else {
        drop(file);
        volume.unmount().expect("unmount");
    }
    let volume = bed.mount(mode);
    let expected: Vec<u8> = (0..acknowledged).flat_map(round_bytes).collect();
    let found = contents(&volume, &bed.file(&volume, 0));
    assert!(found.len() >= expected.len(), "{mode} {class:?} {k}: an acknowledged append is gone");
    assert_same(&found[..expected.len()], &expected, "acknowledged data");
    volume.unmount().expect("unmount");
    bed.judge("the test");
    hit
}

#[test]
fn every_failing_write_is_reported_latches_and_leaves_a_recoverable_image() {
    for (mode, writes) in [("sync=ordered", 3 * ROUNDS), ("sync=eager", ROUNDS)] {
        let mut k = 1;
        while fail_at(mode, OpClass::Write, k) {
            k += 1;
        }
        assert!(k > writes as u64, "only {k} writes were tried");
    }
}

#[test]
fn every_failing_flush_is_reported_latches_and_leaves_a_recoverable_image() {
    for mode in ["sync=ordered", "sync=eager"] {
        let mut k = 1;
        while fail_at(mode, OpClass::Flush, k) {
            k += 1;
        }
        assert!(k > ROUNDS as u64, "only {k} flushes were tried");
    }
}

#[test]
fn a_failing_read_is_an_error_and_not_the_end() {
    let bed = Bed::without_fua(&spec(4096), 1);
    let volume = bed.mount("");
    let data = bytes(4, 100_000);
    let file = bed.file(&volume, 0);
    volume.write(&file, 0, &data).expect("write");
    drop(file);
    volume.unmount().expect("unmount");
    let dev = Arc::new(FailingDevice::new(Arc::clone(&bed.dev)));
    let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, "");
    let file = bed.file(&volume, 0);
    dev.arm(FaultPlan::once(OpClass::Read, 1));
    assert!(matches!(volume.read(&file, 0, &mut [0; 10]), Err(FsError::Io(_))));
    assert_same(&contents(&volume, &file), &data, "after the error");
    dev.arm(FaultPlan::once(OpClass::Read, 1));
    volume.write(&file, 5, b"x").expect("the block is cached by now");
    volume.fsync(&file, false).expect("fsync");
}

#[test]
fn readers_and_writers_of_one_file_see_whole_blocks() {
    let bed = Bed::without_fua(&spec(4096), 1);
    let volume = bed.mount("cache=1M");
    let file = bed.file(&volume, 0);
    volume.write(&file, 0, &[0; 64 * 4096]).expect("write");
    std::thread::scope(|scope| {
        for thread in 1..=2u8 {
            let (volume, file) = (&volume, &file);
            scope.spawn(move || {
                for i in 0..500u64 {
                    let at = (i * 7 + u64::from(thread)) % 64 * 4096;
                    volume.write(file, at, &[thread; 4096]).expect("write");
                    if i % 50 == 0 {
                        volume.fsync(file, i % 100 == 0).expect("fsync");
                    }
                }
            });
            scope.spawn(move || {
                let mut block = [0; 4096];
                for i in 0..500u64 {
                    volume.read(file, i % 64 * 4096, &mut block).expect("read");
                    assert!(block.iter().all(|byte| *byte == block[0]), "torn block");
                }
            });
        }
    });
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
}
