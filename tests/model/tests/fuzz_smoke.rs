//! Broken images: bytes of metadata and of journals are changed, then the image is mounted, walked,
//! changed and unmounted. Whatever the answer: no panic, no hang, bounded memory.
//!
//! `SYNCLINE_FUZZ_SECONDS` makes each test go on after its first images. A failure prints the
//! number of the mutation; `SYNCLINE_FUZZ_ONLY=number` runs that one alone.
//!
//! A process of its own: its allocator measures what the whole process takes.
//!
//! Images without `metadata_csum` let every mutation through to the code behind the checksums;
//! images with it test that the checksums are looked at.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use syncline_device::{Kind, MemoryDevice, VirtualClock};
use syncline_fs::{
    Create, FallocateMode, FsError, InodeRef, MountOptions, RenameFlags, Volume, XattrFlags,
};
use syncline_model::{
    FuzzRounds, ImageSpec, Need, Random, TreeOptions, VolumeTree, apply, gen_tree, mkfs, require,
};
use syncline_testkit::crash::{Content, CrashDevice, CrashOptions, Entry};

/// Images that each test mutates at least.
const IMAGES: u64 = 500;
/// Memory that one mutated image may take beyond the images themselves.
const MEMORY_BYTES_MAX: usize = 512 << 20;
/// Time limit for one mutated image, on a busy machine.
const HANG: Duration = Duration::from_secs(60);
/// Bounds of the walk: what it asks for is bounded, so that only the volume can be unbounded.
const INODES_MAX: usize = 3000;
const NAMES_MAX: usize = 20_000;

/// Counts what is allocated, so that a test can see the peak.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator unchanged; the counters are atomics and do not
// allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on as they are.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on as they are.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An image and where its metadata and its journal are.
struct Seed {
    image: MemoryDevice,
    /// Byte ranges worth changing: `(start, length)`.
    targets: Vec<(u64, u64)>,
}

fn populate(spec: &ImageSpec, clean: bool, options: &str) -> (MemoryDevice, Vec<(u64, u64, Kind)>) {
    let base = MemoryDevice::load(mkfs(spec).path()).unwrap();
    let device = Arc::new(CrashDevice::new(&base, CrashOptions::default()));
    let clock = Arc::new(VirtualClock::default());
    let volume =
        Volume::mount(device.clone(), clock, MountOptions::parse(options).unwrap()).unwrap();
    let options = TreeOptions { names: 400, root: true, ..TreeOptions::default() };
    apply(&gen_tree(5, options), &mut VolumeTree::new(volume.clone())).unwrap();
    if clean {
        volume.unmount().unwrap();
    } else {
        // Committed, with nothing in its place: the log has all of it.
        let root = volume.root().unwrap();
        volume.fsync(&root, false).unwrap();
        drop(root);
        drop(volume);
    }
    let mut written = Vec::new();
    for entry in &device.log().entries {
        let Entry::Batch(writes) = entry else { continue };
        for write in writes {
            if let Content::Data(data) = &write.content {
                written.push((write.offset_bytes, data.len() as u64, write.origin.kind));
            }
        }
    }
    (device.live_image(), written)
}

fn seeds(features: &str, block_size_bytes: u32, journal: bool, options: &str) -> Seed {
    let spec = ImageSpec {
        block_size_bytes,
        features: features.to_owned(),
        journal_size_mib: Some(if journal { 8 } else { 4 }),
        inode_count: Some(1024),
        ..ImageSpec::with_size(48 << 20)
    };
    let (image, written) = populate(&spec, !journal, options);
    let wanted = |kind: Kind| if journal { kind == Kind::Journal } else { kind == Kind::Metadata };
    let written = written.into_iter().filter(|w| wanted(w.2)).map(|w| (w.0, w.1));
    let mut targets: Vec<(u64, u64)> = written.collect();
    targets.sort_unstable();
    targets.dedup();
    // The superblock and the group descriptors behind it.
    targets.push((1024, 1024));
    targets.push((1024, u64::from(block_size_bytes) * 2));
    Seed { image, targets }
}

