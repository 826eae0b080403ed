//! Values of attributes in inodes of their own (`ea_inode`): what Linux writes is read as Linux
//! reads it, checked as e2fsck checks it, and damage is found; what is written here has the same
//! places, and goes with its users.

use std::path::Path;
use std::sync::Arc;

use crate::bed::{Bed, MIB, owner};
use crate::tree::VolumeTree;
use syncline_device::MemoryDevice;
use syncline_fs::{FsError, InodeRef, Volume, XattrFlags};
use syncline_testkit::{
    Compare, DirTree, ImageSpec, KernelMount, LoopDevice, Need, TreeManifest, TreeSink, debugfs,
    e2fsck_clean, fill, require,
};

fn spec(block_size: u32, inode_size: u32, features: &str) -> ImageSpec {
    ImageSpec {
        block_size_bytes: block_size,
        inode_size_bytes: Some(inode_size),
        features: format!("ea_inode{features}"),
        ..ImageSpec::with_size(32 * MIB)
    }
}

fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(seed, 0, &mut bytes);
    bytes
}

/// Files and directories with values in the inode, in a block, in inodes, and of both; equal ones,
/// which Linux keeps once.
fn fill_by_the_kernel(at: &Path) {
    let mut tree = DirTree::new(at);
    for (nr, len) in [1, 100, 900, 2000, 4096, 5000, 40_000, 65_536].into_iter().enumerate() {
        let name = format!("f{len}").into_bytes();
        tree.create(&name, 0o644).unwrap();
        tree.write(&name, 0, &value(1, 100 * nr)).unwrap();
        tree.set_xattr(&name, b"user.one", &value(len as u64, len)).unwrap();
        tree.set_xattr(&name, b"user.same", &value(9, 3000)).unwrap();
        tree.set_xattr(&name, b"user.small", b"s").unwrap();
        tree.set_xattr(&name, "trusted.h\u{e9}".as_bytes(), &value(7, 6000)).unwrap();
        for more in 0..nr {
            let attr = format!("security.more-{more}");
            tree.set_xattr(&name, attr.as_bytes(), &value((nr * 8 + more) as u64, 5000 + more))
                .unwrap();
        }
    }
    tree.mkdir(b"d", 0o755).unwrap();
    tree.set_xattr(b"d", b"user.one", &value(3, 10_000)).unwrap();
    // A value that is gone, and one that became small.
    tree.create(b"gone", 0o644).unwrap();
    tree.set_xattr(b"gone", b"user.one", &value(4, 10_000)).unwrap();
    tree.unlink(b"gone").unwrap();
    tree.set_xattr(b"f900", b"user.one", b"small again").unwrap();
}

fn findings(vol: &Volume) -> Vec<String> {
    vol.check(&mut |_| true).unwrap().findings.iter().map(ToString::to_string).collect()
}

#[test]
fn values_that_the_kernel_keeps_in_inodes_are_read() {
    let test = "values_that_the_kernel_keeps_in_inodes_are_read";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for (block_size, inode_size, features) in [
        (1024, 256, ""),
        (4096, 256, ""),
        (4096, 128, ",^metadata_csum"),
        (4096, 256, ",inline_data"),
    ] {
        let what = format!("blocks of {block_size}, inodes of {inode_size}{features}");
        let mut bed = Bed::new(&spec(block_size, inode_size, features), 0);
        let kernel = KernelMount::new(bed.image.path(), "").unwrap();
        fill_by_the_kernel(kernel.path());
        kernel.unmount().unwrap();
        e2fsck_clean(bed.image.path()).unwrap();
        bed.load();
        let vol = bed.mount("ro");
        let ours = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
        let found = findings(&vol);
        assert!(found.is_empty(), "{what}: {found:#?}");
        let device = LoopDevice::attach_read_only(bed.image.path()).unwrap();
        let kernel = device.mount("ro").unwrap();
        let theirs = TreeManifest::from_dir(kernel.path()).unwrap();
        ours.assert_same(&theirs, Compare::SAME_IMAGE, &what);
    }
}

