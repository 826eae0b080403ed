//! A build without imago: a qcow2 is only read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::{BlockDevice, FileDevice};

use super::lock;
use super::reader::Reader;
use crate::container::Locked;
use crate::files::disk_below;
use crate::{ImageError, Result};

fn refused() -> ImageError {
    let text = "this build only reads a qcow2; convert it with `qemu-img convert`, or build with \
                `--features qcow2` (Rust 1.87 or newer)";
    ImageError::Unsupported(text.to_owned())
}

/// The reader of a qcow2 as a device.
pub(crate) struct Qcow2Device;

impl Qcow2Device {
    /// Refuses the file.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn repair(_: &FileDevice, _: &Path) -> Result<()> {
        Err(refused())
    }

    /// Opens what a file device has opened and locked, to read; `below` are the files that it is
    /// over, the next one first.
    ///
    /// # Errors
    /// A file that is damaged, open to be written to, or that QEMU has open.
    pub(crate) fn open(
        device: FileDevice,
        path: &Path,
        below: Vec<(FileDevice, PathBuf)>,
    ) -> Result<Arc<dyn BlockDevice>> {
        if !device.geometry().read_only {
            return Err(refused());
        }
        let host = |err: io::Error| ImageError::host(path, &err);
        let file = device.try_clone_file().map_err(host)?;
        let bytes = file.metadata().map_err(host)?.len();
        lock::take(&file, false)?;
        let below = disk_below(below)?;
        Ok(Arc::new(Reader::open(Box::new(Locked::new(file, device)), bytes, below)?))
    }
}

/// Refuses to make the file.
///
/// # Errors
/// Always.
pub(crate) fn pack(_: &Path, _: &Path, _: Option<u32>) -> Result<()> {
    Err(refused())
}
