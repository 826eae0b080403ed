//! `umount` beside other mounts of the same file system, and what mount(8) passes on.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support;
use crate::support::mounted::Mounted;
use crate::support::{binary, done, refused, run, scratch};
use rustix::fs::{CWD, StatVfsMountFlags, statvfs};
use rustix::mount::{OpenTreeFlags, UnmountFlags, mount_bind, open_tree, unmount};
use syncline_device::{Superblock, mount_of};
use syncline_testkit::{ImageSpec, Need, e2fsck_clean, mkfs, require};

const NEEDS: [Need; 3] = [Need::Fuse, Need::E2fsck, Need::Root];

/// Far longer than any answer here takes, far shorter than the wait for a process that is stuck.
const SOON: Duration = Duration::from_secs(60);

/// Runs `umount`, which must answer soon; gives its exit code and what it said.
fn umount(dir: &Path) -> (Option<i32>, String) {
    let mut command = binary();
    command.arg("umount").arg(dir).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > SOON {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("umount hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// A bind mount that goes with the test.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn the_unmount_of_a_bind_mount_waits_for_nobody() {
    if !require("the_unmount_of_a_bind_mount_waits_for_nobody", &NEEDS) {
        return;
    }
    let mut ours = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), "");
    std::fs::create_dir(ours.at("d")).unwrap();
    let place = scratch();
    let bound = Bound(place.path().to_owned());
    mount_bind(ours.at("d"), &bound.0).unwrap();
    assert_eq!(umount(&bound.0), (Some(0), String::new()));
    std::fs::write(ours.at("d/f"), "still there").unwrap();
    // The main mount goes first: the other one is served until it goes, too.
    mount_bind(ours.at("d"), &bound.0).unwrap();
    assert_eq!(umount(&ours.dir), (Some(0), String::new()));
    assert_eq!(std::fs::read_to_string(bound.0.join("f")).unwrap(), "still there");
    let image = ours.image.path().to_owned();
    assert_eq!(umount(&bound.0), (Some(0), String::new()));
    e2fsck_clean(&image).unwrap();
    ours.reap();
}

#[test]
fn a_mount_whose_server_died_is_named_with_the_command_that_detaches_it() {
    let name = "a_mount_whose_server_died_is_named_with_the_command_that_detaches_it";
    if !require(name, &NEEDS) {
        return;
    }
    let mut ours = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), "");
    std::fs::create_dir(ours.at("d")).unwrap();
    ours.kill_serving();
    // A request that is under way at its end has another error.
    let is_dead = |err: std::io::Error| err.kind() == std::io::ErrorKind::NotConnected;
    while !std::fs::File::create(ours.at("f")).is_err_and(is_dead) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (other, file) = (mkfs(&ImageSpec::with_size(16 << 20)), ours.at("d/f"));
    let to = format!("{}:/f", other.path().display());
    let said = refused(1, &[OsStr::new("cp"), file.as_os_str(), OsStr::new(&to)]);
    let advice = format!("`syncline umount {}`", ours.dir.display());
    assert!(said.contains("server of this mount died") && said.contains(&advice), "{said}");
    let (code, said) = umount(&ours.dir);
    assert!(code == Some(1) && said.contains("unmounted, but its journal"), "{said}");
    ours.bury();
}

#[test]
fn an_unmount_does_not_wait_for_another_mount_namespace() {
    let name = "an_unmount_does_not_wait_for_another_mount_namespace";
    if !require(name, &NEEDS) {
        return;
    }
    let mut ours = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), "");
    // A copy of this mount alone. `unshare -m` would copy every mount of the machine, and where
    // mounts are private it would hold those of the other tests as well.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let other = open_tree(CWD, &ours.dir, flags).unwrap();
    let (code, said) = umount(&ours.dir);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("stays in use") && said.lines().count() == 1, "{said}");
    drop(other);
    ours.reap();
    e2fsck_clean(ours.image.path()).unwrap();
}

/// Mounts come and go beside each other, so that their numbers pass from one to the next.
#[test]
fn a_mount_with_the_number_of_another_is_not_that_one() {
    if !require("a_mount_with_the_number_of_another_is_not_that_one", &NEEDS) {
        return;
    }
    let mut ours = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), "");
    let mut numbers = Vec::new();
    // The kernel gives the lowest free number; other tests may be faster now and then.
    for _ in 0..50 {
        let entry = mount_of(&ours.dir).unwrap();
        let superblock = Superblock::of(&entry).unwrap();
        assert!(superblock.lives());
        ours.unmount_clean();
        ours.mount("");
        assert!(!superblock.lives(), "{entry:?}");
        numbers.push(entry.device);
        if mount_of(&ours.dir).unwrap().device == entry.device {
            return ours.unmount_clean();
        }
    }
    panic!("no number was given twice: {numbers:?}");
}

