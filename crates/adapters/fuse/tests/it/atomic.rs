//! Atomic writes by f2fs's ioctls, by hand and by an unmodified SQLite.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use rusqlite::Connection;
use syncline_testkit::require;

use crate::mounted::Mounted;
use crate::{NEEDS, errno, image};

const START: u32 = 0xf501;
const COMMIT: u32 = 0xf502;
const ABORT: u32 = 0xf505;
const GET_FEATURES: u32 = 0x8004_f50c;

/// An ioctl without an argument; the number of its error.
fn ioctl(file: &File, number: u32) -> Result<(), i32> {
    // SAFETY: a valid descriptor, and a number that takes no argument.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::c_ulong::from(number) as _) };
    let failed = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    if done == 0 { Ok(()) } else { Err(failed) }
}

fn features(file: &File) -> u32 {
    let mut features = 0u32;
    let number = libc::c_ulong::from(GET_FEATURES);
    // SAFETY: a valid descriptor; the number says that four bytes are written.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), number as _, &raw mut features) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    features
}

fn open(mount: &Mounted) -> File {
    OpenOptions::new().read(true).write(true).open(mount.at("f")).unwrap()
}

/// Starts where another open file had started and was closed: Linux answers close(2) before the
/// mount has heard of it.
fn start_after_close(file: &File) {
    let began = std::time::Instant::now();
    let started = loop {
        match ioctl(file, START) {
            Err(libc::EBUSY) if began.elapsed() < syncline_testkit::TIMEOUT => {}
            ended => break ended,
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    assert_eq!(started, Ok(()));
}

#[test]
fn atomic_writes_by_ioctl() {
    if !require("atomic writes by ioctl", &NEEDS) {
        return;
    }
    for log in ["log=jbd2", "log=packed"] {
        let mut m = Mounted::new(image(), log);
        std::fs::write(m.at("f"), vec![1; 20_000]).unwrap();
        let file = open(&m);
        assert_eq!(features(&file), 4);
        assert_eq!(ioctl(&file, COMMIT), Err(libc::EINVAL), "nothing has begun");
        assert_eq!(ioctl(&file, START), Ok(()));
        assert_eq!(ioctl(&file, START), Ok(()), "as f2fs");
        assert_eq!(ioctl(&open(&m), START), Err(libc::EBUSY));
        let reader = File::open(m.at("f")).unwrap();
        assert_eq!(ioctl(&reader, START), Err(libc::EINVAL));
        file.write_all_at(&[2; 4096], 0).unwrap();
        file.write_all_at(&[2; 100], 30_000).unwrap();
        let mut bytes = vec![0; 30_100];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..4096].iter().all(|byte| *byte == 2), "its own view");
        assert_eq!(ioctl(&file, COMMIT), Ok(()));
        let now = std::fs::read(m.at("f")).unwrap();
        assert_eq!((now.len(), now[0], now[4096], now[25_000], now[30_099]), (30_100, 2, 1, 0, 2));

        // Aborted: by name, by close, and by O_DIRECT nothing comes of it.
        assert_eq!(ioctl(&file, START), Ok(()));
        file.write_all_at(&[3; 50_000], 0).unwrap();
        assert_eq!(ioctl(&file, ABORT), Ok(()));
        assert_eq!(std::fs::read(m.at("f")).unwrap(), now);
        assert_eq!(std::fs::metadata(m.at("f")).unwrap().len(), 30_100);
        let other = open(&m);
        assert_eq!(ioctl(&other, START), Ok(()));
        other.write_all_at(&[4; 50_000], 10).unwrap();
        drop(other);
        start_after_close(&file);
        assert_eq!(ioctl(&file, ABORT), Ok(()));
        assert_eq!(std::fs::read(m.at("f")).unwrap(), now);
        let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(m.at("f"));
        let direct = direct.unwrap();
        assert_eq!(ioctl(&direct, START), Ok(()));
        let aligned = vec![0u8; 8192];
        let skip = aligned.as_ptr().align_offset(4096);
        assert_eq!(errno(direct.write_at(&aligned[skip..skip + 4096], 0)), libc::EINVAL);
        drop(direct);

        // Staged bytes die with the server, committed ones do not.
        start_after_close(&file);
        file.write_all_at(&[5; 9000], 0).unwrap();
        m.kill();
        drop((file, reader));
        m.mount(log);
        assert_eq!(std::fs::read(m.at("f")).unwrap(), now);
        m.unmount_clean();
    }
}

#[test]
fn atomic_writes_are_not_offered_where_they_cannot_be_kept() {
    if !require("atomic writes refused", &NEEDS) {
        return;
    }
    for options in ["sync=ordered", "writeback_cache"] {
        let mut m = Mounted::new(image(), options);
        std::fs::write(m.at("f"), b"x").unwrap();
        let file = open(&m);
        assert_eq!(features(&file), 0, "{options}");
        assert_eq!(ioctl(&file, START), Err(libc::EOPNOTSUPP), "{options}");
        drop(file);
        m.unmount_clean();
    }
}

/// SQLite's own unix VFS, built with `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`, on a mount: transactions
/// of DELETE mode without a journal file.
#[test]
fn an_unmodified_sqlite_uses_them() {
    if !require("SQLite with atomic writes", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(image(), "log=packed");
    let db = Connection::open(m.at("app.db")).unwrap();
    db.execute_batch("PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL; CREATE TABLE t(a, b);")
        .unwrap();
    let changed = || {
        let root = std::fs::metadata(&m.dir).unwrap();
        (root.mtime(), root.mtime_nsec())
    };
    std::thread::sleep(std::time::Duration::from_millis(20));
    let before = changed();
    for n in 0..200usize {
        db.execute("INSERT INTO t VALUES (?1, ?2)", (n as i64, "x".repeat(n % 900))).unwrap();
    }
    assert_eq!(changed(), before, "a journal was made");
    // A rollback, and a transaction that is too large for one record, work as ever.
    db.execute_batch("BEGIN; DELETE FROM t; ROLLBACK;").unwrap();
    let rows = |db: &Connection| db.query_row("SELECT count(*) FROM t", [], |row| row.get(0));
    assert_eq!(rows(&db), Ok(200));
    db.execute_batch("BEGIN").unwrap();
    for n in 0..20_000i64 {
        db.execute("INSERT INTO t VALUES (?1, ?2)", (n, "y".repeat(900))).unwrap();
    }
    db.execute_batch("COMMIT").unwrap();
    assert_ne!(changed(), before, "20 MB went through a journal");
    assert_eq!(rows(&db), Ok(20_200));
    let said: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(said, "ok");
    drop(db);
    m.unmount_clean();
}
