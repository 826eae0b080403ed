//! Images with empty files in them, mounted over memory devices, judged by e2fsck.

#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;
use syncline_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use syncline_fs::{InodeRef, MountOptions, Volume};
use syncline_testkit::{ImageSpec, Random, TempImage, debugfs, e2fsck_clean, fill, mkfs};

/// An image with empty regular files, on a memory device.
pub struct Bed {
    image: TempImage,
    pub dev: Arc<MemoryDevice>,
    pub clock: Arc<VirtualClock>,
    pub inos: Vec<u32>,
}

/// 32 MiB with blocks of `block_size` bytes.
pub fn spec(block_size: u32) -> ImageSpec {
    ImageSpec { block_size_bytes: block_size, ..ImageSpec::default() }
}

impl Bed {
    pub fn new(spec: &ImageSpec, files: usize) -> Bed {
        let image = mkfs(spec);
        let inos = (0..files).map(|n| add_empty_file(image.path(), n)).collect();
        // No FUA, as the loop device that the kernel's counts come from.
        let dev = MemoryDevice::from_bytes(&image.bytes()).with_geometry(|g| g.fua = false);
        let dev = Arc::new(dev);
        Bed { image, dev, clock: Arc::new(VirtualClock::default()), inos }
    }

    pub fn mount(&self, options: &str) -> Volume {
        self.mount_on(Arc::clone(&self.dev) as Arc<dyn BlockDevice>, options)
    }

    pub fn mount_on(&self, dev: Arc<dyn BlockDevice>, options: &str) -> Volume {
        let options = MountOptions::parse(options).expect("the test's options are good");
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        Volume::mount(dev, clock, options).expect("a fresh image mounts")
    }

    pub fn file(&self, volume: &Volume, n: usize) -> InodeRef {
        volume.iget(self.inos[n]).expect("the file is there")
    }

    /// Lets virtual time pass.
    pub fn wait_ms(&self, ms: u64) {
        self.clock.sleep_until(self.clock.now_ns() + ms * 1_000_000);
    }

    /// What is on the device now, judged by e2fsck; the volume is unmounted.
    pub fn judge(&self) {
        let mut bytes = vec![0; self.dev.geometry().size_bytes as usize];
        self.dev.read_at(0, &mut bytes).expect("memory reads");
        std::fs::write(self.image.path(), &bytes).expect("the image is writable");
        if let Err(text) = e2fsck_clean(self.image.path()) {
            panic!("e2fsck: {text}");
        }
    }
}

fn add_empty_file(image: &Path, n: usize) -> u32 {
    let said = debugfs(image, &format!("write /dev/null f{n}\n"));
    let number = said.lines().find_map(|line| line.trim().strip_prefix("Allocated inode: "));
    number.and_then(|text| text.trim().parse().ok()).expect("debugfs names the inode")
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
