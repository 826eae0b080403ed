//! `syncline buffer`: a kernel's ext4 over the write buffer, killed, recovered and detached; the
//! buffer inside of a mount.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support;
use crate::support::mounted::Mounted;
use crate::support::{at, done, refused, run, scratch};
use syncline_testkit::{ImageSpec, Need, e2fsck_clean, e2fsck_preen, mkfs, require};

/// Device, log and directory of one test. Nothing of them stays, also when the test fails.
struct Files {
    dir: tempfile::TempDir,
    server: Option<std::process::Child>,
    node: Option<String>,
}

fn shell(command: &str) -> bool {
    Command::new("sh").args(["-c", command]).status().unwrap().success()
}

impl Files {
    fn new(size_bytes: u64) -> Files {
        let dir = scratch();
        std::fs::create_dir(dir.path().join("served")).unwrap();
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        let image = mkfs(&ImageSpec::with_size(size_bytes));
        std::fs::copy(image.path(), dir.path().join("image")).unwrap();
        Files { dir, server: None, node: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Serves in the foreground, as a child that can be killed; waits for the loop device.
    fn serve(&mut self, more: &[&str]) -> String {
        let (image, served, log) = (self.text("image"), self.text("served"), self.text("log"));
        let mut command = support::binary();
        command.args(["buffer", "attach", &image, &served, "--log", &log, "--attach", "-f"]);
        let mut child =
            command.args(more).stdout(std::process::Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let pipe = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(pipe), &mut line).unwrap();
        self.server = Some(child);
        let node = line.trim().to_owned();
        assert!(node.starts_with("/dev/loop"), "{node}");
        self.node = Some(node.clone());
        node
    }

    fn mount(&self, node: &str) {
        let mnt = self.text("mnt");
        assert!(shell(&format!("mount -t ext4 {node} {mnt}")));
    }

    /// As a machine that stops: no flush reaches the device any more.
    fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        self.clear();
    }

    fn clear(&mut self) {
        let (mnt, served) = (self.text("mnt"), self.text("served"));
        shell(&format!("umount -l {mnt} 2>/dev/null"));
        if let Some(node) = self.node.take() {
            shell(&format!("losetup -d {node} 2>/dev/null"));
        }
        shell(&format!("umount -l {served} 2>/dev/null"));
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.clear();
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap();
}

#[test]
fn a_kernel_file_system_keeps_what_was_synced_when_the_buffer_is_killed() {
    let test = "a_kernel_file_system_keeps_what_was_synced_when_the_buffer_is_killed";
    if !require(test, &[Need::Root, Need::Fuse, Need::Loop, Need::E2fsck]) {
        return;
    }
    let mut files = Files::new(64 << 20);
    let node = files.serve(&["--create", "--log-size", "4M"]);
    files.mount(&node);
    let mnt = files.text("mnt");
    for name in ["one", "two", "three"] {
        assert!(shell(&format!("echo {name} > {mnt}/{name} && sync {mnt}/{name}")));
    }
    files.kill();
    copy(&files.path("image"), &files.path("without the log"));
    let node = files.serve(&[]);
    let status: serde_json::Value =
        serde_json::from_str(&done(&["buffer", "status", "--json", &files.text("served")]))
            .unwrap();
    assert_eq!(status["schema"], "syncline.buffer/1");
    assert!(status["recovered_pages"].as_u64().unwrap() > 0, "{status}");
    // The kernel recovers its journal through the buffer and goes on.
    files.mount(&node);
    assert_eq!(std::fs::read_to_string(files.path("mnt/two")).unwrap(), "two\n");
    assert!(shell(&format!("echo four > {mnt}/four")));
    let said = refused(1, &["buffer", "detach", &files.text("served")]);
    assert!(said.contains("is mounted"), "{said}");
    assert!(shell(&format!("umount {mnt}")));
    done(&["buffer", "detach", &files.text("served")]);
    assert!(files.server.take().unwrap().wait().unwrap().success());
    files.node = None;
    // Plain data, without log and without us.
    e2fsck_clean(&files.path("image")).unwrap();
    for name in ["one", "two", "three", "four"] {
        assert_eq!(
            done(&["cat", &at(&files.path("image"), &format!("/{name}"))]),
            format!("{name}\n")
        );
    }
    e2fsck_preen(&files.path("image")).unwrap();
}

#[test]
fn files_of_a_kernel_file_system_are_relaxed_and_strict_again() {
    let test = "files_of_a_kernel_file_system_are_relaxed_and_strict_again";
    if !require(test, &[Need::Root, Need::Fuse, Need::Loop, Need::E2fsck]) {
        return;
    }
    let mut files = Files::new(64 << 20);
    let node = files.serve(&["--create", "--log-size", "4M"]);
    files.mount(&node);
    let (served, mnt) = (files.text("served"), files.text("mnt"));
    // The battery of this machine is not asked.
    let still = ["idle_after=1000", "relaxed_expire=1000", "power=off", "session=off"];
    done(&[&["ctl", "set", &served][..], &still].concat());
    let status = |name: &str| {
        let text = done(&["buffer", "status", "--json", &served]);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()[name].clone()
    };
    let write = |name: &str, more: &str| {
        let to = format!("of={mnt}/{name} bs=32K count=4 conv=notrunc,fsync {more}");
        assert!(shell(&format!("dd if=/dev/urandom {to} oflag=direct status=none")), "{to}");
    };
    assert!(shell(&format!("mkdir {mnt}/cache")));
    for name in ["cache/a", "cache/b", "c"] {
        write(name, "");
    }
    let dir = format!("{mnt}/cache");
    let said = refused(1, &["ctl", "relax", &dir]);
    assert!(said.contains("`syncline buffer relax`"), "{said}");
    let said = refused(1, &["buffer", "relax", &served, &files.text("image")]);
    assert!(said.contains("not on the device that is served here"), "{said}");
    done(&["buffer", "relax", &served, &dir]);
    assert_eq!(status("relaxed_files"), 2);
    for name in ["cache/a", "cache/b", "c"] {
        write(name, "");
    }
    assert_eq!(status("relaxed_pages"), 64, "two files of 128 KiB wait");
    let shown = done(&["buffer", "status", &served]);
    assert!(shown.contains("relaxed  2 files, 256 KiB"), "{shown}");
    done(&["buffer", "strict", &served, &format!("{dir}/a")]);
    assert_eq!((status("relaxed_files"), status("relaxed_pages")), (1.into(), 32.into()));
    // It grows, and is followed.
    write("cache/b", "seek=4");
    write("cache/b", "seek=4");
    assert_eq!(status("relaxed_file_bytes"), 256 << 10);
    assert_eq!(status("relaxed_pages"), 64);
    done(&["buffer", "relax", &served, &format!("{mnt}/c")]);
    assert_eq!(status("relaxed_files"), 2, "the log was emptied for it");
    assert!(shell(&format!("rm {dir}/b && sync")));
    assert_eq!(
        (status("relaxed_files"), status("relaxed_file_bytes")),
        (1.into(), (128 << 10).into())
    );
    assert!(shell(&format!("umount {mnt}")));
    assert_eq!(status("relaxed_files"), 0);
    let shown = done(&["buffer", "status", &served]);
    assert!(shown.contains("strict   since the file system was unmounted"), "{shown}");
    done(&["buffer", "detach", &served]);
    assert!(files.server.take().unwrap().wait().unwrap().success());
    files.node = None;
    e2fsck_clean(&files.path("image")).unwrap();
}

/// A policy that was set before stays as it was set. A program says the power.
#[test]
fn the_first_relaxed_file_of_a_buffer_brings_the_policies() {
    let test = "the_first_relaxed_file_of_a_buffer_brings_the_policies";
    if !require(test, &[Need::Root, Need::Fuse, Need::Loop, Need::E2fsck]) {
        return;
    }
    let mut files = Files::new(64 << 20);
    let (said, sensor) = (files.path("said"), files.text("sensor"));
    std::fs::write(&said, "power=good").unwrap();
    std::fs::write(&sensor, format!("#!/bin/sh\nexec cat {}\n", said.display())).unwrap();
    std::fs::set_permissions(&sensor, PermissionsExt::from_mode(0o755)).unwrap();
    let node = files.serve(&["--create", "--log-size", "4M", "--sensor", &sensor]);
    files.mount(&node);
    let (served, mnt) = (files.text("served"), files.text("mnt"));
    let status = || {
        let text = done(&["buffer", "status", "--json", &served]);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let wait_for = |what: &str, wanted: &dyn Fn(&serde_json::Value) -> bool| {
        for _ in 0..1200 {
            if wanted(&status()["settings"]) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{what}: {}", status());
    };
    let still = ["idle_after=1000", "relaxed_expire=1000", "session=off"];
    done(&[&["ctl", "set", &served][..], &still].concat());
    let write = || {
        let to = format!("of={mnt}/a bs=32K count=4 conv=notrunc,fsync oflag=direct");
        assert!(shell(&format!("dd if=/dev/urandom {to} status=none")));
    };
    write();
    assert_eq!(status()["settings"]["policies"], serde_json::json!([]));
    done(&["buffer", "relax", &served, &format!("{mnt}/a")]);
    wait_for("policies", &|now| now["policies"] == serde_json::json!(["power"]));
    wait_for("it runs", &|now| now["power"] == "good");
    write();
    assert_eq!(status()["relaxed_pages"], 32, "it waits");
    // The battery is low: what waits is written out, and nothing waits after that.
    std::fs::write(&said, "power=failing").unwrap();
    wait_for("strict", &|now| now["ram_off_by_policy"] == true);
    assert_eq!((&status()["relaxed_pages"], &status()["ram_pages"]), (&0.into(), &0.into()));
    write();
    assert_eq!((&status()["relaxed_pages"], &status()["ram_pages"]), (&0.into(), &0.into()));
    std::fs::write(&said, "power=good").unwrap();
    wait_for("relaxed again", &|now| now["ram_off_by_policy"] == false);
    write();
    assert_eq!(status()["relaxed_pages"], 32, "it waits again");
    assert!(shell(&format!("umount {mnt}")));
    done(&["buffer", "detach", &served]);
    assert!(files.server.take().unwrap().wait().unwrap().success());
    files.node = None;
    e2fsck_clean(&files.path("image")).unwrap();
}

#[test]
fn attached_in_the_background_it_is_a_file() {
    let test = "attached_in_the_background_it_is_a_file";
    if !require(test, &[Need::Root, Need::Fuse, Need::E2fsck]) {
        return;
    }
    let files = Files::new(16 << 20);
    let (image, served, log) = (files.text("image"), files.text("served"), files.text("log"));
    let said = refused(1, &["buffer", "attach", &image, &served, "--log", &log]);
    assert!(said.contains("log"), "{said}");
    let attach = ["buffer", "attach", &image, &served, "--log", &log, "--create"];
    // Root runs no program that others can change, for a mount neither.
    let sensor = files.text("sensor");
    std::fs::write(&sensor, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&sensor, PermissionsExt::from_mode(0o777)).unwrap();
    let options = format!("power=on,sensor={sensor}");
    let policy = ["--policy", "power", "--sensor", &sensor];
    for asked in [&[&attach[..], &policy].concat()[..], &["mount", &image, &served, "-o", &options]]
    {
        let said = refused(2, asked);
        assert!(said.contains("others can change"), "{said}");
    }
    assert_eq!(done(&attach), "");
    e2fsck_clean(&files.path("served/device")).unwrap();
    let shown = done(&["buffer", "status", &served]);
    assert!(shown.contains("16382 pages used"), "{shown}");
    done(&["buffer", "detach", &served]);
    free_again(&files.path("image"));
    let said = refused(1, &attach);
    assert!(said.contains("a write log") && said.contains("--force"), "{said}");
    let said = refused(1, &["buffer", "status", &served]);
    assert!(said.contains("buffer attach"), "{said}");
    assert_eq!(run(&["buffer", "attach", &image, &served, "--log", &log, "--as", "tape"]).code, 2);
}

#[test]
fn what_cannot_be_buffered_is_refused_and_stays_as_it_is() {
    let test = "what_cannot_be_buffered_is_refused_and_stays_as_it_is";
    if !require(test, &[Need::Fuse]) {
        return;
    }
    let files = Files::new(16 << 20);
    let (image, served, log) = (files.text("image"), files.text("served"), files.text("log"));
    let attach = |device: &str, log: &str, more: &[&str]| {
        refused(1, &[&["buffer", "attach", device, &served, "--log", log][..], more].concat())
    };
    let sized = |name: &str, bytes: u64| {
        std::fs::File::create(files.path(name)).unwrap().set_len(bytes).unwrap();
        files.text(name)
    };
    let refusal = |said: String, part: &str| assert!(said.contains(part), "{part}: {said}");
    refusal(attach(&files.text("none"), &log, &["--create"]), "none: no such file");
    refusal(attach(&served, &log, &["--create"]), "give an image file or a block device");
    refusal(attach(&image, &served, &["--create"]), "give an image file or a block device");
    refusal(attach(&image, &image, &["--create"]), "this program has it open already");
    refusal(attach(&sized("crumb", 2048), &log, &["--create"]), "crumb: the device has 2048");
    refusal(attach(&image, &sized("tiny", 100 << 10), &["--create"]), "a log needs 270336 bytes");
    refusal(attach(&image, &sized("new", 4 << 20), &[]), "there is no write log in it");

    let new = files.text("new");
    done(&["buffer", "attach", &image, &served, "--log", &new, "--create"]);
    let said = refused(1, &["ctl", "set", &served, "ram=much"]);
    assert!(said.contains("ram=`much` cannot be read"), "{said}");
    let said = refused(1, &["ctl", "set", &served, "rum=1M"]);
    assert!(said.contains("`rum` is not a setting"), "{said}");
    done(&["buffer", "detach", &served]);
    free_again(&files.path("new"));
    refusal(
        attach(&sized("other", 8 << 20), &new, &[]),
        "the log is of a device of 16777216 bytes",
    );
    let whole = std::fs::read(&new).unwrap();
    std::fs::write(files.path("cut"), &whole[..2 << 20]).unwrap();
    refusal(attach(&image, &files.text("cut"), &[]), "a log needs 4194304 bytes");
    std::fs::write(files.path("wrecked"), [&vec![0xff; 8192], &whole[8192..]].concat()).unwrap();
    refusal(attach(&image, &files.text("wrecked"), &[]), "there is no write log in it");
    assert!(whole == std::fs::read(&new).unwrap(), "a refusal writes nothing");
    e2fsck_clean(&files.path("image")).unwrap();
}

/// A user gets the mount and no loop device: then there is neither mount nor log, as before.
#[test]
fn a_start_that_fails_after_the_mount_leaves_nothing() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let test = "a_start_that_fails_after_the_mount_leaves_nothing";
    if !require(test, &[Need::Root, Need::Fuse]) {
        return;
    }
    let device = std::fs::metadata("/dev/fuse").unwrap().permissions().mode();
    if device & 0o006 != 0o006 {
        return syncline_testkit::skip(test, "needs a /dev/fuse that users may open");
    }
    let files = Files::new(16 << 20);
    let program = files.path("program");
    // By a process: children of other tests would have our copy open to write (ETXTBSY).
    let copied = Command::new("cp").arg(support::binary().get_program()).arg(&program).status();
    assert!(copied.unwrap().success());
    let nobody = Some(65_534);
    for name in ["", "image", "served"] {
        std::os::unix::fs::chown(files.path(name), nobody, nobody).unwrap();
    }
    let (image, served, log) = (files.path("image"), files.path("served"), files.path("log"));
    let mut attach = Command::new(program);
    attach.args(["buffer", "attach", "--create", "--attach", "--log"]).args([log, image, served]);
    let ran = attach.env("XDG_RUNTIME_DIR", files.path("")).uid(65_534).gid(65_534).output();
    let ran = ran.unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.code() == Some(1) && said.contains("no loop device"), "{said}");
    assert!(!files.path("log").exists());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&files.text("served")), "nothing stays mounted");
}

