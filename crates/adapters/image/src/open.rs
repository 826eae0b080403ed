//! Files of this system that hold images: `IMAGE:/path`, formats, locks.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, FileDevice, FileOptions, WallClock};
use syncline_fs::Rescue;

use crate::partition::{Part, part_of};
use crate::platform::{bytes_of, path_of};
use crate::qcow2::{self, Qcow2Device};
use crate::{Image, ImageError, Result, container};

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
            ImageError::Usage(format!("`{shown}` names no file of an image; write IMAGE:/path"))
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
        }
    }
}

/// Opens the file or device as bytes, whatever they are.
///
/// # Errors
/// As of open(2); somebody else has it open.
pub(crate) fn raw(path: &Path, read_only: bool) -> Result<FileDevice> {
    let options = FileOptions { read_only, ..FileOptions::default() };
    Ok(FileDevice::open(path, options)?)
}

/// Opens the file or device; a qcow2 file as the disk in it.
///
/// # Errors
/// As of open(2); somebody else has it open; a qcow2 that is damaged or not supported.
pub fn device(path: &Path, read_only: bool) -> Result<Arc<dyn BlockDevice>> {
    opened_device(path, read_only, &[], &|| {})
}

/// As [`device`], of a qcow2 over the files of `backing`, the next one first. The other files of a
/// split sparse image are opened, too. `opened` is called when all files are open and locked,
/// before they are read.
///
/// # Errors
/// As of [`device`].
pub fn opened_device(
    path: &Path,
    read_only: bool,
    backing: &[PathBuf],
    opened: &dyn Fn(),
) -> Result<Arc<dyn BlockDevice>> {
    let file = raw(path, read_only)?;
    let below = backing.iter().map(|path| Ok((raw(path, true)?, path.clone())));
    let below = below.collect::<Result<Vec<_>>>()?;
    let others = container::others(&file, path).map_err(|err| err.at(path.display()))?;
    let others = others.iter().map(|other| raw(other, true)).collect::<Result<Vec<_>>>()?;
    // Made while every directory can be written to.
    let scratch = container::is_compressed(&file)
        .then(|| tempfile::tempfile().map_err(|err| ImageError::host(&std::env::temp_dir(), &err)));
    opened();
    if let Some(scratch) = scratch {
        return container::unpacked(file, path, scratch?).map_err(|err| err.at(path.display()));
    }
    repair(&file, path)?;
    if others.is_empty() || !below.is_empty() {
        return over(file, path, below);
    }
    container::disk(file, path, others).map_err(|err| err.at(path.display()))
}

/// Returns whether a file is a qcow2; false also where it cannot be read.
pub fn is_qcow2(path: &Path) -> bool {
    raw(path, true).is_ok_and(|file| qcow2::is_qcow2(&file))
}

/// Returns whether a file is compressed; false also where it cannot be read.
pub fn is_compressed(path: &Path) -> bool {
    raw(path, true).is_ok_and(|file| container::is_compressed(&file))
}

/// Repairs a qcow2 that is open to be written to and was not closed before, with qemu-img.
///
/// # Errors
/// There is no qemu-img, or it fails.
pub fn repair(file: &FileDevice, path: &Path) -> Result<()> {
    if file.geometry().read_only || !grows(file) {
        return Ok(());
    }
    Qcow2Device::repair(file, path).map_err(|err| err.at(path.display()))
}

/// The other files of a split sparse image, of which `path` is the first; none where it cannot be
/// read. It is opened only if its name has a number and there is a next one.
pub fn other_files(path: &Path) -> Vec<PathBuf> {
    if container::next_names(path).is_ok_and(|names| names.is_empty()) {
        return Vec::new();
    }
    raw(path, true).map(|file| others(&file, path)).unwrap_or_default()
}

/// As [`other_files`], of an open file.
pub fn others(file: &FileDevice, path: &Path) -> Vec<PathBuf> {
    container::others(file, path).unwrap_or_default()
}

/// True if the disk in an opened file is not the file itself, and the file grows with it.
pub fn grows(file: &FileDevice) -> bool {
    !file.is_block_device() && qcow2::is_qcow2(file)
}

/// Returns the disk in an opened file: that of a qcow2, an Android sparse image, a VHD, VHDX or
/// VMDK, or the file itself. `path` is for messages.
///
/// # Errors
/// A file that is damaged, not closed, or not supported, or that QEMU has open.
pub fn formatted(file: FileDevice, path: &Path) -> Result<Arc<dyn BlockDevice>> {
    over(file, path, Vec::new())
}

/// As [`formatted`], of a qcow2 over the files of `below`, the next one first.
pub(crate) fn over(
    file: FileDevice,
    path: &Path,
    below: Vec<(FileDevice, PathBuf)>,
) -> Result<Arc<dyn BlockDevice>> {
    let at = |err: ImageError| err.at(path.display());
    if grows(&file) {
        return Qcow2Device::open(file, path, below).map_err(at);
    }
    if !below.is_empty() {
        let text = "it is no qcow2, so it is over no other file; leave --backing away";
        return Err(at(ImageError::Usage(text.to_owned())));
    }
    if file.is_block_device() {
        return Ok(Arc::new(file));
    }
    container::disk(file, path, Vec::new()).map_err(at)
}

impl Image {
    /// Opens for reading.
    ///
    /// # Errors
    /// No such file, no ext4, a feature that is not supported.
    pub fn read(path: &Path, how: &Opening) -> Result<Image> {
        let dev = opened_device(path, true, &how.backing, &*how.opened)?;
        let dev = part_of(dev, how.part, path)?;
        Image::read_device(dev, &how.clock, how.rescue, path)
    }

    /// Opens for writing.
    ///
    /// # Errors
    /// As of [`Image::read`]; an image that somebody else has open.
    pub fn write(path: &Path, how: &Opening) -> Result<Image> {
        let dev = opened_device(path, false, &how.backing, &*how.opened)?;
        let dev = part_of(dev, how.part, path)?;
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
