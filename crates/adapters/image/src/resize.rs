//! Other sizes for images. They grow by [`syncline_fs::mkfs::grow`], after our own check has said
//! that the volume is clean, and shrink by resize2fs, after e2fsck has.
//!
//! Tested in `tests/it/resize.rs` and `cli/tests`.

use std::path::Path;
use std::process::{Command, Output};

use syncline_device::BlockDevice;
use syncline_fs::FsError;
use syncline_fs::mkfs::grow;
use syncline_ondisk::Superblock;

use crate::mkfs::find;
use crate::open::raw;
use crate::qcow2::is_qcow2;
use crate::{Image, ImageError, Opening, Result, device, superblock};

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

fn set_len(path: &Path, bytes: u64) -> Result<()> {
    let done = std::fs::File::options().write(true).open(path).and_then(|f| f.set_len(bytes));
    done.map_err(|err| ImageError::host(path, &err))
}

/// Replays the journal and checks the volume.
fn checked(path: &Path) -> Result<()> {
    let how = Opening::default();
    let sb = superblock(&*device(path, true)?, path)?;
    if sb.needs_recovery() || sb.s_last_orphan != 0 {
        Image::write(path, &how)?.close(Ok::<(), ImageError>(()))?;
    }
    let image = Image::read(path, &how)?;
    let report = image.vol.check(&mut |_| true).map_err(|err| at(err.into(), path))?;
    if report.is_clean() {
        return Ok(());
    }
    let text = "the check found errors; run `e2fsck -f` on it";
    Err(at(ImageError::Corrupt(text.into()), path))
}

fn at(err: ImageError, path: &Path) -> ImageError {
    err.at(path.display())
}

/// Grows the volume; a file gets the size of it.
fn grown(path: &Path, file: bool, bytes: u64, old_bytes: u64) -> Result<u64> {
    checked(path)?;
    let volume = volume_bytes(&superblock(&*device(path, true)?, path)?);
    if file && bytes > old_bytes {
        set_len(path, bytes)?;
    }
    let dev = raw(path, false)?;
    let room = dev.geometry().size_bytes;
    let done = if bytes > room {
        let text = format!("the device has {room} bytes; choose at most that");
        Err(ImageError::Failed(text))
    } else {
        // Only the new end of a file is sure to be zero.
        grow(&dev, bytes, file && old_bytes <= volume).map_err(|err| match err {
            FsError::Invalid(text) => ImageError::Failed(text),
            other => other.into(),
        })
    };
    drop(dev);
    if file {
        set_len(path, *done.as_ref().unwrap_or(&old_bytes))?;
    }
    done.map_err(|err| at(err, path))
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
    let old_volume = volume_bytes(&superblock(&dev, path)?);
    drop(dev);
    let file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    match size {
        NewSize::Bytes(bytes) if bytes >= old_volume => {
            return grown(path, file, bytes, old_bytes);
        }
        _ => {}
    }
    let checked = ran("e2fsck", &["-f", "-p"], path, None)?;
    if !matches!(checked.status.code(), Some(0 | E2FSCK_CORRECTED)) {
        let text = "e2fsck found errors that it does not correct alone; run `e2fsck -f` on it";
        return Err(ImageError::Corrupt(text.into()).at(path.display()));
    }
    let set_len = |bytes| set_len(path, bytes);
    let done = match size {
        NewSize::Minimum => ran("resize2fs", &["-M"], path, None)?,
        NewSize::Bytes(bytes) => {
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
