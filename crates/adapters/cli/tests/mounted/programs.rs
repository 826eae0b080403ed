//! Real programs on a mount: SQLite in every journal mode, git, many threads, and random operations
//! with mmap beside them.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::mounted::Mounted;
use syncline_testkit::posix::{concurrent_readers, fsx, stress};
use syncline_testkit::{ImageSpec, Need, TempImage, mkfs, require, skip};

const NEEDS: [Need; 2] = [Need::Fuse, Need::E2fsck];

/// Random operations of one run; more with `SYNCLINE_FSX_OPS`.
const OPERATIONS: u64 = 3000;
/// Writes of a file that others read meanwhile.
const READ_ROUNDS: u64 = 2000;
/// Rounds of each of 8 threads; 32 threads for a while with `SYNCLINE_STRESS_SECONDS`.
const ROUNDS: u64 = 100;

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

#[test]
fn sqlite_in_every_journal_mode_packed() {
    if require("sqlite_in_every_journal_mode_packed", &NEEDS) {
        sqlite_in_every_mode("sync=eager,log=packed");
    }
}

/// A script of lab/scripts/programs in its short form; it says itself what it cannot run without.
fn script(test: &str, name: &str, sync: &str) {
    if !require(test, &NEEDS) || !require(test, &[Need::Root]) {
        return;
    }
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../lab/scripts/programs");
    let output = Command::new("sh")
        .arg(scripts.join(name))
        .args([env!("CARGO_BIN_EXE_syncline"), "--short"])
        .env("SYNC", sync)
        .env("SYNCLINE_SCRATCH", syncline_testkit::scratch_dir())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => assert!(out.contains("every check passed"), "{name}: {out}{err}"),
        Some(77) => skip(test, out.trim()),
        _ => panic!("{name}: {}\n{out}{err}", output.status),
    }
}

#[test]
fn the_sqlite_shell_loses_no_answered_row() {
    script("the_sqlite_shell_loses_no_answered_row", "sqlite.sh", "eager");
}

#[test]
fn the_sqlite_shell_loses_no_answered_row_packed() {
    let test = "the_sqlite_shell_loses_no_answered_row_packed";
    script(test, "sqlite.sh", "eager,log=packed");
}

#[test]
fn archives_come_back_as_they_were() {
    script("archives_come_back_as_they_were", "archives.sh", "ordered");
}

#[test]
fn fio_verifies() {
    script("fio_verifies", "fio.sh", "eager");
}

#[test]
fn mariadb_recovers_from_a_killed_mount() {
    script("mariadb_recovers_from_a_killed_mount", "mariadb.sh", "eager");
}

#[test]
fn postgresql_recovers_from_a_killed_mount() {
    script("postgresql_recovers_from_a_killed_mount", "postgresql.sh", "eager");
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

/// Writes bytes of a size that does not change, and syncs them.
fn put(path: &Path, round: u32) {
    let options = fs::File::options().write(true).create(true).truncate(false).clone();
    let mut file = options.open(path).unwrap();
    file.write_all(format!("round {round:06}\n").as_bytes()).unwrap();
    file.sync_all().unwrap();
}

/// make, rsync and git decide by times whether a file was changed. Here the next change comes as
/// soon as each has finished, and every tenth one is followed by the death of the serving process.
fn programs_that_compare_times(options: &str) {
    let away = tempfile::tempdir().unwrap();
    let mut m = Mounted::new(image(), options);
    let done = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
    };
    let (dir, copy) = (m.at("work"), away.path().join("copy"));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("Makefile"), "out: in\n\tcat in > out\n\tsync out\n").unwrap();
    put(&dir.join("in"), 0);
    git(&dir, &["init", "-q"]);
    let sync = |path: &str| fs::File::open(dir.join(path)).unwrap().sync_all().unwrap();
    ["Makefile", ".git/HEAD", ".git/config", ".git/refs"].into_iter().for_each(sync);
    for round in 1..=30 {
        put(&dir.join("in"), round);
        let expected = fs::read(dir.join("in")).unwrap();
        if round % 10 == 0 {
            m.kill_serving();
            m.bury();
            m.mount(options);
            assert_eq!(fs::read(dir.join("in")).unwrap(), expected, "{options}: it was synced");
        }
        // Each of them sees the file as it is, and remembers its time for the next round.
        done(Command::new("make").args(["-s", "out"]).current_dir(&dir));
        assert_eq!(fs::read(dir.join("out")).unwrap(), expected, "{options}: make, {round}");
        let source = dir.join("in");
        // Times to the nanosecond: a whole second is the default.
        done(Command::new("rsync").args(["-t", "--modify-window=-1"]).arg(&source).arg(&copy));
        assert_eq!(fs::read(&copy).unwrap(), expected, "{options}: rsync, {round}");
        git(&dir, &["-c", "core.fsync=all", "add", "in"]);
        sync(".git");
        let staged = Command::new("git")
            .args(["-c", "safe.directory=*", "cat-file", "blob", ":in"])
            .current_dir(&dir)
            .output()
            .unwrap();
        assert_eq!(staged.stdout, expected, "{options}: git, {round}");
    }
    m.unmount_clean();
}

