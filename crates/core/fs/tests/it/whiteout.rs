//! Renames that leave a whiteout: what is there afterwards, and after every crash.

use std::sync::Arc;

use syncline_device::{Clock, FileMirror, MemoryDevice, VirtualClock};
use syncline_fs::{Create, FsError, InodeRef, MountOptions, RenameFlags, Volume};
use syncline_testkit::crash::{Budget, CrashDevice, CrashOptions, Explorer};
use syncline_testkit::{ImageSpec, e2fsck_preen};

use crate::bed::{Bed, MIB, owner};

const CHARACTER_DEVICE: u16 = 0o020_000;
/// Renames of the explored workload.
const RENAMES: u8 = 12;

/// A character device 0:0 without permissions.
fn is_whiteout(volume: &Volume, inode: &InodeRef) -> bool {
    let attr = volume.getattr(inode);
    (attr.mode, attr.rdev, attr.nlink) == (CHARACTER_DEVICE, 0, 1)
}

#[test]
fn the_old_name_becomes_a_whiteout() {
    let bed = Bed::new(&ImageSpec::with_size(24 * MIB), 0);
    let volume = bed.mount("");
    let root = volume.root().unwrap();
    let (below, user) = (Create { mode: 0o2755, uid: 0, gid: 44 }, Create { uid: 7, ..owner() });
    let dir = volume.mkdir(&root, b"below", &below).unwrap();
    let file = volume.create(&root, b"file", &owner()).unwrap();
    let moved = |from: (&InodeRef, &[u8]), to: (&InodeRef, &[u8]), flags| {
        volume.rename_whiteout(from, to, flags, &user)
    };
    moved((&root, b"file"), (&dir, b"there"), RenameFlags::NOREPLACE).unwrap();
    assert_eq!(volume.resolve("/below/there").unwrap().ino, file.ino);
    let left = volume.resolve("/file").unwrap();
    assert!(is_whiteout(&volume, &left));
    assert_eq!((volume.getattr(&left).uid, volume.getattr(&left).gid), (7, 0));

    // Over something, within a directory that gives its group.
    volume.create(&dir, b"over", &owner()).unwrap();
    moved((&dir, b"there"), (&dir, b"over"), RenameFlags::NONE).unwrap();
    assert_eq!(volume.resolve("/below/over").unwrap().ino, file.ino);
    let left = volume.resolve("/below/there").unwrap();
    assert!(is_whiteout(&volume, &left));
    assert_eq!(volume.getattr(&left).gid, 44);
    // A whiteout is replaced as any file is, and a directory leaves one with its links counted.
    volume.mkdir(&root, b"d", &owner()).unwrap();
    let links = |inode: &InodeRef| volume.getattr(inode).nlink;
    let before = (links(&root), links(&dir));
    moved((&root, b"d"), (&dir, b"d"), RenameFlags::NONE).unwrap();
    assert_eq!((links(&root), links(&dir)), (before.0 - 1, before.1 + 1));
    assert!(is_whiteout(&volume, &volume.resolve("/d").unwrap()));

    let refused = moved((&dir, b"d"), (&root, b"file"), RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(FsError::Exists));
    let refused = moved((&dir, b"d"), (&root, b"file"), RenameFlags::EXCHANGE);
    assert!(matches!(refused, Err(FsError::Invalid(_))));
    assert_eq!(moved((&dir, b"no"), (&root, b"x"), RenameFlags::NONE), Err(FsError::NotFound));
    drop((root, dir, file, left));
    bed.unmount_and_judge(volume, "whiteouts");
}

