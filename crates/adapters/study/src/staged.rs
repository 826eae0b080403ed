//! Files that are complete or not there: written beside their place, then renamed.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{Result, StudyError};

/// A file on its way: written under a temporary name beside its own, renamed by `commit`, removed
/// when it is dropped before.
pub struct Staged(PathBuf);

impl Staged {
    /// A place for `path`.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn new(path: &Path) -> Result<Staged> {
        let staged = Staged(temporary_name(path));
        staged.file(path)?;
        Ok(staged)
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
        File::create(&self.0).map_err(|err| StudyError::host(path, &err))
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn commit(self, path: &Path) -> Result<()> {
        std::fs::rename(&self.0, path).map_err(|err| StudyError::host(path, &err))
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
    let failed = |err: std::io::Error| StudyError::host(path, &err);
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return std::fs::write(path, bytes).map_err(failed);
    }
    let staged = Staged(temporary_name(path));
    std::fs::write(staged.temporary(), bytes).map_err(failed)?;
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
            drop(opened.map_err(|err| StudyError::host(path, &err))?);
        } else {
            // Removed when it is dropped.
            Staged::new(path)?;
        }
    }
    Ok(())
}
