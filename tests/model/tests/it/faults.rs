//! The k-th request fails, for every k of a workload: the caller gets an error, after a failed
//! write or flush no sync succeeds any more, and the image recovers with everything that was
//! acknowledged. And volumes that run out of blocks or inodes at any point: nothing is lost,
//! nothing leaks.

use std::collections::BTreeMap;
use std::sync::Arc;

use syncline_device::{
    Clock, FailingDevice, Fault, FaultPlan, FileMirror, MemoryDevice, OpClass, VirtualClock,
};
use syncline_fs::{
    Create, FallocateMode, FsError, InodeRef, MountOptions, RenameFlags, SyncMode, Volume,
    XattrFlags,
};
use syncline_model::{
    ImageSpec, KernelMount, Need, TempImage, TreeSource, VolumeTree, e2fsck_clean, e2fsck_preen,
    fill, mkfs, require,
};

const NEEDS: [Need; 1] = [Need::E2fsck];
const PLAIN: Create = Create { mode: 0o644, uid: 0, gid: 0 };

type Failing = FailingDevice<Arc<MemoryDevice>>;

/// Results of a run.
#[derive(Default)]
struct Outcome {
    /// Contents acknowledged by fsync, and not changed since.
    durable: BTreeMap<&'static str, Vec<u8>>,
    errors: Vec<FsError>,
    /// A sync that reported success after a write or flush had failed.
    lied: bool,
    /// Files without a name, open until the end.
    orphans: Vec<InodeRef>,
}

struct Work<'a> {
    device: &'a Failing,
    volume: Volume,
    /// True if the plan hits writes or flushes, whose failure the volume must remember.
    latches: bool,
    out: Outcome,
}

impl Work<'_> {
    fn note<T>(&mut self, result: Result<T, FsError>) -> Option<T> {
        result.map_err(|err| self.out.errors.push(err)).ok()
    }

    fn synced(&mut self, result: Result<(), FsError>) -> bool {
        let ok = self.note(result).is_some();
        self.out.lied |= ok && self.latches && self.device.hits() > 0;
        ok
    }

    fn create(&mut self, name: &str) -> Option<InodeRef> {
        let made = self.volume.root().and_then(|d| self.volume.create(&d, name.as_bytes(), &PLAIN));
        self.note(made)
    }

    fn write(&mut self, name: &'static str, inode: &InodeRef, offset: u64, len: usize, seed: u64) {
        let mut bytes = vec![0; len];
        fill(seed, 0, &mut bytes);
        self.out.durable.remove(name);
        let result = self.volume.write(inode, offset, &bytes);
        self.note(result);
    }

    fn fsync(&mut self, name: &'static str, inode: &InodeRef) {
        let result = self.volume.fsync(inode, false);
        if !self.synced(result) {
            return;
        }
        let mut bytes = vec![0; self.volume.getattr(inode).size as usize];
        let read = self.volume.read(inode, 0, &mut bytes);
        if self.note(read) == Some(bytes.len()) {
            self.out.durable.insert(name, bytes);
        }
    }

    fn rename(&mut self, from: &'static str, to: &'static str) {
        let result = self.volume.root().and_then(|d| {
            self.volume.rename(&d, from.as_bytes(), &d, to.as_bytes(), RenameFlags::NONE)
        });
        // Not durable by itself: either name may be found.
        self.out.durable.remove(from);
        self.out.durable.remove(to);
        self.note(result);
    }

    /// A file that loses its last name and stays open: an orphan on the device.
    fn orphan(&mut self, name: &'static str) {
        let Some(file) = self.create(name) else { return };
        self.write(name, &file, 0, 30_000, 9);
        self.fsync(name, &file);
        let removed = self.volume.root().and_then(|d| self.volume.unlink(&d, name.as_bytes()));
        self.out.durable.remove(name);
        self.note(removed);
        self.out.orphans.push(file);
    }

    fn steps(&mut self, clock: &VirtualClock) {
        self.orphan("gone");
        self.orphan("gone, too");
        let a = self.create("a");
        if let Some(a) = &a {
            self.write("a", a, 0, 40_000, 1);
            self.fsync("a", a);
            self.write("a", a, 8192, 4096, 2);
            self.fsync("a", a);
        }
        for n in 0..30 {
            let name = format!("{n}-{}", "z".repeat(100));
            self.create(&name);
        }
        if let Some(b) = self.create("b") {
            let result = self.volume.fallocate(&b, FallocateMode::Allocate, 0, 100_000);
            self.note(result);
            self.write("b", &b, 20_000, 30_000, 3);
            let result = self.volume.setxattr(&b, b"user.x", &[7; 500], XattrFlags::Any);
            self.note(result);
            self.fsync("b", &b);
            let result = self.volume.fallocate(&b, FallocateMode::PunchHole, 24_000, 9000);
            self.out.durable.remove("b");
            self.note(result);
        }
        clock.sleep_until(clock.now_ns() + 6_000_000_000);
        let tick = self.volume.tick(clock.now_ns());
        self.note(tick);
        if let Some(c) = self.create("c") {
            self.write("c", &c, 0, 9000, 4);
            self.rename("c", "a");
            self.fsync("a", &c);
        }
        let d = self.volume.root().and_then(|d| self.volume.mkdir(&d, b"dir", &PLAIN));
        self.note(d);
        let removed = self.volume.root().and_then(|d| self.volume.unlink(&d, b"b"));
        self.out.durable.remove("b");
        self.note(removed);
        clock.sleep_until(clock.now_ns() + 40_000_000_000);
        let tick = self.volume.tick(clock.now_ns());
        self.note(tick);
        let sync = self.volume.syncfs();
        self.synced(sync);
        if let Some(e) = self.create("e") {
            self.write("e", &e, 0, 5000, 5);
            self.fsync("e", &e);
        }
    }
}

