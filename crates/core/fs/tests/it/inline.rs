//! Data in inodes (`inline_data`): what Linux, mke2fs and debugfs write is read as Linux reads it,
//! and checked as e2fsck checks it.

use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::bed::{Bed, MIB, contents};
use crate::tree::VolumeTree;
use syncline_fs::{FsError, InodeRef, MountOptions, Volume};
use syncline_testkit::{
    Compare, DirTree, ImageSpec, KernelMount, LoopDevice, Need, TreeManifest, TreeSink, debugfs,
    e2fsck_clean, fill, require, scratch_dir,
};

fn spec(block_size: u32, inode_size: u32) -> ImageSpec {
    ImageSpec {
        block_size_bytes: block_size,
        inode_size_bytes: Some(inode_size),
        features: "inline_data".into(),
        ..ImageSpec::with_size(32 * MIB)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(len as u64, 0, &mut bytes);
    bytes
}

fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

/// Files of every size around the two limits, holes, growing and shrinking directories, attributes
/// beside the data.
fn fill_by_the_kernel(at: &Path, inode_size: usize) {
    let mut tree = DirTree::new(at);
    for len in (0..inode_size + 80).step_by(5).chain([1, 59, 60, 61]) {
        write_at(&at.join(format!("file-{len}")), 0, &pattern(len));
    }
    write_at(&at.join("behind-a-hole"), 20, b"data");
    for len in [70, 4096, 1 << 20] {
        let path = at.join(format!("longer-{len}"));
        write_at(&path, 0, b"short");
        std::fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
    }
    write_at(&at.join("cut"), 0, &pattern(90));
    std::fs::File::options().write(true).open(at.join("cut")).unwrap().set_len(7).unwrap();
    write_at(&at.join("large"), 0, &pattern(50_000));
    for names in 0..14 {
        let dir = at.join(format!("dir-{names}"));
        std::fs::create_dir(&dir).unwrap();
        for name in 0..names {
            std::fs::write(dir.join(format!("name-{name}")), b"x").unwrap();
        }
        // Free space in either chain, and entries that went into it.
        if names > 4 {
            std::fs::remove_file(dir.join("name-0")).unwrap();
            std::fs::remove_file(dir.join("name-3")).unwrap();
            std::fs::hard_link(at.join("large"), dir.join("s")).unwrap();
        }
    }
    std::fs::create_dir_all(at.join("dir-2/below/further")).unwrap();
    for name in ["dir-0", "file-0", "file-30", "file-100", "cut"] {
        tree.set_xattr(name.as_bytes(), b"user.small", b"v").unwrap();
        tree.set_xattr(name.as_bytes(), b"user.big", &[7; 400]).unwrap();
    }
    std::os::unix::fs::symlink("file-0", at.join("link")).unwrap();
    std::os::unix::fs::symlink("x".repeat(100), at.join("long-link")).unwrap();
}

fn assert_clean(vol: &Volume, what: &str) {
    let report = vol.check(&mut |_| true).unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
}

/// Blocks and data ranges of each file in the root.
fn assert_same_places(vol: &Volume, kernel: &Path, what: &str) {
    for entry in std::fs::read_dir(kernel).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let meta = path.symlink_metadata().unwrap();
        let inode = vol.resolve_nofollow(&name).unwrap();
        assert_eq!(vol.getattr(&inode).blocks, meta.blocks(), "{what}: blocks of {name}");
        if meta.is_file() {
            let file = std::fs::File::open(&path).unwrap();
            assert_eq!(ranges_of_kernel(&file), ranges(vol, &inode), "{what}: data of {name}");
        }
    }
}

fn ranges(vol: &Volume, inode: &InodeRef) -> Vec<(u64, u64)> {
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let start = match vol.seek_data(inode, at) {
            Err(FsError::NoSuchOffset) => return found,
            other => other.unwrap(),
        };
        at = vol.seek_hole(inode, start).unwrap();
        found.push((start, at));
    }
}

fn ranges_of_kernel(file: &std::fs::File) -> Vec<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let Ok(start) = seek(file, SeekFrom::Data(at)) else { return found };
        at = seek(file, SeekFrom::Hole(start)).unwrap();
        found.push((start, at));
    }
}

