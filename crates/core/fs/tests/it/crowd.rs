//! Many threads at once on the smallest log that mke2fs makes, in every mode: no operation fails
//! that would succeed alone, no sync point lies within one, and a strict sync has all of before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use syncline_device::{BlockDevice, Clock, DeviceError, Geometry, MemoryDevice, Op, Request};
use syncline_fs::{
    FallocateMode, FsError, InodeRef, RenameFlags, SetAttr, SetTime, Volume, XattrFlags,
};
use syncline_testkit::{ImageSpec, Random};

use crate::bed::{Bed, bytes, contents, owner, spec};

const BLOCK: usize = 1024;
const THREADS: u64 = 24;
const STEPS: u64 = 60;

/// Blocks of 1 KiB and the 1,024 blocks of log that mke2fs gives a volume of this size.
fn small() -> ImageSpec {
    ImageSpec { journal_size_mib: Some(1), ..spec(BLOCK as u32) }
}

/// A device that lets other threads run while metadata is read: with a handle open as well.
struct Yielding(Arc<MemoryDevice>);

impl BlockDevice for Yielding {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        if batch.iter().any(|request| matches!(request.op, Op::Read { .. })) {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        self.0.submit(batch)
    }
}

/// A device that can be copied between two batches of requests of any thread.
struct Copied {
    inner: Arc<MemoryDevice>,
    gate: RwLock<()>,
}

impl Copied {
    fn new(bed: &Bed) -> Arc<Copied> {
        Arc::new(Copied { inner: Arc::clone(&bed.dev), gate: RwLock::new(()) })
    }

    /// The volume as the next boot would see it if the power went now.
    fn cut(&self, bed: &Bed) -> Volume {
        let _still = self.gate.write();
        bed.mount_on(Arc::new(self.inner.snapshot()), "")
    }
}

impl BlockDevice for Copied {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let _open = self.gate.read();
        self.inner.submit(batch)
    }
}

/// Operations of every kind in a directory of the thread's own.
struct Worker<'a> {
    volume: &'a Volume,
    dir: InodeRef,
    random: Random,
    files: Vec<(Vec<u8>, InodeRef)>,
    made: u64,
}

impl Worker<'_> {
    fn create(&mut self) -> Result<(), FsError> {
        let name = format!("name-{:060}", self.made).into_bytes();
        self.made += 1;
        let file = self.volume.create(&self.dir, &name, &owner())?;
        self.files.push((name, file));
        Ok(())
    }

    fn step(&mut self) -> Result<(), FsError> {
        let volume = self.volume;
        if self.files.len() < 4 || self.random.below(4) == 0 {
            self.create()?;
        }
        let at = self.random.below(self.files.len() as u64) as usize;
        let size = self.random.below(70_000);
        let (name, file) = self.files[at].clone();
        match self.random.below(12) {
            0..=2 => {
                volume.write(&file, size, &bytes(size, 1 + size as usize)).map(drop)?;
            }
            3 => {
                volume.write_append(&file, &bytes(size, 300)).map(drop)?;
            }
            4 => volume.truncate(&file, size)?,
            5 => volume.fallocate(&file, FallocateMode::ZeroRange, size, 20_000)?,
            6 => volume.fallocate(&file, FallocateMode::PunchHole, size / 2, 20_000)?,
            7 => {
                volume.setxattr(&file, b"user.note", &bytes(size, 700), XattrFlags::Any)?;
            }
            8 => {
                let new = format!("moved-{}", self.made).into_bytes();
                self.made += 1;
                volume.rename(&self.dir, &name, &self.dir, &new, RenameFlags::default())?;
                self.files[at].0 = new;
            }
            9 => {
                let set =
                    SetAttr { mode: Some(0o640), mtime: Some(SetTime::Now), ..SetAttr::default() };
                volume.setattr(&file, &set).map(drop)?;
            }
            10 => volume.fsync(&file, false)?,
            _ => {
                volume.unlink(&self.dir, &name)?;
                self.files.swap_remove(at);
            }
        }
        Ok(())
    }
}

