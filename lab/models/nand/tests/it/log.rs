//! The write buffer's log in the zones of a zoned device: every write is at a write pointer, and
//! power cuts lose nothing that was flushed, wherever they come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use syncline_buffer::{Buffer, BufferError, BufferOptions, LogArea};
use syncline_device::{
    BlockDevice, DeviceError, Geometry, Kind, MemoryDevice, Origin, Request, SplitMix64,
    VirtualClock,
};
use syncline_nand::{NandDevice, Profile};

const PAGE: usize = 4096;
const SIZE: u64 = 2 << 20;
const ORIGIN: Origin = Origin::new(Kind::Other, true);
/// Eight zones of 32 pages behind 1 MiB.
const SPEC: &str = "ufs-zoned:conventional_percent=50,channels=1,dies_per_channel=1,planes=1,\
                    page_kib=16,pages_per_block=8,slc_mib=1,buffer_kib=64,open_zones=2";

/// Cuts the power when so many batches have come.
struct Cutting {
    device: NandDevice,
    left: AtomicU64,
}

impl BlockDevice for Cutting {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        if self.left.fetch_sub(1, Relaxed) == 0 {
            self.device.cut().unwrap();
        }
        self.device.submit(batch)
    }
}

fn device(spec: &str) -> Arc<Cutting> {
    let profile = Profile::parse_built_in(spec).unwrap();
    let backing = Arc::new(MemoryDevice::new(SIZE));
    let clock = Arc::new(VirtualClock::default());
    let device = NandDevice::with_power_cuts(&profile, backing, clock).unwrap();
    Arc::new(Cutting { device, left: AtomicU64::new(u64::MAX) })
}

fn parts(device: &Arc<Cutting>) -> Result<(Arc<dyn BlockDevice>, LogArea), BufferError> {
    LogArea::of_zones(&(Arc::clone(device) as Arc<dyn BlockDevice>))
}

fn open(device: &Arc<Cutting>, ram_bytes: u64) -> Result<Buffer, BufferError> {
    let (home, log) = parts(device)?;
    let options =
        BufferOptions { ram_bytes, threshold_bytes: 16 << 10, ..BufferOptions::default() };
    Buffer::open(home, Some(log), options)
}

/// A page that describes itself in the log, or one that does not.
fn content(page: u64, version: u64) -> Vec<u8> {
    let fill = if version.is_multiple_of(2) { 0 } else { 0x5a };
    let mut bytes = vec![fill; PAGE];
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes[8..16].copy_from_slice(&page.to_le_bytes());
    bytes
}

fn version(buffer: &Buffer, page: u64) -> u64 {
    let mut bytes = vec![0; PAGE];
    buffer.read(page * PAGE as u64, &mut bytes, ORIGIN).unwrap();
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(
        version == 0 || bytes == content(page, version),
        "page {page} has what was never written there"
    );
    version
}

/// Batches before a cut, often so few that opening does not end.
fn until_cut(rng: &mut SplitMix64) -> u64 {
    let most = [12, 400][rng.below(2) as usize];
    1 + rng.below(most)
}

/// Random writes and flushes until one fails.
fn work(
    buffer: &Buffer,
    rng: &mut SplitMix64,
    newest: &mut [u64],
    flushed: &mut Vec<u64>,
    next: &mut u64,
) -> Result<(), DeviceError> {
    loop {
        if rng.below(4) == 0 {
            buffer.flush(ORIGIN)?;
            *flushed = newest.to_vec();
            continue;
        }
        let pages = 1 + rng.below(6).min(rng.below(6));
        let first = rng.below(newest.len() as u64 - pages);
        let mut bytes = Vec::new();
        for page in first..first + pages {
            *next += 1;
            newest[page as usize] = *next;
            bytes.extend(content(page, *next));
        }
        buffer.write(first * PAGE as u64, &bytes, ORIGIN)?;
    }
}

#[test]
fn a_log_in_zones_keeps_what_was_flushed_over_cuts_at_any_request() {
    let (mut cuts_in_recovery, mut moved) = (0, 0);
    for seed in 0..60 {
        let device = device(SPEC);
        let (home, log) = parts(&device).unwrap();
        let pages = home.geometry().size_bytes as usize / PAGE;
        Buffer::create_log(&log, home.geometry().size_bytes, [7; 16], false).unwrap();
        let mut rng = SplitMix64::new(seed);
        let (mut newest, mut flushed, mut next) = (vec![0; pages], vec![0; pages], 0);
        for round in 0..8 {
            let ram_bytes = [0, 64 << 10][round % 2];
            device.left.store(until_cut(&mut rng), Relaxed);
            let mut result = open(&device, ram_bytes);
            while result.is_err() {
                assert!(!device.device.has_power(), "seed {seed}: {:?}", result.err());
                cuts_in_recovery += 1;
                device.device.power_on();
                device.left.store(until_cut(&mut rng), Relaxed);
                result = open(&device, ram_bytes);
            }
            let buffer = result.unwrap();
            let cut = work(&buffer, &mut rng, &mut newest, &mut flushed, &mut next).unwrap_err();
            assert!(!device.device.has_power(), "seed {seed} round {round}: {cut}");
            moved += buffer.status().sweeps;
            drop(buffer);
            device.device.power_on();
            device.left.store(u64::MAX, Relaxed);
            let buffer = open(&device, 0).unwrap();
            for page in 0..pages {
                let found = version(&buffer, page as u64);
                let range = flushed[page]..=newest[page];
                assert!(range.contains(&found), "seed {seed} page {page}: {found}, {range:?}");
                (newest[page], flushed[page]) = (found, found);
            }
            device.device.check().unwrap();
        }
        let buffer = open(&device, 0).unwrap();
        buffer.drain().unwrap();
        drop(buffer);
        let home = Buffer::open(home, None, BufferOptions::default()).unwrap();
        for (page, newest) in newest.iter().enumerate() {
            assert_eq!(version(&home, page as u64), *newest, "seed {seed} page {page}");
        }
    }
    assert!(cuts_in_recovery > 20 && moved > 100, "{cuts_in_recovery} {moved}");
}

#[test]
fn a_log_in_zones_needs_four_of_them_and_a_begin() {
    let refused = |spec: &str| {
        let (home, log) = parts(&device(spec))?;
        Buffer::create_log(&log, home.geometry().size_bytes, [7; 16], false)
    };
    assert_eq!(refused(SPEC), Ok(()));
    let few = Err(BufferError::FewZones);
    assert_eq!(refused(&SPEC.replace("percent=50", "percent=100")), few);
    assert_eq!(refused(&SPEC.replace("percent=50", "percent=80")), few);
}