/// One file with one value in an inode, and the number of that inode.
fn one_value(bed: &mut Bed) -> u32 {
    let kernel = KernelMount::new(bed.image.path(), "").unwrap();
    let mut tree = DirTree::new(kernel.path());
    tree.create(b"f", 0o644).unwrap();
    tree.set_xattr(b"f", b"user.v", &value(5, 10_000)).unwrap();
    kernel.unmount().unwrap();
    bed.load();
    let vol = bed.mount("ro");
    let file = vol.resolve("f").unwrap().ino;
    // The only inodes of files are these two.
    let last = vol.resolve("lost+found").unwrap().ino;
    (last + 1..last + 9)
        .find(|ino| *ino != file && vol.iget(*ino).is_ok_and(|i| vol.getattr(&i).size == 10_000))
        .expect("the value has an inode")
}

#[test]
fn damaged_values_are_refused_and_found() {
    let test = "damaged_values_are_refused_and_found";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let damages = [
        ("sif <N> atime @0x12345678", "the hash of the value", true),
        ("sif <N> size 20000", "its size", true),
        ("sif <N> flags 0x80000", "no flag of a value", true),
        ("sif <N> version 7", "the count of users", false),
        ("ln <N> name", "a name for it", false),
    ];
    for (damage, what, unreadable) in damages {
        let mut bed = Bed::new(&spec(4096, 256, ""), 0);
        let ino = one_value(&mut bed);
        let _ = debugfs(bed.image.path(), &damage.replace("<N>", &format!("<{ino}>")));
        // e2fsck compares neither sizes nor names; Linux does.
        let judged = e2fsck_clean(bed.image.path());
        let unknown = ["its size", "a name for it"].contains(&what);
        assert!(judged.is_err() || unknown, "{what}: e2fsck is content");
        bed.load();
        let vol = bed.mount("ro,errors=continue");
        assert!(!findings(&vol).is_empty(), "{what}");
        let file = vol.resolve("f").unwrap();
        assert_eq!(vol.listxattr(&file).unwrap(), [b"user.v"], "{what}");
        let read = vol.getxattr(&file, b"user.v");
        assert_eq!(matches!(read, Err(FsError::Corrupt { .. })), unreadable, "{what}: {read:?}");
        if damage.starts_with("ln") {
            assert!(matches!(vol.resolve("name"), Err(FsError::Corrupt { .. })));
        }
    }
}

/// Old Lustre wrote neither a hash nor a count, but the number and generation of the file.
#[test]
fn values_of_old_lustre_are_read() {
    let test = "values_of_old_lustre_are_read";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let mut bed = Bed::new(&spec(4096, 256, ",^metadata_csum"), 0);
    let ino = one_value(&mut bed);
    let file = bed.mount("ro").resolve("f").unwrap().ino;
    let lustre = format!(
        "sif <{ino}> atime @0x1234\nsif <{ino}> mtime @{file}\nsif <{ino}> generation 77\n\
         sif <{file}> generation 77\nsif <{ino}> version 1\nsif <{ino}> ctime @0\n\
         sif <{file}> blocks 0\n"
    );
    let _ = debugfs(bed.image.path(), &lustre);
    e2fsck_clean(bed.image.path()).unwrap();
    bed.load();
    let vol = bed.mount("ro");
    let inode = vol.resolve("f").unwrap();
    assert_eq!(vol.getxattr(&inode, b"user.v").unwrap(), value(5, 10_000));
    assert_eq!(findings(&vol), Vec::<String>::new());
    let device = LoopDevice::attach_read_only(bed.image.path()).unwrap();
    let kernel = device.mount("ro").unwrap();
    let theirs = TreeManifest::from_dir(kernel.path()).unwrap();
    let ours = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
    ours.assert_same(&theirs, Compare::SAME_IMAGE, "as Linux reads it");
}

const MODES: [&str; 4] = ["sync=ordered", "sync=eager", "log=packed", "sync=periodic,strict=*"];

