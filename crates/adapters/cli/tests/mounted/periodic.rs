//! `sync=periodic` under kills and power cuts: real databases lose time, never their consistency.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::support::mounted::Mounted;
use crate::support::serving::Serving;
use crate::support::{done, run};
use memmap2::MmapMut;
use rusqlite::Connection;
use syncline_testkit::{ImageSpec, Need, Random, e2fsck_clean, mkfs, require};

/// Kills or power cuts of a plain run; `SYNCLINE_FAULTS` for more.
const FAULTS: u64 = 3;
/// Those that survive a kill of the program by SQLite's own account.
const MODES: [&str; 4] = ["delete", "truncate", "persist", "wal"];
const PAGE_BYTES: usize = 4096;

fn faults() -> u64 {
    let wanted = std::env::var("SYNCLINE_FAULTS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(FAULTS)
}

/// Transactions on one database until it fails: transaction `n` inserts row `n`, says so in a table
/// of one row, and changes an older row.
fn transactions(path: &Path, mode: &str, stop: &AtomicBool, answered: &AtomicI64) {
    let work = || -> rusqlite::Result<()> {
        let db = Connection::open(path)?;
        db.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |_| Ok(()))?;
        db.execute_batch(
            "PRAGMA synchronous = FULL;
             BEGIN;
             CREATE TABLE IF NOT EXISTS t (k INTEGER PRIMARY KEY, v BLOB);
             CREATE TABLE IF NOT EXISTS last (n INTEGER);
             INSERT INTO last SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM last);
             COMMIT",
        )?;
        while !stop.load(Ordering::Relaxed) {
            let n: i64 = db.query_row("SELECT n + 1 FROM last", [], |row| row.get(0))?;
            db.execute_batch(&format!(
                "BEGIN; INSERT INTO t VALUES ({n}, randomblob(900)); UPDATE last SET n = {n};
                 UPDATE t SET v = randomblob(700) WHERE k = {n} * 7 % 50; COMMIT"
            ))?;
            answered.store(n, Ordering::Release);
        }
        Ok(())
    };
    // The mount is killed under it.
    let _ = work();
}

/// The rows of a database, if it is whole.
fn whole(path: &Path) -> Result<i64, String> {
    if !path.exists() {
        return Ok(0);
    }
    let look = || -> rusqlite::Result<(String, i64, i64, i64, i64)> {
        let db = Connection::open(path)?;
        let said = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        let tables = db.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
        if tables == 0 {
            return Ok((said, tables, 0, 0, 0));
        }
        let of = |query: &str| db.query_row(query, [], |row| row.get(0));
        let last = of("SELECT n FROM last")?;
        Ok((
            said,
            tables,
            last,
            of("SELECT count(*) FROM t")?,
            of("SELECT ifnull(max(k), 0) FROM t")?,
        ))
    };
    let (said, _, last, rows, newest) = look().map_err(|err| err.to_string())?;
    if said != "ok" || rows != last || newest != last {
        return Err(format!("{said}; last is {last}, with {rows} rows up to {newest}"));
    }
    Ok(last)
}

/// Result of all faults.
#[derive(Debug, Default)]
struct Tally {
    databases: u64,
    answered: i64,
    damaged: Vec<String>,
    /// Answered before a `ctl sync` that returned, and not there.
    lost: Vec<String>,
}

/// Databases in each journal mode under kills, or power cuts of the device under the mount.
fn strike(options: &str, cut: bool, seed: u64) -> Tally {
    let image = mkfs(&ImageSpec::with_size(64 << 20));
    let serving = cut.then(|| Serving::start(&["--image", image.path().to_str().unwrap()]).0);
    let source = serving.as_ref().map(Serving::flash);
    let mut m = Mounted::prepared(image, source);
    let (mut rng, mut tally) = (Random::new(seed), Tally::default());
    m.mount(options);
    let dir = m.dir.to_str().unwrap().to_owned();
    for nr in 0..faults() {
        let (stop, durable) = (AtomicBool::new(false), Mutex::new([0; MODES.len()]));
        let answered: [AtomicI64; MODES.len()] = Default::default();
        std::thread::scope(|scope| {
            for (mode, answered) in MODES.iter().zip(&answered) {
                let (path, stop) = (m.at(format!("{mode}.db")), &stop);
                scope.spawn(move || transactions(&path, mode, stop, answered));
            }
            std::thread::sleep(Duration::from_millis(20 + rng.below(700)));
            let now = answered.each_ref().map(|n| n.load(Ordering::Acquire));
            if rng.one_in(2) && run(&["ctl", "sync", &dir]).code == 0 {
                *durable.lock().unwrap() = now;
            }
            std::thread::sleep(Duration::from_millis(rng.below(700)));
            if let Some(serving) = &serving {
                serving.power("cut");
            }
            m.kill_serving();
            stop.store(true, Ordering::Relaxed);
        });
        m.bury();
        if let Some(serving) = &serving {
            serving.power("on");
        }
        m.mount(options);
        for (at, mode) in MODES.iter().enumerate() {
            let path = m.at(format!("{mode}.db"));
            tally.databases += 1;
            tally.answered += answered[at].load(Ordering::Acquire);
            match whole(&path) {
                Ok(rows) if rows < durable.lock().unwrap()[at] => {
                    tally.lost.push(format!("fault {nr}, {mode}: {rows} rows"));
                }
                Ok(_) => continue,
                Err(said) => tally.damaged.push(format!("fault {nr}, {mode}: {said}")),
            }
            // The next fault starts with a new one.
            for end in ["", "-journal", "-wal", "-shm"] {
                let _ = std::fs::remove_file(m.at(format!("{mode}.db{end}")));
            }
        }
    }
    done(&["ctl", "sync", &dir]);
    m.unmount_clean();
    if !cut {
        e2fsck_clean(m.image.path()).unwrap();
    }
    println!("{options}, {}: {tally:?}", if cut { "power cuts" } else { "kills" });
    tally
}

