//! `trace watch`: a loop device of the real kernel, with files, direct writes and flushes on it.
//!
//! Needs root and tracefs; the refusals also without.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use syncline_lab::trace::{Op, Origin, Record, TraceReader};
use syncline_testkit::{ImageSpec, LoopDevice, Need, TempImage, mkfs, require, skip};

use crate::support::{Ran, copy_program, done, lab, refused, run, scratch};

const NEEDS: [Need; 3] = [Need::Root, Need::Loop, Need::E2fsck];

/// A watch that runs. It is killed when it is dropped.
struct Watch(Option<Child>);

impl Watch {
    /// Begins, and waits until the kernel records.
    fn new(node: &Path, dir: &Path, more: &[&str]) -> Watch {
        let mut command = lab();
        command.args(["trace", "watch"]).arg(node).arg("-o").arg(dir).args(more);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let until = Instant::now() + Duration::from_secs(60);
        // The directory is made when the events are on.
        while !dir.join("watch.json").exists() && Instant::now() < until {
            assert!(child.try_wait().unwrap().is_none(), "{:?}", child.wait_with_output());
            std::thread::sleep(Duration::from_millis(20));
        }
        Watch(Some(child))
    }

    fn signal(&self, signal: &str) {
        let id = self.0.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Ends it as systemd does.
    fn end(mut self) -> Ran {
        self.signal("-TERM");
        let output = self.0.take().expect("it runs").wait_with_output().unwrap();
        let code = output.status.code().expect("it was not killed");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Ran { code, out: output.stdout, err }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn traces(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "trace"))
        .collect();
    found.sort();
    found
}

struct Seen {
    record: Record,
    file: String,
    process: String,
}

fn seen(path: &Path) -> Vec<Seen> {
    let mut reader = TraceReader::open(File::open(path).unwrap()).unwrap();
    assert_eq!(reader.lost(), 0);
    let mut all = Vec::new();
    while let Some((records, names)) = reader.next_batch().unwrap() {
        let named = |record: &Record| Seen {
            record: *record,
            file: names.get(record.file).to_owned(),
            process: names.get(record.process_name).to_owned(),
        };
        all.extend(records.iter().map(named));
    }
    all
}

/// Writes and syncs a file, which stays open while the watch looks for its name.
fn work(path: &Path, syncs: u64) {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).open(path).unwrap();
    for at in 0..syncs {
        file.write_all_at(&[at as u8; 8192], at * 8192).unwrap();
        file.sync_all().unwrap();
    }
    std::thread::sleep(Duration::from_millis(1500));
    file.write_all_at(&[9; 8192], 0).unwrap();
    file.sync_all().unwrap();
    std::thread::sleep(Duration::from_millis(600));
}

fn ext4_on_a_loop_device() -> (tempfile::TempDir, TempImage, Arc<LoopDevice>) {
    let image = mkfs(&ImageSpec::with_size(64 << 20));
    let device = LoopDevice::attach(image.path()).unwrap();
    (scratch(), image, device)
}