/// A server lets go of its files when it ends, a moment after its directory is unmounted.
fn free_again(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    let began = std::time::Instant::now();
    let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    while rustix::fs::flock(&file, exclusive).is_err() {
        assert!(began.elapsed().as_secs() < 120, "{} is still held", path.display());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Refusal where the kernel has no ublk. A guest tests it with ublk: `cargo xtask run guest`.
#[test]
fn without_ublk_in_the_kernel_it_is_refused_and_nothing_stays() {
    let test = "without_ublk_in_the_kernel_it_is_refused_and_nothing_stays";
    let files = Files::new(16 << 20);
    let (image, served, log) = (files.text("image"), files.text("served"), files.text("log"));
    let attach = ["buffer", "attach", &image, &served, "--log", &log, "--as", "ublk", "--create"];
    let said = refused(2, &[&attach[..], &["--attach"]].concat());
    assert!(said.contains("--as ublk is a block device"), "{said}");
    let said = refused(2, &[&attach[..], &["--listen", "unix:/tmp/x"]].concat());
    assert!(said.contains("--as nbd"), "{said}");
    if Path::new("/dev/ublk-control").exists() {
        return syncline_testkit::skip(test, "needs a kernel without ublk");
    }
    let said = refused(4, &attach);
    assert!(said.contains("this kernel has no ublk") && said.contains("modprobe"), "{said}");
    assert!(!files.path("log").exists());
    if !require(test, &[Need::Root, Need::Fuse]) {
        return;
    }
    let said = refused(4, &["flash", "serve", "nexus7-emmc", &served, "--attach=ublk"]);
    assert!(said.contains("this kernel has no ublk"), "{said}");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&served), "nothing stays mounted");
}