#[test]
fn without_a_free_inode_nothing_moves() {
    let bed = Bed::new(&ImageSpec::with_size(24 * MIB), 0);
    let volume = bed.mount("");
    let root = volume.root().unwrap();
    volume.create(&root, b"old", &owner()).unwrap();
    let mut nr = 0;
    while volume.create(&root, format!("fill-{nr}").as_bytes(), &owner()).is_ok() {
        nr += 1;
    }
    let moved =
        || volume.rename_whiteout((&root, b"old"), (&root, b"new"), RenameFlags::NONE, &owner());
    assert_eq!(moved(), Err(FsError::NoSpace));
    assert!(volume.resolve("/old").is_ok() && volume.resolve("/new").is_err());
    volume.unlink(&root, b"fill-0").unwrap();
    moved().unwrap();
    assert!(is_whiteout(&volume, &volume.resolve("/old").unwrap()));
    drop(root);
    bed.unmount_and_judge(volume, "a volume without inodes");
}

/// Each file has its old name or its new one, and with the new one the old is a whiteout; the
/// first `done` were moved for sure.
fn judge(volume: &Volume, done: u64) -> Result<(), String> {
    for nr in 0..RENAMES {
        let at = |name: &str| volume.resolve(format!("/{name}{nr}")).ok();
        let (old, new) = (at("old"), at("new"));
        let old_is_file = old.as_ref().is_some_and(|old| volume.getattr(old).uid == nr.into());
        let moved = match (&old, &new) {
            (Some(_), None) if old_is_file => false,
            (Some(old), Some(new)) => {
                is_whiteout(volume, old) && volume.getattr(new).uid == u32::from(nr)
            }
            _ => return Err(format!("file {nr} has neither its old name nor its new one")),
        };
        if !moved && (u64::from(nr) < done || !old_is_file) {
            return Err(format!("file {nr} was moved and synced, and is not"));
        }
    }
    Ok(())
}

#[test]
fn after_every_crash_it_is_both_or_neither() {
    for mode in ["sync=eager", "sync=ordered", "log=packed"] {
        let bed = Bed::new(&ImageSpec::with_size(24 * MIB), 0).with(mode);
        let volume = bed.mount("");
        let root = volume.root().unwrap();
        for nr in 0..RENAMES {
            let create = Create { uid: nr.into(), ..owner() };
            volume.create(&root, format!("old{nr}").as_bytes(), &create).unwrap();
        }
        drop(root);
        volume.unmount().unwrap();

        let base = bed.dev.snapshot();
        let dev = Arc::new(CrashDevice::new(&base, CrashOptions::default()));
        let volume = bed.mount_on(dev.clone(), "");
        let root = volume.root().unwrap();
        dev.mark(0);
        for nr in 0..RENAMES {
            let (old, new) = (format!("old{nr}"), format!("new{nr}"));
            let (from, to) = ((&root, old.as_bytes()), (&root, new.as_bytes()));
            volume.rename_whiteout(from, to, RenameFlags::NONE, &owner()).unwrap();
            if nr % 3 == 2 {
                volume.fsync(&root, false).unwrap();
                dev.mark(u64::from(nr) + 1);
            }
        }
        let mut mirror = FileMirror::create(bed.image.path(), &base).unwrap();
        let stock = mode != "log=packed";
        let explorer = Explorer::new(dev.log());
        let summary = syncline_testkit::crash::run(&explorer, &Budget::new(80, 1), "", |state| {
            let Some(done) = state.marks().last() else { return Ok(()) };
            let mounted = |dev: MemoryDevice| {
                let clock = Arc::new(VirtualClock::default()) as Arc<dyn Clock>;
                let options = MountOptions::parse(mode).map_err(|err| err.to_string())?;
                let volume = Volume::mount(Arc::new(dev), clock, options);
                let volume = volume.map_err(|err| err.to_string())?;
                judge(&volume, *done)?;
                volume.unmount().map_err(|err| err.to_string())
            };
            mounted(state.image.snapshot())?;
            if stock {
                mirror.restore(&state.image).map_err(|err| err.to_string())?;
                e2fsck_preen(bed.image.path())?;
                mounted(MemoryDevice::load(bed.image.path()).map_err(|err| err.to_string())?)?;
            }
            Ok(())
        });
        summary.into_result().unwrap_or_else(|err| panic!("{mode}: {err}"));
    }
}
