//! The SQLite VFS: every journal mode over a remount, locks between connections, errors, and power
//! cuts at every flush with the rollback of hot journals and the recovery of WALs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, ffi};
use syncline_device::{
    BlockDevice, Clock, DeviceError, Geometry, MemoryDevice, Op, Request, VirtualClock,
};
use syncline_fs::{FsError, MountOptions, SetAttr, SyncMode, Volume};
use syncline_sqlite::{Barriers, SqliteVfs, VfsError, VolumeFs};
use syncline_testkit::crash::{Budget, CrashDevice, CrashOptions, Entry, Explorer, Summary, run};
use syncline_testkit::{ImageSpec, Need, e2fsck_clean, mkfs, require};

/// Keeps a picture of the medium at each flush, with a note of the moment.
struct Pictures {
    memory: Arc<MemoryDevice>,
    note: Mutex<i64>,
    taken: Mutex<Vec<(i64, MemoryDevice)>>,
}

impl BlockDevice for Pictures {
    fn geometry(&self) -> Geometry {
        Geometry { fua: false, ..self.memory.geometry() }
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        self.memory.submit(batch)?;
        if batch.iter().any(|request| matches!(request.op, Op::Flush)) {
            self.taken.lock().push((*self.note.lock(), self.memory.snapshot()));
        }
        Ok(())
    }
}

fn memory() -> MemoryDevice {
    let image = mkfs(&ImageSpec::with_size(64 << 20));
    MemoryDevice::load(image.path()).unwrap()
}

/// A mounted volume with a VFS of its own.
struct Mounted {
    fs: Arc<VolumeFs>,
    vfs: SqliteVfs,
}

impl Mounted {
    fn database(&self, path: &str) -> Result<Connection, VfsError> {
        self.vfs.open(path)
    }

    fn unmount(self) -> Result<(), FsError> {
        self.fs.volume().clone().unmount()
    }
}

fn mount(device: Arc<dyn BlockDevice>) -> Mounted {
    mount_as(SyncMode::Eager, device)
}

fn mount_as(sync: SyncMode, device: Arc<dyn BlockDevice>) -> Mounted {
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
    let options = MountOptions::default().with(|options| options.sync = sync);
    let volume = Volume::mount(device, clock.clone(), options).unwrap();
    // A price, so that timestamps move.
    let fs = Arc::new(VolumeFs::new(volume, clock, 1000));
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let name = format!("test-{}", SERIAL.fetch_add(1, Ordering::Relaxed));
    let vfs = SqliteVfs::register(&name, Arc::clone(&fs), 1).unwrap();
    Mounted { fs, vfs }
}

fn open(target: &Mounted, mode: &str) -> Connection {
    let db = target.database("/a.db").unwrap();
    let set: String =
        db.query_row(&format!("PRAGMA journal_mode={mode}"), [], |row| row.get(0)).unwrap();
    assert_eq!(set, mode);
    db.execute_batch("PRAGMA synchronous=FULL").unwrap();
    db
}

fn rows(db: &Connection) -> i64 {
    db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

fn assert_intact(db: &Connection, context: &str) {
    let verdict: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok", "{context}");
}

/// Inserts rows with enough content that several pages change in each transaction.
fn insert(db: &Connection, id: i64) {
    let text = format!("{id:08}").repeat(200);
    db.execute("INSERT INTO t VALUES(?, ?)", rusqlite::params![id, text]).unwrap();
    db.execute("UPDATE t SET c = c || 'x' WHERE id = ?", [id / 2]).unwrap();
}

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, c TEXT); CREATE INDEX i ON t(c)";
const MODES: [&str; 5] = ["delete", "truncate", "persist", "memory", "wal"];

#[test]
fn every_mode_survives_a_remount() {
    if !require("every_mode_survives_a_remount", &[Need::E2fsck]) {
        return;
    }
    for mode in MODES {
        let memory = Arc::new(memory());
        let target = mount(memory.clone());
        let db = open(&target, mode);
        db.execute_batch(SCHEMA).unwrap();
        (1..=60).for_each(|id| insert(&db, id));
        db.execute("DELETE FROM t WHERE id % 3 = 0", []).unwrap();
        db.execute_batch("VACUUM").unwrap();
        // More than the page cache and the statement spill hold: temporary files are used.
        db.execute_batch("PRAGMA cache_size=10; CREATE TABLE u AS SELECT * FROM t ORDER BY c DESC")
            .unwrap();
        assert_intact(&db, mode);
        db.close().unwrap();
        target.unmount().unwrap();

        let target = mount(memory.clone());
        let db = open(&target, mode);
        assert_intact(&db, mode);
        assert_eq!(rows(&db), 40, "{mode}");
        db.close().unwrap();
        target.unmount().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        memory.to_file(file.path()).unwrap();
        e2fsck_clean(file.path()).unwrap();
    }
}