/// Values of many lengths, each once, in files with other attributes before them.
fn fill_with_values<S: TreeSink>(tree: &mut S) {
    let say = |e: S::Error| e.to_string();
    for len in [1, 60, 300, 700, 850, 900, 967, 968, 969, 1024, 3900, 4040, 4041, 5000, 65_536] {
        let name = format!("f{len}").into_bytes();
        tree.create(&name, 0o644).map_err(say).unwrap();
        tree.chown(&name, 1000, 70_000).map_err(say).unwrap();
        for nr in 0..3 {
            let attr = format!("user.attribute-{nr}").into_bytes();
            tree.set_xattr(&name, &attr, &value(len * 4 + nr, len as usize)).map_err(say).unwrap();
        }
        // Linux shares blocks of equal attributes.
        tree.set_xattr(&name, b"trusted.small", &name).map_err(say).unwrap();
        // Another value, a shorter one, none.
        tree.set_xattr(&name, b"user.attribute-0", &value(len * 4 + 3, len as usize))
            .map_err(say)
            .unwrap();
        tree.set_xattr(&name, b"user.attribute-1", b"short").map_err(say).unwrap();
        tree.remove_xattr(&name, b"user.attribute-2").map_err(say).unwrap();
    }
    tree.mkdir(b"d", 0o755).map_err(say).unwrap();
    tree.set_xattr(b"d", b"user.one", &value(3, 10_000)).map_err(say).unwrap();
    tree.create(b"gone", 0o644).map_err(say).unwrap();
    tree.set_xattr(b"gone", b"user.one", &value(4, 10_000)).map_err(say).unwrap();
    tree.unlink(b"gone").map_err(say).unwrap();
}

/// Blocks of each file in the root, and free inodes and blocks of the volume.
fn usage(vol: &Volume) -> (Vec<(Vec<u8>, u64)>, u64, u64) {
    let root = vol.root().unwrap();
    let mut blocks: Vec<(Vec<u8>, u64)> = crate::bed::names(vol, &root)
        .into_iter()
        .map(|name| {
            let inode = vol.lookup(&root, &name).unwrap();
            let blocks = vol.getattr(&inode).blocks;
            (name, blocks)
        })
        .collect();
    blocks.sort();
    let stat = vol.statfs();
    (blocks, stat.files_free, stat.blocks_free)
}

#[test]
fn values_have_the_places_that_the_kernel_gives_them() {
    let test = "values_have_the_places_that_the_kernel_gives_them";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let formats = [
        (1024, 256, ""),
        (4096, 512, ",orphan_file"),
        (4096, 128, ",^metadata_csum"),
        (1024, 256, ",^extent,^64bit"),
    ];
    for ((block_size, inode_size, features), mode) in formats.into_iter().zip(MODES) {
        let what = format!("blocks of {block_size}, inodes of {inode_size}{features}, {mode}");
        let spec = spec(block_size, inode_size, features);
        let mut theirs = Bed::new(&spec, 0);
        let kernel = KernelMount::new(theirs.image.path(), "").unwrap();
        fill_with_values(&mut DirTree::new(kernel.path()));
        kernel.unmount().unwrap();
        theirs.load();
        let expected = usage(&theirs.mount("ro"));
        let ours = Bed::new(&spec, 0).with(mode);
        let vol = ours.mount("");
        fill_with_values(&mut VolumeTree(&vol));
        let written = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
        ours.unmount_and_judge(vol, &what);
        let vol = ours.mount("ro");
        let mut found = usage(&vol).0.into_iter().zip(&expected.0);
        assert_eq!(found.find(|(ours, theirs)| ours != *theirs), None, "{what}: blocks");
        assert_eq!((usage(&vol).1, usage(&vol).2), (expected.1, expected.2), "{what}: free");
        assert_eq!(findings(&vol), Vec::<String>::new(), "{what}");
        let kernel = KernelMount::new(ours.image.path(), "").unwrap();
        let read = TreeManifest::from_dir(kernel.path()).unwrap();
        read.assert_same(&written, Compare::SAME_IMAGE, &what);
        // Linux counts the users that we wrote.
        let mut tree = DirTree::new(kernel.path());
        tree.set_xattr(b"f5000", b"user.attribute-0", b"short").unwrap();
        tree.unlink(b"f65536").unwrap();
        kernel.unmount().unwrap();
        e2fsck_clean(ours.image.path()).unwrap();
    }
}

