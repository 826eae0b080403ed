//! `sandbox=`: the work of a mount needs no right that it has given up.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::mounted::Mounted;
use crate::support::{binary, run, scratch};
use syncline_testkit::{
    ImageSpec, LoopDevice, Need, UringOffer, e2fsck_clean, mkfs, require, skip,
};

/// Mount options, each for other system calls.
const OPTIONS: [&str; 5] =
    ["discard", "writeback_cache", "log=packed", "sync=periodic", "threads=3,affinity=none"];

/// Refusals that are expected: of the number of processors, for the C library's arenas of memory;
/// of a limit, where root may not raise it; of the device, where it is root's alone.
const EXPECTED: [&str; 5] =
    ["/proc/self/cgroup", "/proc/stat", "/sys/devices/system/cpu", "RLIMIT_NICE", "\"/dev/fuse\""];

const WORK: &str = r#"set -e; m=$0
mkdir $m/d; for i in $(seq 50); do echo hello > $m/d/$i; done; sync -f $m
dd if=/dev/zero of=$m/big bs=1M count=8 conv=fsync status=none
rm $m/d/1; mv $m/d/2 $m/d/3; ln $m/d/4 $m/l; ln -s x $m/sl; mkfifo $m/p
fallocate -l 4M $m/fa; fallocate -p -o 0 -l 64K $m/big; truncate -s 3 $m/big
chmod 2755 $m/d/5; chgrp 7 $m/d/5; touch -d @0 $m/d/6
find $m > /dev/null; cat $m/d/* > /dev/null"#;

pub(crate) fn worked_in(dir: &Path) {
    let done = Command::new("sh").arg("-c").arg(WORK).arg(dir).status().unwrap();
    assert!(done.success());
}

fn worked(dir: &Path) {
    worked_in(dir);
    for words in [&["sync"][..], &["set", "dirty_ratio=15", "power=on"]] {
        let mut command = binary();
        command.arg("ctl").arg(words[0]).arg(dir).args(&words[1..]);
        assert!(command.stdout(Stdio::null()).status().unwrap().success(), "{words:?}");
    }
    assert_eq!(run(&["status".as_ref(), dir.as_os_str()]).code, 0);
}

/// Refused calls in the log of strace, by thread and name.
pub(crate) fn refused(log: &str) -> Vec<&str> {
    let refused = |line: &&str| line.contains(" = -1 EPERM") || line.contains(" = -1 EACCES");
    let expected = |line: &&str| EXPECTED.iter().any(|path| line.contains(path));
    log.lines().filter(refused).filter(|line| !expected(line)).collect()
}

/// True if there is what a test needs to see the calls of a mount.
pub(crate) fn traceable(test: &str) -> bool {
    if !require(test, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return false;
    }
    let traceable = Command::new("strace").arg("-V").output().is_ok();
    if !traceable {
        skip(test, "strace is not installed");
    }
    traceable
}

fn transport(mounted: &Mounted) -> String {
    let json = run(&["status".as_ref(), "--json".as_ref(), mounted.dir.as_os_str()]).out;
    let document: serde_json::Value = serde_json::from_slice(&json).unwrap();
    document["transport"].as_str().unwrap().to_owned()
}

/// Neither through /dev/fuse nor through io_uring.
#[test]
fn no_call_of_a_mount_is_refused() {
    let test = "no_call_of_a_mount_is_refused";
    if !traceable(test) {
        return;
    }
    traced("/dev/fuse", "off");
    if let Some(_offer) = UringOffer::on(test) {
        traced("io_uring", "auto");
    }
}

/// A system that allows no ring, one without memory for it, and one whose rings do not work:
/// requests come through /dev/fuse.
#[test]
fn without_io_uring_requests_come_through_the_device() {
    let test = "without_io_uring_requests_come_through_the_device";
    let Some(_offer) = traceable(test).then(|| UringOffer::on(test)).flatten() else { return };
    for lack in
        ["io_uring_setup:error=EPERM", "io_uring_setup:error=ENOMEM", "io_uring_enter:error=ENOMEM"]
    {
        let mut mounted = Mounted::prepared(mkfs(&ImageSpec::with_size(64 << 20)), None);
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=io_uring_setup,io_uring_enter"]);
        command.args(["-e", &format!("inject={lack}")]).arg(binary().get_program());
        command.args(["mount", "-f"]);
        mounted.mount_by(command);
        assert_eq!(transport(&mounted), "/dev/fuse", "{lack}");
        worked(&mounted.dir);
        mounted.unmount_clean();
        e2fsck_clean(mounted.image.path()).unwrap();
    }
}

/// Mounts with each of the options, and looks for calls that are refused.
fn traced(through: &str, uring: &str) {
    let place = scratch();
    let at = |name: &str| place.path().join(name).display().to_string();
    let with_files = format!("trace={},buffer_log={}", at("run"), at("log"));
    for options in OPTIONS.iter().map(|options| (*options).to_owned()).chain([with_files]) {
        let log = place.path().join("calls");
        let mut mounted = Mounted::prepared(mkfs(&ImageSpec::with_size(64 << 20)), None);
        let mut command = Command::new("strace");
        // Whole lines: one file a thread.
        command.args(["-ff", "-qq", "-o"]).arg(&log).arg(binary().get_program());
        command.args(["mount", "-f", "-o", &format!("sandbox=best,uring={uring},{options}")]);
        mounted.mount_by(command);
        assert_eq!(transport(&mounted), through);
        worked(&mounted.dir);
        mounted.unmount_clean();
        for entry in std::fs::read_dir(place.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.display().to_string().contains("calls.") {
                let text = std::fs::read_to_string(&path).unwrap();
                assert_eq!(refused(&text), [""; 0], "{options}");
                std::fs::remove_file(&path).unwrap();
            }
        }
        e2fsck_clean(mounted.image.path()).unwrap();
    }
}

/// Neither where a compressed image is unpacked nor where a qcow2 is over a file.
#[test]
fn no_call_of_a_mount_of_several_files_is_refused() {
    let test = "no_call_of_a_mount_of_several_files_is_refused";
    if !traceable(test) {
        return;
    }
    let place = scratch();
    let image = mkfs(&ImageSpec::with_size(64 << 20));
    let make = r#"cd "$1"; cp "$0" base; gzip -1c base > packed
        qemu-img create -q -u -f qcow2 -F raw -b nothing top 64M"#;
    let made = Command::new("sh").args(["-ec", make]).arg(image.path()).arg(place.path()).status();
    if !made.unwrap().success() {
        return skip(test, "needs gzip and qemu-img");
    }
    let at = |name: &str| place.path().join(name);
    let over = format!("backing={}", at("base").display());
    for (name, more) in [("packed", "ro"), ("top", &format!("ro,{over}")), ("top", &over)] {
        let source = Some(at(name));
        let mut mounted = Mounted::prepared(mkfs(&ImageSpec::with_size(1 << 20)), source);
        let mut command = Command::new("strace");
        command.args(["-ff", "-qq", "-o"]).arg(at("calls")).arg(binary().get_program());
        command.args(["mount", "-f", "-o", &format!("sandbox=best,{more}")]);
        mounted.mount_by(command);
        if more == over {
            worked(&mounted.dir);
        }
        assert_eq!(std::fs::read_dir(mounted.at("lost+found")).unwrap().count(), 0);
        mounted.unmount_clean();
        for entry in std::fs::read_dir(place.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.display().to_string().contains("calls.") {
                let text = std::fs::read_to_string(&path).unwrap();
                assert_eq!(refused(&text), [""; 0], "{name}");
                std::fs::remove_file(&path).unwrap();
            }
        }
    }
}

#[test]
fn no_call_of_an_import_or_a_resize_is_refused() {
    let test = "no_call_of_an_import_or_a_resize_is_refused";
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(test, "strace is not installed");
    }
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let place = scratch();
    let (tree, log) = (place.path().join("tree"), place.path().join("calls"));
    std::fs::create_dir_all(tree.join("d")).unwrap();
    std::fs::write(tree.join("d/f"), vec![7; 3 << 20]).unwrap();
    std::fs::File::create(tree.join("hole")).unwrap().set_len(9 << 20).unwrap();
    std::os::unix::fs::symlink("d/f", tree.join("l")).unwrap();
    let tar = place.path().join("tree.tar");
    let packed = Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(&tree).arg(".").status();
    assert!(packed.unwrap().success());
    // The loop devices of the system are none of its business.
    let other = mkfs(&ImageSpec::with_size(4 << 20));
    let can_attach = [Need::Root, Need::Loop].iter().all(|need| need.missing().is_none());
    let _attached = can_attach.then(|| LoopDevice::attach_read_only(other.path()).unwrap());
    for (source, size) in [(&tree, "--minimum"), (&tar, "--spare=30%"), (&tar, "--size=64M")] {
        let image = place.path().join("image");
        let ran = |words: &[&std::ffi::OsStr]| {
            let mut command = Command::new("strace");
            command.args(["-f", "-qq", "-o"]).arg(&log).arg(binary().get_program());
            assert!(command.args(words).stdout(Stdio::null()).status().unwrap().success());
            let text = std::fs::read_to_string(&log).unwrap();
            assert_eq!(refused(&text), [""; 0], "{words:?}");
            assert!(text.contains("seccomp("), "{words:?} keep their rights");
        };
        let image_name = image.as_os_str();
        ran(&["import".as_ref(), size.as_ref(), source.as_os_str(), image_name]);
        ran(&["resize".as_ref(), image_name, "--size=200M".as_ref()]);
        ran(&["resize".as_ref(), image_name, "--minimum".as_ref()]);
        std::fs::remove_file(&image).unwrap();
    }
}

/// Neither as a file with a loop device nor over network blocks, from the start to the detach.
#[test]
fn no_call_of_a_server_of_a_write_buffer_is_refused() {
    let test = "no_call_of_a_server_of_a_write_buffer_is_refused";
    if !traceable(test) || !require(test, &[Need::Loop]) {
        return;
    }
    for way in [&["--attach"][..], &["--as=nbd", "--policy=session,power,auto-ram"]] {
        let place = scratch();
        let at = |name: &str| place.path().join(name);
        let image = mkfs(&ImageSpec::with_size(64 << 20));
        std::fs::create_dir(at("dir")).unwrap();
        let mut command = Command::new("strace");
        command.args(["-ff", "-qq", "-o"]).arg(at("calls")).arg(binary().get_program());
        command.args(["buffer", "attach", "-f", "--create", "--log-size=2M"]).args(way);
        command.arg("--log").arg(at("log")).arg(image.path()).arg(at("dir"));
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut served = String::new();
        let mut said = std::io::BufReader::new(server.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut served).unwrap();
        let node = served.trim();
        if node.starts_with("/dev/loop") {
            let mnt = at("mnt");
            std::fs::create_dir(&mnt).unwrap();
            let shell = |text: String| {
                assert!(Command::new("sh").args(["-c", &text]).status().unwrap().success());
            };
            let mnt = mnt.display();
            shell(format!(
                "mount {node} {mnt} && echo x > {mnt}/x && sync {mnt}/x && umount {mnt}"
            ));
        }
        let status =
            run(&["buffer".as_ref(), "status".as_ref(), "--json".as_ref(), at("dir").as_os_str()]);
        let status: serde_json::Value = serde_json::from_slice(&status.out).unwrap();
        assert_eq!(status["sandbox"]["missing"].as_array().unwrap().len(), 0, "{status}");
        let detached = run(&["buffer".as_ref(), "detach".as_ref(), at("dir").as_os_str()]);
        assert_eq!(detached.code, 0, "{detached:?}");
        assert!(server.wait().unwrap().success());
        for entry in std::fs::read_dir(place.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.display().to_string().contains("calls.") {
                let text = std::fs::read_to_string(&path).unwrap();
                assert_eq!(refused(&text), [""; 0], "{way:?}");
            }
        }
        e2fsck_clean(image.path()).unwrap();
    }
}
