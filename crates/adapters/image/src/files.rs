//! The open files of an image, which are read later.
//!
//! ```text
//!   FileDevice, files below it -> Files -> (a process gives up its rights) -> Files::disk
//! ```
//! An image is in more than one file if it is a qcow2 over others, a split sparse image, or
//! compressed: then an empty file without a name takes what is unpacked.
//!
//! Promise: [`Files::new`] opens all that [`Files::disk`] reads, and reads no more of the image
//! than its first sector. Each file is opened once, and its lock is held as long as the disk is
//! used.
//! Tested in `tests/it/container.rs` and `tests/it/qcow2.rs`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::{BlockDevice, FileDevice, FileOptions};

use crate::qcow2::{self, Qcow2Device};
use crate::{ImageError, Result, Watch, container};

/// Opens the file or device as bytes, whatever they are.
///
/// # Errors
/// As of open(2); somebody else has it open.
pub(crate) fn raw(path: &Path, read_only: bool) -> Result<FileDevice> {
    let options = FileOptions { read_only, ..FileOptions::default() };
    Ok(FileDevice::open(path, options)?)
}

/// One of the other files of an image: only its bytes are read, with one descriptor.
fn part(path: &Path) -> Result<FileDevice> {
    let options =
        FileOptions { read_only: true, direct: false, io_uring: false, ..FileOptions::default() };
    Ok(FileDevice::open(path, options)?)
}

/// The open files of an image.
pub struct Files {
    image: FileDevice,
    path: PathBuf,
    /// The files below a qcow2, the next one first.
    below: Vec<(FileDevice, PathBuf)>,
    /// The other files of a split sparse image.
    others: Vec<FileDevice>,
    /// For what is compressed.
    scratch: Option<File>,
}

impl Files {
    /// Opens `backing` and what else belongs to an open image. The names are those of `backing` and
    /// of the next parts of a split image, never those in an image.
    ///
    /// # Errors
    /// As of open(2); an image that is to be written to, and is only read.
    pub fn open(image: FileDevice, path: &Path, backing: &[PathBuf]) -> Result<Files> {
        let below = backing.iter().map(|path| Ok((raw(path, true)?, path.clone())));
        Files::new(image, path, below.collect::<Result<_>>()?)
    }

    /// As [`Files::open`], with open files below the image.
    ///
    /// # Errors
    /// As of [`Files::open`].
    pub fn new(image: FileDevice, path: &Path, below: Vec<(FileDevice, PathBuf)>) -> Result<Files> {
        let others = container::others(&image, path).map_err(|err| err.at(path.display()))?;
        let others = others.iter().map(|other| part(other)).collect::<Result<_>>()?;
        Files::of(image, path, below, others)
    }

    /// As [`Files::new`], and opens nothing: a compressed image is refused, and one of several
    /// files has one.
    ///
    /// # Errors
    /// As of [`Files::open`].
    pub fn alone(
        image: FileDevice,
        path: &Path,
        below: Vec<(FileDevice, PathBuf)>,
    ) -> Result<Files> {
        if container::is_compressed(&image) {
            let text = "the image is compressed, and a service unpacks nothing; unpack it first";
            return Err(container::unsupported(text).at(path.display()));
        }
        Files::of(image, path, below, Vec::new())
    }

    fn of(
        image: FileDevice,
        path: &Path,
        below: Vec<(FileDevice, PathBuf)>,
        others: Vec<FileDevice>,
    ) -> Result<Files> {
        let at = |err: ImageError| err.at(path.display());
        let is_compressed = container::is_compressed(&image);
        if !below.is_empty() && !is_compressed && !grows(&image) {
            return Err(at(not_over()));
        }
        let mut files = Files { image, path: path.to_owned(), below, others, scratch: None };
        if !files.image.geometry().read_only {
            if is_compressed {
                let text = "the image is compressed, so it is only read; unpack it first, or mount \
                            it with `-o ro`";
                return Err(at(container::unsupported(text)));
            }
            if !files.others.is_empty() {
                return Err(at(container::only_read()));
            }
        }
        if is_compressed {
            // Made while every directory can be written to.
            let made = tempfile::tempfile();
            files.scratch = Some(made.map_err(|err| container::unpacking(&err))?);
        }
        Ok(files)
    }

