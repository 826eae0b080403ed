//! Volumes of a multi-volume archive of GNU tar (`tar -M`).
//!
//! ```text
//!   volume 1   headers, data ... cut anywhere
//!   volume 2   [V label] M header                      (formats gnu, oldgnu)
//!              [V label] g GNU.volume.*, x, a header   (format posix)
//!              the rest of what was cut ...
//! ```
//! So an archive is the volumes in a row without what each has in front. The size in front is that
//! of the data which is left of the file; it tells a volume that is missing or in the wrong place.
//! Tested in `cli/tests/it/archives.rs` with GNU tar.

use std::io::Read;

use super::pax::{self, bad, number};
use super::reader::{checked, failed};
use super::{BLOCK_BYTES, EXTENDED_BYTES_MAX, fields};
use crate::Result;

type Block = [u8; BLOCK_BYTES];

/// Reads what a volume has in front. `left`: bytes of data that the file lacks; none in a header.
/// Returns a block that is part of the archive itself.
pub(super) fn start(from: &mut dyn Read, left: Option<u64>) -> Result<Option<Block>> {
    let mut block = block(from)?;
    if block[156] == b'V' && checked(&block).is_ok() {
        block = self::block(from)?;
    }
    let part = match block[156] {
        b'M' => {
            let header = checked(&block)?;
            // Where GNU's headers have it; this one has no magic.
            let offset = fields::unsigned(&block[369..381])?;
            Some((fields::unsigned(&header.as_old().size)?, offset))
        }
        b'g' => {
            let part_of = part_of(from, &checked(&block)?)?;
            // The part again, as a file that others may unpack.
            let mut part = self::block(from)?;
            if part[156] == b'x' {
                extended(from, &checked(&part)?)?;
                part = self::block(from)?;
            }
            checked(&part)?;
            Some(part_of)
        }
        _ => None,
    };
    match (part, left) {
        // Cut in a header of the file, so the file has not begun.
        (Some((_, 0)), _) | (Some(_), None) => Ok(None),
        (Some((size, _)), Some(left)) if size == left => Ok(None),
        (None, None) => Ok(Some(block)),
        (Some(_), Some(_)) => Err(bad("a volume is missing or in the wrong place")),
        (None, Some(_)) => Err(bad("a volume does not go on with the file before it")),
    }
}

fn block(from: &mut dyn Read) -> Result<Block> {
    let mut block = [0; BLOCK_BYTES];
    from.read_exact(&mut block).map_err(|err| failed(&err))?;
    Ok(block)
}

/// The data of an extended header.
fn extended(from: &mut dyn Read, header: &tar::Header) -> Result<Vec<u8>> {
    let size = fields::unsigned(&header.as_old().size)?;
    if size > EXTENDED_BYTES_MAX {
        return Err(bad("an extended header of more than 8 MiB"));
    }
    let mut bytes = vec![0; (size as usize).next_multiple_of(BLOCK_BYTES)];
    from.read_exact(&mut bytes).map_err(|err| failed(&err))?;
    bytes.truncate(size as usize);
    Ok(bytes)
}

/// Size and offset of the part, in the global header of a volume.
fn part_of(from: &mut dyn Read, header: &tar::Header) -> Result<(u64, u64)> {
    let records = pax::decode(&extended(from, header)?)?;
    let of = |wanted: &[u8]| {
        let record = records.iter().find(|(key, _)| key == wanted);
        record.and_then(|(_, value)| number(value)).ok_or_else(|| bad("a volume without a size"))
    };
    Ok((of(b"GNU.volume.size")?, of(b"GNU.volume.offset")?))
}
