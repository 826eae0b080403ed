//! Large directories: 100,000 names, every hash, indexes made by the kernel and extended here.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::bed::{Bed, MIB, names, owner};
use syncline_fs::RenameFlags;
use syncline_testkit::{DirTree, ImageSpec, KernelMount, Need, TreeSink, require};

fn name(n: u32) -> Vec<u8> {
    format!("file-{n:07}").into_bytes()
}

#[test]
fn a_hundred_thousand_names_in_one_directory() {
    if !require("a_hundred_thousand_names_in_one_directory", &[Need::E2fsck]) {
        return;
    }
    const COUNT: u32 = 100_000;
    let spec = ImageSpec { inode_count: Some(120_000), ..ImageSpec::with_size(256 * MIB) };
    let bed = Bed::new(&spec, 0);
    let vol = bed.mount("");
    let dir = vol.mkdir(&vol.root().unwrap(), b"big", &owner()).unwrap();
    let us = |since: Instant, n: u32| since.elapsed().as_secs_f64() * 1e6 / f64::from(n);
    let start = Instant::now();
    for n in 0..COUNT {
        vol.create(&dir, &name(n), &owner()).unwrap();
    }
    println!("create {:.2} us each", us(start, COUNT));
    let start = Instant::now();
    for n in 0..COUNT {
        vol.lookup(&dir, &name(n)).unwrap();
    }
    println!("lookup {:.2} us each", us(start, COUNT));
    let start = Instant::now();
    let all: BTreeSet<Vec<u8>> = names(&vol, &dir).into_iter().collect();
    println!("readdir {:.2} us each", us(start, COUNT));
    assert_eq!(all.len() as u32, COUNT);
    // Delete while reading, as rm -r does, every second name.
    let start = Instant::now();
    let (mut cookie, mut gone, mut seen) = (0, 0u32, 0u32);
    loop {
        let mut part = Vec::new();
        vol.readdir(&dir, cookie, &mut |entry| {
            part.push((entry.name.to_vec(), entry.next_cookie));
            part.len() < 500
        })
        .unwrap();
        let Some((_, next)) = part.last() else { break };
        cookie = *next;
        for (name, _) in part.iter().filter(|(name, _)| name != b"." && name != b"..") {
            seen += 1;
            if seen % 2 == 0 {
                vol.unlink(&dir, name).unwrap();
                gone += 1;
            }
        }
    }
    println!("unlink {:.2} us each", us(start, gone));
    assert_eq!((seen, gone), (COUNT, COUNT / 2));
    assert_eq!(names(&vol, &dir).len() as u32, COUNT / 2);
    drop(dir);
    bed.unmount_and_judge(vol, "100,000 names");
}

#[test]
fn indexes_of_every_hash_made_by_the_kernel_grow_here_and_there() {
    let test = "indexes_of_every_hash_made_by_the_kernel_grow_here_and_there";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for (hash, csum) in [("legacy", true), ("half_md4", true), ("tea", true), ("half_md4", false)] {
        let what = format!("{hash} csum={csum}");
        let spec = ImageSpec {
            block_size_bytes: 1024,
            features: if csum { String::new() } else { "^metadata_csum".into() },
            inode_count: Some(8000),
            ..ImageSpec::with_size(48 * MIB)
        };
        let mut bed = Bed::new(&spec, 0);
        let out = std::process::Command::new("tune2fs")
            .args(["-E", &format!("hash_alg={hash}")])
            .arg(bed.image.path())
            .output();
        assert!(out.is_ok_and(|out| out.status.success()), "{what}: tune2fs");
        let kernel = KernelMount::new(bed.image.path(), "").unwrap();
        let mut tree = DirTree::new(kernel.path());
        tree.mkdir(b"d", 0o755).unwrap();
        for n in 0..1500 {
            tree.create(&[b"d/".to_vec(), name(n)].concat(), 0o644).unwrap();
        }
        kernel.unmount().unwrap();
        bed.load();
        let vol = bed.mount("");
        let dir = vol.resolve("d").unwrap();
        for n in 0..1500 {
            vol.lookup(&dir, &name(n)).unwrap_or_else(|err| panic!("{what} {n}: {err}"));
        }
        for n in 1500..4000 {
            vol.create(&dir, &name(n), &owner()).unwrap();
        }
        for n in (0..4000).step_by(3) {
            vol.rename(&dir, &name(n), &dir, &name(n + 10_000), RenameFlags::NONE).unwrap();
        }
        let ours: BTreeSet<Vec<u8>> = names(&vol, &dir).into_iter().collect();
        assert_eq!(ours.len(), 4000, "{what}");
        drop(dir);
        bed.unmount_and_judge(vol, &what);
        let kernel = KernelMount::new(bed.image.path(), "").unwrap();
        for name in &ours {
            let path = kernel.path().join("d").join(std::str::from_utf8(name).unwrap());
            assert!(path.symlink_metadata().is_ok(), "{what}: the kernel misses {path:?}");
        }
        kernel.unmount().unwrap();
    }
}