    /// The image, of its files the one that was named.
    pub fn image(&self) -> &FileDevice {
        &self.image
    }

    /// The files beside the image whose locks count.
    pub fn beside(&self) -> impl Iterator<Item = &FileDevice> {
        self.below.iter().map(|(file, _)| file).chain(&self.others)
    }

    /// The reason why an image that is open to be read is not opened again to be written to, with
    /// the next step; none if that depends on its format.
    pub fn only_read(&self) -> Option<&'static str> {
        if self.scratch.is_some() {
            Some("the image is compressed, so it is only read; unmount it, and unpack it")
        } else if !self.others.is_empty() {
            Some(
                "the image is in several files, so it is only read; unmount it, and make one file \
                 of them with simg2img",
            )
        } else if !self.below.is_empty() && self.image.geometry().read_only {
            Some(
                "the image is over another file, so it stays as it was opened; unmount it, and \
                 mount it without `ro`",
            )
        } else {
            None
        }
    }

    /// True if reading or writing the disk makes files of this process longer.
    pub fn grows(&self) -> bool {
        self.scratch.is_some() || grows(&self.image)
    }

    /// Repairs a qcow2 that is open to be written to and was not closed before, with qemu-img.
    ///
    /// # Errors
    /// There is no qemu-img, or it fails.
    pub fn repair(&self) -> Result<()> {
        if self.image.geometry().read_only || !grows(&self.image) {
            return Ok(());
        }
        Qcow2Device::repair(&self.image, &self.path).map_err(|err| err.at(self.path.display()))
    }

    /// The disk in the files. A compressed image is unpacked first; `watch` sees that.
    ///
    /// # Errors
    /// Files that are damaged, or have what is not supported; no room for what is unpacked.
    pub fn disk(self, watch: &dyn Watch) -> Result<Arc<dyn BlockDevice>> {
        let Files { image, path, below, others, scratch } = self;
        let unpacked = match scratch {
            Some(scratch) => container::unpacked(image, &path, below, scratch, watch),
            None if others.is_empty() => return over(image, &path, below),
            None => container::disk(image, &path, others),
        };
        unpacked.map_err(|err| err.at(path.display()))
    }
}

/// True if the disk in an opened file is not the file itself, and the file grows with it.
pub fn grows(file: &FileDevice) -> bool {
    !file.is_block_device() && qcow2::is_qcow2(file)
}

/// True if the disk in an opened file is not the file itself, by its first bytes. They do not tell
/// a VHD of fixed size, whose first bytes are the disk's.
pub fn is_packed(file: &FileDevice) -> bool {
    grows(file) || container::is_packed(file)
}

/// Returns the disk in an opened file: that of a qcow2, an Android sparse image, a VHD, VHDX or
/// VMDK, or the file itself. `path` is for messages.
///
/// # Errors
/// A file that is damaged, not closed, or not supported, or that QEMU has open.
pub fn formatted(file: FileDevice, path: &Path) -> Result<Arc<dyn BlockDevice>> {
    over(file, path, Vec::new())
}

pub(crate) fn not_over() -> ImageError {
    let text = "it is no qcow2, so it is over no other file; leave --backing away";
    ImageError::Usage(text.to_owned())
}

/// As [`formatted`], of a qcow2 over the files of `below`, the next one first.
pub(crate) fn over(
    file: FileDevice,
    path: &Path,
    below: Vec<(FileDevice, PathBuf)>,
) -> Result<Arc<dyn BlockDevice>> {
    let at = |err: ImageError| err.at(path.display());
    if grows(&file) {
        return Qcow2Device::open(file, path, below).map_err(at);
    }
    if !below.is_empty() {
        return Err(at(not_over()));
    }
    if file.is_block_device() {
        return Ok(Arc::new(file));
    }
    container::disk(file, path, Vec::new()).map_err(at)
}

/// The disk below a qcow2, the first of these files over the others; none without files.
pub(crate) fn disk_below(
    below: Vec<(FileDevice, PathBuf)>,
) -> Result<Option<Arc<dyn BlockDevice>>> {
    let mut below = below.into_iter();
    let next = below.next();
    next.map(|(next, path)| over(next, &path, below.collect())).transpose()
}