#[test]
fn what_the_kernel_keeps_in_inodes_is_read() {
    let test = "what_the_kernel_keeps_in_inodes_is_read";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for (block_size, inode_size) in [(1024, 256), (4096, 256), (4096, 512), (1024, 1024)] {
        let what = format!("blocks of {block_size}, inodes of {inode_size}");
        let mut bed = Bed::new(&spec(block_size, inode_size), 0);
        let kernel = KernelMount::new(bed.image.path(), "").unwrap();
        fill_by_the_kernel(kernel.path(), inode_size as usize);
        kernel.unmount().unwrap();
        e2fsck_clean(bed.image.path()).unwrap();
        bed.load();
        let vol = bed.mount("ro");
        let ours = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
        assert_clean(&vol, &what);
        let device = LoopDevice::attach_read_only(bed.image.path()).unwrap();
        let kernel = device.mount("ro").unwrap();
        let theirs = TreeManifest::from_dir(kernel.path()).unwrap();
        ours.assert_same(&theirs, Compare::SAME_IMAGE, &what);
        assert_same_places(&vol, kernel.path(), &what);
        let extents = vol.fiemap(&vol.resolve("file-10").unwrap(), 0, u64::MAX).unwrap();
        assert!(extents.len() == 1 && extents[0].inline && extents[0].last, "{extents:?}");
        let start = extents[0].physical as usize;
        assert_eq!(bed.image.bytes()[start..start + 10], pattern(10), "{what}: fiemap's place");
    }
}

/// A reader that gives each cookie back sees every name of an inline directory once.
#[test]
fn reading_of_an_inline_directory_goes_on_at_any_cookie() {
    let test = "reading_of_an_inline_directory_goes_on_at_any_cookie";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    for features in ["inline_data", "inline_data,^dir_index"] {
        let bed = Bed::new(&ImageSpec { features: features.into(), ..spec(1024, 256) }, 0);
        let _ = debugfs(
            bed.image.path(),
            "mkdir d\ncd d\nwrite /dev/null a\nwrite /dev/null b\nmkdir c\n",
        );
        let stat = debugfs(bed.image.path(), "stat d");
        assert!(stat.contains("Flags: 0x10000000"), "not inline: {stat}");
        let mut bed = bed;
        bed.load();
        let vol = bed.mount("ro");
        let dir = vol.resolve("d").unwrap();
        let (mut cookie, mut all) = (0, Vec::new());
        loop {
            let before = all.len();
            vol.readdir(&dir, cookie, &mut |entry| {
                all.push((entry.name.to_vec(), entry.ino));
                cookie = entry.next_cookie;
                false
            })
            .unwrap();
            if all.len() == before {
                break;
            }
        }
        all.sort();
        let names: Vec<&[u8]> = all.iter().map(|(name, _)| name.as_slice()).collect();
        assert_eq!(names, [&b"."[..], b"..", b"a", b"b", b"c"], "{features}");
        assert_eq!((all[0].1, all[1].1), (dir.ino, 2), "{features}: the dots");
        let parent = vol.resolve("d/c/..").unwrap();
        assert_eq!(parent.ino, dir.ino);
        assert_eq!(vol.lookup(&dir, b"d").unwrap_err(), FsError::NotFound);
        assert_clean(&vol, features);
    }
}

/// mke2fs puts targets of 60 bytes and more into the inode and its attribute; Linux reads them.
#[test]
fn links_and_files_of_mke2fs_are_read() {
    if !require("links_and_files_of_mke2fs_are_read", &[Need::E2fsck]) {
        return;
    }
    let source = scratch_dir().join(format!("inline-{}", std::process::id()));
    std::fs::create_dir_all(&source).unwrap();
    for len in [10, 59, 60, 61, 100, 300] {
        let link = source.join(format!("link-{len}"));
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink("t".repeat(len), link).unwrap();
        std::fs::write(source.join(format!("file-{len}")), pattern(len)).unwrap();
    }
    let spec = ImageSpec { contents: Some(source.clone()), ..spec(1024, 256) };
    let bed = Bed::new(&spec, 0);
    std::fs::remove_dir_all(&source).unwrap();
    let vol = bed.mount("ro");
    for len in [10, 59, 60, 61, 100, 300] {
        let link = vol.resolve_nofollow(format!("link-{len}")).unwrap();
        assert_eq!(vol.readlink(&link).unwrap(), vec![b't'; len]);
        assert_eq!(contents(&vol, &vol.resolve(format!("file-{len}")).unwrap()), pattern(len));
    }
    assert_clean(&vol, "mke2fs -d");
}

