//! The strategies on files of this system, with threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use syncline_recorder::os::{
    FileSource, Options, PaperStrategy, PoolStrategy, Recorder, UringStrategy, event_files,
};
use syncline_recorder::reader::{self, Item};
use syncline_recorder::{Config, Done, Job, Producer, RecorderError, Report, Result, Strategy};
use syncline_testkit::skip;

use crate::support::payload;

/// For hangs only.
const LONG: Duration = Duration::from_secs(120);

fn config(align: u32) -> Config {
    Config {
        recorder: 9,
        payload_bytes_max: 3000,
        pre_records: 50,
        post_records_max: 100,
        slack_records: 4000,
        events_max: 3,
        slot_align_bytes: align,
        writeback_bytes: 64 << 10,
    }
}

fn wait_for(recorder: &Recorder, all: &mut Vec<Report>, mut enough: impl FnMut(&Report) -> bool) {
    let until = Instant::now() + LONG;
    while !all.iter().any(&mut enough) {
        assert!(Instant::now() < until, "nothing happens: {all:?}");
        all.extend(recorder.reports());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn push(producer: &mut Producer, count: u64) {
    for _ in 0..count {
        let sequence = producer.next_sequence();
        producer.push(sequence, &payload(sequence, 3000)).expect("the ring has room");
    }
}

/// Two events that overlap and one that the end cuts off.
fn exercise(dir: &Path, config: &Config, strategy: Arc<dyn Strategy>) {
    let options = Options { fifo_priority: None, lock_memory: false, ..Options::default() };
    let (mut producer, recorder) = Recorder::start(config, strategy, options).unwrap();
    assert_eq!(recorder.permitted().refusals(), [""; 0]);
    let (trigger, mut reports) = (recorder.trigger(), Vec::new());
    push(&mut producer, 80);
    trigger.fire();
    push(&mut producer, 60);
    trigger.fire_for(70);
    push(&mut producer, 100);
    for event in 1..=2 {
        wait_for(
            &recorder,
            &mut reports,
            |r| matches!(r, Report::Finished { event: e, .. } if *e == event),
        );
    }
    trigger.fire();
    push(&mut producer, 5);
    reports.extend(recorder.finish());
    let finished: Vec<_> =
        reports.iter().filter(|r| matches!(r, Report::Finished { .. })).collect();
    let done = |event, records| Report::Finished { event, records, durable: true };
    assert!(finished.contains(&&done(1, 151)), "{reports:?}");
    assert!(finished.contains(&&done(2, 121)), "{reports:?}");
    assert!(finished.contains(&&done(3, 55)), "{reports:?}");
    assert_eq!(producer.lost(), 0);
    let files = event_files(dir).unwrap();
    assert_eq!(files.len(), 3, "{files:?}");
    for (path, first) in files.iter().zip([30, 90, 190]) {
        let mut next = first;
        let summary = reader::read(&FileSource::open(path).unwrap(), &mut |item| {
            if let Item::Record(header, bytes) = item {
                assert_eq!((header.sequence, bytes), (next, &payload(next, 3000)[..]));
                next += 1;
            }
            Ok(())
        });
        let summary = summary.unwrap().expect("there is an event");
        assert!(summary.is_whole(), "{summary:?}");
        let len = std::fs::metadata(path).unwrap().len();
        assert_eq!(len, (summary.records + 1) * config.slot_bytes(), "cut to its length");
    }
}

#[test]
fn the_papers_sequence() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(64);
    exercise(dir.path(), &config, Arc::new(PaperStrategy::new(dir.path().into(), &config)));
}

#[test]
fn a_pool_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(64);
    let pool = Arc::new(PoolStrategy::new(dir.path().into(), &config).unwrap());
    assert_eq!((pool.spares(), event_files(dir.path()).unwrap().len()), (3, 3));
    exercise(dir.path(), &config, pool);
}

/// A pool in memory: remembers what it was asked in which order.
#[derive(Default)]
struct Asked {
    calls: Mutex<Vec<&'static str>>,
    pieces: AtomicU64,
}

impl Strategy for Asked {
    fn begin(&self, _event: u64) -> Result<()> {
        self.calls.lock().push("begin");
        Ok(())
    }

    fn append(&self, _event: u64, _offset: u64, _slots: &[u8]) -> Result<()> {
        Ok(())
    }

    fn lower(&self, job: &Job) -> Result<Done> {
        // Long enough for a piece beside the other event, if one were asked for.
        std::thread::sleep(Duration::from_millis(20));
        if let Job::Finish { len_bytes, .. } = job {
            self.calls.lock().push("finish");
            return Ok(Done { durable_bytes: *len_bytes });
        }
        Ok(Done::default())
    }

    fn prepare(&self) -> Result<bool> {
        self.calls.lock().push("prepare");
        Ok(self.pieces.fetch_add(1, Ordering::Relaxed) % 3 < 2)
    }
}

#[test]
fn spares_are_made_between_events_only() {
    let strategy = Arc::new(Asked::default());
    let options = Options { fifo_priority: None, lock_memory: false, ..Options::default() };
    let (mut producer, recorder) =
        Recorder::start(&config(64), Arc::clone(&strategy) as Arc<dyn Strategy>, options).unwrap();
    for round in 0..2 {
        recorder.trigger().fire();
        push(&mut producer, 60);
        recorder.trigger().fire();
        push(&mut producer, 120);
        let until = Instant::now() + LONG;
        while strategy.pieces.load(Ordering::Relaxed) < 3 * (round + 1) {
            assert!(Instant::now() < until, "{:?}", strategy.calls.lock());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    recorder.finish();
    let round = ["begin", "begin", "finish", "finish", "prepare", "prepare", "prepare"];
    assert_eq!(*strategy.calls.lock(), [round, round].concat());
}

#[test]
fn direct_writes_by_io_uring() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(4096);
    match UringStrategy::new(dir.path().into(), &config) {
        Ok(strategy) => exercise(dir.path(), &config, Arc::new(strategy)),
        Err(error) => skip("direct_writes_by_io_uring", &error.to_string()),
    }
    let error = UringStrategy::new(dir.path().into(), &super::system::config(64)).err();
    assert!(matches!(error, Some(RecorderError::Usage(_))), "{error:?}");
}

#[test]
fn a_directory_that_is_not_there_is_reported() {
    let config = config(64);
    let nowhere = std::env::temp_dir().join("no-such-directory-of-a-recorder");
    assert!(PoolStrategy::new(nowhere.clone(), &config).is_err());
    let strategy = Arc::new(PaperStrategy::new(nowhere, &config));
    let options = Options { fifo_priority: None, lock_memory: false, ..Options::default() };
    let (mut producer, recorder) = Recorder::start(&config, strategy, options).unwrap();
    recorder.trigger().fire();
    push(&mut producer, 1);
    let reports = recorder.finish();
    assert!(matches!(reports[..], [Report::Refused { trigger_sequence: 0, .. }]), "{reports:?}");
}
