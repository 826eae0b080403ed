//! Recovery of packed records.
//!
//! ```text
//!   scan     follow whole records of this epoch by sequence from s_start  -> where the log ends
//!            look through the rest of the ring: none may be whole and newer
//!   sort     entries by home block, in log order                   nothing is written so far
//!   replay   home block (or zeros) + its entries -> home block | flush | stock journal, empty
//! ```
//!
//! Promises
//! - Nothing is written before every record was checked. A cut during the replay leaves the log as
//!   it was, and the next recovery does the same again: home blocks are then mixtures of what they
//!   were and what they will be, which the records cover (`../packed.rs`).
//! - A torn last record is dropped whole. A record that is not whole with newer ones behind it is
//!   damage: it was acknowledged, and they rely on it.
//! - Bounds: each log block is read twice at most; memory is the used part of the log, 64 bytes for
//!   each logged block and 1 MiB; records looked at behind the end are no longer in sum than twice
//!   the ring.

use syncline_device::{BlockDevice, Kind, Origin, Plug};
use syncline_ondisk::packed::{Base, Entry, HEADER_BYTES, Record, RecordHeader};

use super::{LogReader, Recovery};
use crate::format::at_log_block;
use crate::log_superblock::LogSuperblock;
use crate::packed::PackedLog;
use crate::{JournalError, LogMap, tid_gt};

const IN_PLACE: Origin = Origin::new(Kind::Metadata, true);
/// Blocks written as one plug: bounds the memory of a replay.
const BATCH_BYTES: usize = 1024 * 1024;

/// The whole records of the log.
struct Scan {
    /// Log block and bytes of each, in log order.
    records: Vec<(u32, Vec<u8>)>,
    /// First sequence that is not whole.
    end: u32,
    dropped_torn: bool,
}

/// Reads, checks and, unless `dry_run`, replays the log. The caller flushes and empties it.
pub(super) fn recover(
    reader: &mut LogReader<'_>,
    superblock: &LogSuperblock,
    packed: PackedLog,
    dry_run: bool,
) -> Result<Recovery, JournalError> {
    let scan = scan(reader, superblock, packed)?;
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (log_block, bytes) in &scan.records {
        let record = Record::parse(bytes, packed.block_size());
        let record = record.map_err(|error| at_log_block(*log_block, error))?;
        let first = entries.len();
        entries.extend(record.entries());
        for entry in &entries[first..] {
            check_block(reader.dev, reader.log, entry.block, *log_block)?;
        }
    }
    // Stable: entries of a block stay in log order.
    entries.sort_by_key(|entry| entry.block);
    let blocks = || entries.chunk_by(|a, b| a.block == b.block);
    let count = blocks().count();
    if !dry_run {
        replay(reader.dev, packed.block_size(), blocks())?;
    }
    let transactions = scan.records.len() as u32;
    Ok(Recovery {
        was_needed: true,
        transactions,
        last_tid: (transactions > 0).then(|| scan.end.wrapping_sub(1)),
        blocks_replayed: u32::try_from(count).unwrap_or(u32::MAX),
        dropped_torn: scan.dropped_torn,
        // A torn sequence is never used again.
        next_sequence: scan.end.wrapping_add(1),
        errno: superblock.errno(),
        ..Recovery::default()
    })
}

fn check_block(
    dev: &dyn BlockDevice,
    log: &LogMap,
    block: u64,
    log_block: u32,
) -> Result<(), JournalError> {
    let is_outside = block >= dev.geometry().size_bytes / u64::from(log.block_size);
    if is_outside || log.contains(block) {
        let place = if is_outside { "off the device" } else { "in the log" };
        return Err(JournalError::corrupt(
            log_block,
            format!("a record of block {block}, {place}"),
        ));
    }
    Ok(())
}

