//! Writes to volumes with data in inodes (`inline_data`): what begins in an inode, what leaves it,
//! and that Linux does the same. Power cuts are in `syncline-model`.

use std::sync::Arc;

use crate::bed::{Bed, MIB, bytes, contents, names, owner};
use crate::tree::VolumeTree;
use syncline_device::{BlockDevice, MemoryDevice, RecordingDevice};
use syncline_fs::{FallocateMode, FsError, InodeRef, RenameFlags, Volume, XattrFlags};
use syncline_testkit::{
    Compare, DirTree, ImageSpec, KernelMount, Need, TreeManifest, TreeSink, e2fsck_clean, require,
};

const INLINE: u32 = 0x1000_0000;
const EXTENTS: u32 = 0x8_0000;
const MODES: [&str; 4] = ["sync=ordered", "sync=eager", "log=packed", "sync=periodic,strict=*"];

fn spec(block_size: u32, inode_size: u32, features: &str) -> ImageSpec {
    ImageSpec {
        block_size_bytes: block_size,
        inode_size_bytes: Some(inode_size),
        features: format!("inline_data{features}"),
        ..ImageSpec::with_size(32 * MIB)
    }
}

/// True if the data is in the inode; never together with extents.
fn is_inline(vol: &Volume, inode: &InodeRef) -> bool {
    let flags = vol.getattr(inode).flags;
    assert_ne!(flags & (INLINE | EXTENTS), INLINE | EXTENTS);
    flags & INLINE != 0
}

fn create(vol: &Volume, name: &str) -> InodeRef {
    vol.create(&vol.root().unwrap(), name.as_bytes(), &owner()).unwrap()
}

/// Files and directories of every size around the room of an inode, with attributes before and
/// after the data, names that go and come; the same for us and for Linux.
fn fill<S: TreeSink>(tree: &mut S, inode_size: usize) {
    let made = |tree: &mut S, name: String, len: usize, xattrs: &[usize]| {
        let path = name.as_bytes();
        tree.create(path, 0o644).map_err(|e| e.to_string()).unwrap();
        for (nr, len) in xattrs.iter().enumerate() {
            let attr = format!("user.{nr}");
            tree.set_xattr(path, attr.as_bytes(), &vec![7; *len])
                .map_err(|e| e.to_string())
                .unwrap();
        }
        tree.write(path, 0, &bytes(len as u64, len)).map_err(|e| e.to_string()).unwrap();
    };
    for len in (1..inode_size + 40).step_by(7).chain([59, 60, 61]) {
        made(tree, format!("file-{len}"), len, &[]);
        made(tree, format!("beside-{len}"), len, &[1, 17]);
    }
    let say = |e: S::Error| e.to_string();
    for len in [10, 100, inode_size] {
        let path = format!("again-{len}");
        made(tree, path.clone(), 50, &[]);
        tree.write(path.as_bytes(), len as u64, &bytes(3, 30)).map_err(say).unwrap();
        tree.write(path.as_bytes(), 5, b"over").map_err(say).unwrap();
        made(tree, format!("cut-{len}"), len, &[]);
        tree.truncate(format!("cut-{len}").as_bytes(), 7).map_err(say).unwrap();
        tree.set_xattr(format!("cut-{len}").as_bytes(), b"user.after", &[9; 60])
            .map_err(say)
            .unwrap();
    }
    for count in (0..(inode_size / 12).min(70)).step_by(2) {
        let dir = format!("dir-{count}");
        tree.mkdir(dir.as_bytes(), 0o755).map_err(say).unwrap();
        let name = |n: usize| format!("{dir}/n{n}{}", "x".repeat(n % 5)).into_bytes();
        for n in 0..count {
            tree.create(&name(n), 0o600).map_err(say).unwrap();
        }
        for n in (0..count).step_by(3) {
            tree.unlink(&name(n)).map_err(say).unwrap();
        }
        if count > 4 {
            tree.rename(&name(1), format!("{dir}/other").as_bytes()).map_err(say).unwrap();
            tree.mkdir(format!("{dir}/sub").as_bytes(), 0o700).map_err(say).unwrap();
        }
    }
    tree.rename(b"dir-6/sub", b"dir-2/sub").map_err(say).unwrap();
    tree.symlink(b"link", &[b't'; 70]).map_err(say).unwrap();
}