/// Linux keeps equal values once, and equal attributes in one block: other users keep theirs.
#[test]
fn values_that_the_kernel_shares_keep_their_other_users() {
    let test = "values_that_the_kernel_shares_keep_their_other_users";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for mode in MODES {
        let mut bed = Bed::new(&spec(4096, 256, ""), 0).with(mode);
        let free = bed.mount("ro").statfs();
        let kernel = KernelMount::new(bed.image.path(), "").unwrap();
        let mut tree = DirTree::new(kernel.path());
        for name in ["a", "b", "c", "d", "e", "f"] {
            let name = name.as_bytes();
            tree.create(name, 0o644).unwrap();
            // In the inode, and in a block that others have, too.
            tree.set_xattr(name, b"user.first", &value(9, 9000)).unwrap();
            tree.set_xattr(name, b"user.fills-the-inode-up", &[b'x'; 30]).unwrap();
            tree.set_xattr(name, b"user.second", &value(8, 8000)).unwrap();
            tree.set_xattr(name, b"user.third", b"beside it in the block").unwrap();
        }
        kernel.unmount().unwrap();
        bed.load();
        let vol = bed.mount("");
        let file = |name: &str| vol.resolve(name).unwrap();
        assert_eq!(free.files_free - vol.statfs().files_free, 6 + 2, "two values for all");
        let has_both = |inode: &InodeRef| {
            assert!(vol.getxattr(inode, b"user.first").unwrap() == value(9, 9000));
            assert!(vol.getxattr(inode, b"user.second").unwrap() == value(8, 8000));
        };
        vol.removexattr(&file("a"), b"user.first").unwrap();
        vol.setxattr(&file("b"), b"user.third", b"a block of its own", XattrFlags::Any).unwrap();
        vol.setxattr(&file("c"), b"user.second", &value(7, 7000), XattrFlags::Any).unwrap();
        vol.unlink(&vol.root().unwrap(), b"d").unwrap();
        for name in ["b", "e", "f"] {
            has_both(&file(name));
        }
        assert!(vol.getxattr(&file("c"), b"user.second").unwrap() == value(7, 7000));
        assert_eq!(free.files_free - vol.statfs().files_free, 5 + 3, "{mode}");
        bed.unmount_and_judge(vol, mode);
        let vol = bed.mount("");
        for name in ["a", "b", "c", "e", "f"] {
            vol.unlink(&vol.root().unwrap(), name.as_bytes()).unwrap();
        }
        bed.unmount_and_judge(vol, mode);
        assert_eq!(bed.mount("ro").statfs(), free, "{mode}: nothing is left");
    }
}

/// Without blocks, inodes or room for entries nothing changes; what is too long is another error.
#[test]
fn values_that_find_no_room_change_nothing() {
    if !require("values_that_find_no_room_change_nothing", &[Need::E2fsck]) {
        return;
    }
    let bed = Bed::new(&ImageSpec { size_bytes: 8 * MIB, ..spec(1024, 256, "") }, 0);
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let file = vol.create(&root, b"f", &owner()).unwrap();
    let set =
        |name: &str, bytes: &[u8]| vol.setxattr(&file, name.as_bytes(), bytes, XattrFlags::Any);
    assert_eq!(set("user.v", &[1; 65_537]), Err(FsError::ArgumentTooBig));
    let mut all = 0;
    let full = loop {
        match set(&format!("user.{all:0100}"), &[7; 2000]) {
            Ok(()) => all += 1,
            Err(err) => break err,
        }
    };
    assert!(full == FsError::NoSpace && all >= 7, "{all} entries fill a block");
    assert_eq!(vol.listxattr(&file).unwrap().len(), all);
    let large = vol.create(&root, b"large", &owner()).unwrap();
    let mut end = 0;
    while let Ok(n) = vol.write(&large, end, &[5; 16_384]) {
        end += n as u64;
    }
    vol.sync().unwrap();
    let (name, free) = (format!("user.{:0100}", 0), vol.statfs().files_free);
    assert_eq!(set(&name, &value(1, 60_000)), Err(FsError::NoSpace));
    assert_eq!(vol.getxattr(&file, name.as_bytes()).unwrap(), vec![7; 2000]);
    assert_eq!(vol.statfs().files_free, free);
    vol.truncate(&large, 0).unwrap();
    set(&name, &value(1, 60_000)).unwrap();
    assert!(vol.getxattr(&file, name.as_bytes()).unwrap() == value(1, 60_000));
    let mut made = 0;
    while vol.create(&root, format!("n{made}").as_bytes(), &owner()).is_ok() {
        made += 1;
    }
    assert_eq!(set(&name, &value(2, 3000)), Err(FsError::NoSpace), "no inode is free");
    assert!(vol.getxattr(&file, name.as_bytes()).unwrap() == value(1, 60_000));
    set(&name, b"small").unwrap();
    drop((root, file, large));
    bed.unmount_and_judge(vol, "no room");
}

