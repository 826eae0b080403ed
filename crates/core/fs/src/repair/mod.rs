//! Repair of an image: the part of e2fsck that mends.
//!
//! ```text
//!   device ── overlay ── check ── edits ──┐
//!                 ^                       │ until nothing can be mended
//!                 └───────────────────────┘
//!   overlay ── plan ── undo file ── device
//! ```
//!
//! Promises
//! - [`Plan::new`] only reads the device. The plan holds each changed byte, old and new.
//! - A plan is kept only if a check of the overlay finds fewer errors than before.
//! - A sound image has an empty plan, and so has one that was just repaired.
//! - [`Plan::undo`] is written before the device: [`undo::roll_back`] restores each byte, wherever
//!   the writing ended.
//! - What it cannot mend stays as it is, and is in [`Plan::after`].
//!
//! It mends checksums of inodes, descriptors and bitmaps, deletion times, block and link counts,
//! bitmaps and counters of groups. Link counts and bitmaps are mended only if nothing else is
//! broken. It does not mend superblocks, journals, other reserved inodes, extents,
//! directories or attributes, and nothing where metadata lies in bad blocks.
//!
//! Memory: that of a check, the changed pieces of 4 KiB, and twice their bytes for the undo file.
//!
//! Assumptions: nothing else writes to the device. A log that waits was replayed. Tested in
//! `tests/it/repair.rs`.

pub mod undo;

use std::sync::Arc;

use syncline_device::{BlockDevice, Kind, Origin, OverlayDevice};

use crate::check::{CheckProgress, CheckReport, Edit, inspect};
use crate::error::{FsError, Result};

/// Most rounds of checking and mending.
const ROUNDS: usize = 8;

/// Largest sector of a device.
const PIECE_BYTES: u64 = 4096;

const ORIGIN: Origin = Origin::new(Kind::Metadata, true);

/// Bytes of one place, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Bytes that are there.
    pub old: Vec<u8>,
    /// Bytes that a repair writes; as many.
    pub new: Vec<u8>,
}

/// A planned repair.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The check of the image as it is.
    pub before: CheckReport,
    /// The check of the image as it will be.
    pub after: CheckReport,
    /// Places that change, ascending; they do not overlap.
    pub changes: Vec<Change>,
}

/// Writes an edit in whole pieces: a device takes no part of a sector.
fn put(dev: &dyn BlockDevice, edit: &Edit) -> Result<()> {
    let start = edit.offset / PIECE_BYTES * PIECE_BYTES;
    let end = (edit.offset + edit.bytes.len() as u64).next_multiple_of(PIECE_BYTES);
    let mut bytes = vec![0; (end.min(dev.geometry().size_bytes) - start) as usize];
    dev.read(start, &mut bytes, ORIGIN)?;
    let at = (edit.offset - start) as usize;
    if let Some(place) = bytes.get_mut(at..at + edit.bytes.len()) {
        place.copy_from_slice(&edit.bytes);
    }
    Ok(dev.write(start, &bytes, ORIGIN)?)
}

impl Plan {
    /// Plans the repair of the file system on `dev`, which is only read. `progress` as for
    /// [`crate::check_device`].
    ///
    /// # Errors
    /// As [`crate::check_device`]; [`FsError::Invalid`] if a log has to be replayed first.
    pub fn new(
        dev: &Arc<dyn BlockDevice>,
        progress: &mut dyn FnMut(CheckProgress) -> bool,
    ) -> Result<Plan> {
        let overlay = Arc::new(OverlayDevice::new(Arc::clone(dev)));
        let above: Arc<dyn BlockDevice> = overlay.clone();
        let (before, mut edits) = inspect(&above, progress)?;
        if before.unreplayed {
            let what = "the journal has to be replayed first; run `syncline recover`";
            return Err(FsError::Invalid(what.into()));
        }
        let mut after = before.clone();
        for _ in 0..ROUNDS {
            if edits.is_empty() || after.stopped {
                break;
            }
            for edit in &edits {
                put(&*above, edit)?;
            }
            (after, edits) = inspect(&above, progress)?;
        }
        if after.stopped || after.errors >= before.errors {
            return Ok(Plan { after: before.clone(), before, changes: Vec::new() });
        }
        let size = dev.geometry().size_bytes;
        let mut changes = Vec::new();
        for range in overlay.written() {
            let len = (range.end.min(size) - range.start) as usize;
            let (mut old, mut new) = (vec![0; len], vec![0; len]);
            dev.read(range.start, &mut old, ORIGIN)?;
            above.read(range.start, &mut new, ORIGIN)?;
            if old != new {
                changes.push(Change { offset_bytes: range.start, old, new });
            }
        }
        Ok(Plan { before, after, changes })
    }

    /// Bytes of the undo file, to be durable before [`Plan::apply`].
    pub fn undo(&self, dev: &dyn BlockDevice) -> Vec<u8> {
        undo::encode(dev.geometry().size_bytes, &self.changes)
    }

    /// Writes the changes and makes them durable.
    ///
    /// # Errors
    /// I/O; the undo file then restores the image.
    pub fn apply(&self, dev: &dyn BlockDevice) -> Result<()> {
        for change in &self.changes {
            dev.write(change.offset_bytes, &change.new, ORIGIN)?;
        }
        Ok(dev.flush(ORIGIN)?)
    }
}