#[test]
fn a_file_system_is_watched_with_programs_files_flushes_and_latencies() {
    if !require("trace_watch_files", &NEEDS) {
        return;
    }
    let (dir, _image, device) = ext4_on_a_loop_device();
    let mount = device.mount("").unwrap();
    let output = dir.path().join("watch");
    let watch = Watch::new(device.node(), &output, &["--names", "plain"]);
    let path = mount.path().join("app.db");
    work(&path, 20);
    let ran = watch.end();
    let name = device.node().file_name().unwrap().to_str().unwrap();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.text().starts_with(&format!("{name}: ")), "{}", ran.text());
    assert!(ran.text().contains("\n0 events lost; "), "{}", ran.text());
    let found = traces(&output);
    assert_eq!(found.len(), 1);
    let all = seen(&found[0]);
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
    let ours: Vec<&Seen> = all.iter().filter(|seen| seen.record.inode == inode).collect();
    let bytes: u64 = ours.iter().map(|seen| seen.record.len_bytes).sum();
    assert_eq!(bytes, 21 * 8192, "each synced write is there once, with the file's inode");
    assert!(ours.iter().all(|seen| seen.record.op == Op::Write));
    assert!(ours.iter().all(|seen| seen.record.origin == Origin::Data));
    let named = ours.iter().filter(|seen| seen.file == path.to_str().unwrap());
    assert!(named.count() > 0, "an open file has its path");
    let journal = all.iter().filter(|seen| seen.record.origin == Origin::Journal);
    assert!(journal.filter(|seen| seen.process.starts_with("jbd2/")).count() > 0);
    assert!(all.iter().filter(|seen| seen.record.op == Op::Flush).count() > 0);
    let late = all.iter().filter(|seen| seen.record.latency_ns.is_none()).count();
    assert_eq!(late, 0, "each request has its latency");
    // What other commands make of it.
    let stat = done(&["trace".as_ref(), "stat".as_ref(), found[0].as_os_str()]);
    assert!(stat.starts_with("block trace of syncline-lab trace watch: "), "{stat}");
    let life = done(&["lifetime".as_ref(), "--trace".as_ref(), found[0].as_os_str()]);
    assert!(life.contains("No time follows from a trace of"), "{life}");
    let parted = dir.path().join("records");
    let words = ["trace", "import", "--to=parquet", "--device-name=card", "-o"];
    let paths = [parted.as_os_str(), found[0].as_os_str()];
    done(&words.iter().map(std::ffi::OsStr::new).chain(paths).collect::<Vec<_>>());
    let apps = fs::read_dir(parted.join("device_name=card")).unwrap();
    let days: Vec<PathBuf> = apps
        .flat_map(|app| fs::read_dir(app.unwrap().path()).unwrap())
        .map(|day| day.unwrap().path())
        .collect();
    assert!(days.iter().all(|day| day.to_str().unwrap().contains("day=20")), "{days:?}");
}

#[test]
fn names_are_hashed_with_the_directory_s_secret_and_a_killed_watch_goes_on() {
    if !require("trace_watch_resume", &NEEDS) {
        return;
    }
    let (dir, _image, device) = ext4_on_a_loop_device();
    let mount = device.mount("").unwrap();
    let output = dir.path().join("watch");
    let path = mount.path().join("letters.sqlite");
    let hashed = |trace: &Path| {
        let all = seen(trace);
        let names: Vec<String> = all.into_iter().map(|seen| seen.file).collect();
        let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        assert!(!names.is_empty(), "a file that is open has a name");
        assert!(names.iter().all(|name| name.len() == 23 && name.ends_with(".sqlite")));
        names[0].clone()
    };
    let first = Watch::new(device.node(), &output, &[]);
    // Another one to the same directory.
    let second =
        ["trace", "watch", device.node().to_str().unwrap(), "-o"].map(std::ffi::OsStr::new);
    let second: Vec<_> = second.into_iter().chain([output.as_os_str()]).collect();
    let said = refused(1, &second);
    assert!(said.contains("another watch writes there; end it"), "{said}");
    work(&path, 4);
    assert_eq!(first.end().code, 0);
    let hash = hashed(&traces(&output)[0]);
    // A power cut: the file is partial, and its last footer is all that it has.
    let killed = Watch::new(device.node(), &output, &[]);
    work(&path, 4);
    killed.signal("-KILL");
    drop(killed);
    let whole = traces(&output)[0].clone();
    let left = output.join("loop0-20260101T000000Z-000077.trace.partial");
    fs::copy(&whole, &left).unwrap();
    fs::write(output.join("loop0-20260101T000000Z-000078.trace.partial"), b"PAR1").unwrap();
    let third = Watch::new(device.node(), &output, &[]);
    work(&path, 4);
    assert_eq!(third.end().code, 0);
    let found = traces(&output);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.contains(&left.with_extension("")), "{found:?}");
    assert!(found.iter().all(|trace| hashed(trace) == hash), "the secret stays");
    let left = fs::read_dir(&output).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_str().unwrap().ends_with("partial")));
    let state: Value =
        serde_json::from_slice(&fs::read(output.join("watch.json")).unwrap()).unwrap();
    assert_eq!(state["schema"], "syncline.watch/1");
}

