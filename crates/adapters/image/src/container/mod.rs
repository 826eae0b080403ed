//! Disks in the files of other programs, read: Android sparse images, VHD, VHDX and VMDK.
//!
//! ```text
//!   file -> its format, by its bytes -> Runs: where each part of the disk is -> Mapped, a device
//! ```
//! They are read only, but for a VHD of fixed size, which is the disk and a footer. qcow2 is in
//! `crate::qcow2`, compressed files in `crate::stream`.
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
use std::path::Path;
use std::sync::Arc;

use syncline_device::{BlockDevice, FileDevice, OffsetDevice};

pub(crate) use known::named;
use mapped::{Mapped, Runs};

use crate::{ImageError, Result, platform};

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
    // The size of the device is in whole sectors, that of the file need not be.
    let len = raw.metadata().map_err(|err| ImageError::host(path, &err))?.len();
    let source = Source { file: raw, len };
    let start = source.bytes(0, 512.min(len) as usize)?;
    let runs = if start.starts_with(&sparse::MAGIC) {
        sparse::runs(&source)?
    } else if start.starts_with(vhdx::MAGIC) {
        vhdx::runs(&source)?
    } else if start.starts_with(vmdk::MAGIC) {
        vmdk::runs(&source)?
    } else if let Some(other) = vmdk::refused(&start) {
        return Err(other);
    } else {
        match vhd::found(&source)? {
            None => return Ok(Arc::new(file)),
            Some(vhd::Vhd::Fixed(len)) => return Ok(Arc::new(OffsetDevice::new(file, 0, len)?)),
            Some(vhd::Vhd::Dynamic(runs)) => runs,
        }
    };
    if !file.geometry().read_only {
        let text = "the image is in a format that is only read; mount it with `-o ro`, or make \
                    one that can be written to with `qemu-img convert -O qcow2` or simg2img";
        return Err(unsupported(text));
    }
    Ok(Arc::new(Mapped::new(file, source, runs)?))
}
