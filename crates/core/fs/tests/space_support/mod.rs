//! Volumes on memory devices for the space tests: stock images with empty files made by debugfs.

#![allow(dead_code, missing_docs)]

use std::sync::Arc;
use syncline_device::{BlockDevice, MemoryDevice, VirtualClock};
use syncline_fs::{InodeRef, MountOptions, Volume};
use syncline_testkit::{ImageSpec, TempImage, debugfs, e2fsck_clean, mkfs};

/// A volume that is judged by e2fsck.
pub struct Bench {
    pub dev: Arc<MemoryDevice>,
    pub clock: Arc<VirtualClock>,
    pub options: MountOptions,
    image: TempImage,
}

impl Bench {
    /// An image with files `f0`, `f1`, ...; returns their inode numbers too.
    pub fn new(spec: &ImageSpec, files: usize) -> (Bench, Vec<u32>) {
        let image = mkfs(spec);
        let writes: String = (0..files).map(|i| format!("write /dev/null f{i}\n")).collect();
        let _ = debugfs(image.path(), &writes);
        let inos = (0..files)
            .map(|i| {
                let text = debugfs(image.path(), &format!("stat f{i}\n"));
                let at = text.find("Inode: ").expect("debugfs made the file") + 7;
                let digits: String =
                    text[at..].chars().take_while(|c| c.is_ascii_digit()).collect();
                digits.parse().expect("an inode number")
            })
            .collect();
        let dev = Arc::new(MemoryDevice::from_bytes(&image.bytes()));
        let clock = Arc::new(VirtualClock::default());
        let options = MountOptions::parse("cache=4M").expect("known options");
        (Bench { dev, clock, options, image }, inos)
    }

    pub fn mount(&self) -> Volume {
        let dev: Arc<dyn BlockDevice> = self.dev.clone();
        Volume::mount(dev, self.clock.clone(), self.options.clone()).expect("mounts")
    }

    /// Runs e2fsck on what is on the device now.
    pub fn judge(&self, when: &str) {
        let size = self.dev.geometry().size_bytes as usize;
        let mut bytes = vec![0; size];
        self.dev.read_at(0, &mut bytes).expect("memory reads");
        std::fs::write(self.image.path(), &bytes).expect("scratch space");
        if let Err(text) = e2fsck_clean(self.image.path()) {
            panic!("e2fsck after {when}:\n{text}");
        }
    }

    pub fn debugfs(&self, commands: &str) -> String {
        debugfs(self.image.path(), commands)
    }
}

/// Reads a whole file.
pub fn contents(vol: &Volume, inode: &InodeRef) -> Vec<u8> {
    let size = vol.getattr(inode).size as usize;
    let mut bytes = vec![0xaa; size];
    let mut at = 0;
    while at < size {
        let n = vol.read(inode, at as u64, &mut bytes[at..]).expect("reads");
        assert!(n > 0, "a short read at {at} of {size}");
        at += n;
    }
    bytes
}
