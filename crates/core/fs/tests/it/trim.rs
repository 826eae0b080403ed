//! Discard of free blocks: which, and what they may be beside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use syncline_device::{BlockDevice, Kind, MemoryDevice, Origin, RecordingDevice};
use syncline_fs::{FsError, Volume};
use syncline_testkit::ImageSpec;

use crate::bed::{Bed, MIB, bytes, contents, owner, spec};

const MODES: [&str; 4] = ["sync=eager", "sync=ordered", "sync=periodic", "log=packed"];

fn everything(volume: &Volume) -> u64 {
    volume.trim(0..u64::MAX, 0).expect("trims")
}

#[test]
fn what_is_free_is_discarded_and_nothing_else() {
    for mode in MODES {
        let bed = Bed::new(&ImageSpec::with_size(64 * MIB), 1).with(mode);
        let recorded = MemoryDevice::load(bed.image.path()).unwrap();
        let device = Arc::new(RecordingDevice::new(recorded));
        let volume = bed.mount_on(device.clone(), "");
        let (kept, root) = (bed.file(&volume, 0), volume.root().unwrap());
        let gone = volume.create(&root, b"gone", &owner()).unwrap();
        volume.write(&gone, 0, &bytes(1, 8 << 20)).unwrap();
        volume.write(&kept, 0, &bytes(2, 5 << 20)).unwrap();
        volume.sync().unwrap();
        let places = volume.fiemap(&gone, 0, u64::MAX).unwrap();
        drop(gone);
        volume.unlink(&root, b"gone").unwrap();
        // The commit that frees it, and one after it, for copies in the log.
        volume.sync().unwrap();
        volume.write(&kept, 0, b"x").unwrap();
        volume.sync().unwrap();
        let discarded = everything(&volume);
        assert_eq!(device.counts().metadata.discarded_bytes, discarded, "{mode}");
        let free = volume.statfs().blocks_free * 4096;
        // Up to its next power of two, 3 MiB, room is kept for the file that is open.
        assert!(discarded <= free && discarded > free - 4 * MIB, "{mode}: {discarded} of {free}");
        for place in places {
            let mut found = vec![1; place.len as usize];
            device.read(place.physical, &mut found, Origin::new(Kind::Other, false)).unwrap();
            assert!(found.iter().all(|byte| *byte == 0), "{mode}: {place:?} is still there");
        }
        let mut wanted = bytes(2, 5 << 20);
        wanted[0] = b'x';
        drop((kept, root));
        volume.unmount().unwrap();
        let bed = Bed { dev: Arc::new(device.inner().snapshot()), ..bed };
        bed.judge(mode);
        let volume = bed.mount("");
        assert!(contents(&volume, &bed.file(&volume, 0)) == wanted, "{mode}");
        bed.unmount_and_judge(volume, mode);
    }
}

#[test]
fn what_a_crash_brings_back_is_not_discarded() {
    for mode in MODES {
        let bed = Bed::new(&ImageSpec::with_size(64 * MIB), 2).with(mode);
        let volume = bed.mount("");
        let (first, second) = (bed.file(&volume, 0), bed.file(&volume, 1));
        let wanted = [bytes(1, 6 << 20), bytes(2, 40 << 10)];
        volume.write(&first, 0, &wanted[0]).unwrap();
        // Small enough for the log of an eager sync: its copy there is the newest.
        volume.write(&second, 0, &wanted[1]).unwrap();
        for file in [&first, &second] {
            volume.fsync(file, false).unwrap();
        }
        if mode == "sync=periodic" {
            volume.sync().unwrap();
        }
        volume.truncate(&first, 0).unwrap();
        volume.truncate(&second, 0).unwrap();
        everything(&volume);
        let after_cut = bed.mount_on(Arc::new(bed.dev.snapshot()), "");
        for (nr, wanted) in wanted.iter().enumerate() {
            assert!(
                contents(&after_cut, &bed.file(&after_cut, nr)) == *wanted,
                "{mode}, file {nr}"
            );
        }
        drop((first, second));
        bed.unmount_and_judge(volume, mode);
    }
}

#[test]
fn ranges_that_make_no_sense_are_refused() {
    let bed = Bed::new(&spec(1024), 0);
    let volume = bed.mount("");
    let root = volume.root().unwrap();
    for name in [&b"hole"[..], b"wall"] {
        let file = volume.create(&root, name, &owner()).unwrap();
        volume.write(&file, 0, &bytes(1, 100 << 10)).unwrap();
        volume.sync().unwrap();
    }
    volume.unlink(&root, b"hole").unwrap();
    drop(root);
    volume.sync().unwrap();
    let size = bed.dev.geometry().size_bytes;
    let invalid = |range, least| matches!(volume.trim(range, least), Err(FsError::Invalid(_)));
    assert!(invalid(size..u64::MAX, 0), "behind the end");
    assert!(invalid(0..512, 0), "less than a block");
    assert!(invalid(0..u64::MAX, 1 << 40), "runs that no group has");
    assert_eq!(volume.trim(0..1024, 0), Ok(0), "the boot block is no free block");
    let all = everything(&volume);
    let long = volume.trim(0..u64::MAX, 1 << 20).unwrap();
    assert!(0 < long && long + (100 << 10) <= all, "{long} of {all}");
    let half = volume.trim(0..size / 2, 0).unwrap() + volume.trim(size / 2..size, 0).unwrap();
    assert_eq!(half, all, "two halves are the whole");
    bed.unmount_and_judge(volume, "trims");

    let volume = bed.mount("ro");
    assert_eq!(volume.trim(0..u64::MAX, 0), Err(FsError::ReadOnly));
    let without = MemoryDevice::load(bed.image.path()).unwrap();
    let without = Arc::new(without.with_geometry(|geometry| geometry.discard = false));
    let volume = bed.mount_on(without, "");
    assert!(matches!(volume.trim(0..u64::MAX, 0), Err(FsError::NotSupported(_))));
}

/// Bytes that fit on a fresh volume, while free blocks are discarded all the time or not.
fn room(bed: &Bed, trims: bool) -> u64 {
    let volume = bed.mount_on(Arc::new(bed.dev.snapshot()), "");
    let file = bed.file(&volume, 0);
    let full = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if trims {
            scope.spawn(|| {
                while !full.load(Ordering::Acquire) {
                    everything(&volume);
                }
            });
        }
        let mut at = 0;
        let piece = bytes(3, 64 << 10);
        let end = loop {
            match volume.write(&file, at, &piece) {
                Ok(taken) => at += taken as u64,
                Err(err) => break err,
            }
            if at % (1 << 20) == 0 {
                volume.fsync(&file, false).expect("what was taken can be written");
            }
        };
        full.store(true, Ordering::Release);
        assert_eq!(end, FsError::NoSpace);
        at
    })
}

#[test]
fn a_trim_takes_no_block_from_a_writer() {
    let bed = Bed::new(&ImageSpec::with_size(24 * MIB), 1).with("cache=4M");
    assert_eq!(room(&bed, true), room(&bed, false));
}