/// The kernel may let go of a file a moment after the program has.
#[test]
fn a_mount_that_is_busy_for_a_moment_is_unmounted() {
    if !require("a_mount_that_is_busy_for_a_moment_is_unmounted", &NEEDS) {
        return;
    }
    let mut ours = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), "");
    let file = File::create(ours.at("f")).unwrap();
    let dir = ours.dir.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(file);
        });
        let ran = run(&[OsStr::new("umount"), dir.as_os_str()]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    });
    ours.reap();
}

/// mount(8) takes `suid` and `dev` for the defaults and passes neither on.
#[test]
fn set_id_bits_and_devices_are_allowed_by_words_that_mount_passes_on() {
    let name = "set_id_bits_and_devices_are_allowed_by_words_that_mount_passes_on";
    if !require(name, &NEEDS) {
        return;
    }
    let refused = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV;
    for (options, flags) in [
        ("nodiratime,errors=remount-ro", refused),
        ("suid,dev,barrier=1,stripe=16,x-systemd.automount", StatVfsMountFlags::empty()),
        ("allow_suid,allow_dev", StatVfsMountFlags::empty()),
    ] {
        let mut ours = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), options);
        assert_eq!(statvfs(&ours.dir).unwrap().f_flag & refused, flags, "{options}");
        ours.unmount_clean();
    }
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let dir = scratch();
    let words = ["mount", "-o", "nobarrier"].map(OsStr::new);
    let places = [image.path().as_os_str(), dir.path().as_os_str()];
    let said = support::refused(2, &[&words[..], &places[..]].concat());
    assert!(said.contains("`nobarrier`: the device is always flushed"), "{said}");
}

/// A disk with two partitions, as a file and as a VHDX: each is mounted by number and by offset.
#[test]
fn a_part_of_a_disk_is_mounted_and_nothing_else_is_touched() {
    let test = "a_part_of_a_disk_is_mounted_and_nothing_else_is_touched";
    if !require(test, &NEEDS) {
        return;
    }
    let scratch = scratch();
    let (disk, dir) = (scratch.path().join("disk"), scratch.path().join("dir"));
    std::fs::create_dir(&dir).unwrap();
    let volume = std::fs::read(mkfs(&ImageSpec::with_size(32 << 20)).path()).unwrap();
    let mut bytes = vec![0x77; 1 << 20];
    bytes[..512].fill(0);
    for (number, start) in [(0, 2048_u32), (1, 2048 + 65536)] {
        let entry = 446 + 16 * number;
        bytes[entry..entry + 16].fill(0);
        bytes[entry + 4] = 0x83;
        bytes[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
        bytes[entry + 12..entry + 16].copy_from_slice(&65536_u32.to_le_bytes());
    }
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    bytes.extend([&volume[..], &volume, &[0x77; 1 << 20]].concat());
    std::fs::write(&disk, &bytes).unwrap();
    let (disk_text, dir_text) = (support::text(&disk), support::text(&dir));
    let mounted = |how: &[&str], image: &str, work: &dyn Fn()| {
        done(&[&["mount"], how, &[image, dir_text]].concat());
        work();
        done(&["umount", dir_text]);
    };
    let write = |name: &'static str| {
        let path = dir.join(name);
        move || std::fs::write(&path, name).unwrap()
    };
    mounted(&["--partition", "2"], disk_text, &write("second"));
    mounted(&["-o", "offset=1M"], disk_text, &write("first"));
    mounted(&["-o", "partition=2,ro"], disk_text, &|| {
        assert!(dir.join("second").exists() && !dir.join("first").exists());
        let status = done(&["status", "--json", dir_text]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        assert_eq!((&status["partition"], &status["offset_bytes"]), (&2.into(), &().into()));
        done(&["mount", "-o", "remount,rw", disk_text, dir_text]);
        write("later")();
    });
    let after = std::fs::read(&disk).unwrap();
    let end = after.len() - (1 << 20);
    assert!(after[..1 << 20] == bytes[..1 << 20] && after[end..] == bytes[end..]);
    for (number, names) in [("1", "first\nlost+found\n"), ("2", "later\nlost+found\nsecond\n")] {
        let listed = done(&["ls", "--partition", number, &support::at(&disk, "/")]);
        assert_eq!(listed, names);
        done(&["recover", "--partition", number, disk_text]);
    }
    let said = refused(2, &["mount", "--partition", "3", disk_text, dir_text]);
    assert!(said.contains("no partition 3; there are 1 (type 83, 32 MiB, ext4), 2"), "{said}");
    let vhdx = scratch.path().join("disk.vhdx");
    let mut convert = std::process::Command::new("qemu-img");
    let convert = convert.args(["convert", "-O", "vhdx"]).args([&disk, &vhdx]).status();
    if !convert.is_ok_and(|status| status.success()) {
        return syncline_testkit::skip(test, "needs qemu-img; run `make deps` as root");
    }
    mounted(&["--partition", "2", "-o", "ro"], support::text(&vhdx), &|| {
        assert_eq!(std::fs::read_to_string(dir.join("later")).unwrap(), "later");
    });
    let said = refused(4, &["mount", "--partition", "2", support::text(&vhdx), dir_text]);
    assert!(said.contains("only read; mount it with `-o ro`"), "{said}");
}
