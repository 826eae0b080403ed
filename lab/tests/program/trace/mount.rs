//! `mount -o trace=FILE`: what programs do on a mount, and what its device is told.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use crate::support::mounted::Mounted;
use crate::support::{done, lab, refused, scratch};
use serde_json::Value;
use syncline_lab::trace::{Flags, Op, Origin, Record, TraceReader};
use syncline_testkit::{ImageSpec, Need, mkfs, require};

const NEEDS: [Need; 2] = [Need::Fuse, Need::E2fsck];
const PAGE_BYTES: u64 = 4096;

/// The records of a trace with the paths of their files and the names of their processes.
fn records(path: &Path) -> Vec<(Record, String, String)> {
    let mut reader = TraceReader::open(File::open(path).unwrap()).unwrap();
    assert_eq!(reader.lost(), 0);
    let mut all = Vec::new();
    while let Some((records, names)) = reader.next_batch().unwrap() {
        let named = |r: &Record| (*r, names.get(r.file).into(), names.get(r.process_name).into());
        all.extend(records.iter().map(named));
    }
    all
}

fn of<'r>(
    all: &'r [(Record, String, String)],
    path: &'r str,
) -> impl Iterator<Item = &'r Record> + 'r {
    all.iter().filter(move |(_, file, _)| file == path).map(|(record, ..)| record)
}

fn ops(all: &[(Record, String, String)], path: &str) -> Vec<&'static str> {
    of(all, path).filter(|r| r.op != Op::Stat).map(|r| r.op.name()).collect()
}

/// Imports the events of a mount, with these remarks.
fn import(events: &Path, stem: &Path, remarks: &str) {
    let words = ["trace", "import", "-o"].map(OsStr::new);
    let run = lab().args(words).args([stem, events]).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success() && said.contains(remarks), "{said}");
    assert!(!remarks.is_empty() || said.is_empty(), "{said}");
}

/// A rename above a file that was there, every way to write, and another program.
fn programs(m: &Mounted) {
    fs::rename(m.at("dir"), m.at("d")).unwrap();
    let mut old = OpenOptions::new().read(true).append(true).open(m.at("d/old")).unwrap();
    for _ in 0..3 {
        old.read_exact_at(&mut [0; 5000], 1000).unwrap();
    }
    old.write_all(&[2; 100]).unwrap();
    old.sync_data().unwrap();
    drop(old);
    let direct = 0o40_000;
    let options = || OpenOptions::new().write(true).create(true).truncate(false).to_owned();
    let file = options().custom_flags(direct).open(m.at("d/direct")).unwrap();
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    file.write_all_at(&Page([3; 4096]).0, 8192).unwrap();
    file.set_len(10_000).unwrap();
    drop(file);
    // O_SYNC past the kernel's cache is ours to keep.
    let file = options().custom_flags(0o4_010_000).open(m.at("synced")).unwrap();
    file.write_all_at(b"now", 5).unwrap();
    drop(file);
    let sh = "cp /dev/null \"$1\"; exec dd if=/dev/zero of=\"$1\" bs=8192 count=1 status=none";
    let run = Command::new("sh").args(["-c", sh, "sh"]).arg(m.at("made")).status();
    assert!(run.unwrap().success());
    fs::remove_file(m.at("made")).unwrap();
}

#[test]
fn a_mount_is_captured_before_and_after_its_caches() {
    if !require("a_mount_is_captured_before_and_after_its_caches", &NEEDS) {
        return;
    }
    let out = scratch();
    let trace = out.path().join("run.trace");
    let mut m = Mounted::new(mkfs(&ImageSpec::with_size(64 << 20)), "");
    fs::create_dir(m.at("dir")).unwrap();
    fs::write(m.at("dir/old"), [1; 9000]).unwrap();
    m.unmount_clean();
    m.mount(&format!("sync=ordered,trace_reads,trace={}", trace.display()));

    programs(&m);
    let status: Value = serde_json::from_str(&done(&[
        OsStr::new("status"),
        OsStr::new("--json"),
        m.dir.as_os_str(),
    ]))
    .unwrap();
    assert!(status["trace"]["events"].as_u64().unwrap() > 20, "{status}");
    assert_eq!(status["trace"]["lost"], 0);
    m.unmount_clean();
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1, "no partial file is left");
    import(&out.path().join("run.events"), &out.path().join("run"), "");

    let calls = records(&out.path().join("run.calls.trace"));
    assert!(calls.is_sorted_by_key(|(record, ..)| record.time_ns));
    assert_eq!(
        ops(&calls, "/d/old"),
        ["present", "open", "read", "read", "read", "write", "fdatasync", "close"]
    );
    let present = of(&calls, "/d/old").find(|r| r.op == Op::Present).unwrap();
    assert_eq!(present.size_bytes, Some(9000));
    let write = of(&calls, "/d/old").find(|r| r.op == Op::Write).unwrap();
    assert_eq!((write.offset_bytes, write.len_bytes, write.result), (9000, 100, Some(100)));
    assert_eq!(write.size_bytes, Some(9000));
    assert!(write.flags.has(Flags::APPEND) && write.latency_ns.is_some());
    assert_eq!(write.process, std::process::id());
    assert_eq!(ops(&calls, "/d/direct"), ["create", "write", "truncate", "close"]);
    assert!(of(&calls, "/d/direct").any(|r| r.flags.has(Flags::DIRECT)));
    assert!(of(&calls, "/synced").any(|r| r.op == Op::Write && r.flags.has(Flags::SYNC)));
    assert_eq!(ops(&calls, "/dir"), ["rename"]);
    let unlink = ops(&calls, "/made");
    assert_eq!(unlink.last(), Some(&"unlink"), "{unlink:?}");
    let dd = calls.iter().find(|(r, file, _)| r.op == Op::Write && file == "/made").unwrap();
    assert_eq!((dd.2.as_str(), dd.0.len_bytes), ("dd", 8192));

    let pages = records(&out.path().join("run.pages.trace"));
    let old: Vec<_> = of(&pages, "/d/old").map(|r| (r.offset_bytes, r.len_bytes)).collect();
    assert_eq!(old, [(0, 8192), (0, 8192), (0, 8192), (8192, 4096)]);
    assert!(pages.iter().all(|(r, ..)| r.offset_bytes % PAGE_BYTES == 0));

    agree(&pages, &records(&out.path().join("run.blocks.trace")));
    let blocks = out.path().join("run.blocks.trace");
    let text = done(&[OsStr::new("trace"), OsStr::new("stat"), blocks.as_os_str()]);
    assert!(text.starts_with("block trace of syncline mount"), "{text}");
}

