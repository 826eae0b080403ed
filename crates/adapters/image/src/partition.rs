//! Partitions of a whole-disk image: GPT (UEFI specification 2.10, chapter 5) and MBR.
//!
//! ```text
//!   sector 0   MBR: four entries of 16 bytes at 446, type 0xEE: a GPT follows
//!              type 5, F: a chain of sectors, each with one logical partition and the next link
//!   sector 1   GPT header: "EFI PART", CRCs, where the entries are; a copy in the last sector
//! ```
//!
//! Only read, with sectors of 512 and 4096 bytes. Not through the crates gpt and gptman: with a
//! hostile table the first panics (it asserts the size of an entry) and the second allocates by a
//! number that nobody checked; mbrman needs bincode, which nobody keeps.
//!
//! Promises: at most [`ENTRIES_MAX`] entries and [`LINKS_MAX`] links are read; a partition that
//! leaves the device is an error, never a read beyond. Tested in `cli/tests/it/transfer.rs`.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use syncline_device::{BlockDevice, Kind, OffsetDevice, Origin};
use syncline_ondisk::Superblock;
use syncline_ondisk::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};

use crate::{ImageError, Result};

/// Entries of a GPT: eight times what every tool makes.
const ENTRIES_MAX: u32 = 1024;
/// Sizes of an entry: the least that the standard allows, and eight times that.
const ENTRY_BYTES: std::ops::RangeInclusive<u32> = 128..=1024;
/// Logical partitions of an MBR.
const LINKS_MAX: u32 = 128;
const ORIGIN: Origin = Origin::new(Kind::Metadata, true);
const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

/// Part of a file or device that holds the ext4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// The partition of this number, from 1 as in `fdisk -l`.
    Partition(u32),
    /// From this byte to the end.
    Offset(u64),
}

/// An entry of a partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// From 1; logical partitions of an MBR from 5.
    pub number: u32,
    /// First byte.
    pub start_bytes: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Its name in a GPT, or its type in an MBR.
    pub label: String,
}

