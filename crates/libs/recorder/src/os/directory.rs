//! The directory of a recorder: creation of event files, and reading them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{RecorderError, Result};
use crate::reader::Source;

/// Files that are ready for an event and not one yet begin with this.
pub(super) const SPARE: &str = "spare-";

/// Creates a file that is not there, with these flags of open(2).
pub(super) fn create(path: &Path, flags: i32) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(0o644).custom_flags(flags);
    options.open(path).map_err(|err| failed("create", path, &err))
}

/// Allocates the whole file. Where the file system cannot, nothing is left.
pub(super) fn allocate(file: &File, path: &Path, bytes: u64) -> Result<()> {
    let done = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    done.map_err(|err| {
        // The first failure counts, not that of tidying up.
        let _ = std::fs::remove_file(path);
        failed("fallocate", path, &err)
    })
}

/// Makes the names of a directory durable.
pub(super) fn sync_names(dir: &Path) -> Result<()> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|err| failed("fsync", dir, &err))
}

pub(super) fn failed(call: &str, path: &Path, err: &dyn std::fmt::Display) -> RecorderError {
    RecorderError::io(format!("{call} {}", path.display()), err)
}

/// The files of a directory that may hold an event, by name.
///
/// # Errors
/// [`RecorderError::Read`].
pub fn event_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |err: std::io::Error| RecorderError::read(dir.display().to_string(), &err);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "rec") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A file as the source of a reader.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    path: PathBuf,
}

impl FileSource {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// [`RecorderError::Read`].
    pub fn open(path: &Path) -> Result<FileSource> {
        let file = File::open(path);
        let file = file.map_err(|err| RecorderError::read(path.display().to_string(), &err))?;
        Ok(FileSource { file, path: path.to_owned() })
    }

    fn failed(&self, err: &std::io::Error) -> RecorderError {
        RecorderError::read(self.path.display().to_string(), err)
    }
}

impl Source for FileSource {
    fn len_bytes(&self) -> Result<u64> {
        self.file.metadata().map(|meta| meta.len()).map_err(|err| self.failed(&err))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => return Ok(()),
                Ok(n) => done += n,
                Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
                Err(err) => return Err(self.failed(&err)),
            }
        }
        Ok(())
    }
}