#[test]
fn every_flush_may_be_the_last() {
    if require("every_flush_may_be_the_last", &[Need::E2fsck]) {
        flush_by_flush(SyncMode::Ordered);
        flush_by_flush(SyncMode::Eager);
    }
}

/// Every state that a flush left is opened again, mounted in the other mode.
fn flush_by_flush(sync: SyncMode) {
    let next = if sync == SyncMode::Eager { SyncMode::Ordered } else { SyncMode::Eager };
    // In memory mode a cut inside of a transaction may corrupt the database; SQLite says so. In
    // delete mode with synchronous=FULL the unlink that commits is not synced, and the journal may
    // come back: SQLite rolls one acknowledged transaction back on any file system. EXTRA syncs it.
    let cases = [("delete", "full"), ("delete", "extra"), ("truncate", "full")];
    let cases = cases.into_iter().chain([("persist", "full"), ("wal", "full")]);
    for (mode, synchronous) in cases {
        let (note, taken) = (Mutex::new(0), Mutex::default());
        let pictures = Arc::new(Pictures { memory: Arc::new(memory()), note, taken });
        let target = mount_as(sync, pictures.clone());
        let db = open(&target, mode);
        db.execute_batch(&format!("PRAGMA synchronous={synchronous}")).unwrap();
        db.execute_batch(SCHEMA).unwrap();
        pictures.taken.lock().clear();
        for id in 1..=12 {
            let batch = format!("BEGIN; INSERT INTO t VALUES({id}, hex(zeroblob(3000))); COMMIT");
            db.execute_batch(&batch).unwrap();
            *pictures.note.lock() = id;
        }
        drop(db);
        drop(target);
        let taken = std::mem::take(&mut *pictures.taken.lock());
        assert!(taken.len() >= 12, "{sync:?} {mode}: {} flushes", taken.len());
        let mut hot = 0u32;
        for (index, (acknowledged, picture)) in taken.into_iter().enumerate() {
            let context = format!(
                "{sync:?} {mode} {synchronous}, flush {index}, {acknowledged} acknowledged"
            );
            let target = mount_as(next, Arc::new(picture));
            let journal = if mode == "wal" { "/a.db-wal" } else { "/a.db-journal" };
            let found = target.fs.open(journal).map(|inode| target.fs.size(&inode));
            hot += u32::from(found.is_ok_and(|size| size > 0));
            let db = open(&target, mode);
            assert_intact(&db, &context);
            let may_come_back = i64::from(mode == "delete" && synchronous == "full");
            let allowed = acknowledged - may_come_back..=acknowledged + 1;
            let rows = rows(&db);
            assert!(allowed.contains(&rows), "{context}: {rows} rows");
            db.close().unwrap();
            target.unmount().unwrap();
        }
        assert!(hot > 0, "{sync:?} {mode}: no cut left a journal to roll back or recover");
    }
}

/// Runs transactions with barriers on a crash device and judges the states that cuts leave. `owed`:
/// an acknowledged transaction is there. Also returns the barriers and flushes of the transactions,
/// and their writes that are durable on completion.
fn cut_with_barriers(
    mode: &str,
    barriers: Barriers,
    owed: bool,
    fua: bool,
) -> (Summary, [usize; 3]) {
    let options = CrashOptions { barrier: true, fua, ..CrashOptions::default() };
    let device = Arc::new(CrashDevice::new(&memory(), options));
    let target = mount(device.clone());
    target.fs.use_barriers(barriers);
    let db = open(&target, mode);
    db.execute_batch(SCHEMA).unwrap();
    target.fs.sync().unwrap();
    device.mark(0);
    let start = device.log().entries.len();
    for id in 1..=6 {
        let batch = format!("BEGIN; INSERT INTO t VALUES({id}, hex(zeroblob(3000))); COMMIT");
        db.execute_batch(&batch).unwrap();
        device.mark(id);
    }
    let log = device.log();
    device.cut_power();
    drop((db, target));
    let count = |f: fn(&Entry) -> bool| log.entries[start..].iter().filter(|e| f(e)).count();
    let counts = [
        count(|e| matches!(e, Entry::Barrier)),
        count(|e| matches!(e, Entry::Flush)),
        count(|e| matches!(e, Entry::Batch(writes) if writes.iter().any(|write| write.durable))),
    ];
    let what = format!("{mode} {barriers:?}, fua {fua}");
    let summary = run(&Explorer::new(log), &Budget::new(150, 1), &what, |state| {
        let Some(acknowledged) = state.marks().last().copied() else { return Ok(()) };
        let target = mount(Arc::new(state.image.snapshot()));
        let db = open(&target, mode);
        let verdict: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        let last = db.query_row("SELECT coalesce(max(id), 0) FROM t", [], |row| row.get(0));
        let (rows, last): (i64, i64) = (rows(&db), last.unwrap());
        // As in `flush_by_flush`.
        let may_come_back = u64::from(mode == "delete");
        let owed = if owed { acknowledged.saturating_sub(may_come_back) } else { 0 };
        match verdict == "ok" && rows == last && (owed..=acknowledged + 1).contains(&(rows as u64))
        {
            true => Ok(()),
            false => Err(format!("{verdict}, {rows} rows up to {last}, {owed} owed")),
        }
    });
    (summary, counts)
}

