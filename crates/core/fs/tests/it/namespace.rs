//! Operations on names: their results, their errors, and what they leave for e2fsck.

use crate::bed::{Bed, MIB, names, owner};
use syncline_fs::{Create, FsError, InodeRef, RenameFlags, SetAttr, Volume};
use syncline_testkit::{ImageSpec, Need, require};

const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;

fn bed(test: &str) -> Option<Bed> {
    require(test, &[Need::E2fsck]).then(|| Bed::new(&ImageSpec::with_size(64 * MIB), 0))
}

fn links(vol: &Volume, inode: &InodeRef) -> u32 {
    vol.getattr(inode).nlink
}

fn flag(vol: &Volume, inode: &InodeRef, flags: u32) {
    vol.setattr(inode, &SetAttr { flags: Some(flags), ..SetAttr::default() }).unwrap();
}

#[test]
fn names_of_every_length_and_kind() {
    let Some(bed) = bed("names_of_every_length_and_kind") else { return };
    let vol = bed.mount("");
    let dir = vol.mkdir(&vol.root().unwrap(), b"names", &owner()).unwrap();
    for len in 1..=255 {
        let name: Vec<u8> = (0..len).map(|n| b'a' + (n * 7 % 26) as u8).collect();
        vol.create(&dir, &name, &owner()).unwrap();
        assert_eq!(vol.create(&dir, &name, &owner()).unwrap_err(), FsError::Exists);
    }
    for name in [&b"\xff\xfe\x80"[..], b"...", b" ", b"\n", "\u{fc}\u{df}".as_bytes()] {
        vol.create(&dir, name, &owner()).unwrap();
        assert!(vol.lookup(&dir, name).is_ok());
    }
    assert_eq!(vol.create(&dir, &[b'x'; 256], &owner()).unwrap_err(), FsError::NameTooLong);
    assert_eq!(vol.lookup(&dir, &[b'x'; 256]).unwrap_err(), FsError::NameTooLong);
    assert!(matches!(vol.create(&dir, b"a/b", &owner()), Err(FsError::Invalid(_))));
    assert!(matches!(vol.create(&dir, b"a\0b", &owner()), Err(FsError::Invalid(_))));
    assert_eq!(vol.create(&dir, b"", &owner()).unwrap_err(), FsError::NotFound);
    assert_eq!(vol.create(&dir, b"..", &owner()).unwrap_err(), FsError::Exists);
    assert_eq!(names(&vol, &dir).len(), 260);
    drop(dir);
    bed.unmount_and_judge(vol, "names of all lengths");
}

#[test]
fn link_counts_and_last_references() {
    let Some(bed) = bed("link_counts_and_last_references") else { return };
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let before = links(&vol, &root);
    let dir = vol.mkdir(&root, b"d", &owner()).unwrap();
    assert_eq!((links(&vol, &root), links(&vol, &dir)), (before + 1, 2));
    let file = vol.create(&dir, b"f", &owner()).unwrap();
    vol.link(&file, &root, b"g").unwrap();
    assert_eq!(links(&vol, &file), 2);
    assert_eq!(vol.link(&file, &root, b"g").unwrap_err(), FsError::Exists);
    assert_eq!(vol.link(&dir, &root, b"h").unwrap_err(), FsError::Perm);
    assert_eq!(vol.unlink(&root, b"d").unwrap_err(), FsError::IsDir);
    assert_eq!(vol.rmdir(&root, b"g").unwrap_err(), FsError::NotDir);
    assert_eq!(vol.rmdir(&root, b"d").unwrap_err(), FsError::NotEmpty);
    assert_eq!(vol.unlink(&root, b"nope").unwrap_err(), FsError::NotFound);
    assert_eq!(vol.lookup(&file, b"x").unwrap_err(), FsError::NotDir);
    let free = vol.statfs();
    // Unlinked while in use: the data stays until the last reference goes.
    vol.write(&file, 0, &[9; 50_000]).unwrap();
    vol.fsync(&file, false).unwrap();
    vol.unlink(&root, b"g").unwrap();
    vol.unlink(&dir, b"f").unwrap();
    assert_eq!(links(&vol, &file), 0);
    let mut bytes = [0; 4];
    assert_eq!(vol.read(&file, 49_996, &mut bytes).unwrap(), 4);
    assert_eq!(bytes, [9; 4]);
    assert_eq!(vol.link(&file, &root, b"again").unwrap_err(), FsError::NotFound);
    drop(file);
    assert_eq!(vol.statfs().files_free, free.files_free + 1);
    // A removed directory that is still held takes no names.
    vol.rmdir(&root, b"d").unwrap();
    assert_eq!(vol.create(&dir, b"late", &owner()).unwrap_err(), FsError::NotFound);
    assert_eq!(links(&vol, &root), before);
    drop((dir, root));
    bed.unmount_and_judge(vol, "links");
}