/// Runs the workload with a plan armed after the mount; the image is as a crash leaves it, or
/// unmounted.
fn workload(
    image: &Arc<MemoryDevice>,
    sync: SyncMode,
    plan: Option<FaultPlan>,
) -> (Outcome, u64, u64) {
    let device = Arc::new(FailingDevice::new(image.clone()));
    let clock = Arc::new(VirtualClock::default());
    let mount = MountOptions::default().with(|options| {
        options.sync = sync;
        options.cache_bytes = 1 << 20;
    });
    let volume = Volume::mount(device.clone(), clock.clone(), mount).unwrap();
    let latches = plan.is_some_and(|p| matches!(p.class, OpClass::Write | OpClass::Flush));
    let before = device.counts();
    if let Some(plan) = plan {
        device.arm(plan);
    }
    let mut work =
        Work { device: &device, volume: volume.clone(), latches, out: Outcome::default() };
    work.steps(&clock);
    let unmounted = volume.unmount();
    work.synced(unmounted);
    let class = plan.map_or(OpClass::Any, |p| p.class);
    let Work { out, .. } = work;
    (out, device.counts().of(class) - before.of(class), device.hits())
}

fn check(
    image: &MemoryDevice,
    mirror: &mut FileMirror,
    out: &Outcome,
    kernel: bool,
) -> Result<(), String> {
    if out.lied {
        return Err("a sync succeeded after a failed write".to_owned());
    }
    if kernel {
        mirror.restore(image).map_err(|e| e.to_string())?;
        let mount = KernelMount::new(mirror.path(), "")?;
        std::fs::write(mount.path().join("kernel"), [1; 5000]).map_err(|e| e.to_string())?;
        mount.unmount()?;
        e2fsck_clean(mirror.path()).map_err(|e| format!("after the kernel: {e}"))?;
    }
    mirror.restore(image).map_err(|e| e.to_string())?;
    e2fsck_preen(mirror.path())?;
    let recovered = MemoryDevice::load(mirror.path()).map_err(|e| e.to_string())?;
    for (device, whose) in [(recovered, "e2fsck"), (image.snapshot(), "our recovery")] {
        let clock = Arc::new(VirtualClock::default());
        let volume = Volume::mount(Arc::new(device), clock, MountOptions::default());
        let volume = volume.map_err(|e| format!("after {whose}: mount: {e}"))?;
        let mut tree = VolumeTree::new(volume.clone());
        for (name, want) in &out.durable {
            let mut have = vec![0; want.len()];
            let n = tree.read(name.as_bytes(), 0, &mut have);
            let n = n.map_err(|e| format!("after {whose}: {name}: {e}"))?;
            if n != want.len() || have != *want {
                return Err(format!("after {whose}: {name} lost {n} of {} bytes", want.len()));
            }
        }
        volume.unmount().map_err(|e| format!("after {whose}: unmount: {e}"))?;
    }
    Ok(())
}

/// Runs every k of a class in both modes. `fault` makes the plan.
fn every_k(class: OpClass, plan: impl Fn(u64) -> FaultPlan) {
    for sync in [SyncMode::Ordered, SyncMode::Eager] {
        every_k_of(sync, class, &plan);
    }
}

