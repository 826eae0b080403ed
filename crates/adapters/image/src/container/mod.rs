//! Disks in the files of other programs, read: Android sparse images, VHD, VHDX and VMDK.
//!
//! ```text
//!   file -> its format, by its bytes -> Runs: where each part of the disk is -> Mapped, a device
//! ```
//! They are read only, but for a VHD of fixed size, which is the disk and a footer. A compressed
//! file is unpacked into a file without a name first. qcow2 is in `crate::qcow2`.
//!
//! Promises
//! - A file never leads to another one: parents and extents in other files are refused.
//! - Tables are bounded by the file and by [`RUNS_MAX`]; what lies outside of the file is an error
//!   at the start, not a read beyond. Checksums are checked where the format has them.
//! - What is not read is named, with the program that does ([`named`]).
//!
//! Tested in `tests/it/container.rs` with qemu-img, and here.

mod known;
mod mapped;
mod sparse;
mod vhd;
mod vhdx;
mod vmdk;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use syncline_device::{BlockDevice, FileDevice, Kind, OffsetDevice, Origin};

pub(crate) use known::named;
use mapped::{Mapped, Runs};

use crate::archive::input::without_zeros;
use crate::{ImageError, Result, platform, stream};

/// Bytes moved at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Parts of a disk: what the tables of a disk of 2 TiB in pieces of 64 KiB have.
const RUNS_MAX: usize = 32 << 20;

/// A file that is read in pieces, never beyond its end.
struct Source {
    file: File,
    len: u64,
}

impl Source {
    fn bytes(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let inside = at.checked_add(len as u64).is_some_and(|end| end <= self.len);
        if !inside {
            return Err(damaged("it ends early"));
        }
        let mut bytes = vec![0; len];
        let read = platform::read_exact_at(&self.file, &mut bytes, at);
        read.map_err(|err| damaged(&crate::plain(&err)))?;
        Ok(bytes)
    }
}

fn damaged(why: &str) -> ImageError {
    ImageError::Corrupt(format!("the image file is damaged: {why}; take another copy of it"))
}

fn unsupported(text: &str) -> ImageError {
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

/// The disk in an opened file; the file itself if it is in none of these formats.
///
/// # Errors
/// A file that is damaged, or has what is not supported.
pub(crate) fn disk(file: FileDevice, path: &Path) -> Result<Arc<dyn BlockDevice>> {
    let raw = file.try_clone_file().map_err(|err| ImageError::host(path, &err))?;
    // The size of the device is in whole sectors, that of the file need not be. A file of another
    // user's FUSE mount can be read here, but fstat(2) of it is refused.
    let len = raw.metadata().map_or(file.geometry().size_bytes, |meta| meta.len());
    let source = Source { file: raw, len };
    let runs = match found(&source)? {
        Found::Raw => return Ok(Arc::new(file)),
        Found::Start(len) => return Ok(Arc::new(OffsetDevice::new(file, 0, len)?)),
        Found::Runs(runs) => runs,
    };
    if !file.geometry().read_only {
        let text = "the image is in a format that is only read; mount it with `-o ro`, or make \
                    one that can be written to with `qemu-img convert -O qcow2` or simg2img";
        return Err(unsupported(text));
    }
    Ok(Arc::new(Mapped::new(file, source, runs)?))
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

/// Returns whether a file is compressed; false also where it cannot be read.
pub(crate) fn is_compressed(file: &FileDevice) -> bool {
    let mut start = [0; 512];
    let read = file.read(0, &mut start, Origin::new(Kind::Metadata, true));
    !file.is_block_device() && read.is_ok() && stream::is_compressed(&start)
}

/// The disk in a compressed file, whose bytes go to `scratch`. It is only read.
///
/// # Errors
/// Bytes that do not verify; the error of a read or write.
pub(crate) fn unpacked(
    file: FileDevice,
    path: &Path,
    scratch: File,
) -> Result<Arc<dyn BlockDevice>> {
    if !file.geometry().read_only {
        let text = "the image is compressed, so it is only read; unpack it first";
        return Err(unsupported(text));
    }
    let host = |err: std::io::Error| ImageError::host(path, &err);
    let raw = file.try_clone_file().map_err(host)?;
    let (mut bytes, _) = stream::decoded(Box::new(raw), path)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut len = 0;
    loop {
        let part = match bytes.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => chunk.get(..read).unwrap_or_default(),
            Err(err) if err.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(err) => return Err(damaged(&crate::plain(&err))),
        };
        for (at, data) in without_zeros(part) {
            platform::write_all_at(&scratch, data, len + at).map_err(host)?;
        }
        len += part.len() as u64;
    }
    scratch.set_len(len).map_err(host)?;
    let source = Source { file: scratch, len };
    let runs = match found(&source)? {
        Found::Runs(runs) => runs,
        Found::Raw => Runs::whole(len)?,
        Found::Start(len) => Runs::whole(len)?,
    };
    Ok(Arc::new(Mapped::new(file, source, runs)?))
}