/// File handles name inodes by number: of NFS clients, of open_by_handle_at(2).
#[test]
fn numbers_of_deleted_files_and_of_no_files_are_stale() {
    let name = "numbers_of_deleted_files_and_of_no_files_are_stale";
    let Some(bed) = bed(name) else { return };
    for options in ["sync=ordered", "sync=eager"] {
        let mut vol = bed.mount(options);
        let root = vol.root().unwrap();
        let free = vol.statfs();
        let file = vol.create(&root, b"f", &owner()).unwrap();
        vol.write(&file, 0, &[1; 50_000]).unwrap();
        let dir = vol.mkdir(&root, b"d", &owner()).unwrap();
        let gone = [file.ino, dir.ino];
        vol.unlink(&root, b"f").unwrap();
        assert_eq!(vol.iget_handle(file.ino).unwrap().ino, file.ino);
        vol.rmdir(&root, b"d").unwrap();
        drop((file, dir, root));
        let stale = |vol: &Volume| {
            // 7: resize, 8: journal; no more than 2^16 inodes in 64 MiB.
            for ino in gone.into_iter().chain([0, 1, 3, 7, 8, 1 << 16 | 1, u32::MAX]) {
                assert_eq!(vol.iget_handle(ino).unwrap_err(), FsError::Stale, "{options} {ino}");
            }
            assert_eq!(vol.statfs().files_free, free.files_free);
            assert_eq!(vol.statfs().blocks_free, free.blocks_free);
        };
        stale(&vol);
        vol.syncfs().unwrap();
        stale(&vol);
        vol.unmount().unwrap();
        vol = bed.mount(options);
        stale(&vol);
        let root = vol.root().unwrap();
        vol.create(&root, b"still writable", &owner()).unwrap();
        vol.unlink(&root, b"still writable").unwrap();
        drop(root);
        bed.unmount_and_judge(vol, options);
    }
}

#[test]
fn symbolic_links_fast_slow_and_in_circles() {
    let Some(bed) = bed("symbolic_links_fast_slow_and_in_circles") else { return };
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    for len in [1usize, 58, 59, 60, 61, 1000, 4095] {
        let target = vec![b't'; len];
        let name = format!("link{len}");
        let link = vol.symlink(&root, name.as_bytes(), &target, &owner()).unwrap();
        assert_eq!(vol.readlink(&link).unwrap(), target);
        assert_eq!(vol.getattr(&link).blocks, if len < 60 { 0 } else { 8 });
    }
    let long = vol.symlink(&root, b"long", &[b't'; 4096], &owner());
    assert_eq!(long.unwrap_err(), FsError::NameTooLong);
    assert_eq!(vol.symlink(&root, b"e", b"", &owner()).unwrap_err(), FsError::NotFound);
    assert!(matches!(vol.readlink(&root), Err(FsError::Invalid(_))));
    let dir = vol.mkdir(&root, b"dir", &owner()).unwrap();
    let file = vol.create(&dir, b"file", &owner()).unwrap();
    vol.symlink(&root, b"abs", b"/dir/../dir/./file", &owner()).unwrap();
    vol.symlink(&dir, b"up", b"../abs", &owner()).unwrap();
    vol.symlink(&root, b"loop", b"loop", &owner()).unwrap();
    assert_eq!(vol.resolve("/dir/up").unwrap().ino, file.ino);
    assert_eq!(vol.resolve("//dir/../../..//abs").unwrap().ino, file.ino);
    assert!(vol.resolve_nofollow("abs").unwrap().is_symlink());
    assert_eq!(vol.resolve("loop").unwrap_err(), FsError::Loop);
    assert_eq!(vol.resolve("/dir/file/").unwrap_err(), FsError::NotDir);
    assert_eq!(vol.resolve("/dir/nope/x").unwrap_err(), FsError::NotFound);
    drop((root, dir, file));
    bed.unmount_and_judge(vol, "symbolic links");
}

