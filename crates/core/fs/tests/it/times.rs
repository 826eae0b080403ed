//! Times that an inode cannot hold: rounded and clamped at the call, as Linux does, so that nobody
//! sees a time that is another one after the next mount.

use std::time::{Duration, SystemTime};

use crate::bed::{Bed, MIB, owner};
use syncline_fs::{Attr, InodeRef, RenameFlags, SetAttr, SetTime, Timestamp, Volume, XattrFlags};
use syncline_testkit::{ImageSpec, KernelMount, Need, debugfs, require};

fn at(seconds: i64, nanoseconds: u32) -> Timestamp {
    Timestamp { seconds, nanoseconds }
}

/// Inside and outside of what either size of inode holds.
const TIMES: [(i64, u32); 11] = [
    (0, 1),
    (1_700_000_000, 999_999_999),
    (-1, 500_000_000),
    (i32::MAX as i64, 5),
    (i32::MAX as i64 + 1, 7),
    (4_000_000_000, 123),
    (i32::MIN as i64, 0),
    (i32::MIN as i64 - 1, 9),
    (15_032_385_535, 0),
    (15_032_385_536, 3),
    (i64::MIN / 4, 0),
];

fn spec(inode_size: u32) -> ImageSpec {
    ImageSpec { inode_size_bytes: Some(inode_size), ..ImageSpec::with_size(16 * MIB) }
}

fn set_times(vol: &Volume, inode: &InodeRef, time: Timestamp) {
    let time = Some(SetTime::At(time));
    let set = SetAttr { atime: time, mtime: time, ..SetAttr::default() };
    vol.setattr(inode, &set).unwrap();
}

fn system_time((seconds, nanos): (i64, u32)) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = match seconds < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(whole),
        false => SystemTime::UNIX_EPOCH.checked_add(whole),
    };
    base?.checked_add(Duration::from_nanos(nanos.into()))
}

#[test]
fn times_that_are_set_are_those_of_linux() {
    use std::os::unix::fs::MetadataExt;
    let test = "times_that_are_set_are_those_of_linux";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for inode_size in [128, 256] {
        let bed = Bed::new(&spec(inode_size), 1);
        let vol = bed.mount("");
        let file = bed.file(&vol, 0);
        let mut ours = Vec::new();
        for time in TIMES {
            set_times(&vol, &file, at(time.0, time.1));
            let attr = vol.getattr(&file);
            assert_eq!(attr.atime, attr.mtime);
            ours.push((attr.mtime.seconds, attr.mtime.nanoseconds));
        }
        drop(file);
        bed.unmount_and_judge(vol, "times");
        let kernel = KernelMount::new(bed.image.path(), "").unwrap();
        let path = kernel.path().join("f0");
        for (time, ours) in TIMES.into_iter().zip(ours) {
            let Some(set) = system_time(time) else { continue };
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_times(std::fs::FileTimes::new().set_modified(set)).unwrap();
            let meta = path.metadata().unwrap();
            let theirs = (meta.mtime(), meta.mtime_nsec() as u32);
            assert_eq!(ours, theirs, "inodes of {inode_size} bytes, {time:?}");
        }
    }
}

/// Every call that sets a time, on files of both kinds.
fn call_everything(vol: &Volume, bed: &Bed) {
    let root = vol.root().unwrap();
    let pass = || bed.wait_ms(1_234);
    let dir = vol.mkdir(&root, b"d", &owner()).unwrap();
    let made = vol.create(&root, b"made", &owner()).unwrap();
    pass();
    vol.write(&made, 0, b"data").unwrap();
    pass();
    vol.symlink(&dir, b"link", b"made", &owner()).unwrap();
    let file = vol.lookup(&root, b"f0").unwrap();
    pass();
    vol.write(&file, 0, b"data").unwrap();
    pass();
    vol.setxattr(&file, b"user.a", b"1", XattrFlags::Any).unwrap();
    let other = vol.lookup(&root, b"f1").unwrap();
    pass();
    vol.truncate(&other, 77).unwrap();
    pass();
    vol.read(&other, 0, &mut [0; 10]).unwrap();
    pass();
    vol.link(&other, &dir, b"again").unwrap();
    pass();
    vol.rename(&root, b"f2", &dir, b"moved", RenameFlags::NONE).unwrap();
    let moved = vol.lookup(&dir, b"moved").unwrap();
    pass();
    vol.setattr(&moved, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    set_times(vol, &vol.lookup(&root, b"f3").unwrap(), at(4_000_000_000, 123));
    vol.unlink(&dir, b"again").unwrap();
}

fn all_attributes(vol: &Volume) -> Vec<(Vec<u8>, Attr)> {
    let dirs = [vol.resolve("/").unwrap(), vol.resolve("/d").unwrap()];
    // Reading a directory moves its access time.
    let names = dirs.each_ref().map(|dir| crate::bed::names(vol, dir));
    let mut all = vec![(b"/".to_vec(), vol.getattr(&dirs[0]))];
    for (dir, names) in dirs.iter().zip(names) {
        for name in names {
            let child = vol.lookup(dir, &name).unwrap();
            all.push((name, vol.getattr(&child)));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn a_remount_changes_no_time() {
    if !require("a_remount_changes_no_time", &[Need::E2fsck]) {
        return;
    }
    // Bytes of the extra fields: as mke2fs makes them, and too few for some or all of the times.
    for (inode_size, extra) in
        [(128, None), (256, None), (256, Some(4)), (256, Some(8)), (256, Some(20))]
    {
        for options in [
            "strictatime",
            "lazytime,strictatime",
            "strictatime,sync=ordered",
            "mtime_update=100",
            "mtime_update=seen",
        ] {
            let mut bed = Bed::new(&spec(inode_size), 4);
            if let Some(extra) = extra {
                let set: String =
                    (0..4).map(|nr| format!("sif f{nr} extra_isize {extra}\n")).collect();
                let _ = debugfs(bed.image.path(), &set);
            }
            bed.load();
            bed.wait_ms(777);
            let vol = bed.mount(options);
            call_everything(&vol, &bed);
            let before = all_attributes(&vol);
            bed.unmount_and_judge(vol, options);
            let after = all_attributes(&bed.mount("ro"));
            for (before, after) in before.iter().zip(&after) {
                let what = format!("inodes of {inode_size} bytes, {extra:?}, {options}");
                assert_eq!(before, after, "{what}: {}", before.0.escape_ascii());
            }
        }
    }
}