fn crowd(options: &str) {
    let bed = Bed::new(&small(), 0).with(options);
    let volume = bed.mount("");
    let root = volume.root().unwrap();
    for n in 0..THREADS {
        volume.mkdir(&root, format!("d{n}").as_bytes(), &owner()).unwrap();
    }
    drop(root);
    volume.unmount().unwrap();
    // Nothing is cached: the first operations read metadata with their handles open.
    let volume = bed.mount_on(Arc::new(Yielding(Arc::clone(&bed.dev))), "");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|n| {
                let volume = &volume;
                scope.spawn(move || {
                    let dir = volume.resolve(format!("/d{n}")).unwrap();
                    let random = Random::new(n);
                    let mut worker = Worker { volume, dir, random, files: Vec::new(), made: 0 };
                    (0..STEPS).find_map(|step| worker.step().err().map(|err| (step, err)))
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                bed.wait_ms(500);
                // What it would find is what the operations find.
                let _ = volume.tick(bed.clock.now_ns());
                std::thread::yield_now();
            }
        });
        let failed: Vec<_> = workers.into_iter().filter_map(|w| w.join().unwrap()).collect();
        done.store(true, Ordering::Release);
        assert!(failed.is_empty(), "{options}: {failed:?}");
    });
    bed.unmount_and_judge(volume, options);
}

#[test]
fn the_smallest_log_serves_many_threads_in_every_mode() {
    for options in [
        "sync=periodic",
        "sync=periodic,log=packed",
        "sync=periodic,strict=name-*,cache=8M",
        "sync=eager",
        "sync=eager,log=packed",
        "sync=ordered",
    ] {
        crowd(options);
    }
}

/// Two files grow by records of these sizes beside sync points: each has whole ones after any cut.
#[test]
fn no_sync_point_tears_a_write() {
    for (block_size, record) in [(1024, 700), (4096, 300), (1024, 65_536), (4096, 65_536)] {
        let image = ImageSpec { journal_size_mib: Some(4), ..spec(block_size) };
        let bed = Bed::new(&image, 2).with("sync=periodic");
        let device = Copied::new(&bed);
        let volume = bed.mount_on(device.clone(), "");
        let done = AtomicBool::new(false);
        let torn = std::thread::scope(|scope| {
            for n in 0..2 {
                let (volume, bed, done) = (&volume, &bed, &done);
                scope.spawn(move || {
                    let file = bed.file(volume, n);
                    while !done.load(Ordering::Acquire) {
                        let end = volume.write_append(&file, &bytes(1, record)).unwrap().0;
                        if end > 2 << 20 {
                            volume.truncate(&file, 0).unwrap();
                        }
                    }
                });
            }
            let torn = (0..300).find_map(|_| {
                volume.sync().unwrap();
                let cut = device.cut(&bed);
                let sizes = [0, 1].map(|n| cut.getattr(&bed.file(&cut, n)).size);
                sizes.into_iter().find(|size| size % record as u64 != 0)
            });
            done.store(true, Ordering::Release);
            torn
        });
        assert_eq!(torn, None, "records of {record} bytes in blocks of {block_size}");
        bed.unmount_and_judge(volume, "records beside sync points");
    }
}

/// Write-back moves files in the list of dirty ones while a sync point walks over it.
#[test]
fn a_strict_sync_beside_write_back_has_every_file() {
    for options in ["sync=periodic,strict=f0", "sync=periodic,strict=f0,log=packed,cache=8M"] {
        let bed = Bed::new(&spec(4096), 3).with(options);
        let device = Copied::new(&bed);
        let volume = bed.mount_on(device.clone(), "");
        let strict = volume.resolve("/f0").unwrap();
        let (done, appended) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
        let lost = std::thread::scope(|scope| {
            for (n, count) in appended.iter().enumerate() {
                let (volume, bed, done) = (&volume, &bed, &done);
                scope.spawn(move || {
                    let file = bed.file(volume, n + 1);
                    let mut end = 0;
                    while !done.load(Ordering::Acquire) && end < 12 << 20 {
                        let (at, len) = volume.write_append(&file, &bytes(1, 3000)).unwrap();
                        end = at + len as u64;
                        count.store(end, Ordering::Release);
                    }
                });
            }
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    // Older than `dirty_expire_centisecs`: all of it is written back.
                    bed.wait_ms(31_000);
                    volume.tick(bed.clock.now_ns()).unwrap();
                }
            });
            let lost = (0..100u64).find_map(|round| {
                let sizes = appended.each_ref().map(|size| size.load(Ordering::Acquire));
                volume.write(&strict, 0, &round.to_le_bytes()).unwrap();
                volume.fsync(&strict, false).unwrap();
                let cut = device.cut(&bed);
                assert_eq!(contents(&cut, &bed.file(&cut, 0)), round.to_le_bytes());
                let found = [1, 2].map(|n| cut.getattr(&bed.file(&cut, n)).size);
                (0..2).find(|n| found[*n] < sizes[*n]).map(|n| (round, n, found[n], sizes[n]))
            });
            done.store(true, Ordering::Release);
            lost
        });
        assert_eq!(lost, None, "{options}: (round, file, size after the cut, size before)");
        drop(strict);
        bed.unmount_and_judge(volume, options);
    }
}