/// A file with more values than one handle gives up, unlinked while it is open, and the power goes.
#[test]
fn values_go_with_their_file_over_a_crash() {
    let test = "values_go_with_their_file_over_a_crash";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for mode in MODES {
        let bed = Bed::new(&spec(4096, 256, ",orphan_file"), 0).with(mode);
        let vol = bed.mount("");
        let free = vol.statfs();
        let root = vol.root().unwrap();
        let file = vol.create(&root, b"f", &owner()).unwrap();
        for nr in 0..20 {
            let name = format!("user.{nr}");
            vol.setxattr(&file, name.as_bytes(), &value(nr, 5000), XattrFlags::Any).unwrap();
        }
        assert_eq!(free.files_free - vol.statfs().files_free, 21);
        vol.unlink(&root, b"f").unwrap();
        vol.sync().unwrap();
        assert!(vol.getxattr(&file, b"user.19").unwrap() == value(19, 5000));
        let crashed = Bed { dev: Arc::new(bed.dev.snapshot()), ..bed };
        std::mem::forget((vol, root, file));
        // No other program reads a packed log.
        if !mode.contains("packed") {
            KernelMount::new(crashed.save(), "").unwrap().unmount().unwrap();
            e2fsck_clean(crashed.image.path()).unwrap();
            let recovered = Arc::new(MemoryDevice::load(crashed.image.path()).unwrap());
            assert_eq!(crashed.mount_on(recovered, "ro").statfs(), free, "{mode}: by the kernel");
        }
        let vol = crashed.mount("");
        crashed.unmount_and_judge(vol, mode);
        assert_eq!(crashed.mount("ro").statfs(), free, "{mode}");
    }
}

/// A short link counts the blocks of its values, and is short all the same.
#[test]
fn links_with_values_keep_their_targets() {
    let test = "links_with_values_keep_their_targets";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let mut bed = Bed::new(&spec(4096, 256, ""), 0);
    let kernel = KernelMount::new(bed.image.path(), "").unwrap();
    let mut tree = DirTree::new(kernel.path());
    tree.symlink(b"theirs", &[b't'; 59]).unwrap();
    tree.set_xattr(b"theirs", b"trusted.v", &value(1, 9000)).unwrap();
    kernel.unmount().unwrap();
    bed.load();
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let ours = vol.symlink(&root, b"ours", &[b'o'; 59], &owner()).unwrap();
    vol.setxattr(&ours, b"trusted.v", &value(2, 9000), XattrFlags::Any).unwrap();
    drop((root, ours));
    vol.unmount().unwrap();
    let vol = bed.mount("");
    for (name, byte) in [("ours", b'o'), ("theirs", b't')] {
        let link = vol.resolve_nofollow(name).unwrap();
        assert_eq!(vol.readlink(&link).unwrap(), [byte; 59]);
    }
    vol.unlink(&vol.root().unwrap(), b"theirs").unwrap();
    vol.unmount().unwrap();
    // e2fsck 1.47.0 takes such a target for block numbers, so Linux removes ours first.
    let kernel = KernelMount::new(bed.save(), "").unwrap();
    let link = kernel.path().join("ours");
    assert_eq!(std::fs::read_link(&link).unwrap().as_os_str().as_encoded_bytes(), [b'o'; 59]);
    std::fs::remove_file(link).unwrap();
    kernel.unmount().unwrap();
    e2fsck_clean(bed.image.path()).unwrap();
}
