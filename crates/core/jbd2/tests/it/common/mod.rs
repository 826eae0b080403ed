//! A stock image in memory, its log, and free blocks at its end to play metadata with.
#![allow(dead_code, reason = "each test file uses another part")]

pub mod craft;

use std::path::Path;
use std::sync::Arc;
use syncline_device::{BlockDevice, MemoryDevice, VirtualClock};
use syncline_jbd2::{
    BufferCache, Checksums, InPlacePage, Journal, JournalOptions, LogMap, WriteAction,
};
use syncline_model::{ImageSpec, TempImage, debugfs, mkfs};

pub struct Volume {
    pub file: TempImage,
    pub image: MemoryDevice,
    pub log: LogMap,
    pub options: JournalOptions,
    /// First of the blocks at the end of the device that no file uses.
    pub free: u64,
}

/// Blocks at the end of the image that stock mke2fs leaves free.
pub const FREE_BLOCKS: u64 = 800;

pub fn volume(spec: &ImageSpec) -> Volume {
    let file = mkfs(spec);
    let image = MemoryDevice::load(file.path()).unwrap();
    let block_size = spec.block_size_bytes;
    let log = log_map(file.path(), block_size);
    let features = debugfs(file.path(), "features\n");
    let options = JournalOptions {
        checksums: if features.contains("metadata_csum") { Checksums::V3 } else { Checksums::None },
        is_64bit: features.contains("64bit"),
        ..JournalOptions::default()
    };
    let free = spec.size_bytes / u64::from(block_size) - FREE_BLOCKS;
    Volume { file, image, log, options, free }
}

pub fn default_volume() -> Volume {
    volume(&ImageSpec::default())
}

/// Log blocks of [`prepared`].
pub const RING_BLOCKS: u32 = 80;

/// A volume that says `needs_recovery`, with a short ring full of stale blocks.
pub fn prepared() -> Volume {
    let mut volume = default_volume();
    let file = volume.crashed_file(&volume.image);
    volume.image = MemoryDevice::load(file.path()).unwrap();
    let at = volume.log.physical(0).unwrap() * 4096;
    let first = volume.log.len_blocks() - RING_BLOCKS;
    let mut block = vec![0; 4096];
    volume.image.read_at(at, &mut block).unwrap();
    block[20..24].copy_from_slice(&first.to_be_bytes());
    // A log that was used before: no sequence is ever used twice.
    block[24..28].copy_from_slice(&1000u32.to_be_bytes());
    volume.image.write_at(at, &block).unwrap();
    for log_block in first..volume.log.len_blocks() {
        let stale = vec![0x55; 4096];
        let physical = volume.log.physical(log_block).unwrap();
        volume.image.write_at(physical * 4096, &stale).unwrap();
    }
    volume
}

/// The blocks of inode 8 as debugfs lists them.
pub fn log_map(path: &Path, block_size: u32) -> LogMap {
    let text = debugfs(path, "stat <8>\n");
    let list = (text.split("EXTENTS:").nth(1).or_else(|| text.split("BLOCKS:").nth(1))).unwrap();
    let mut runs: Vec<(u32, u64, u32)> = Vec::new();
    for item in list.split([',', '\n']).map(str::trim).filter(|i| i.starts_with('(')) {
        let (logical, physical) = item[1..].split_once("):").unwrap();
        if logical.starts_with("ETB") || logical.contains("IND") {
            continue;
        }
        let ends = |t: &str| -> (u64, u64) {
            let (a, b) = t.split_once('-').unwrap_or((t, t));
            (a.parse().unwrap(), b.parse().unwrap())
        };
        let (l, p) = (ends(logical), ends(physical));
        runs.push((l.0 as u32, p.0, (p.1 - p.0 + 1) as u32));
    }
    runs.sort_unstable();
    LogMap { block_size, extents: runs.into_iter().map(|(_, p, n)| (p, n)).collect() }
}

impl Volume {
    pub fn block_size(&self) -> usize {
        self.log.block_size as usize
    }

    /// Opens the journal over `dev`, which has this volume's contents.
    pub fn open(&self, dev: Arc<dyn BlockDevice>) -> Arc<Journal> {
        self.open_with(dev, self.options)
    }

    pub fn open_with(&self, dev: Arc<dyn BlockDevice>, options: JournalOptions) -> Arc<Journal> {
        let buffers = BufferCache::new(dev.clone(), self.block_size(), 256);
        let clock = Arc::new(VirtualClock::default());
        Journal::open(dev, self.log.clone(), buffers, clock, options, None).unwrap()
    }

    pub fn block(&self, dev: &dyn BlockDevice, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.block_size()];
        let origin = syncline_device::Origin::new(syncline_device::Kind::Other, true);
        dev.read(block * self.block_size() as u64, &mut bytes, origin).unwrap();
        bytes
    }

    /// `image` as a file that says `needs_recovery`.
    pub fn crashed_file(&self, image: &MemoryDevice) -> TempImage {
        let file = TempImage::zeroed(image.geometry().size_bytes);
        image.to_file(file.path()).unwrap();
        let _ = debugfs(file.path(), "feature needs_recovery\n");
        file
    }
}

/// The first difference between two images outside of the log and of the ext4 superblock (whose
/// times and flags every tool sets its own way).
pub fn difference(log: &LogMap, a: &MemoryDevice, b: &MemoryDevice) -> Option<u64> {
    let size = log.block_size as usize;
    let blocks = a.geometry().size_bytes / size as u64;
    let (mut x, mut y) = (vec![0; size], vec![0; size]);
    (0..blocks).find(|&block| {
        let at = block * size as u64;
        a.read_at(at, &mut x).unwrap();
        b.read_at(at, &mut y).unwrap();
        if at <= 1024 && 1024 < at + size as u64 {
            let inside = (1024 - at) as usize;
            x[inside..inside + 1024].fill(0);
            y[inside..inside + 1024].fill(0);
        }
        x != y && !log.contains(block)
    })
}

pub fn fill(bytes: &mut [u8], value: u8) {
    bytes.fill(value);
}

/// A page on its way to its home block.
pub struct Page {
    pub block: u64,
    pub image: Arc<[u8]>,
    pub newer: bool,
    pub action: WriteAction,
}

impl InPlacePage for Page {
    fn block(&self) -> u64 {
        self.block
    }

    fn image(&self) -> &Arc<[u8]> {
        &self.image
    }

    fn is_newer(&self) -> bool {
        self.newer
    }

    fn action(&self) -> WriteAction {
        self.action
    }

    fn set_action(&mut self, action: WriteAction) {
        self.action = action;
    }
}
