//! Header of a qcow2 file (QEMU's docs/interop/qcow2.txt), checked before the crate imago reads it.
//!
//! ```text
//!   0 "QFI\xfb"  4 version   8 backing file   20 cluster bits   24 size of the disk
//!   36 entries of the L1 table, 40 where it is   48 refcount table, 56 its clusters
//!   72 incompatible features (version 3)   96 refcount bits, log2   104 compression
//! ```
//!
//! Promises: what the file says about its own size is compared with the file before anything is
//! allocated by it; a file that was cut short, needs another file, or has a feature that is not
//! supported is refused by name. Tested in `tests/it/qcow2.rs`, with files of qemu-img.

#[cfg(feature = "qcow2")]
use std::fs::File;

use crate::{ImageError, ReadAt, Result};

/// Longest name of a backing file.
const NAME_BYTES_MAX: usize = 1023;
/// Bytes of the header of version 3 without what may follow.
const HEADER_BYTES: usize = 104;
/// Largest tables that are read into memory: QEMU's own limits are 32 MiB and 8 MiB.
const L1_BYTES_MAX: u64 = 32 << 20;
const REFCOUNT_TABLE_BYTES_MAX: u64 = 8 << 20;
/// Bits of an entry of the L1 and of the refcount table that are an offset in the file.
pub(super) const OFFSET_MASK: u64 = 0x00FF_FFFF_FFFF_FE00;
/// Byte of the incompatible features that has [`DIRTY`].
#[cfg(feature = "qcow2")]
const FEATURES_AT: u64 = 79;
/// The refcounts may be wrong; qemu-img repairs them.
const DIRTY: u8 = 1;
/// The header says how clusters are compressed.
const COMPRESSION: u64 = 1 << 3;
const COMPRESSION_AT: u64 = 104;
const ZSTD: u8 = 1;
/// Names of the incompatible features, from bit 0 on. A file with the first is repaired.
const FEATURES: [&str; 5] = [
    "dirty",
    "corrupt",
    "external data file",
    "another compression than zlib and zstd",
    "extended L2 entries",
];

/// Checked fields of a header.
pub(super) struct Header {
    /// Version 3, which has feature bits.
    #[cfg_attr(not(feature = "qcow2"), allow(dead_code, reason = "asked by writers"))]
    pub(super) has_features: bool,
    /// The file was written to and not closed: its refcounts have to be repaired.
    pub(super) dirty: bool,
    /// Name of the file below it, as the file has it; only for messages.
    pub(super) backing: Option<String>,
    /// Clusters are compressed with zstd, which imago does not read.
    pub(super) is_zstd: bool,
    pub(super) cluster_bits: u32,
    /// Size of the disk.
    pub(super) size_bytes: u64,
    pub(super) l1_bytes: u64,
    pub(super) l1_at: u64,
    refcounts_at: u64,
    refcount_table_bytes: u64,
    refcount_bits: u32,
}

pub(super) fn corrupt(why: &str) -> ImageError {
    ImageError::Corrupt(format!("the qcow2 {why}; take another copy of the file"))
}

