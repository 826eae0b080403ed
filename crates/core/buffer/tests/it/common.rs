//! Devices with a log, and sectors that say who they are.

use std::sync::Arc;

use syncline_buffer::{Buffer, BufferOptions, LogArea};
use syncline_device::{BlockDevice, Durability, Kind, OffsetDevice, Origin};

pub const SECTOR: usize = 512;
pub const PAGE: u64 = 4096;
pub const STRICT: Origin = Origin::new(Kind::Other, true);
pub const RELAXED: Origin = Origin { durability: Durability::Relaxed, ..STRICT };
pub const ID: [u8; 16] = *b"a log for tests!";

/// Parts of the buffer that a test enables, and their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub ram_pages: u64,
    /// Pages of the log area.
    pub log_pages: u64,
    pub threshold_pages: u64,
}

/// The log alone, RAM alone, both, and odd sizes.
pub const CONFIGS: [Config; 5] = [
    Config { ram_pages: 0, log_pages: 66, threshold_pages: 8 },
    Config { ram_pages: 24, log_pages: 0, threshold_pages: 8 },
    Config { ram_pages: 24, log_pages: 80, threshold_pages: 8 },
    Config { ram_pages: 400, log_pages: 301, threshold_pages: 16 },
    Config { ram_pages: 0, log_pages: 0, threshold_pages: 4 },
];

impl Config {
    pub fn options(&self) -> BufferOptions {
        BufferOptions {
            ram_bytes: self.ram_pages * PAGE,
            threshold_bytes: self.threshold_pages * PAGE,
            relaxed_bytes_max: self.ram_pages * PAGE / 2,
            ..BufferOptions::default()
        }
    }

    /// Bytes of a device whose first part is `home_bytes` and whose rest is the log.
    pub fn total_bytes(&self, home_bytes: u64) -> u64 {
        home_bytes + self.log_pages * PAGE
    }

    pub fn log(&self, device: &Arc<dyn BlockDevice>, home_bytes: u64) -> Option<LogArea> {
        (self.log_pages > 0).then(|| {
            let len = self.log_pages * PAGE;
            let part = OffsetDevice::new(device.clone(), home_bytes, len).unwrap();
            LogArea { device: Arc::new(part), same_medium: true }
        })
    }

    /// Makes the log on a new device.
    pub fn format(&self, device: &Arc<dyn BlockDevice>, home_bytes: u64) {
        if let Some(area) = self.log(device, home_bytes) {
            Buffer::create_log(&area, home_bytes, ID, false).unwrap();
        }
    }

    pub fn open(
        &self,
        device: &Arc<dyn BlockDevice>,
        home_bytes: u64,
    ) -> Result<Buffer, syncline_buffer::BufferError> {
        let home = OffsetDevice::new(device.clone(), 0, home_bytes).unwrap();
        Buffer::open(Arc::new(home), self.log(device, home_bytes), self.options())
    }
}

/// The content of a sector in a version; version 0 is zeroes. A third of the pages have no zero
/// words, a third few, a third many.
pub fn content(sector: u64, version: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if version == 0 {
        return bytes;
    }
    let density = (sector / 8) % 3;
    let mut state = sector.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version;
    for (index, word) in bytes.chunks_exact_mut(4).enumerate() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let value = (state >> 32) as u32;
        if density == 0 || density == 1 && index % 61 != 60 || value % 7 == 0 {
            word.copy_from_slice(&(value | 1).to_le_bytes());
        }
    }
    // Two words, neither of which is zero.
    bytes[..4].copy_from_slice(&(version as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&(sector as u32 + 1).to_le_bytes());
    bytes
}

/// The version of a sector as it was read.
pub fn version_of(sector: u64, bytes: &[u8]) -> Result<u64, String> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let version = u64::from(word(0));
    if bytes == content(sector, version) {
        return Ok(version);
    }
    Err(format!("sector {sector} holds something else: version {version}, sector {}", word(4)))
}

/// Versions of all sectors.
pub fn versions(device: &dyn BlockDevice, sectors: u64) -> Result<Vec<u64>, String> {
    let mut bytes = vec![0; sectors as usize * SECTOR];
    device.read(0, &mut bytes, STRICT).map_err(|e| e.to_string())?;
    (0..).zip(bytes.chunks_exact(SECTOR)).map(|(at, piece)| version_of(at, piece)).collect()
}