#[test]
fn files_are_rotated_and_the_oldest_removed() {
    if !require("trace_watch_rotate", &NEEDS) {
        return;
    }
    let dir = scratch();
    let image = TempImage::zeroed(8 << 20);
    let device = LoopDevice::attach(image.path()).unwrap();
    let output = dir.path().join("watch");
    let more = ["--rotate", "1s", "--keep", "12K", "--names", "none"];
    let watch = Watch::new(device.node(), &output, &more);
    let mut options = OpenOptions::new();
    let disk = options.write(true).custom_flags(0o40_000).open(device.node()).unwrap();
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let page = Page([1; 4096]);
    let until = Instant::now() + Duration::from_secs(8);
    let mut writes = 0;
    while Instant::now() < until {
        disk.write_all_at(&page.0, writes % 2000 * 4096).unwrap();
        writes += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    let ran = watch.end();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let text = ran.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    let (requests, files) = (words[1].parse::<u64>().unwrap(), words[4].parse::<u64>().unwrap());
    assert!(requests >= writes, "{text}: {writes} writes");
    assert!((4..=12).contains(&files), "{text}");
    let found = traces(&output);
    let bytes: u64 = found.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= 12 << 10 && (found.len() as u64) < files, "{bytes} in {found:?}");
    let direct = seen(found.last().unwrap());
    let write = direct.iter().find(|seen| seen.record.op == Op::Write).unwrap();
    assert_eq!(write.record.len_bytes, 4096);
    // The kernel's events name the thread.
    let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    assert_eq!(write.record.process, thread);
}

#[test]
fn lifetime_watches_a_device_for_a_time() {
    if !require("lifetime_watch", &NEEDS) {
        return;
    }
    let image = TempImage::zeroed(64 << 20);
    let device = LoopDevice::attach(image.path()).unwrap();
    let node = device.node().to_str().unwrap().to_owned();
    let child = lab()
        .args(["lifetime", "--watch", &node, "3s", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let disk = OpenOptions::new().write(true).open(&node).unwrap();
    for at in 0..15 {
        disk.write_all_at(&[5; 65536], at * 65536).unwrap();
        disk.sync_all().unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&found["schema"], &found["size_bytes"]),
        (&"syncline.lifetime/1".into(), &(64 << 20).into())
    );
    // Also while nothing was written at the end.
    assert!(found["duration_s"].as_f64().unwrap() >= 2.9, "{found:#}");
    assert!(found["written_bytes"].as_u64().unwrap() > 0, "{found:#}");
    // Of three seconds nothing follows.
    assert!(found["lifetime"]["years_even"].is_null(), "{found:#}");
    assert!(found["summary"].as_str().unwrap().starts_with("No time follows"), "{found:#}");
    for (words, said) in [
        (["--watch", &node, "soon"], "a time like 90s"),
        (["--watch", "/dev/null", "1s"], "not a block device"),
    ] {
        let said_by = refused(2, &[&["lifetime"][..], &words].concat());
        assert!(said_by.contains(said), "{said_by}");
    }
}

#[test]
fn what_cannot_be_watched_is_one_sentence() {
    let dir = scratch();
    let output = dir.path().join("watch");
    let words = |device: &'static str| -> Vec<String> {
        let words = ["trace", "watch", device, "-o", output.to_str().unwrap()];
        words.map(str::to_owned).to_vec()
    };
    assert!(refused(1, &words("/dev/absent")).contains("/dev/absent: no such file"));
    assert!(refused(2, &words("/dev/null")).contains("not a block device; name one"));
    assert!(!output.exists());
    for wrong in [["--rotate", "1y"], ["--cpu", "0"], ["--names", "some"], ["--keep", "0"]] {
        let mut all = words("/dev/null");
        all.extend(wrong.map(str::to_owned));
        assert_eq!(run(&all).code, 2, "{wrong:?}");
    }
    if !require("trace_watch_refusals", &NEEDS) {
        return;
    }
    let image = TempImage::zeroed(1 << 20);
    let device = LoopDevice::attach(image.path()).unwrap();
    let node = device.node().to_str().unwrap();
    // Not root.
    let program = dir.path().join("syncline");
    copy_program(&lab(), &program);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(dir.path(), open).unwrap();
    let nobody = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program)
        .args(["trace", "watch", node, "-o"])
        .arg(&output)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&nobody.stderr);
    assert_eq!(nobody.status.code(), Some(1), "{said}");
    assert!(said.contains("tracefs: ") && said.ends_with("; run as root\n"), "{said}");
    assert!(!output.exists());
    // A state that is none.
    fs::create_dir(&output).unwrap();
    fs::write(output.join("watch.json"), "{}").unwrap();
    let words = ["trace", "watch", node, "-o", output.to_str().unwrap()];
    assert!(refused(3, &words).contains("no state of a watch; remove it"));
}