fn unsupported(what: &str) -> ImageError {
    let next = "`qemu-img convert -O qcow2` writes a copy without that";
    ImageError::Unsupported(format!("the qcow2 has {what}, which is not supported; {next}"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.map_or(0, |part| u32::from_be_bytes(*part))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.map_or(0, |part| u64::from_be_bytes(*part))
}

impl Header {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// A file that cannot be read, is cut short or corrupt, or has what is not supported.
    pub(super) fn read(file: &dyn ReadAt, file_bytes: u64) -> Result<Header> {
        let mut bytes = [0; HEADER_BYTES];
        if file_bytes < HEADER_BYTES as u64 {
            return Err(corrupt("ends within its header"));
        }
        file.read_exact_at(&mut bytes, 0).map_err(|err| corrupt(&crate::plain(&err)))?;
        let version = u32_at(&bytes, 4);
        if !(2..=3).contains(&version) {
            return Err(unsupported(&format!("version {version}")));
        }
        let has_features = version == 3;
        let features = if has_features { u64_at(&bytes, 72) } else { 0 };
        let mut compression = [0];
        if features & COMPRESSION != 0 {
            let read = file.read_exact_at(&mut compression, COMPRESSION_AT);
            read.map_err(|err| corrupt(&crate::plain(&err)))?;
        }
        let is_zstd = compression == [ZSTD];
        refuse_features(if is_zstd { features & !COMPRESSION } else { features })?;
        let backing = match u64_at(&bytes, 8) {
            0 => None,
            at => {
                let mut name = vec![0; (u32_at(&bytes, 16) as usize).min(NAME_BYTES_MAX)];
                let read = file.read_exact_at(&mut name, at);
                read.map_err(|err| corrupt(&crate::plain(&err)))?;
                Some(String::from_utf8_lossy(&name).into_owned())
            }
        };
        if u32_at(&bytes, 32) != 0 {
            return Err(unsupported("encryption"));
        }
        let header = Header {
            has_features,
            dirty: features & u64::from(DIRTY) != 0,
            backing,
            is_zstd,
            cluster_bits: u32_at(&bytes, 20),
            size_bytes: u64_at(&bytes, 24),
            l1_bytes: u64::from(u32_at(&bytes, 36)) * 8,
            l1_at: u64_at(&bytes, 40),
            refcounts_at: u64_at(&bytes, 48),
            refcount_table_bytes: 0,
            refcount_bits: if has_features { u32_at(&bytes, 96) } else { 4 },
        };
        if !(9..=21).contains(&header.cluster_bits) || header.refcount_bits > 6 {
            return Err(corrupt("has clusters or refcounts of no known size"));
        }
        let clusters = u64::from(u32_at(&bytes, 56));
        let header = Header { refcount_table_bytes: clusters << header.cluster_bits, ..header };
        if header.l1_bytes > L1_BYTES_MAX || header.refcount_table_bytes > REFCOUNT_TABLE_BYTES_MAX
        {
            return Err(corrupt("has tables larger than QEMU allows"));
        }
        let entries = header.l1_bytes / 8;
        let covered = entries.checked_shl(2 * header.cluster_bits - 3).unwrap_or(u64::MAX);
        if header.size_bytes > covered {
            return Err(corrupt("has a disk larger than its tables"));
        }
        header.is_whole(file, file_bytes)?;
        Ok(header)
    }

    /// Fails if the file is over another one and none is given, or the other way round. The name
    /// in the file is never opened, because an untrusted image could name any file of this machine.
    pub(super) fn expects(&self, is_given: bool) -> Result<()> {
        match &self.backing {
            Some(name) if !is_given => {
                let text = format!(
                    "the qcow2 is over the file `{name}`, which is not opened because the image \
                     names it; if it is yours, name it with --backing, or let \
                     `qemu-img convert -O qcow2` make one file of both"
                );
                Err(ImageError::Unsupported(text))
            }
            None if is_given => {
                let text = "the image is over no other file; leave --backing away";
                Err(ImageError::Usage(text.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Fails if something that is in use lies beyond the end of the file.
    fn is_whole(&self, file: &dyn ReadAt, file_bytes: u64) -> Result<()> {
        let cut = || corrupt("was cut short: parts of it lie beyond its end");
        let table = |at: u64, len: u64| {
            let end = at.checked_add(len).filter(|end| *end <= file_bytes).ok_or_else(cut)?;
            let mut bytes = vec![0; (end - at) as usize];
            file.read_exact_at(&mut bytes, at).map_err(|err| corrupt(&crate::plain(&err)))?;
            Ok::<_, ImageError>(bytes)
        };
        let entries = |bytes: Vec<u8>| {
            let words = bytes.chunks_exact(8).map(|word| u64_at(word, 0) & OFFSET_MASK);
            words.collect::<Vec<_>>()
        };
        let cluster_bytes = 1_u64 << self.cluster_bits;
        let inside = |at: u64| at.checked_add(cluster_bytes).is_some_and(|end| end <= file_bytes);
        for at in entries(table(self.l1_at, self.l1_bytes)?) {
            if at != 0 && !inside(at) {
                return Err(cut());
            }
        }
        let blocks = entries(table(self.refcounts_at, self.refcount_table_bytes)?);
        // The last cluster in use need not be whole, but it begins within the file.
        let Some((nr, at)) = (0_u64..).zip(blocks).filter(|(_, at)| *at != 0).last() else {
            return Ok(());
        };
        if !inside(at) {
            return Err(cut());
        }
        let counts = table(at, cluster_bytes)?;
        let used = counts.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
        let per_block = (cluster_bytes * 8) >> self.refcount_bits;
        let last = nr.saturating_mul(per_block).saturating_add((used * 8) >> self.refcount_bits);
        if !self.dirty && last.saturating_mul(cluster_bytes) >= file_bytes {
            return Err(cut());
        }
        Ok(())
    }
}

fn refuse_features(features: u64) -> Result<()> {
    let Some(bit) = (1..64).find(|bit| features >> bit & 1 != 0) else { return Ok(()) };
    if bit == 1 {
        let text = "the qcow2 is marked corrupt; run `qemu-img check -r all` on it";
        return Err(ImageError::Corrupt(text.to_owned()));
    }
    let unknown = format!("the incompatible feature {bit}");
    Err(unsupported(FEATURES.get(bit).map_or(unknown.as_str(), |name| name)))
}

/// Sets or clears the mark that the refcounts may be wrong, durably.
///
/// # Errors
/// As of pwrite(2) and fdatasync(2).
#[cfg(feature = "qcow2")]
pub(super) fn mark_dirty(file: &File, dirty: bool) -> std::io::Result<()> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, FEATURES_AT)?;
    let [now] = byte;
    let marked = if dirty { now | DIRTY } else { now & !DIRTY };
    crate::platform::write_all_at(file, &[marked], FEATURES_AT)?;
    file.sync_data()
}
