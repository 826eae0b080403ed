//! The place of a trace: a directory that is opened once, and two names in it.
//!
//! A mount runs for weeks, and as root: who may change the directory meanwhile must not be able to
//! have another file overwritten or renamed. A trace has the names of files, and is for its owner.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

/// A trace's directory, its name, and its name until it is whole.
pub struct Place {
    dir: OwnedFd,
    name: OsString,
    partial: OsString,
}

impl Place {
    pub(super) fn new(path: &Path) -> io::Result<Place> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        Ok(Place::within(dir, path.file_name().unwrap_or(OsStr::new("trace"))))
    }

    /// The place of that name in a directory that is open.
    pub fn within(dir: OwnedFd, name: &OsStr) -> Place {
        let name = name.to_owned();
        let mut partial = name.clone();
        partial.push(".partial");
        Place { dir, name, partial }
    }

    /// The directory, and the name in it.
    pub fn parts(&self) -> (&OwnedFd, &OsStr) {
        (&self.dir, &self.name)
    }

    /// Makes the file under its name for the time being; what a killed mount left there goes.
    pub(super) fn create(&self) -> io::Result<File> {
        match self.remove() {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&self.dir, &self.partial, flags | OFlags::CLOEXEC, mode)?.into())
    }

    pub(crate) fn commit(&self) -> io::Result<()> {
        Ok(renameat(&self.dir, &self.partial, &self.dir, &self.name)?)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        match unlinkat(&self.dir, &self.partial, AtFlags::empty()) {
            Err(Errno::ISDIR) => Err(io::ErrorKind::AlreadyExists.into()),
            other => Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn links_in_its_place_lead_nowhere() {
        let dir = std::env::temp_dir().join(format!("syncline-place-{}", std::process::id()));
        let (home, outside) = (dir.join("home"), dir.join("outside"));
        std::fs::create_dir_all(&home).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("t"), "kept").unwrap();
        // The name until it is whole is a link already.
        symlink(outside.join("t"), home.join("t.partial")).unwrap();
        let place = Place::new(&home.join("t")).unwrap();
        let file = place.create().unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o600);
        // The directory becomes one.
        std::fs::rename(&home, dir.join("away")).unwrap();
        symlink(&outside, &home).unwrap();
        std::fs::write(outside.join("t.partial"), "kept").unwrap();
        place.commit().unwrap();
        assert!(dir.join("away/t").exists());
        assert_eq!(std::fs::read(outside.join("t")).unwrap(), b"kept");
        assert_eq!(std::fs::read(outside.join("t.partial")).unwrap(), b"kept");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
