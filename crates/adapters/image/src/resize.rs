//! Other sizes for images, by resize2fs after e2fsck has said that the volume is clean.

use std::path::Path;
use std::process::{Command, Output};

use syncline_device::BlockDevice;
use syncline_ondisk::Superblock;

use crate::image::raw;
use crate::mkfs::find;
use crate::qcow2::is_qcow2;
use crate::{ImageError, Result, device, superblock};

/// Exit code of e2fsck after it corrected errors.
const E2FSCK_CORRECTED: i32 = 1;

/// The size that an image is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// In bytes.
    Bytes(u64),
    /// As small as its files allow.
    Minimum,
}

/// Bytes of the volume.
fn volume_bytes(sb: &Superblock) -> u64 {
    let block_bytes = 1024_u64.checked_shl(sb.s_log_block_size.min(6)).unwrap_or(1024);
    sb.s_blocks_count.saturating_mul(block_bytes)
}

fn ran(program: &str, arguments: &[&str], path: &Path, more: Option<&str>) -> Result<Output> {
    let found = find(program).ok_or_else(|| {
        let text = format!("{program} is not installed; install the package e2fsprogs");
        ImageError::Failed(text)
    })?;
    let mut command = Command::new(&found);
    command.args(arguments).arg(path).args(more);
    command.output().map_err(|err| ImageError::host(&found, &err))
}

fn failed(program: &str, ran: &Output, path: &Path) -> ImageError {
    let said = String::from_utf8_lossy(&ran.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    let text = format!("{program} failed: {}; the image has its old size", last.trim());
    ImageError::Failed(text).at(path.display())
}

/// Grows or shrinks an image, a file or a block device; a file gets the size of its volume. Returns
/// the new size in bytes.
///
/// # Errors
/// The volume is damaged or in use, its files do not fit, the device is too small.
pub fn resize(path: &Path, size: NewSize) -> Result<u64> {
    let dev = raw(path, false)?;
    if is_qcow2(&dev) {
        let text = "the size of a qcow2 is changed by `qemu-img resize`, that of the volume in it \
                    by resize2fs where it is mounted; or make a larger one and `syncline cp -a` \
                    everything";
        return Err(ImageError::Unsupported(text.into()).at(path.display()));
    }
    let old_bytes = dev.geometry().size_bytes;
    superblock(&dev, path)?;
    drop(dev);
    let file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    let checked = ran("e2fsck", &["-f", "-p"], path, None)?;
    if !matches!(checked.status.code(), Some(0 | E2FSCK_CORRECTED)) {
        let text = "e2fsck found errors that it does not correct alone; run `e2fsck -f` on it";
        return Err(ImageError::Corrupt(text.into()).at(path.display()));
    }
    let set_len = |bytes: u64| {
        let done = std::fs::File::options().write(true).open(path).and_then(|f| f.set_len(bytes));
        done.map_err(|err| ImageError::host(path, &err))
    };
    let done = match size {
        NewSize::Minimum => ran("resize2fs", &["-M"], path, None)?,
        NewSize::Bytes(bytes) => {
            if file && bytes > old_bytes {
                set_len(bytes)?;
            }
            // In sectors of 512 bytes, the only unit that every size has.
            ran("resize2fs", &[], path, Some(&format!("{}s", bytes / 512)))?
        }
    };
    if !done.status.success() {
        if file {
            set_len(old_bytes)?;
        }
        return Err(failed("resize2fs", &done, path));
    }
    let dev = device(path, true)?;
    let bytes = volume_bytes(&superblock(&*dev, path)?);
    drop(dev);
    if file {
        set_len(bytes)?;
    }
    Ok(bytes)
}
