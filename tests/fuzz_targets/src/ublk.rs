//! Descriptors of ublk that a kernel might send.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use syncline_device::{BlockDevice, DeviceError, Geometry, MemoryDevice, Op, Request};
use syncline_export::UblkRequests;

use crate::bytes::Bytes;

/// Bytes of the device, and of its sectors.
const DEVICE_BYTES: u64 = 2 << 20;
const SECTOR: u64 = 512;
/// Most bytes that a request may copy.
const IO_BYTES_MAX: u64 = 1 << 20;
/// Most requests of one input.
const REQUESTS_MAX: usize = 40;
/// Numbers of the requests that copy (`linux/ublk_cmd.h`).
const READ: u8 = 0;
const WRITE: u8 = 1;
const FLUSH: u8 = 2;
const DISCARD: u8 = 3;

/// A device in memory that no request may ask for more than a megabyte.
struct Bounded(MemoryDevice);

impl BlockDevice for Bounded {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch.iter() {
            let bytes: usize = match &request.op {
                Op::Read { into } => into.iter().map(|part| part.len()).sum(),
                Op::Write { from, .. } => from.iter().map(|part| part.len()).sum(),
                _ => 0,
            };
            assert!(bytes as u64 <= IO_BYTES_MAX, "{bytes} bytes of memory for one request");
        }
        self.0.submit(batch)
    }
}

/// An input is requests: tag, descriptor, and a byte that data to write consists of. What is
/// answered as done is done, to these sectors alone; what is refused changes nothing.
pub(crate) fn feed(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let device = Arc::new(Bounded(MemoryDevice::new(DEVICE_BYTES)));
    let file = tempfile::tempfile().expect("a temporary file");
    let data = file.try_clone().expect("a descriptor");
    let requests = UblkRequests::new(device.clone(), file);
    let mut model = vec![0; DEVICE_BYTES as usize];
    for _ in 0..REQUESTS_MAX {
        if bytes.is_empty() {
            break;
        }
        one(&requests, &data, &mut model, &mut bytes);
        let mut all = vec![0; DEVICE_BYTES as usize];
        device.0.read_at(0, &mut all).expect("inside");
        assert!(all == model, "the device has not what was answered");
    }
}

fn one(requests: &UblkRequests, data: &std::fs::File, model: &mut [u8], bytes: &mut Bytes<'_>) {
    let tag = u16::from(bytes.u8() % 40);
    let (command, flags, fill) = (bytes.u8(), bytes.u8(), bytes.u8());
    let command = if command < 240 { command % 5 } else { command };
    let (sectors, first) = (count(bytes), bytes.size());
    let mut descriptor = [0; 24];
    (descriptor[0], descriptor[1]) = (command, flags);
    descriptor[4..8].copy_from_slice(&sectors.to_ne_bytes());
    descriptor[8..16].copy_from_slice(&first.to_ne_bytes());
    descriptor[16..24].copy_from_slice(&bytes.size().to_ne_bytes());
    let (length, place) = (u64::from(sectors) * SECTOR, UblkRequests::data_offset(tag));
    let inside = first.checked_mul(SECTOR).and_then(|from| Some((from, from.checked_add(length)?)));
    let inside = inside.filter(|(_, end)| *end <= DEVICE_BYTES);
    let copies = inside.filter(|_| length <= IO_BYTES_MAX);
    let filled = vec![fill; length.min(IO_BYTES_MAX) as usize];
    data.write_all_at(&filled, place).expect("a temporary file");
    let answer = requests.answer(tag, &descriptor);
    let range = inside.map(|(from, end)| from as usize..end as usize);
    match command {
        READ | WRITE if copies.is_none() => assert!(answer < 0 || length == 0, "{answer}"),
        READ | WRITE => assert_eq!(answer as u64, length),
        FLUSH => assert_eq!(answer, 0),
        DISCARD => assert!(answer <= 0, "{answer}"),
        _ => assert!(answer < 0, "{answer}"),
    }
    match (command, range) {
        (READ, Some(range)) if answer > 0 => {
            let mut read = vec![0; range.len()];
            data.read_exact_at(&mut read, place).expect("what was read");
            assert!(read == model[range], "what was read is not there");
        }
        (WRITE, Some(range)) if answer > 0 => model[range].fill(fill),
        (DISCARD, _) if answer == 0 => {
            let from = (first.saturating_mul(SECTOR)).min(DEVICE_BYTES);
            let end = from.saturating_add(length).min(DEVICE_BYTES);
            model[from as usize..end as usize].fill(0);
        }
        _ => {}
    }
}

/// A few sectors as a rule; at a border, or any number of them.
fn count(bytes: &mut Bytes<'_>) -> u32 {
    match bytes.u8() {
        few if few < 200 => u32::from(few),
        near if near < 240 => 2048 + u32::from(near) - 220,
        _ => u32::from(bytes.u16()) << 16 | u32::from(bytes.u16()),
    }
}
