//! The image of a mount with `ro`, opened again for `remount,rw`.
//!
//! Promise: it is the file that was mounted. Who may change its directory cannot have another one
//! opened in its place: a descriptor that opens nothing (`O_PATH`) keeps it, from the mount on.
//! Tested in `tests/it/mount.rs`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use syncline_device::{BlockDevice, DeviceError, FileDevice, FileOptions, SwapDevice};
use syncline_image::partition::{Part, part_of};

use super::mount_open::IN_USE;
use crate::contain::Rights;
use crate::error::{Failure, Result};

/// Time in which the kernel closes what this mount had open of the image before. A descriptor that
/// was on its way to another process keeps its locks until then.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// The file that was mounted, whatever has its path by now. It holds no lock.
pub(crate) struct Pin(OwnedFd);

impl From<OwnedFd> for Pin {
    fn from(descriptor: OwnedFd) -> Pin {
        Pin(descriptor)
    }
}

impl AsFd for Pin {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Pin {
    /// Pins what `opened` has open.
    pub(crate) fn of(opened: &FileDevice, path: &Path) -> Result<Pin> {
        let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let pin = Pin(found.map_err(|err| Failure::host(path, &err.into()))?);
        if pin.identity(path)? == opened.identity()? { Ok(pin) } else { Err(another(path)) }
    }

    /// Device and inode number.
    fn identity(&self, path: &Path) -> Result<(u64, u64)> {
        let stat = rustix::fs::fstat(&self.0);
        let stat = stat.map_err(|err| Failure::host(path, &err.into()))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Opens it again. `path` is for messages.
    fn open(&self, path: &Path, read_only: bool) -> Result<FileDevice> {
        let options = FileOptions { read_only, ..FileOptions::default() };
        let place = Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string());
        let began = Instant::now();
        let opened = loop {
            match FileDevice::open(&place, options) {
                Err(DeviceError::Open { errno, .. })
                    if IN_USE.contains(&errno) && began.elapsed() < CLOSED_WITHIN =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                opened => break opened,
            }
        };
        Ok(opened.map_err(|err| match err {
            DeviceError::Open { reason, errno, .. } => {
                DeviceError::Open { path: path.display().to_string(), reason, errno }
            }
            err => err,
        })?)
    }
}

impl Pin {
    /// Opens the image again, to write only while it has its path.
    ///
    /// # Errors
    /// Another file has its path by now, or it is refused.
    pub(crate) fn open_image(&self, image: &Path, read_only: bool) -> Result<FileDevice> {
        if !read_only {
            let found = std::fs::metadata(image).map_err(|err| Failure::host(image, &err))?;
            if (found.dev(), found.ino()) != self.identity(image)? {
                return Err(another(image));
            }
        }
        // The path may lead elsewhere a moment later; the pin does not.
        self.open(image, read_only)
    }
}

pub(super) fn another(image: &Path) -> Failure {
    let text = format!("{}: it is not the file that was mounted", image.display());
    Failure::Failed(text)
}

/// Image of a mount with `ro`, which can be opened again to write.
pub(super) struct Reopened {
    pub(super) place: Arc<SwapDevice>,
    pub(super) image: PathBuf,
    pub(super) part: Part,
    pub(super) rights: Arc<dyn Rights>,
}

impl Reopened {
    /// Opens the image to write, in the place of what it was opened as.
    ///
    /// # Errors
    /// It may not be written, somebody else reads it, or another file has its path by now: then
    /// it is as it was.
    pub(super) fn open_to_write(&self) -> Result<()> {
        let (image, size_bytes) = (&self.image, self.place.geometry().size_bytes);
        let open = |read_only| {
            let file = self.rights.open_image(read_only)?;
            let device = part_of(syncline_image::formatted(file, image)?, self.part, image)?;
            if device.geometry().size_bytes == size_bytes {
                Ok(device)
            } else {
                Err(another(image))
            }
        };
        self.place.replace(|| open(false), || open(true))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn another_file_at_the_path_is_never_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (image, other) = (dir.path().join("image"), dir.path().join("other"));
        std::fs::write(&image, vec![1; 4096]).unwrap();
        std::fs::write(&other, vec![2; 4096]).unwrap();
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        let opened = FileDevice::open(&image, options).unwrap();
        let pin = Pin::of(&opened, &image).unwrap();
        // Between the first opening and the pin: the image is refused.
        let different = FileDevice::open(&other, options).unwrap();
        assert!(Pin::of(&different, &image).is_err());
        drop((opened, different));
        // Later: what was pinned is opened.
        let known = pin.identity(&image).unwrap();
        std::fs::rename(&image, dir.path().join("away")).unwrap();
        symlink(&other, &image).unwrap();
        for read_only in [false, true] {
            assert_eq!(pin.open(&image, read_only).unwrap().identity().unwrap(), known);
        }
    }
}
