//! A device of sectors as bytes: what files and network blocks ask for.

use std::sync::Arc;

use parking_lot::RwLock;
use syncline_device::{BlockDevice, Kind, Op, Origin, Request, SECTOR_BYTES};

const ORIGIN: Origin = Origin::new(Kind::Other, true);

/// Why a range was not read or written.
#[derive(Debug)]
pub(crate) enum ByteError {
    /// Its end is no number.
    TooBig,
    /// It ends behind the device.
    BehindEnd,
    /// The device failed.
    Device,
}

pub(crate) struct Bytes {
    device: Arc<dyn BlockDevice>,
    /// Shared by writes of whole sectors, exclusive for one that keeps a part of a sector: nobody
    /// else may write to that sector between its read and its write.
    sectors: RwLock<()>,
}

impl Bytes {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Bytes {
        Bytes { device, sectors: RwLock::default() }
    }

    pub(crate) fn size(&self) -> u64 {
        self.device.geometry().size_bytes
    }

    /// Reads `size` bytes of the device or what is left of it; any alignment.
    pub(crate) fn read(&self, offset: u64, size: u32) -> Result<Vec<u8>, ByteError> {
        let end = self.size().min(offset.saturating_add(size.into()));
        if offset >= end {
            return Ok(Vec::new());
        }
        let first = offset / SECTOR_BYTES * SECTOR_BYTES;
        let mut bytes = vec![0; (end.next_multiple_of(SECTOR_BYTES) - first) as usize];
        self.submit(first, Op::Read { into: vec![&mut bytes] })?;
        bytes.truncate((end - first) as usize);
        if offset > first {
            bytes.drain(..(offset - first) as usize);
        }
        Ok(bytes)
    }

    /// Writes; with `sync` it is durable on return: a FUA write where the device has that, else a
    /// flush after it. What does not fill its sectors is put into what they hold: two requests.
    pub(crate) fn write(&self, offset: u64, data: &[u8], sync: bool) -> Result<(), ByteError> {
        let end = offset.checked_add(data.len() as u64).ok_or(ByteError::TooBig)?;
        if end > self.size() {
            return Err(ByteError::BehindEnd);
        }
        let fua = sync && self.device.geometry().fua;
        if (offset | end) % SECTOR_BYTES == 0 {
            let _shared = self.sectors.read();
            self.submit(offset, Op::Write { from: vec![data], fua })?;
        } else {
            let _alone = self.sectors.write();
            let first = offset / SECTOR_BYTES * SECTOR_BYTES;
            let behind = end.next_multiple_of(SECTOR_BYTES);
            let mut bytes = vec![0; (behind - first) as usize];
            self.submit(first, Op::Read { into: vec![&mut bytes] })?;
            let at = (offset - first) as usize;
            bytes[at..at + data.len()].copy_from_slice(data);
            self.submit(first, Op::Write { from: vec![&bytes], fua })?;
        }
        if sync && !fua { self.flush() } else { Ok(()) }
    }

    /// Discards the whole sectors of a range.
    pub(crate) fn discard(&self, offset: u64, length: u64) -> Result<(), ByteError> {
        let end = offset.checked_add(length).ok_or(ByteError::TooBig)?.min(self.size());
        let (first, end) =
            (offset.next_multiple_of(SECTOR_BYTES), end / SECTOR_BYTES * SECTOR_BYTES);
        if first >= end {
            return Ok(());
        }
        self.submit(first, Op::Discard { len_bytes: end - first })
    }

    pub(crate) fn flush(&self) -> Result<(), ByteError> {
        self.submit(0, Op::Flush)
    }

    fn submit(&self, offset_bytes: u64, op: Op<'_>) -> Result<(), ByteError> {
        let mut batch = [Request { offset_bytes, op, origin: ORIGIN }];
        self.device.submit(&mut batch).map_err(|_| ByteError::Device)
    }
}