/// An image that was not unmounted is read with its log replayed in memory, although it cannot be
/// written.
#[test]
fn a_log_on_a_volume_that_can_only_be_read_is_replayed_in_memory() {
    let test = "a_log_on_a_volume_that_can_only_be_read_is_replayed_in_memory";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let mut bed = Bed::new(&spec(1024, 256), 0);
    let kernel = KernelMount::new(bed.image.path(), "").unwrap();
    write_at(&kernel.path().join("tiny"), 0, b"logged");
    std::fs::File::open(kernel.path().join("tiny")).unwrap().sync_all().unwrap();
    let crashed = kernel.copy_live();
    kernel.unmount().unwrap();
    bed.image = crashed;
    bed.load();
    let device: std::sync::Arc<dyn syncline_device::BlockDevice> = bed.dev.clone();
    let clock: std::sync::Arc<dyn syncline_device::Clock> = bed.clock.clone();
    let options = MountOptions::parse("ro").unwrap();
    assert!(Volume::mount(device.clone(), clock.clone(), options.clone()).is_err());
    let before = bed.image.bytes();
    let (memory, report) =
        Volume::recovered_in_memory(&device, &clock, 64 * MIB).unwrap().expect("a log");
    assert!(report.transactions_replayed > 0);
    let vol = Volume::mount(memory, clock, options).unwrap();
    assert_eq!(contents(&vol, &vol.resolve("tiny").unwrap()), b"logged");
    assert_clean(&vol, "replayed");
    let mut after = vec![0; before.len()];
    bed.dev.read_at(0, &mut after).unwrap();
    assert!(before == after, "the image itself was written to");
}

/// Damage is an error and a finding, of us and of e2fsck.
#[test]
fn damaged_inline_data_is_an_error_and_found() {
    if !require("damaged_inline_data_is_an_error_and_found", &[Need::E2fsck]) {
        return;
    }
    let damages: [(&str, &str, &str); 6] = [
        ("ea_rm f system.data", "f", "no attribute"),
        ("sif d block[2] 0xffff0003", "d", "a chain that leaves its place"),
        ("sif d size 61", "", "a directory's size"),
        ("sif d block[0] 13", "", "another parent"),
        ("feature -inline_data", "f", "no feature"),
        ("sif e flags 0x10000000", "e", "a flag on a file with extents"),
    ];
    for (damage, unreadable, what) in damages {
        let mut bed = Bed::new(&spec(1024, 256), 0);
        let from = scratch_dir().join(format!("inline-bytes-{}", std::process::id()));
        std::fs::write(&from, pattern(20)).unwrap();
        let large = scratch_dir().join(format!("inline-large-{}", std::process::id()));
        std::fs::write(&large, pattern(9000)).unwrap();
        let made = format!(
            "write {} f\nmkdir d\ncd d\nwrite /dev/null a\ncd /\nwrite {} e\n",
            from.display(),
            large.display()
        );
        let _ = debugfs(bed.image.path(), &made);
        bed.load();
        let vol = bed.mount("ro");
        assert_clean(&vol, what);
        assert_eq!(contents(&vol, &vol.resolve("f").unwrap()), pattern(20));
        drop(vol);
        let _ = debugfs(bed.image.path(), damage);
        for file in [from, large] {
            std::fs::remove_file(file).unwrap();
        }
        assert!(e2fsck_clean(bed.image.path()).is_err(), "{what}: e2fsck is content");
        bed.load();
        let vol = bed.mount("ro,errors=continue");
        let report = vol.check(&mut |_| true).unwrap();
        assert!(!report.is_clean(), "{what}");
        if !unreadable.is_empty() {
            let read = vol.resolve(unreadable).and_then(|inode| {
                if inode.is_dir() {
                    return vol.lookup(&inode, b"a").map(drop);
                }
                vol.read(&inode, 0, &mut [0; 8]).map(drop)
            });
            assert!(matches!(read, Err(FsError::Corrupt { .. })), "{what}: {read:?}");
        }
    }
}
