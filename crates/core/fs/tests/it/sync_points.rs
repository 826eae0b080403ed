//! Sync points under pressure (`sync=periodic`): writers that are faster than the device, limits of
//! log and memory, long overwrites, which go to new blocks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use syncline_device::{
    BlockDevice, Clock, DeviceError, Geometry, Kind, MemoryDevice, Op, RecordingDevice, Request,
    TraceOp, VirtualClock,
};
use syncline_fs::Volume;
use syncline_testkit::ImageSpec;

use crate::bed::{Bed, MIB, bytes, contents, owner, spec};

const BLOCK: usize = 4096;
/// Time of a request to [`Slow`], in nanoseconds.
const REQUEST_NS: u64 = 1_000_000;

/// A device whose writes and flushes take a millisecond of virtual time, during each of which,
/// while data is written, somebody else works on the volume.
struct Slow {
    inner: Arc<MemoryDevice>,
    clock: Arc<VirtualClock>,
    meanwhile: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Number of times left.
    left: AtomicU64,
}

impl Slow {
    fn new(bed: &Bed) -> Arc<Slow> {
        let (inner, clock) = (Arc::clone(&bed.dev), Arc::clone(&bed.clock));
        Arc::new(Slow { inner, clock, meanwhile: OnceLock::new(), left: AtomicU64::new(0) })
    }
}

impl BlockDevice for Slow {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let is_data = |request: &Request<'_>| {
            matches!((&request.op, request.origin.kind), (Op::Write { .. }, Kind::Data { .. }))
        };
        let data = batch.iter().any(is_data);
        let changes = batch.iter().filter(|request| !matches!(request.op, Op::Read { .. })).count();
        self.clock.sleep_until(self.clock.now_ns() + REQUEST_NS * changes as u64);
        self.inner.submit(batch)?;
        let may = |left: u64| left.checked_sub(1);
        if data && self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, may).is_ok() {
            let meanwhile = self.meanwhile.get().expect("set before it is used");
            // Somebody else: the locks of the thread that sends are not its own.
            std::thread::scope(|scope| scope.spawn(meanwhile).join().expect("nothing of it fails"));
        }
        Ok(())
    }
}

fn after_cut(bed: &Bed) -> Volume {
    bed.mount_on(Arc::new(bed.dev.snapshot()), "")
}

/// Writers that make as many new pages as the device takes, in each round of work ahead: what is
/// left is given to the sync point by reference, and sent once writers go on.
#[test]
fn a_sync_point_needs_no_request_while_writers_stand_still() {
    for log in ["jbd2", "packed"] {
        let image = ImageSpec { journal_size_mib: Some(16), ..ImageSpec::with_size(128 << 20) };
        let bed = Bed::new(&image, 0).with(&format!("sync=periodic,log={log}"));
        let device = Slow::new(&bed);
        let volume = bed.mount_on(device.clone(), "");
        let root = volume.root().unwrap();
        let names = [&b"old"[..], b"new", b"small"];
        let files = names.map(|name| volume.create(&root, name, &owner()).unwrap());
        volume.write(&files[0], 0, &bytes(1, 4 << 20)).unwrap();
        volume.sync().unwrap();

        let (writer, at) = (volume.clone(), AtomicU64::new(0));
        let [old, new, small] = files.each_ref().map(|file| file.ino);
        let meanwhile = move || {
            let n = at.fetch_add(1, Ordering::AcqRel);
            let file = |ino: u32| writer.iget(ino).unwrap();
            writer.write(&file(new), n << 20, &bytes(n, 1 << 20)).unwrap();
            writer.write(&file(old), n * 8 * BLOCK as u64, &bytes(n + 50, BLOCK)).unwrap();
            writer.write(&file(small), 0, &n.to_le_bytes()).unwrap();
        };
        assert!(device.meanwhile.set(Box::new(meanwhile)).is_ok());
        volume.write(&files[1], 0, &bytes(0, 2 << 20)).unwrap();
        device.left.store(12, Ordering::Release);
        volume.sync().unwrap();
        let made = 12 - device.left.swap(0, Ordering::AcqRel);
        assert!(made > 3, "{made} writes beside the sync point");
        let stats = volume.sync_points().unwrap();
        assert_eq!(stats.hold_ns_max, 0, "{log}: a request while writers stand still");

        // The sync point has each of those writes or none, up to one.
        let cut = after_cut(&bed);
        let mut last = [0; 8];
        cut.read(&cut.resolve("/small").unwrap(), 0, &mut last).unwrap();
        let last = u64::from_le_bytes(last);
        assert!(last > 0 && last < made, "{last} of {made}");
        let found = contents(&cut, &cut.resolve("/new").unwrap());
        for n in 0..=last {
            assert!(
                found[n as usize * MIB as usize..].starts_with(&bytes(n, 1 << 20)),
                "{log}, {n}"
            );
        }
        let found = contents(&cut, &cut.resolve("/old").unwrap());
        for n in 0..=last {
            let page = &found[n as usize * 8 * BLOCK..][..BLOCK];
            assert_eq!(page, &bytes(n + 50, BLOCK)[..], "{log}, {n}");
        }
        drop((files, root));
        bed.unmount_and_judge(volume, "writers beside a sync point");
    }
}