/// Changes a few bytes; deterministic for a number.
fn mutate(seed: &Seed, number: u64) -> MemoryDevice {
    let mut random = Random::new(number);
    let image = seed.image.snapshot();
    for _ in 0..=random.below(4) {
        let (start, len) = match random.below(8) {
            0 => (1024, 1024),
            _ => seed.targets[random.index(seed.targets.len())],
        };
        let at = start + random.below(len) / 4 * 4;
        let mut word = [0; 4];
        image.read_at(at, &mut word).unwrap();
        let old = u32::from_le_bytes(word);
        let new = match random.below(9) {
            0 => old ^ 1 << random.below(32),
            1 => 0,
            2 => u32::MAX,
            3 => old.wrapping_add(1),
            4 => old.wrapping_sub(1),
            5 => random.below(1 << 17) as u32,
            6 => (old & 0xffff_0000) | random.below(1 << 16) as u32,
            7 => old.swap_bytes(),
            _ => random.bits() as u32,
        };
        image.write_at(at, &new.to_le_bytes()).unwrap();
        if random.one_in(20) {
            // One structure in the place of another.
            let (from, other) = seed.targets[random.index(seed.targets.len())];
            let mut bytes = vec![0; other.min(len).min(1024) as usize];
            image.read_at(from, &mut bytes).unwrap();
            image.write_at(start, &bytes).unwrap();
        }
    }
    image
}

struct Walker {
    volume: Volume,
    seen: BTreeSet<u32>,
    found: Vec<InodeRef>,
}

impl Walker {
    fn walk(&mut self) {
        let Ok(root) = self.volume.root() else { return };
        let mut todo = vec![root];
        while let Some(inode) = todo.pop() {
            if self.seen.len() >= INODES_MAX || !self.seen.insert(inode.ino) {
                continue;
            }
            self.look_at(&inode);
            let mut names = Vec::new();
            let _ = self.volume.readdir(&inode, 0, &mut |entry| {
                names.push(entry.name.to_vec());
                names.len() < NAMES_MAX
            });
            for name in names {
                if name != b"." && name != b".." {
                    todo.extend(self.volume.lookup(&inode, &name));
                }
                if todo.len() > INODES_MAX {
                    break;
                }
            }
            if self.found.len() < 40 {
                self.found.push(inode);
            }
        }
    }

    fn look_at(&self, inode: &InodeRef) {
        let volume = &self.volume;
        let attr = volume.getattr(inode);
        let mut buffer = vec![0; 16 * 1024];
        for offset in [0, attr.size / 2, attr.size.saturating_sub(100)] {
            let _ = volume.read(inode, offset, &mut buffer);
        }
        let _ = volume.readlink(inode);
        let _ = volume.fiemap(inode, 0, u64::MAX);
        let mut at = 0;
        for _ in 0..20 {
            let Ok(data) = volume.seek_data(inode, at) else { break };
            let Ok(hole) = volume.seek_hole(inode, data) else { break };
            at = hole;
        }
        for name in volume.listxattr(inode).unwrap_or_default() {
            let _ = volume.getxattr(inode, &name);
        }
    }

    fn change(&self, random: &mut Random) {
        let volume = &self.volume;
        let plain = Create { mode: 0o644, uid: 1, gid: 1 };
        for inode in &self.found {
            let _ = volume.write(inode, random.below(1 << 20), &[7; 3000]);
            let _ = match random.below(6) {
                0 => volume.truncate(inode, random.below(1 << 16)),
                1 => volume.fallocate(inode, FallocateMode::PunchHole, random.below(9999), 50_000),
                2 => volume.fallocate(inode, FallocateMode::Allocate, random.below(1 << 20), 9999),
                3 => volume.setxattr(inode, b"user.fuzz", &[1; 300], XattrFlags::Any),
                4 => volume.fsync(inode, random.one_in(2)),
                _ => Ok(()),
            };
            let mut names = Vec::new();
            let _ = volume.readdir(inode, 0, &mut |entry| {
                names.push(entry.name.to_vec());
                names.len() < 10
            });
            if !names.is_empty() {
                let _ = volume.create(inode, b"fuzz", &plain);
                let _ = volume.mkdir(inode, b"fuzz-dir", &plain);
                let name = &names[random.index(names.len())];
                let _ = volume.rename(inode, name, inode, b"renamed", RenameFlags::NONE);
                let _ = volume.unlink(inode, &names[random.index(names.len())]);
                let _ = volume.rmdir(inode, &names[random.index(names.len())]);
            }
        }
    }
}

