//! The device on Linux: `O_DIRECT`, io_uring, locks. Its promises stand in the module above.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::aligned::{AlignedBuffer, Pool};
use super::lives::Lives;
use super::lock::{self, Held};
use super::ring::Ring;
use super::transfer::Transfer;
use super::{FileOptions, io_error, make_file, open_error, sys};
use crate::{BlockDevice, DeviceError, Geometry, MAX_REQUEST_BYTES, Op, Request, SECTOR_BYTES};

/// Requests in flight at once through the ring.
const RING_ENTRIES: usize = 32;

const EIO: i32 = 5;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const EROFS: i32 = 30;

/// EPERM, EACCES, EROFS: what opening for writing gives where only reading is allowed.
const PROTECTED: [i32; 3] = [1, 13, EROFS];
const NOT_WRITABLE: &str = "check that it may be written to, or mount it with -o ro";
const NOT_OPENED: &str = "check the path and its permissions";
const NO_IMAGE: &str = "give an image file or a block device";
const IN_USE: &str = "unmount it or close the program that uses it";

#[derive(Debug)]
struct Direct {
    file: File,
    /// Offsets, lengths and addresses must be multiples of this.
    align_bytes: u64,
}

/// The open files of a device, for another process.
#[derive(Debug)]
pub struct OpenFiles {
    /// Through the page cache; holds the lock.
    pub buffered: File,
    /// With `O_DIRECT`, and the alignment in bytes that it wants.
    pub direct: Option<(File, u64)>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// A block device, not a file.
    pub block_device: bool,
    /// Refuse writes.
    pub read_only: bool,
}

/// A file or block device. See the module's description.
pub struct FileDevice {
    buffered: File,
    direct: Option<Direct>,
    ring: Option<Mutex<Ring>>,
    pub(super) lives: Lives,
    pool: Pool,
    geometry: Geometry,
    block_device: bool,
    /// Held as long as the device is open.
    lock: Option<Held>,
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            lock.give_back(&self.buffered);
        }
    }
}

impl FileDevice {
    /// Opens an existing file or block device.
    ///
    /// # Errors
    /// [`DeviceError::Open`] where it is missing, in use, or neither a file nor a block device.
    pub fn open(path: &Path, options: FileOptions) -> Result<FileDevice, DeviceError> {
        if options.lock && !options.read_only {
            if let Some(reason) = super::mounts::kernel_use(path) {
                let path = path.display().to_string();
                return Err(DeviceError::Open { path, reason, errno: EBUSY });
            }
        }
        FileDevice::open_new(path, options)
    }

