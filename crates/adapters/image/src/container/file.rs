//! Files of this system.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::{BlockDevice, FileDevice, Kind, OffsetDevice, Origin, SECTOR_BYTES};

use super::mapped::{Mapped, Runs};
use super::{Found, Source, found, sparse, unpack, unsupported};
use crate::{ImageError, ReadAt, Result, platform, stream};

/// A file, and the devices that have its lock and those of others.
struct Locked {
    file: Box<dyn ReadAt>,
    _devices: (FileDevice, Vec<FileDevice>),
}

impl ReadAt for Locked {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }
}

/// The other files of a split sparse image, of which `path` is the first.
///
/// # Errors
/// `path` is another one of them.
pub(crate) fn others(file: &FileDevice, path: &Path) -> Result<Vec<PathBuf>> {
    let mut start = [0; SECTOR_BYTES as usize];
    let read = file.read(0, &mut start, Origin::new(Kind::Metadata, true));
    if file.is_block_device() || read.is_err() || !start.starts_with(&sparse::MAGIC) {
        return Ok(Vec::new());
    }
    sparse::others(path)
}

/// The bytes of an opened file, and how many there are.
fn source_of(file: &FileDevice, path: &Path) -> Result<(Box<dyn ReadAt>, u64)> {
    let raw = file.try_clone_file().map_err(|err| ImageError::host(path, &err))?;
    // The size of the device is in whole sectors, that of the file need not be. A file of another
    // user's FUSE mount can be read here, but fstat(2) of it is refused.
    let len = raw.metadata().map_or(file.geometry().size_bytes, |meta| meta.len());
    Ok((Box::new(raw), len))
}

/// The disk in an opened file; the file itself if it is in none of these formats. `others` are open
/// files of the names that [`others`] gives.
///
/// # Errors
/// A file that is damaged, or has what is not supported.
pub(crate) fn disk(
    file: FileDevice,
    path: &Path,
    others: Vec<FileDevice>,
) -> Result<Arc<dyn BlockDevice>> {
    let all = std::iter::once(&file).chain(&others).map(|file| source_of(file, path));
    let source = Source::joined(all.collect::<Result<_>>()?);
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
    let locked = Locked { file: source.file, _devices: (file, others) };
    Ok(Arc::new(Mapped::new(Source { file: Box::new(locked), ..source }, runs)?))
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
    let host = |err: io::Error| ImageError::host(path, &err);
    let raw = file.try_clone_file().map_err(host)?;
    let len = unpack(Box::new(raw), path, &mut |data, at| {
        platform::write_all_at(&scratch, data, at).map_err(host)
    })?;
    scratch.set_len(len).map_err(host)?;
    let locked = Locked { file: Box::new(scratch), _devices: (file, Vec::new()) };
    let source = Source::new(Box::new(locked), len);
    let runs = match found(&source)? {
        Found::Runs(runs) => runs,
        Found::Raw => Runs::whole(len)?,
        Found::Start(len) => Runs::whole(len)?,
    };
    Ok(Arc::new(Mapped::new(source, runs)?))
}