/// 48 MiB are dirty, a third of them overwritten: no call waits for a write or flush of the device,
/// and none stands still while the sync point is taken.
#[test]
fn no_call_waits_for_the_device_with_48_mib_dirty() {
    let image = ImageSpec { journal_size_mib: Some(128), ..ImageSpec::with_size(640 << 20) };
    let bed = Bed::new(&image, 2).with("sync=periodic,dirty_ratio=60,dirty_background_ratio=50");
    let device = Slow::new(&bed);
    let volume = bed.mount_on(device.clone(), "");
    let files = [bed.file(&volume, 0), bed.file(&volume, 1)];
    volume.write(&files[0], 0, &bytes(1, 32 << 20)).unwrap();
    volume.sync().unwrap();
    let worst_ns = AtomicU64::new(0);
    let timed = |call: &dyn Fn()| {
        let began_ns = bed.clock.now_ns();
        call();
        worst_ns.fetch_max(bed.clock.now_ns() - began_ns, Ordering::AcqRel);
    };
    let root = volume.root().unwrap();
    for at in (0..32).map(|n| n * MIB) {
        timed(&|| assert_eq!(volume.write(&files[1], at, &bytes(2, 1 << 20)).unwrap(), 1 << 20));
        // Every second page: long runs would go to new blocks.
        for page in (0..256).step_by(2).map(|n| n * BLOCK as u64) {
            timed(&|| {
                assert_eq!(volume.write(&files[0], at + page, &bytes(3, BLOCK)).unwrap(), BLOCK)
            });
        }
        timed(&|| volume.fsync(&files[0], false).unwrap());
        timed(&|| volume.syncfs().unwrap());
        let name = format!("name{at}");
        timed(&|| drop(volume.create(&root, name.as_bytes(), &owner()).unwrap()));
    }
    assert!(volume.cache_stats().dirty_pages as u64 * 4096 >= 48 * MIB);
    assert_eq!(worst_ns.load(Ordering::Acquire), 0, "a call waited before the sync point");
    let before_ns = bed.clock.now_ns();
    volume.sync().unwrap();
    assert!(bed.clock.now_ns() - before_ns > 50 * REQUEST_NS, "the sync point took no time");
    assert_eq!(volume.sync_points().unwrap().hold_ns_max, 0);
    drop((files, root));
    bed.unmount_and_judge(volume, "48 MiB dirty");
}

fn written(device: &RecordingDevice<MemoryDevice>) -> u64 {
    let events = device.take_events();
    let writes = events.iter().filter(|event| matches!(event.op, TraceOp::Write));
    writes.map(|event| event.len_bytes).sum()
}

/// Runs of 256 KiB and more are written once, to blocks that the last sync point does not have; no
/// block is lost or had twice.
#[test]
fn long_overwrites_go_to_new_blocks() {
    for log in ["jbd2", "packed"] {
        let image = ImageSpec { journal_size_mib: Some(16), ..ImageSpec::with_size(96 << 20) };
        let bed = Bed::new(&image, 1).with(&format!("sync=periodic,log={log}"));
        let inner = MemoryDevice::load(bed.image.path()).unwrap();
        let device = Arc::new(RecordingDevice::with_events(inner, bed.clock.clone(), 100_000));
        let volume = bed.mount_on(device.clone(), "");
        let file = bed.file(&volume, 0);
        let size = 16 * MIB as usize;
        let rewrite = |seed: u64| {
            for at in (0..size).step_by(1 << 20) {
                volume.write(&file, at as u64, &bytes(seed, 1 << 20)).unwrap();
            }
        };
        rewrite(1);
        volume.sync().unwrap();
        // The extent tree may get a node block.
        let used = |volume: &Volume| {
            let blocks = volume.getattr(&file).blocks / 8;
            (blocks, volume.statfs().blocks_free + blocks)
        };
        let before = used(&volume);
        for seed in 2..7 {
            written(&device);
            rewrite(seed);
            volume.sync().unwrap();
            let bytes = written(&device);
            assert!(bytes < size as u64 * 11 / 10, "{log}: {bytes} bytes for {size}");
            assert!(used(&volume).0 <= before.0 + 2, "{log}: {} blocks", used(&volume).0);
        }
        volume.sync().unwrap();
        assert_eq!(used(&volume).1, before.1, "{log}");
        assert_eq!(contents(&volume, &file)[..1 << 20], bytes(6, 1 << 20)[..]);
        drop(file);
        volume.unmount().unwrap();
    }
}

