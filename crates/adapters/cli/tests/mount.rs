//! `mount`, `umount` and `status`, through the kernel: what programs see, and who is refused.

mod support;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use support::mounted::Mounted;
use support::{done, refused, run};
use syncline_testkit::{ImageSpec, Need, TempImage, e2fsck_clean, mkfs, require, skip};

const NEEDS: [Need; 2] = [Need::Fuse, Need::E2fsck];
/// How long what other threads do may be in the way.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

fn image() -> TempImage {
    mkfs(&ImageSpec::with_size(64 << 20))
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

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

#[test]
fn background_status_and_unmount() {
    if !require("background_status_and_unmount", &NEEDS) {
        return;
    }
    let (image, scratch) = (image(), support::scratch());
    let dir = scratch.path();
    let here = [image.path().as_os_str(), dir.as_os_str()];
    // Silent, and ready when it returns.
    assert_eq!(done(&[&[OsStr::new("mount")], &here[..]].concat()), "");
    let mut file = File::create(dir.join("f")).unwrap();
    file.write_all(&[1; 5000]).unwrap();
    file.sync_all().unwrap();
    let shown = done(&[OsStr::new("status"), dir.as_os_str()]);
    assert!(shown.contains("sync=eager") && shown.contains("syncs     1,"), "{shown}");
    let json = done(&[OsStr::new("status"), OsStr::new("--json"), dir.as_os_str()]);
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(status["schema"], "syncline.status/1");
    assert_eq!(status["requests"]["app_bytes"], 5000);
    assert_eq!(status["open_files"], 1);
    assert!(status["device"]["flushes"].as_u64() >= Some(2), "{status}");
    let set = rustix::fs::setxattr(dir, "user.syncline.status", b"", XattrFlags::empty());
    assert_eq!(set, Err(Errno::PERM));
    assert_eq!(rustix::fs::listxattr(dir, &mut [0; 64][..]), Ok(0), "it is not listed");

    let second = support::scratch();
    let again = [OsStr::new("mount"), here[0], second.path().as_os_str()];
    let said = refused(1, &again);
    assert!(said.contains("already mounted on"), "{said}");
    let busy = refused(1, &[OsStr::new("umount"), dir.as_os_str()]);
    assert!(busy.contains("fuser -vm"), "{busy}");
    drop(file);
    assert_eq!(done(&[OsStr::new("umount"), dir.as_os_str()]), "");
    e2fsck_clean(image.path()).unwrap();
    let said = refused(1, &[OsStr::new("umount"), dir.as_os_str()]);
    assert!(said.contains("nothing is mounted there"), "{said}");
    let said = refused(1, &[OsStr::new("status"), dir.as_os_str()]);
    assert!(said.contains("not the root of a syncline mount"), "{said}");
}

#[test]
fn what_cannot_be_mounted_is_refused() {
    if !require("what_cannot_be_mounted_is_refused", &NEEDS) {
        return;
    }
    let (image, scratch) = (image(), support::scratch());
    let dir = scratch.path().as_os_str();
    let mount = OsStr::new("mount");
    let with = |options: &'static str, image: &Path| {
        [mount, OsStr::new("-o"), OsStr::new(options), image.as_os_str(), dir].map(OsStr::to_owned)
    };
    let said = refused(2, &with("noatmie", image.path()));
    assert!(said.contains("`noatime`"), "{said}");
    let said = refused(2, &with("alow_other", image.path()));
    assert!(said.contains("`allow_other`"), "{said}");
    let empty = TempImage::zeroed(1 << 20);
    refused(3, &with("ro", empty.path()));
    refused(1, &with("ro", Path::new("/no/such/image")));
    let file = support::file(scratch.path(), "file", "");
    refused(1, &[mount, image.path().as_os_str(), file.as_os_str()]);
    let mmp = mkfs(&ImageSpec { features: "mmp".into(), ..ImageSpec::default() });
    let said = refused(4, &with("rw", mmp.path()));
    assert!(said.contains("mmp") && said.contains("`ro`"), "{said}");
    e2fsck_clean(image.path()).unwrap();
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_refused() {
    let needs = [Need::Fuse, Need::E2fsck, Need::Root, Need::Loop];
    if !require("an_image_that_the_kernel_has_mounted_is_refused", &needs) {
        return;
    }
    let (image, scratch) = (image(), support::scratch());
    let kernel = syncline_testkit::KernelMount::new(image.path(), "").unwrap();
    let said =
        refused(1, &[OsStr::new("mount"), image.path().as_os_str(), scratch.path().as_os_str()]);
    assert!(said.contains("(ext4)"), "{said}");
    kernel.unmount().unwrap();
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

#[test]
fn a_mount_is_made_read_only_and_writable_again() {
    if !require("a_mount_is_made_read_only_and_writable_again", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "sync=ordered");
    let remount = |m: &Mounted, how: &str| {
        // As mount(8) calls its helper: with the options that the mount table shows.
        let options = format!("rw,nosuid,nodev,relatime,user_id=0,default_permissions,{how}");
        let options = ["mount", "-o", &options].map(OsStr::new);
        run(&[&options[..], &[m.image.path().as_os_str(), m.dir.as_os_str()]].concat())
    };
    let shown = |m: &Mounted| {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.contains(m.dir.to_str().unwrap())).unwrap();
        line.split(' ').nth(5).unwrap().to_owned()
    };
    fs::write(m.at("f"), [1; 100_000]).unwrap();
    let open = OpenOptions::new().write(true).open(m.at("f")).unwrap();
    let busy = remount(&m, "remount,ro");
    assert_eq!(busy.code, 1);
    assert!(busy.err.contains("fuser -vm"), "{}", busy.err);
    drop(open);

    assert_eq!(remount(&m, "remount,ro").code, 0);
    assert_eq!(shown(&m), "ro,nosuid,nodev,relatime");
    assert_eq!(errno(fs::write(m.at("g"), "")), 30);
    let status = run(&[OsStr::new("status"), OsStr::new("--json"), m.dir.as_os_str()]).text();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["dirty_bytes"], 0);

    assert_eq!(remount(&m, "remount,rw,noexec").code, 0);
    assert_eq!(shown(&m), "rw,nosuid,nodev,noexec,relatime");
    fs::write(m.at("g"), "x").unwrap();
    m.unmount_clean();

    m.mount("ro");
    assert!(remount(&m, "remount,rw").err.contains("opened for reading only"));
    assert_eq!(remount(&m, "remount,ro").code, 0);
    m.unmount_clean();
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
            Err(err) if err.raw_os_error() == Some(26) && began.elapsed() < PATIENCE => {
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

#[test]
fn a_write_protected_device_is_mounted_read_only_or_not_at_all() {
    let name = "a_write_protected_device_is_mounted_read_only_or_not_at_all";
    if !require(name, &[Need::Fuse, Need::E2fsck, Need::Root, Need::Loop]) {
        return;
    }
    let (image, scratch) = (image(), support::scratch());
    let before = image.bytes();
    let device = syncline_testkit::LoopDevice::attach_read_only(image.path()).unwrap();
    let (node, dir) = (device.node().as_os_str(), scratch.path().as_os_str());
    let said = refused(1, &[OsStr::new("mount"), node, dir]);
    assert!(said.contains("-o ro"), "{said}");
    done(&[OsStr::new("mount"), OsStr::new("-o"), OsStr::new("ro"), node, dir]);
    assert_eq!(errno(fs::write(scratch.path().join("f"), "")), 30);
    done(&[OsStr::new("umount"), dir]);
    assert!(image.bytes() == before);
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
            assert!(began.elapsed() < PATIENCE, "{options}: the space does not come back");
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

#[test]
fn a_signal_unmounts_cleanly_also_with_files_open() {
    if !require("a_signal_unmounts_cleanly_also_with_files_open", &NEEDS) {
        return;
    }
    for open in [false, true] {
        let mut m = Mounted::new(image(), "");
        fs::write(m.at("f"), "kept").unwrap();
        let file = open.then(|| File::open(m.at("f")).unwrap());
        m.terminate();
        drop(file);
        e2fsck_clean(m.image.path()).unwrap();
        assert_eq!(fs::read_dir(&m.dir).unwrap().count(), 0, "the directory is empty again");
        m.mount("");
        assert_eq!(fs::read_to_string(m.at("f")).unwrap(), "kept");
        m.unmount_clean();
    }
}

/// As a user without any privileges, through fusermount3.
#[test]
fn without_root() {
    if !require("without_root", &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    let device = fs::metadata("/dev/fuse").unwrap();
    if device.mode() & 0o006 != 0o006 || !Path::new("/usr/bin/fusermount3").exists() {
        return skip("without_root", "needs fusermount3 and a /dev/fuse that users may open");
    }
    let (image, scratch) = (image(), support::scratch());
    let dir = scratch.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    for path in [image.path(), scratch.path(), &dir] {
        std::os::unix::fs::chown(path, Some(1000), Some(1000)).unwrap();
    }
    let script = r#"set -e
"$0" mount -o uid=1000,gid=1000 "$1" "$2"
echo text > "$2/f"; mkdir "$2/d"; stat -c '%u %a' "$2/f" "$2/lost+found"
! chown 5 "$2/f" 2> /dev/null; ! "$0" mount -o allow_other "$1" "$2" 2> /dev/null
"$0" status "$2" > /dev/null; "$0" umount "$2""#;
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_syncline"))
        .args([image.path(), &dir])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{err}");
    assert_eq!(text, "1000 644\n1000 700\n");
    e2fsck_clean(image.path()).unwrap();
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
    let syncs = || {
        let mut buffer = vec![0; 1 << 16];
        let n = rustix::fs::getxattr(&m.dir, "user.syncline.status", &mut buffer[..]).unwrap();
        let status: serde_json::Value = serde_json::from_slice(&buffer[..n]).unwrap();
        status["syncs"]["operations"].as_u64().unwrap()
    };
    const DIRECT: i32 = 0o40_000;
    for flags in [0o10_000, 0o4_010_000, DIRECT | 0o10_000, DIRECT | 0o4_010_000] {
        let mut file = OpenOptions::new().write(true).custom_flags(flags).open(&path).unwrap();
        let before = syncs();
        let block = aligned();
        file.write_all(block.as_slice()).unwrap();
        file.write_all(block.as_slice()).unwrap();
        // Of a direct write twice: the kernel's fsync comes behind it, but not if it is
        // asynchronous.
        let each = if flags & DIRECT == 0 { 1 } else { 2 };
        assert_eq!(syncs() - before, 2 * each, "flags {flags:o}");
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

#[test]
fn helpers_of_mount_and_umount() {
    if !require("helpers_of_mount_and_umount", &NEEDS) {
        return;
    }
    let (image, scratch) = (image(), support::scratch());
    let dir = scratch.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    let called = |name: &str, arguments: &[&OsStr]| {
        let link = scratch.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_syncline"), &link).unwrap();
        std::process::Command::new(link).args(arguments).status().unwrap().code()
    };
    let options = ["-s", "-o", "rw,nofail,sync=ordered", "-t", "fuse.syncline"].map(OsStr::new);
    let mount = [&[image.path().as_os_str(), dir.as_os_str()], &options[..]].concat();
    assert_eq!(called("mount.fuse.syncline", &mount), Some(0));
    let status = run(&[OsStr::new("status"), dir.as_os_str()]).text();
    assert!(status.contains("sync=ordered"), "{status}");
    assert_eq!(called("umount.fuse.syncline", &[dir.as_os_str(), OsStr::new("-n")]), Some(0));
    e2fsck_clean(image.path()).unwrap();
}
