//! Android's sparse images (`system/core/libsparse/sparse_format.h`).
//!
//! ```text
//!   magic, version, sizes of both headers, block size, blocks, chunks, checksum
//!   chunk: type, blocks, bytes | data        raw, four bytes to repeat, nothing, a checksum
//! ```
//! An image that is too large to be sent at once is split into NAME.0, NAME.1 and so on. Each of
//! them has the size of the whole disk, and nothing where another one has data. They are read as
//! one source, which is theirs one behind the other. Their names come from the first one, and never
//! from what is in a file.

#[cfg(any(unix, windows))]
use std::path::{Path, PathBuf};

use super::mapped::Piece;
use super::{RUNS_MAX, Runs, Source, damaged, le32, unsupported};
#[cfg(any(unix, windows))]
use crate::ImageError;
use crate::Result;

pub(super) const MAGIC: [u8; 4] = [0x3A, 0xFF, 0x26, 0xED];
const HEADER_BYTES: u64 = 28;
const CHUNK_BYTES: u64 = 12;
/// Blocks of at most 1 MiB, as fastboot has them.
const BLOCK_BYTES_MAX: u32 = 1 << 20;

/// Missing files of a split image in a row behind which another one is found.
#[cfg(any(unix, windows))]
const GAP_MAX: usize = 8;

/// Files of a split image; those of a phone have some dozens.
#[cfg(any(unix, windows))]
const PARTS_MAX: usize = 1000;

/// The size of the disk, and the parts of it that one file has.
struct Part {
    disk_bytes: u64,
    /// Start, length and place in the source of each part with contents, in order.
    pieces: Vec<(u64, u64, Piece)>,
}

/// The disk in the files of `source`.
pub(super) fn runs(source: &Source) -> Result<Runs> {
    let (mut pieces, mut disk_bytes, mut start) = (Vec::new(), None, 0);
    for end in &source.ends {
        let part = part(source, start, *end)?;
        if *disk_bytes.get_or_insert(part.disk_bytes) != part.disk_bytes {
            return Err(damaged("its parts are of disks of other sizes"));
        }
        pieces.extend(part.pieces);
        start = *end;
    }
    pieces.sort_unstable_by_key(|(start, ..)| *start);
    let mut runs = Runs::default();
    for (start, len, piece) in pieces {
        let gap = start.checked_sub(runs.end());
        let gap = gap.ok_or_else(|| {
            unsupported(
                "a file with the next number has the same blocks, so they are not parts of one \
                 sparse image; give this one a name without a number",
            )
        })?;
        runs.push(gap, Piece::Zeros)?;
        runs.push(len, piece)?;
    }
    let rest = disk_bytes.unwrap_or(0).saturating_sub(runs.end());
    runs.push(rest, Piece::Zeros)?;
    Ok(runs)
}

/// The chunks of the file from `start` to `end`.
fn part(source: &Source, start: u64, end: u64) -> Result<Part> {
    let bytes = |at: u64, len: u64| {
        let is_inside = at.checked_add(len).is_some_and(|last| last <= end);
        if is_inside { source.bytes(at, len as usize) } else { Err(damaged("it ends early")) }
    };
    let header = bytes(start, HEADER_BYTES)?;
    let half = |at: usize| u64::from(le32(&header, at) & 0xFFFF);
    if !header.starts_with(&MAGIC) {
        return Err(damaged("one of its parts is no sparse image"));
    }
    if half(4) != 1 {
        return Err(unsupported("the sparse image is of a version other than 1; use simg2img"));
    }
    let (header_bytes, chunk_bytes) = (half(8), half(10));
    let (block, blocks, chunks) = (le32(&header, 12), le32(&header, 16), le32(&header, 20));
    let sized = header_bytes >= HEADER_BYTES && chunk_bytes >= CHUNK_BYTES;
    if !sized || block == 0 || block % 4 != 0 || block > BLOCK_BYTES_MAX {
        return Err(damaged("its header is wrong"));
    }
    let block = u64::from(block);
    let (mut pieces, mut place, mut at) = (Vec::new(), 0_u64, start + header_bytes);
    for _ in 0..chunks {
        let head = bytes(at, CHUNK_BYTES)?;
        let (count, total) = (u64::from(le32(&head, 4)), u64::from(le32(&head, 8)));
        let data = total.checked_sub(chunk_bytes).ok_or_else(|| damaged("a chunk is too short"))?;
        let from = at + chunk_bytes;
        if from.checked_add(data).is_none_or(|last| last > end) {
            return Err(damaged("it ends early"));
        }
        let len = count * block;
        let piece = match (le32(&head, 0) & 0xFFFF, data) {
            (0xCAC1, data) if data == len => Some(Piece::At(from)),
            (0xCAC2, 4) => {
                let fill = le32(&bytes(from, 4)?, 0).to_le_bytes();
                Some(if fill == [0; 4] { Piece::Zeros } else { Piece::Fill(fill) })
            }
            (0xCAC3, 0) => None,
            (0xCAC4, 4) => {
                at = from + data;
                continue;
            }
            _ => return Err(damaged("a chunk is of an unknown type or size")),
        };
        pieces.extend(piece.filter(|_| len > 0).map(|piece| (place, len, piece)));
        if pieces.len() > RUNS_MAX {
            return Err(damaged("it has more parts than a disk of 2 TiB"));
        }
        place = place.checked_add(len).ok_or_else(|| damaged("it is too large"))?;
        at = from + data;
    }
    let disk_bytes = u64::from(blocks) * block;
    if place != disk_bytes {
        return Err(damaged("its chunks do not give the size of the disk"));
    }
    Ok(Part { disk_bytes, pieces })
}

/// The names of the other files of a split image, by the name of the first: those with the next
/// numbers that are there. None for a name without a number.
///
/// # Errors
/// Another file is the first; one in between is missing.
#[cfg(any(unix, windows))]
pub(crate) fn others(first: &Path) -> Result<Vec<PathBuf>> {
    let number = first.extension().and_then(|number| number.to_str()).unwrap_or_default();
    let (Ok(nr), digits) = (number.parse::<u32>(), number.len()) else { return Ok(Vec::new()) };
    let name = |nr: u32| {
        let mut name = first.with_extension("").into_os_string();
        name.push(format!(".{nr:0digits$}"));
        PathBuf::from(name)
    };
    let first = (0..nr).rev().map(name).take_while(|before| before.exists()).last();
    if let Some(first) = first {
        let first = first.display();
        let text = format!(
            "it is one of the files of a split image; name the first, {first}, or give it a name \
             without a number"
        );
        return Err(ImageError::Usage(text));
    }
    let after = |nr: u32| (nr.saturating_add(1)..=u32::MAX).map(name);
    let others: Vec<_> = after(nr).take(PARTS_MAX).take_while(|other| other.exists()).collect();
    let missing = nr.saturating_add(1).saturating_add(others.len() as u32);
    if let Some(there) = after(missing).take(GAP_MAX).find(|other| other.exists()) {
        let (there, missing) = (there.display(), name(missing));
        let text = format!(
            "{there} is there and {} is missing; copy that, too, or give this image a name without \
             a number",
            missing.display()
        );
        return Err(ImageError::Usage(text));
    }
    Ok(others)
}
