//! VMDK in one file ("Virtual Disk Format 5.0", VMware): `monolithicSparse` and `streamOptimized`.
//!
//! ```text
//!   "KDMV", flags, capacity, grain size | descriptor, text | directory -> tables -> grains
//!   compressed: each grain is its place, its length and a zlib stream; the directory is found
//!   through a copy of the header at the end of the file
//! ```

use super::mapped::Piece;
use super::{Runs, Source, damaged, le32, le64, unsupported};
use crate::{ImageError, Result};

pub(super) const MAGIC: &[u8] = b"KDMV";
const SECTOR: u64 = 512;
/// The directory is at the end.
const AT_END: u64 = u64::MAX;
const COMPRESSED: u32 = 1 << 16;
const ZEROED_GRAINS: u32 = 1 << 2;
/// Tables that others make have 512 entries, grains 128 sectors.
const ENTRIES_MAX: u32 = 1 << 16;
const GRAIN_SECTORS_MAX: u64 = 1 << 16;
const DESCRIPTOR_BYTES_MAX: u64 = 1 << 20;

/// Refuses files that lead to others.
pub(super) fn refused(start: &[u8]) -> Option<ImageError> {
    let is_text = start.starts_with(b"# Disk DescriptorFile");
    (is_text || start.starts_with(b"COWD")).then(|| {
        unsupported(
            "the VMDK has its data in other files; `qemu-img convert -O qcow2` makes one file",
        )
    })
}

pub(super) fn runs(source: &Source) -> Result<Runs> {
    let mut header = source.bytes(0, SECTOR as usize)?;
    if !(1..=3).contains(&le32(&header, 4)) {
        return Err(unsupported("the VMDK is of an unknown version; convert it with qemu-img"));
    }
    descriptor(source, le64(&header, 28), le64(&header, 36))?;
    if le64(&header, 56) == AT_END {
        let at = source.len.checked_sub(2 * SECTOR).ok_or_else(|| damaged("it ends early"))?;
        header = source.bytes(at, SECTOR as usize)?;
        if !header.starts_with(MAGIC) {
            return Err(damaged("its footer is missing"));
        }
    }
    let flags = le32(&header, 8);
    let (capacity, grain, entries) = (le64(&header, 12), le64(&header, 20), le32(&header, 44));
    let fits = (1..=GRAIN_SECTORS_MAX).contains(&grain) && (1..=ENTRIES_MAX).contains(&entries);
    let size = capacity.checked_mul(SECTOR).filter(|size| fits && *size <= 64 << 40);
    let size = size.ok_or_else(|| damaged("its header is wrong"))?;
    let grains = capacity.div_ceil(grain);
    let tables = grains.div_ceil(entries.into());
    let at = |sector: u64| sector.checked_mul(SECTOR).ok_or_else(|| damaged("a table is nowhere"));
    let directory = source.bytes(at(le64(&header, 56))?, tables as usize * 4)?;
    let mut runs = Runs::default();
    for table in directory.chunks_exact(4).map(|entry| u64::from(le32(entry, 0))) {
        let left = (size - runs.end()).div_ceil(grain * SECTOR).min(entries.into());
        if table == 0 {
            runs.push((left * grain * SECTOR).min(size - runs.end()), Piece::Zeros)?;
            continue;
        }
        let table = source.bytes(table * SECTOR, left as usize * 4)?;
        for entry in table.chunks_exact(4).map(|entry| le32(entry, 0)) {
            let at = u64::from(entry) * SECTOR;
            let piece = match entry {
                0 => Piece::Zeros,
                1 if flags & ZEROED_GRAINS != 0 => Piece::Zeros,
                _ if flags & COMPRESSED != 0 => {
                    let packed = le32(&source.bytes(at, 12)?, 8);
                    // zlib makes nothing much longer.
                    if u64::from(packed) > 2 * grain * SECTOR + SECTOR {
                        return Err(damaged("a grain is too long"));
                    }
                    Piece::Zlib(at + 12, packed)
                }
                _ => Piece::At(at),
            };
            runs.push((grain * SECTOR).min(size - runs.end()), piece)?;
        }
    }
    Ok(runs)
}

/// Refuses what has its data in other files.
fn descriptor(source: &Source, sector: u64, sectors: u64) -> Result<()> {
    let len = sectors.saturating_mul(SECTOR);
    let other_files = "the VMDK is a part of a disk in several files; name the others' descriptor \
                       to `qemu-img convert -O qcow2`, which makes one file";
    if sector == 0 || len == 0 {
        return Err(unsupported(other_files));
    }
    if len > DESCRIPTOR_BYTES_MAX {
        return Err(damaged("its descriptor is too long"));
    }
    let text = source.bytes(sector.saturating_mul(SECTOR), len as usize)?;
    let text = String::from_utf8_lossy(&text);
    let value = |key: &str| {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let found = lines.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case(key));
        found.map(|(_, value)| value.trim().trim_matches('"').to_ascii_lowercase())
    };
    if value("parentCID").is_some_and(|parent| parent != "ffffffff") {
        return Err(unsupported(
            "the VMDK has a parent; `qemu-img convert` makes one file of both",
        ));
    }
    match value("createType").as_deref() {
        Some("monolithicsparse" | "streamoptimized") => Ok(()),
        _ => Err(unsupported(other_files)),
    }
}
