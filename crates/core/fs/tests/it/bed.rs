//! The test bed: a stock image on a memory device, mounted, judged by e2fsck, mounted again.

use std::path::Path;
use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use syncline_fs::{Create, InodeRef, MountOptions, Volume};
use syncline_testkit::{ImageSpec, Random, TempImage, debugfs, e2fsck_clean, fill, mkfs};

pub const MIB: u64 = 1 << 20;

/// An image, with empty files made by debugfs, on a memory device.
pub struct Bed {
    pub image: TempImage,
    pub dev: Arc<MemoryDevice>,
    pub clock: Arc<VirtualClock>,
    /// Inode numbers of the files.
    pub inos: Vec<u32>,
    /// Options of every mount, before those that it names.
    pub options: String,
}

/// 32 MiB with blocks of `block_size` bytes.
pub fn spec(block_size: u32) -> ImageSpec {
    ImageSpec { block_size_bytes: block_size, ..ImageSpec::default() }
}

impl Bed {
    /// An image with empty files `f0`, `f1`, ...
    pub fn new(spec: &ImageSpec, files: usize) -> Bed {
        let image = mkfs(spec);
        let inos = add_empty_files(image.path(), files);
        let dev = Arc::new(MemoryDevice::load(image.path()).unwrap());
        let clock = Arc::new(VirtualClock::default());
        Bed { image, dev, clock, inos, options: String::new() }
    }

    /// As [`Bed::new`], on a device without FUA: the loop device of the kernel's counts has none.
    pub fn without_fua(spec: &ImageSpec, files: usize) -> Bed {
        let bed = Bed::new(spec, files);
        let dev = MemoryDevice::load(bed.image.path()).unwrap().with_geometry(|g| g.fua = false);
        Bed { dev: Arc::new(dev), ..bed }
    }

    /// Has these options in every mount.
    pub fn with(self, options: &str) -> Bed {
        Bed { options: options.to_owned(), ..self }
    }

    /// The options of a mount that names `more`.
    pub fn parsed(&self, more: &str) -> MountOptions {
        let both = [self.options.as_str(), more];
        let list = both.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",");
        MountOptions::parse(&list).expect("the test's options are good")
    }

    pub fn mount(&self, more: &str) -> Volume {
        self.mount_on(Arc::clone(&self.dev) as Arc<dyn BlockDevice>, more)
    }

    pub fn mount_on(&self, dev: Arc<dyn BlockDevice>, more: &str) -> Volume {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        Volume::mount(dev, clock, self.parsed(more)).expect("a fresh image mounts")
    }

    pub fn file(&self, volume: &Volume, n: usize) -> InodeRef {
        volume.iget(self.inos[n]).expect("the file is there")
    }

    /// Lets virtual time pass.
    pub fn wait_ms(&self, ms: u64) {
        self.clock.sleep_until(self.clock.now_ns() + ms * 1_000_000);
    }

    /// Puts the contents of the device into the image file.
    pub fn save(&self) -> &Path {
        self.dev.to_file(self.image.path()).expect("the image is writable");
        self.image.path()
    }

    /// Takes over an image file that another writer has changed.
    pub fn load(&mut self) {
        self.dev = Arc::new(MemoryDevice::load(self.image.path()).unwrap());
    }

    /// Lets e2fsck judge the device; the volume is unmounted.
    pub fn judge(&self, when: &str) {
        if let Err(text) = e2fsck_clean(self.save()) {
            let keep = std::env::temp_dir().join("syncline-fs-failure.img");
            let _ = std::fs::copy(self.image.path(), &keep);
            panic!("e2fsck after {when} (image kept at {}):\n{text}", keep.display());
        }
    }

    pub fn unmount_and_judge(&self, volume: Volume, when: &str) {
        volume.unmount().expect("unmounts");
        self.judge(when);
    }
}

/// Makes the files in one session of debugfs; their inode numbers.
fn add_empty_files(image: &Path, files: usize) -> Vec<u32> {
    if files == 0 {
        return Vec::new();
    }
    let writes: String = (0..files).map(|n| format!("write /dev/null f{n}\n")).collect();
    let said = debugfs(image, &writes);
    let numbers = said.lines().filter_map(|line| line.split_once("Allocated inode: "));
    let inos: Vec<u32> =
        numbers.map(|(_, number)| number.trim().parse().expect("a number")).collect();
    assert_eq!(inos.len(), files, "debugfs names each inode: {said}");
    inos
}

pub fn owner() -> Create {
    Create { mode: 0o755, uid: 0, gid: 0 }
}

/// Names of a directory, dots left out, as readdir gives them.
pub fn names(vol: &Volume, dir: &InodeRef) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    vol.readdir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            all.push(entry.name.to_vec());
        }
        true
    })
    .expect("readable");
    all
}

/// `len` bytes that depend on `seed`.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    fill(seed, 0, &mut data);
    data
}

/// Reads the whole file.
pub fn contents(volume: &Volume, file: &InodeRef) -> Vec<u8> {
    let size = volume.getattr(file).size as usize;
    let mut data = vec![0xEE; size + 10];
    let n = volume.read(file, 0, &mut data).expect("the file reads");
    assert_eq!(n, size, "read returns up to the end of the file");
    data.truncate(n);
    data
}

/// The first difference, if any, so that failures are readable.
pub fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
        panic!("{what}: byte {at} is {:#x}, expected {:#x}", found[at], expected[at]);
    }
}

/// A seeded source of random numbers; says its seed on failure through the test's messages.
pub fn random(seed: u64) -> Random {
    Random::new(seed)
}
