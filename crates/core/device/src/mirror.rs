//! Images in files for stock tools: load, store, and a file that follows a changing image.
//!
//! Crash tests hand thousands of nearly equal images to e2fsck. [`FileMirror`] keeps one file and
//! rewrites only the 16 KiB chunks that differ from the image before, so that a state costs what it
//! changed. Promises: after [`FileMirror::update`] or [`FileMirror::restore`] the file equals the
//! image; runs of zeroes stay holes where they were never written.
//!
//! Tested below.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::memory::{CHUNK_BYTES, bytes_of};
use crate::{BlockDevice, DeviceError, MemoryDevice};

const CHUNK: u64 = CHUNK_BYTES as u64;

fn failed(path: &Path, what: &str, error: &io::Error) -> DeviceError {
    DeviceError::Open {
        path: path.display().to_string(),
        reason: format!("cannot {what}: {error}"),
        errno: error.raw_os_error().unwrap_or(5),
    }
}

/// Calls `each` with the start and end of every part of the file that may hold data.
fn for_each_data_range(
    file: &File,
    size: u64,
    mut each: impl FnMut(u64, u64) -> io::Result<()>,
) -> io::Result<()> {
    use rustix::fs::{SeekFrom, seek};
    let mut at = 0;
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            // No support for holes here: everything is data.
            Err(rustix::io::Errno::INVAL) => return each(at, size),
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?.min(size);
        if end <= start {
            return Ok(());
        }
        each(start, end)?;
        at = end;
    }
    Ok(())
}

impl MemoryDevice {
    /// Reads an image file; holes and zeroes cost no memory.
    ///
    /// # Errors
    /// [`DeviceError::Open`].
    pub fn load(path: &Path) -> Result<MemoryDevice, DeviceError> {
        let file = File::open(path).map_err(|e| failed(path, "open it", &e))?;
        let size = file.metadata().map_err(|e| failed(path, "read its size", &e))?.len();
        let device = MemoryDevice::new(size);
        let size = device.geometry().size_bytes;
        let mut buffer = vec![0; 1 << 20];
        for_each_data_range(&file, size, |start, end| {
            let mut at = start;
            while at < end {
                let len = (end - at).min(buffer.len() as u64) as usize;
                file.read_exact_at(&mut buffer[..len], at)?;
                for (index, chunk) in buffer[..len].chunks(CHUNK_BYTES).enumerate() {
                    if chunk != &bytes_of(&None)[..chunk.len()] {
                        let to = at + index as u64 * CHUNK;
                        device.write_at(to, chunk).map_err(io::Error::other)?;
                    }
                }
                at += len as u64;
            }
            Ok(())
        })
        .map_err(|e| failed(path, "read it", &e))?;
        Ok(device)
    }

    /// Writes the image to a file (made or replaced), with holes where chunks are zeroes.
    ///
    /// # Errors
    /// [`DeviceError::Open`].
    pub fn to_file(&self, path: &Path) -> Result<(), DeviceError> {
        FileMirror::create(path, self).map(drop)
    }
}

/// A file that follows an image. See the module's description.
#[derive(Debug)]
pub struct FileMirror {
    path: PathBuf,
    file: File,
    last: MemoryDevice,
}

impl FileMirror {
    /// Makes (or replaces) the file with the content of `image`.
    ///
    /// # Errors
    /// [`DeviceError::Open`].
    pub fn create(path: &Path, image: &MemoryDevice) -> Result<FileMirror, DeviceError> {
        let size = image.geometry().size_bytes;
        let mut options = crate::file::private();
        let file = options.read(true).write(true).create(true).truncate(true).open(path);
        let file = file.map_err(|e| failed(path, "create it", &e))?;
        file.set_len(size).map_err(|e| failed(path, "set its size", &e))?;
        let mut mirror =
            FileMirror { path: path.to_path_buf(), file, last: MemoryDevice::new(size) };
        mirror.update(image)?;
        Ok(mirror)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file equal to `image`, which must have the size of the first one. The file must
    /// not have been changed by others since the last call. Returns the bytes written.
    ///
    /// # Errors
    /// [`DeviceError::Open`].
    pub fn update(&mut self, image: &MemoryDevice) -> Result<u64, DeviceError> {
        self.same_size(image)?;
        let mut written = 0;
        let size = image.geometry().size_bytes;
        for index in image.unshared_chunks(&self.last) {
            let (new, old) = (image.chunk(index), self.last.chunk(index));
            if bytes_of(&new) != bytes_of(&old) {
                written += self.write_chunk(index, bytes_of(&new), size)?;
            }
        }
        self.last = image.snapshot();
        Ok(written)
    }

    /// As [`FileMirror::update`] for a file that others (a repairing e2fsck) may have changed: what
    /// the file holds is read and compared. Returns the bytes written.
    ///
    /// # Errors
    /// [`DeviceError::Open`].
    pub fn restore(&mut self, image: &MemoryDevice) -> Result<u64, DeviceError> {
        self.same_size(image)?;
        let size = image.geometry().size_bytes;
        self.file.set_len(size).map_err(|e| failed(&self.path, "set its size", &e))?;
        self.last = MemoryDevice::load(&self.path)?;
        self.update(image)
    }

    fn same_size(&self, image: &MemoryDevice) -> Result<(), DeviceError> {
        let (size, own) = (image.geometry().size_bytes, self.last.geometry().size_bytes);
        if size == own {
            return Ok(());
        }
        Err(DeviceError::Open {
            path: self.path.display().to_string(),
            reason: format!("the mirror has {own} bytes, the image {size}; create a new mirror"),
            errno: 22,
        })
    }

    fn write_chunk(&self, index: u64, bytes: &[u8], size: u64) -> Result<u64, DeviceError> {
        let at = index * CHUNK;
        let len = CHUNK.min(size - at);
        let written = self.file.write_all_at(&bytes[..len as usize], at);
        written.map_err(|e| failed(&self.path, "write it", &e))?;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn store_and_load_round_trip_with_holes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let image = MemoryDevice::new((8 << 20) + 512);
        image.write_at(5 << 20, &[3; 1000]).unwrap();
        image.write_at(8 << 20, &[4; 512]).unwrap();
        image.to_file(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), (8 << 20) + 512);
        let back = MemoryDevice::load(&path).unwrap();
        assert_eq!(image.first_difference(&back), None);
        assert_eq!(back.allocated_bytes(), 2 * CHUNK);
        assert!(MemoryDevice::load(&dir.path().join("missing")).is_err());
    }

    #[test]
    fn update_writes_only_what_changed_and_restore_undoes_strangers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let image = MemoryDevice::from_bytes(&vec![1; 1 << 20]);
        let mut mirror = FileMirror::create(&path, &image).unwrap();
        let next = image.snapshot();
        next.write_at(70_000, &[2; 10]).unwrap();
        assert_eq!(mirror.update(&next).unwrap(), CHUNK);
        assert_eq!(mirror.update(&next).unwrap(), 0);
        assert_eq!(MemoryDevice::load(&path).unwrap().first_difference(&next), None);
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[9; 3], 500).unwrap();
        assert_eq!(mirror.restore(&image).unwrap(), 2 * CHUNK);
        assert_eq!(MemoryDevice::load(&path).unwrap().first_difference(&image), None);
        assert!(mirror.update(&MemoryDevice::new(512)).is_err());
    }
}
