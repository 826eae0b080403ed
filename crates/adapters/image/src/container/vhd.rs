//! VHD ("Virtual Hard Disk Image Format Specification", Microsoft, 2006).
//!
//! ```text
//!   fixed     data | footer
//!   dynamic   copy of the footer | header | table: first sector of each block | blocks | footer
//!   block     bitmap in whole sectors | data
//! ```

use super::mapped::Piece;
use super::{Runs, Source, be32, be64, damaged, unsupported};
use crate::Result;

/// First bytes of a footer and of its copy.
pub(super) const MAGIC: &[u8] = b"conectix";
const FOOTER_BYTES: u64 = 512;
const HEADER_BYTES: usize = 1024;
const UNUSED: u32 = u32::MAX;

/// A disk of fixed size at the start of the file, or one in blocks.
pub(super) enum Vhd {
    Fixed(u64),
    Dynamic(Runs),
}

/// The sum of a structure whose own sum is at `at` is right.
fn is_summed(bytes: &[u8], at: usize) -> bool {
    let others = bytes.iter().enumerate().filter(|(n, _)| !(at..at + 4).contains(n));
    let sum = others.fold(0_u32, |sum, (_, byte)| sum.wrapping_add((*byte).into()));
    !sum == be32(bytes, at)
}

/// The disk, if there is a footer at the end.
pub(super) fn found(source: &Source) -> Result<Option<Vhd>> {
    let Some(at) = source.len.checked_sub(FOOTER_BYTES) else { return Ok(None) };
    let mut footer = source.bytes(at, FOOTER_BYTES as usize)?;
    let is_footer = |footer: &[u8]| footer.starts_with(MAGIC) && is_summed(footer, 64);
    if !is_footer(&footer) {
        // Where a file was cut its copy of the footer says what it was.
        footer = source.bytes(0, FOOTER_BYTES as usize)?;
        return match is_footer(&footer) {
            true => Err(damaged("its footer is missing")),
            false => Ok(None),
        };
    }
    let size = be64(&footer, 48);
    match be32(&footer, 60) {
        2 if size <= at && size % 512 == 0 => Ok(Some(Vhd::Fixed(size))),
        2 => Err(damaged("its footer has another size")),
        3 => Ok(Some(Vhd::Dynamic(dynamic(source, be64(&footer, 16), size)?))),
        4 => Err(unsupported(
            "the VHD has a parent; `qemu-img convert` makes one file of both, or merge them",
        )),
        _ => Err(damaged("its footer has an unknown type")),
    }
}

fn dynamic(source: &Source, at: u64, size: u64) -> Result<Runs> {
    let header = source.bytes(at, HEADER_BYTES)?;
    if !header.starts_with(b"cxsparse") || !is_summed(&header, 36) {
        return Err(damaged("its header is wrong"));
    }
    let (table, entries, block) = (be64(&header, 16), be32(&header, 28), be32(&header, 32));
    if !block.is_power_of_two() || block < 4096 || size.div_ceil(block.into()) > entries.into() {
        return Err(damaged("its header is wrong"));
    }
    let used = size.div_ceil(block.into()) as usize;
    let table = source.bytes(table, used * 4)?;
    let bitmap = (u64::from(block) / 512 / 8).next_multiple_of(512);
    let mut runs = Runs::default();
    for number in 0..used {
        let sector = be32(&table, number * 4);
        // The last block may be cut where the disk ends.
        let len = (size - runs.end()).min(block.into());
        let piece = match sector {
            UNUSED => Piece::Zeros,
            sector => Piece::At(u64::from(sector) * 512 + bitmap),
        };
        runs.push(len, piece)?;
    }
    Ok(runs)
}
