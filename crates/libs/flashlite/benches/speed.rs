//! A log against a plain file in one run, real time: appends, random reads, and opening.
//!
//! `cargo xtask run flashlite-bench`; `BYTES` sets how much is written (default 1 GiB), `DIR`
//! where. Log and file take turns, and which is first changes, so that both see the same machine.
//! Each figure is the median of the ratios of the rounds, with the lowest and the highest: of real
//! time, and of the time that the processor spent in this thread, which other programs disturb less
//! and which a disk that is waited for does not enter.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::Advice;
use rustix::time::{ClockId, clock_gettime};
use syncline_flashlite::{FileStorage, Log, Options, Storage};

const ROUNDS: usize = 7;
const READS: u64 = 100_000;
/// A prime, so that its multiples modulo a smaller power of two come in a scattered order.
const SCATTER: u64 = 1_000_003;
const SPARSE_BYTES: u64 = 100 << 30;

/// A file without the records of a log, tags included: holes that read as zeros. Kept are the
/// indexes, and all that is written from `keep_from` on. So a log of 100 GiB takes a few hundred
/// MiB; an opening that needed a tag of a finished segment would find none, and fail.
struct Sparse {
    file: FileStorage,
    keep_from: u64,
}

impl Storage for Sparse {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(into, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        // The header is at 0. An index has two parts: what fills the gap before it, and its
        // entries. Data have more, tags one.
        if parts.len() != 2 && offset > 0 && offset < self.keep_from {
            return Ok(());
        }
        self.file.write_at(parts, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.file.set_len(len_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Seconds: real time, and that of the processor in this thread.
type Seconds = [f64; 2];

/// Lowest, median and highest ratio of each.
type Ratios = [[f64; 3]; 2];

fn timed<T>(what: impl FnOnce() -> T) -> (T, Seconds) {
    let processor_s = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
    };
    let (start, before) = (Instant::now(), processor_s());
    let done = what();
    (done, [start.elapsed().as_secs_f64(), processor_s() - before])
}

fn plain(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).open(path).expect("DIR is writable")
}

fn log(path: &Path, tags_at_once: u32) -> Log {
    let _ = std::fs::remove_file(path);
    let options = Options { tags_at_once, ..Options::default() };
    Log::create_file(path, options).expect("DIR is writable")
}

/// Measures `log` against `plain` in alternating rounds; returns the ratios of their times.
fn ratios(mut plain: impl FnMut() -> Seconds, mut log: impl FnMut() -> Seconds) -> Ratios {
    let rounds: Vec<[Seconds; 2]> = (0..ROUNDS)
        .map(|round| {
            if round % 2 == 0 {
                let plain = plain();
                [plain, log()]
            } else {
                let log = log();
                [plain(), log]
            }
        })
        .collect();
    [0, 1].map(|kind| {
        let mut ratios: Vec<f64> =
            rounds.iter().map(|[plain, log]| log[kind] / plain[kind]).collect();
        ratios.sort_by(f64::total_cmp);
        [ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]]
    })
}

/// `bytes` in pieces: a plain file in order, a log in scattered order.
fn appends(dir: &Path, bytes: u64, piece: u64, tags_at_once: u32) -> Ratios {
    let data = vec![0x5A; piece as usize];
    let pieces = bytes / piece;
    let in_order = || {
        let file = plain(&dir.join("plain"));
        let ((), seconds) = timed(|| {
            for at in 0..pieces {
                file.write_all_at(&data, at * piece).expect("space in DIR");
            }
            file.sync_data().expect("DIR can be synced");
        });
        seconds
    };
    let scattered = || {
        let log = log(&dir.join("log"), tags_at_once);
        let ((), seconds) = timed(|| {
            for at in 0..pieces {
                log.write_at(&data, at * SCATTER % pieces * piece).expect("space in DIR");
            }
            log.close().expect("DIR can be synced");
        });
        seconds
    };
    ratios(in_order, scattered)
}

/// Reads of `len` bytes at random pieces of what [`appends`] has left.
fn reads(dir: &Path, bytes: u64, piece: u64, len: u64) -> Ratios {
    let file = File::open(dir.join("plain")).expect("it was written");
    let log = Log::open_file(&dir.join("log"), Options::default()).expect("it was written");
    let place = |i: u64| i * SCATTER * 7 % (bytes / piece) * piece;
    let all = |read: &dyn Fn(&mut [u8], u64)| {
        let mut into = vec![0; len as usize];
        let ((), seconds) = timed(|| (0..READS).for_each(|i| read(&mut into, place(i))));
        seconds
    };
    ratios(
        || all(&|into, at| file.read_exact_at(into, at).expect("it is there")),
        || all(&|into, at| assert_eq!(log.read_at(into, at).expect("it is there"), into.len())),
    )
}

/// After each piece that is written in scattered order, four reads of `len` bytes of pieces that
/// are there; only the reads count.
fn reads_while_written(dir: &Path, bytes: u64, piece: u64, len: u64) -> Ratios {
    let data = vec![0x5A; piece as usize];
    let pieces = bytes / piece;
    let all = |write: &dyn Fn(u64), read: &dyn Fn(&mut [u8], u64)| {
        let mut into = vec![0; len as usize];
        let mut seconds = [0.0; 2];
        for at in 0..pieces {
            write(at * SCATTER % pieces * piece);
            let place = |k: u64| (at * (2 * k + 1) * 7919 % (at + 1)) * SCATTER % pieces * piece;
            let (_, [real_s, processor_s]) =
                timed(|| (0..4).for_each(|k| read(&mut into, place(k))));
            seconds = [seconds[0] + real_s, seconds[1] + processor_s];
        }
        seconds
    };
    let in_place = || {
        let file = plain(&dir.join("plain"));
        all(&|at| file.write_all_at(&data, at).expect("space in DIR"), &|into, at| {
            file.read_exact_at(into, at).expect("it is there");
        })
    };
    let logged = || {
        let log = log(&dir.join("log"), 1);
        all(&|at| log.write_at(&data, at).expect("space in DIR"), &|into, at| {
            assert_eq!(log.read_at(into, at).expect("it is there"), into.len());
        })
    };
    ratios(in_place, logged)
}

/// A log of 100 GiB in records of `piece` bytes, written in scattered order, is opened: first with
/// nothing of it in memory, then again.
fn opening(dir: &Path, piece: u64) {
    let path = dir.join("sparse");
    let _ = std::fs::remove_file(&path);
    let file = FileStorage::create_new(&path).expect("DIR is writable");
    let storage = Sparse { file, keep_from: SPARSE_BYTES };
    let log = Log::create(Arc::new(storage), Options::default()).expect("DIR is writable");
    let (zeros, pieces) = (vec![0; piece as usize], SPARSE_BYTES / piece);
    for at in 0..pieces {
        log.write_at(&zeros, at * SCATTER % pieces * piece).expect("space in DIR");
    }
    let extents = log.info().extents;
    log.close().expect("DIR can be synced");
    let file = File::open(&path).expect("it was written");
    file.sync_all().expect("DIR can be synced");
    for how in ["none of it in memory", "again"] {
        if how != "again" {
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("a file of the system");
        }
        let (log, [seconds, _]) =
            timed(|| Log::open_file_read_only(&path).expect("it was written"));
        let (info, opened) = (log.info(), log.opened());
        assert_eq!((info.extents, opened.dropped.is_some()), (extents, false));
        println!(
            "opening a log of 100 GiB in records of {} KiB, {how}: {seconds:.2} s, {} records, \
             {} extents, {} MiB read",
            piece >> 10,
            info.records,
            info.extents,
            opened.read_bytes >> 20
        );
    }
    std::fs::remove_file(&path).expect("it is ours");
}

fn main() {
    let bytes = std::env::var("BYTES").ok().and_then(|text| text.parse().ok()).unwrap_or(1 << 30);
    let parent = std::env::var_os("DIR").unwrap_or_else(|| ".".into());
    let dir = tempfile::tempdir_in(parent).expect("DIR is writable");
    let dir = dir.path();
    for piece in [16_u64 << 10, 64 << 10, 256 << 10] {
        for tags_at_once in [64, 1] {
            // Throughput is the other way round than time.
            let [real, processor] = appends(dir, bytes, piece, tags_at_once)
                .map(|[low, median, high]| [100.0 / high, 100.0 / median, 100.0 / low])
                .map(|[low, median, high]| format!("{median:.0} % ({low:.0} to {high:.0})"));
            println!(
                "appends of {} KiB, {tags_at_once} tags at once, of a plain sequential write: \
                 {real}; processor's time {processor}",
                piece >> 10
            );
        }
        for len in [4_u64 << 10, 16 << 10] {
            let tell = |what: &str, ratios: Ratios| {
                let [real, processor] = ratios.map(|[low, median, high]| {
                    format!("{median:.2} times ({low:.2} to {high:.2})")
                });
                println!(
                    "  random reads of {} KiB{what}, of a normal file: {real}; processor's time \
                     {processor}",
                    len >> 10
                );
            };
            tell("", reads(dir, bytes, piece, len));
            tell(" while it is written", reads_while_written(dir, bytes, piece, len));
        }
    }
    opening(dir, 256 << 10);
    opening(dir, 16 << 10);
}
