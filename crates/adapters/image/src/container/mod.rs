//! Disks in the files of other programs, read: Android sparse images, VHD, VHDX and VMDK.
//!
//! ```text
//!   file -> its format, by its bytes -> Runs: where each part of the disk is -> Mapped, a device
//! ```
//! They are read only, but for a VHD of fixed size, which is the disk and a footer. A compressed
//! file is unpacked into a file without a name first. qcow2 is in `crate::qcow2`.
//!
//! Promises
//! - A file never leads to another one: parents and extents in other files are refused. Only the
//!   name of a split sparse image does.
//! - Tables are bounded by the file and by [`RUNS_MAX`]; what lies outside of the file is an error
//!   at the start, not a read beyond. Checksums are checked where the format has them.
//! - What is not read is named, with the program that does ([`named`]).
//!
//! Tested in `tests/it/container.rs` with qemu-img, and here.

#[cfg(any(unix, windows))]
mod file;
mod known;
mod mapped;
mod sparse;
mod vhd;
mod vhdx;
mod vmdk;

use std::io;
use std::path::Path;
use std::sync::Arc;

use syncline_device::{BlockDevice, OffsetDevice};

#[cfg(any(unix, windows))]
pub(crate) use file::{
    Locked, disk, is_compressed, is_packed, only_read, others, unpacked, unpacking,
};
pub use known::named;
use mapped::{Mapped, Runs};
#[cfg(any(unix, windows))]
pub(crate) use sparse::others as next_names;

use crate::archive::input::without_zeros;
use crate::stream::{self, Bytes};
use crate::{ImageError, ReadAt, Result, qcow2};

/// Bytes moved at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Parts of a disk: what the tables of a disk of 2 TiB in pieces of 64 KiB have.
const RUNS_MAX: usize = 32 << 20;

/// A file that is read in pieces, never beyond its end.
struct Source {
    file: Box<dyn ReadAt>,
    len: u64,
    /// Where each of its files ends, if they are several.
    ends: Vec<u64>,
}

/// Files one behind the other, each with the place where it begins. No read crosses an end.
#[cfg(any(unix, windows))]
struct Joined(Vec<(u64, Box<dyn ReadAt>)>);

#[cfg(any(unix, windows))]
impl ReadAt for Joined {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let nr = self.0.partition_point(|(start, _)| *start <= at).checked_sub(1);
        let found = nr.and_then(|nr| self.0.get(nr)).ok_or(io::ErrorKind::UnexpectedEof)?;
        found.1.read_exact_at(into, at - found.0)
    }
}

impl Source {
    fn new(file: Box<dyn ReadAt>, len: u64) -> Source {
        Source { file, len, ends: vec![len] }
    }

    /// Files, each with its length.
    #[cfg(any(unix, windows))]
    fn joined(files: Vec<(Box<dyn ReadAt>, u64)>) -> Source {
        let (mut joined, mut ends, mut len) = (Vec::new(), Vec::new(), 0_u64);
        for (file, bytes) in files {
            joined.push((len, file));
            len = len.saturating_add(bytes);
            ends.push(len);
        }
        Source { file: Box::new(Joined(joined)), len, ends }
    }

    fn bytes(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let inside = at.checked_add(len as u64).is_some_and(|end| end <= self.len);
        if !inside {
            return Err(damaged("it ends early"));
        }
        let mut bytes = vec![0; len];
        let read = self.file.read_exact_at(&mut bytes, at);
        read.map_err(|err| damaged(&crate::plain(&err)))?;
        Ok(bytes)
    }
}

fn damaged(why: &str) -> ImageError {
    ImageError::Corrupt(format!("the image file is damaged: {why}; take another copy of it"))
}

pub(crate) fn unsupported(text: &str) -> ImageError {
    ImageError::Unsupported(text.to_owned())
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |part| u32::from_le_bytes(*part))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |part| u64::from_le_bytes(*part))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |part| u32::from_be_bytes(*part))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |part| u64::from_be_bytes(*part))
}

/// Where the disk is in a file.
enum Found {
    Raw,
    /// The first bytes.
    Start(u64),
    Runs(Runs),
}

fn found(source: &Source) -> Result<Found> {
    let start = source.bytes(0, 512.min(source.len) as usize)?;
    let runs = if start.starts_with(&sparse::MAGIC) {
        sparse::runs(source)?
    } else if start.starts_with(vhdx::MAGIC) {
        vhdx::runs(source)?
    } else if start.starts_with(vmdk::MAGIC) {
        vmdk::runs(source)?
    } else if let Some(other) = vmdk::refused(&start) {
        return Err(other);
    } else {
        return Ok(match vhd::found(source)? {
            None => Found::Raw,
            Some(vhd::Vhd::Fixed(len)) => Found::Start(len),
            Some(vhd::Vhd::Dynamic(runs)) => Found::Runs(runs),
        });
    };
    Ok(Found::Runs(runs))
}

/// The disk in a file that a program reads: `raw` gives its bytes as a device, `bytes` as they are,
/// `len` of them. It is that of a qcow2, an Android sparse image, a VHD, VHDX or VMDK, or the file
/// itself. All but a file itself and a VHD of fixed size are only read.
///
/// # Errors
/// A file that is damaged, or has what is not supported.
pub fn disk_of(
    raw: Arc<dyn BlockDevice>,
    bytes: Box<dyn ReadAt>,
    len: u64,
) -> Result<Arc<dyn BlockDevice>> {
    if qcow2::is_qcow2(&*raw) {
        return Ok(Arc::new(qcow2::Reader::open(bytes, len, None)?));
    }
    let source = Source::new(bytes, len);
    Ok(match found(&source)? {
        Found::Raw => raw,
        Found::Start(len) => Arc::new(OffsetDevice::new(raw, 0, len)?),
        Found::Runs(runs) => Arc::new(Mapped::new(source, runs)?),
    })
}

/// Unpacks compressed bytes, which begin as [`stream::is_compressed`] says: `write` gets those that
/// are not zero and their place. Returns how many there are with the zeros.
///
/// # Errors
/// Bytes that do not verify; an error of `write`.
pub fn unpack(
    bytes: Bytes,
    path: &Path,
    write: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<u64> {
    unpack_each(bytes, path, &mut |part, at| {
        without_zeros(part).try_for_each(|(from, data)| write(data, at + from))
    })
}

/// As [`unpack`], with all bytes.
fn unpack_each(
    bytes: Bytes,
    path: &Path,
    each: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<u64> {
    let (mut bytes, _) = stream::decoded(bytes, path)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut len = 0;
    loop {
        let part = match bytes.read(&mut chunk) {
            Ok(0) => return Ok(len),
            Ok(read) => chunk.get(..read).unwrap_or_default(),
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(err) => return Err(damaged(&crate::plain(&err))),
        };
        each(part, len)?;
        len += part.len() as u64;
    }
}