#[test]
fn over_network_blocks_it_is_the_same_device() {
    let test = "over_network_blocks_it_is_the_same_device";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let files = Files::new(16 << 20);
    let (image, served, log) = (files.text("image"), files.text("served"), files.text("log"));
    let before = std::fs::read(files.path("image")).unwrap();
    let attach = ["buffer", "attach", &image, &served, "--log", &log, "--as", "nbd"];
    let with = |more: &[&'static str]| [&attach[..], more].concat();
    assert_eq!(run(&with(&["--create", "--attach"])).code, 2);
    assert_eq!(run(&with(&["--create", "--listen", "0.0.0.0:10809"])).code, 2);
    let uri = done(&with(&["--create"]));
    assert_eq!(uri.trim(), format!("nbd+unix:///?socket={served}/nbd"));
    let mut client = std::os::unix::net::UnixStream::connect(files.path("served/nbd")).unwrap();
    // The oldest handshake, one write with FUA of a page at 1 MiB, and its reply.
    let mut hello = [0; 18];
    std::io::Read::read_exact(&mut client, &mut hello).unwrap();
    let mut words = vec![0, 0, 0, 3];
    words.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\0");
    words.extend([0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5]);
    words.extend((1_u64 << 20).to_be_bytes());
    words.extend(4096_u32.to_be_bytes());
    words.extend([0xa5; 4096]);
    std::io::Write::write_all(&mut client, &words).unwrap();
    let mut answer = [0; 26];
    std::io::Read::read_exact(&mut client, &mut answer).unwrap();
    assert_eq!(answer[..8], (16_u64 << 20).to_be_bytes());
    assert_eq!(answer[10..], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
    let status: serde_json::Value =
        serde_json::from_str(&done(&["buffer", "status", "--json", &served])).unwrap();
    assert_eq!((&status["logged_pages"], &status["flushes"]), (&1.into(), &1.into()));
    let said = refused(1, &["buffer", "detach", &served]);
    assert!(said.contains("1 clients are connected"), "{said}");
    drop(client);
    let began = std::time::Instant::now();
    while run(&["buffer", "detach", &served]).code != 0 {
        assert!(began.elapsed().as_secs() < 120, "the connection is not seen to end");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let after = std::fs::read(files.path("image")).unwrap();
    assert!(after[1 << 20..][..4096].iter().all(|byte| *byte == 0xa5));
    assert!(after[..1 << 20] == before[..1 << 20] && !files.path("served/nbd").exists());
    let said = refused(1, &["buffer", "status", &served]);
    assert!(said.contains("buffer attach"), "{said}");
}

/// The buffer inside of a mount: killed, refused without its log, recovered with it.
#[test]
fn a_mount_with_a_log_is_killed_and_recovered() {
    let test = "a_mount_with_a_log_is_killed_and_recovered";
    if !require(test, &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let log = dir.path().join("log");
    let options = |sync: &str| {
        let log = log.display();
        format!("sync={sync},relaxed=*.cache,buffer_log={log},buffer_log_size=2M,buffer_ram=1M")
    };
    let image = mkfs(&ImageSpec::with_size(64 << 20));
    let mut mounted = Mounted::prepared(image, None);
    for sync in ["ordered", "eager"] {
        mounted.mount(&options(sync));
        let kept = |nr: u32| format!("{sync}-{nr}.db");
        for nr in 0..20 {
            let bytes = format!("{nr}\n").repeat(3000);
            for name in [kept(nr), format!("{sync}-{nr}.cache")] {
                let path = mounted.at(name);
                std::fs::write(&path, &bytes).unwrap();
                std::fs::File::open(&path).unwrap().sync_all().unwrap();
            }
        }
        let dir = mounted.dir.to_str().unwrap().to_owned();
        let status: serde_json::Value =
            serde_json::from_str(&done(&["status", "--json", &dir])).unwrap();
        assert!(status["buffer"]["logged_pages"].as_u64().unwrap() > 20, "{status}");
        assert!(done(&["status", &dir]).contains("\nbuffer    log "));
        mounted.kill_serving();
        mounted.bury();

        // Without the log the image is for nobody.
        let image = mounted.image.path().to_str().unwrap().to_owned();
        let before = std::fs::read(&image).unwrap();
        for command in [vec!["mount", "-f", &image, &dir], vec!["recover", &image]] {
            let said = refused(4, &command);
            assert!(said.contains("write_log") && said.contains("-o buffer_log=LOG"), "{said}");
        }
        let cat = at(mounted.image.path(), "/x");
        assert!(refused(4, &["cat", &cat]).contains("write_log"));
        let served = scratch();
        let attach = ["buffer", "attach", &image, served.path().to_str().unwrap(), "--log"];
        let said = refused(4, &[&attach[..], &[log.to_str().unwrap()]].concat());
        assert!(said.contains("syncline mount -o"), "{said}");
        let other = dir_of(&log).join("other");
        let said = refused(
            1,
            &["mount", "-f", "-o", &format!("buffer_log={}", other.display()), &image, &dir],
        );
        assert!(said.contains("give the log that it was mounted with last"), "{said}");
        assert!(!other.exists(), "nothing half-made stays");
        assert!(std::fs::read(&image).unwrap() == before, "nobody has changed it");

        mounted.mount(&options(sync));
        for nr in 0..20 {
            let found = std::fs::read_to_string(mounted.at(kept(nr))).unwrap();
            assert_eq!(found, format!("{nr}\n").repeat(3000), "{sync} {nr}");
        }
        mounted.unmount_clean();
    }
    // A plain ext4 again, without the log.
    std::fs::remove_file(&log).unwrap();
    mounted.mount("");
    assert!(mounted.at("eager-7.db").exists());
    mounted.unmount_clean();
}

fn dir_of(path: &Path) -> &Path {
    path.parent().unwrap()
}

#[test]
fn zeros_of_pages_are_counted() {
    let dir = scratch();
    let file = dir.path().join("file");
    let mut bytes = vec![7; 3 * 4096];
    // The first page has two zero words, the second all that it may need, the third none.
    bytes[400..408].fill(0);
    bytes[5000..8000].fill(0);
    std::fs::write(&file, &bytes).unwrap();
    let shown = done(&["buffer", "zeros", file.to_str().unwrap()]);
    let figures: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(figures[1..], ["3", "33.3", "66.7"], "{shown}");
    let json = done(&["buffer", "zeros", "--json", file.to_str().unwrap()]);
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["schema"], "syncline.zeros/1");
    assert_eq!(document["files"][0]["self_describing_pages"], 1);
    assert!(refused(1, &["buffer", "zeros", "/no/such/file"]).contains("check the path"));
}
