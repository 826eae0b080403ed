//! The end as if by a crash: what stays, and what every call says afterwards.

use std::sync::Arc;

use syncline_device::{MemoryDevice, RecordingDevice};
use syncline_fs::{FsError, SetAttr};
use syncline_testkit::ImageSpec;

use crate::bed::{Bed, MIB, bytes, contents, owner};

#[test]
fn what_was_synced_stays_and_with_flush_the_rest_too() {
    for mode in ["sync=eager", "sync=ordered", "sync=periodic", "log=packed"] {
        for flush in [false, true] {
            let when = format!("{mode}, flush {flush}");
            let bed = Bed::new(&ImageSpec::with_size(64 * MIB), 2).with(mode);
            let recorded = MemoryDevice::load(bed.image.path()).unwrap();
            let device = Arc::new(RecordingDevice::new(recorded));
            let volume = bed.mount_on(device.clone(), "");
            let (synced, other) = (bed.file(&volume, 0), bed.file(&volume, 1));
            let root = volume.root().unwrap();
            volume.write(&synced, 0, &bytes(1, 70_000)).unwrap();
            volume.sync().unwrap();
            volume.write(&other, 0, &bytes(2, 70_000)).unwrap();
            volume.create(&root, b"new", &owner()).unwrap();

            volume.shutdown(flush).unwrap();
            let before = device.counts().write_requests();
            let eio = |err: FsError| assert_eq!(err.errno(), 5, "{when}: {err}");
            eio(volume.read(&synced, 0, &mut [0; 10]).unwrap_err());
            eio(volume.write(&synced, 0, b"x").unwrap_err());
            eio(volume.create(&root, b"more", &owner()).unwrap_err());
            eio(volume.unlink(&root, b"new").unwrap_err());
            eio(volume
                .setattr(&synced, &SetAttr { mode: Some(0o600), ..SetAttr::default() })
                .unwrap_err());
            eio(volume.fsync(&synced, false).unwrap_err());
            eio(volume.sync().unwrap_err());
            eio(volume.trim(0..u64::MAX, 0).unwrap_err());
            eio(volume.shutdown(true).unwrap_err());
            eio(volume.check_running().unwrap_err());
            // Timers find nothing to write either.
            bed.wait_ms(60_000);
            let _ = volume.tick(syncline_device::Clock::now_ns(&*bed.clock));
            drop((synced, other, root));
            eio(volume.unmount().unwrap_err());
            assert_eq!(device.counts().write_requests(), before, "{when}: writes after it");

            let bed = Bed { dev: Arc::new(device.inner().snapshot()), ..bed };
            let volume = bed.mount("");
            assert_eq!(contents(&volume, &bed.file(&volume, 0)), bytes(1, 70_000), "{when}");
            let rest = if flush { bytes(2, 70_000) } else { Vec::new() };
            assert!(contents(&volume, &bed.file(&volume, 1)) == rest, "{when}");
            assert_eq!(volume.resolve("/new").is_ok(), flush, "{when}");
            // Clean without a forced check: the shutdown was no error of the volume.
            bed.unmount_and_judge(volume, &when);
        }
    }
}

#[test]
fn a_volume_that_only_reads_is_not_shut_down() {
    let bed = Bed::new(&ImageSpec::with_size(24 * MIB), 1);
    let volume = bed.mount("ro");
    assert_eq!(volume.shutdown(true), Err(FsError::ReadOnly));
    assert_eq!(volume.read(&bed.file(&volume, 0), 0, &mut [0; 4]), Ok(0));
}
