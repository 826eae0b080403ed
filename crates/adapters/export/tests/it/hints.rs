//! Relaxed files under a kernel's ext4, over a loop device over a buffer, with power cuts.
//!
//! Oracle: after a cut, e2fsck replays the journal and finds nothing, and every strict file that
//! was synced and not touched again is there byte by byte, as debugfs reads it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate, statvfs, syncfs};
use syncline_buffer::{Buffer, BufferOptions, LogArea};
use syncline_control::hints::{HintError, Hinted, Timestamp};
use syncline_device::{
    BlockDevice, DeviceError, Geometry, MemoryDevice, OffsetDevice, Op, Request,
};
use syncline_export::empty_journal;
use syncline_testkit::crash::{
    Budget, CrashDevice, CrashOptions, CrashState, Explorer, Summary, run,
};
use syncline_testkit::{
    ImageSpec, Need, Random, debugfs, e2fsck_clean, e2fsck_preen, mkfs, require,
};

use crate::kernel::ExportMount;

const HOME: u64 = 8 << 20;
const LOG: u64 = 4 << 20;

/// Nothing but capacity and flushes moves data.
fn options() -> BufferOptions {
    BufferOptions {
        ram_bytes: 64 << 20,
        relaxed_bytes_max: 64 << 20,
        threshold_bytes: 1 << 30,
        ..BufferOptions::default()
    }
}

fn open(medium: Arc<dyn BlockDevice>) -> Buffer {
    let home = OffsetDevice::new(Arc::clone(&medium), 0, HOME).unwrap();
    let log = OffsetDevice::new(medium, HOME, LOG).unwrap();
    let area = LogArea { device: Arc::new(log), same_medium: true };
    Buffer::open(Arc::new(home), Some(area), options()).unwrap()
}

/// A device that hides writes of the journal from the hints, if it is told to.
struct Watched {
    hinted: Hinted,
    blind: AtomicBool,
    relaxed_writes: AtomicU64,
}

