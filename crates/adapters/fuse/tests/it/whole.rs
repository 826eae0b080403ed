//! Requests to a whole volume: free blocks discarded, the end as if by a crash, and a mount as the
//! upper layer of overlayfs.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, RenameFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount};
use syncline_testkit::{Need, require, skip};

use crate::mounted::{Mounted, scratch};
use crate::{NEEDS, errno, image};

const FITRIM: u32 = 0xc018_5879;
const SHUTDOWN: u32 = 0x8004_587d;

/// Discards what is free; the bytes discarded, or the number of the error.
fn trim(dir: &Path, start: u64, len: u64, least: u64) -> Result<u64, i32> {
    let dir = File::open(dir).unwrap();
    let mut range = [start, len, least];
    let number = libc::c_ulong::from(FITRIM);
    // SAFETY: a valid descriptor; the number says that 24 bytes are read and written.
    let done = unsafe { libc::ioctl(dir.as_raw_fd(), number as _, range.as_mut_ptr()) };
    let failed = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    if done == 0 { Ok(range[1]) } else { Err(failed) }
}

#[test]
fn free_blocks_of_an_image_file_are_punched() {
    if !require("free_blocks_of_an_image_file_are_punched", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    let kept = vec![7; 3 << 20];
    fs::write(m.at("kept"), &kept).unwrap();
    fs::write(m.at("gone"), vec![8; 24 << 20]).unwrap();
    File::open(m.at("gone")).unwrap().sync_all().unwrap();
    fs::remove_file(m.at("gone")).unwrap();
    // Its blocks are free once the removal has committed and the log has no copy of them.
    let dir = File::open(&m.dir).unwrap();
    let host_bytes = |m: &Mounted| fs::metadata(m.image.path()).unwrap().blocks() * 512;
    let before = host_bytes(&m);
    let began = std::time::Instant::now();
    while host_bytes(&m) + (20 << 20) > before {
        assert!(began.elapsed() < syncline_testkit::TIMEOUT, "{} bytes left", host_bytes(&m));
        dir.sync_all().unwrap();
        assert!(trim(&m.dir, 0, u64::MAX, 0).unwrap() > 20 << 20);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(trim(&m.dir, u64::MAX / 2, 4096, 0), Err(libc::EINVAL));
    assert_eq!(trim(&m.dir, 0, 100, 0), Err(libc::EINVAL));
    let said = Command::new("fstrim").arg("-v").arg(&m.dir).output();
    if let Ok(said) = said {
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }
    drop(dir);
    m.unmount_clean();
    m.mount("");
    assert_eq!(fs::read(m.at("kept")).unwrap(), kept);
    m.unmount_clean();
}

#[test]
fn only_who_administers_trims_and_shuts_down() {
    let needs = [Need::Fuse, Need::E2fsck, Need::Root];
    if !require("only_who_administers_trims_and_shuts_down", &needs) {
        return;
    }
    let mut m = Mounted::new(image(), "allow_other");
    let code = format!(
        "import fcntl,os,sys\nos.setuid(1234)\nfd=os.open(sys.argv[1],os.O_RDONLY)\n\
         for n in ({FITRIM},{SHUTDOWN}):\n try:\n  fcntl.ioctl(fd,n,bytes(24))\n  print('done')\n \
         except PermissionError: print('refused')\n"
    );
    let asked = Command::new("python3").args(["-c", &code]).arg(&m.dir).output();
    let Ok(asked) = asked else { return };
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert_eq!(said, "refused\nrefused\n", "{}", String::from_utf8_lossy(&asked.stderr));
    fs::write(m.at("f"), "still served").unwrap();
    m.unmount_clean();
}

#[test]
fn after_a_shutdown_nothing_is_served_and_all_is_there_again() {
    if !require("after_a_shutdown_nothing_is_served", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    let contents = vec![9; 300_000];
    fs::write(m.at("f"), &contents).unwrap();
    let dir = File::open(&m.dir).unwrap();
    let number = libc::c_ulong::from(SHUTDOWN);
    let mut flags = 2u32;
    // SAFETY: a valid descriptor; the number says that four bytes are written.
    let done = unsafe { libc::ioctl(dir.as_raw_fd(), number as _, &raw mut flags) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    assert_eq!(errno(File::open(m.at("f"))), libc::EIO);
    assert_eq!(errno(fs::write(m.at("g"), "x")), libc::EIO);
    assert_eq!(errno(fs::remove_file(m.at("f"))), libc::EIO);
    assert_eq!(errno(dir.sync_all()), libc::EIO);
    drop(dir);
    m.kill();
    m.mount("");
    assert_eq!(fs::read(m.at("f")).unwrap(), contents);
    m.unmount_clean();
}

/// An overlay; unmounted when it goes.
struct Overlay<'a>(&'a Path);

impl Drop for Overlay<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_mount_is_an_upper_layer_of_overlayfs() {
    let needs = [Need::Fuse, Need::E2fsck, Need::Root];
    if !require("a_mount_is_an_upper_layer_of_overlayfs", &needs) {
        return;
    }
    let types = fs::read_to_string("/proc/filesystems").unwrap();
    if !types.lines().any(|line| line.ends_with("\toverlay")) {
        skip("a_mount_is_an_upper_layer_of_overlayfs", "this kernel has no overlayfs");
        return;
    }
    let below = scratch();
    let at = |path: &str| below.path().join(path);
    for dir in ["lower", "lower/dir", "merged"] {
        fs::create_dir(at(dir)).unwrap();
    }
    for file in ["moved", "removed", "changed", "dir/inside"] {
        fs::write(at("lower").join(file), file).unwrap();
    }
    let mut m = Mounted::new(image(), "");
    fs::create_dir(m.at("upper")).unwrap();
    fs::create_dir(m.at("work")).unwrap();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        at("lower").display(),
        m.at("upper").display(),
        m.at("work").display()
    );
    let options = std::ffi::CString::new(options).unwrap();
    let merged = at("merged");
    mount("overlay", &merged, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
    let overlay = Overlay(&merged);
    let names = |dir: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    fs::rename(merged.join("moved"), merged.join("there")).unwrap();
    fs::remove_file(merged.join("removed")).unwrap();
    fs::write(merged.join("changed"), "new").unwrap();
    fs::remove_dir_all(merged.join("dir")).unwrap();
    fs::create_dir(merged.join("dir")).unwrap();
    assert_eq!(names(&merged), ["changed", "dir", "there"]);
    assert_eq!(names(&merged.join("dir")), [""; 0]);
    drop(overlay);
    let whiteout = |name: &str| {
        let found = fs::symlink_metadata(m.at("upper").join(name)).unwrap();
        found.file_type().is_char_device() && found.rdev() == 0
    };
    assert!(whiteout("moved") && whiteout("removed"));
    m.unmount_clean();

    // The kernel's own ext4 rules of a whiteout: by hand, and after the next mount.
    m.mount("");
    fs::write(m.at("old"), "x").unwrap();
    rustix::fs::renameat_with(CWD, m.at("old"), CWD, m.at("new"), RenameFlags::WHITEOUT).unwrap();
    assert!(fs::symlink_metadata(m.at("old")).unwrap().file_type().is_char_device());
    assert_eq!(fs::read_to_string(m.at("new")).unwrap(), "x");
    mount("overlay", &merged, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
    let overlay = Overlay(&merged);
    assert_eq!(names(&merged), ["changed", "dir", "there"]);
    assert_eq!(fs::read_to_string(merged.join("there")).unwrap(), "moved");
    assert_eq!(fs::read_to_string(merged.join("changed")).unwrap(), "new");
    drop(overlay);
    m.unmount_clean();
}
