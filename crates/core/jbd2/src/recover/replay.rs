//! Later passes: which copies count, whether they are whole, and writing them in place.

use std::collections::BTreeMap;
use syncline_device::{Kind, Origin, Plug};
use syncline_ondisk::jbd2::{Revokes, unescape};

use super::LogReader;
use super::scan::{LogCopy, Scan};
use crate::format::at_log_block;
use crate::{JournalError, tid_geq};

const IN_PLACE: Origin = Origin::new(Kind::Metadata, true);
/// Copies written as one plug: bounds the memory of a replay.
const BATCH_BYTES: usize = 1024 * 1024;

/// Copies to be replayed.
pub(super) struct Plan {
    /// The newest copy of each block that no revoke covers, in log order.
    pub(super) copies: Vec<LogCopy>,
    pub(super) revoked: u32,
    pub(super) revoke_records: u64,
}

/// Decides which copies count.
pub(super) fn plan(reader: &mut LogReader<'_>, scan: &Scan) -> Result<Plan, JournalError> {
    let device_blocks = reader.dev.geometry().size_bytes / reader.format.layout.block_size as u64;
    let mut newest: BTreeMap<u64, LogCopy> = BTreeMap::new();
    for copy in &scan.copies {
        if copy.block >= device_blocks || reader.log.contains(copy.block) {
            let where_ = if copy.block >= device_blocks { "off the device" } else { "in the log" };
            let detail =
                format!("transaction {} has block {}, {where_}", copy.sequence, copy.block);
            return Err(JournalError::corrupt(copy.log_block, detail));
        }
        newest.insert(copy.block, *copy);
    }
    let mut revokes: BTreeMap<u64, u32> = BTreeMap::new();
    let mut revoke_records = 0u64;
    for &(log_block, sequence) in &scan.revoke_blocks {
        let layout = reader.format.layout;
        let records = Revokes::new(reader.read(log_block)?, &layout)
            .map_err(|error| at_log_block(log_block, error))?;
        for revoked in records {
            revoke_records += 1;
            // Others have no copy to revoke; leaving them out bounds the table by the log's length.
            if newest.contains_key(&revoked) {
                // In log order, so the last one is the newest.
                revokes.insert(revoked, sequence);
            }
        }
    }
    let covered =
        |c: &LogCopy| revokes.get(&c.block).is_some_and(|revoke| tid_geq(*revoke, c.sequence));
    let revoked = scan.copies.iter().filter(|c| covered(c)).count() as u32;
    let mut copies: Vec<LogCopy> = newest.into_values().filter(|c| !covered(c)).collect();
    copies.sort_unstable_by_key(|c| (c.sequence.wrapping_sub(scan.end), c.log_block));
    Ok(Plan { copies, revoked, revoke_records })
}

/// Checks every copy that will be replayed. The inner error is the first that does not match its
/// tag.
pub(super) fn verify(
    reader: &mut LogReader<'_>,
    plan: &Plan,
) -> Result<Result<(), LogCopy>, JournalError> {
    let layout = reader.format.layout;
    if !layout.has_block_csum() {
        return Ok(Ok(()));
    }
    for copy in &plan.copies {
        let bytes = reader.read(copy.log_block)?;
        if layout.copy_csum(copy.sequence, bytes) != copy.checksum {
            return Ok(Err(*copy));
        }
    }
    Ok(Ok(()))
}

/// The plan of a log that may be damaged: copies that are leave the scan, and so do transactions
/// from the first revoke block on that is corrupt.
pub(super) fn salvage(reader: &mut LogReader<'_>, scan: &mut Scan) -> Result<Plan, JournalError> {
    let layout = reader.format.layout;
    let device_blocks = reader.dev.geometry().size_bytes / layout.block_size as u64;
    let mut copies = Vec::new();
    for copy in std::mem::take(&mut scan.copies) {
        let has_place = copy.block < device_blocks && !reader.log.contains(copy.block);
        let bytes = reader.read(copy.log_block)?;
        let is_whole =
            !layout.has_block_csum() || layout.copy_csum(copy.sequence, bytes) == copy.checksum;
        if has_place && is_whole {
            copies.push(copy);
        }
    }
    scan.copies = copies;
    match plan(reader, scan) {
        Err(JournalError::Corrupt { log_block, .. }) => {
            scan.end_before(log_block);
            plan(reader, scan)
        }
        other => other,
    }
}

/// Writes the copies to their places. Not durable until the caller flushes.
pub(super) fn replay(reader: &mut LogReader<'_>, plan: &Plan) -> Result<(), JournalError> {
    let size = reader.format.layout.block_size;
    for batch in plan.copies.chunks((BATCH_BYTES / size).max(1)) {
        let mut images = Vec::with_capacity(batch.len());
        for copy in batch {
            let mut image = reader.read(copy.log_block)?.to_vec();
            if copy.escaped {
                unescape(&mut image);
            }
            images.push(image);
        }
        let mut plug = Plug::new();
        for (copy, image) in batch.iter().zip(&images) {
            // In range: the plan compared the block with the device's size.
            plug.write(copy.block * size as u64, image, IN_PLACE);
        }
        plug.submit(reader.dev)?;
    }
    Ok(())
}