#[test]
fn a_full_disk_is_one_sentence_and_leaves_whole_files() {
    if !require("trace_watch_full", &NEEDS) {
        return;
    }
    let (image, small) = (TempImage::zeroed(1 << 20), mkfs(&ImageSpec::with_size(8 << 20)));
    let device = LoopDevice::attach(image.path()).unwrap();
    let mount = LoopDevice::attach(small.path()).unwrap().mount("").unwrap();
    let output = mount.path().join("watch");
    let mut watch = Watch::new(device.node(), &output, &["--rotate", "1s"]);
    let disk = OpenOptions::new().write(true).open(device.node()).unwrap();
    let sync = |at: u64| {
        disk.write_all_at(&[1; 4096], at % 200 * 4096).unwrap();
        disk.sync_all().unwrap();
        std::thread::sleep(Duration::from_millis(10));
    };
    (0..250).for_each(sync);
    // All that is left, block by block.
    let filler = File::create(mount.path().join("filler")).unwrap();
    let mut at = 0;
    while filler.write_at(&[0; 1024], at).is_ok_and(|bytes| bytes > 0) && filler.sync_data().is_ok()
    {
        at += 1024;
    }
    let mut ended = None;
    for at in 0..2000 {
        sync(at);
        ended = watch.0.as_mut().unwrap().try_wait().unwrap();
        if ended.is_some() {
            break;
        }
    }
    assert_eq!(ended.and_then(|status| status.code()), Some(1), "a full disk ends it");
    let output_of = watch.0.take().unwrap().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output_of.stderr);
    // The words are ours, or the kernel's where the trace itself is what does not fit.
    let words = said.to_lowercase();
    assert!(words.contains("no space left on device") && words.contains("; "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for trace in traces(&output) {
        seen(&trace);
    }
}

/// Complaints of systemd about the unit of a loop device, after a change of its text.
fn verified(change: impl Fn(String) -> String) -> String {
    let dir = scratch();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd");
    let unit = fs::read_to_string(root.join("syncline-watch@.service")).unwrap();
    let program = lab().get_program().to_string_lossy().into_owned();
    let path = dir.path().join("syncline-watch@dev-loop0.service");
    fs::write(&path, change(unit.replace("/usr/bin/syncline-lab", &program))).unwrap();
    let ran = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output();
    let ran = ran.unwrap();
    format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr))
}

#[test]
fn systemd_takes_the_unit() {
    let version = Command::new("systemd-analyze").arg("--version").output();
    if !version.is_ok_and(|ran| ran.status.success()) {
        return skip("systemd_takes_the_unit", "needs systemd-analyze; install systemd");
    }
    assert_eq!(verified(|unit| unit), "");
    let unit =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd/syncline-watch@.service");
    // Tenths. Root is needed for tracefs, the rights to read and ptrace for names of open files.
    let ran = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=17"])
        .arg(unit)
        .output();
    assert!(ran.unwrap().status.success(), "exposed by more than 1.7");
    let said = verified(|unit| unit.replace("StateDirectoryMode", "StateDirectoryMoed"));
    assert!(said.contains("StateDirectoryMoed"), "{said}");
    let said = verified(|unit| unit.replace("ExecStart=/", "ExecStart=/none/"));
    assert!(said.contains("/none/"), "{said}");
}
