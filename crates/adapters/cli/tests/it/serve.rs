//! `syncline serve --nfs` with the programs of libnfs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::web::Web;
use crate::support::{at, binary, copy_program, done, file, refused, run, scratch};
use syncline_testkit::{ImageSpec, Need, e2fsck_clean, mkfs, require, skip};

struct Serving {
    child: Child,
    port: String,
    mount_line: String,
}

impl Serving {
    fn start(image: &Path, options: &[&str]) -> Serving {
        let mut command = binary();
        command.args(["serve", "--nfs", "127.0.0.1:0"]).args(options).arg(image);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (mut first, mut mount_line) = (String::new(), String::new());
        out.read_line(&mut first).unwrap();
        out.read_line(&mut mount_line).unwrap();
        let port = first.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
        let port = port.unwrap_or_else(|| panic!("no port in {first:?}")).to_owned();
        Serving { child, port, mount_line }
    }

    /// libnfs mounts the directory above the last slash, and cannot mount one without a name.
    fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1//{path}?nfsport={0}&mountport={0}", self.port)
    }

    /// Ends as Ctrl-C does, or without a chance to write anything.
    fn end(mut self, signal: rustix::process::Signal) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        let status = self.child.wait().unwrap();
        let killed = signal == rustix::process::Signal::KILL;
        assert_eq!(status.success(), !killed, "{status}");
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Serving {
    /// The server of a test that failed must not stay.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ready(name: &str) -> bool {
    if !require(name, &[Need::E2fsck]) {
        return false;
    }
    let there = Command::new("nfs-cp").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !there {
        skip(name, "needs nfs-cp; install libnfs-utils");
    }
    there
}

/// Runs a program of libnfs, which says on standard error what went wrong.
fn nfs(program: &str, arguments: &[&str]) -> Vec<u8> {
    let ran = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{program} {arguments:?}: {said}");
    ran.stdout
}

#[test]
fn libnfs_copies_files_and_they_survive_a_kill() {
    if !ready("libnfs_copies_files_and_they_survive_a_kill") {
        return;
    }
    let image = mkfs(&ImageSpec::default());
    let dir = scratch();
    let contents: Vec<u8> = (0..3_000_000u32).map(|nr| (nr / 3) as u8).collect();
    let local = dir.path().join("local");
    std::fs::write(&local, &contents).unwrap();
    let serving = Serving::start(image.path(), &[]);
    let mount = format!("port={0},mountport={0} 127.0.0.1:/ DIR", serving.port);
    assert!(serving.mount_line.contains(&mount), "{}", serving.mount_line);
    nfs("nfs-cp", &[local.to_str().unwrap(), &serving.url("copied")]);
    let listed = String::from_utf8(nfs("nfs-ls", &[&serving.url("")])).unwrap();
    assert!(listed.contains("copied") && listed.contains("3000000"), "{listed}");
    let busy = refused(1, &["ls".as_ref(), at(image.path(), "/").as_ref() as &std::ffi::OsStr]);
    assert!(busy.contains("open"), "{busy}");
    // What the client wrote and committed is in the image, although the server ends at once.
    serving.end(rustix::process::Signal::KILL);

    let read_only = Serving::start(image.path(), &["-o", "ro"]);
    assert!(nfs("nfs-cat", &[&read_only.url("copied")]) == contents, "replayed in memory");
    assert_eq!(read_only.end(rustix::process::Signal::TERM), "");

    let serving = Serving::start(image.path(), &["-o", "sync=ordered,noatime"]);
    assert!(nfs("nfs-cat", &[&serving.url("copied")]) == contents);
    assert_eq!(serving.end(rustix::process::Signal::INT), "");
    e2fsck_clean(image.path()).unwrap();
    assert!(run(&["cat", &at(image.path(), "/copied")]).out == contents);
}

#[test]
fn the_page_and_the_metrics_of_a_mount_are_those_of_a_server() {
    let dir = scratch();
    let image = dir.path().join("m.img").display().to_string();
    done(&["mkfs", "--size", "16M", &image]);
    let nfs = ["serve", "--nfs", "0", &image, "--web"];
    let with = |address: &'static str| [&nfs[..], &[address]].concat();
    let web = Web::of(&with("0"));
    let live: serde_json::Value = serde_json::from_str(&web.get("/live.json")).unwrap();
    assert_eq!(
        (&live["schema"], &live["title"]),
        (&"syncline.top/1".into(), &image.as_str().into())
    );
    assert!(web.get("/").contains("live.json"));
    let metrics = web.get("/metrics");
    for metric in
        ["syncline_cache_bytes_max ", "syncline_syncs_operations 0\n", "syncline_journal_"]
    {
        assert!(metrics.contains(metric), "{metric}: {metrics}");
    }
    drop(web);
    let said = refused(2, &with("0.0.0.0:0"));
    assert!(said.contains("reachable from other machines"), "{said}");
}