fn every_k_of(sync: SyncMode, class: OpClass, plan: impl Fn(u64) -> FaultPlan) {
    let spec = ImageSpec {
        journal_size_mib: Some(1),
        block_size_bytes: 1024,
        ..ImageSpec::with_size(8 << 20)
    };
    let base = MemoryDevice::load(mkfs(&spec).path()).unwrap();
    let never = FaultPlan::once(class, 0);
    let (clean, count, _) = workload(&Arc::new(base.snapshot()), sync, Some(never));
    assert_eq!(clean.errors, [], "the workload works without faults");
    assert!(count > 5, "{class:?}: only {count} requests");
    let file = TempImage::zeroed(0);
    let mut mirror = FileMirror::create(file.path(), &base).unwrap();
    let (mut failed, mut seen) = (Vec::new(), 0);
    let kernel = require("kernel mounts after faults", &[Need::Root, Need::Loop]);
    for k in 1..=count {
        let image = Arc::new(base.snapshot());
        let (out, _, hits) = workload(&image, sync, Some(plan(k)));
        if hits > 0 && out.errors.is_empty() && class != OpClass::Read {
            failed.push(format!("k = {k}: nobody was told"));
        }
        seen += hits.min(1);
        let kernel = kernel && k % 7 == 1;
        if let Err(error) = check(&image, &mut mirror, &out, kernel) {
            let errors: Vec<String> = out.errors.iter().take(3).map(|e| e.to_string()).collect();
            failed.push(format!("k = {k}: {error}; errors {errors:?}"));
        }
    }
    println!("{sync:?}, {class:?}: {count} requests, {seen} hit, {} wrong", failed.len());
    assert!(failed.is_empty(), "{sync:?}, {} of {count}:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn every_write_fails_once() {
    if require("every_write_fails_once", &NEEDS) {
        every_k(OpClass::Write, |k| FaultPlan::once(OpClass::Write, k));
    }
}

#[test]
fn every_write_fails_from_then_on() {
    if require("every_write_fails_from_then_on", &NEEDS) {
        every_k(OpClass::Write, |k| FaultPlan::from_then_on(OpClass::Write, k));
    }
}

#[test]
fn every_write_is_short() {
    if require("every_write_is_short", &NEEDS) {
        let fault = Fault::Short { sectors: 1 };
        every_k(OpClass::Write, |at| FaultPlan {
            class: OpClass::Write,
            at,
            persistent: true,
            fault,
        });
    }
}

#[test]
fn every_flush_fails_once() {
    if require("every_flush_fails_once", &NEEDS) {
        every_k(OpClass::Flush, |k| FaultPlan::once(OpClass::Flush, k));
    }
}

#[test]
fn every_read_fails_once() {
    if require("every_read_fails_once", &NEEDS) {
        every_k(OpClass::Read, |k| FaultPlan::once(OpClass::Read, k));
    }
}

/// Creates and fills until nothing goes any more, in several sizes of writes; then everything that
/// was taken is there after a remount, and after everything is deleted as much is free as at first.
#[test]
fn a_full_volume_stays_clean_and_gives_everything_back() {
    if !require("a_full_volume_stays_clean_and_gives_everything_back", &NEEDS) {
        return;
    }
    for (block_size_bytes, inode_count, len) in
        [(1024, None, 3000), (4096, None, 50_000), (1024, Some(128), 10), (4096, Some(64), 0)]
    {
        let spec = ImageSpec { block_size_bytes, inode_count, ..ImageSpec::with_size(8 << 20) };
        let image = Arc::new(MemoryDevice::load(mkfs(&spec).path()).unwrap());
        fill_and_empty(&image, len);
        let file = TempImage::zeroed(0);
        image.to_file(file.path()).unwrap();
        e2fsck_clean(file.path()).unwrap();
    }
}

fn mount(image: &Arc<MemoryDevice>) -> Volume {
    let clock = Arc::new(VirtualClock::default());
    Volume::mount(image.clone(), clock, MountOptions::default()).unwrap()
}

fn fill_and_empty(image: &Arc<MemoryDevice>, len: usize) {
    let volume = mount(image);
    let dir = volume.root().unwrap();
    let before = volume.statfs();
    let mut bytes = vec![0; len];
    fill(1, 0, &mut bytes);
    let (mut taken, mut full) = (Vec::new(), 0);
    for n in 0..20_000 {
        let name = format!("file-{n}");
        let made = match volume.create(&dir, name.as_bytes(), &PLAIN) {
            Ok(inode) => inode,
            Err(FsError::NoSpace) => {
                full += 1;
                if full > 3 {
                    break;
                }
                continue;
            }
            Err(err) => panic!("create: {err}"),
        };
        let size = match volume.write(&made, 0, &bytes) {
            Ok(n) => n,
            Err(FsError::NoSpace) => {
                full += 1;
                0
            }
            Err(err) => panic!("write: {err}"),
        };
        taken.push((name, size));
        if full > 10 {
            break;
        }
        if n % 50 == 0 {
            volume.fsync(&made, false).expect("what was taken has its place");
        }
    }
    assert!(full > 0, "the volume never got full");
    volume.syncfs().expect("what was taken has its place");
    volume.unmount().unwrap();

    let volume = mount(image);
    let dir = volume.root().unwrap();
    for (name, size) in &taken {
        let inode = volume.lookup(&dir, name.as_bytes()).unwrap();
        let mut have = vec![0; size + 1];
        assert_eq!(volume.read(&inode, 0, &mut have).unwrap(), *size, "{name}");
        assert!(have[..*size] == bytes[..*size], "{name} has other bytes");
    }
    for (name, _) in &taken {
        volume.unlink(&dir, name.as_bytes()).unwrap();
    }
    volume.syncfs().unwrap();
    let after = volume.statfs();
    // The root directory keeps its blocks.
    let kept = volume.getattr(&dir).blocks / u64::from(after.block_size / 512);
    assert_eq!(after.files_free, before.files_free);
    assert!(after.blocks_free + kept + 1 >= before.blocks_free, "{before:?} {after:?} {kept}");
    volume.unmount().unwrap();
}
