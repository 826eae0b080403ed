//! A build that opens no container of another program: an image is the disk itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::{BlockDevice, FileDevice};

use crate::error::{Error, Result};

pub(crate) fn disk(
    image: FileDevice,
    path: &Path,
    backing: &[PathBuf],
) -> Result<Arc<dyn BlockDevice>> {
    check_plain(&image, backing).map_err(|err| err.at(path.display()))?;
    Ok(Arc::new(image))
}

pub(crate) fn check_plain(_: &FileDevice, backing: &[PathBuf]) -> Result<()> {
    if backing.is_empty() {
        return Ok(());
    }
    Err(Error::invalid("this build of the library has no `backing`; open without it"))
}