impl BlockDevice for Watched {
    fn geometry(&self) -> Geometry {
        self.hinted.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let magic = |request: &Request<'_>| match &request.op {
            Op::Write { from, .. } => from[0].starts_with(&[0xc0, 0x3b, 0x39, 0x98]),
            _ => false,
        };
        if self.blind.load(Ordering::Relaxed) && batch.iter().any(magic) {
            return self.hinted.buffer().submit(batch);
        }
        self.hinted.submit(batch)?;
        let relaxed =
            batch.iter().filter(|r| r.origin.durability == syncline_device::Durability::Relaxed);
        self.relaxed_writes.fetch_add(relaxed.count() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Contents of the strict files that are synced, by name.
type Synced = BTreeMap<String, Vec<u8>>;

/// A kernel's ext4 over hints over a buffer over a device that can be cut.
struct Bench {
    medium: Arc<CrashDevice>,
    device: Arc<Watched>,
    mount: ExportMount,
    /// By mark.
    history: Mutex<Vec<Synced>>,
}

impl Bench {
    fn new(block_size_bytes: u32, mode: &str) -> Bench {
        let spec = ImageSpec {
            size_bytes: HOME,
            block_size_bytes,
            journal_size_mib: Some(block_size_bytes / 1024),
            inode_count: Some(64),
            ..ImageSpec::default()
        };
        let base = MemoryDevice::new(HOME + LOG);
        base.write_at(0, &mkfs(&spec).bytes()).unwrap();
        let base_log = OffsetDevice::new(Arc::new(base.snapshot()), HOME, LOG).unwrap();
        let area = LogArea { device: Arc::new(base_log), same_medium: true };
        Buffer::create_log(&area, HOME, [7; 16], true).unwrap();
        let mut log = vec![0; LOG as usize];
        let origin = syncline_device::Origin::new(syncline_device::Kind::Other, true);
        area.device.read(0, &mut log, origin).unwrap();
        base.write_at(HOME, &log).unwrap();
        let medium = Arc::new(CrashDevice::new(&base, CrashOptions::default()));
        let hinted = Hinted::new(open(medium.clone()));
        let device = Arc::new(Watched {
            hinted,
            blind: AtomicBool::new(false),
            relaxed_writes: AtomicU64::new(0),
        });
        let mount = ExportMount::new(device.clone(), mode);
        Bench { medium, device, mount, history: Mutex::new(Vec::new()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mount.path(name)
    }

    fn file(&self, name: &str) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(self.path(name)).unwrap()
    }

    /// Relaxes a file as the command does.
    fn relax(&self, file: &File) -> Result<(), HintError> {
        let fsid = statvfs(self.path("")).unwrap().f_fsid;
        let about = file.metadata().unwrap();
        let born = about.created().unwrap().duration_since(UNIX_EPOCH).unwrap();
        let born = Timestamp { seconds: born.as_secs() as i64, nanoseconds: born.subsec_nanos() };
        let ino = u32::try_from(about.ino()).unwrap();
        file.sync_all().unwrap();
        if !self.device.hinted.relax(fsid, ino, born)? {
            empty_journal(file).unwrap();
            assert!(self.device.hinted.relax(fsid, ino, born)?, "the log was empty");
        }
        Ok(())
    }

    /// From now on these files have to survive a cut, and no others.
    fn acknowledge(&self, synced: &Synced) {
        let mut history = self.history.lock();
        history.push(synced.clone());
        self.medium.mark(history.len() as u64 - 1);
    }

    fn sync_all(&self) {
        syncfs(File::open(self.path("")).unwrap()).unwrap();
    }

    /// Stops without an unmount and judges states of the log.
    fn cut(self, states: u64, seed: u64, test: &str) -> Summary {
        let explorer = Explorer::new(self.medium.log());
        let history = std::mem::take(&mut *self.history.lock());
        drop(self);
        let command = format!("cargo test -p syncline-export --test it {test}");
        run(&explorer, &Budget::new(states, seed), &command, |state| judge(state, &history))
    }
}

fn judge(state: &CrashState, history: &[Synced]) -> Result<(), String> {
    let medium: Arc<dyn BlockDevice> = Arc::new(state.image.snapshot());
    let buffer = open(Arc::clone(&medium));
    buffer.drain().map_err(|err| err.to_string())?;
    let mut bytes = vec![0; HOME as usize];
    let origin = syncline_device::Origin::new(syncline_device::Kind::Other, true);
    medium.read(0, &mut bytes, origin).map_err(|err| err.to_string())?;
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::write(&image, bytes).unwrap();
    e2fsck_preen(&image)?;
    e2fsck_clean(&image)?;
    let Some(&mark) = state.marks().last() else { return Ok(()) };
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let _ = debugfs(&image, &format!("rdump / {}", files.display()));
    for (name, content) in &history[mark as usize] {
        let found = std::fs::read(files.join(name)).map_err(|err| format!("{name}: {err}"))?;
        if found != *content {
            let at = found.iter().zip(content).position(|(a, b)| a != b);
            return Err(format!(
                "{name}: {} bytes, {} synced, first difference at {at:?}",
                found.len(),
                content.len()
            ));
        }
    }
    Ok(())
}

fn usable(test: &str) -> bool {
    require(test, &[Need::Root, Need::Fuse, Need::Loop, Need::E2fsck])
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    syncline_testkit::fill(seed, 0, &mut bytes);
    bytes
}

/// A relaxed file is written, synced, deleted; a strict one gets its blocks and is synced.
fn reuse(mode: &str, blind: bool) -> (Summary, u64) {
    let bench = Bench::new(1024, mode);
    // More than half of the room: the second file has to take blocks of the first.
    let big = 4 << 20;
    let old = bench.file("old");
    old.write_all_at(&pattern(1, big), 0).unwrap();
    bench.relax(&old).unwrap();
    assert_eq!(bench.device.hinted.status().relaxed_file_bytes, big as u64);
    old.write_all_at(&pattern(2, big), 0).unwrap();
    old.sync_all().unwrap();
    let waits = bench.device.hinted.buffer().status().relaxed_pages;
    assert!(waits >= (big / 4096) as u64, "the relaxed file waits in memory: {waits} pages");
    bench.device.blind.store(blind, Ordering::Relaxed);
    std::fs::remove_file(bench.path("old")).unwrap();
    drop(old);
    bench.sync_all();
    let new = bench.file("new");
    let content = pattern(3, big);
    new.write_all_at(&content, 0).unwrap();
    new.sync_all().unwrap();
    drop(new);
    bench.acknowledge(&Synced::from([("new".to_owned(), content)]));
    let relaxed = bench.device.relaxed_writes.load(Ordering::Relaxed);
    bench.device.blind.store(false, Ordering::Relaxed);
    (bench.cut(40, 1, "hints::"), relaxed)
}

#[test]
fn a_strict_file_in_the_blocks_of_a_relaxed_one_is_strict() {
    let test = "a_strict_file_in_the_blocks_of_a_relaxed_one_is_strict";
    if !usable(test) {
        return;
    }
    for mode in ["data=ordered", "data=journal", "data=writeback"] {
        let (summary, relaxed) = reuse(mode, false);
        assert!(relaxed > 0);
        println!("{mode}: {}", summary.into_result().unwrap());
    }
}

/// The hazard is real: with the journal out of sight the same test loses a synced file.
#[test]
fn without_a_look_at_the_journal_a_synced_file_is_lost() {
    let test = "without_a_look_at_the_journal_a_synced_file_is_lost";
    if !usable(test) {
        return;
    }
    let (summary, _) = reuse("data=ordered", true);
    let lost = summary.into_result().unwrap_err();
    assert!(lost.contains("new: "), "{lost}");
}

/// Strict and relaxed files take each other's blocks in a file system that is nearly full.
struct Load<'a> {
    bench: &'a Bench,
    random: Random,
    synced: Synced,
    seed: u64,
}

impl Load<'_> {
    /// Nothing is promised of a strict file while it changes.
    fn touched(&mut self, name: &str) {
        if self.synced.remove(name).is_some() {
            self.bench.acknowledge(&self.synced);
        }
    }

    /// As after fsync of the file and of its directory.
    fn sync(&mut self, name: &str) {
        let Ok(file) = File::open(self.bench.path(name)) else { return };
        file.sync_all().unwrap();
        if !name.starts_with('s') {
            return;
        }
        File::open(self.bench.path("")).unwrap().sync_all().unwrap();
        let content = std::fs::read(self.bench.path(name)).unwrap();
        self.synced.insert(name.to_owned(), content);
        self.bench.acknowledge(&self.synced);
    }

    fn write(&mut self, name: &str) {
        let file = self.bench.file(name);
        self.seed += 1;
        let size = file.metadata().unwrap().len() / 1024;
        let over = name.starts_with('r') && size > 0;
        let at = self.random.below(if over { size } else { 1536 }) * 1024;
        let len = 512 + self.random.index(1 << 17);
        if file.write_all_at(&pattern(self.seed, len), at).is_err() {
            let _ = std::fs::remove_file(self.bench.path(name));
        } else if name.starts_with('r') {
            file.sync_all().unwrap();
            let taken = self.bench.relax(&file);
            assert!(taken.is_ok(), "{taken:?}");
            // Once more, which may wait.
            file.write_all_at(&pattern(self.seed ^ 1 << 31, len), at).unwrap();
        }
    }

    fn punch(&mut self, name: &str) {
        let file = self.bench.file(name);
        let (at, len) = (self.random.below(1 << 20), 1 + self.random.below(1 << 19));
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, mode, at, len).unwrap();
    }

