//! Images: `IMAGE:/path`, opening for reading and for writing.
//!
//! Reading never writes to the image. An image whose journal has to be replayed is mounted on an
//! overlay: the replay, and the end of orphans, happen in memory.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use syncline_device::{
    BlockDevice, Clock, FileDevice, FileOptions, Kind, Origin, OverlayDevice, WallClock,
};
use syncline_fs::{MountOptions, MountReport, Volume};
use syncline_ondisk::Superblock;
use syncline_ondisk::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};

use crate::error::{Failure, Result};

/// A file in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The image.
    pub(crate) image: PathBuf,
    /// The path in it, with the leading slash.
    pub(crate) path: Vec<u8>,
}

impl Place {
    /// Splits `IMAGE:/path`. `None` without `:/`. Of several the first wins that leaves the name of
    /// something that exists, so that images may have colons in their paths.
    pub(crate) fn split(argument: &OsStr) -> Option<Place> {
        let bytes = argument.as_bytes();
        let mut first = None;
        for at in (1..bytes.len()).filter(|at| bytes[*at..].starts_with(b":/")) {
            let image = PathBuf::from(OsString::from_vec(bytes[..at].to_vec()));
            let exists = std::fs::metadata(&image).is_ok_and(|meta| !meta.is_dir());
            let place = Place { image, path: bytes[at + 1..].to_vec() };
            if exists {
                return Some(place);
            }
            first.get_or_insert(place);
        }
        first
    }

    /// As [`Place::split`], for arguments that must be of this form.
    pub(crate) fn parse(argument: &OsStr) -> Result<Place> {
        Place::split(argument).ok_or_else(|| {
            let shown = argument.to_string_lossy();
            Failure::Usage(format!("`{shown}` names no file of an image; write IMAGE:/path"))
        })
    }

    /// For messages.
    pub(crate) fn shown(&self) -> String {
        format!("{}:{}", self.image.display(), String::from_utf8_lossy(&self.path))
    }
}

/// A mounted image.
pub(crate) struct Image {
    /// The volume.
    pub(crate) vol: Volume,
    /// What mounting did.
    pub(crate) report: MountReport,
    /// The replay, if there was one, went to memory only.
    pub(crate) in_memory: bool,
}

/// Opens the file or device.
pub(crate) fn device(path: &Path, read_only: bool) -> Result<Arc<dyn BlockDevice>> {
    let options = FileOptions { read_only, ..FileOptions::default() };
    Ok(Arc::new(FileDevice::open(path, options)?))
}

/// Reads the superblock, whatever its features are.
pub(crate) fn superblock(dev: &dyn BlockDevice, path: &Path) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if dev.geometry().size_bytes < SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64 {
        let text = "too small to hold an ext4; check that it is the right file";
        return Err(Failure::Corrupt(text.into()).at(path.display()));
    }
    dev.read(SUPERBLOCK_OFFSET, &mut bytes, Origin::new(Kind::Metadata, true))?;
    Superblock::decode(&bytes).map_err(|_| {
        let text = "no ext4 superblock; check that it is the right file or partition";
        Failure::Corrupt(text.into()).at(path.display())
    })
}

fn clock() -> &'static Arc<WallClock> {
    static CLOCK: OnceLock<Arc<WallClock>> = OnceLock::new();
    CLOCK.get_or_init(Arc::default)
}

/// The time of the volumes.
pub(crate) fn now_ns() -> u64 {
    clock().now_ns()
}

fn mount(dev: Arc<dyn BlockDevice>, read_only: bool) -> Result<(Volume, MountReport)> {
    let mut options = MountOptions { read_only, ..MountOptions::default() };
    if !read_only {
        // A tool that lists and copies is no user of the files.
        options.apply("noatime")?;
    }
    Ok(Volume::mount_report(dev, clock().clone(), options)?)
}

impl Image {
    /// Opens for reading.
    pub(crate) fn read(path: &Path) -> Result<Image> {
        let dev = device(path, true)?;
        let sb = superblock(&*dev, path)?;
        let in_memory = sb.needs_recovery() && sb.has_journal();
        let dev = if in_memory { Arc::new(OverlayDevice::new(dev)) } else { dev };
        let (vol, report) = mount(dev, !in_memory).map_err(|err| err.at(path.display()))?;
        if report.transactions_replayed > 0 {
            crate::complain(&format!(
                "{}: the journal was replayed in memory only; `syncline recover` writes it",
                path.display()
            ));
        }
        Ok(Image { vol, report, in_memory })
    }

    /// Opens for writing.
    pub(crate) fn write(path: &Path) -> Result<Image> {
        let dev = device(path, false)?;
        superblock(&*dev, path)?;
        let (vol, report) = mount(dev, false).map_err(|err| err.at(path.display()))?;
        Ok(Image { vol, report, in_memory: false })
    }

    /// Unmounts, also after `done` failed; the first failure counts.
    pub(crate) fn close<T>(self, done: Result<T>) -> Result<T> {
        if self.in_memory || self.vol.is_read_only() {
            return done;
        }
        let closed = self.vol.unmount();
        match (done, closed) {
            (Ok(value), Ok(())) => Ok(value),
            (Ok(_), Err(err)) => Err(err.into()),
            // What latched the volume is what was reported.
            (Err(failure), _) => Err(failure),
        }
    }
}

/// Calls `each` with every place, each image mounted once for a run of places in it. All are tried;
/// the first failure decides the exit code, the others are printed.
pub(crate) fn for_each(
    arguments: &[OsString],
    writable: bool,
    each: &mut dyn FnMut(&Volume, &Place) -> Result<()>,
) -> Result<()> {
    let places = arguments.iter().map(|a| Place::parse(a)).collect::<Result<Vec<_>>>()?;
    let mut outcome = Ok(());
    for run in places.chunk_by(|a, b| a.image == b.image) {
        let Some(first) = run.first() else { continue };
        let open = if writable { Image::write } else { Image::read };
        let image = match open(&first.image) {
            Ok(image) => image,
            Err(failure) => {
                fail(&mut outcome, failure)?;
                continue;
            }
        };
        let mut done = Ok(());
        for place in run {
            let result = crate::interrupt::check().and_then(|()| each(&image.vol, place));
            if let Err(failure) = result
                && let Err(end) = fail(&mut done, failure.at(place.shown()))
            {
                done = Err(end);
                break;
            }
        }
        if let Err(failure) = image.close(done) {
            fail(&mut outcome, failure)?;
        }
    }
    outcome
}

/// Keeps the first failure for the end and prints the others; what makes going on useless is
/// returned.
fn fail(outcome: &mut Result<()>, failure: Failure) -> Result<()> {
    if matches!(failure, Failure::Interrupted | Failure::PipeClosed) {
        return Err(failure);
    }
    if outcome.is_ok() {
        *outcome = Err(failure);
    } else if let Some(text) = failure.message() {
        crate::complain(text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_may_have_colons_in_its_path() {
        let dir = std::env::temp_dir().join(format!("a:b-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let image = dir.join("c:d.img");
        std::fs::write(&image, "x").unwrap();
        let mut argument = image.clone().into_os_string();
        argument.push(":/x:/y");
        let place = Place::split(&argument).unwrap();
        assert_eq!((place.image, place.path), (image, b"/x:/y".to_vec()));
        std::fs::remove_dir_all(&dir).unwrap();
        let place = Place::split(OsStr::new("no-such:/x:/y")).unwrap();
        assert_eq!(place.path, b"/x:/y");
        assert_eq!(Place::split(OsStr::new("./plain")), None);
        assert_eq!(Place::split(OsStr::new(":/x")), None);
    }
}
