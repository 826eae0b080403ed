//! The device by the standard library alone, for systems other than Linux.
//!
//! Promises
//! - A file that is open for writing is locked against others, one for reading against writers.
//! - A flush is [`File::sync_data`], which is `F_FULLFSYNC` on macOS. A FUA write is a write and a
//!   flush behind it.
//! - A discard does nothing.
//! - A disk (`\\.\PhysicalDrive1` of Windows, `/dev/rdisk4` of macOS) has as many bytes as can be
//!   read. It has no lock: both systems refuse to write to what they have mounted.
//!
//! Assumes nothing of the system but files, and disks with sectors of 512 bytes. Tested below, on
//! Linux as well.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use parking_lot::Mutex;

use super::{FileOptions, io_error, make_file, open_error};
use crate::{BlockDevice, DeviceError, Geometry, MAX_REQUEST_BYTES, Op, Request, SECTOR_BYTES};

/// Most sectors of a disk: 4 EiB.
const SECTORS_MAX: u64 = 1 << 53;

/// An image file, or a disk. See the module's description.
pub struct FileDevice {
    file: Mutex<File>,
    geometry: Geometry,
    is_disk: bool,
}

impl Drop for FileDevice {
    #[expect(clippy::incompatible_msrv, reason = "locks of std: Rust 1.89 outside of Linux")]
    fn drop(&mut self) {
        // A child that another thread starts has the file open until it runs its program. The end
        // of the last descriptor gives the lock back, too.
        let _ = self.file.lock().unlock();
    }
}

impl FileDevice {
    /// Opens an existing file.
    ///
    /// # Errors
    /// [`DeviceError::Open`] where it is missing or in use.
    #[expect(clippy::incompatible_msrv, reason = "locks of std: Rust 1.89 outside of Linux")]
    pub fn open(path: &Path, options: FileOptions) -> Result<FileDevice, DeviceError> {
        let failed = |error: io::Error, next: &str| open_error(path, &error, next);
        let opened = OpenOptions::new().read(true).write(!options.read_only).open(path);
        let file = opened.map_err(|e| failed(e, "check the path and its permissions"))?;
        // Windows has no metadata of a disk.
        let is_disk = !file.metadata().is_ok_and(|found| found.is_file());
        if options.lock && !is_disk {
            let locked = if options.read_only { file.try_lock_shared() } else { file.try_lock() };
            let next = "another program has it open; close that first";
            locked.map_err(|error| failed(error.into(), next))?;
        }
        let size = match is_disk {
            true => {
                disk_bytes(&file).map_err(|e| failed(e, "check the disk and its permissions"))?
            }
            false => file.metadata().map_err(|e| failed(e, "check the file"))?.len(),
        };
        let geometry = Geometry {
            size_bytes: size / SECTOR_BYTES * SECTOR_BYTES,
            max_request_bytes: MAX_REQUEST_BYTES,
            volatile_cache: true,
            fua: true,
            barrier: false,
            discard: false,
            read_only: options.read_only,
            zones: None,
            write_hints: false,
        };
        Ok(FileDevice { file: Mutex::new(file), geometry, is_disk })
    }

    /// Opens a file that the caller has just made.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[cfg_attr(target_os = "linux", expect(dead_code, reason = "there its tests alone are built"))]
    pub fn open_new(path: &Path, options: FileOptions) -> Result<FileDevice, DeviceError> {
        FileDevice::open(path, options)
    }

    /// Makes a new, sparse image file of zeroes and opens it.
    ///
    /// # Errors
    /// [`DeviceError::Open`]; a file that exists is left alone.
    pub fn create(
        path: &Path,
        size_bytes: u64,
        options: FileOptions,
    ) -> Result<FileDevice, DeviceError> {
        make_file(path, size_bytes)?;
        FileDevice::open(path, options)
    }

    /// Another descriptor of the open file, for formats whose files grow. The lock is the device's.
    ///
    /// # Errors
    /// Too many open files.
    pub fn try_clone_file(&self) -> io::Result<File> {
        self.file.lock().try_clone()
    }

    /// True if this is a disk.
    pub fn is_block_device(&self) -> bool {
        self.is_disk
    }

    /// True if requests bypass the page cache: never.
    pub fn is_direct(&self) -> bool {
        false
    }

    /// True if batches go through io_uring: never.
    pub fn has_io_uring(&self) -> bool {
        false
    }
}