/// One mutated image, read-only and then read-write.
fn exercise(image: &MemoryDevice, number: u64) -> Result<bool, FsError> {
    let mut random = Random::new(number ^ 0x55);
    let mut mounted = false;
    for read_only in [true, false] {
        let options = MountOptions::default().with(|options| {
            options.read_only = read_only;
            options.cache_bytes = 4 << 20;
        });
        let device = Arc::new(image.snapshot());
        let clock = Arc::new(VirtualClock::default());
        let Ok(volume) = Volume::mount(device, clock, options) else { continue };
        mounted = true;
        let (seen, found) = (BTreeSet::new(), Vec::new());
        let mut walker = Walker { volume: volume.clone(), seen, found };
        walker.walk();
        if !read_only {
            walker.change(&mut random);
        }
        let _ = volume.check(&mut |_| true);
        drop(walker);
        let _ = volume.syncfs();
        let _ = volume.unmount();
    }
    Ok(mounted)
}

fn fuzz(name: &str, features: &str, block_size_bytes: u32, journal: bool) {
    if !require(name, &[Need::E2fsck]) {
        return;
    }
    // Both formats of the log: checksums v3 or none, and v1.
    let seeds = ["sync=ordered", "sync=eager"]
        .map(|options| seeds(features, block_size_bytes, journal, options));
    let only: Option<u64> =
        std::env::var("SYNCLINE_FUZZ_ONLY").ok().map(|text| text.parse().expect("a number"));
    let start = Instant::now();
    let numbers: Box<dyn Iterator<Item = u64> + Send> = match only {
        Some(number) => Box::new(std::iter::once(number)),
        None => Box::new(FuzzRounds::at_least(IMAGES)),
    };
    let current = Arc::new(AtomicU64::new(only.unwrap_or(0)));
    let began_ms = Arc::new(AtomicU64::new(0));
    let worker = {
        let (current, began_ms) = (current.clone(), began_ms.clone());
        std::thread::spawn(move || {
            let (mut done, mut mounted) = (0_u64, 0_u64);
            for number in numbers {
                current.store(number, Ordering::Relaxed);
                began_ms.store(start.elapsed().as_millis() as u64, Ordering::Relaxed);
                let image = mutate(&seeds[(number % 2) as usize], number);
                let before = LIVE.load(Ordering::Relaxed);
                PEAK.store(before, Ordering::Relaxed);
                let result = catch_unwind(AssertUnwindSafe(|| exercise(&image, number)));
                let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
                match result {
                    Ok(outcome) => mounted += u64::from(outcome == Ok(true)),
                    Err(_) => return Err(format!("mutation {number} panics")),
                }
                if peak > MEMORY_BYTES_MAX {
                    return Err(format!("mutation {number} takes {peak} bytes of memory"));
                }
                done += 1;
            }
            Ok((done, mounted))
        })
    };
    let rerun = |number: u64| {
        format!(
            "rerun: SYNCLINE_FUZZ_ONLY={number} cargo test -p syncline-model --test fuzz_smoke \
             {name} -- --nocapture"
        )
    };
    while !worker.is_finished() {
        std::thread::sleep(Duration::from_millis(20));
        let since = start.elapsed().as_millis() as u64;
        let running = since.saturating_sub(began_ms.load(Ordering::Relaxed));
        let number = current.load(Ordering::Relaxed);
        assert!(running < HANG.as_millis() as u64, "mutation {number} hangs; {}", rerun(number));
    }
    match worker.join() {
        Ok(Ok((done, mounted))) => println!("{name}: {done} images, {mounted} mounted"),
        Ok(Err(error)) => panic!("{error}; {}", rerun(current.load(Ordering::Relaxed))),
        Err(_) => panic!("the worker broke; {}", rerun(current.load(Ordering::Relaxed))),
    }
}

/// Memory is counted for the process: one fuzz test at a time.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone(run: impl FnOnce()) {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    run();
}

#[test]
fn fuzz_images_without_checksums() {
    alone(|| fuzz("fuzz_images_without_checksums", "^metadata_csum", 1024, false));
}

#[test]
fn fuzz_images_without_checksums_in_4k() {
    alone(|| {
        fuzz("fuzz_images_without_checksums_in_4k", "^metadata_csum,orphan_file", 4096, false)
    });
}

#[test]
fn fuzz_images_with_checksums() {
    alone(|| fuzz("fuzz_images_with_checksums", "", 4096, false));
}

#[test]
fn fuzz_journals_without_checksums() {
    alone(|| fuzz("fuzz_journals_without_checksums", "^metadata_csum", 1024, true));
}

#[test]
fn fuzz_journals_with_checksums() {
    alone(|| fuzz("fuzz_journals_with_checksums", "", 4096, true));
}
