//! Files that are made for writing only: they are written past the kernel's cache, where the kernel
//! can do that; see `src/handle.rs`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use syncline_testkit::{Need, require, skip};

use crate::image;
use crate::mounted::Mounted;

/// Pages read during such a write must not stay in the kernel's cache.
#[test]
fn who_reads_beside_a_write_past_the_cache_goes_past_it() {
    let name = "who_reads_beside_a_write_past_the_cache_goes_past_it";
    if !require(name, &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    let reads = || m.status()["requests"]["reads"].as_u64().unwrap();
    let path = m.at("f");
    let made = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    made.write_all_at(&[1; 4096], 0).unwrap();
    let twice = |file: &File| {
        let before = reads();
        for _ in 0..2 {
            file.read_exact_at(&mut [0; 100], 50).unwrap();
        }
        reads() - before
    };
    let beside = File::open(&path).unwrap();
    if twice(&beside) == 1 {
        skip(name, "this kernel does not keep its cache right beside such writes");
        drop((made, beside));
        return m.unmount_clean();
    }
    let second = OpenOptions::new().write(true).open(&path).unwrap();
    drop(made);
    assert_eq!(twice(&File::open(&path).unwrap()), 2, "another who writes it is left");
    drop(second);
    // The kernel does not wait for the answer to a close.
    let began = std::time::Instant::now();
    while twice(&File::open(&path).unwrap()) == 2 {
        assert!(began.elapsed().as_secs() < 120, "nobody writes it any more");
    }
    assert_eq!(twice(&File::open(&path).unwrap()), 0, "the page is cached");
    assert_eq!(twice(&beside), 2, "as it was opened");
    drop(beside);
    m.unmount_clean();
}

/// Whoever writes: what a program may do was said of its old contents.
#[test]
fn a_write_takes_capabilities_away() {
    if !require("a_write_takes_capabilities_away", &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    // `vfs_cap_data` of version 2: CAP_NET_RAW, permitted.
    let mut raw = [0; 20];
    (raw[3], raw[5]) = (2, 0x20);
    let mut m = Mounted::new(image(), "");
    let path = m.at("f");
    let mut made = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    for write in ["of who made it", "of another", "through the cache"] {
        let mut another = match write {
            "of who made it" => None,
            _ => Some(OpenOptions::new().write(true).open(&path).unwrap()),
        };
        rustix::fs::setxattr(&path, "security.capability", &raw, XattrFlags::empty()).unwrap();
        another.as_mut().unwrap_or(&mut made).write_all(b"x").unwrap();
        let left = rustix::fs::getxattr(&path, "security.capability", &mut raw[..]);
        assert_eq!(left, Err(Errno::NODATA), "{write}");
        if write == "of another" {
            made = File::open(&path).unwrap();
        }
    }
    drop(made);
    m.unmount_clean();
}