/// Where each file and directory has its data: flags, size and blocks of all inodes.
fn places(vol: &Volume) -> Vec<(String, u32, u64, u64)> {
    let (mut all, mut todo) = (Vec::new(), vec![String::new()]);
    while let Some(dir) = todo.pop() {
        for name in names(vol, &vol.resolve(&dir).unwrap()) {
            let path = format!("{dir}/{}", String::from_utf8(name).unwrap());
            let inode = vol.resolve_nofollow(&path).unwrap();
            is_inline(vol, &inode);
            let attr = vol.getattr(&inode);
            if inode.is_dir() {
                todo.push(path.clone());
            }
            all.push((path, attr.flags & (INLINE | EXTENTS), attr.size, attr.blocks));
        }
    }
    all.sort();
    all
}

#[test]
fn the_kernel_puts_the_same_into_its_inodes() {
    let test = "the_kernel_puts_the_same_into_its_inodes";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let formats = [(1024, 256, ""), (4096, 256, ",^extent,^64bit"), (4096, 512, ",^dir_index")];
    for ((block_size, inode_size, features), mode) in
        formats.into_iter().chain([(1024, 1024, ",^metadata_csum")]).zip(MODES)
    {
        let what = format!("blocks of {block_size}, inodes of {inode_size}{features}, {mode}");
        let spec = spec(block_size, inode_size, features);
        let mut theirs = Bed::new(&spec, 0);
        let kernel = KernelMount::new(theirs.image.path(), "").unwrap();
        fill(&mut DirTree::new(kernel.path()), inode_size as usize);
        kernel.unmount().unwrap();
        theirs.load();
        let expected = places(&theirs.mount("ro"));
        let ours = Bed::new(&spec, 0).with(mode);
        let vol = ours.mount("");
        fill(&mut VolumeTree(&vol), inode_size as usize);
        let written = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
        vol.sync().unwrap();
        let mut found = places(&vol).into_iter().zip(&expected);
        assert_eq!(found.find(|(ours, theirs)| ours != *theirs), None, "{what}");
        let inline = expected.iter().filter(|(_, flags, _, _)| flags & INLINE != 0);
        let inline: Vec<&String> = inline.map(|(path, ..)| path).collect();
        assert!(inline.iter().any(|path| path.starts_with("/file")), "{what}: {inline:?}");
        assert!(inline.iter().any(|path| path.starts_with("/dir-4")), "{what}: {inline:?}");
        assert!(inline.len() < expected.len() - 10, "{what}: nothing left its inode");
        ours.unmount_and_judge(vol, &what);
        let kernel = KernelMount::new(ours.image.path(), "").unwrap();
        let read = TreeManifest::from_dir(kernel.path()).unwrap();
        read.assert_same(&written, Compare::SAME_IMAGE, &what);
        kernel.unmount().unwrap();
    }
}

