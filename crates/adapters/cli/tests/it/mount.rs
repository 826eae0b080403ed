//! `mount`, `umount` and `status`: background, refusals, signals, helpers. Tests of the mounted
//! file system are in `crates/adapters/fuse/tests/it`.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support;
use crate::support::mounted::Mounted;
use crate::support::{done, refused, run};
use rustix::fs::{FileType, Mode, XattrFlags};
use rustix::io::Errno;
use syncline_device::{FileDevice, FileOptions};
use syncline_testkit::{ImageSpec, LoopDevice, Need, TempImage, e2fsck_clean, mkfs, require, skip};

const NEEDS: [Need; 2] = [Need::Fuse, Need::E2fsck];

fn image() -> TempImage {
    mkfs(&ImageSpec::with_size(64 << 20))
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// The choice of `log=auto` is said at the mount and by `status`, with its reason.
#[test]
fn log_auto_says_its_choice() {
    if !require("log_auto_says_its_choice", &NEEDS) {
        return;
    }
    for (options, only) in [
        ("log=auto", None),
        ("log=packed,log=auto,log_unit=8192", None),
        ("log=auto,sync=ordered", Some("jbd2: `sync=ordered` needs it")),
    ] {
        let (image, scratch) = (image(), support::scratch());
        let dir = scratch.path().as_os_str();
        let words = ["mount".as_ref(), "-o".as_ref(), options.as_ref()];
        let ran = run(&[&words[..], &[image.path().as_os_str(), dir]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let json = done(&["status".as_ref(), "--json".as_ref(), dir]);
        let status: serde_json::Value = serde_json::from_str(&json).unwrap();
        let text = |name: &str| status["journal"][name].as_str().unwrap().to_owned();
        let said = format!("{}: {}", text("format"), text("auto"));
        assert!(ran.err.contains(&format!("log=auto is log={said}\n")), "{said}: {ran:?}");
        assert!(only.is_none_or(|only| said == only), "{said}");
        let shown = done(&["status".as_ref(), dir]);
        assert!(shown.contains(&format!("(log=auto: {})", text("auto"))), "{shown}");
        done(&["umount".as_ref(), dir]);
    }
}

/// `status`, `top` and `info` of a mount name the log's format, its unit and what it saved.
#[test]
fn status_top_and_info_name_the_format_of_the_log() {
    if !require("status_top_and_info_name_the_format_of_the_log", &NEEDS) {
        return;
    }
    for (options, format, unit_bytes) in [
        ("sync=eager", "jbd2", 4096),
        ("sync=eager,log=packed", "packed", 4096),
        ("sync=eager,log=packed,log_unit=8192", "packed", 8192),
    ] {
        let mut m = Mounted::new(image(), options);
        for n in 0..20 {
            let mut file = File::create(m.at(format!("f{n}"))).unwrap();
            file.write_all(&[1; 100]).unwrap();
            file.sync_all().unwrap();
        }
        let dir = m.dir.as_os_str();
        let json = done(&[OsStr::new("status"), OsStr::new("--json"), dir]);
        let status: serde_json::Value = serde_json::from_str(&json).unwrap();
        let journal = &status["journal"];
        assert_eq!(
            (&journal["format"], &journal["unit_bytes"]),
            (&format.into(), &unit_bytes.into())
        );
        let number = |name: &str| journal[name].as_u64().unwrap();
        assert!(number("written_bytes") >= 20 * unit_bytes, "{journal}");
        // Which of them a device in memory shows depends on what else the machine does.
        let costs = &status["costs"];
        assert!(["flush_us", "mib_ms"].iter().all(|name| costs[name].is_number()), "{costs}");
        assert!(done(&["status".as_ref(), dir]).contains("\ncosts     flush "));
        // Descriptor and commit block are saved at least.
        let least = if format == "packed" { 20 * 2 * 4096 } else { 0 };
        assert!(number("saved_bytes") >= least, "{journal}");
        assert!(format == "packed" || number("saved_bytes") == 0, "{journal}");
        let wanted = format!("{format}, units of {unit_bytes} bytes");
        for command in [&["status"][..], &["top", "--once"]] {
            let words = command.iter().map(OsStr::new).chain([dir]).collect::<Vec<_>>();
            let shown = done(&words);
            assert!(shown.contains(&wanted), "{shown}");
            assert_eq!(shown.contains(" saved\n"), format == "packed", "{shown}");
        }
        m.kill_serving();
        m.bury();
        // It says that it has replayed the journal in memory.
        let ran = run(&["info".as_ref(), "--json".as_ref(), m.image.path().as_os_str()]);
        let info: serde_json::Value = serde_json::from_str(&ran.text()).unwrap();
        let info = &info["info"];
        assert_eq!(
            (&info["journal_format"], &info["journal_unit_bytes"]),
            (&format.into(), &unit_bytes.into())
        );
    }
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

/// A remount as mount(8) calls its helper: with the options that the mount table shows.
fn remount(m: &Mounted, how: &str) -> support::Ran {
    let options = format!("rw,nosuid,nodev,relatime,user_id=0,default_permissions,{how}");
    let options = ["mount", "-o", &options].map(OsStr::new);
    run(&[&options[..], &[m.image.path().as_os_str(), m.dir.as_os_str()]].concat())
}

fn status(m: &Mounted) -> serde_json::Value {
    let status = run(&[OsStr::new("status"), OsStr::new("--json"), m.dir.as_os_str()]).text();
    serde_json::from_str(&status).unwrap()
}

/// Flags of the mount in the mount table.
fn shown(m: &Mounted) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(m.dir.to_str().unwrap())).unwrap();
    line.split(' ').nth(5).unwrap().to_owned()
}

#[test]
fn a_mount_is_made_read_only_and_writable_again() {
    if !require("a_mount_is_made_read_only_and_writable_again", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "sync=ordered");
    fs::write(m.at("f"), [1; 100_000]).unwrap();
    let open = OpenOptions::new().write(true).open(m.at("f")).unwrap();
    let busy = remount(&m, "remount,ro");
    assert_eq!(busy.code, 1);
    assert!(busy.err.contains("fuser -vm"), "{}", busy.err);
    drop(open);

    assert_eq!(remount(&m, "remount,ro").code, 0);
    assert_eq!(shown(&m), "ro,nosuid,nodev,relatime");
    assert_eq!(errno(fs::write(m.at("g"), "")), 30);
    assert_eq!(status(&m)["dirty_bytes"], 0);

    assert_eq!(remount(&m, "remount,rw,noexec").code, 0);
    assert_eq!(shown(&m), "rw,nosuid,nodev,noexec,relatime");
    fs::write(m.at("g"), "x").unwrap();
    m.unmount_clean();

    m.mount("ro");
    assert_eq!(remount(&m, "remount,ro").code, 0);
    m.unmount_clean();
}

#[test]
fn a_mount_with_ro_becomes_writable_and_is_one_of_two_that_read() {
    let name = "a_mount_with_ro_becomes_writable_and_is_one_of_two_that_read";
    if !require(name, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    for sync in ["ordered,relaxed=*.x", "eager", "periodic"] {
        let policies = |m: &Mounted| status(m)["settings"]["policies"].as_array().unwrap().len();
        let mut m = Mounted::new(image(), &format!("ro,sync={sync}"));
        assert_eq!(policies(&m), 0);
        let before = std::fs::read(m.image.path()).unwrap();
        fs::read_dir(&m.dir).unwrap().count();
        let set = run(&[OsStr::new("ctl"), OsStr::new("sync"), m.dir.as_os_str()]);
        assert!(set.err.contains("the mount is read-only"), "{}", set.err);
        // Somebody else reads the image.
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        let file = FileDevice::open(m.image.path(), options).unwrap();
        let refused = remount(&m, "remount,rw");
        assert_eq!(refused.code, 1);
        assert!(refused.err.contains("another program has it open"), "{}", refused.err);
        drop(file);
        assert_eq!(errno(fs::write(m.at("f"), "")), 30);
        assert!(std::fs::read(m.image.path()).unwrap() == before, "{sync}: ro changed the image");

        // Another file with its path is not taken for it.
        let aside = m.image.path().with_extension("aside");
        fs::rename(m.image.path(), &aside).unwrap();
        fs::write(m.image.path(), vec![0; before.len()]).unwrap();
        let refused = remount(&m, "remount,rw");
        assert!(refused.err.contains("not the file that was mounted"), "{}", refused.err);
        assert_eq!(fs::read_dir(m.at("lost+found")).unwrap().count(), 0);
        fs::rename(&aside, m.image.path()).unwrap();

        let open = fs::File::open(&m.dir).unwrap();
        assert_eq!(remount(&m, "remount,rw").code, 0);
        assert_eq!(shown(&m).split(',').next(), Some("rw"));
        assert_eq!(policies(&m), if sync.contains("relaxed") { 2 } else { 0 });
        fs::write(m.at("f"), sync).unwrap();
        open.sync_all().unwrap();
        drop(open);
        assert_eq!(fs::read_dir(&m.dir).unwrap().count(), 2, "f and lost+found");
        assert_eq!(remount(&m, "remount,ro").code, 0);
        assert_eq!(errno(fs::write(m.at("g"), "")), 30);
        assert_eq!(remount(&m, "remount,rw").code, 0);
        fs::remove_file(m.at("f")).unwrap();
        m.unmount_clean();
    }
    let mut m = Mounted::new(image(), "ro,noload");
    let refused = remount(&m, "remount,rw");
    assert!(refused.err.contains("mounted with `noload`"), "{}", refused.err);
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
    let device = LoopDevice::attach_read_only(image.path()).unwrap();
    let (node, dir) = (device.node().as_os_str(), scratch.path().as_os_str());
    let said = refused(1, &[OsStr::new("mount"), node, dir]);
    assert!(said.contains("-o ro"), "{said}");
    done(&[OsStr::new("mount"), OsStr::new("-o"), OsStr::new("ro"), node, dir]);
    assert_eq!(errno(fs::write(scratch.path().join("f"), "")), 30);
    done(&[OsStr::new("umount"), dir]);
    assert!(image.bytes() == before);
}

#[test]
fn a_log_to_replay_is_replayed_for_readers_and_in_memory_where_nothing_may_be_written() {
    let name = "a_log_to_replay_is_replayed_for_readers_and_in_memory_where_nothing_may_be_written";
    if !require(name, &[Need::Fuse, Need::E2fsck, Need::Root, Need::Loop]) {
        return;
    }
    let (image, scratch) = (crate::recovery::crashed(), support::scratch());
    let (dir, before) = (scratch.path(), image.bytes());
    let mounted = |node: &Path, options: &str| {
        let words = [OsStr::new("mount"), OsStr::new("-o"), OsStr::new(options)];
        let ran = run(&[&words[..], &[node.as_os_str(), dir.as_os_str()]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "acknowledged");
        assert!(!dir.join("open").exists(), "an orphan has no name");
        assert_eq!(errno(fs::write(dir.join("f"), "")), 30);
        done(&[OsStr::new("umount"), dir.as_os_str()]);
        ran.err
    };
    let device = LoopDevice::attach_read_only(image.path()).unwrap();
    assert!(mounted(device.node(), "ro").contains("in memory only"));
    assert!(mounted(device.node(), "ro").contains("in memory only"), "and again");
    drop(device);
    assert!(mounted(image.path(), "ro,noload").contains("in memory only"));
    assert!(image.bytes() == before, "a reader wrote");

    assert_eq!(mounted(image.path(), "ro"), "");
    e2fsck_clean(image.path()).unwrap();
    assert_eq!(mounted(image.path(), "ro,noload"), "", "nothing is left to replay");
}

#[test]
fn every_command_names_the_mount_of_an_image() {
    if !require("every_command_names_the_mount_of_an_image", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    let (image, dir) = (m.image.path().display().to_string(), m.dir.display().to_string());
    let (file, tar) = (format!("{image}:/f"), format!("{image}.tar"));
    let (other, log) = (format!("{image}:/g"), format!("{image}.log"));
    let commands: [&[&str]; 20] = [
        &["ls", &file],
        &["cat", &file],
        &["stat", &file],
        &["info", &image],
        &["check", &image],
        &["repair", "-n", &image],
        &["mkdir", &file],
        &["rm", &file],
        &["import", "/usr/bin/true", &image],
        &["export", &image, "-o", &tar],
        &["resize", "--size", "1G", &image],
        &["mkfs", "--force", &image],
        &["recover", &image],
        &["mount", &image, "/mnt"],
        &["cp", "/usr/bin/true", &file],
        &["mv", &file, &other],
        &["shell", &image],
        &["serve", "--nfs", "127.0.0.1:0", &image],
        &["record", "--image", &image, "--generate", "--records", "1"],
        &["buffer", "attach", &image, "/mnt", "--log", &log, "--create"],
    ];
    for words in commands {
        let ran = run(words);
        assert_ne!(ran.code, 0, "{words:?}");
        let names = ran.err.contains(&format!("mounted on {dir}"));
        assert!(names && ran.err.matches(&image).count() == 1, "{words:?}: {}", ran.err);
    }
    assert!(!std::path::Path::new(&tar).exists());
    m.unmount_clean();
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

/// Reports whether users without privileges may mount here.
pub fn users_may() -> bool {
    let mode = |path| fs::metadata(path).map_or(0, |found| found.mode());
    mode("/dev/fuse") & 0o006 == 0o006 && mode("/usr/bin/fusermount3") & 0o4000 != 0
}

/// Why not.
pub const USERS_MAY_NOT: &str =
    "needs fusermount3 with its set-user-ID bit, and a /dev/fuse that users may open";

/// As a user without any privileges, through fusermount3.
#[test]
fn without_root() {
    if !require("without_root", &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    if !users_may() {
        return skip("without_root", USERS_MAY_NOT);
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
"$0" status "$2" > /dev/null; "$0" umount "$2"
"$0" mount -o uid=1000 "$1" "$2" 2>&1; "$0" umount "$2"
"$0" mount "$1" "$2" 2>&1; ! touch "$2/g" 2> /dev/null; "$0" umount "$2""#;
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_syncline"))
        .args([image.path(), &dir])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{err}");
    let shown = text.strip_prefix("1000 644\n1000 700\n").unwrap();
    assert!(shown.contains("-o uid=1000,gid=1000") && shown.lines().count() == 1, "{text}");
    assert!(shown.contains("syncline mkfs -E root_owner=1000:1000"), "{text}");
    e2fsck_clean(image.path()).unwrap();
}

#[test]
fn a_user_without_fuse3_is_told_what_is_missing() {
    let test = "a_user_without_fuse3_is_told_what_is_missing";
    if !require(test, &[Need::Root, Need::Fuse]) {
        return;
    }
    let scratch = support::scratch();
    let (image, dir) = (scratch.path().join("m.img"), scratch.path().join("mnt"));
    done(&["mkfs".as_ref(), "--size=16M".as_ref(), image.as_os_str()]);
    fs::create_dir(&dir).unwrap();
    for path in [scratch.path(), &image, &dir] {
        std::os::unix::fs::chown(path, Some(1000), Some(1000)).unwrap();
    }
    let ran = std::process::Command::new("setpriv")
        .args(["--reuid=1000", "--regid=1000", "--clear-groups", "env", "PATH=/nowhere"])
        .arg(env!("CARGO_BIN_EXE_syncline"))
        .args(["mount".as_ref(), image.as_os_str(), dir.as_os_str()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    // The first of the two that a user lacks.
    let is_open = fs::metadata("/dev/fuse").unwrap().mode() & 0o006 == 0o006;
    let lacks = if is_open { "there is no fusermount3; check that the" } else { "a udev rule" };
    assert!(said.contains(lacks), "{said}");
}

#[test]
fn an_image_that_was_deleted_is_told() {
    if !require("an_image_that_was_deleted_is_told", &NEEDS) {
        return;
    }
    let scratch = support::scratch();
    let at = |name: &str| scratch.path().join(name).display().to_string();
    let (image, dir) = (at("m.img"), at("mnt"));
    std::fs::create_dir(&dir).unwrap();
    done(&["mkfs", "--size", "16M", &image]);
    done(&["mount", &image, &dir]);
    assert_eq!(support::run(&["status", &dir]).err, "");
    std::fs::remove_file(&image).unwrap();
    let shown = support::run(&["status", &dir]);
    assert!(
        shown.code == 0 && shown.err.contains("m.img: deleted or moved while it is mounted"),
        "{shown:?}"
    );
    let ended = support::run(&["umount", &dir]);
    assert!(
        ended.code == 0 && ended.err.contains("m.img: deleted or moved while it was"),
        "{ended:?}"
    );
}

#[test]
fn a_device_that_was_pulled_out_is_told() {
    let needs = [Need::Fuse, Need::E2fsck, Need::Root, Need::Loop];
    if !require("a_device_that_was_pulled_out_is_told", &needs) {
        return;
    }
    let (image, scratch) = (image(), support::scratch());
    let attached = LoopDevice::attach(image.path()).unwrap();
    // A name of its own, which goes as that of a card does.
    let node = format!("/dev/syncline-test-{}", std::process::id());
    let number = fs::metadata(attached.node()).unwrap().rdev();
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &node, FileType::BlockDevice, mode, number).unwrap();
    let dir = scratch.path().display().to_string();
    let mounted = run(&["mount", &node, &dir]);
    fs::remove_file(&node).unwrap();
    assert_eq!(mounted.code, 0, "{mounted:?}");
    let shown = run(&["status", &dir]);
    assert!(shown.code == 0 && shown.err.contains("pulled out while it is mounted"), "{shown:?}");
    let ended = run(&["umount", &dir]);
    assert!(ended.code == 0 && ended.err.contains("pulled out while it was mounted"), "{ended:?}");
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
