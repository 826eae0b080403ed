//! Making, checking and recovering images.

use std::fs::OpenOptions as HostOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use syncline_device::{FileDevice, FileOptions, SBIN, find_program};
use syncline_fs::{CheckProgress, CheckReport, MountReport};
use syncline_ondisk::{CompatFeatures, RoCompatFeatures};

use crate::disk::{Disk, check_host_path, superblock};
use crate::error::{EEXIST, EIO, Error, Result};
use crate::options::OpenOptions;

/// Bytes at the start of an image that must be empty for [`Make::image`] to write over it: file
/// systems and partition tables have their marks there.
const MARK_BYTES: usize = 128 << 10;

/// Options for making an image: the defaults, changed by [`Make::with`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("card.img");
/// use syncline::{Disk, Make, OpenOptions};
///
/// let make = Make::default().with(|make| make.size_bytes = Some(16 << 20));
/// match make.image(&path) {
///     Err(err) if err.errno == 2 => println!("{err}"), // mke2fs: install e2fsprogs
///     made => made?,
/// }
/// # if !path.exists() { return Ok(()) }
/// Disk::open(&path, &OpenOptions::default())?.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Make {
    /// Size of a file that is made; `None` uses the file or device that is there.
    pub size_bytes: Option<u64>,
    /// Volume label.
    pub label: Option<String>,
    /// Features as `mke2fs -O` takes them.
    pub features: Option<String>,
    /// Write over what is there.
    pub force: bool,
}

impl Make {
    /// Changes fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Makes an ext4 with stock mke2fs and its defaults. A file that was made here is removed again
    /// if that fails.
    ///
    /// # Errors
    /// EEXIST if something is there, EBUSY if it is in use, ENOENT without mke2fs, and what mke2fs
    /// and the host say.
    pub fn image(&self, path: &Path) -> Result<()> {
        check_host_path(path)?;
        let Some(size_bytes) = self.size_bytes else {
            check_free(path, self.force)?;
            return mke2fs(path, self);
        };
        let there = path.symlink_metadata().is_ok();
        if there {
            if !self.force {
                let text =
                    format!("{}: the file exists; choose another name or force", path.display());
                return Err(Error::new(EEXIST, text));
            }
            check_free(path, true)?;
        }
        // Who else may read it is for its owner to say.
        let mut made = HostOptions::new();
        let made = made.write(true).create(true).truncate(false).mode(0o600).open(path);
        let sized = made.and_then(|file| file.set_len(size_bytes));
        let done = sized.map_err(|err| Error::host(path.display(), &err));
        let done = done.and_then(|()| mke2fs(path, self));
        if done.is_err() && !there {
            // What is to be said is why it could not be made.
            let _ = std::fs::remove_file(path);
        }
        done
    }
}

/// Refuses what is in use, and without `force` what is not empty.
fn check_free(path: &Path, force: bool) -> Result<()> {
    drop(FileDevice::open(path, FileOptions::default())?);
    let mut start = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(MARK_BYTES as u64).read_to_end(&mut start));
    read.map_err(|err| Error::host(path.display(), &err))?;
    if force || start.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    let text = format!("{}: holds data already; choose another one or force", path.display());
    Err(Error::new(EEXIST, text))
}

fn mke2fs(path: &Path, how: &Make) -> Result<()> {
    let program = find_program("mke2fs", &SBIN);
    let mut command = Command::new(program.unwrap_or_else(|| "mke2fs".into()));
    command.args(["-q", "-F", "-t", "ext4"]);
    if let Some(label) = &how.label {
        command.args(["-L", label]);
    }
    if let Some(features) = &how.features {
        command.args(["-O", features]);
    }
    // A path that begins with a dash is no option.
    let path = std::path::absolute(path).map_err(|err| Error::host(path.display(), &err))?;
    let made = command.arg(&path).output().map_err(|err| {
        let text = format!("mke2fs: {err}; install e2fsprogs");
        Error::new(err.raw_os_error().unwrap_or(EIO), text)
    })?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stderr).trim().replace('\n', "; ");
    Err(Error::new(EIO, format!("mke2fs: {said}; correct the size, features or path")))
}

/// Checks an image with the volume's own check, in memory as far as its journal has to be replayed.
/// `progress` returns false to stop.
///
/// ```
/// # let image = syncline_testkit::TempImage::tiny();
/// let report = syncline::check(image.path(), &mut |_| true)?;
/// assert!(report.is_clean(), "{:?}", report.findings);
/// # Ok::<(), syncline::Error>(())
/// ```
///
/// # Errors
/// EBUSY, EUCLEAN for what cannot even be mounted, EIO.
pub fn check(path: &Path, progress: &mut dyn FnMut(CheckProgress) -> bool) -> Result<CheckReport> {
    let options = OpenOptions::parse("ro")?;
    let disk = Disk::open(path, &options)?;
    let report = disk.0.in_use()?.check(progress);
    report.map_err(|err| Error::from(err).at(path.display()))
}

/// Replays the journal and finishes orphans. A clean image is not written to.
///
/// ```
/// # let image = syncline_testkit::TempImage::tiny();
/// use syncline::{Disk, OpenOptions};
///
/// let disk = Disk::open(image.path(), &OpenOptions::default())?;
/// disk.mkdir(b"/kept", 0o755)?;
/// disk.sync()?;
/// drop(disk); // not closed: the image is as after a power cut
/// let report = syncline::recover(image.path())?;
/// assert!(report.transactions_replayed > 0);
/// # Ok::<(), syncline::Error>(())
/// ```
///
/// # Errors
/// EBUSY, EUCLEAN, EOPNOTSUPP, EIO.
pub fn recover(path: &Path) -> Result<MountReport> {
    check_host_path(path)?;
    let device = FileDevice::open(path, FileOptions { read_only: true, ..FileOptions::default() })?;
    let unfinished = superblock(&device)?.is_none_or(|sb| {
        let orphan_file = sb.s_feature_compat.contains(CompatFeatures::ORPHAN_FILE)
            && sb.s_feature_ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT);
        sb.needs_recovery() || sb.s_last_orphan != 0 || orphan_file
    });
    drop(device);
    if !unfinished {
        return Ok(MountReport::default());
    }
    let disk = Disk::open(path, &OpenOptions::default())?;
    let report = disk.opened().clone();
    disk.close()?;
    Ok(report)
}
