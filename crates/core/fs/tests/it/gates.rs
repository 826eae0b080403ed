//! Commands of the device that are held while others go on: nobody waits for a stranger's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use syncline_device::{BlockDevice, DeviceError, Geometry, MemoryDevice, Op, Request};
use syncline_fs::{Create, FallocateMode, InodeRef, RenameFlags, Volume};
use syncline_testkit::ImageSpec;

use crate::bed::{Bed, assert_same, bytes, contents, spec};

const BLOCK: usize = 4096;

fn create(volume: &Volume, name: &str) -> InodeRef {
    let how = Create { mode: 0o644, uid: 0, gid: 0 };
    volume.create(&volume.root().expect("root"), name.as_bytes(), &how).expect("create")
}

/// For hangs only.
const LONG: Duration = Duration::from_secs(120);

/// Holds the k-th write or flush that comes after [`Gate::close_at`] until it is opened.
struct Gate {
    inner: Arc<MemoryDevice>,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Writes and flushes until one is held; `None`: all pass.
    left: Option<u64>,
    held: bool,
}

impl Gate {
    fn close_at(&self, left: u64) {
        *self.state.lock() = GateState { left: Some(left), held: false };
    }

    /// Waits until a command is held; false if `over` says that none will come.
    fn wait_held(&self, over: impl Fn() -> bool) -> bool {
        let until = Instant::now() + LONG;
        let mut state = self.state.lock();
        while !state.held {
            if over() {
                return false;
            }
            assert!(Instant::now() < until, "neither held nor over");
            self.changed.wait_for(&mut state, Duration::from_millis(5));
        }
        true
    }

    fn open(&self) {
        *self.state.lock() = GateState::default();
        self.changed.notify_all();
    }
}

impl BlockDevice for Gate {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let changes = batch.iter().any(|r| !matches!(r.op, Op::Read { .. }));
        let mut state = self.state.lock();
        if let Some(left) = state.left.filter(|_| changes) {
            state.left = left.checked_sub(1);
            state.held = left == 0;
            self.changed.notify_all();
            let until = Instant::now() + 2 * LONG;
            while left == 0 && state.held {
                assert!(!self.changed.wait_until(&mut state, until).timed_out(), "never opened");
            }
        }
        drop(state);
        self.inner.submit(batch)
    }
}

/// Runs `waits` with its k-th command to the device held, and `goes_on` meanwhile, for each k. How
/// many commands there were.
fn at_every_command(
    gate: &Gate,
    waits: &(dyn Fn(u64) + Sync),
    goes_on: &(dyn Fn(u64) + Sync),
) -> u64 {
    for k in 0.. {
        gate.close_at(k);
        let held = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waits(k));
            let held = gate.wait_held(|| waiting.is_finished());
            if held {
                let (tell, told) = std::sync::mpsc::channel();
                scope.spawn(move || {
                    goes_on(k);
                    // The receiver may have given up.
                    let _ = tell.send(());
                });
                let done = told.recv_timeout(LONG);
                gate.open();
                done.unwrap_or_else(|_| panic!("a call waits for command {k} of another file"));
            }
            gate.open();
            waiting.join().expect("the held thread ends");
            held
        });
        if !held {
            return k;
        }
        assert!(k < 1000, "no end of commands");
    }
    0
}

/// A volume behind a gate, with an allocated file of 1 MiB, and another file.
fn gated(bed: &Bed, options: &str) -> (Arc<Gate>, Volume, InodeRef, InodeRef) {
    let (state, changed) = (Mutex::default(), Condvar::new());
    let gate = Arc::new(Gate { inner: Arc::clone(&bed.dev), state, changed });
    let volume = bed.mount_on(Arc::clone(&gate) as Arc<dyn BlockDevice>, options);
    let (a, b) = (bed.file(&volume, 0), bed.file(&volume, 1));
    volume.fallocate(&b, FallocateMode::Allocate, 0, 1 << 20).expect("fallocate");
    volume.fsync(&b, false).expect("fsync");
    (gate, volume, a, b)
}

#[test]
fn writes_and_preallocations_go_on_at_every_command_of_a_strangers_truncate_and_fsync() {
    for (options, atime) in [
        ("sync=eager", "noatime,lazytime"),
        ("sync=eager", "noatime"),
        ("sync=ordered", "noatime,lazytime"),
        ("sync=ordered", "noatime"),
    ] {
        let bed = Bed::without_fua(&ImageSpec { size_bytes: 64 << 20, ..spec(4096) }, 2);
        let (gate, volume, a, b) = gated(&bed, &format!("{options},{atime}"));
        // Freed blocks, bitmap, descriptor and inode block are those that the other file uses, too.
        let waits = |k: u64| {
            volume.fallocate(&a, FallocateMode::Allocate, 0, 1 << 20).expect("fallocate a");
            volume.write(&a, k % 64 * 4096, &[k as u8; BLOCK]).expect("write a");
            volume.fsync(&a, false).expect("fsync a");
            volume.truncate(&a, 4096).expect("truncate a");
            volume.fsync(&a, false).expect("fsync a");
        };
        let goes_on = |k: u64| {
            bed.wait_ms(20);
            for n in 0..8 {
                volume.write(&b, (k * 8 + n) % 256 * 4096, &[k as u8; BLOCK]).expect("write b");
            }
            let at = (1 << 20) + k * (256 << 10);
            volume.fallocate(&b, FallocateMode::KeepSize, at, 256 << 10).expect("fallocate b");
        };
        let commands = at_every_command(&gate, &waits, &goes_on);
        println!("{options},{atime}: {commands} commands");
        // Two fsyncs: a write and a flush each, at least.
        assert!(commands >= 4, "{commands} commands");
        drop((a, b));
        volume.unmount().expect("unmount");
        bed.judge("the test");
    }
}