fn corrupt(why: &str) -> ImageError {
    ImageError::Corrupt(format!("the partition table {why}; repair it with sfdisk or gdisk"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.map_or(0, |part| u32::from_le_bytes(*part))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.map_or(0, |part| u64::from_le_bytes(*part))
}

fn read(dev: &dyn BlockDevice, at: u64, len: usize) -> Result<Vec<u8>> {
    let end = at.checked_add(len as u64).filter(|end| *end <= dev.geometry().size_bytes);
    if end.is_none() {
        return Err(corrupt("reaches beyond the end of the image"));
    }
    let mut bytes = vec![0; len];
    dev.read(at, &mut bytes, ORIGIN)?;
    Ok(bytes)
}

/// The partitions of a device, by number; none where there is no table.
///
/// # Errors
/// A table that is damaged in both copies, or contradicts the size of the device.
pub fn partitions(dev: &dyn BlockDevice) -> Result<Vec<Partition>> {
    let size = dev.geometry().size_bytes;
    if size < 1024 {
        return Ok(Vec::new());
    }
    let first = read(dev, 0, 512)?;
    let marked = first.get(510..) == Some(&[0x55, 0xAA]);
    let protective = marked && (0..4).any(|n| first.get(446 + 16 * n + 4) == Some(&0xEE));
    let mut failed = None;
    for sector in [512_u64, 4096] {
        for at in [sector, (size / sector).saturating_sub(1) * sector] {
            match gpt(dev, at, sector) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(err) => failed = failed.or(Some(err)),
            }
        }
    }
    match failed {
        Some(err) => Err(err),
        None if protective => Err(corrupt("is a GPT whose headers are both missing")),
        None if marked => mbr(dev, &first),
        None => Ok(Vec::new()),
    }
}

/// The entries of a GPT whose header is at `at`; none where there is no mark.
fn gpt(dev: &dyn BlockDevice, at: u64, sector: u64) -> Result<Option<Vec<Partition>>> {
    if at.saturating_add(512) > dev.geometry().size_bytes {
        return Ok(None);
    }
    let header = read(dev, at, 512)?;
    if !header.starts_with(b"EFI PART") {
        return Ok(None);
    }
    let header_bytes = u32_at(&header, 12) as usize;
    let mut summed = header.get(..header_bytes).unwrap_or_default().to_vec();
    if !(92..=512).contains(&header_bytes) {
        return Err(corrupt("has a header of no known size"));
    }
    summed.iter_mut().skip(16).take(4).for_each(|byte| *byte = 0);
    if CRC.checksum(&summed) != u32_at(&header, 16) {
        return Err(corrupt("has a header with a wrong checksum"));
    }
    let (count, entry_bytes) = (u32_at(&header, 80), u32_at(&header, 84));
    if count > ENTRIES_MAX || !ENTRY_BYTES.contains(&entry_bytes) {
        return Err(corrupt(&format!("has {count} entries of {entry_bytes} bytes")));
    }
    let bytes = (count * entry_bytes) as usize;
    let from = u64_at(&header, 72).checked_mul(sector).ok_or_else(|| corrupt("has no entries"))?;
    let entries = read(dev, from, bytes.next_multiple_of(512))?;
    let entries = entries.get(..bytes).unwrap_or_default();
    if CRC.checksum(entries) != u32_at(&header, 88) {
        return Err(corrupt("has entries with a wrong checksum"));
    }
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(entries.chunks_exact(entry_bytes as usize)) {
        if entry.iter().take(16).all(|byte| *byte == 0) {
            continue;
        }
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        let sectors = last.checked_sub(first).and_then(|n| n.checked_add(1));
        let name: Vec<u16> = entry
            .get(56..128)
            .unwrap_or_default()
            .chunks_exact(2)
            .map(|pair| pair.iter().rev().fold(0, |n, byte| n << 8 | u16::from(*byte)))
            .take_while(|unit| *unit != 0)
            .collect();
        let name = String::from_utf16_lossy(&name).replace(char::is_control, "?");
        found.push(entry_of(dev, number, Some(first), sectors, sector, name)?);
    }
    Ok(Some(found))
}

/// An entry, if it lies on the device.
fn entry_of(
    dev: &dyn BlockDevice,
    number: u32,
    first: Option<u64>,
    sectors: Option<u64>,
    sector: u64,
    label: String,
) -> Result<Partition> {
    let start_bytes = first.and_then(|first| first.checked_mul(sector));
    let size_bytes = sectors.and_then(|sectors| sectors.checked_mul(sector));
    let inside = |(start, size): &(u64, u64)| {
        start.checked_add(*size).is_some_and(|end| end <= dev.geometry().size_bytes)
    };
    let (start_bytes, size_bytes) = start_bytes
        .zip(size_bytes)
        .filter(inside)
        .ok_or_else(|| corrupt(&format!("puts partition {number} beyond the end of the image")))?;
    Ok(Partition { number, start_bytes, size_bytes, label })
}

/// An entry of a boot sector.
struct BootEntry {
    status: u8,
    kind: u8,
    first: u64,
    sectors: u64,
}

fn boot_entries(sector: &[u8]) -> Vec<BootEntry> {
    let entry = |e: &[u8]| {
        let byte = |at: usize| e.get(at).copied().unwrap_or(0);
        let (first, sectors) = (u32_at(e, 8).into(), u32_at(e, 12).into());
        BootEntry { status: byte(0), kind: byte(4), first, sectors }
    };
    sector.get(446..510).unwrap_or_default().chunks_exact(16).map(entry).collect()
}

/// The partitions of an MBR. The boot sector of a file system has the same mark: entries that are
/// no partitions are none.
fn mbr(dev: &dyn BlockDevice, first: &[u8]) -> Result<Vec<Partition>> {
    let primary = boot_entries(first);
    if primary.iter().any(|entry| entry.status & 0x7F != 0) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(primary) {
        match entry.kind {
            0 => {}
            5 | 0xF | 0x85 => logical(dev, entry.first, &mut found)?,
            kind => {
                let label = format!("type {kind:02x}");
                let (first, sectors) = (Some(entry.first), Some(entry.sectors));
                found.push(entry_of(dev, number, first, sectors, 512, label)?);
            }
        }
    }
    found.sort_by_key(|partition| partition.number);
    Ok(found)
}

/// The chain of an extended partition that begins at sector `base`.
fn logical(dev: &dyn BlockDevice, base: u64, found: &mut Vec<Partition>) -> Result<()> {
    let mut link = base;
    for number in 5..5 + LINKS_MAX {
        let sector = read(dev, link * 512, 512)?;
        if sector.get(510..) != Some(&[0x55, 0xAA]) {
            return Err(corrupt("has an extended partition without a mark"));
        }
        let [entry, next, ..] = &boot_entries(&sector)[..] else { return Ok(()) };
        if entry.kind != 0 {
            let label = format!("type {:02x}", entry.kind);
            let (first, sectors) = (Some(link + entry.first), Some(entry.sectors));
            found.push(entry_of(dev, number, first, sectors, 512, label)?);
        }
        if next.kind == 0 || next.first == 0 {
            return Ok(());
        }
        link = base + next.first;
    }
    Err(corrupt("has a chain of logical partitions that does not end"))
}

/// The part of a device that was asked for.
///
/// # Errors
/// No such partition, or an offset that is none; the message lists what there is.
pub fn part_of(dev: Arc<dyn BlockDevice>, part: Part, path: &Path) -> Result<Arc<dyn BlockDevice>> {
    let size = dev.geometry().size_bytes;
    let (start, len) = match part {
        Part::Whole => return Ok(dev),
        Part::Offset(offset) if offset < size && offset % 512 == 0 => {
            (offset, (size - offset) / 512 * 512)
        }
        Part::Offset(offset) => {
            let text = format!(
                "no ext4 can begin at byte {offset}; give a multiple of 512 below {size}, `fdisk \
                 -l` shows sectors"
            );
            return Err(ImageError::Usage(text).at(path.display()));
        }
        Part::Partition(number) => {
            let all = partitions(&*dev).map_err(|err| err.at(path.display()))?;
            let found = all.iter().find(|partition| partition.number == number);
            let found = found.ok_or_else(|| {
                let there = if all.is_empty() {
                    "there is no partition table; leave --partition out".to_owned()
                } else {
                    format!("there are {}", listed(&*dev, &all))
                };
                ImageError::Usage(format!("no partition {number}; {there}")).at(path.display())
            })?;
            (found.start_bytes, found.size_bytes)
        }
    };
    Ok(Arc::new(OffsetDevice::new(dev, start, len)?))
}

/// The partitions in a line, those with an ext4 marked.
pub(crate) fn listed(dev: &dyn BlockDevice, partitions: &[Partition]) -> String {
    let mut text = String::new();
    for partition in partitions {
        let has_ext4 = is_ext4(dev, partition);
        let comma = if text.is_empty() { "" } else { ", " };
        let kind = if has_ext4 { "ext4" } else { "no ext4" };
        let (number, label) = (partition.number, &partition.label);
        let mib = partition.size_bytes >> 20;
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{number} ({label}, {mib} MiB, {kind})");
    }
    text
}

fn is_ext4(dev: &dyn BlockDevice, partition: &Partition) -> bool {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    partition.size_bytes >= SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64
        && dev.read(partition.start_bytes + SUPERBLOCK_OFFSET, &mut bytes, ORIGIN).is_ok()
        && Superblock::decode(&bytes).is_ok()
}