/// Barriers that only order lose nothing; with barriers alone a cut takes whole transactions, the
/// last ones.
#[test]
fn barriers_keep_transactions_in_order() {
    if !require("barriers_keep_transactions_in_order", &[Need::E2fsck]) {
        return;
    }
    // Barriers and flushes of six transactions without FUA; barriers, flushes and durable writes
    // with it. The journal and its header only order; the sync behind them flushes what they wrote.
    let cases = [
        ("delete", [12, 6], [12, 6, 0]),
        ("truncate", [12, 12], [12, 6, 6]),
        ("persist", [12, 12], [12, 6, 6]),
        ("wal", [0, 6], [0, 0, 6]),
    ];
    for (mode, [ordered, flushed], with_fua) in cases {
        for (fua, counts) in [(false, [ordered, flushed, 0]), (true, with_fua)] {
            let (summary, found) = cut_with_barriers(mode, Barriers::Order, true, fua);
            summary.into_result().unwrap();
            assert_eq!(found, counts, "{mode}, fua {fua}");
            let (summary, found) = cut_with_barriers(mode, Barriers::All, false, fua);
            summary.into_result().unwrap();
            assert_eq!(found, [ordered + flushed, 0, 0], "{mode}, fua {fua}");
        }
    }
    // The canary: a cut does take transactions.
    let (lost, _) = cut_with_barriers("wal", Barriers::All, true, false);
    assert!(!lost.failures.is_empty(), "everything is durable without a flush");
}

