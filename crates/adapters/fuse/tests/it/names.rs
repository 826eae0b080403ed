//! Names, attributes and extended attributes.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use syncline_testkit::{Need, require, skip};

use crate::mounted::Mounted;
use crate::{NEEDS, errno, image};

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags)
}

#[test]
fn names() {
    if !require("names", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    fs::create_dir(m.at("d")).unwrap();
    fs::write(m.at("d/a"), "first").unwrap();
    fs::hard_link(m.at("d/a"), m.at("b")).unwrap();
    assert_eq!(fs::metadata(m.at("b")).unwrap().nlink(), 2);
    std::os::unix::fs::symlink("d/a", m.at("l")).unwrap();
    assert_eq!(fs::read_link(m.at("l")).unwrap(), Path::new("d/a"));
    assert_eq!(fs::read_to_string(m.at("l")).unwrap(), "first");
    assert_eq!(errno(File::open(m.at("none"))), 2);
    assert_eq!(errno(fs::create_dir(m.at("d"))), 17);
    assert_eq!(errno(fs::remove_dir(m.at("d"))), 39);
    assert_eq!(errno(fs::remove_dir(m.at("b"))), 20);
    assert_eq!(errno(fs::write(m.at("x".repeat(256)), "")), 36);
    fs::write(m.at("x".repeat(255)), "").unwrap();

    fs::write(m.at("c"), "second").unwrap();
    assert_eq!(rename(&m.at("c"), &m.at("b"), RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(&m.at("c"), &m.at("b"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(m.at("c")).unwrap(), "first");
    assert_eq!(fs::read_to_string(m.at("b")).unwrap(), "second");
    // Replaced while open: the old contents stay readable, then go.
    let mut open = File::open(m.at("b")).unwrap();
    fs::rename(m.at("c"), m.at("b")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "second");
    drop(open);
    assert_eq!(rename(&m.at("d"), &m.at("d/e"), RenameFlags::empty()), Err(Errno::INVAL));

    let mut found: Vec<_> =
        fs::read_dir(&m.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    found.sort();
    assert_eq!(found[..4], ["b", "d", "l", "lost+found"]);
    assert_eq!(found.len(), 5);
    m.unmount_clean();
    m.mount("");
    assert_eq!(fs::read_to_string(m.at("d/a")).unwrap(), "first");
    m.unmount_clean();
}

#[test]
fn large_directories_are_read_once_and_removed() {
    if !require("large_directories_are_read_once_and_removed", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    fs::create_dir(m.at("d")).unwrap();
    for nr in 0..3000 {
        fs::write(m.at(format!("d/file-{nr:05}")), "").unwrap();
    }
    let mut seen: Vec<_> = fs::read_dir(m.at("d"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            assert!(entry.file_type().unwrap().is_file());
            assert_eq!(entry.metadata().unwrap().ino(), entry.metadata().unwrap().ino());
            entry.file_name()
        })
        .collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3000);
    fs::remove_dir_all(m.at("d")).unwrap();
    m.unmount_clean();
}

#[test]
fn the_earliest_and_the_latest_time_are_those_of_ext4() {
    let test = "the_earliest_and_the_latest_time_are_those_of_ext4";
    if !require(test, &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    let path = m.at("f");
    fs::write(&path, "x").unwrap();
    for (asked, stored) in [(i64::MIN, -0x8000_0000), (i64::MAX, 0x3_7fff_ffff)] {
        let at = Timespec { tv_sec: asked, tv_nsec: 1 };
        let times = Timestamps { last_access: at, last_modification: at };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mtime(), stored, "{asked}");
    }
    m.unmount_clean();
}

#[test]
fn attributes() {
    if !require("attributes", &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    let path = m.at("f");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    let mode = || fs::symlink_metadata(&path).unwrap().mode() & 0o7777;
    assert_eq!(mode(), 0o6755);
    std::os::unix::fs::chown(&path, Some(1000), Some(1001)).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.uid(), meta.gid(), mode()), (1000, 1001, 0o755), "chown clears set-id bits");

    let at = |seconds| Timespec { tv_sec: seconds, tv_nsec: 5 };
    let times = Timestamps { last_access: at(1), last_modification: at(-7) };
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.atime(), meta.atime_nsec()), (1, 5));
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (-7, 5));

    // A set-group-id directory gives its group away.
    fs::create_dir(m.at("d")).unwrap();
    std::os::unix::fs::chown(m.at("d"), None, Some(77)).unwrap();
    fs::set_permissions(m.at("d"), fs::Permissions::from_mode(0o2775)).unwrap();
    fs::create_dir(m.at("d/e")).unwrap();
    let below = fs::metadata(m.at("d/e")).unwrap();
    assert_eq!((below.gid(), below.mode() & 0o2000), (77, 0o2000));

    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    set("user.note", b"text", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.note", b"x", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.other", b"x", XattrFlags::REPLACE), Err(Errno::NODATA));
    let mut buffer = [0; 64];
    assert_eq!(rustix::fs::getxattr(&path, "user.note", &mut buffer), Ok(4));
    assert_eq!(rustix::fs::listxattr(&path, &mut buffer), Ok(10));
    rustix::fs::removexattr(&path, "user.note").unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.note", &mut buffer), Err(Errno::NODATA));

    let made = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, m.at(name), kind, 0o600.into(), device).unwrap();
        fs::symlink_metadata(m.at(name)).unwrap()
    };
    assert!(made("pipe", rustix::fs::FileType::Fifo, 0).file_type().is_fifo());
    let device = rustix::fs::makedev(259, 70_000);
    let found = made("disk", rustix::fs::FileType::BlockDevice, device);
    assert!(found.file_type().is_block_device());
    assert_eq!(found.rdev(), device);
    // Devices of an image that nobody trusts do nothing.
    assert_eq!(File::open(m.at("disk")).unwrap_err().kind(), ErrorKind::PermissionDenied);

    let space = rustix::fs::statvfs(&m.dir).unwrap();
    assert!(space.f_bfree < space.f_blocks && space.f_bavail > 0 && space.f_ffree > 1000);
    m.unmount_clean();
}

