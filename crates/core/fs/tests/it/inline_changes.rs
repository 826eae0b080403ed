//! Changes of files and directories whose data is in inodes (`inline_data`): here and by the
//! kernel in turns, on full volumes, and across power cuts. Stock e2fsck judges each image.

use std::path::PathBuf;
use std::sync::Arc;

use crate::bed::{Bed, MIB, contents, names, owner};
use crate::tree::VolumeTree;
use syncline_device::{MemoryDevice, VirtualClock};
use syncline_fs::{FallocateMode, FsError, MountOptions, RenameFlags, Volume, XattrFlags};
use syncline_testkit::crash::{Budget, CrashDevice, CrashOptions, Explorer, run};
use syncline_testkit::{
    Compare, DirTree, ImageSpec, KernelMount, Need, TempImage, TreeManifest, TreeOptions, apply,
    debugfs, e2fsck_clean, e2fsck_preen, fill, gen_changes, gen_tree, require, scratch_dir,
};

/// Block size, inode size, further features.
const FORMS: [(u32, u32, &str); 4] =
    [(1024, 256, ""), (4096, 256, ",^dir_index"), (4096, 1024, ""), (1024, 512, ",^metadata_csum")];

fn spec((block_size, inode_size, features): (u32, u32, &str), size_bytes: u64) -> ImageSpec {
    ImageSpec {
        block_size_bytes: block_size,
        inode_size_bytes: Some(inode_size),
        features: format!("inline_data{features}"),
        ..ImageSpec::with_size(size_bytes)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(len as u64, 0, &mut bytes);
    bytes
}

/// A directory of the host for mke2fs: files `f0`, `f7`, ... of as many bytes, and directories `d0`
/// to `d9` with as many names.
fn source(name: &str) -> PathBuf {
    let root = scratch_dir().join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    for count in 0..10 {
        let dir = root.join(format!("d{count}"));
        std::fs::create_dir_all(&dir).unwrap();
        for n in 0..count {
            std::fs::write(dir.join(format!("n{n}")), b"x").unwrap();
        }
    }
    for len in (0..200).step_by(7) {
        std::fs::write(root.join(format!("f{len}")), pattern(len)).unwrap();
    }
    std::os::unix::fs::symlink("t".repeat(100), root.join("link")).unwrap();
    root
}

/// An image with [`source`] in it.
fn bed_of(name: &str, spec: ImageSpec) -> Bed {
    let source = source(name);
    let bed = Bed::new(&ImageSpec { contents: Some(source.clone()), ..spec }, 0);
    std::fs::remove_dir_all(source).unwrap();
    let stat = debugfs(bed.image.path(), "stat f70\nstat d3");
    assert_eq!(stat.matches("Flags: 0x10000000").count(), 2, "not in inodes: {stat}");
    bed
}

fn options() -> TreeOptions {
    TreeOptions { names: 300, root: true, ..TreeOptions::default() }
}

#[test]
fn trees_in_inodes_change_here_and_in_the_kernel() {
    let test = "trees_in_inodes_change_here_and_in_the_kernel";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for (seed, form) in (21..).zip(FORMS) {
        let mut bed = Bed::new(&spec(form, 96 * MIB), 0);
        let kernel = KernelMount::new(bed.image.path(), "").unwrap();
        apply(&gen_tree(seed, options()), &mut DirTree::new(kernel.path())).unwrap();
        kernel.unmount().unwrap();
        for round in 0..3 {
            let what = format!("{form:?}, round {round}");
            bed.load();
            let vol = bed.mount("");
            let ours = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
            apply(&gen_changes(seed * 10 + round, &ours, 150, options()), &mut VolumeTree(&vol))
                .unwrap();
            let report = vol.check(&mut |_| true).unwrap();
            assert!(report.is_clean(), "{what}: {:#?}", report.findings);
            let ours = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
            bed.unmount_and_judge(vol, &what);
            let kernel = KernelMount::new(bed.image.path(), "").unwrap();
            let theirs = TreeManifest::from_dir(kernel.path()).unwrap();
            ours.assert_same(&theirs, Compare::SAME_IMAGE, &what);
            let ops = gen_changes(seed * 10 + 5 + round, &theirs, 150, options());
            apply(&ops, &mut DirTree::new(kernel.path())).unwrap();
            kernel.unmount().unwrap();
        }
    }
}

#[test]
fn every_call_finds_the_bytes_that_were_in_the_inode() {
    if !require("every_call_finds_the_bytes_that_were_in_the_inode", &[Need::E2fsck]) {
        return;
    }
    for form in FORMS {
        for sync in ["ordered", "eager", "eager,log=packed", "periodic"] {
            let what = format!("{form:?}, sync={sync}");
            let bed = bed_of("inline-calls", spec(form, 32 * MIB));
            let vol = bed.mount(&format!("sync={sync}"));
            for len in (0..200usize).step_by(7) {
                let inode = vol.resolve(format!("f{len}")).unwrap();
                let mut bytes = pattern(len);
                match len / 7 % 9 {
                    0 => {
                        vol.write(&inode, 3, b"12345").unwrap();
                        bytes.resize(len.max(8), 0);
                        bytes[3..8].copy_from_slice(b"12345");
                    }
                    1 => {
                        vol.write_append(&inode, &[9; 5000]).unwrap();
                        bytes.extend([9; 5000]);
                    }
                    2 => {
                        vol.truncate(&inode, 10_000).unwrap();
                        bytes.resize(10_000, 0);
                    }
                    3 => {
                        vol.truncate(&inode, len as u64 / 2).unwrap();
                        vol.truncate(&inode, len as u64).unwrap();
                        bytes[len / 2..].fill(0);
                    }
                    4 => vol.fallocate(&inode, FallocateMode::KeepSize, 0, 9000).unwrap(),
                    5 => {
                        vol.fallocate(&inode, FallocateMode::PunchHole, 10, 5).unwrap();
                        bytes[10..15].fill(0);
                    }
                    6 => {
                        vol.fallocate(&inode, FallocateMode::ZeroRange, 10, 6000).unwrap();
                        bytes.resize(6010, 0);
                        bytes[10..].fill(0);
                    }
                    7 if !sync.starts_with("ordered") => {
                        let mut atomic = vol.begin_atomic(&inode).unwrap();
                        vol.write_atomic(&mut atomic, 1, b"at once").unwrap();
                        vol.commit_atomic(atomic).unwrap();
                        bytes[1..8].copy_from_slice(b"at once");
                    }
                    _ => {
                        vol.setxattr(&inode, b"user.a", &[1; 40], XattrFlags::Any).unwrap();
                        vol.setxattr(&inode, b"user.b", &[2; 300], XattrFlags::Any).unwrap();
                        vol.setxattr(&inode, b"user.a", &[3; 10], XattrFlags::Replace).unwrap();
                    }
                }
                assert!(contents(&vol, &inode) == bytes, "{what}: {len} bytes");
                vol.fsync(&inode, false).unwrap();
                assert!(contents(&vol, &inode) == bytes, "{what}: {len} bytes, synced");
            }
            let before = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
            bed.unmount_and_judge(vol, &what);
            let vol = bed.mount("");
            let after = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
            before.assert_same(&after, Compare::SAME_IMAGE, &what);
        }
    }
}

/// Removing and making smaller take no block; what needs one fails, and nothing has changed.
#[test]
fn a_full_volume_keeps_and_loses_what_is_in_inodes() {
    if !require("a_full_volume_keeps_and_loses_what_is_in_inodes", &[Need::E2fsck]) {
        return;
    }
    let bed = bed_of("inline-full", spec(FORMS[0], 8 * MIB));
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let filler = vol.create(&root, b"filler", &owner()).unwrap();
    let mut at = 0;
    // What delayed blocks had kept for the extent tree is free after a sync.
    for _ in 0..10 {
        while let Ok(done) = vol.write(&filler, at, &[7; 1024]) {
            at += done as u64;
        }
        vol.fsync(&filler, false).unwrap();
    }
    // Links may take the last blocks.
    let mut made = 0;
    while vol.symlink(&root, format!("last{made}").as_bytes(), &[b't'; 100], &owner()).is_ok() {
        made += 1;
    }
    let inode = vol.resolve("f119").unwrap();
    assert_eq!(vol.write(&inode, 0, &[1; 300]).unwrap_err(), FsError::NoSpace);
    assert_eq!(vol.truncate(&inode, 9000).unwrap_err(), FsError::NoSpace);
    assert!(contents(&vol, &inode) == pattern(119));
    vol.truncate(&inode, 65).unwrap();
    assert!(contents(&vol, &inode) == pattern(119)[..65]);
    let dir = vol.resolve("d3").unwrap();
    let long = [b'n'; 200];
    assert_eq!(vol.create(&dir, &long, &owner()).map(drop).unwrap_err(), FsError::NoSpace);
    assert_eq!(names(&vol, &dir).len(), 3);
    vol.unlink(&dir, b"n0").unwrap();
    vol.rename(&dir, b"n1", &dir, b"n2", RenameFlags::NONE).unwrap();
    vol.create(&dir, b"m", &owner()).unwrap();
    vol.rename(&root, b"d0", &dir, b"k", RenameFlags::NONE).unwrap();
    let mut left = names(&vol, &dir);
    left.sort();
    assert_eq!(left, [&b"k"[..], b"m", b"n2"]);
    assert_eq!(vol.resolve("d3/k/..").unwrap().ino, dir.ino);
    assert!(vol.fiemap(&dir, 0, u64::MAX).unwrap()[0].inline);
    drop((root, filler, inode, dir));
    bed.unmount_and_judge(vol, "changes of a full volume");
}

/// Bytes before and after the change of file `n`.
fn versions(n: usize) -> [Vec<u8>; 2] {
    let before = pattern(n * 7);
    let mut after = before.clone();
    after.resize(before.len().max(90), 0);
    after[..90].fill(n as u8 + 1);
    [before, after]
}

const FILES: usize = 14;

#[test]
fn a_power_cut_finds_data_in_the_inode_or_in_its_block() {
    if !require("a_power_cut_finds_data_in_the_inode_or_in_its_block", &[Need::E2fsck]) {
        return;
    }
    let states = std::env::var("SYNCLINE_CRASH_STATES").ok().and_then(|n| n.trim().parse().ok());
    let only = std::env::var("SYNCLINE_CRASH_STATE").ok();
    let only = only.map(|id| id.parse().expect("an id from a failure report"));
    let size = 16 * MIB;
    let spec = ImageSpec { journal_size_mib: Some(4), ..spec(FORMS[0], size) };
    for sync in ["ordered", "eager", "eager,log=packed"] {
        let bed = bed_of("inline-cut", spec.clone());
        let device = Arc::new(CrashDevice::new(&bed.dev, CrashOptions::default()));
        let vol = bed.mount_on(device.clone(), &format!("cache=4M,sync={sync}"));
        let dir = vol.resolve("d3").unwrap();
        for n in 0..FILES {
            let inode = vol.resolve(format!("f{}", n * 7)).unwrap();
            // The data moves alone, and then with a change.
            vol.fallocate(&inode, FallocateMode::KeepSize, 0, 1).unwrap();
            let name = format!("new-name-{n}");
            vol.create(&dir, name.as_bytes(), &owner()).unwrap();
            if n % 2 == 0 {
                vol.fsync(&inode, false).unwrap();
            }
            vol.write(&inode, 0, &versions(n)[1]).unwrap();
            vol.fsync(&inode, false).unwrap();
            vol.fsync(&dir, false).unwrap();
            device.mark(n as u64 + 1);
        }
        drop(dir);
        std::mem::forget(vol);
        let scratch = TempImage::zeroed(size);
        let budget = Budget::new(states.unwrap_or(60), 3).with_only(only.clone());
        let command = "cargo test -p syncline-fs --test it inline_changes::a_power_cut";
        let summary = run(&Explorer::new(device.log()), &budget, command, |state| {
            judge(&state.image, &scratch, (state.marks().len(), sync != "ordered"))
        });
        println!("sync={sync}: {summary}");
        if let Err(text) = summary.into_result() {
            panic!("sync={sync}: {text}");
        }
    }
}

/// Files before the mark are new, those behind the next are old. Of the one between, bytes are of
/// one version or `whole`.
fn judge(
    image: &MemoryDevice,
    file: &TempImage,
    (marks, whole): (usize, bool),
) -> Result<(), String> {
    image.to_file(file.path()).map_err(|e| e.to_string())?;
    // Our recovery: e2fsck does not know the packed log.
    let dev = Arc::new(MemoryDevice::load(file.path()).unwrap());
    let clock = || Arc::new(VirtualClock::default());
    let vol = Volume::mount(dev.clone(), clock(), MountOptions::default());
    vol.map_err(|e| e.to_string())?.unmount().map_err(|e| e.to_string())?;
    dev.to_file(file.path()).map_err(|e| e.to_string())?;
    e2fsck_preen(file.path())?;
    e2fsck_clean(file.path())?;
    let vol = Volume::mount(dev, clock(), MountOptions::parse("ro").unwrap());
    let vol = vol.map_err(|e| e.to_string())?;
    let dir = vol.resolve("d3").map_err(|e| e.to_string())?;
    let there = names(&vol, &dir);
    for old in 0..3 {
        if !there.contains(&format!("n{old}").into_bytes()) {
            return Err(format!("d3/n{old} is lost"));
        }
    }
    for n in 0..FILES {
        let name = format!("f{}", n * 7);
        let inode = vol.resolve(&name).map_err(|e| format!("{name}: {e}"))?;
        let found = contents(&vol, &inode);
        let [before, after] = versions(n);
        let good = match n.cmp(&marks) {
            std::cmp::Ordering::Less => found == after,
            std::cmp::Ordering::Equal if whole => found == after || found == before,
            std::cmp::Ordering::Equal => (found.iter().enumerate())
                .all(|(at, byte)| before.get(at) == Some(byte) || after.get(at) == Some(byte)),
            std::cmp::Ordering::Greater => found == before,
        };
        if !good {
            return Err(format!("{name}, {marks} marks: {found:?}"));
        }
        if n < marks && !there.contains(&format!("new-name-{n}").into_bytes()) {
            return Err(format!("d3/new-name-{n} is lost, {marks} marks"));
        }
    }
    Ok(())
}
