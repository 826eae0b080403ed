//! VHDX (MS-VHDX 7.0).
//!
//! ```text
//!   0  "vhdxfile"   64K, 128K  headers   192K, 256K  region tables -> table of blocks, metadata
//!   entry of a block: state in the low 3 bits, place in units of 1 MiB above bit 20
//! ```

use super::mapped::Piece;
use super::{Runs, Source, damaged, le32, le64, unsupported};
use crate::Result;

pub(super) const MAGIC: &[u8] = b"vhdxfile";
const HEADERS: [u64; 2] = [64 << 10, 128 << 10];
const REGIONS: [u64; 2] = [192 << 10, 256 << 10];
const HEADER_BYTES: usize = 4096;
const REGION_BYTES: usize = 64 << 10;
const METADATA_BYTES: usize = 64 << 10;
const ENTRIES_MAX: u32 = 2047;
const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);

type Guid = [u8; 16];

/// As they are stored: the first three numbers in little endian.
const BLOCKS: Guid = *b"\x66\x77\xC2\x2D\x23\xF6\x00\x42\x9D\x64\x11\x5E\x9B\xFD\x4A\x08";
const METADATA: Guid = *b"\x06\xA2\x7C\x8B\x90\x47\x9A\x4B\xB8\xFE\x57\x5F\x05\x0F\x88\x6E";
const PARAMETERS: Guid = *b"\x37\x67\xA1\xCA\x36\xFA\x43\x4D\xB3\xB6\x33\xF0\xAA\x44\xE7\x6B";
const DISK_SIZE: Guid = *b"\x24\x42\xA5\x2F\x1B\xCD\x76\x48\xB2\x11\x5D\xBE\xD8\x3B\xF4\xB8";
const SECTOR_SIZE: Guid = *b"\x1D\xBF\x41\x81\x6F\xA9\x09\x47\xBA\x47\xF2\x33\xA8\xFA\xAB\x5F";

/// The structure with this mark whose checksum is right, of two copies; of two the newer one.
fn structure(source: &Source, places: [u64; 2], len: usize, mark: &[u8]) -> Result<Vec<u8>> {
    let mut found: Option<Vec<u8>> = None;
    for at in places {
        let mut bytes = source.bytes(at, len)?;
        let stored = le32(&bytes, 4);
        bytes[4..8].fill(0);
        let is_right = bytes.starts_with(mark) && CRC.checksum(&bytes) == stored;
        let newer = found.as_ref().is_none_or(|known| le64(&bytes, 8) > le64(known, 8));
        if is_right && newer {
            found = Some(bytes);
        }
    }
    found.ok_or_else(|| damaged("its headers have wrong checksums"))
}

pub(super) fn runs(source: &Source) -> Result<Runs> {
    let header = structure(source, HEADERS, HEADER_BYTES, b"head")?;
    if header[48..64] != [0; 16] {
        let text = "the VHDX was not closed and has a log; `qemu-img check -r all` replays it";
        return Err(unsupported(text));
    }
    let regions = structure(source, REGIONS, REGION_BYTES, b"regi")?;
    let (mut blocks, mut metadata) = (None, None);
    for entry in entries(&regions, 16, le32(&regions, 8))? {
        let place = (le64(entry, 16), le32(entry, 24) as usize);
        if entry.starts_with(&BLOCKS) {
            blocks = Some(place);
        } else if entry.starts_with(&METADATA) {
            metadata = Some(place);
        } else if le32(entry, 28) & 1 != 0 {
            return Err(unsupported("the VHDX has an unknown region; convert it with qemu-img"));
        }
    }
    let missing = || damaged("a region is missing");
    let ((blocks_at, blocks_len), (metadata_at, _)) =
        (blocks.ok_or_else(missing)?, metadata.ok_or_else(missing)?);
    let disk = Disk::read(source, metadata_at)?;
    disk.runs(source, blocks_at, blocks_len)
}

fn entries(table: &[u8], at: usize, count: u32) -> Result<impl Iterator<Item = &[u8]>> {
    if count > ENTRIES_MAX {
        return Err(damaged("a table has too many entries"));
    }
    let entries = table.get(at..at + count as usize * 32);
    Ok(entries.ok_or_else(|| damaged("a table is too short"))?.chunks_exact(32))
}

/// Values of the metadata.
struct Disk {
    size: u64,
    block: u64,
    sector: u64,
}

impl Disk {
    fn read(source: &Source, at: u64) -> Result<Disk> {
        let table = source.bytes(at, METADATA_BYTES)?;
        if !table.starts_with(b"metadata") {
            return Err(damaged("its metadata have no mark"));
        }
        let (mut size, mut block, mut sector) = (None, None, None);
        for entry in entries(&table, 32, le32(&table, 8) >> 16)? {
            let item = |len| source.bytes(at.saturating_add(le32(entry, 16).into()), len);
            if entry.starts_with(&PARAMETERS) {
                let parameters = item(8)?;
                if le32(&parameters, 4) & 2 != 0 {
                    return Err(unsupported(
                        "the VHDX has a parent; `qemu-img convert` makes one file of both",
                    ));
                }
                block = Some(u64::from(le32(&parameters, 0)));
            } else if entry.starts_with(&DISK_SIZE) {
                size = Some(le64(&item(8)?, 0));
            } else if entry.starts_with(&SECTOR_SIZE) {
                sector = Some(u64::from(le32(&item(4)?, 0)));
            }
        }
        let wrong = || damaged("its metadata are wrong");
        let fits = |block: &u64| block.is_power_of_two() && (1 << 20..=256 << 20).contains(block);
        Ok(Disk {
            size: size.filter(|size| *size <= 64 << 40).ok_or_else(wrong)?,
            block: block.filter(fits).ok_or_else(wrong)?,
            sector: sector.filter(|sector| matches!(sector, 512 | 4096)).ok_or_else(wrong)?,
        })
    }

    fn runs(&self, source: &Source, at: u64, len: usize) -> Result<Runs> {
        let blocks = self.size.div_ceil(self.block);
        // Behind so many blocks there is an entry of another kind.
        let group = (self.sector << 23) / self.block;
        let entries = blocks + blocks.saturating_sub(1) / group;
        if entries * 8 > len as u64 {
            return Err(damaged("its table of blocks is too short"));
        }
        let table = source.bytes(at, entries as usize * 8)?;
        let mut runs = Runs::default();
        for number in 0..blocks {
            let entry = le64(&table, ((number + number / group) * 8) as usize);
            let len = self.block.min(self.size - runs.end());
            let piece = match entry & 7 {
                0..=3 => Piece::Zeros,
                6 => Piece::At(entry >> 20 << 20),
                _ => return Err(damaged("a block is in an unknown state")),
            };
            runs.push(len, piece)?;
        }
        Ok(runs)
    }
}
