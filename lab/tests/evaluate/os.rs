//! The player on a real device: here a file, and devices that fail or count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use syncline_device::{
    BlockDevice, DeviceError, FileDevice, FileOptions, Geometry, MemoryDevice, Op as DeviceOp,
    Request,
};
use syncline_lab::LabError;
use syncline_lab::evaluate::os::{Sender, play_on};
use syncline_lab::evaluate::{Pace, Played};
use syncline_lab::trace::{Op, Record};

fn feed(device: &dyn BlockDevice, depth: usize, records: &[Record]) -> Result<Played, LabError> {
    play_on(device, Pace { depth, timing: false }, |sender: &mut Sender<'_, '_>| {
        records.iter().try_for_each(|record| sender.play(record))
    })
}

fn mixed(count: u64) -> Vec<Record> {
    let record = |n: u64| {
        let op = [Op::Write, Op::Write, Op::Read, Op::Flush][n as usize % 4];
        Record::new(n, op).range(n * 7919 % 200 * 4096, 4096 * (1 + n % 3))
    };
    (0..count).map(record).collect()
}

const REQUESTS: usize = 2000;

/// Counts what is under way, and flushes that came before all that was sent before was done.
struct Watching {
    inner: MemoryDevice,
    under_way: AtomicUsize,
    most: AtomicUsize,
    done: AtomicUsize,
    flushes: AtomicUsize,
    early: AtomicUsize,
}

impl BlockDevice for Watching {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        if batch.iter().any(|request| matches!(request.op, DeviceOp::Flush)) {
            // Every fourth request of the trace; the last one is the player's.
            let before = 4 * self.flushes.fetch_add(1, Ordering::SeqCst) + 3;
            let early = self.done.load(Ordering::SeqCst) < before.min(REQUESTS);
            self.early.fetch_add(usize::from(early), Ordering::SeqCst);
        }
        std::thread::yield_now();
        let done = self.inner.submit(batch);
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        self.done.fetch_add(1, Ordering::SeqCst);
        done
    }
}

#[test]
fn no_more_than_the_depth_is_under_way_and_a_flush_comes_after_all_before() {
    for depth in [1, 4, 32] {
        let device = Watching {
            inner: MemoryDevice::new(1 << 20),
            under_way: 0.into(),
            most: 0.into(),
            done: 0.into(),
            flushes: 0.into(),
            early: 0.into(),
        };
        let played = feed(&device, depth, &mixed(REQUESTS as u64)).unwrap();
        assert_eq!((played.reads, played.writes, played.flushes), (500, 1000, 500));
        assert!(device.most.load(Ordering::SeqCst) <= depth, "depth {depth}");
        assert_eq!(device.flushes.load(Ordering::SeqCst), 501, "depth {depth}");
        assert_eq!(device.early.load(Ordering::SeqCst), 0, "depth {depth}");
    }
}

#[test]
fn a_file_is_read_and_written() {
    let dir = tempfile::tempdir_in(syncline_testkit::scratch_dir()).unwrap();
    let path = dir.path().join("disk");
    let options = FileOptions { io_uring: false, ..FileOptions::default() };
    let device = FileDevice::create(&path, 4 << 20, options).unwrap();
    // Longer than one request of a device, and not of whole sectors.
    let long = Record::new(0, Op::Write).range(100, 1_500_000);
    let played = feed(&device, 3, &[long, Record { op: Op::Read, ..long }]).unwrap();
    let whole = (100 + 1_500_000u64).div_ceil(512) * 512;
    assert_eq!((played.written_bytes, played.read_bytes), (whole, whole));
    assert!(played.elapsed_s > 0.0 && played.write.latency_us_max > 0.0, "{played:?}");
    drop(device);
    let bytes = std::fs::read(&path).unwrap();
    let zeroes = bytes[..whole as usize].iter().filter(|byte| **byte == 0).count();
    assert!(zeroes < 20_000, "noise was written: {zeroes} zeroes");
    assert!(bytes[whole as usize..].iter().all(|byte| *byte == 0), "and nothing beyond");
}

#[test]
fn an_error_of_the_device_or_of_the_trace_ends_the_run() {
    let device = MemoryDevice::new(1 << 20);
    let beyond = Record::new(0, Op::Read).range(1 << 20, 4096);
    let error = feed(&device, 8, &[beyond]).unwrap_err().to_string();
    assert!(error.contains("; leave out"), "{error}");
    let failing = Arc::new(Failing(MemoryDevice::new(1 << 20)));
    for depth in [1, 8] {
        let error = feed(&failing, depth, &mixed(5000)).unwrap_err().to_string();
        assert!(error.contains("worn out") && error.contains("; look at the device"), "{error}");
    }
}

/// Refuses to read.
struct Failing(MemoryDevice);

impl BlockDevice for Failing {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        if batch.iter().any(|request| matches!(request.op, DeviceOp::Read { .. })) {
            return Err(DeviceError::Io {
                op: "read",
                offset_bytes: 0,
                len_bytes: 0,
                reason: "worn out".into(),
                errno: 5,
            });
        }
        self.0.submit(batch)
    }
}
