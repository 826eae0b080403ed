//! Files of this system.

use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::{BlockDevice, FileDevice, Kind, OffsetDevice, Origin, SECTOR_BYTES};

use super::mapped::{Mapped, Runs};
use super::{Found, Source, found, sparse, unpack_each, unsupported, vhd, vhdx, vmdk};
use crate::archive::input::without_zeros;
use crate::files::{disk_below, not_over};
use crate::{ImageError, ReadAt, Result, Watch, platform, qcow2, stream};

/// A file, and the devices that have its lock and those of others.
pub(crate) struct Locked {
    file: Box<dyn ReadAt>,
    _devices: (FileDevice, Vec<FileDevice>),
}

impl Locked {
    pub(crate) fn new(file: File, device: FileDevice) -> Locked {
        Locked { file: Box::new(file), _devices: (device, Vec::new()) }
    }
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
        return Err(only_read());
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

/// Returns whether a file is compressed or begins as one of the formats here.
pub(crate) fn is_packed(file: &FileDevice) -> bool {
    let mut start = [0; 512];
    let read = file.read(0, &mut start, Origin::new(Kind::Metadata, true));
    let known = [&sparse::MAGIC[..], vhdx::MAGIC, vmdk::MAGIC, vhd::MAGIC];
    let is_known = known.iter().any(|magic| start.starts_with(magic));
    !file.is_block_device() && read.is_ok() && (is_known || stream::is_compressed(&start))
}

/// A disk that cannot be written to.
pub(crate) fn only_read() -> ImageError {
    let text = "the image is in a format that is only read; mount it with `-o ro`, or make one \
                that can be written to with `qemu-img convert -O qcow2` or simg2img";
    unsupported(text)
}

/// The failure of a file for what is unpacked.
pub(crate) fn unpacking(err: &io::Error) -> ImageError {
    let (dir, why) = (std::env::temp_dir(), crate::plain(err));
    let text = format!(
        "it is unpacked into {}, where this fails: {why}; make room there, or name a directory \
         with more room in TMPDIR",
        dir.display()
    );
    ImageError::Final(text)
}

/// The disk in a compressed file, whose bytes go to `scratch`; that of a qcow2 is over the files of
/// `below`, the next one first. It is only read.
///
/// # Errors
/// Bytes that do not verify; the error of a read or write; [`ImageError::Stopped`].
pub(crate) fn unpacked(
    file: FileDevice,
    path: &Path,
    below: Vec<(FileDevice, PathBuf)>,
    scratch: File,
    watch: &dyn Watch,
) -> Result<Arc<dyn BlockDevice>> {
    let host = |err: io::Error| ImageError::host(path, &err);
    let mut raw = file.try_clone_file().map_err(host)?;
    watch.total(raw.metadata().map_or(0, |meta| meta.len()));
    let mut seen = 0;
    // Both have one position.
    let packed = raw.try_clone().map_err(host)?;
    let len = unpack_each(Box::new(packed), path, &mut |data, at| {
        watch.check()?;
        let now = raw.stream_position().map_err(host)?;
        watch.copied(now.saturating_sub(seen));
        seen = now;
        without_zeros(data).try_for_each(|(from, data)| {
            platform::write_all_at(&scratch, data, at + from).map_err(|err| unpacking(&err))
        })
    })?;
    scratch.set_len(len).map_err(|err| unpacking(&err))?;
    let has_qcow2 = qcow2::begins(&scratch, len);
    let locked = Locked::new(scratch, file);
    if has_qcow2 {
        let below = disk_below(below)?;
        return Ok(Arc::new(qcow2::Reader::open(Box::new(locked), len, below)?));
    }
    if !below.is_empty() {
        return Err(not_over());
    }
    let source = Source::new(Box::new(locked), len);
    let runs = match found(&source)? {
        Found::Runs(runs) => runs,
        Found::Raw => Runs::whole(len)?,
        Found::Start(len) => Runs::whole(len)?,
    };
    Ok(Arc::new(Mapped::new(source, runs)?))
}
