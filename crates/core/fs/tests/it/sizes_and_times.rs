//! Sizes and times that only an operation's side effects would lose.

use std::sync::Arc;

use crate::bed::{Bed, spec};
use syncline_fs::{Create, FallocateMode};

/// Data beyond the size on disk raises that size when it is written. If it is punched out before,
/// the size must reach the disk all the same.
#[test]
fn a_size_that_waits_for_its_data_survives_a_punch_and_a_power_cut() {
    for sync in ["sync=ordered", "sync=eager"] {
        for mode in [FallocateMode::PunchHole, FallocateMode::ZeroRangeKeepSize] {
            let bed = Bed::without_fua(&spec(4096), 1);
            let volume = bed.mount(sync);
            let file = bed.file(&volume, 0);
            let at = volume.getattr(&file).size.next_multiple_of(4096) + 12_288;
            volume.write(&file, at, &[7; 4096]).expect("write");
            volume.fallocate(&file, mode, at, 4096).expect("fallocate");
            volume.fsync(&file, false).expect("fsync");
            let cut = Arc::new(bed.dev.snapshot());
            let again = bed.mount_on(cut, sync);
            let kept = bed.file(&again, 0);
            assert_eq!(again.getattr(&kept).size, at + 4096, "{sync} {mode:?}");
            let mut byte = [1];
            again.read(&kept, at, &mut byte).expect("read");
            assert_eq!(byte, [0], "{sync} {mode:?}");
            drop(kept);
            again.unmount().expect("unmount");
            drop(file);
            volume.unmount().expect("unmount");
            bed.judge("the test");
        }
    }
}

/// As `ext4_rmdir`: its contents do not change.
#[test]
fn a_removed_directory_keeps_its_mtime() {
    let bed = Bed::without_fua(&spec(4096), 1);
    let volume = bed.mount("");
    let root = volume.root().expect("root");
    let how = Create { mode: 0o755, uid: 0, gid: 0 };
    let dir = volume.mkdir(&root, b"d", &how).expect("mkdir");
    let before = volume.getattr(&dir);
    bed.wait_ms(900);
    volume.rmdir(&root, b"d").expect("rmdir");
    let after = volume.getattr(&dir);
    assert_eq!(after.mtime, before.mtime);
    assert!(after.ctime > before.ctime);
    drop((dir, root));
    volume.unmount().expect("unmount");
    bed.judge("the test");
}