    /// Opens a file that the caller has just made, so that the kernel has no use of it. This reads
    /// nothing but the file, as a contained process may.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_new(path: &Path, options: FileOptions) -> Result<FileDevice, DeviceError> {
        let failed = |error: io::Error, next: &str| open_error(path, &error, next);
        let metadata = std::fs::metadata(path).map_err(|e| failed(e, NOT_OPENED))?;
        let block_device = metadata.file_type().is_block_device();
        if !block_device && !metadata.is_file() {
            return Err(failed(io::Error::from_raw_os_error(EINVAL), NO_IMAGE));
        }
        let exclusive = if block_device && options.lock { OFlags::EXCL } else { OFlags::empty() };
        let open = |flags| open_with(path, options, flags);
        FileDevice::opened(path, options, exclusive, &open, lock::take)
    }

    /// Opens a file or block device through a process that has the right to: `open` asks it, with
    /// flags of open(2). `path` is for messages. Who has a lock of it cannot be seen, so each
    /// counts.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_by(
        path: &Path,
        options: FileOptions,
        open: &dyn Fn(OFlags) -> io::Result<File>,
    ) -> Result<FileDevice, DeviceError> {
        let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let asked = |flags| open(access | flags);
        // Without O_CREAT it has no effect on a file.
        let device = FileDevice::opened(path, options, OFlags::EXCL, &asked, lock::take_unseeing)?;
        let used = super::mounts::kernel_use_of(&device.buffered);
        match used.filter(|_| options.lock && !options.read_only) {
            Some(reason) => {
                let path = path.display().to_string();
                Err(DeviceError::Open { path, reason, errno: EBUSY })
            }
            None => Ok(device),
        }
    }

    fn opened(
        path: &Path,
        options: FileOptions,
        exclusive: OFlags,
        open: &dyn Fn(OFlags) -> io::Result<File>,
        lock: fn(&File, bool) -> io::Result<Held>,
    ) -> Result<FileDevice, DeviceError> {
        let failed = |error: io::Error, next: &str| open_error(path, &error, next);
        let buffered = open(exclusive).map_err(|e| {
            let next = match e.raw_os_error() {
                Some(EBUSY) => IN_USE,
                Some(errno) if PROTECTED.contains(&errno) && !options.read_only => NOT_WRITABLE,
                _ => NOT_OPENED,
            };
            failed(e, next)
        })?;
        let metadata = buffered.metadata().map_err(|e| failed(e, "check the device"))?;
        let block_device = metadata.file_type().is_block_device();
        if !block_device && !metadata.is_file() {
            return Err(failed(io::Error::from_raw_os_error(EINVAL), NO_IMAGE));
        }
        if block_device
            && !options.read_only
            && sys::block_device_read_only(&buffered).unwrap_or(false)
        {
            return Err(failed(io::Error::from_raw_os_error(EROFS), NOT_WRITABLE));
        }
        let mut held = None;
        if options.lock {
            held = Some(lock(&buffered, options.read_only).map_err(|error| {
                let reason = lock::user_of(path, &buffered);
                let errno = error.raw_os_error().unwrap_or(EIO);
                DeviceError::Open { path: path.display().to_string(), reason, errno }
            })?);
        }
        let size = if block_device { device_size(&buffered) } else { Ok(metadata.len()) };
        let size_bytes = size.map_err(|e| failed(e, "check the device"))?;
        let in_memory = !block_device && is_in_memory(&buffered);
        let wants_direct = options.direct && !in_memory;
        let direct = if wants_direct { open_direct(open, &metadata) } else { None };
        let ring = if options.io_uring && !in_memory { Ring::new(RING_ENTRIES) } else { None };
        let direct = direct.map(|direct| (direct.file, direct.align_bytes));
        let read_only = options.read_only;
        let files = OpenFiles { buffered, direct, size_bytes, block_device, read_only };
        let mut device = FileDevice::from_files(files);
        if block_device && device.is_direct() && !options.read_only {
            device.lives = Lives::of(&device.buffered, ring.is_some());
            device.geometry.write_hints = device.lives.are_used();
        }
        (device.ring, device.lock) = (ring.map(Mutex::new), held);
        Ok(device)
    }

    /// The device of files that another process has opened; without a ring, which is a process's
    /// own, and without lifetimes.
    pub fn from_files(files: OpenFiles) -> FileDevice {
        let OpenFiles { buffered, direct, size_bytes, block_device, read_only } = files;
        let geometry = Geometry {
            size_bytes: size_bytes / SECTOR_BYTES * SECTOR_BYTES,
            max_request_bytes: MAX_REQUEST_BYTES,
            volatile_cache: true,
            fua: true,
            barrier: false,
            discard: true,
            read_only,
            zones: None,
            write_hints: false,
        };
        let direct = direct.map(|(file, align_bytes)| Direct { file, align_bytes });
        let pool = Pool::new(RING_ENTRIES * MAX_REQUEST_BYTES as usize);
        let (ring, lives, lock) = (None, Lives::None, None);
        FileDevice { buffered, direct, ring, lives, pool, geometry, block_device, lock }
    }

    /// Copies of the open files, for another process. The lock is held until all are closed.
    ///
    /// # Errors
    /// Too many open files.
    pub fn files(&self) -> io::Result<OpenFiles> {
        let copy =
            |direct: &Direct| Ok::<_, io::Error>((direct.file.try_clone()?, direct.align_bytes));
        self.lock.iter().for_each(Held::share);
        Ok(OpenFiles {
            buffered: self.try_clone_file()?,
            direct: self.direct.as_ref().map(copy).transpose()?,
            size_bytes: self.geometry.size_bytes,
            block_device: self.block_device,
            read_only: self.geometry.read_only,
        })
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
        FileDevice::open_new(path, options)
    }

    /// Device and inode number of the open file, whatever has its path by now.
    ///
    /// # Errors
    /// [`DeviceError::Open`].
    pub fn identity(&self) -> Result<(u64, u64), DeviceError> {
        let found = self.buffered.metadata();
        let found = found.map_err(|e| open_error(Path::new("the image"), &e, "open it again"))?;
        Ok((found.dev(), found.ino()))
    }

    /// Another descriptor of the open file, for formats whose files grow. The lock is the device's.
    ///
    /// # Errors
    /// Too many open files.
    pub fn try_clone_file(&self) -> io::Result<File> {
        self.buffered.try_clone()
    }

    /// True for a block device, false for a regular file.
    pub fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// True if requests bypass the page cache (`O_DIRECT`).
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// True if batches go through io_uring.
    pub fn has_io_uring(&self) -> bool {
        self.ring.is_some()
    }

    fn flush_now(&self) -> io::Result<()> {
        loop {
            match rustix::fs::fdatasync(&self.buffered) {
                Err(rustix::io::Errno::INTR) => {}
                result => return result.map_err(io::Error::from),
            }
        }
    }

    fn discard_now(&self, offset: u64, len: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let done = if self.block_device {
            sys::block_device_discard(&self.buffered, offset, len)
        } else {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&self.buffered, flags, offset, len).map_err(io::Error::from)
        };
        match done {
            // A hint: a medium without it keeps the bytes.
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error()) =>
            {
                Ok(())
            }
            done => done,
        }
    }

    /// Prepares a read or write: which file, and whether through a bounce buffer.
    fn plan<'r>(
        &'r self,
        request: &'r mut Request<'_>,
        bounce: &'r mut Option<AlignedBuffer>,
    ) -> Option<Transfer<'r>> {
        let offset = request.offset_bytes;
        let len = request.len_bytes();
        let life = request.origin.life;
        let direct = self.direct.as_ref();
        let direct = direct.filter(|d| (offset | len) % d.align_bytes == 0);
        let file = direct.map_or(&self.buffered, |d| &d.file);
        let align = direct.map_or(1, |d| d.align_bytes as usize);
        let fits = |b: &[u8]| b.as_ptr().addr() % align == 0 && b.len() % align == 0;
        match &mut request.op {
            Op::Write { from, fua } => {
                let parts = if from.iter().all(|b| fits(b)) {
                    from.clone()
                } else {
                    let buffer = bounce.insert(self.pool.take(len as usize));
                    buffer.gather(from);
                    vec![buffer.bytes()]
                };
                let file = direct.and_then(|_| self.lives.file(life)).unwrap_or(file);
                let transfer = Transfer::write(file, offset, parts, *fua && !self.block_device);
                Some(transfer.into_stream(self.lives.stream(life)))
            }
            Op::Read { into } => {
                let parts = if into.iter().all(|b| fits(b)) {
                    into.iter_mut().map(|b| &mut **b).collect()
                } else {
                    vec![bounce.insert(self.pool.take(len as usize)).bytes_mut()]
                };
                Some(Transfer::read(file, offset, parts))
            }
            Op::Flush | Op::Discard { .. } => None,
        }
    }

    /// Gives the bounce buffer back, its content to the reader first.
    fn finish(&self, request: &mut Request<'_>, bounce: Option<AlignedBuffer>, done: bool) {
        let Some(buffer) = bounce else { return };
        if let (true, Op::Read { into }) = (done, &mut request.op) {
            buffer.scatter(into);
        }
        self.pool.give(buffer);
    }

    /// One request with system calls of its own.
    fn submit_one(&self, request: &mut Request<'_>) -> Result<(), DeviceError> {
        let done = match request.op {
            Op::Flush => self.flush_now(),
            Op::Discard { len_bytes } => self.discard_now(request.offset_bytes, len_bytes),
            Op::Read { .. } | Op::Write { .. } => {
                let mut bounce = None;
                let done = match self.plan(request, &mut bounce) {
                    Some(transfer) => transfer.run(),
                    None => Ok(()),
                };
                self.finish(request, bounce, done.is_ok());
                match done {
                    // Less aligned than the file system told: the page cache takes anything.
                    Err(error) if error.raw_os_error() == Some(22) => self.submit_cached(request),
                    done => done,
                }
            }
        };
        done.map_err(|error| io_error(request, &error))
    }

    /// A read or write through the page cache.
    fn submit_cached(&self, request: &mut Request<'_>) -> io::Result<()> {
        let offset = request.offset_bytes;
        match &mut request.op {
            Op::Write { from, fua } => {
                let dsync = *fua && !self.block_device;
                Transfer::write(&self.buffered, offset, from.clone(), dsync).run()
            }
            Op::Read { into } => {
                let into = into.iter_mut().map(|b| &mut **b).collect();
                Transfer::read(&self.buffered, offset, into).run()
            }
            Op::Flush | Op::Discard { .. } => Ok(()),
        }
    }

    /// Reads and writes of a group at once; what the ring left undone is done one by one.
    fn submit_group(&self, ring: &mut Ring, group: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let mut bounces: Vec<Option<AlignedBuffer>> = group.iter().map(|_| None).collect();
        let done = {
            let planned = group.iter_mut().zip(&mut bounces);
            let mut transfers: Vec<Option<Transfer<'_>>> =
                planned.map(|(request, bounce)| self.plan(request, bounce)).collect();
            ring.run(&mut transfers)
        };
        let mut result = Ok(());
        for ((request, bounce), done) in group.iter_mut().zip(bounces).zip(done) {
            self.finish(request, bounce, done);
            if !done && result.is_ok() {
                result = self.submit_one(request);
            }
        }
        result
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
        self.submit_all(batch)?;
        let fua = |request: &&Request<'_>| matches!(request.op, Op::Write { fua: true, .. });
        match batch.iter().find(fua).filter(|_| self.block_device) {
            Some(request) => self.flush_now().map_err(|error| io_error(request, &error)),
            None => Ok(()),
        }
    }
}