#[test]
fn make_rsync_and_git_miss_no_change() {
    let test = "make_rsync_and_git_miss_no_change";
    if !require(test, &NEEDS) {
        return;
    }
    if let Some(absent) =
        ["make", "rsync", "git"].iter().find(|n| Command::new(n).arg("--version").output().is_err())
    {
        return skip(test, &format!("needs {absent}"));
    }
    for options in ["sync=eager", "sync=ordered", "sync=eager,lazytime", "writeback_cache"] {
        programs_that_compare_times(&format!("{options},mtime_update=seen"));
    }
}

fn threads_with_trees(options: &str, seed: u64) {
    let (threads, size_bytes, end) = match setting("SYNCLINE_STRESS_SECONDS") {
        Some(seconds) => (32, 768 << 20, Some(Instant::now() + Duration::from_secs(seconds))),
        None => (8, 128 << 20, None),
    };
    let more = |round| end.map_or(round < ROUNDS, |end| Instant::now() < end);
    let mut m = Mounted::new(mkfs(&ImageSpec::with_size(size_bytes)), options);
    fs::create_dir(m.at("tree")).unwrap();
    let load = stress::Load { threads, files_max: 40, may_be_full: false, seed };
    let trees = stress::run(&m.at("tree"), load, &more).unwrap();
    m.unmount_clean();
    m.mount(options);
    stress::verify(&m.at("tree"), &trees).unwrap();
    fs::remove_dir_all(m.at("tree")).unwrap();
    m.unmount_clean();
}

#[test]
fn threads_with_trees_that_check_themselves() {
    if require("threads_with_trees_that_check_themselves", &NEEDS) {
        threads_with_trees("sync=ordered", 1);
    }
}

#[test]
fn threads_with_trees_that_check_themselves_eager() {
    if require("threads_with_trees_that_check_themselves_eager", &NEEDS) {
        threads_with_trees("sync=eager,cache=16M", 2);
    }
}

#[test]
fn threads_with_trees_that_check_themselves_packed() {
    if require("threads_with_trees_that_check_themselves_packed", &NEEDS) {
        threads_with_trees("sync=eager,log=packed,cache=16M", 3);
    }
}

/// A number from the environment: longer forms of these tests.
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn random_operations(options: &str, seed: u64) {
    let operations = setting("SYNCLINE_FSX_OPS").unwrap_or(OPERATIONS);
    let mut m = Mounted::new(image(), options);
    let path = m.at("f");
    let wanted = fsx::run(&path, seed, operations).unwrap();
    m.unmount_clean();
    m.mount(options);
    assert!(fs::read(&path).unwrap() == wanted, "seed {seed}: after another mount");
    m.unmount_clean();
}

/// Of a file that is made for writing only, and so written past the kernel's cache.
#[test]
fn what_is_written_is_read_at_once() {
    if !require("what_is_written_is_read_at_once", &NEEDS) {
        return;
    }
    for options in ["", "writeback_cache", "sync=ordered"] {
        let mut m = Mounted::new(image(), options);
        let wrong = concurrent_readers::run(&m.at("f"), 14, READ_ROUNDS).err();
        assert_eq!(wrong, None, "{options}");
        m.unmount_clean();
    }
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
fn random_operations_with_mmap_packed() {
    if require("random_operations_with_mmap_packed", &NEEDS) {
        random_operations("sync=eager,log=packed,cache=4M", 14);
    }
}

#[test]
fn random_operations_with_mmap_and_writeback_cache() {
    if require("random_operations_with_mmap_and_writeback_cache", &NEEDS) {
        random_operations("writeback_cache", 13);
    }
}
