//! The normal file at the end: contents, order of writes, steps, space given back.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use syncline_flashlite::{
    Error, FileStorage, Log, MemoryStorage, Options, Progress, Rearrange, Storage,
};
use syncline_testkit::Random;

use crate::support::{SMALL, Watched, apply, apply_model, contents, create, data, random_op};

fn go(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A log of random writes and what it should give.
fn some_log(storage: Arc<dyn Storage>, seed: u64, ops: usize) -> (Log, Vec<u8>) {
    let mut random = Random::new(seed);
    // Both versions of the format.
    let log = create(storage, SMALL, 1 + (seed % 2) as u32);
    let mut model = Vec::new();
    for _ in 0..ops {
        let op = random_op(&mut random, 400_000);
        apply(&log, &op).unwrap();
        apply_model(&mut model, &op);
    }
    (log, model)
}

#[test]
fn the_file_is_written_from_start_to_end() {
    for seed in 0..10 {
        let (log, model) = some_log(Arc::new(MemoryStorage::default()), seed, 60);
        let writes = Mutex::new(Vec::new());
        let watch = |offset, len, write| {
            if write {
                writes.lock().push((offset, len));
            }
        };
        let to = Watched { below: Arc::new(MemoryStorage::default()), watch };
        let mut told = Vec::new();
        let done = log
            .rearrange_to(&to, Rearrange::default(), &mut |progress| {
                assert_eq!(progress.total_bytes, model.len() as u64);
                told.push(progress.done_bytes);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(to.below.bytes() == model, "seed {seed}");
        assert!(told.is_sorted() && told.last() == Some(&(model.len() as u64)));
        let writes = writes.lock();
        assert!(writes.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        assert_eq!(writes.iter().map(|write| write.1).sum::<u64>(), done.written_bytes);
        // The log is as it was.
        assert!(contents(&log) == model);
    }
}

#[test]
fn a_stopped_rearranging_goes_on_where_it_was() {
    let storage = Arc::new(MemoryStorage::default());
    let (log, model) = some_log(storage.clone(), 5, 80);
    let to = MemoryStorage::default();
    let options = Rearrange { release: false, step_bytes: 50_000 };
    let mut left = 2;
    let stopped = log.rearrange_to(&to, options, &mut |_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
    let moved = log.info().moved_bytes;
    assert!(moved > 0 && moved < model.len() as u64);
    drop(log);
    let log = Log::open(storage, SMALL).unwrap();
    assert_eq!(log.info().moved_bytes, moved);
    // Another destination starts again, the same one goes on.
    let other = MemoryStorage::default();
    assert_eq!(log.rearrange_to(&other, options, &mut go).unwrap().resumed_at_bytes, 0);
    assert!(other.bytes() == model);
    let done = log.rearrange_to(&other, options, &mut go).unwrap();
    assert_eq!((done.resumed_at_bytes, done.written_bytes), (model.len() as u64, 0));
    // A write makes notes worthless.
    log.write_at(b"new", 0).unwrap();
    assert_eq!(log.info().moved_bytes, 0);
    assert_eq!(log.rearrange_to(&other, options, &mut go).unwrap().resumed_at_bytes, 0);
    assert_eq!(&other.bytes()[..3], b"new");
}

#[test]
fn a_released_log_gives_space_back_and_refuses_what_it_cannot_do() {
    for seed in [9, 10] {
        releases(seed);
    }
}

fn releases(seed: u64) {
    let storage = Arc::new(MemoryStorage::default());
    let (log, model) = some_log(storage.clone(), seed, 120);
    let to = MemoryStorage::default();
    let options = Rearrange { release: true, step_bytes: 100_000 };
    let mut calls = 0;
    let stopped = log.rearrange_to(&to, options, &mut |progress| {
        calls += 1;
        if progress.done_bytes > 200_000 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(matches!(stopped, Err(Error::Stopped)) && calls > 0);
    drop(log);
    let log = Log::open(storage.clone(), SMALL).unwrap();
    let until = log.info().released_bytes;
    assert!(until > 200_000, "{until}");
    let mut part = vec![0; 1000];
    assert!(matches!(log.read_at(&mut part, until - 1), Err(Error::Moved { .. })));
    assert_eq!(log.read_at(&mut part, until).unwrap(), part.len());
    assert!(part == model[until as usize..][..1000]);
    assert!(matches!(log.write_at(b"x", 0), Err(Error::Usage(_))));
    let other = MemoryStorage::default();
    assert!(matches!(log.rearrange_to(&other, options, &mut go), Err(Error::Usage(_))));
    let done = log.rearrange_to(&to, options, &mut go).unwrap();
    assert!(to.bytes() == model);
    assert_eq!(done.resumed_at_bytes, until);
    // Nothing is left but the header, indexes, and edges of pages.
    let log_bytes = log.info().log_bytes;
    assert!(done.released_bytes * 10 > log_bytes * 8, "{done:?} of {log_bytes}");
    let bytes = storage.bytes();
    let zeros = bytes.chunks(4096).filter(|page| page.iter().all(|b| *b == 0)).count();
    assert!(zeros as u64 * 4096 >= done.released_bytes);
    let read_only = Log::open_read_only(storage).unwrap();
    assert!(matches!(read_only.rearrange_to(&to, options, &mut go), Err(Error::Usage(_))));
}

#[test]
fn aligned_records_of_files_are_copied_by_the_system() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::create_file(&dir.path().join("log"), Options::default()).unwrap();
    let mut model = vec![0; 3 << 20];
    for piece in [2_u64, 0, 1] {
        let bytes = data(4, piece << 20, 1 << 20);
        log.write_at(&bytes, piece << 20).unwrap();
        model[(piece << 20) as usize..][..1 << 20].copy_from_slice(&bytes);
    }
    log.write_at(b"not aligned", 77).unwrap();
    model[77..88].copy_from_slice(b"not aligned");
    let path = dir.path().join("file");
    let to = FileStorage::create_new(&path).unwrap();
    let done = log.rearrange_to(&to, Rearrange::default(), &mut go).unwrap();
    assert!(std::fs::read(&path).unwrap() == model);
    assert_eq!(done.written_bytes, 3 << 20);
    // Where the file system cannot, nothing is shared; where it can, the two whole pieces are.
    assert!(done.shared_bytes == 0 || done.shared_bytes >= 2 << 20, "{done:?}");
}
