//! Logs of a write buffer.

use std::sync::{Arc, OnceLock};

use syncline_base::{crc32c, crc32c_append};
use syncline_buffer::{Buffer, BufferError, BufferOptions, LogArea};
use syncline_device::{BlockDevice, Kind, MemoryDevice, OffsetDevice, Origin};

use crate::bytes::Bytes;

const PAGE: usize = 4096;
const PAGES: u64 = 64;
const HOME: u64 = PAGES * PAGE as u64;
const LOG_PAGES: u64 = 70;
const ID: [u8; 16] = [3; 16];
const STRICT: Origin = Origin::new(Kind::Other, true);
/// Place of the checksum of the first two pages.
const SUPER_CRC_AT: usize = 508;
/// Most changes of one input.
const CHANGES_MAX: usize = 16;

fn area(device: &Arc<MemoryDevice>) -> LogArea {
    let log = OffsetDevice::new(device.clone(), HOME, LOG_PAGES * PAGE as u64);
    LogArea { device: Arc::new(log.expect("inside")), same_medium: true }
}

fn open(device: &Arc<MemoryDevice>) -> Result<Buffer, BufferError> {
    let home = OffsetDevice::new(device.clone(), 0, HOME).expect("inside");
    Buffer::open(Arc::new(home), Some(area(device)), BufferOptions::default())
}

/// A log with entries, headers, opaque pages and records.
fn base() -> MemoryDevice {
    static BASE: OnceLock<MemoryDevice> = OnceLock::new();
    let made = BASE.get_or_init(|| {
        let device = Arc::new(MemoryDevice::new(HOME + LOG_PAGES * PAGE as u64));
        Buffer::create_log(&area(&device), HOME, ID, true).expect("memory");
        let buffer = open(&device).expect("a new log");
        for nr in 0..40_u64 {
            let pages = if nr % 10 == 9 { 16 } else { 1 };
            let full = |at: usize| nr % 3 == 0 || at % 64 < 9;
            let bytes = (0..pages * PAGE).map(|at| if full(at) { nr as u8 + 1 } else { 0 });
            let bytes: Vec<u8> = bytes.collect();
            buffer.write(nr * 7 % (PAGES - 16) * PAGE as u64, &bytes, STRICT).expect("memory");
            if nr % 2 == 0 {
                buffer.flush(STRICT).expect("memory");
            }
        }
        device.snapshot()
    });
    made.snapshot()
}

/// An input is changes of pages: page, a checksum that is right or not, place, length, bytes. A log
/// that opens is read and drained, with the same contents.
pub(crate) fn feed(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let device = Arc::new(base());
    for _ in 0..CHANGES_MAX {
        if bytes.is_empty() {
            break;
        }
        change(&device, &mut bytes);
    }
    let Ok(buffer) = open(&device) else { return };
    let mut all = vec![0; HOME as usize];
    let read = buffer.read(0, &mut all, STRICT);
    let drained = buffer.drain();
    assert_eq!(read.is_ok(), drained.is_ok(), "{read:?}, {drained:?}");
    if drained.is_ok() {
        let mut home = vec![0; HOME as usize];
        device.read_at(0, &mut home).expect("inside");
        assert!(home == all, "a drain changed what was read");
    }
}

fn change(device: &MemoryDevice, bytes: &mut Bytes<'_>) {
    let (nr, right) = (u64::from(bytes.u8()) % LOG_PAGES, !bytes.u8().is_multiple_of(4));
    let (at, len) = (usize::from(bytes.u16()) % PAGE, usize::from(bytes.u8() % 16));
    let mut page = vec![0; PAGE];
    device.read_at(HOME + nr * PAGE as u64, &mut page).expect("inside");
    for (into, from) in page[at..].iter_mut().zip(bytes.take(len)) {
        *into = *from;
    }
    if right && nr < 2 {
        let crc = crc32c(&page[..SUPER_CRC_AT]);
        page[SUPER_CRC_AT..SUPER_CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    } else if right {
        let crc = crc32c_append(crc32c_append(crc32c(&ID), &page[..4]), &[0; 4]);
        let crc = crc32c_append(crc, &page[8..]);
        page[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    device.write_at(HOME + nr * PAGE as u64, &page).expect("inside");
}
