//! Files that are complete or not there: written beside their place, then renamed. A device, pipe
//! or terminal that has the name is written to, never replaced.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{ImageError, Result};

/// A file on its way: written under a temporary name beside its own, renamed by `commit`, removed
/// when it is dropped before.
pub struct Staged {
    temporary: PathBuf,
    file: File,
    /// It has its name already: something that is no file.
    in_place: bool,
}

impl Staged {
    /// A place for `path`.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn new(path: &Path) -> Result<Staged> {
        Staged::made(path, 0o666)
    }

    /// As [`Staged::new`], for its owner only: data of a volume.
    ///
    /// # Errors
    /// As [`Staged::new`].
    pub fn private(path: &Path) -> Result<Staged> {
        Staged::made(path, 0o600)
    }

    /// A link or file that has the temporary name goes: it is nobody's but ours.
    fn made(path: &Path, mode: u32) -> Result<Staged> {
        let host = |err| ImageError::host(path, &err);
        if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
            let file = File::options().write(true).open(path).map_err(host)?;
            return Ok(Staged { temporary: path.to_owned(), file, in_place: true });
        }
        let temporary = temporary_name(path);
        let _ = std::fs::remove_file(&temporary);
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        // Elsewhere a file has the rights of its directory.
        #[cfg(not(unix))]
        let _ = mode;
        let file = options.open(&temporary).map_err(host)?;
        Ok(Staged { temporary, file, in_place: false })
    }

    /// Returns the path where it is written.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// The empty file.
    ///
    /// # Errors
    /// As [`Staged::new`].
    pub fn file(&self, path: &Path) -> Result<File> {
        self.file.try_clone().map_err(|err| ImageError::host(path, &err))
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn commit(self, path: &Path) -> Result<()> {
        if self.in_place {
            return Ok(());
        }
        std::fs::rename(&self.temporary, path).map_err(|err| ImageError::host(path, &err))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.in_place {
            // Gone already after a commit.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

/// Writes a file under a temporary name and renames it.
///
/// # Errors
/// It cannot be written.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let staged = Staged::new(path)?;
    let written = std::io::Write::write_all(&mut &staged.file, bytes);
    written.map_err(|err| ImageError::host(path, &err))?;
    staged.commit(path)
}

/// Fails if one of these files cannot be written: before a run, not after it. `-` is standard
/// output.
///
/// # Errors
/// The first that cannot be written.
pub fn check_outputs(paths: &[Option<&Path>]) -> Result<()> {
    for path in paths.iter().copied().flatten().filter(|path| *path != Path::new("-")) {
        if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            let opened = File::options().append(true).open(path);
            drop(opened.map_err(|err| ImageError::host(path, &err))?);
        } else {
            // Removed when it is dropped.
            Staged::new(path)?;
        }
    }
    Ok(())
}
