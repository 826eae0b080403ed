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
//! - A plan is kept only if a check of the overlay finds fewer errors than before, or as many and
//!   fewer notices.
//! - A sound image has an empty plan, and so has one that was just repaired. Where hostile maps
//!   lead back to an earlier state, the plan ends in the best state of the circle.
//! - [`Plan::undo`] is written before the device: [`undo::roll_back`] restores each byte, wherever
//!   the writing ended.
//! - What it cannot mend stays as it is, and is in [`Plan::after`].
//!
//! It mends what e2fsck mends, by the same rules (`check/mends`). The exceptions:
//! - A directory whose names fold case, or has fewer names than blocks, loses an index that is
//!   wrong. Others get a new one.
//! - Where lost+found has no room, the errors stay.
//! - A superblock with a wrong field is mended by a backup, where e2fsck asks for `-b`. Without
//!   one only fields that can have one value are set, and the number of reserved blocks. If another
//!   one is wrong, nothing else is mended.
//! - A journal on another device is not replayed, and one with unknown features stays.
//!
//! Order: a log that waits is replayed first, without the copies and transactions that are corrupt.
//! Where that fails, the journal is mended or replaced. Blocks of metadata that cannot be read get
//! zeros, and what they held is mended; the undo file has zeros for them. Copies of superblock and
//! descriptors that are of no use are written last, if anything else was mended.
//!
//! Memory: that of a check with 64 times as many findings, the entries of one directory, the
//! changed pieces of 4 KiB, and twice their bytes for the undo file. A round copies at most
//! 256 MiB.
//!
//! Assumptions: nothing else writes to the device. Tested in `tests/it/repair.rs`,
//! `repair_kinds.rs` and `repair_random.rs`; after power cuts of the kernel in `adapters/export`.

pub mod undo;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use syncline_device::{BlockDevice, Kind, Origin, OverlayDevice};

use crate::check::{Answers, CheckProgress, CheckReport, Edit, Finding, inspect};
use crate::error::Result;
use crate::mount::in_memory;

/// Most rounds of checking and mending.
const ROUNDS: usize = 64;
/// Rounds from which on the states are remembered: hostile maps can lead back to an earlier one.
const WATCHED_FROM: usize = 16;

/// Smallest unit that a device reads or writes as a whole.
const SECTOR_BYTES: usize = 512;
/// Largest.
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
    /// True if a log waited and is replayed: `before` is what the check found after that.
    pub replayed: bool,
    /// Places that change, ascending; they do not overlap.
    pub changes: Vec<Change>,
}

/// Reads what can be read; sectors that cannot be read are zeros. True if all could be read.
fn read_rest(dev: &dyn BlockDevice, offset_bytes: u64, into: &mut [u8]) -> bool {
    if dev.read(offset_bytes, into, ORIGIN).is_ok() {
        return true;
    }
    for (nr, sector) in (0..).zip(into.chunks_mut(SECTOR_BYTES)) {
        if dev.read(offset_bytes + nr * SECTOR_BYTES as u64, sector, ORIGIN).is_err() {
            sector.fill(0);
        }
    }
    false
}

/// Writes an edit in whole pieces: a device takes no part of a sector.
fn put(dev: &dyn BlockDevice, edit: &Edit) -> Result<()> {
    let start = edit.offset / PIECE_BYTES * PIECE_BYTES;
    let end = (edit.offset + edit.bytes.len() as u64).next_multiple_of(PIECE_BYTES);
    let mut bytes = vec![0; (end.min(dev.geometry().size_bytes) - start) as usize];
    read_rest(dev, start, &mut bytes);
    let at = (edit.offset - start) as usize;
    if let Some(place) = bytes.get_mut(at..at + edit.bytes.len()) {
        place.copy_from_slice(&edit.bytes);
    }
    Ok(dev.write(start, &bytes, ORIGIN)?)
}

/// Replays a log. An attempt that fails leaves nothing.
fn replay(above: &Arc<dyn BlockDevice>) -> Result<()> {
    let trial = Arc::new(OverlayDevice::new(Arc::clone(above)));
    let dev: Arc<dyn BlockDevice> = trial.clone();
    in_memory::replay(&dev)?;
    for range in trial.written() {
        let end = range.end.min(above.geometry().size_bytes);
        let mut bytes = vec![0; (end - range.start) as usize];
        dev.read(range.start, &mut bytes, ORIGIN)?;
        above.write(range.start, &bytes, ORIGIN)?;
    }
    Ok(())
}

/// The states that a repair has gone through, to end one that goes round.
#[derive(Default)]
struct Circle {
    seen: Vec<(u64, Rank)>,
    /// The best of those that come again.
    best: Option<u64>,
}