#[test]
fn writes_go_on_at_every_command_of_the_same_files_write_back_and_fsync() {
    for options in ["sync=eager,noatime,lazytime", "sync=ordered,noatime,lazytime"] {
        let bed = Bed::without_fua(&ImageSpec { size_bytes: 64 << 20, ..spec(4096) }, 2);
        let (gate, volume, a, b) = gated(&bed, options);
        let waits = |k: u64| {
            volume.write(&b, k % 128 * 4096, &[k as u8; BLOCK]).expect("write");
            volume.writeback_range(&b, 0, 1 << 20).expect("write-back");
            volume.write(&b, k % 128 * 4096, &[!k as u8; BLOCK]).expect("write");
            volume.fsync(&b, false).expect("fsync");
        };
        let goes_on = |k: u64| {
            volume.write(&b, (128 + k % 128) * 4096, &[k as u8; BLOCK]).expect("write beside");
        };
        let commands = at_every_command(&gate, &waits, &goes_on);
        println!("{options}: {commands} commands");
        assert!(commands >= 2, "{commands} commands");
        drop((a, b));
        volume.unmount().expect("unmount");
        bed.judge("the test");
    }
}

/// Blocks come back with the commit of what freed them, one after the other while they are
/// discarded. A write that finds no room at any command of that waits for them.
#[test]
fn a_write_without_room_waits_for_blocks_that_are_being_given_back() {
    for options in ["sync=eager,discard", "sync=ordered,discard"] {
        let bed = Bed::without_fua(&spec(4096), 2);
        let (gate, volume, a, b) = gated(&bed, options);
        let (volume, gate) = (&volume, &*gate);
        let mut size = 0;
        while let Ok(done) = volume.write(&a, size, &[1; BLOCK]) {
            size += done as u64;
        }
        let mut held = 0;
        for k in 0.. {
            volume.truncate(&a, size).expect("truncate");
            for at in (0..size).step_by(BLOCK) {
                volume.write(&a, at, &[k as u8; BLOCK]).expect("as much as before");
            }
            volume.syncfs().expect("syncfs");
            volume.truncate(&a, 0).expect("truncate");
            gate.close_at(k);
            let was_held = std::thread::scope(|scope| {
                let gives = scope.spawn(|| volume.syncfs().expect("syncfs"));
                let was_held = gate.wait_held(|| gives.is_finished());
                let wants = scope.spawn(|| volume.write(&b, 2 << 20, &[2; BLOCK]));
                // Time to get there; it may wait until the gate is open.
                std::thread::sleep(Duration::from_millis(20));
                gate.open();
                let done = wants.join().expect("the writing thread ends");
                assert_eq!(done.expect("room"), BLOCK, "{options}, command {k}");
                was_held
            });
            volume.truncate(&b, 1 << 20).expect("truncate");
            volume.syncfs().expect("syncfs");
            if !was_held {
                break;
            }
            held += 1;
        }
        println!("{options}: {held} commands");
        assert!(held >= 3, "{held} commands");
        drop((a, b));
    }
}

/// A page whose older copy is in the log goes to the log again instead of to its place. While the
/// other pages of its write-back are sent, somebody else's sync may commit it: it still has to get
/// to its place. At every command of the write-back, and with each page of the file.
#[test]
fn what_commits_during_its_write_back_gets_to_its_place() {
    let bed = Bed::without_fua(&ImageSpec { size_bytes: 64 << 20, ..spec(4096) }, 1);
    let (state, changed) = Default::default();
    let gate = Arc::new(Gate { inner: Arc::clone(&bed.dev), state, changed });
    let volume = bed.mount_on(Arc::clone(&gate) as Arc<dyn BlockDevice>, "sync=eager");
    let root = volume.root().expect("root");
    let mut held = 0;
    for k in 0.. {
        let file = create(&volume, &format!("old{k}"));
        volume.write(&file, 0, &bytes(k, 2 * BLOCK)).expect("write");
        volume.fsync(&file, false).expect("fsync");
        // One that the log has, one that has no place yet, and a name that is in their set.
        volume.write(&file, 0, &bytes(!k, BLOCK)).expect("write");
        volume.write(&file, 40 << 12, &bytes(k, BLOCK)).expect("write");
        let (old, new) = (format!("old{k}"), format!("new{k}"));
        let flags = RenameFlags::default();
        volume.rename(&root, old.as_bytes(), &root, new.as_bytes(), flags).expect("rename");
        gate.close_at(k);
        std::thread::scope(|scope| {
            let written = scope.spawn(|| volume.writeback_range(&file, 0, u64::MAX));
            let is_held = gate.wait_held(|| written.is_finished());
            held += u64::from(is_held);
            if is_held {
                // Only the held command waits; those of this sync pass.
                volume.fsync(&root, false).expect("fsync of the directory");
            }
            gate.open();
            written.join().expect("the write-back ends").expect("write-back");
        });
        if held <= k {
            break;
        }
    }
    assert!(held > 0);
    volume.unmount().expect("unmount");
    bed.judge("the test");
    let volume = bed.mount("sync=eager");
    for k in 0..=held {
        let mut expected = bytes(k, 2 * BLOCK);
        expected[..BLOCK].copy_from_slice(&bytes(!k, BLOCK));
        expected.resize(40 << 12, 0);
        expected.extend(bytes(k, BLOCK));
        let file = volume.resolve(format!("/new{k}").as_bytes()).expect("resolve");
        assert_same(&contents(&volume, &file), &expected, &format!("held at command {k}"));
    }
    volume.unmount().expect("unmount");
}