/// Follows the log from `s_start`.
fn scan(
    reader: &mut LogReader<'_>,
    superblock: &LogSuperblock,
    packed: PackedLog,
) -> Result<Scan, JournalError> {
    let mut scan = Scan { records: Vec::new(), end: superblock.sequence(), dropped_torn: false };
    let (mut at, mut passed) = (superblock.start(), 0);
    while passed < reader.ring() {
        let end = scan.end;
        let next = candidate(reader, packed, (at, passed), |sequence| sequence == end)?;
        let Some((header, bytes)) = next else { break };
        if !Record::is_whole(&bytes, packed.id(end)) {
            scan.dropped_torn = true;
            break;
        }
        let blocks = packed.blocks_of(header.length as usize);
        scan.records.push((at, bytes));
        scan.end = end.wrapping_add(1);
        passed += blocks;
        at = advance(reader, at, blocks);
    }
    refuse_newer(reader, packed, (at, passed), scan.end)?;
    Ok(scan)
}

fn advance(reader: &LogReader<'_>, at: u32, blocks: u32) -> u32 {
    let inside = u64::from(at - reader.first) + u64::from(blocks);
    reader.first + (inside % u64::from(reader.ring())) as u32
}

/// The record of this epoch that claims to start at `at` with a sequence that is `wanted`, and as
/// many bytes as it claims; `None` if there is none that fits into what is left of the ring.
fn candidate(
    reader: &mut LogReader<'_>,
    packed: PackedLog,
    (at, passed): (u32, u32),
    mut wanted: impl FnMut(u32) -> bool,
) -> Result<Option<(RecordHeader, Vec<u8>)>, JournalError> {
    let Some(header) = RecordHeader::decode(reader.read(at)?) else { return Ok(None) };
    if header.epoch != packed.id(0).epoch || !wanted(header.sequence) {
        return Ok(None);
    }
    let length = header.length as usize;
    let blocks = packed.blocks_of(length);
    if length < HEADER_BYTES || blocks > reader.ring() - passed {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(blocks as usize * packed.block_size());
    let mut block = at;
    for _ in 0..blocks {
        bytes.extend_from_slice(reader.read(block)?);
        block = reader.next(block);
    }
    bytes.truncate(length);
    Ok(Some((header, bytes)))
}

/// Nothing behind the end of the log may be newer than it: one record is in flight at a time.
fn refuse_newer(
    reader: &mut LogReader<'_>,
    packed: PackedLog,
    (mut at, passed): (u32, u32),
    end: u32,
) -> Result<(), JournalError> {
    let from = at;
    let mut budget = 2 * u64::from(reader.ring());
    for passed in passed..reader.ring() {
        let newer = candidate(reader, packed, (at, passed), |sequence| tid_gt(sequence, end))?;
        if let Some((header, bytes)) = newer {
            budget = budget.saturating_sub(u64::from(packed.blocks_of(bytes.len())));
            if budget == 0 || Record::is_whole(&bytes, packed.id(header.sequence)) {
                let newer = header.sequence;
                let detail = format!("transaction {end} is corrupt: {newer} follows at {at}");
                return Err(JournalError::corrupt(from, detail));
            }
        }
        at = reader.next(at);
    }
    Ok(())
}

/// Writes the newest images to their home blocks. Not durable until the caller flushes.
fn replay<'e>(
    dev: &dyn BlockDevice,
    block_size: usize,
    blocks: impl Iterator<Item = &'e [Entry<'e>]>,
) -> Result<(), JournalError> {
    let most = (BATCH_BYTES / block_size).max(1);
    let mut batch: Vec<(u64, Vec<u8>)> = Vec::with_capacity(most);
    for entries in blocks {
        let Some(first) = entries.first() else { continue };
        // In range: the block was compared with the device's size.
        let offset = first.block * block_size as u64;
        let mut image = vec![0; block_size];
        if first.base == Base::Previous {
            dev.read(offset, &mut image, IN_PLACE)?;
        }
        entries.iter().for_each(|entry| entry.apply(&mut image));
        batch.push((offset, image));
        if batch.len() == most {
            write(dev, &mut batch)?;
        }
    }
    write(dev, &mut batch)
}

fn write(dev: &dyn BlockDevice, batch: &mut Vec<(u64, Vec<u8>)>) -> Result<(), JournalError> {
    let mut plug = Plug::new();
    for (offset, image) in batch.iter() {
        plug.write(*offset, image, IN_PLACE);
    }
    plug.submit(dev)?;
    batch.clear();
    Ok(())
}
