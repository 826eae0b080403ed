//! Files that are complete or not there: written beside their place, then renamed.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{ImageError, Result};

/// A file on its way: written under a temporary name beside its own, renamed by `commit`, removed
/// when it is dropped before.
pub struct Staged(PathBuf, File);

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
        let temporary = temporary_name(path);
        let _ = std::fs::remove_file(&temporary);
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        // Elsewhere a file has the rights of its directory.
        #[cfg(not(unix))]
        let _ = mode;
        let made = options.open(&temporary);
        Ok(Staged(temporary, made.map_err(|err| ImageError::host(path, &err))?))
    }

    /// Returns the temporary path.
    pub fn temporary(&self) -> &Path {
        &self.0
    }

    /// The empty file.
    ///
    /// # Errors
    /// As [`Staged::new`].
    pub fn file(&self, path: &Path) -> Result<File> {
        self.1.try_clone().map_err(|err| ImageError::host(path, &err))
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn commit(self, path: &Path) -> Result<()> {
        std::fs::rename(&self.0, path).map_err(|err| ImageError::host(path, &err))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Gone already after a commit.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

/// Writes a file under a temporary name and renames it. What is no regular file (a pipe, a
/// terminal) is written to directly.
///
/// # Errors
/// It cannot be written.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |err: std::io::Error| ImageError::host(path, &err);
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return std::fs::write(path, bytes).map_err(failed);
    }
    let staged = Staged::new(path)?;
    std::io::Write::write_all(&mut &staged.1, bytes).map_err(failed)?;
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