/// A way out of an inode, and the length of the file behind it.
type WayOut = (&'static str, usize, fn(&Volume, &InodeRef));

const WAYS_OUT: [WayOut; 7] = [
    ("longer", 1 << 20, |vol, file| vol.truncate(file, 1 << 20).unwrap()),
    ("allocated", 9000, |vol, file| {
        vol.fallocate(file, FallocateMode::Allocate, 0, 9000).unwrap();
    }),
    ("kept", 100, |vol, file| {
        vol.fallocate(file, FallocateMode::KeepSize, 0, 9000).unwrap();
    }),
    ("punched", 100, |vol, file| {
        vol.fallocate(file, FallocateMode::PunchHole, 4000, 9000).unwrap();
    }),
    ("far", 70_000, |vol, file| assert_eq!(vol.write(file, 69_999, &[0]).unwrap(), 1)),
    ("appended", 1000, |vol, file| {
        assert_eq!(vol.write_append(file, &[0; 900]).unwrap(), (100, 900));
    }),
    ("atomic", 100, |vol, file| {
        if !vol.has_atomic_writes() {
            return vol.fallocate(file, FallocateMode::ZeroRangeKeepSize, 100, 1).unwrap();
        }
        let mut atomic = vol.begin_atomic(file).unwrap();
        vol.write_atomic(&mut atomic, 0, &bytes(1, 50)).unwrap();
        vol.commit_atomic(atomic).unwrap();
    }),
];

/// An inline file of 100 bytes.
fn create_inline(vol: &Volume, name: &str) -> InodeRef {
    let file = create(vol, name);
    assert!(!is_inline(vol, &file));
    vol.write(&file, 0, &bytes(1, 100)).unwrap();
    assert!(is_inline(vol, &file));
    assert_eq!(vol.getattr(&file).blocks, 1);
    file
}

/// Every way out of an inode, and what is read before and after; in every mode, over a recovery.
#[test]
fn data_that_has_no_room_leaves_the_inode() {
    if !require("data_that_has_no_room_leaves_the_inode", &[Need::E2fsck]) {
        return;
    }
    for mode in MODES {
        let bed = Bed::new(&spec(1024, 256, ""), 0).with(mode);
        let vol = bed.mount("");
        let mut expected = Vec::new();
        for (name, len, leave) in WAYS_OUT {
            let file = create_inline(&vol, name);
            leave(&vol, &file);
            assert!(!is_inline(&vol, &file), "{mode}: {name}");
            let mut now = bytes(1, 100);
            now.resize(len, 0);
            assert_eq!(contents(&vol, &file), now, "{mode}: {name}");
            vol.fsync(&file, true).unwrap();
            expected.push((name, now));
        }
        // What is empty and has no blocks begins again.
        let again = create_inline(&vol, "again");
        vol.write(&again, 0, &bytes(2, 3000)).unwrap();
        vol.truncate(&again, 0).unwrap();
        vol.write(&again, 0, b"small").unwrap();
        assert!(is_inline(&vol, &again));
        // Cut and longer within the room: zeros, and it stays.
        let cut = create_inline(&vol, "cut");
        vol.truncate(&cut, 30).unwrap();
        vol.truncate(&cut, 110).unwrap();
        assert!(is_inline(&vol, &cut));
        let mut now = bytes(1, 30);
        now.resize(110, 0);
        assert_eq!(contents(&vol, &cut), now);
        vol.fsync(&cut, false).unwrap();
        vol.fsync(&again, false).unwrap();
        expected.extend([("cut", now), ("again", b"small".to_vec())]);
        // The power goes.
        let crashed = Bed { dev: Arc::new(bed.dev.snapshot()), ..bed };
        std::mem::forget((vol, again, cut));
        let vol = crashed.mount("");
        for (name, now) in &expected {
            let file = vol.resolve(name).unwrap();
            assert!(contents(&vol, &file) == *now, "{mode}: {name} after the crash");
        }
        crashed.unmount_and_judge(vol, mode);
    }
}

/// A full volume takes no block, and refuses what would need one; what is in the inode stays.
#[test]
fn without_space_the_data_stays_in_the_inode() {
    if !require("without_space_the_data_stays_in_the_inode", &[Need::E2fsck]) {
        return;
    }
    let spec = ImageSpec { size_bytes: 8 * MIB, ..spec(1024, 256, "") };
    let bed = Bed::new(&spec, 0);
    let vol = bed.mount("");
    let (file, large) = (create(&vol, "small"), create(&vol, "large"));
    let dir = vol.mkdir(&vol.root().unwrap(), b"dir", &owner()).unwrap();
    vol.write(&file, 0, b"here").unwrap();
    let mut end = 0;
    while let Ok(n) = vol.write(&large, end, &[5; 65_536]) {
        end += n as u64;
    }
    vol.sync().unwrap();
    while let Ok(n) = vol.write(&large, end, &[5; 1024]) {
        end += n as u64;
    }
    assert_eq!(vol.write(&file, 0, &[1; 500]), Err(FsError::NoSpace));
    assert_eq!(vol.truncate(&file, 5000), Err(FsError::NoSpace));
    vol.write(&file, 4, b" still").unwrap();
    let mut added = 0;
    let full = loop {
        let name = format!("name-{added}");
        match vol.link(&file, &dir, name.as_bytes()) {
            Ok(()) => added += 1,
            Err(err) => break err,
        }
    };
    assert_eq!(full, FsError::NoSpace);
    assert!(added > 3 && is_inline(&vol, &dir) && is_inline(&vol, &file));
    assert_eq!(names(&vol, &dir).len(), added);
    assert_eq!(contents(&vol, &file), b"here still");
    drop((file, large, dir));
    bed.unmount_and_judge(vol, "full");
}

/// Data and attributes share the room: what comes later goes elsewhere.
#[test]
fn attributes_and_data_share_the_room() {
    if !require("attributes_and_data_share_the_room", &[Need::E2fsck]) {
        return;
    }
    let bed = Bed::new(&spec(1024, 256, ""), 0);
    let vol = bed.mount("");
    let first = create(&vol, "first");
    vol.write(&first, 0, &bytes(1, 128)).unwrap();
    assert!(is_inline(&vol, &first));
    vol.setxattr(&first, b"user.a", b"v", XattrFlags::Any).unwrap();
    assert!(is_inline(&vol, &first));
    assert_eq!(vol.getattr(&first).blocks, 1 + 2, "the attribute is in a block");
    vol.truncate(&first, 60).unwrap();
    vol.setxattr(&first, b"user.a", b"w", XattrFlags::Any).unwrap();
    assert_eq!(vol.getattr(&first).blocks, 1, "and comes back when there is room");
    vol.write(&first, 0, &bytes(1, 128)).unwrap();
    assert!(!is_inline(&vol, &first), "now the data has to go");
    assert_eq!(vol.getxattr(&first, b"user.a").unwrap(), b"w");
    assert_eq!(contents(&vol, &first), bytes(1, 128));
    assert_eq!(vol.listxattr(&first).unwrap(), [b"user.a"]);
    drop(first);
    bed.unmount_and_judge(vol, "attributes");
}

/// Inodes without a name, with data or entries in them, are freed by the last reference and by
/// recovery; `..` follows a directory.
#[test]
fn what_is_in_an_inode_goes_with_it() {
    if !require("what_is_in_an_inode_goes_with_it", &[Need::E2fsck]) {
        return;
    }
    for (mode, features) in MODES.into_iter().zip(["", ",orphan_file", "", ",orphan_file"]) {
        let bed = Bed::new(&spec(1024, 256, features), 0).with(mode);
        let vol = bed.mount("");
        let root = vol.root().unwrap();
        let free = vol.statfs();
        let file = create(&vol, "file");
        vol.write(&file, 0, b"held").unwrap();
        let (a, b) =
            (vol.mkdir(&root, b"a", &owner()).unwrap(), vol.mkdir(&root, b"b", &owner()).unwrap());
        let sub = vol.mkdir(&a, b"sub", &owner()).unwrap();
        assert!(is_inline(&vol, &sub) && is_inline(&vol, &a));
        assert_eq!(vol.statfs().blocks_free, free.blocks_free, "{mode}: nothing has a block");
        vol.rename(&a, b"sub", &b, b"moved", RenameFlags::NONE).unwrap();
        assert_eq!(vol.lookup(&sub, b"..").unwrap().ino, b.ino);
        assert_eq!(vol.rmdir(&root, b"b"), Err(FsError::NotEmpty));
        vol.rmdir(&root, b"a").unwrap();
        vol.unlink(&root, b"file").unwrap();
        vol.write(&file, 4, b" on").unwrap();
        assert_eq!(contents(&vol, &file), b"held on");
        vol.sync().unwrap();
        let crashed = Bed { dev: Arc::new(bed.dev.snapshot()), ..bed };
        std::mem::forget((vol, root, file, a, b, sub));
        let vol = crashed.mount("");
        let root = vol.root().unwrap();
        let b = vol.lookup(&root, b"b").unwrap();
        vol.rmdir(&b, b"moved").unwrap();
        drop(b);
        vol.rmdir(&root, b"b").unwrap();
        drop(root);
        vol.sync().unwrap();
        assert_eq!(vol.statfs().files_free, free.files_free, "{mode}");
        crashed.unmount_and_judge(vol, mode);
    }
}

/// Data in the inode is journaled with it: a sync is one write and one flush, and there is no data
/// request; in blocks an ordered sync has one.
#[test]
fn a_sync_of_data_in_the_inode_is_one_write() {
    if !require("a_sync_of_data_in_the_inode_is_one_write", &[Need::E2fsck]) {
        return;
    }
    for (mode, requests) in
        [("sync=eager", (1, 0)), ("log=packed", (1, 0)), ("sync=ordered", (2, 1))]
    {
        let bed = Bed::new(&spec(4096, 256, ""), 0).with(mode);
        let dev = Arc::new(RecordingDevice::new(Arc::<MemoryDevice>::clone(&bed.dev)));
        let vol = bed.mount_on(dev.clone() as Arc<dyn BlockDevice>, "");
        let file = create(&vol, "file");
        vol.write(&file, 0, b"first").unwrap();
        vol.fsync(&file, false).unwrap();
        bed.wait_ms(10);
        let before = dev.begin_phase();
        vol.write(&file, 5, b", then more").unwrap();
        vol.fsync(&file, true).unwrap();
        let counts = dev.counts() - before;
        assert_eq!(counts.data.write_requests, 0, "{mode}");
        assert_eq!((counts.write_requests(), counts.flushes()), requests, "{mode}");
        drop(file);
        bed.unmount_and_judge(vol, mode);
        e2fsck_clean(bed.image.path()).unwrap();
    }
}

/// Readers of a directory that give each cookie back see each name once while others come and go,
/// and while the directory leaves its inode.
#[test]
fn cookies_outlive_changes_of_an_inline_directory() {
    if !require("cookies_outlive_changes_of_an_inline_directory", &[Need::E2fsck]) {
        return;
    }
    for (features, leaves) in [("", true), (",^dir_index", false)] {
        let bed = Bed::new(&spec(1024, 256, features), 0);
        let vol = bed.mount("");
        let dir = vol.mkdir(&vol.root().unwrap(), b"d", &owner()).unwrap();
        let file = create(&vol, "file");
        let stay = ["aa", "bb", "cc", "dd"];
        for name in stay.iter().chain(&["x1", "x2"]) {
            vol.link(&file, &dir, name.as_bytes()).unwrap();
        }
        let (mut cookie, mut seen, mut step) = (0, Vec::new(), 0);
        loop {
            let before = seen.len();
            vol.readdir(&dir, cookie, &mut |entry| {
                seen.push(String::from_utf8(entry.name.to_vec()).unwrap());
                cookie = entry.next_cookie;
                false
            })
            .unwrap();
            if seen.len() == before {
                break;
            }
            match step {
                2 => vol.unlink(&dir, b"x1").unwrap(),
                3 => vol.unlink(&dir, b"x2").unwrap(),
                4 if leaves => {
                    vol.link(&file, &dir, "long".repeat(30).as_bytes()).unwrap();
                    assert!(!is_inline(&vol, &dir));
                }
                _ => {}
            }
            step += 1;
        }
        for name in stay {
            let times = seen.iter().filter(|seen| *seen == name).count();
            assert_eq!(times, 1, "{name}, features {features:?}: {seen:?}");
        }
        drop((dir, file));
        bed.unmount_and_judge(vol, "cookies");
    }
}
