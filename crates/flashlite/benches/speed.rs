//! A log against a plain file in one run, real time: appends, random reads, and opening.
//!
//! `make flashlite-bench`; `BYTES` sets how much is written (default 1 GiB), `DIR` where. Each
//! figure is the best of three rounds that take turns, so that both see the same machine.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use syncline_flashlite::{FileStorage, Log, Options, Storage};

const ROUNDS: usize = 3;
/// A prime, so that its multiples modulo a smaller power of two come in a scattered order.
const SCATTER: u64 = 1_000_003;
const SPARSE_BYTES: u64 = 100 << 30;

/// A file that keeps what is not zero: holes for the data of a log of zeros.
struct Sparse(FileStorage);

impl Storage for Sparse {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(into, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for part in parts {
            if part.len() < 16 << 10 || part.iter().any(|b| *b != 0) {
                self.0.write_at(&[IoSlice::new(part)], at)?;
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.0.set_len(len_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

fn timed<T>(what: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let done = what();
    (done, start.elapsed().as_secs_f64())
}

fn plain(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).open(path).expect("DIR is writable")
}

fn log(path: &Path) -> Log {
    let _ = std::fs::remove_file(path);
    Log::create_file(path, Options::default()).expect("DIR is writable")
}

/// Seconds of both for `bytes` in pieces: a plain file in order, a log in scattered order.
fn appends(dir: &Path, bytes: u64, piece: u64) -> (f64, f64) {
    let data = vec![0x5A; piece as usize];
    let (file, pieces) = (plain(&dir.join("plain")), bytes / piece);
    let ((), in_order) = timed(|| {
        for at in 0..pieces {
            file.write_all_at(&data, at * piece).expect("space in DIR");
        }
        file.sync_data().expect("DIR can be synced");
    });
    let log = log(&dir.join("log"));
    let ((), scattered) = timed(|| {
        for at in 0..pieces {
            log.write_at(&data, at * SCATTER % pieces * piece).expect("space in DIR");
        }
        log.close().expect("DIR can be synced");
    });
    (in_order, scattered)
}

/// Seconds of both for `count` reads at random pieces of what `appends` has left.
fn reads(dir: &Path, bytes: u64, piece: u64, len: u64, count: u64) -> (f64, f64) {
    let file = File::open(dir.join("plain")).expect("it was written");
    let log = Log::open_file(&dir.join("log"), Options::default()).expect("it was written");
    let mut into = vec![0; len as usize];
    let place = |i: u64| i * SCATTER * 7 % (bytes / piece) * piece;
    let ((), normal) = timed(|| {
        for i in 0..count {
            file.read_exact_at(&mut into, place(i)).expect("it is there");
        }
    });
    let ((), logged) = timed(|| {
        for i in 0..count {
            log.read_at(&mut into, place(i)).expect("it is there");
        }
    });
    (normal, logged)
}

fn best(mut both: impl FnMut() -> (f64, f64)) -> (f64, f64) {
    (0..ROUNDS).map(|_| both()).fold((f64::MAX, f64::MAX), |a, b| (a.0.min(b.0), a.1.min(b.1)))
}

fn opening(dir: &Path) {
    let path = dir.join("sparse");
    let _ = std::fs::remove_file(&path);
    let storage = Sparse(FileStorage::create_new(&path).expect("DIR is writable"));
    let log = Log::create(Arc::new(storage), Options::default()).expect("DIR is writable");
    let (zeros, pieces) = (vec![0; 16 << 10], SPARSE_BYTES / (16 << 10));
    for at in 0..pieces {
        log.write_at(&zeros, at * SCATTER % pieces * (16 << 10)).expect("space in DIR");
    }
    log.close().expect("DIR can be synced");
    let (log, seconds) = timed(|| Log::open_file_read_only(&path).expect("it was written"));
    let (info, opened) = (log.info(), log.opened());
    println!(
        "opening a log of 100 GiB: {seconds:.2} s, {} records, {} extents, {} MiB read",
        info.records,
        info.extents,
        opened.read_bytes >> 20
    );
}

fn main() {
    let bytes = std::env::var("BYTES").ok().and_then(|text| text.parse().ok()).unwrap_or(1 << 30);
    let parent = std::env::var_os("DIR").unwrap_or_else(|| ".".into());
    let dir = tempfile::tempdir_in(parent).expect("DIR is writable");
    for piece in [16_u64 << 10, 256 << 10] {
        let (in_order, scattered) = best(|| appends(dir.path(), bytes, piece));
        let share = in_order / scattered * 100.0;
        println!("appends of {} KiB: {share:.0} % of a plain sequential write", piece >> 10);
        for len in [4_u64 << 10, 16 << 10] {
            let (normal, logged) = best(|| reads(dir.path(), bytes, piece, len, 100_000));
            let times = logged / normal;
            println!("  random reads of {} KiB: {times:.2} times a normal file", len >> 10);
        }
    }
    opening(dir.path());
}