#[test]
fn two_connections_lock_each_other() {
    if !require("two_connections_lock_each_other", &[Need::E2fsck]) {
        return;
    }
    let target = mount(Arc::new(memory()));
    let (a, b) = (open(&target, "delete"), open(&target, "delete"));
    a.execute_batch(SCHEMA).unwrap();
    a.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES(1, 'a')").unwrap();
    assert_eq!(rows(&b), 0, "a reader beside a writer sees what is committed");
    let busy = b.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(busy.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    a.execute_batch("COMMIT").unwrap();
    assert_eq!(rows(&b), 1);
    insert(&b, 2);
    assert_eq!(rows(&a), 2);
}

#[test]
fn connections_share_a_wal() {
    if !require("connections_share_a_wal", &[Need::E2fsck]) {
        return;
    }
    let memory = Arc::new(memory());
    let target = mount(memory.clone());
    let (a, b) = (open(&target, "wal"), open(&target, "wal"));
    a.execute_batch(SCHEMA).unwrap();
    a.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES(1, 'a')").unwrap();
    b.execute_batch("BEGIN").unwrap();
    assert_eq!(rows(&b), 0, "a reader sees what is committed");
    let busy = target.database("/a.db").unwrap().execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(busy.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    a.execute_batch("COMMIT").unwrap();
    assert_eq!(rows(&b), 0, "and goes on to see that");
    b.execute_batch("COMMIT").unwrap();
    assert_eq!(rows(&b), 1);
    // More pages than a region of the index has, and a checkpoint beside a reader.
    (2..=3000).for_each(|id| insert(&b, id));
    b.execute_batch("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    assert_eq!(rows(&a), 3000);
    // A power cut: the next open reads the WAL again.
    let cut = Arc::new(memory.snapshot());
    drop((a, b));
    target.unmount().unwrap();
    let target = mount(cut);
    let db = open(&target, "wal");
    assert_intact(&db, "after a power cut");
    assert_eq!(rows(&db), 3000);
}

/// A file control of the main database with an int.
fn control(db: &Connection, op: i32, mut value: i32) -> i32 {
    let into = (&raw mut value).cast();
    // SAFETY: an open connection, a C string, and an int as both controls have it.
    let done = unsafe { ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), op, into) };
    assert_eq!(done, ffi::SQLITE_OK);
    value
}

#[test]
fn a_connection_says_its_lock_and_may_leave_its_wal() {
    if !require("a_connection_says_its_lock", &[Need::E2fsck]) {
        return;
    }
    let target = mount(Arc::new(memory()));
    let db = open(&target, "delete");
    let lock = || control(&db, ffi::SQLITE_FCNTL_LOCKSTATE, -1);
    db.execute_batch(SCHEMA).unwrap();
    assert_eq!(lock(), 0);
    for (statement, held) in
        [("BEGIN", 0), ("SELECT * FROM t", 1), ("INSERT INTO t VALUES(1, 'a')", 2), ("COMMIT", 0)]
    {
        db.prepare(statement).unwrap().raw_query().next().unwrap();
        assert_eq!(lock(), held, "after {statement}");
    }
    db.close().unwrap();

    for keep in [0, 1] {
        let db = open(&target, "wal");
        assert_eq!(control(&db, ffi::SQLITE_FCNTL_PERSIST_WAL, -1), 0, "not set by itself");
        assert_eq!(control(&db, ffi::SQLITE_FCNTL_PERSIST_WAL, keep), keep);
        assert_eq!(control(&db, ffi::SQLITE_FCNTL_PERSIST_WAL, -1), keep);
        insert(&db, i64::from(keep) + 2);
        db.close().unwrap();
        assert_eq!(target.fs.open("/a.db-wal").is_ok(), keep == 1);
    }
}

#[test]
fn journals_belong_to_whom_the_database_belongs() {
    if !require("journals_belong", &[Need::E2fsck]) {
        return;
    }
    let target = mount(Arc::new(memory()));
    let volume = target.fs.volume();
    for (mode, journal) in [("persist", "/a.db-journal"), ("wal", "/a.db-wal")] {
        let db = open(&target, mode);
        let set = SetAttr { mode: Some(0o640), uid: Some(7), gid: Some(8), ..SetAttr::default() };
        volume.setattr(&volume.resolve("/a.db").unwrap(), &set).unwrap();
        db.execute_batch("CREATE TABLE IF NOT EXISTS t(a); INSERT INTO t VALUES(1)").unwrap();
        let attr = volume.getattr(&volume.resolve(journal).unwrap());
        assert_eq!((attr.mode & 0o7777, attr.uid, attr.gid), (0o640, 7, 8), "{journal}");
        db.close().unwrap();
    }
}

#[test]
fn errors_have_codes_and_a_full_volume_rolls_back() {
    if !require("errors_have_codes", &[Need::E2fsck]) {
        return;
    }
    let target = mount(Arc::new(memory()));
    let missing = target.database("/no/such/directory/a.db").unwrap_err().to_string();
    assert!(missing.contains("unable to open"), "{missing}");
    target.fs.mkdir("/dir").unwrap();
    assert!(target.database("/dir").is_err(), "a directory is no database");
    let db = open(&target, "delete");
    db.execute_batch(SCHEMA).unwrap();
    db.execute("INSERT INTO t VALUES(1, 'kept')", []).unwrap();
    let full = db.execute_batch("INSERT INTO t VALUES(2, zeroblob(200000000))").unwrap_err();
    assert_eq!(full.sqlite_error_code(), Some(ErrorCode::DiskFull), "{full}");
    assert_eq!(rows(&db), 1);
    assert_intact(&db, "after a full volume");
}

#[test]
fn a_dropped_registration_refuses_new_connections_and_keeps_old_ones_usable() {
    if !require("a_dropped_registration", &[Need::E2fsck]) {
        return;
    }
    let target = mount(Arc::new(memory()));
    let vfs = SqliteVfs::register("dropped", Arc::clone(&target.fs), 1).unwrap();
    assert!(SqliteVfs::register("dropped", Arc::clone(&target.fs), 1).is_err(), "in use");
    let db = vfs.open("/b.db").unwrap();
    db.execute_batch("PRAGMA journal_mode=MEMORY; CREATE TABLE t(id)").unwrap();
    drop(vfs);
    db.execute_batch("INSERT INTO t VALUES(1)").unwrap();
    assert_eq!(rows(&db), 1);
    assert!(db.execute_batch("ATTACH '/c.db' AS c").is_err(), "the name is gone");
    let flags = rusqlite::OpenFlags::default();
    let gone = Connection::open_with_flags_and_vfs("/b.db", flags, "dropped");
    assert!(gone.is_err(), "no new connection");
    db.close().unwrap();
    SqliteVfs::register("dropped", Arc::clone(&target.fs), 1).unwrap();
}
