//! What real programs do on a mount: SQLite in every journal mode, git, many threads, and random
//! operations with mmap beside them.

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use memmap2::MmapMut;
use rustix::fs::FallocateFlags;
use support::mounted::Mounted;
use syncline_testkit::{ImageSpec, Need, Random, TempImage, fill, mkfs, require, skip};

const NEEDS: [Need; 2] = [Need::Fuse, Need::E2fsck];

/// Random operations of one run; more with `SYNCLINE_FSX_OPS`.
const OPERATIONS: u64 = 10_000;
/// Largest file of the random operations, in bytes.
const FILE_BYTES: u64 = 256 << 10;

fn image() -> TempImage {
    mkfs(&ImageSpec::with_size(128 << 20))
}

fn database(path: &Path, mode: &str) -> rusqlite::Connection {
    let db = rusqlite::Connection::open(path).unwrap();
    let set: String =
        db.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0)).unwrap();
    assert_eq!(set, mode);
    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA mmap_size = 1048576;").unwrap();
    db
}

fn sqlite_in_every_mode(options: &str) {
    let mut m = Mounted::new(image(), options);
    for mode in ["delete", "truncate", "persist", "memory", "wal", "off"] {
        let path = m.at(format!("{mode}.db"));
        let db = database(&path, mode);
        db.execute_batch("CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB)").unwrap();
        for k in 0..60 {
            db.execute("INSERT INTO t VALUES (?1, randomblob(3000))", [k]).unwrap();
        }
        // A reader of its own, as another program would have: locks, and the shared -shm of WAL.
        let reader = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch("BEGIN; DELETE FROM t WHERE k % 3 = 0; UPDATE t SET v = 'x';").unwrap();
        let count = |db: &rusqlite::Connection| -> i64 {
            db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
        };
        if mode == "wal" {
            assert_eq!(count(&reader), 60, "a reader sees the state before the transaction");
        }
        db.execute_batch("COMMIT").unwrap();
        assert_eq!((count(&db), count(&reader)), (40, 40), "{mode}");
        drop(reader);
        db.execute_batch("VACUUM").unwrap();
        let said: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(said, "ok", "{mode}");
    }
    m.unmount_clean();
    m.mount(options);
    for mode in ["delete", "truncate", "persist", "memory", "wal", "off"] {
        let db = rusqlite::Connection::open(m.at(format!("{mode}.db"))).unwrap();
        let said: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(said, "ok", "{mode} after the mount");
    }
    m.unmount_clean();
}

#[test]
fn sqlite_in_every_journal_mode() {
    if require("sqlite_in_every_journal_mode", &NEEDS) {
        sqlite_in_every_mode("sync=ordered");
    }
}

#[test]
fn sqlite_in_every_journal_mode_eager() {
    if require("sqlite_in_every_journal_mode_eager", &NEEDS) {
        sqlite_in_every_mode("sync=eager");
    }
}

fn git(dir: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "safe.directory=*"])
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {said}");
}

#[test]
fn git_commit_clone_gc_fsck() {
    if !require("git_commit_clone_gc_fsck", &NEEDS) {
        return;
    }
    if Command::new("git").arg("--version").output().is_err() {
        return skip("git_commit_clone_gc_fsck", "needs git");
    }
    let mut m = Mounted::new(image(), "");
    let one = m.at("one");
    fs::create_dir(&one).unwrap();
    git(&one, &["init", "-q"]);
    for nr in 0..5 {
        for file in 0..20 {
            fs::write(one.join(format!("f{file}")), format!("{nr} {file}\n").repeat(50)).unwrap();
        }
        git(&one, &["add", "."]);
        git(&one, &["commit", "-q", "-m", "change"]);
    }
    git(&m.dir, &["clone", "-q", "--no-hardlinks", "one", "two"]);
    git(&m.at("two"), &["gc", "-q", "--aggressive"]);
    git(&m.at("two"), &["fsck", "--strict"]);
    assert_eq!(fs::read(m.at("two/f7")).unwrap(), fs::read(one.join("f7")).unwrap());
    m.unmount_clean();
}

#[test]
fn eight_threads_at_once() {
    if !require("eight_threads_at_once", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "cache=16M");
    fs::create_dir(m.at("shared")).unwrap();
    std::thread::scope(|scope| {
        for nr in 0..8u64 {
            let m = &m;
            scope.spawn(move || thread(m, nr));
        }
    });
    assert_eq!(fs::read_dir(m.at("shared")).unwrap().count(), 0);
    m.unmount_clean();
}