/// Bytes of a disk. No safe call tells them: the end is where reads end. A sector that cannot be
/// read may make the disk look too short for its file system, never too long.
fn disk_bytes(mut file: &File) -> io::Result<u64> {
    let mut sector = [0; SECTOR_BYTES as usize];
    let mut read = |nr: u64| {
        file.seek(SeekFrom::Start(nr * SECTOR_BYTES))?;
        file.read_exact(&mut sector)
    };
    read(0)?;
    let mut end = 1;
    while end < SECTORS_MAX && read(end).is_ok() {
        end *= 2;
    }
    let mut last = end / 2;
    while end - last > 1 {
        let middle = last.midpoint(end);
        *(if read(middle).is_ok() { &mut last } else { &mut end }) = middle;
    }
    Ok(end * SECTOR_BYTES)
}

/// One request.
fn transfer(file: &mut File, request: &mut Request<'_>) -> io::Result<()> {
    match &mut request.op {
        Op::Write { from, fua } => {
            file.seek(SeekFrom::Start(request.offset_bytes))?;
            from.iter().try_for_each(|part| file.write_all(part))?;
            if *fua { file.sync_data() } else { Ok(()) }
        }
        Op::Read { into } => {
            file.seek(SeekFrom::Start(request.offset_bytes))?;
            into.iter_mut().try_for_each(|part| file.read_exact(part))
        }
        Op::Flush => file.sync_data(),
        Op::Discard { .. } => Ok(()),
    }
}

impl BlockDevice for FileDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch.iter() {
            self.geometry.check(request)?;
        }
        let mut file = self.file.lock();
        batch.iter_mut().try_for_each(|request| {
            transfer(&mut file, request).map_err(|error| io_error(request, &error))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Origin, Plug};

    const OTHER: Origin = Origin::new(Kind::Other, true);

    #[test]
    fn a_disk_ends_where_reads_end() {
        let dir = tempfile::tempdir().unwrap();
        for sectors in [1, 2, 3, 4, 5, 127, 128, 129, 1_000_003] {
            let path = dir.path().join(sectors.to_string());
            make_file(&path, sectors * SECTOR_BYTES).unwrap();
            let file = File::open(&path).unwrap();
            assert_eq!(disk_bytes(&file).unwrap(), sectors * SECTOR_BYTES);
        }
        make_file(&dir.path().join("empty"), 0).unwrap();
        assert!(disk_bytes(&File::open(dir.path().join("empty")).unwrap()).is_err());
    }

    #[test]
    fn what_is_written_is_read_back_and_the_file_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let device = FileDevice::create(&path, 64 << 10, FileOptions::default()).unwrap();
        assert!(FileDevice::create(&path, 1, FileOptions::default()).is_err(), "it is there");
        let refused = FileDevice::open(&path, FileOptions::default()).map(drop).unwrap_err();
        assert!(refused.to_string().contains("another program"), "{refused}");

        let bytes: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
        let mut plug = Plug::new();
        plug.write_run(4096, bytes[..4096].chunks(1024), OTHER);
        plug.write_fua(32 << 10, &bytes[4096..], OTHER);
        plug.submit(&device).unwrap();
        device.flush(OTHER).unwrap();
        let mut back = vec![1; 64 << 10];
        device.read(0, &mut back, OTHER).unwrap();
        assert!(back[4096..8192] == bytes[..4096] && back[32 << 10..36 << 10] == bytes[4096..]);
        assert!(back[..4096].iter().all(|&byte| byte == 0));
        assert!(device.read(64 << 10, &mut back[..512], OTHER).is_err(), "beyond the end");

        assert!(!device.is_direct() && !device.has_io_uring() && !device.is_block_device());
        assert_eq!(device.try_clone_file().unwrap().metadata().unwrap().len(), 64 << 10);
        let file = device.try_clone_file().unwrap();
        assert!(FileDevice::open(&path, FileOptions::default()).is_err(), "it is locked");
        drop(device);
        drop(FileDevice::open(&path, FileOptions::default()).expect("a descriptor is no lock"));
        drop(file);
        let readers = FileOptions { read_only: true, ..FileOptions::default() };
        let two = [0, 1].map(|_| FileDevice::open(&path, readers).unwrap());
        let refused = two[0].write(0, &[1; 512], OTHER).unwrap_err();
        assert!(matches!(refused, DeviceError::ReadOnly), "{refused}");
        two[1].read(4096, &mut back[..512], OTHER).unwrap();
        assert_eq!(back[..512], bytes[..512]);
        assert!(FileDevice::open(&path, FileOptions::default()).is_err(), "others read it");
        assert_eq!(two[0].geometry().size_bytes, 64 << 10);
    }
}