#[test]
fn what_cannot_be_served_is_said() {
    if !require("what_cannot_be_served_is_said", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::default());
    let path = image.path().to_str().unwrap();
    let said = refused(2, &["serve", "--nfs", "0.0.0.0:0", path]);
    assert!(said.contains("--allow"), "{said}");
    let said = refused(2, &["serve", "--nfs", "127.0.0.1:0", "-o", "sync=eeger", path]);
    assert!(said.contains("eager"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refused(1, &["serve", "--nfs", &address, path]);
    assert!(said.contains("port 0") || said.contains("another port"), "{said}");
    let dir = scratch();
    let text = file(dir.path(), "text", "no image");
    refused(3, &["serve", "--nfs", "127.0.0.1:0", text.to_str().unwrap()]);
    done(&["ls", &at(image.path(), "/")]);
}

/// Bytes of memory that a process has used at most.
fn peak_bytes(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn connections_that_stall_cost_bounded_memory_and_the_end_is_clean() {
    if !require("connections_that_stall_cost_bounded_memory", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::default());
    let serving = Serving::start(image.path(), &[]);
    let before = peak_bytes(&serving.child);
    let half = vec![0; 512 << 10];
    let stalled: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = TcpStream::connect(format!("127.0.0.1:{}", serving.port)).unwrap();
            // A record of a megabyte is announced. The server may close the connection meanwhile.
            let _ = stream.write_all(&0x8010_0000u32.to_be_bytes());
            let _ = stream.write_all(&half);
            stream
        })
        .collect();
    let grown = peak_bytes(&serving.child) - before;
    assert!(grown < 160 << 20, "{} MiB", grown >> 20);
    let began = Instant::now();
    assert_eq!(serving.end(rustix::process::Signal::TERM), "");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(stalled);
    e2fsck_clean(image.path()).unwrap();
}

#[test]
fn permissions_are_checked_unless_they_are_switched_off() {
    let name = "permissions_are_checked_unless_they_are_switched_off";
    if !ready(name) || !require(name, &[Need::Root]) {
        return;
    }
    let image = mkfs(&ImageSpec::default());
    let dir = scratch();
    let local = file(dir.path(), "local", "contents");
    let copies = |serving: &Serving, to: &str| {
        let mut command = Command::new("nfs-cp");
        command.arg(&local).arg(serving.url(to)).uid(1000).gid(1000);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let serving = Serving::start(image.path(), &["--allow-local-users"]);
    assert!(!copies(&serving, "refused"), "the root directory belongs to root");
    serving.end(rustix::process::Signal::TERM);
    let serving = Serving::start(image.path(), &["--no-permissions", "--allow-local-users"]);
    assert!(copies(&serving, "copied"));
    serving.end(rustix::process::Signal::TERM);
    assert_eq!(run(&["cat", &at(image.path(), "/copied")]).out, b"contents");
    refused(1, &["cat", &at(image.path(), "/refused")]);
}

#[test]
fn a_user_who_could_not_write_is_told_when_serving() {
    let name = "a_user_who_could_not_write_is_told_when_serving";
    if !require(name, &[Need::E2fsck, Need::Root]) {
        return;
    }
    let dir = scratch();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (program, image) = (dir.path().join("syncline"), dir.path().join("card.img"));
    copy_program(&binary(), &program);
    std::fs::copy(mkfs(&ImageSpec::default()).path(), &image).unwrap();
    std::os::unix::fs::chown(&image, Some(1000), Some(1000)).unwrap();
    let said = |options: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["serve", "--nfs", "127.0.0.1:0"]).args(options).arg(&image);
        let mut child = command.uid(1000).gid(1000).stdout(Stdio::piped()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut lines = String::new();
        out.read_line(&mut lines).unwrap();
        out.read_line(&mut lines).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        out.read_to_string(&mut lines).unwrap();
        assert!(child.wait().unwrap().success(), "{lines}");
        lines
    };
    let plain = said(&[]);
    assert!(plain.contains("belongs to user 0") && plain.contains("--no-permissions"), "{plain}");
    assert_eq!(said(&["--no-permissions"]).lines().count(), 2);
    assert_eq!(said(&["-o", "ro"]).lines().count(), 2);
}