impl FileDevice {
    /// A batch; FUA writes to a block device are not durable yet.
    fn submit_all(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        // A batch of another thread in the ring: system calls run beside it. Only a ring knows
        // streams.
        let streams = || batch.iter().any(|request| self.lives.stream(request.origin.life) > 0);
        let ring = self.ring.as_ref().filter(|_| batch.len() > 1 || streams());
        let ring = ring.and_then(Mutex::try_lock);
        if let Some(mut ring) = ring {
            if ring.is_usable() {
                for group in batch.chunks_mut(RING_ENTRIES) {
                    self.submit_group(&mut ring, group)?;
                }
                return Ok(());
            }
        }
        batch.iter_mut().try_for_each(|request| self.submit_one(request))
    }
}

fn open_with(path: &Path, options: FileOptions, flags: OFlags) -> io::Result<File> {
    // The bits of open(2) flags used here all fit an i32.
    let flags = (flags | OFlags::CLOEXEC).bits() as i32;
    OpenOptions::new().read(true).write(!options.read_only).custom_flags(flags).open(path)
}

/// True if the file is on tmpfs or ramfs.
pub(super) fn is_in_memory(file: &File) -> bool {
    // `linux/magic.h`; the type of the field is not the same on every architecture.
    const MAGIC: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    rustix::fs::fstatfs(file).is_ok_and(|known| MAGIC.contains(&(known.f_type as u64)))
}

/// A contained process may not ask the device.
fn device_size(file: &File) -> io::Result<u64> {
    sys::block_device_size(file)
        .or_else(|_| Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?))
}

/// Opens the same file with `O_DIRECT` and finds the alignment it wants, by trying.
fn open_direct(open: &dyn Fn(OFlags) -> io::Result<File>, same: &Metadata) -> Option<Direct> {
    let file = open(OFlags::DIRECT).ok()?;
    let found = file.metadata().ok()?;
    if (found.dev(), found.ino()) != (same.dev(), same.ino()) {
        return None;
    }
    for align_bytes in [512, 4096] {
        let mut buffer = AlignedBuffer::new(align_bytes as usize);
        if rustix::io::pread(&file, buffer.bytes_mut(), 0).is_ok() {
            return Some(Direct { file, align_bytes });
        }
    }
    None
}
