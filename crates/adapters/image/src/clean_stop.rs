//! A device that fails its requests once the work is to stop, if that leaves a clean volume.
//!
//! Work that changes a whole volume first writes where the volume has nothing, then marks the
//! superblock as not clean, changes the rest, and marks it as clean again. Between the two marks
//! nothing is stopped here. Tested in `tests/it/resize.rs`.

use std::sync::atomic::{AtomicBool, Ordering};

use syncline_device::{BlockDevice, DeviceError, Geometry, Op, Request};
use syncline_ondisk::bytes::le16;
use syncline_ondisk::superblock::{STATE_VALID, SUPERBLOCK_OFFSET};

/// Byte of the volume where the superblock has `s_state`.
const STATE_OFFSET: u64 = SUPERBLOCK_OFFSET + 0x3a;
/// The errno of an interrupted call.
const EINTR: i32 = 4;

/// Passes requests on to `D`, whose volume is clean.
pub(crate) struct CleanStop<D> {
    inner: D,
    asked: fn() -> bool,
    is_unclean: AtomicBool,
}

impl<D: BlockDevice> CleanStop<D> {
    pub(crate) fn new(inner: D, asked: fn() -> bool) -> Self {
        CleanStop { inner, asked, is_unclean: AtomicBool::new(false) }
    }
}

/// True if an error is that of a stop.
pub(crate) fn is_stop(err: &DeviceError) -> bool {
    matches!(err, DeviceError::Io { errno: EINTR, .. })
}

/// The state that a request writes into the superblock.
fn state(request: &Request<'_>) -> Option<u16> {
    let Op::Write { from, .. } = &request.op else { return None };
    let mut at = usize::try_from(STATE_OFFSET.checked_sub(request.offset_bytes)?).ok()?;
    for part in from {
        match part.get(at..at + 2) {
            Some(bytes) => return Some(le16(bytes, 0)),
            None => at = at.checked_sub(part.len())?,
        }
    }
    None
}

impl<D: BlockDevice> BlockDevice for CleanStop<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        if (self.asked)() && !self.is_unclean.load(Ordering::Relaxed) {
            return Err(DeviceError::Io {
                op: "write",
                offset_bytes: 0,
                len_bytes: 0,
                reason: "it was stopped".to_owned(),
                errno: EINTR,
            });
        }
        let state = batch.iter().find_map(state);
        self.inner.submit(batch)?;
        if let Some(state) = state {
            self.is_unclean.store(state & STATE_VALID == 0, Ordering::Relaxed);
        }
        Ok(())
    }
}
