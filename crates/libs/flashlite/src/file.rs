//! A log, or the file it is rearranged to, as a file of the system.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, FlockOperation, flock};
use rustix::io::Errno;

use crate::{Error, Log, Progress, Rearrange, Rearranged, Result, Storage};

/// An open file, locked against other programs that use this library: exclusively where it is
/// written, shared where it is read.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
    /// The length was set since the last sync; fdatasync need not make a cut durable.
    cut: AtomicBool,
}

impl FileStorage {
    /// Makes a new file; its name is durable when this returns.
    ///
    /// # Errors
    /// As the system's; `AlreadyExists` if there is a file of this name.
    pub fn create_new(path: &Path) -> io::Result<FileStorage> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let storage = locked(file, false)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(storage)
    }

    /// Removes a new file that could not be filled. An error says less than that of the filling.
    pub(crate) fn remove(path: &Path) {
        let _ = std::fs::remove_file(path);
    }

    /// Opens a file that exists for reading and writing.
    ///
    /// # Errors
    /// As the system's; `ResourceBusy` if another program uses it.
    pub fn open(path: &Path) -> io::Result<FileStorage> {
        locked(OpenOptions::new().read(true).write(true).open(path)?, false)
    }

    /// Opens a file for reading only.
    ///
    /// # Errors
    /// As [`FileStorage::open`].
    pub fn open_read_only(path: &Path) -> io::Result<FileStorage> {
        locked(File::open(path)?, true)
    }
}

impl Drop for FileStorage {
    /// Gives the lock back at once: a child that another thread is starting has the file open until
    /// it runs its program, and the lock would stay as long.
    fn drop(&mut self) {
        // The end of the last descriptor gives it back, too.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

fn locked(file: File, shared: bool) -> io::Result<FileStorage> {
    use FlockOperation::{NonBlockingLockExclusive, NonBlockingLockShared};
    match flock(&file, if shared { NonBlockingLockShared } else { NonBlockingLockExclusive }) {
        Ok(()) => Ok(FileStorage { file, cut: AtomicBool::new(false) }),
        Err(Errno::WOULDBLOCK) => {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, "another program has it open"))
        }
        Err(error) => Err(error.into()),
    }
}

impl Storage for FileStorage {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let mut full = parts.iter().filter(|part| !part.is_empty());
        // Nearly always one call writes all of it; the system is faster with one part.
        let written = match (full.next(), full.next()) {
            (Some(part), None) => rustix::io::pwrite(&self.file, part, offset),
            _ => rustix::io::pwritev(&self.file, parts, offset),
        };
        let mut done = match written {
            Ok(written) if written == len => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut left: Vec<IoSlice<'_>> = parts.to_vec();
        let mut left = left.as_mut_slice();
        IoSlice::advance_slices(&mut left, done);
        while !left.is_empty() {
            match rustix::io::pwritev(&self.file, left, offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    done += written;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.cut.store(true, Ordering::SeqCst);
        self.file.set_len(len_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.cut.swap(false, Ordering::SeqCst) {
            return self.file.sync_all();
        }
        self.file.sync_data()
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> io::Result<bool> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, len_bytes) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn copy_range(
        &self,
        offset: u64,
        to: &dyn Storage,
        to_offset: u64,
        len_bytes: u64,
    ) -> io::Result<u64> {
        let Some(to) = to.descriptor() else { return Ok(0) };
        let (mut from_at, mut to_at) = (offset, to_offset);
        let len = usize::try_from(len_bytes).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(&self.file, Some(&mut from_at), to, Some(&mut to_at), len)
        {
            Ok(copied) => Ok(copied as u64),
            // Another file system, or a kernel without it: the caller copies by itself.
            Err(Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::INTR) => {
                Ok(0)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

impl Log {
    /// [`Log::rearrange_to`] a file: `path` with `.part` behind it grows, and takes the name `path`
    /// when it is complete and durable, in place of what has that name by then. Called again after
    /// a stop or a crash it goes on.
    ///
    /// # Errors
    /// As there.
    pub fn rearrange_to_file(
        &self,
        path: &Path,
        options: Rearrange,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Rearranged> {
        let mut part = OsString::from(path);
        part.push(".part");
        let part = Path::new(&part);
        let to = match FileStorage::create_new(part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => FileStorage::open(part),
            made => made,
        };
        let to = to.map_err(Error::io("making the file with `.part` at its end"))?;
        let done = self.rearrange_to(&to, options, progress)?;
        let named = std::fs::rename(part, path).and_then(|()| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
        });
        named.map_err(Error::io("naming the file"))?;
        Ok(done)
    }
}