    fn step(&mut self) {
        let kind = if self.random.one_in(2) { 's' } else { 'r' };
        let name = format!("{kind}{}", self.random.below(4));
        self.touched(&name);
        match self.random.below(16) {
            0..8 => self.write(&name),
            8..10 => self.punch(&name),
            10 => self.bench.file(&name).set_len(self.random.below(1 << 20)).unwrap(),
            11..13 => drop(std::fs::remove_file(self.bench.path(&name))),
            13 => {
                let other = format!("{kind}{}", self.random.below(4));
                self.touched(&other);
                let _ = std::fs::rename(self.bench.path(&name), self.bench.path(&other));
                self.sync(&other);
            }
            14 => self.bench.sync_all(),
            _ => {}
        }
        if self.random.one_in(2) {
            self.sync(&name);
        }
    }
}

#[test]
fn strict_files_survive_cuts_while_blocks_go_from_hand_to_hand() {
    let test = "strict_files_survive_cuts_while_blocks_go_from_hand_to_hand";
    if !usable(test) {
        return;
    }
    let cases = [
        (1024, "data=ordered"),
        (2048, "data=ordered"),
        (1024, "data=writeback"),
        (1024, "discard"),
    ];
    for (seed, (block_size_bytes, mode)) in (1..).zip(cases) {
        let bench = Bench::new(block_size_bytes, mode);
        let random = Random::new(seed);
        let mut load = Load { bench: &bench, random, synced: Synced::new(), seed: seed << 32 };
        for _ in 0..250 {
            load.step();
        }
        let status = bench.device.hinted.status();
        assert_eq!(status.relaxed_ended, None, "it was followed to the end");
        let relaxed = bench.device.relaxed_writes.load(Ordering::Relaxed);
        let summary = bench.cut(40, seed, test).into_result().unwrap();
        println!("{block_size_bytes} {mode}: {relaxed} relaxed writes, {status:?}, {summary}");
        assert!(relaxed > 20, "{relaxed} writes were relaxed");
    }
}