/// Data that was sent before a sync point is not visible after a cut, whichever call sent it.
#[test]
fn the_last_sync_point_keeps_its_blocks_until_the_next() {
    // A log that takes more than what is overwritten, or sync points would come earlier.
    let image = ImageSpec { journal_size_mib: Some(16), ..ImageSpec::with_size(64 << 20) };
    let bed = Bed::new(&image, 1).with("sync=periodic");
    let volume = bed.mount("");
    let file = bed.file(&volume, 0);
    let old = bytes(1, 2 << 20);
    volume.write(&file, 0, &old).unwrap();
    volume.sync().unwrap();
    for seed in 2..5 {
        volume.write(&file, 300, &bytes(seed, (1 << 20) + 77)).unwrap();
        volume.writeback_range(&file, 0, u64::MAX).unwrap();
        let cut = after_cut(&bed);
        assert_eq!(contents(&cut, &bed.file(&cut, 0)), old, "before the sync point, {seed}");
    }
    let wanted = contents(&volume, &file);
    volume.sync().unwrap();
    let cut = after_cut(&bed);
    assert_eq!(contents(&cut, &bed.file(&cut, 0)), wanted);
    drop(file);
    bed.unmount_and_judge(volume, "blocks of the last sync point");
}

/// Without room for new blocks they go to the log; the sync points are whole.
#[test]
fn long_overwrites_on_a_full_volume_go_to_the_log() {
    for log in ["jbd2", "packed"] {
        let bed = Bed::new(&spec(4096), 1).with(&format!("sync=periodic,log={log}"));
        let volume = bed.mount("");
        let file = bed.file(&volume, 0);
        let size = 512 << 10;
        volume.write(&file, 0, &bytes(1, size)).unwrap();
        let root = volume.root().unwrap();
        let filler = volume.create(&root, b"filler", &owner()).unwrap();
        let mut at = 0;
        while let Ok(n) = volume.write(&filler, at, &bytes(9, 64 << 10)) {
            at += n as u64;
        }
        volume.sync().unwrap();
        for seed in 2..6 {
            volume.write(&file, 0, &bytes(seed, size)).unwrap();
            let cut = after_cut(&bed);
            let found = contents(&cut, &bed.file(&cut, 0));
            assert_eq!(found, bytes(seed - 1, size), "{log}, {seed}");
            volume.sync().unwrap();
            let cut = after_cut(&bed);
            assert_eq!(contents(&cut, &bed.file(&cut, 0)), bytes(seed, size), "{log}");
        }
        drop((file, filler, root));
        bed.unmount_and_judge(volume, "overwrites on a full volume");
    }
}

/// `status` says how old the last durable sync point is: its time is that of the standstill, not of
/// the end of its record.
#[test]
fn the_age_of_the_last_sync_point_is_known() {
    let bed = Bed::new(&spec(4096), 1).with("sync=periodic");
    let device = Slow::new(&bed);
    let volume = bed.mount_on(device, "");
    let file = bed.file(&volume, 0);
    for round in 0..3 {
        volume.write(&file, 0, &bytes(round, BLOCK)).unwrap();
        let (asked_ns, count) = (bed.clock.now_ns(), volume.sync_points().unwrap().count);
        assert!(volume.sync_points().unwrap().is_behind);
        volume.sync().unwrap();
        let stats = volume.sync_points().unwrap();
        assert_eq!((stats.count, stats.is_behind), (count + 1, false));
        assert!(stats.last_ns >= asked_ns && stats.last_ns < bed.clock.now_ns(), "{stats:?}");
        bed.wait_ms(100);
    }
    drop(file);
    bed.unmount_and_judge(volume, "the age of a sync point");
}