/// Both sides of one run: data goes to the device only after it was written to a page, with as many
/// pages; there are flushes, and each origin.
fn agree(pages: &[(Record, String, String)], blocks: &[(Record, String, String)]) {
    let mut first_write_ns = BTreeMap::new();
    for (page, ..) in pages.iter().filter(|(page, ..)| page.op == Op::Write) {
        first_write_ns.entry(page.inode).or_insert(page.time_ns);
    }
    let data = |r: &&Record| r.op == Op::Write && r.origin == Origin::Data;
    let blocks: Vec<&Record> = blocks.iter().map(|(record, ..)| record).collect();
    for block in blocks.iter().copied().filter(data) {
        let first = first_write_ns.get(&block.inode);
        assert!(first.is_some_and(|first| *first < block.time_ns), "{block:?}");
    }
    let bytes = |origin| -> u64 {
        let of = blocks.iter().filter(|r| r.op == Op::Write && r.origin == origin);
        of.map(|r| r.len_bytes).sum()
    };
    assert!(bytes(Origin::Data) > 0 && bytes(Origin::Journal) > 0 && bytes(Origin::Metadata) > 0);
    assert!(blocks.iter().any(|r| r.op == Op::Flush));
}

#[test]
fn a_killed_capture_has_what_was_written() {
    if !require("a_killed_capture_has_what_was_written", &NEEDS) {
        return;
    }
    let out = scratch();
    let mut m = Mounted::new(mkfs(&ImageSpec::with_size(64 << 20)), "");
    m.unmount_clean();
    m.mount(&format!("trace={}", out.path().join("run").display()));
    let file = File::create(m.at("f")).unwrap();
    let writes = 2000;
    for n in 0..writes {
        file.write_all_at(b"x", n).unwrap();
    }
    drop(file);
    let partial = out.path().join("run.events.partial");
    // The request after the writes is in the file, so they are, too.
    let sized = || fs::metadata(&partial).unwrap().len() > writes * 10;
    let began = std::time::Instant::now();
    while !sized() && began.elapsed() < std::time::Duration::from_secs(60) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    m.kill_serving();
    m.bury();
    m.recoverable().unwrap();
    import(&partial, &out.path().join("run"), "cut short");
    let calls = records(&out.path().join("run.calls.trace"));
    let found = calls.iter().filter(|(r, ..)| r.op == Op::Write).zip(0u64..);
    assert!(found.clone().count() > 1000, "{} records", calls.len());
    for ((write, file, _), n) in found {
        assert_eq!((write.offset_bytes, file.as_str()), (n, "/f"));
    }
    assert!(!out.path().join("run.events").exists());
}

#[test]
fn a_trace_that_cannot_be_written_is_said() {
    if !require("a_trace_that_cannot_be_written_is_said", &NEEDS) {
        return;
    }
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let dir = scratch();
    let option = format!("trace={}", dir.path().join("none/run").display());
    let words = ["mount", "-f", "-o", &option].map(OsStr::new);
    let all: Vec<&OsStr> =
        words.into_iter().chain([image.path().as_os_str(), dir.path().as_os_str()]).collect();
    let err = refused(1, &all);
    assert!(err.contains("none/run") && err.contains("check"), "{err}");
    let words = ["mount", "-o", "trace_reads"].map(OsStr::new);
    let all: Vec<&OsStr> =
        words.into_iter().chain([image.path().as_os_str(), dir.path().as_os_str()]).collect();
    refused(2, &all);
}
