//! A build without imago: refusals.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::{BlockDevice, FileDevice};

use crate::{ImageError, Result};

fn refused() -> ImageError {
    let text = "this build has no support of qcow2; convert with `qemu-img convert`, or build with \
                `--features qcow2` (Rust 1.87 or newer)";
    ImageError::Unsupported(text.to_owned())
}

/// No device.
pub(crate) struct Qcow2Device;

impl Qcow2Device {
    /// Refuses the file.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn repair(_: &FileDevice, _: &Path) -> Result<()> {
        Err(refused())
    }

    /// Refuses to open the file.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn open(
        _: FileDevice,
        _: &Path,
        _: Vec<(FileDevice, PathBuf)>,
    ) -> Result<Arc<dyn BlockDevice>> {
        Err(refused())
    }
}

/// Refuses to make the file.
///
/// # Errors
/// Always.
pub(crate) fn pack(_: &Path, _: &Path, _: Option<u32>) -> Result<()> {
    Err(refused())
}
