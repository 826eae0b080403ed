//! Making, checking and recovering images.

use std::fs::OpenOptions as HostOptions;
use std::hash::{BuildHasher, Hasher};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::process::{getegid, geteuid};
use syncline_device::{BlockDevice, Clock, FileDevice, FileOptions, WallClock};
use syncline_fs::mkfs::{Options, Plan};
use syncline_fs::{CheckProgress, CheckReport, MountReport};
use syncline_ondisk::{CompatFeatures, RoCompatFeatures};

use crate::disk::{Disk, check_host_path, superblock};
use crate::error::{EEXIST, Error, Result};
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
/// let make = Make::default().with(|make| {
///     make.size_bytes = Some(16 << 20);
///     make.features = Some("orphan_file".to_owned());
/// });
/// make.image(&path)?;
/// Disk::open(&path, &OpenOptions::default())?.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Make {
    /// Size of a file that is made; `None` uses the file or device that is there. Of a
    /// [`Builder`](crate::Builder) `None` is the smallest size and the room of `spare_*`.
    pub size_bytes: Option<u64>,
    /// Volume label, at most 16 bytes.
    pub label: Option<String>,
    /// Features as `mke2fs -O` takes them.
    pub features: Option<String>,
    /// Options as `mke2fs -E` takes them. Without `root_owner` and `time_s` the caller owns the
    /// root directory of an empty image.
    pub extended: Option<String>,
    /// Options of the journal as `mke2fs -J` takes them.
    pub journal: Option<String>,
    /// Bytes of a block, 1024 to 65536.
    pub block_bytes: Option<u32>,
    /// At least so many inodes.
    pub inodes: Option<u64>,
    /// Room for users other than root in an image of a [`Builder`](crate::Builder), in bytes.
    pub spare_bytes: Option<u64>,
    /// The same in per cent of what the tree takes.
    pub spare_percent: Option<u32>,
    /// Identity of the volume; random where it is not given.
    pub uuid: Option<[u8; 16]>,
    /// Time of the volume, seconds since 1970; now where it is not given. With `uuid`, and
    /// `hash_seed` in `extended`, equal options give equal bytes.
    pub time_s: Option<u64>,
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

    /// Makes an ext4 with the defaults of mke2fs 1.47. Options that are refused change nothing. A
    /// file that was made here is removed again if that fails.
    ///
    /// # Errors
    /// EEXIST if something is there, EBUSY if it is in use, EINVAL and EOPNOTSUPP for options, and
    /// what the host says.
    pub fn image(&self, path: &Path) -> Result<()> {
        check_host_path(path)?;
        let there = path.symlink_metadata().is_ok();
        if there {
            if self.size_bytes.is_some() && !self.force {
                let text =
                    format!("{}: the file exists; choose another name or force", path.display());
                return Err(Error::new(EEXIST, text));
            }
            check_free(path, self.force)?;
        }
        let host = |err| Error::host(path.display(), &err);
        let is_file = !there || std::fs::metadata(path).map_err(host)?.is_file();
        let size_bytes = match self.size_bytes {
            Some(bytes) => bytes,
            None => FileDevice::open(path, FileOptions::default())?.geometry().size_bytes,
        };
        let mut options = self.options()?;
        options.zeroed |= is_file;
        let extended = self.extended.as_deref().unwrap_or_default();
        if !extended.contains("root_owner") && self.time_s.is_none() && !geteuid().is_root() {
            options.root_owner = (geteuid().as_raw(), getegid().as_raw());
        }
        let named = |err| Error::from(err).at(path.display());
        let plan = Plan::new(&options, size_bytes).map_err(named)?;
        let mut done = Ok(());
        if is_file {
            // A new one is for its owner only: who else may read it is for its owner to say.
            let mut made = HostOptions::new();
            let made = made.write(true).create_new(!there).truncate(there).mode(0o600);
            let file = made.open(path).map_err(host)?;
            done = file.set_len(size_bytes).map_err(host);
        }
        let done = done.and_then(|()| {
            let device = FileDevice::open(path, FileOptions::default())?;
            plan.write(&device).map_err(named)
        });
        if done.is_err() && !there {
            // What is to be said is why it could not be made.
            let _ = std::fs::remove_file(path);
        }
        done
    }

    pub(crate) fn options(&self) -> Result<Options> {
        let random = || {
            let word = || std::hash::RandomState::new().build_hasher().finish();
            // Version 4 of RFC 9562.
            let bits = u128::from(word()) << 64 | u128::from(word());
            (bits & !(0xF << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62).to_be_bytes()
        };
        let mut options = Options {
            features: self.features.clone().unwrap_or_default(),
            label: self.label.clone().unwrap_or_default().into_bytes(),
            block_bytes: self.block_bytes,
            inodes: self.inodes,
            uuid: self.uuid.unwrap_or_else(random),
            hash_seed: random(),
            time_s: self.time_s.unwrap_or_else(|| WallClock::new().now_ns() / 1_000_000_000),
            ..Options::default()
        };
        options.set_extended(self.extended.as_deref().unwrap_or_default())?;
        options.set_journal(self.journal.as_deref().unwrap_or_default())?;
        Ok(options)
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
    let (volume, _) = disk.volume()?;
    let report = volume.check(progress);
    report.map_err(|err| Error::from(err).at(path.display()))
}

impl Disk {
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
    /// let report = Disk::recover(image.path())?;
    /// assert!(report.transactions_replayed > 0);
    /// # Ok::<(), syncline::Error>(())
    /// ```
    ///
    /// # Errors
    /// EBUSY, EUCLEAN, EOPNOTSUPP, EIO.
    pub fn recover(path: &Path) -> Result<MountReport> {
        check_host_path(path)?;
        let device =
            FileDevice::open(path, FileOptions { read_only: true, ..FileOptions::default() })?;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::At;
    use std::process::Command;

    /// Root runs it as a user.
    #[test]
    fn the_caller_owns_the_root_directory() {
        let dir = tempfile::tempdir().unwrap();
        let own = (geteuid().as_raw(), getegid().as_raw());
        if own.0 == 0 {
            let user = ["--reuid=1000", "--regid=1001", "--clear-groups", "--"];
            let mut again = Command::new("setpriv");
            again.args(user).arg(std::env::current_exe().unwrap());
            again.args(["--exact", "tools::tests::the_caller_owns_the_root_directory"]);
            let ran = again.output().unwrap();
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        }
        let owner = |name: &str, change: &dyn Fn(&mut Make)| {
            let path = dir.path().join(name);
            let make = Make::default().with(|make| {
                make.size_bytes = Some(8 << 20);
                change(make);
            });
            make.image(&path).unwrap();
            let disk = Disk::open(&path, &OpenOptions::default()).unwrap();
            let root = disk.stat(b"/", At::Follow).unwrap();
            (root.uid, root.gid)
        };
        assert_eq!(owner("own.img", &|_| {}), own);
        assert_eq!(owner("same.img", &|make| make.time_s = Some(1)), (0, 0), "equal bytes");
        let given = |make: &mut Make| make.extended = Some("root_owner=7:8".to_owned());
        assert_eq!(owner("given.img", &given), (7, 8));
    }
}
