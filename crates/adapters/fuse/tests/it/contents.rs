//! Contents of files, and what becomes of writes.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use syncline_testkit::{ImageSpec, TIMEOUT, mkfs, require};

use crate::mounted::Mounted;
use crate::{NEEDS, errno, image};

#[test]
fn contents() {
    if !require("contents", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    let path = m.at("f");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&[7; 10_000]).unwrap();
    file.write_at(b"tail", 3 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (3 << 20) + 4);
    // A hole is one, to lseek and to du.
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)), Ok(12_288));
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(20_000)), Ok(3 << 20));
    assert!(file.metadata().unwrap().blocks() < 100);
    let beyond = rustix::fs::SeekFrom::Data(4 << 20);
    assert_eq!(rustix::fs::seek(&file, beyond), Err(Errno::NXIO));

    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 100, 5000).unwrap();
    let mut bytes = [1; 10_000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..100].iter().chain(&bytes[5100..]).all(|byte| *byte == 7));
    assert!(bytes[100..5100].iter().all(|byte| *byte == 0));
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 8 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8 << 20);
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 4096).unwrap();
    let collapse = FallocateFlags::COLLAPSE_RANGE;
    assert_eq!(rustix::fs::fallocate(&file, collapse, 0, 4096), Err(Errno::OPNOTSUPP));

    file.set_len(5000).unwrap();
    file.set_len(9000).unwrap();
    file.read_exact_at(&mut bytes[..9000], 0).unwrap();
    assert!(bytes[5100..9000].iter().all(|byte| *byte == 0), "what was cut off stays off");
    file.sync_data().unwrap();

    let copy = File::create(m.at("copy")).unwrap();
    assert_eq!(rustix::fs::copy_file_range(&file, Some(&mut 0), &copy, None, 9000), Ok(9000));
    assert_eq!(fs::read(m.at("copy")).unwrap(), fs::read(&path).unwrap());
    assert_eq!(errno(file.read_at(&mut bytes, u64::MAX - 5)), 22);

    let mut appended = OpenOptions::new().append(true).open(m.at("copy")).unwrap();
    appended.write_all(b"more").unwrap();
    assert_eq!(appended.stream_position().unwrap(), 9004);
    appended.seek(SeekFrom::Start(0)).unwrap();
    let direct = OpenOptions::new().write(true).custom_flags(0o40000).open(m.at("copy"));
    direct.unwrap().write_all(&vec![9; 8192]).unwrap();
    assert_eq!(fs::read(m.at("copy")).unwrap()[..8192], [9; 8192]);
    File::create(m.at("copy")).unwrap();
    assert_eq!(fs::metadata(m.at("copy")).unwrap().len(), 0);
    let (here, now) = (fs::metadata(&m.dir).unwrap(), fs::metadata(&path).unwrap());
    assert_eq!((here.ino(), here.dev()), (2, now.dev()));
    drop((file, copy, appended));
    m.unmount_clean();
}

#[test]
fn a_read_only_mount_writes_nothing() {
    if !require("a_read_only_mount_writes_nothing", &NEEDS) {
        return;
    }
    let image = image();
    let before = image.bytes();
    let mut m = Mounted::new(image, "ro");
    assert_eq!(errno(fs::write(m.at("f"), "")), 30);
    fs::read_dir(m.at("lost+found")).unwrap().for_each(drop);
    m.unmount_clean();
    assert!(m.image.bytes() == before);
}

/// `cp` finds holes by lseek; the kernel has written data that it has not sent.
#[test]
fn sparse_copies_of_what_the_kernel_has_not_sent() {
    if !require("sparse_copies_of_what_the_kernel_has_not_sent", &NEEDS) {
        return;
    }
    for options in ["writeback_cache", ""] {
        let mut m = Mounted::new(image(), options);
        let path = m.at("f");
        let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
        file.set_len(4 << 20).unwrap();
        file.write_all_at(&[7; 9000], 1 << 20).unwrap();
        file.write_all_at(&[8; 5], 3 << 20).unwrap();
        let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0));
        assert!(data.is_ok_and(|at| at <= 1 << 20), "{options}: {data:?}");
        for sparse in ["always", "auto", "never"] {
            let copy = m.at(sparse);
            let mut cp = std::process::Command::new("cp");
            let status = cp.arg(format!("--sparse={sparse}")).args([&path, &copy]).status();
            assert!(status.unwrap().success());
            assert!(fs::read(&copy).unwrap() == fs::read(&path).unwrap(), "{options} {sparse}");
        }
        assert!(fs::metadata(m.at("always")).unwrap().blocks() < 200, "{options}");
        drop(file);
        m.unmount_clean();
    }
}

