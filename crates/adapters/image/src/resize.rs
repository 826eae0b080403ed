//! Other sizes for images, after our own check has said that the volume is sound: they grow by
//! [`syncline_fs::mkfs::grow`] and shrink by [`syncline_fs::mkfs::shrink`].
//!
//! Tested in `tests/it/resize.rs` and `cli/tests`.

use std::path::Path;
use std::sync::Arc;

use syncline_device::{BlockDevice, GrowingFile};
use syncline_fs::mkfs::{grow, shrink};
use syncline_fs::repair::Plan;
use syncline_fs::{FsError, check_device};
use syncline_ondisk::{RoCompatFeatures, Superblock};

use crate::clean_stop::{CleanStop, is_stop};
use crate::files::raw;
use crate::qcow2::is_qcow2;
use crate::{Image, ImageError, Opening, Result, formatted, superblock};

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

/// Replays the journal and checks the volume.
fn checked(dev: &Arc<dyn BlockDevice>, path: &Path, stopped: fn() -> bool) -> Result<()> {
    let sb = superblock(&**dev, path)?;
    let orphans =
        sb.s_last_orphan != 0 || sb.s_feature_ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT);
    if sb.needs_recovery() || orphans {
        replayed(dev, path)?;
    }
    let report = check_device(dev, &mut |_| !stopped())?;
    if stopped() {
        return Err(ImageError::Stopped);
    }
    if report.is_clean() {
        return Ok(());
    }
    Err(ImageError::Corrupt("the check found errors; run `syncline repair` on it".into()))
}

/// Recovers the volume. One with features that are only read has no orphans taken.
fn replayed(dev: &Arc<dyn BlockDevice>, path: &Path) -> Result<()> {
    match Image::write_device(Arc::clone(dev), &Opening::default().clock, path) {
        Err(ImageError::Unsupported(_)) => {
            let plan = Plan::new(dev, &mut |_| true)?;
            if plan.before.is_clean() {
                plan.apply(&**dev)?;
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
    resize_opened(path, size, &|| {}, || false)
}

/// As [`resize`]. `opened` is called when the file is open and locked, before it is read. `stopped`
/// is asked on the way as long as a stop leaves a clean volume.
///
/// # Errors
/// As of [`resize`], and stopped: the volume is clean, with its old size or a step towards the
/// minimum.
pub fn resize_opened(
    path: &Path,
    size: NewSize,
    opened: &dyn Fn(),
    stopped: fn() -> bool,
) -> Result<u64> {
    let shown = path.display().to_string();
    // What opening says names the image.
    let named = |err: ImageError| {
        if err.to_string().starts_with(&shown) { err } else { err.at(&shown) }
    };
    resized(path, size, opened, stopped).map_err(named)
}

fn resized(path: &Path, size: NewSize, opened: &dyn Fn(), stopped: fn() -> bool) -> Result<u64> {
    let dev = raw(path, false)?;
    opened();
    if is_qcow2(&dev) {
        let text = "the size of a qcow2 is changed by `qemu-img resize`, and that of the volume in \
                    it not at all; make another one and `syncline cp -a` everything";
        return Err(ImageError::Unsupported(text.into()));
    }
    let (is_file, old_bytes) = (!dev.is_block_device(), dev.geometry().size_bytes);
    let file = dev.try_clone_file().map_err(|err| ImageError::host(path, &err))?;
    let dev = formatted(dev, path)?;
    if dev.geometry().size_bytes != old_bytes {
        let text = "the size of a VHD is not changed; convert it to a plain image with \
                    `qemu-img convert -O raw`";
        return Err(ImageError::Unsupported(text.into()));
    }
    checked(&dev, path, stopped)?;
    let dev: Arc<dyn BlockDevice> = Arc::new(CleanStop::new(dev, stopped));
    let volume = volume_bytes(&superblock(&*dev, path)?);
    let larger = match size {
        NewSize::Bytes(bytes) if bytes >= volume => Some(bytes),
        _ => None,
    };
    let set_len = |bytes| file.set_len(bytes).map_err(|err| ImageError::host(path, &err));
    // The device keeps the size that the file had when it was opened.
    let grown = match larger.filter(|bytes| is_file && *bytes > old_bytes) {
        Some(bytes) => {
            set_len(bytes)?;
            Some(file.try_clone().map_err(|err| ImageError::host(path, &err))?)
        }
        None => None,
    };
    let done = match (larger, size) {
        (Some(bytes), _) if !is_file && bytes > old_bytes => {
            Err(FsError::Invalid(format!("the device has {old_bytes} bytes; choose at most that")))
        }
        // Only the new end of a file is sure to be zero.
        (Some(bytes), _) => {
            let zeroed = is_file && old_bytes <= volume;
            match grown {
                Some(file) => grow(&CleanStop::new(GrowingFile::new(file), stopped), bytes, zeroed),
                None => grow(&*dev, bytes, zeroed),
            }
        }
        (None, NewSize::Bytes(bytes)) => shrink(&dev, Some(bytes)),
        (None, NewSize::Minimum) => shrink(&dev, None),
    };
    if is_file {
        set_len(*done.as_ref().unwrap_or(&old_bytes))?;
    }
    done.map_err(|err| match err {
        FsError::Invalid(text) => ImageError::Failed(text),
        FsError::Io(err) if is_stop(&err) => ImageError::Stopped,
        other => other.into(),
    })
}