/// False, and a skip of the test, on a kernel that does not ask FUSE for what it tests.
fn since(test: &str, major: u32, minor: u32) -> bool {
    let known = rustix::system::uname();
    let release = known.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let runs = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor);
    if !runs {
        skip(test, &format!("needs Linux {major}.{minor}"));
    }
    runs
}

#[test]
fn a_file_without_a_name_gets_one_from_the_program_that_has_it_open() {
    let test = "a_file_without_a_name_gets_one_from_the_program_that_has_it_open";
    if !require(test, &NEEDS) || !since(test, 6, 2) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    let made = |flags: OFlags| {
        let opened = rustix::fs::open(&m.dir, flags | OFlags::TMPFILE, Mode::from_raw_mode(0o640));
        opened.map(File::from)
    };
    let file = made(OFlags::RDWR).unwrap();
    let about = file.metadata().unwrap();
    assert_eq!((about.nlink(), about.mode()), (0, 0o100_640));
    (&file).write_all(b"first").unwrap();
    let open = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let link =
        |name: &str| rustix::fs::linkat(CWD, &open, CWD, m.at(name), AtFlags::SYMLINK_FOLLOW);
    link("a").unwrap();
    assert_eq!(link("a"), Err(Errno::EXIST));
    link("b").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 2);
    let hidden = made(OFlags::WRONLY | OFlags::EXCL).unwrap();
    let open = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&hidden));
    let named = rustix::fs::linkat(CWD, &open, CWD, m.at("c"), AtFlags::SYMLINK_FOLLOW);
    assert_eq!(named, Err(Errno::NOENT));
    (&hidden).write_all(b"never seen").unwrap();
    drop((file, hidden));
    assert_eq!(fs::read_to_string(m.at("b")).unwrap(), "first");
    fs::remove_file(m.at("a")).unwrap();
    m.unmount_clean();
    m.mount("");
    assert_eq!(fs::read_to_string(m.at("b")).unwrap(), "first");
    m.unmount_clean();
}

#[test]
fn the_time_of_birth_is_that_of_the_inode() {
    let test = "the_time_of_birth_is_that_of_the_inode";
    if !require(test, &NEEDS) || !since(test, 6, 6) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    let before = SystemTime::now();
    fs::write(m.at("f"), "").unwrap();
    let set = Timespec { tv_sec: 1_000, tv_nsec: 0 };
    let times = Timestamps { last_access: set, last_modification: set };
    rustix::fs::utimensat(CWD, m.at("f"), &times, AtFlags::empty()).unwrap();
    let about = fs::metadata(m.at("f")).unwrap();
    let born = about.created().unwrap();
    let slack = Duration::from_secs(1);
    assert!(born >= before - slack && born <= SystemTime::now() + slack, "{born:?}");
    assert_eq!(about.modified().unwrap(), UNIX_EPOCH + Duration::from_secs(1_000));
    assert_eq!((about.len(), about.nlink()), (0, 1));
    // Device numbers and types are those of stat(2), too.
    let null = fs::metadata("/dev/null").unwrap();
    if rustix::process::geteuid().is_root() {
        let device = null.rdev();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, m.at("n"), FileType::CharacterDevice, mode, device).unwrap();
        let about = fs::metadata(m.at("n")).unwrap();
        assert!(about.created().is_ok() && about.file_type().is_char_device());
        assert_eq!(about.rdev(), device);
    }
    m.unmount_clean();
    m.mount("");
    assert_eq!(fs::metadata(m.at("f")).unwrap().created().unwrap(), born);
    m.unmount_clean();
}