fn loses_time_only(test: &str, options: &str, cut: bool, seed: u64) {
    if require(test, &[Need::Fuse, Need::E2fsck]) && (!cut || require(test, &[Need::Root])) {
        let tally = strike(options, cut, seed);
        assert!(tally.damaged.is_empty() && tally.lost.is_empty(), "{tally:#?}");
    }
}

#[test]
fn killed_databases_lose_time_only() {
    loses_time_only("killed_databases_lose_time_only", "sync=periodic,commit=1", false, 1);
}

#[test]
fn databases_lose_time_only_in_a_power_cut() {
    let test = "databases_lose_time_only_in_a_power_cut";
    loses_time_only(test, "sync=periodic,commit=1", true, 2);
}

#[test]
fn databases_lose_time_only_in_a_power_cut_packed() {
    let test = "databases_lose_time_only_in_a_power_cut_packed";
    loses_time_only(test, "sync=periodic,commit=1,log=packed", true, 3);
}

/// A file of pages of zeros, and a mapping of it.
fn mapped(path: &Path, pages: usize) -> (File, MmapMut) {
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    file.write_all_at(&vec![0; pages * PAGE_BYTES], 0).unwrap();
    // SAFETY: nobody shortens the file, and nothing is read through the mapping after the kill.
    let map = unsafe { MmapMut::map_mut(&file) }.unwrap();
    (file, map)
}

/// First byte of each page.
fn first_bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap().chunks(PAGE_BYTES).map(|page| page[0]).collect()
}

#[test]
fn mapped_pages_join_the_sync_point_in_which_the_kernel_writes_them_back() {
    let test = "mapped_pages_join_the_sync_point_in_which_the_kernel_writes_them_back";
    if !require(test, &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    for cache in ["", ",writeback_cache"] {
        let options = format!("sync=periodic,commit=600,strict=*.db{cache}");
        let mut m = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), &options);
        let dir = m.dir.to_str().unwrap().to_owned();
        let (file, mut map) = mapped(&m.at("plain"), 4);
        let (strict, strict_map) = mapped(&m.at("a.db"), 2);
        strict.sync_all().unwrap();
        // Written back by fsync and by msync before the sync point; the third not at all.
        map[0] = 1;
        file.sync_all().unwrap();
        map[PAGE_BYTES] = 2;
        map.flush_range(PAGE_BYTES, PAGE_BYTES).unwrap();
        map[2 * PAGE_BYTES] = 3;
        done(&["ctl", "sync", &dir]);
        // Handed over after it.
        map[3 * PAGE_BYTES] = 4;
        map.flush_range(3 * PAGE_BYTES, PAGE_BYTES).unwrap();
        m.kill_serving();
        m.bury();
        m.mount(&options);
        let found = first_bytes(&m.at("plain"));
        assert!(found == [1, 2, 0, 0] || found == [1, 2, 3, 0], "{cache}: {found:?}");
        drop((file, map, strict, strict_map));

        // The fsync of a strict file takes its mapped pages along, and those of others that were
        // handed over before.
        let (plain, mut map) = mapped(&m.at("plain"), 1);
        map[0] = 5;
        plain.sync_all().unwrap();
        let strict = File::options().read(true).write(true).open(m.at("a.db")).unwrap();
        // SAFETY: as above.
        let mut strict_map = unsafe { MmapMut::map_mut(&strict) }.unwrap();
        strict_map[PAGE_BYTES] = 6;
        strict.sync_all().unwrap();
        strict_map[0] = 7;
        m.kill_serving();
        m.bury();
        m.mount(&options);
        assert_eq!(first_bytes(&m.at("plain")), [5], "{cache}");
        assert_eq!(first_bytes(&m.at("a.db")), [0, 6], "{cache}");
        drop((plain, map, strict, strict_map));
        m.unmount_clean();
    }
}

/// The comparison: relaxed files under the same faults, for the documents.
#[test]
#[ignore = "a comparison, part of `cargo xtask run mount-long`"]
fn the_same_faults_on_relaxed_files() {
    let test = "the_same_faults_on_relaxed_files";
    if require(test, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        for sync in ["ordered", "eager"] {
            let options = format!("sync={sync},relaxed=*,dirty_expire_centisecs=100");
            strike(&options, true, 4);
        }
    }
}