/// The kernel refuses to write to a program that runs; nothing is lost by the attempt.
#[test]
fn a_running_program_is_not_cut() {
    if !require("a_running_program_is_not_cut", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    let program = m.at("program");
    fs::copy("/bin/sleep", &program).unwrap();
    let before = fs::read(&program).unwrap();
    let began = std::time::Instant::now();
    let mut child = loop {
        // A process that another test thread is just starting may have our copy open for writing.
        match std::process::Command::new(&program).arg("600").spawn() {
            Err(err) if err.raw_os_error() == Some(26) && began.elapsed() < TIMEOUT => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            started => break started.unwrap(),
        }
    };
    let cut = OpenOptions::new().write(true).truncate(true).open(&program);
    let seen = fs::read(&program);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(errno(cut), 26);
    assert!(seen.unwrap() == before, "the program is as it was");
    // Once it has ended it can be.
    drop(OpenOptions::new().write(true).truncate(true).open(&program).unwrap());
    assert_eq!(fs::metadata(&program).unwrap().len(), 0);
    m.unmount_clean();
}

/// ENOSPC comes with the write that finds no room, not later, and only as long as there is none.
#[test]
fn a_full_mount_says_so_and_goes_on() {
    if !require("a_full_mount_says_so_and_goes_on", &NEEDS) {
        return;
    }
    for options in ["", "sync=ordered"] {
        let mut m = Mounted::new(mkfs(&ImageSpec::with_size(32 << 20)), options);
        let file = File::create(m.at("big")).unwrap();
        let full = (0..64u64).find_map(|at| file.write_all_at(&[5; 1 << 20], at << 20).err());
        assert_eq!(full.expect("the volume has 32 MiB").raw_os_error(), Some(28), "{options}");
        file.sync_all().unwrap();
        assert_eq!(errno(fs::write(m.at("more"), vec![1; 4 << 20])), 28);
        fs::read_dir(&m.dir).unwrap().for_each(drop);
        drop(file);
        fs::remove_file(m.at("big")).unwrap();
        // Linux tells the mount that the file is gone only after unlink(2) has returned.
        let began = std::time::Instant::now();
        while rustix::fs::statvfs(&m.dir).unwrap().f_bfree < 1024 {
            assert!(began.elapsed() < TIMEOUT, "{options}: the space does not come back");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        fs::write(m.at("more"), [1; 1 << 16]).unwrap();
        File::open(m.at("more")).unwrap().sync_all().unwrap();
        m.unmount_clean();
        m.mount(options);
        assert!(fs::read(m.at("more")).unwrap() == [1; 1 << 16]);
        m.unmount_clean();
    }
}

/// Each call reaches the volume before it returns.
#[test]
fn synchronous_writes_are_synced() {
    if !require("synchronous_writes_are_synced", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    let path = m.at("f");
    fs::write(&path, [1; 8192]).unwrap();
    let syncs = || m.status()["syncs"]["operations"].as_u64().unwrap();
    const DIRECT: i32 = 0o40_000;
    for flags in [0o10_000, 0o4_010_000, DIRECT | 0o10_000, DIRECT | 0o4_010_000] {
        let mut file = OpenOptions::new().write(true).custom_flags(flags).open(&path).unwrap();
        let before = syncs();
        let block = aligned();
        file.write_all(block.as_slice()).unwrap();
        file.write_all(block.as_slice()).unwrap();
        // Of a direct write twice: the kernel's fsync comes behind it. It does not if the write is
        // asynchronous, or if the close of a file that bypassed the cache comes after this open.
        let most = if flags & DIRECT == 0 { 2 } else { 4 };
        assert!((2..=most).contains(&(syncs() - before)), "flags {flags:o}");
    }
    // A new file is written past the kernel's cache.
    for flags in [0o10_000, 0o4_010_000] {
        let new = m.at(format!("new{flags:o}"));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).custom_flags(flags).open(&new).unwrap();
        let before = syncs();
        file.write_all(&[3; 5000]).unwrap();
        file.write_all(&[4; 100]).unwrap();
        assert_eq!(syncs() - before, 2, "flags {flags:o}");
        assert_eq!(fs::read(&new).unwrap(), [vec![3; 5000], vec![4; 100]].concat());
    }
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let before = syncs();
    file.sync_data().unwrap();
    File::open(&m.dir).unwrap().sync_all().unwrap();
    assert_eq!(syncs() - before, 2, "also of a directory, and of what is clean");
    drop(file);
    m.unmount_clean();
}

#[repr(align(4096))]
struct Block([u8; 4096]);

impl Block {
    fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

fn aligned() -> Block {
    Block([2; 4096])
}
