//! Android's sparse images (`system/core/libsparse/sparse_format.h`).
//!
//! ```text
//!   magic, version, sizes of both headers, block size, blocks, chunks, checksum
//!   chunk: type, blocks, bytes | data        raw, four bytes to repeat, nothing, a checksum
//! ```

use super::mapped::Piece;
use super::{Runs, Source, damaged, le32, unsupported};
use crate::Result;

pub(super) const MAGIC: [u8; 4] = [0x3A, 0xFF, 0x26, 0xED];
const HEADER_BYTES: u64 = 28;
const CHUNK_BYTES: u64 = 12;
/// Blocks of at most 1 MiB, as fastboot has them.
const BLOCK_BYTES_MAX: u32 = 1 << 20;

pub(super) fn runs(source: &Source) -> Result<Runs> {
    let header = source.bytes(0, HEADER_BYTES as usize)?;
    let half = |at: usize| u64::from(le32(&header, at) & 0xFFFF);
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
    let (mut runs, mut at) = (Runs::default(), header_bytes);
    for _ in 0..chunks {
        let head = source.bytes(at, CHUNK_BYTES as usize)?;
        let (count, total) = (u64::from(le32(&head, 4)), u64::from(le32(&head, 8)));
        let data = total.checked_sub(chunk_bytes).ok_or_else(|| damaged("a chunk is too short"))?;
        let from = at + chunk_bytes;
        let len = count * block;
        let piece = match (le32(&head, 0) & 0xFFFF, data) {
            (0xCAC1, data) if data == len => Some(Piece::At(from)),
            (0xCAC2, 4) => {
                let fill = le32(&source.bytes(from, 4)?, 0).to_le_bytes();
                Some(if fill == [0; 4] { Piece::Zeros } else { Piece::Fill(fill) })
            }
            (0xCAC3, 0) => Some(Piece::Zeros),
            (0xCAC4, 4) => None,
            _ => return Err(damaged("a chunk is of an unknown type or size")),
        };
        if let Some(piece) = piece {
            runs.push(len, piece)?;
        }
        at = from + data;
    }
    if runs.end() != u64::from(blocks) * block {
        return Err(damaged("its chunks do not give the size of the disk"));
    }
    Ok(runs)
}
