//! Journal blocks of space operations, as the kernel's ext4 writes them; threads; small groups.

use crate::bed::{Bed, contents};
use std::sync::Arc;
use syncline_device::{BlockDevice, Kind, RecordingDevice, TraceOp, VirtualClock};
use syncline_fs::{FallocateMode, MountOptions, Volume};
use syncline_testkit::{ImageSpec, Need, require};

/// Blocks that `work` and the commit after it write to the log, descriptor and commit included.
fn journal_blocks(
    vol: &Volume,
    dev: &RecordingDevice<Arc<dyn BlockDevice>>,
    work: impl Fn(),
) -> u64 {
    vol.syncfs().unwrap();
    dev.take_events();
    work();
    vol.syncfs().unwrap();
    let events = dev.take_events();
    let journal = events
        .iter()
        .filter(|event| event.origin.kind == Kind::Journal && event.op == TraceOp::Write);
    journal.map(|event| event.len_bytes).sum::<u64>() / 4096
}

#[test]
fn transactions_are_as_small_as_the_kernels() {
    if !require("transactions_are_as_small_as_the_kernels", &[Need::E2fsck]) {
        return;
    }
    let bed = Bed::new(&ImageSpec::with_size(64 << 20), 2).with("cache=4M");
    let inner: Arc<dyn BlockDevice> = bed.dev.clone();
    let clock = Arc::new(VirtualClock::default());
    let dev = Arc::new(RecordingDevice::with_events(inner, clock.clone(), 10_000));
    let options = MountOptions::parse("sync=ordered").unwrap();
    let vol = Volume::mount(dev.clone() as Arc<dyn BlockDevice>, clock, options).unwrap();
    let (a, b) = (vol.iget(bed.inos[0]).unwrap(), vol.iget(bed.inos[1]).unwrap());
    vol.write(&b, 0, &[1; 4096]).unwrap();
    // Inode table, bitmap, descriptor: 3, and descriptor block and commit block of the log.
    let blocks = journal_blocks(&vol, &dev, || {
        vol.fallocate(&a, FallocateMode::Allocate, 0, 1 << 20).unwrap();
    });
    assert_eq!(blocks, 3 + 2, "fallocate");
    let blocks = journal_blocks(&vol, &dev, || {
        vol.write(&a, 8192, &[1; 4096]).unwrap();
    });
    assert_eq!(blocks, 1 + 2, "write into unwritten blocks");
    // One more: the orphan file's block, or the superblock.
    let blocks = journal_blocks(&vol, &dev, || vol.truncate(&a, 0).unwrap());
    assert_eq!(blocks, 4 + 2, "truncate");
    let blocks = journal_blocks(&vol, &dev, || vol.truncate(&a, 1 << 20).unwrap());
    assert_eq!(blocks, 1 + 2, "truncate up");
    drop((a, b));
    vol.unmount().unwrap();
    bed.judge("counted operations");
}

#[test]
fn threads_get_different_blocks() {
    if !require("threads_get_different_blocks", &[Need::E2fsck]) {
        return;
    }
    let bed = Bed::new(&ImageSpec::with_size(96 << 20), 4).with("cache=4M");
    let vol = bed.mount("");
    std::thread::scope(|scope| {
        for (n, ino) in bed.inos.iter().enumerate() {
            let vol = vol.clone();
            scope.spawn(move || {
                let file = vol.iget(*ino).unwrap();
                for round in 0..40_u64 {
                    let at = round * 70_000;
                    vol.write(&file, at, &vec![n as u8 + 1; 70_000]).unwrap();
                    match round % 5 {
                        0 => vol.fsync(&file, false).unwrap(),
                        3 => vol.fallocate(&file, FallocateMode::PunchHole, at, 30_000).unwrap(),
                        4 => vol.fallocate(&file, FallocateMode::KeepSize, at, 1 << 19).unwrap(),
                        _ => {}
                    }
                }
            });
        }
    });
    for (n, ino) in bed.inos.iter().enumerate() {
        let file = vol.iget(*ino).unwrap();
        let bytes = contents(&vol, &file);
        assert_eq!(bytes.len(), 40 * 70_000);
        assert!(bytes.iter().all(|byte| *byte == 0 || *byte == n as u8 + 1));
    }
    vol.unmount().unwrap();
    bed.judge("four threads");
}

#[test]
fn small_groups_and_a_small_log() {
    if !require("small_groups_and_a_small_log", &[Need::E2fsck]) {
        return;
    }
    let spec = ImageSpec {
        block_size_bytes: 1024,
        blocks_per_group: Some(256),
        inode_count: Some(2048),
        journal_size_mib: Some(1),
        ..ImageSpec::with_size(16 << 20)
    };
    // In eager mode a group's bitmap comes into use and is as at first again, in one commit.
    for mode in ["sync=ordered", "sync=eager"] {
        let bed = Bed::new(&spec, 1).with("cache=4M");
        let options = MountOptions::parse(&format!("cache=4M,{mode}")).unwrap();
        let dev = bed.dev.clone() as Arc<dyn BlockDevice>;
        let vol = Volume::mount(dev, bed.clock.clone(), options).unwrap();
        let file = vol.iget(bed.inos[0]).unwrap();
        for _ in 0..3 {
            vol.write(&file, 0, &vec![5; 6 << 20]).unwrap();
            vol.fsync(&file, false).unwrap();
            vol.fallocate(&file, FallocateMode::PunchHole, 100_000, 4 << 20).unwrap();
            vol.fallocate(&file, FallocateMode::ZeroRange, 50_000, 3 << 20).unwrap();
            vol.truncate(&file, 0).unwrap();
            vol.syncfs().unwrap();
        }
        drop(file);
        vol.unmount().unwrap();
        bed.judge(mode);
    }
}

#[test]
fn freed_blocks_are_discarded_after_their_commit_if_asked() {
    if !require("freed_blocks_are_discarded_after_their_commit_if_asked", &[Need::E2fsck]) {
        return;
    }
    let bed = Bed::new(&ImageSpec::with_size(32 << 20), 1).with("cache=4M");
    let inner: Arc<dyn BlockDevice> = bed.dev.clone();
    if !inner.geometry().discard {
        return;
    }
    // A discard must not reach the device before the commit: count the bytes at each point.
    let dev = Arc::new(RecordingDevice::new(inner));
    let options = MountOptions::parse("sync=ordered,discard").unwrap();
    let target = dev.clone() as Arc<dyn BlockDevice>;
    let vol = Volume::mount(target, bed.clock.clone(), options).unwrap();
    let file = vol.iget(bed.inos[0]).unwrap();
    vol.write(&file, 0, &vec![5; 1 << 20]).unwrap();
    vol.fsync(&file, false).unwrap();
    let before = dev.counts();
    vol.truncate(&file, 0).unwrap();
    assert_eq!((dev.counts() - before).metadata.discarded_bytes, 0);
    vol.syncfs().unwrap();
    assert_eq!((dev.counts() - before).metadata.discarded_bytes, 1 << 20);
    drop(file);
    vol.unmount().unwrap();
    bed.judge("discards");
}
