//! Undo file of a repair: the bytes before and after.
//!
//! ```text
//!   "SYNUNDO1"  u64 bytes of the device  u32 changes
//!   per change: u64 offset  u32 length  old bytes  new bytes
//!   u32 crc32c of everything before                             little-endian
//! ```
//!
//! The state of an image follows from its bytes: each sector has its old bytes, its new bytes, or
//! another program has written to it. An image of the third kind is not touched.

use syncline_device::BlockDevice;
use syncline_ondisk::bytes::{le32, le64};
use syncline_ondisk::checksum::crc32c;

use super::{Change, ORIGIN, SECTOR_BYTES, read_rest};
use crate::error::{FsError, Result};

const MAGIC: &[u8; 8] = b"SYNUNDO1";
const HEADER_BYTES: usize = 20;

/// How much of a repair is on the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Before,
    /// A part: the repair was interrupted.
    Between,
    /// Everything.
    After,
}

pub(super) fn encode(size_bytes: u64, changes: &[Change]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend(size_bytes.to_le_bytes());
    file.extend((changes.len() as u32).to_le_bytes());
    for Change { offset_bytes, old, new } in changes {
        file.extend(offset_bytes.to_le_bytes());
        file.extend((old.len() as u32).to_le_bytes());
        file.extend(old);
        file.extend(new);
    }
    let crc = crc32c(!0, &file);
    file.extend(crc.to_le_bytes());
    file
}

/// Reads an undo file.
///
/// # Errors
/// [`FsError::Invalid`] if it is none, is cut or damaged, or belongs to a device of another size.
pub fn decode(file: &[u8], dev: &dyn BlockDevice) -> Result<Vec<Change>> {
    let refuse = |what: &str| FsError::Invalid(format!("the undo file {what}"));
    let end = file.len().saturating_sub(4);
    if end < HEADER_BYTES || !file.starts_with(MAGIC) {
        return Err(refuse("is none of `syncline repair`"));
    }
    let size_bytes = dev.geometry().size_bytes;
    let (body, crc) = file.split_at(end);
    if crc32c(!0, body) != le32(crc, 0) {
        return Err(refuse("is cut or damaged"));
    }
    if le64(body, 8) != size_bytes {
        return Err(refuse("belongs to an image of another size"));
    }
    let mut changes = Vec::new();
    let mut rest = &body[HEADER_BYTES..];
    while let Some((head, tail)) = rest.split_at_checked(12) {
        let (offset_bytes, len) = (le64(head, 0), le32(head, 8) as usize);
        let parts = tail.split_at_checked(len).and_then(|(old, tail)| {
            tail.split_at_checked(len).map(|(new, tail)| (old.to_vec(), new.to_vec(), tail))
        });
        let inside = offset_bytes.checked_add(len as u64).is_some_and(|end| end <= size_bytes);
        let Some((old, new, tail)) = parts.filter(|_| inside && len > 0) else {
            return Err(refuse("is damaged"));
        };
        changes.push(Change { offset_bytes, old, new });
        rest = tail;
    }
    Ok(changes)
}

/// How much of the repair is on `dev`.
///
/// # Errors
/// [`FsError::Invalid`] if the image has changed since.
pub fn state(changes: &[Change], dev: &dyn BlockDevice) -> Result<State> {
    let (mut is_old, mut is_new) = (true, true);
    for change in changes {
        let mut now = vec![0; change.old.len()];
        read_rest(dev, change.offset_bytes, &mut now);
        let sectors = change.old.chunks(SECTOR_BYTES).zip(change.new.chunks(SECTOR_BYTES));
        for (sector, (old, new)) in now.chunks(SECTOR_BYTES).zip(sectors) {
            if sector != old && sector != new {
                let what = "the image has changed since the undo file was written";
                return Err(FsError::Invalid(what.into()));
            }
            is_old &= sector == old;
            is_new &= sector == new;
        }
    }
    Ok(match (is_old, is_new) {
        (true, _) => State::Before,
        (_, true) => State::After,
        _ => State::Between,
    })
}

/// Restores the bytes before the repair and makes them durable.
///
/// # Errors
/// I/O; the call can be repeated.
pub fn roll_back(changes: &[Change], dev: &dyn BlockDevice) -> Result<()> {
    for change in changes {
        dev.write(change.offset_bytes, &change.old, ORIGIN)?;
    }
    Ok(dev.flush(ORIGIN)?)
}