/// How bad a state is: its errors, and among as many a number of what they say.
type Rank = (u64, u64);

impl Circle {
    /// True for the best state of a circle, in which a repair that begins there ends, too.
    fn is_best(&mut self, state: u64, report: &CheckReport) -> bool {
        let mut said = DefaultHasher::new();
        report.findings.iter().for_each(|finding| finding.to_string().hash(&mut said));
        if self.best.is_none() {
            let before = self.seen.iter().position(|(seen, _)| *seen == state);
            let again = before.and_then(|at| self.seen.get(at..)).unwrap_or_default();
            self.best = again.iter().min_by_key(|(_, rank)| *rank).map(|(state, _)| *state);
            self.seen.push((state, (report.errors, said.finish())));
        }
        self.best == Some(state)
    }
}

/// A number of what was written.
fn state<D: BlockDevice>(overlay: &OverlayDevice<D>) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    let size = overlay.geometry().size_bytes;
    for range in overlay.written() {
        let mut bytes = vec![0; (range.end.min(size) - range.start) as usize];
        overlay.read(range.start, &mut bytes, ORIGIN)?;
        (range.start, bytes).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

impl Plan {
    /// Plans the repair of the file system on `dev`, which is only read. `progress` as for
    /// [`crate::check_device`].
    ///
    /// # Errors
    /// As [`crate::check_device`]; those of recovery if a log waits that cannot be replayed.
    pub fn new(
        dev: &Arc<dyn BlockDevice>,
        progress: &mut dyn FnMut(CheckProgress) -> bool,
    ) -> Result<Plan> {
        Plan::asking(dev, progress, &mut |_| true)
    }

    /// The same, of findings for which `ask` is true. It is called once for each.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn asking(
        dev: &Arc<dyn BlockDevice>,
        progress: &mut dyn FnMut(CheckProgress) -> bool,
        ask: &mut dyn FnMut(&Finding) -> bool,
    ) -> Result<Plan> {
        let overlay = Arc::new(OverlayDevice::new(Arc::clone(dev)));
        let above: Arc<dyn BlockDevice> = overlay.clone();
        let mut answers = Answers::new(ask);
        let (mut before, mut replayed) = (None, false);
        let mut after = CheckReport::default();
        let mut circle = Circle::default();
        for round in 0..=2 * ROUNDS {
            let edits;
            (after, edits) = inspect(&above, progress, &mut answers)?;
            if after.stopped {
                break;
            }
            if after.unreplayed {
                match replay(&above) {
                    Ok(()) => replayed = true,
                    Err(_) if !answers.mends_journal || !edits.is_empty() => {
                        answers.mends_journal = true;
                    }
                    // A log that is damaged, in a journal that is sound, is dropped.
                    Err(why) if answers.log_lost.is_none() => match in_memory::why_lost(&above) {
                        Some(what) => answers.log_lost = Some(what),
                        None => return Err(why),
                    },
                    Err(why) => return Err(why),
                }
            }
            if !after.unreplayed || !edits.is_empty() {
                // Before a replay, findings may be changes that wait in the log.
                before.get_or_insert_with(|| after.clone());
            }
            let is_best = round >= WATCHED_FROM && circle.is_best(state(&overlay)?, &after);
            let is_last = round >= ROUNDS && circle.best.is_none() || round == 2 * ROUNDS;
            if !after.unreplayed && edits.is_empty() || is_best || is_last {
                break;
            }
            edits.iter().try_for_each(|edit| put(&*above, edit))?;
            answers.has_mended |= !edits.is_empty();
        }
        let mut before = before.unwrap_or_else(|| after.clone());
        after.cut();
        before.cut();
        let is_worse = after.errors > before.errors
            || after.errors == before.errors && !replayed && after.notices() >= before.notices();
        if after.stopped || is_worse {
            before.stopped = after.stopped;
            return Ok(Plan {
                after: before.clone(),
                before,
                replayed: false,
                changes: Vec::new(),
            });
        }
        let size = dev.geometry().size_bytes;
        let mut changes = Vec::new();
        for range in overlay.written() {
            let len = (range.end.min(size) - range.start) as usize;
            let (mut old, mut new) = (vec![0; len], vec![0; len]);
            let is_read = read_rest(&**dev, range.start, &mut old);
            above.read(range.start, &mut new, ORIGIN)?;
            // What cannot be read is written even if it gets zeros.
            if old != new || !is_read {
                changes.push(Change { offset_bytes: range.start, old, new });
            }
        }
        Ok(Plan { before, after, replayed, changes })
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