/// Makes, writes, reads back, renames and removes files of its own in a shared directory.
fn thread(m: &Mounted, nr: u64) {
    let mut rng = Random::new(nr);
    let shared = m.at("shared");
    let mut bytes = vec![0; 200_000];
    for round in 0..40u64 {
        let (seed, len) = (nr << 32 | round, 1 + rng.index(bytes.len() - 1));
        fill(seed, 0, &mut bytes[..len]);
        let (from, to) =
            (shared.join(format!("{nr}-{round}")), shared.join(format!("{nr}-{round}-moved")));
        let file = File::create(&from).unwrap();
        file.write_all_at(&bytes[..len], 0).unwrap();
        if rng.one_in(3) {
            file.sync_all().unwrap();
        }
        fs::rename(&from, &to).unwrap();
        let names = fs::read_dir(&shared).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().any(|name| to.ends_with(name)), "its own name is listed");
        assert!(fs::read(&to).unwrap() == bytes[..len], "thread {nr}, round {round}");
        fs::remove_file(&to).unwrap();
    }
}

/// What the file must contain.
struct Model {
    bytes: Vec<u8>,
}

impl Model {
    fn put(&mut self, at: usize, data: &[u8]) {
        if self.bytes.len() < at + data.len() {
            self.bytes.resize(at + data.len(), 0);
        }
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }
}

/// One operation on the file and on the model; gives what was done, for the message of a failure.
fn step(file: &mut File, path: &Path, model: &mut Model, rng: &mut Random, nr: u64) -> String {
    let at = rng.below(FILE_BYTES - 1);
    let len = 1 + rng.below((FILE_BYTES - at).min(40_000));
    let mut data = vec![0; len as usize];
    let inside = (at as usize).min(model.bytes.len());
    let end = (at + len).min(model.bytes.len() as u64) as usize;
    match rng.below(12) {
        0..=2 => {
            fill(nr, at, &mut data);
            file.write_all_at(&data, at).unwrap();
            model.put(at as usize, &data);
            format!("write {at} {len}")
        }
        3 | 4 => {
            let n = file.read_at(&mut data, at).unwrap();
            assert!(data[..n] == model.bytes[inside..end.max(inside)], "op {nr}: read {at} {len}");
            format!("read {at} {len}")
        }
        5 => {
            file.set_len(at).unwrap();
            model.bytes.resize(at as usize, 0);
            format!("truncate {at}")
        }
        6 | 7 if inside < end => {
            // SAFETY: nobody else changes the file, and the map is gone before the next operation
            // changes its size.
            let mut map = unsafe { MmapMut::map_mut(&*file) }.unwrap();
            assert!(map[..] == model.bytes[..], "op {nr}: mapped contents");
            fill(nr, at, &mut map[inside..end]);
            model.bytes[inside..end].copy_from_slice(&map[inside..end]);
            if rng.one_in(2) {
                map.flush().unwrap();
            }
            format!("mmap write {inside}..{end}")
        }
        8 => {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&*file, punch, at, len).unwrap();
            model.bytes[inside..end.max(inside)].fill(0);
            format!("punch {at} {len}")
        }
        9 => {
            rustix::fs::fallocate(&*file, FallocateFlags::ZERO_RANGE, at, len).unwrap();
            model.put(at as usize, &data);
            format!("zero {at} {len}")
        }
        10 => {
            if rng.one_in(2) {
                file.sync_data().unwrap()
            } else {
                file.sync_all().unwrap()
            }
            "sync".into()
        }
        _ => {
            *file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            "reopen".into()
        }
    }
}

fn random_operations(options: &str, seed: u64) {
    let wanted = std::env::var("SYNCLINE_FSX_OPS").ok().and_then(|text| text.parse().ok());
    let mut m = Mounted::new(image(), options);
    let path = m.at("f");
    let open =
        || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = open().unwrap();
    let (mut model, mut rng) = (Model { bytes: Vec::new() }, Random::new(seed));
    let mut last = String::new();
    for nr in 0..wanted.unwrap_or(OPERATIONS) {
        let done = step(&mut file, &path, &mut model, &mut rng, nr);
        let size = file.metadata().unwrap().len();
        assert_eq!(size, model.bytes.len() as u64, "seed {seed}, op {nr}: {done} after {last}");
        last = done;
    }
    drop(file);
    assert!(fs::read(&path).unwrap() == model.bytes, "seed {seed}: at the end");
    m.unmount_clean();
    m.mount(options);
    assert!(fs::read(&path).unwrap() == model.bytes, "seed {seed}: after another mount");
    m.unmount_clean();
}

#[test]
fn random_operations_with_mmap() {
    if require("random_operations_with_mmap", &NEEDS) {
        random_operations("sync=ordered", 11);
    }
}

#[test]
fn random_operations_with_mmap_eager() {
    if require("random_operations_with_mmap_eager", &NEEDS) {
        random_operations("sync=eager,cache=4M", 12);
    }
}

#[test]
fn random_operations_with_mmap_and_writeback_cache() {
    if require("random_operations_with_mmap_and_writeback_cache", &NEEDS) {
        random_operations("writeback_cache", 13);
    }
}
