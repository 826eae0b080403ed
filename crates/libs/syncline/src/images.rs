//! The files of an image as the disk in them: containers of other programs, which are only read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::{BlockDevice, FileDevice, FileOptions};
use syncline_image::{Files, ImageError};

use crate::error::{EIO, ENOSPC, EOPNOTSUPP, EUCLEAN, Error, Result};

impl From<ImageError> for Error {
    fn from(err: ImageError) -> Error {
        let errno = match &err {
            ImageError::Usage(_) => return Error::invalid(err.to_string()),
            ImageError::Corrupt(_) => EUCLEAN,
            ImageError::Unsupported(_) => EOPNOTSUPP,
            ImageError::Final(_) => ENOSPC,
            _ => EIO,
        };
        Error::new(errno, err.to_string())
    }
}

/// The disk in an open image, over the files of `backing`, the next one first. What is compressed
/// is unpacked into a file without a name.
///
/// # Errors
/// As of open(2); EUCLEAN for a container that is damaged, EOPNOTSUPP for one that is not
/// supported, or is to be written to.
pub(crate) fn disk(
    image: FileDevice,
    path: &Path,
    backing: &[PathBuf],
) -> Result<Arc<dyn BlockDevice>> {
    if !image.geometry().read_only && syncline_image::grows(&image) {
        let text = "libraries only read a qcow2; open it with `ro`, or mount it";
        return Err(Error::new(EOPNOTSUPP, text).at(path.display()));
    }
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let below = backing.iter().map(|path| Ok((FileDevice::open(path, options)?, path.clone())));
    let files = Files::new(image, path, below.collect::<Result<_>>()?)?;
    Ok(files.disk(&())?)
}

/// Fails unless the image is the disk itself, in one file.
///
/// # Errors
/// EOPNOTSUPP.
pub(crate) fn check_plain(image: &FileDevice, backing: &[PathBuf]) -> Result<()> {
    if backing.is_empty() && !syncline_image::is_packed(image) {
        return Ok(());
    }
    let text = "`isolate` reads an image that is the disk itself, in one file; open it without \
                `isolate`, or mount it";
    Err(Error::new(EOPNOTSUPP, text))
}
