//! The seam below a log: where its bytes are.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use parking_lot::RwLock;

/// A growing sequence of bytes that is read and written by position, from any thread.
///
/// After a power cut every byte that [`Storage::sync_data`] covered is there; later writes may be
/// there in part, in any order. What lies between the end and a later write reads as zeros.
pub trait Storage: Send + Sync {
    /// Fills `into` from byte `offset`. `UnexpectedEof` if the storage ends before.
    ///
    /// # Errors
    /// As the system's.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `parts`, one after the other, from byte `offset`; the storage grows.
    ///
    /// # Errors
    /// As the system's; then any part of it may have been written.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// As the system's.
    fn len(&self) -> io::Result<u64>;

    /// True if there are no bytes.
    ///
    /// # Errors
    /// As the system's.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts or extends with zeros.
    ///
    /// # Errors
    /// As the system's.
    fn set_len(&self, len_bytes: u64) -> io::Result<()>;

    /// Makes everything that was written before, and the length, durable.
    ///
    /// # Errors
    /// As the system's; then nothing is known of what is durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Gives the space of a range back; it reads as zeros. False where that is not possible.
    ///
    /// # Errors
    /// As the system's.
    fn punch(&self, offset: u64, len_bytes: u64) -> io::Result<bool> {
        let _ = (offset, len_bytes);
        Ok(false)
    }

    /// Copies bytes to another storage without passing them through this process, or sharing them
    /// where the file system can; the number of bytes copied, 0 where that is not possible.
    ///
    /// # Errors
    /// As the system's.
    fn copy_range(
        &self,
        offset: u64,
        to: &dyn Storage,
        to_offset: u64,
        len_bytes: u64,
    ) -> io::Result<u64> {
        let _ = (offset, to, to_offset, len_bytes);
        Ok(0)
    }

    /// The open file behind it, for the copies of other storages.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Bytes in memory. A punch makes zeros and gives nothing back.
#[derive(Debug, Default)]
pub struct MemoryStorage(RwLock<Vec<u8>>);

impl MemoryStorage {
    /// With these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> MemoryStorage {
        MemoryStorage(RwLock::new(bytes))
    }

    /// A copy of all bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.0.read().clone()
    }
}

/// The index of a byte, for memory.
fn index(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::StorageFull.into())
}

impl Storage for MemoryStorage {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let start = index(offset)?;
        let bytes = self.0.read();
        let part = start.checked_add(into.len()).and_then(|end| bytes.get(start..end));
        into.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut bytes = self.0.write();
        let mut at = index(offset)?;
        for part in parts {
            let end = at.checked_add(part.len()).ok_or(io::ErrorKind::StorageFull)?;
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[at..end].copy_from_slice(part);
            at = end;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.read().len() as u64)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let len = index(len_bytes)?;
        self.0.write().resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> io::Result<bool> {
        let mut bytes = self.0.write();
        let end = index(offset.saturating_add(len_bytes))?.min(bytes.len());
        if let Some(part) = bytes.get_mut(index(offset)?..end) {
            part.fill(0);
        }
        Ok(true)
    }
}