#[test]
fn device_files_keep_their_numbers() {
    let Some(bed) = bed("device_files_keep_their_numbers") else { return };
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let make = |name: &str, mode, major: u64, minor: u64| {
        let rdev = (major & 0xfff) << 8 | minor & 0xff | (minor & !0xff) << 12;
        let create = Create { mode, uid: 1, gid: 2 };
        let inode = vol.mknod(&root, name.as_bytes(), &create, rdev).unwrap();
        assert_eq!(vol.getattr(&inode).rdev, if matches!(mode >> 12, 2 | 6) { rdev } else { 0 });
        assert_eq!(vol.getattr(&inode).mode, mode);
    };
    make("char", 0x2180, 5, 1);
    make("block", 0x6180, 259, 300);
    make("big", 0x6180, 4095, (1 << 20) - 1);
    make("fifo", 0x11a4, 0, 0);
    make("socket", 0xc1ed, 0, 0);
    let dir = Create { mode: 0x41ed, uid: 0, gid: 0 };
    assert_eq!(vol.mknod(&root, b"dir", &dir, 0).unwrap_err(), FsError::Perm);
    drop(root);
    bed.unmount_and_judge(vol, "device files");
}

#[test]
fn flags_and_set_group_id() {
    let Some(bed) = bed("flags_and_set_group_id") else { return };
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let dir = vol.mkdir(&root, b"d", &Create { mode: 0o2755, uid: 3, gid: 44 }).unwrap();
    let file = vol.create(&dir, b"f", &Create { mode: 0o644, uid: 5, gid: 6 }).unwrap();
    let sub = vol.mkdir(&dir, b"s", &Create { mode: 0o700, uid: 5, gid: 6 }).unwrap();
    assert_eq!((vol.getattr(&file).uid, vol.getattr(&file).gid), (5, 44));
    assert_eq!((vol.getattr(&sub).mode, vol.getattr(&sub).gid), (0x4000 | 0o2700, 44));
    flag(&vol, &file, IMMUTABLE);
    assert_eq!(vol.unlink(&dir, b"f").unwrap_err(), FsError::Perm);
    assert_eq!(vol.link(&file, &dir, b"g").unwrap_err(), FsError::Perm);
    let renamed = vol.rename(&dir, b"f", &root, b"f", RenameFlags::NONE);
    assert_eq!(renamed.unwrap_err(), FsError::Perm);
    flag(&vol, &file, 0);
    flag(&vol, &dir, APPEND);
    assert_eq!(vol.unlink(&dir, b"f").unwrap_err(), FsError::Perm);
    vol.create(&dir, b"more", &owner()).unwrap();
    flag(&vol, &dir, IMMUTABLE);
    assert_eq!(vol.create(&dir, b"none", &owner()).unwrap_err(), FsError::Perm);
    flag(&vol, &dir, 0);
    vol.unlink(&dir, b"f").unwrap();
    drop((root, dir, file, sub));
    bed.unmount_and_judge(vol, "flags");
}

