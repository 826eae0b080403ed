//! Other sizes for images, after our own check has said that the volume is sound: they grow by
//! [`syncline_fs::mkfs::grow`] and shrink by [`syncline_fs::mkfs::shrink`].
//!
//! Tested in `tests/it/resize.rs` and `cli/tests`.

use std::path::Path;
use std::sync::Arc;

use syncline_device::BlockDevice;
use syncline_fs::mkfs::{grow, shrink};
use syncline_fs::repair::Plan;
use syncline_fs::{FsError, check_device};
use syncline_ondisk::{RoCompatFeatures, Superblock};

use crate::open::raw;
use crate::qcow2::is_qcow2;
use crate::{Image, ImageError, Opening, Result, device, superblock};

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

fn set_len(path: &Path, bytes: u64) -> Result<()> {
    let done = std::fs::File::options().write(true).open(path).and_then(|f| f.set_len(bytes));
    done.map_err(|err| ImageError::host(path, &err))
}

/// Replays the journal and checks the volume.
fn checked(path: &Path) -> Result<()> {
    let sb = superblock(&*device(path, true)?, path)?;
    let orphans =
        sb.s_last_orphan != 0 || sb.s_feature_ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT);
    if sb.needs_recovery() || orphans {
        replayed(path)?;
    }
    let report = check_device(&device(path, true)?, &mut |_| true)?;
    if report.is_clean() {
        return Ok(());
    }
    Err(ImageError::Corrupt("the check found errors; run `syncline repair` on it".into()))
}

/// Recovers the volume. One with features that are only read has no orphans taken.
fn replayed(path: &Path) -> Result<()> {
    match Image::write(path, &Opening::default()) {
        Err(ImageError::Unsupported(_)) => {
            let dev: Arc<dyn BlockDevice> = Arc::new(raw(path, false)?);
            let plan = Plan::new(&dev, &mut |_| true)?;
            if plan.before.is_clean() {
                plan.apply(&*dev)?;
            }
            Ok(())
        }
        image => image?.close(Ok::<(), ImageError>(())),
    }
}

/// Grows or shrinks an image, a file or a block device; a file gets the size of its volume. Returns
/// the new size in bytes.
///
/// # Errors
/// The volume is damaged or in use, its files do not fit, the device is too small.
pub fn resize(path: &Path, size: NewSize) -> Result<u64> {
    let shown = path.display().to_string();
    // What opening says names the image.
    let named = |err: ImageError| {
        if err.to_string().starts_with(&shown) { err } else { err.at(&shown) }
    };
    resized(path, size).map_err(named)
}

fn resized(path: &Path, size: NewSize) -> Result<u64> {
    let dev = raw(path, false)?;
    if is_qcow2(&dev) {
        let text = "the size of a qcow2 is changed by `qemu-img resize`, and that of the volume in \
                    it not at all; make another one and `syncline cp -a` everything";
        return Err(ImageError::Unsupported(text.into()));
    }
    let old_bytes = dev.geometry().size_bytes;
    drop(dev);
    let file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    checked(path)?;
    let volume = volume_bytes(&superblock(&*device(path, true)?, path)?);
    let larger = match size {
        NewSize::Bytes(bytes) if bytes >= volume => Some(bytes),
        _ => None,
    };
    if let Some(bytes) = larger.filter(|bytes| file && *bytes > old_bytes) {
        set_len(path, bytes)?;
    }
    let dev: Arc<dyn BlockDevice> = Arc::new(raw(path, false)?);
    let room = dev.geometry().size_bytes;
    let done = match (larger, size) {
        (Some(bytes), _) if bytes > room => {
            Err(FsError::Invalid(format!("the device has {room} bytes; choose at most that")))
        }
        // Only the new end of a file is sure to be zero.
        (Some(bytes), _) => grow(&*dev, bytes, file && old_bytes <= volume),
        (None, NewSize::Bytes(bytes)) => shrink(&dev, Some(bytes)),
        (None, NewSize::Minimum) => shrink(&dev, None),
    };
    drop(dev);
    if file {
        set_len(path, *done.as_ref().unwrap_or(&old_bytes))?;
    }
    done.map_err(|err| match err {
        FsError::Invalid(text) => ImageError::Failed(text),
        other => other.into(),
    })
}
