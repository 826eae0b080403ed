//! Files of this system that hold images: `IMAGE:/path`, formats, locks.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, WallClock};
use syncline_fs::Rescue;

use crate::files::raw;
use crate::partition::{Part, part_of};
use crate::platform::{bytes_of, path_of};
use crate::{Files, Image, ImageError, Result, Watch, container, qcow2};

/// A file in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The image.
    pub image: PathBuf,
    /// The path in it, with the leading slash.
    pub path: Vec<u8>,
}

impl Place {
    /// Splits `IMAGE:/path`. `None` without `:/`. Of several the first wins that leaves the name of
    /// something that exists, so that images may have colons in their paths.
    pub fn split(argument: &OsStr) -> Option<Place> {
        let bytes = bytes_of(argument);
        let mut first = None;
        // `C:/` names a drive of Windows.
        let shortest = if cfg!(windows) { 2 } else { 1 };
        for at in (shortest..bytes.len()).filter(|at| bytes[*at..].starts_with(b":/")) {
            let image = path_of(&bytes[..at]);
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
    ///
    /// # Errors
    /// [`ImageError::Usage`].
    pub fn parse(argument: &OsStr) -> Result<Place> {
        Place::split(argument).ok_or_else(|| {
            let shown = argument.to_string_lossy();
            let what = match std::fs::metadata(argument).is_ok() {
                true => "names no file of an image",
                false => "does not exist, and names no file of an image",
            };
            ImageError::Usage(format!("`{shown}` {what}; write IMAGE:/path"))
        })
    }

    /// The argument that [`Place::split`] splits into this.
    pub fn argument(&self) -> OsString {
        let mut whole = self.image.clone().into_os_string();
        whole.push(":");
        whole.push(path_of(&self.path));
        whole
    }

    /// For messages.
    pub fn shown(&self) -> String {
        format!("{}:{}", self.image.display(), String::from_utf8_lossy(&self.path))
    }
}

/// Options for opening images.
#[derive(Clone)]
pub struct Opening {
    /// The part of the file or device that is opened.
    pub part: Part,
    /// Files that a qcow2 is over, the next one first. What the image names is never opened.
    pub backing: Vec<PathBuf>,
    /// Reads go past damage.
    pub rescue: Option<Rescue>,
    /// The time of what is written.
    pub clock: Arc<dyn Clock>,
    /// Called when the file is open and locked, before it is read.
    pub opened: Arc<dyn Fn() + Send + Sync>,
    /// Makes what sees how a compressed image is unpacked.
    pub unpacking: fn() -> Box<dyn Watch>,
}

impl Default for Opening {
    /// All of it, at the time of this machine.
    fn default() -> Opening {
        Opening {
            part: Part::Whole,
            backing: Vec::new(),
            rescue: None,
            clock: Arc::new(WallClock::new()),
            opened: Arc::new(|| {}),
            unpacking: || Box::new(()),
        }
    }
}

impl Opening {
    fn device(&self, path: &Path, read_only: bool) -> Result<Arc<dyn BlockDevice>> {
        let watch = (self.unpacking)();
        let dev = opened_device(path, read_only, &self.backing, &*self.opened, &*watch)?;
        part_of(dev, self.part, path)
    }
}

/// Opens the file or device; a qcow2 file as the disk in it.
///
/// # Errors
/// As of open(2); somebody else has it open; a qcow2 that is damaged or not supported.
pub fn device(path: &Path, read_only: bool) -> Result<Arc<dyn BlockDevice>> {
    opened_device(path, read_only, &[], &|| {}, &())
}

/// As [`device`], of a qcow2 over the files of `backing`, the next one first. The other files of a
/// split sparse image are opened, too. `opened` is called when all files are open and locked,
/// before they are read; `watch` sees how a compressed image is unpacked.
///
/// # Errors
/// As of [`device`].
pub fn opened_device(
    path: &Path,
    read_only: bool,
    backing: &[PathBuf],
    opened: &dyn Fn(),
    watch: &dyn Watch,
) -> Result<Arc<dyn BlockDevice>> {
    let files = Files::open(raw(path, read_only)?, path, backing)?;
    opened();
    files.repair()?;
    files.disk(watch)
}

/// Returns whether a file is a qcow2; false also where it cannot be read.
pub fn is_qcow2(path: &Path) -> bool {
    raw(path, true).is_ok_and(|file| qcow2::is_qcow2(&file))
}

/// Returns whether a file is a qcow2 over another file; false also where it cannot be read.
pub fn is_over(path: &Path) -> bool {
    raw(path, true).is_ok_and(|file| qcow2::is_over(&file))
}

/// Returns whether a file is compressed; false also where it cannot be read.
pub fn is_compressed(path: &Path) -> bool {
    raw(path, true).is_ok_and(|file| container::is_compressed(&file))
}

/// The other files of a split sparse image, of which `path` is the first; none where it cannot be
/// read. It is opened only if its name has a number and there is a next one.
pub fn other_files(path: &Path) -> Vec<PathBuf> {
    if container::next_names(path).is_ok_and(|names| names.is_empty()) {
        return Vec::new();
    }
    raw(path, true).and_then(|file| container::others(&file, path)).unwrap_or_default()
}

impl Image {
    /// Opens for reading.
    ///
    /// # Errors
    /// No such file, no ext4, a feature that is not supported.
    pub fn read(path: &Path, how: &Opening) -> Result<Image> {
        let dev = how.device(path, true)?;
        Image::read_device(dev, &how.clock, how.rescue, path)
    }

    /// Opens for writing.
    ///
    /// # Errors
    /// As of [`Image::read`]; an image that somebody else has open.
    pub fn write(path: &Path, how: &Opening) -> Result<Image> {
        let dev = how.device(path, false)?;
        Image::write_device(dev, &how.clock, path)
    }
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