#[test]
fn renames_within_across_over_and_exchanged() {
    let Some(bed) = bed("renames_within_across_over_and_exchanged") else { return };
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let mk = |dir: &InodeRef, name: &[u8]| vol.mkdir(dir, name, &owner()).unwrap();
    let (a, b) = (mk(&root, b"a"), mk(&root, b"b"));
    let sub = mk(&a, b"sub");
    let deep = mk(&sub, b"deep");
    let file = vol.create(&a, b"file", &owner()).unwrap();
    let rename =
        |d: &InodeRef, n: &[u8], e: &InodeRef, m: &[u8]| vol.rename(d, n, e, m, RenameFlags::NONE);
    // Errors first, nothing changes.
    assert!(matches!(rename(&root, b"a", &deep, b"x"), Err(FsError::Invalid(_))));
    assert!(matches!(rename(&root, b"a", &a, b"x"), Err(FsError::Invalid(_))));
    assert_eq!(rename(&sub, b"deep", &root, b"a").unwrap_err(), FsError::NotEmpty);
    assert_eq!(rename(&a, b"file", &root, b"b").unwrap_err(), FsError::IsDir);
    assert_eq!(rename(&root, b"b", &a, b"file").unwrap_err(), FsError::NotDir);
    assert_eq!(rename(&a, b"none", &b, b"x").unwrap_err(), FsError::NotFound);
    assert_eq!(rename(&a, b".", &b, b"x").unwrap_err(), FsError::Busy);
    let kept = vol.rename(&a, b"file", &root, b"b", RenameFlags::NOREPLACE);
    assert_eq!(kept.unwrap_err(), FsError::Exists);
    assert!(RenameFlags::from_bits(3).is_err());
    // Within, across, over.
    rename(&a, b"file", &a, b"file2").unwrap();
    rename(&a, b"file2", &b, b"file3").unwrap();
    let victim = vol.create(&b, b"victim", &owner()).unwrap();
    rename(&b, b"file3", &b, b"victim").unwrap();
    assert_eq!(vol.lookup(&b, b"victim").unwrap().ino, file.ino);
    assert_eq!(links(&vol, &victim), 0);
    drop(victim);
    // A directory across, and over an empty one.
    rename(&a, b"sub", &b, b"moved").unwrap();
    assert_eq!((links(&vol, &a), links(&vol, &b)), (2, 3));
    assert_eq!(vol.lookup(&sub, b"..").unwrap().ino, b.ino);
    let empty = mk(&a, b"empty");
    rename(&b, b"moved", &a, b"empty").unwrap();
    assert_eq!((links(&vol, &a), links(&vol, &b), links(&vol, &empty)), (3, 2, 0));
    drop(empty);
    // Two names of one inode.
    vol.link(&file, &b, b"other").unwrap();
    rename(&b, b"other", &b, b"victim").unwrap();
    assert_eq!(links(&vol, &file), 2);
    // Exchange: file and directory across directories.
    let swap = |d: &InodeRef, n: &[u8], e: &InodeRef, m: &[u8]| {
        vol.rename(d, n, e, m, RenameFlags::EXCHANGE)
    };
    swap(&a, b"empty", &b, b"other").unwrap();
    assert_eq!((links(&vol, &a), links(&vol, &b)), (2, 3));
    assert_eq!(vol.lookup(&sub, b"..").unwrap().ino, b.ino);
    assert_eq!(vol.lookup(&a, b"empty").unwrap().ino, file.ino);
    assert_eq!(swap(&a, b"none", &b, b"other").unwrap_err(), FsError::NotFound);
    assert_eq!(swap(&a, b"empty", &b, b"none").unwrap_err(), FsError::NotFound);
    assert!(matches!(swap(&root, b"b", &sub, b"deep"), Err(FsError::Invalid(_))));
    swap(&root, b"a", &root, b"b").unwrap();
    assert_eq!(vol.lookup(&root, b"a").unwrap().ino, b.ino);
    drop((root, a, b, sub, deep, file));
    bed.unmount_and_judge(vol, "renames");
}

#[test]
fn a_full_volume_stays_sound() {
    if !require("a_full_volume_stays_sound", &[Need::E2fsck]) {
        return;
    }
    for (seed, inode_count) in [(1, Some(600)), (2, None)] {
        let spec =
            ImageSpec { block_size_bytes: 1024, inode_count, ..ImageSpec::with_size(6 * MIB) };
        let bed = Bed::new(&ImageSpec { features: "^has_journal,has_journal".into(), ..spec }, 0);
        let vol = bed.mount("");
        let root = vol.root().unwrap();
        let mut count = 0;
        let error = loop {
            let name = format!("{count}{}", "n".repeat(200));
            let made = if count % 3 == 0 {
                vol.mkdir(&root, name.as_bytes(), &owner())
            } else {
                vol.symlink(&root, name.as_bytes(), &[b't'; 300], &owner())
            };
            match made {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, FsError::NoSpace, "seed {seed}");
        assert!(count > 100, "seed {seed}: {count}");
        for n in 0..count {
            let name = format!("{n}{}", "n".repeat(200));
            if n % 3 == 0 {
                vol.rmdir(&root, name.as_bytes()).unwrap();
            } else if n % 2 == 0 {
                vol.unlink(&root, name.as_bytes()).unwrap();
            }
        }
        vol.create(&root, b"room again", &owner()).unwrap();
        drop(root);
        bed.unmount_and_judge(vol, "a full volume");
    }
}

#[test]
fn open_unlinked_files_are_finished_by_the_next_mount() {
    let Some(bed) = bed("open_unlinked_files_are_finished_by_the_next_mount") else { return };
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let free = vol.statfs();
    let held: Vec<InodeRef> = (0..20)
        .map(|n| {
            let name = format!("open{n}");
            let inode = vol.create(&root, name.as_bytes(), &owner()).unwrap();
            vol.write(&inode, 0, &[1; 10_000]).unwrap();
            inode
        })
        .collect();
    vol.syncfs().unwrap();
    for n in 0..20 {
        vol.unlink(&root, format!("open{n}").as_bytes()).unwrap();
    }
    vol.syncfs().unwrap();
    // The machine dies here: another mount of the same device, the first is forgotten.
    let dead = bed.dev.snapshot();
    drop((held, root, vol));
    let bed = Bed { dev: dead.into(), ..bed };
    let vol = bed.mount("");
    assert_eq!(vol.statfs().files_free, free.files_free);
    bed.unmount_and_judge(vol, "orphans");
}
