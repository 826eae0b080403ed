//! Files that are made without a name: they go, or get one.

use std::sync::Arc;

use syncline_device::{BlockDevice, MemoryDevice};
use syncline_fs::{Create, FsError};
use syncline_testkit::{ImageSpec, e2fsck_preen};

use crate::bed::{Bed, MIB, bytes, contents, names, owner};

fn spec(features: &str) -> ImageSpec {
    // With an orphan file e2fsck 1.47.0 mends only what has a backup superblock.
    let features = features.to_owned();
    ImageSpec { features, block_size_bytes: 1024, ..ImageSpec::with_size(24 * MIB) }
}

#[test]
fn a_file_without_a_name_goes_or_gets_one() {
    for (features, mode) in [("", ""), ("orphan_file", ""), ("", "sync=ordered")] {
        let bed = Bed::new(&spec(features), 0).with(mode);
        let volume = bed.mount("");
        let root = volume.root().unwrap();
        let dir = volume.mkdir(&root, b"d", &Create { mode: 0o2755, uid: 0, gid: 44 }).unwrap();
        let free = volume.statfs();
        let data = bytes(1, 300_000);
        let file = volume.tmpfile(&dir, &Create { uid: 7, gid: 8, mode: 0o640 }, true).unwrap();
        let attr = volume.getattr(&file);
        assert_eq!((attr.mode, attr.nlink), (0o100_640, 0));
        assert_eq!((attr.uid, attr.gid), (7, 44), "of a set-group-id directory");
        assert_eq!(names(&volume, &dir).len(), 0);
        volume.write(&file, 0, &data).unwrap();
        volume.fsync(&file, false).unwrap();
        drop(file);
        volume.sync().unwrap();
        assert_eq!((volume.statfs().blocks_free, volume.statfs().files_free), {
            (free.blocks_free, free.files_free)
        });

        let file = volume.tmpfile(&dir, &owner(), true).unwrap();
        volume.write(&file, 0, &data).unwrap();
        volume.create(&root, b"there", &owner()).unwrap();
        assert_eq!(volume.link(&file, &root, b"there"), Err(FsError::Exists));
        volume.link(&file, &root, b"first").unwrap();
        volume.link(&file, &dir, b"second").unwrap();
        assert_eq!(volume.getattr(&file).nlink, 2);
        // Removed like any other file, it gets no name again.
        volume.unlink(&root, b"first").unwrap();
        let other = volume.tmpfile(&root, &owner(), true).unwrap();
        volume.link(&other, &root, b"other").unwrap();
        volume.unlink(&root, b"other").unwrap();
        assert_eq!(volume.link(&other, &root, b"other"), Err(FsError::NotFound));
        let hidden = volume.tmpfile(&root, &owner(), false).unwrap();
        assert_eq!(volume.link(&hidden, &root, b"hidden"), Err(FsError::NotFound));
        drop((file, other, hidden, root, dir));
        bed.unmount_and_judge(volume, "files without names");
        let volume = bed.mount("");
        let file = volume.resolve("/d/second").unwrap();
        assert_eq!(contents(&volume, &file), data);
        drop(file);
        bed.unmount_and_judge(volume, "the next mount");
    }
}

#[test]
fn no_name_is_made_where_none_may_be() {
    let bed = Bed::new(&spec(""), 0);
    let volume = bed.mount("");
    let root = volume.root().unwrap();
    let file = volume.create(&root, b"file", &owner()).unwrap();
    let made = |dir| volume.tmpfile(dir, &owner(), true).map(drop);
    assert_eq!(made(&file), Err(FsError::NotDir));
    let dir = volume.mkdir(&root, b"d", &owner()).unwrap();
    volume.rmdir(&root, b"d").unwrap();
    assert_eq!(made(&dir), Err(FsError::NotFound));
    let mut held = Vec::new();
    while let Ok(file) = volume.tmpfile(&root, &owner(), true) {
        held.push(file);
    }
    assert_eq!(made(&root), Err(FsError::NoSpace));
    held.pop();
    made(&root).unwrap();
    drop((held, root, dir, file));
    bed.unmount_and_judge(volume, "a volume without inodes");
}

/// The process that has it open ends: the next mount frees it, and e2fsck does.
#[test]
fn a_crash_frees_it() {
    for features in ["", "orphan_file"] {
        let bed = Bed::new(&spec(features), 0);
        let volume = bed.mount("");
        let root = volume.root().unwrap();
        let free = volume.statfs().files_free;
        let made: Vec<_> = (0..3).map(|_| volume.tmpfile(&root, &owner(), true).unwrap()).collect();
        volume.write(&made[1], 0, &bytes(1, 100_000)).unwrap();
        made.iter().for_each(|file| volume.fsync(file, false).unwrap());
        let crashed = bed.dev.snapshot();
        drop(made);
        drop(root);
        volume.unmount().unwrap();
        crashed.to_file(bed.image.path()).unwrap();
        e2fsck_preen(bed.image.path()).unwrap();
        let mended = MemoryDevice::load(bed.image.path()).unwrap();
        for device in [crashed, mended] {
            let volume = bed.mount_on(Arc::new(device) as Arc<dyn BlockDevice>, "");
            assert_eq!(volume.statfs().files_free, free);
            volume.unmount().unwrap();
        }
    }
}
