//! Open files.

use std::fmt;
use std::sync::Arc;

use parking_lot::{MappedRwLockReadGuard, Mutex, RwLockReadGuard};
use syncline_fs::{Attr, FallocateMode, InodeRef, Volume};

use crate::disk::{Held, Inner, Node, On, Slot, Store};
use crate::error::{EBADF, Error, Result};
use crate::wire::Call;

/// Largest offset and size, as of `off_t`.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Access mode of an open file: a constant, or one that is changed by [`Access::with`].
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::Access;
///
/// let log = Access::CREATE.with(|access| access.append = true);
/// let file = disk.open_file(b"/log", log, 0o644)?;
/// file.write(b"one, ")?;
/// file.write(b"two")?;
/// assert_eq!(disk.open_file(b"/log", Access::READ, 0)?.stat()?.size, 8);
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access {
    /// It may be read.
    pub read: bool,
    /// It may be written to.
    pub write: bool,
    /// Every write goes to the end.
    pub append: bool,
    /// Every write is durable when it returns (`O_DSYNC`).
    pub sync: bool,
    /// It is made if it is not there.
    pub create: bool,
    /// With `create`: it must not be there.
    pub exclusive: bool,
    /// It is emptied.
    pub truncate: bool,
    /// A symbolic link as the last component is refused (ELOOP).
    pub nofollow: bool,
}

/// An open file, or a directory that is opened to be synced.
///
/// It has a position, as a file descriptor has; [`File::read_at`] and [`File::write_at`] leave that
/// alone. Dropping it closes it, and makes nothing durable.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::Access;
///
/// let file = disk.open_file(b"/table", Access::CREATE, 0o644)?;
/// file.write_at(4096, b"second page")?;
/// file.sync(true)?; // as fdatasync
/// let mut page = [0; 6];
/// assert_eq!(file.read_at(4096, &mut page)?, 6);
/// assert_eq!(&page, b"second");
/// assert_eq!(file.seek_extent(0, true)?, 4096); // a hole before it
/// # Ok::<(), syncline::Error>(())
/// ```
pub struct File {
    disk: Arc<Inner>,
    id: u64,
    slot: Arc<Slot>,
    access: Access,
    position: Mutex<u64>,
}

impl Access {
    /// To read only.
    pub const READ: Access = Access { read: true, ..Access::NONE };
    /// To read and write; the file has to be there.
    pub const WRITE: Access = Access { write: true, ..Access::READ };
    /// To read and write; the file is made if it is not there, and keeps its contents if it is.
    pub const CREATE: Access = Access { create: true, ..Access::WRITE };

    const NONE: Access = Access {
        read: false,
        write: false,
        append: false,
        sync: false,
        create: false,
        exclusive: false,
        truncate: false,
        nofollow: false,
    };

    /// Changes fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl File {
    pub(crate) fn new(disk: &Arc<Inner>, node: Node, access: Access) -> File {
        let (id, slot) = disk.keep(node);
        File { disk: Arc::clone(disk), id, slot, access, position: Mutex::new(0) }
    }

    /// Returns the access mode.
    pub fn access(&self) -> Access {
        self.access
    }

    fn node(&self) -> Result<MappedRwLockReadGuard<'_, Node>> {
        RwLockReadGuard::try_map(self.slot.read_recursive(), Option::as_ref)
            .map_err(|_| Error::new(EBADF, "the file is closed; open it again"))
    }

    fn held(&self) -> Result<Held<'_>> {
        Ok(Held { store: self.disk.in_use()?, node: self.node()? })
    }

    fn readable(&self) -> Result<Held<'_>> {
        let store = self.disk.in_use()?;
        if !self.access.read {
            return Err(Error::new(EBADF, "the file is opened for writing only; open it to read"));
        }
        Ok(Held { store, node: self.node()? })
    }

    fn writable(&self) -> Result<Held<'_>> {
        let store = self.disk.for_change()?;
        if !self.access.write {
            return Err(Error::new(EBADF, "the file is opened for reading only; open it to write"));
        }
        Ok(Held { store, node: self.node()? })
    }

    /// Reads at `offset`; fewer bytes than asked only at the end of the file.
    ///
    /// # Errors
    /// EBADF, EINVAL, EISDIR, EIO.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        read_all(&self.readable()?, offset, into)
    }

    /// Writes at `offset`; fewer bytes than given only where space ran out on the way.
    ///
    /// # Errors
    /// EBADF, EINVAL, ENOSPC, EFBIG, EROFS, EIO.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<usize> {
        Ok(self.put(Some(offset), from)?.1)
    }

    /// Reads at the file's position and moves it.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read(&self, into: &mut [u8]) -> Result<usize> {
        let held = self.readable()?;
        let mut position = self.position.lock();
        let done = read_all(&held, *position, into)?;
        *position += done as u64;
        Ok(done)
    }

    /// Writes at the file's position, or at the end with `append`, and moves it behind.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write(&self, from: &[u8]) -> Result<usize> {
        let held = self.writable()?;
        let mut position = self.position.lock();
        let at = if self.access.append { None } else { Some(*position) };
        let (offset, done) = self.put_held(&held, at, from)?;
        *position = offset.saturating_add(done as u64);
        Ok(done)
    }

    /// Sets the position.
    ///
    /// # Errors
    /// EINVAL for 2^63 and above.
    pub fn seek(&self, position: u64) -> Result<u64> {
        let _open = self.held()?;
        check_offset(position, 0)?;
        *self.position.lock() = position;
        Ok(position)
    }

    /// The position.
    ///
    /// # Errors
    /// EBADF.
    pub fn position(&self) -> Result<u64> {
        let _open = self.held()?;
        Ok(*self.position.lock())
    }

    /// First byte of data (`data`), or of a hole, at or behind `offset`.
    ///
    /// # Errors
    /// ENXIO if there is none.
    pub fn seek_extent(&self, offset: u64, data: bool) -> Result<u64> {
        let held = self.held()?;
        check_offset(offset, 0)?;
        match held.on()? {
            On::Volume(volume, inode) if data => Ok(volume.seek_data(inode, offset)?),
            On::Volume(volume, inode) => Ok(volume.seek_hole(inode, offset)?),
            On::Helper(helper, file) => helper.call(Call::SeekExtent { file, offset, data }),
        }
    }

    /// Attributes.
    ///
    /// # Errors
    /// EBADF.
    pub fn stat(&self) -> Result<Attr> {
        match self.held()?.on()? {
            On::Volume(volume, inode) => Ok(volume.getattr(inode)),
            On::Helper(helper, file) => helper.call(Call::FileStat { file }),
        }
    }

    /// Sets the size.
    ///
    /// # Errors
    /// EBADF, EINVAL, EFBIG, EROFS, EIO.
    pub fn truncate(&self, size: u64) -> Result<()> {
        let held = self.writable()?;
        check_offset(size, 0)?;
        match held.on()? {
            On::Volume(volume, inode) => {
                volume.truncate(inode, size)?;
                self.after_change(volume, inode)
            }
            On::Helper(helper, file) => helper.call(Call::Truncate { file, size }),
        }
    }

    /// Allocates, punches or zeroes a range.
    ///
    /// ```
    /// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
    /// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
    /// use syncline::{Access, FallocateMode};
    ///
    /// let file = disk.open_file(b"/journal", Access::CREATE, 0o644)?;
    /// file.allocate(FallocateMode::Allocate, 0, 64 << 10)?;
    /// assert_eq!(file.stat()?.size, 64 << 10);
    /// # Ok::<(), syncline::Error>(())
    /// ```
    ///
    /// # Errors
    /// EBADF, EINVAL, ENOSPC, EFBIG, EOPNOTSUPP, EROFS, EIO.
    pub fn allocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let held = self.writable()?;
        check_offset(offset, len)?;
        match held.on()? {
            On::Volume(volume, inode) => {
                volume.fallocate(inode, mode, offset, len)?;
                self.after_change(volume, inode)
            }
            On::Helper(helper, file) => helper.call(Call::Allocate { file, mode, offset, len }),
        }
    }

    /// Makes the file durable; with `data_only` what is needed to read it back.
    ///
    /// # Errors
    /// EBADF, EIO (for ever after a failed write), ENOSPC.
    pub fn sync(&self, data_only: bool) -> Result<()> {
        match self.held()?.on()? {
            On::Volume(..) if self.disk.for_change().is_err() => Ok(()),
            On::Volume(volume, inode) => Ok(volume.fsync(inode, data_only)?),
            On::Helper(helper, file) => helper.call(Call::FileSync { file, data_only }),
        }
    }

    /// Orders the data of the file before everything that is changed later, without waiting where
    /// the device has a cache barrier ([`crate::Geometry::barrier`]): after a power cut nothing of
    /// the latter is there without all of the former. With `sync=ordered`, and on devices without a
    /// barrier, as [`File::sync`] with `data_only`.
    ///
    /// # Errors
    /// As [`File::sync`].
    pub fn barrier(&self) -> Result<()> {
        match self.held()?.on()? {
            On::Volume(..) if self.disk.for_change().is_err() => Ok(()),
            On::Volume(volume, inode) => Ok(volume.fdatabarrier(inode)?),
            On::Helper(helper, file) => helper.call(Call::Barrier { file }),
        }
    }

    /// Ends the file, as dropping it does, and says what the end of it found.
    ///
    /// # Errors
    /// EBADF, EIO.
    pub fn close(&self) -> Result<()> {
        let store = self.disk.in_use()?;
        let node = self.slot.write().take();
        let node = node.ok_or_else(|| Error::new(EBADF, "the file is closed already"))?;
        let done = match (&*store, &node) {
            (Store::Helper(helper), Node::Number(file)) => {
                helper.call(Call::CloseFile { file: *file })
            }
            (Store::Volume(volume), Node::Inode(inode)) if self.access.write => {
                volume.close(inode).map_err(Error::from)
            }
            _ => Ok(()),
        };
        drop(node);
        self.disk.forget(self.id, &self.slot);
        done
    }

    /// Writes at `offset`, or at the end; where it began, and the bytes taken.
    pub(crate) fn put(&self, offset: Option<u64>, from: &[u8]) -> Result<(u64, usize)> {
        self.put_held(&self.writable()?, offset, from)
    }

    fn put_held(&self, held: &Held<'_>, offset: Option<u64>, from: &[u8]) -> Result<(u64, usize)> {
        check_offset(offset.unwrap_or(0), from.len() as u64)?;
        let offset = offset.filter(|_| !self.access.append);
        let (volume, inode) = match held.on()? {
            On::Volume(volume, inode) => (volume, inode),
            On::Helper(helper, file) => return helper.write(file, offset, from),
        };
        let (at, done) = match offset {
            Some(offset) => (offset, volume.write(inode, offset, from)?),
            None => volume.write_append(inode, from)?,
        };
        self.after_change(volume, inode)?;
        Ok((at, done))
    }

    fn after_change(&self, volume: &Volume, inode: &InodeRef) -> Result<()> {
        if self.access.sync {
            volume.fsync(inode, true)?;
        }
        Ok(())
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.disk.forget(self.id, &self.slot);
    }
}

fn read_all(held: &Held<'_>, offset: u64, into: &mut [u8]) -> Result<usize> {
    check_offset(offset, 0)?;
    let (volume, inode) = match held.on()? {
        On::Volume(volume, inode) => (volume, inode),
        On::Helper(helper, file) => return helper.read(file, offset, into),
    };
    let mut done = 0;
    while done < into.len() {
        let count = volume.read(inode, offset + done as u64, &mut into[done..])?;
        if count == 0 {
            break;
        }
        done += count;
    }
    Ok(done)
}

fn check_offset(offset: u64, len: u64) -> Result<()> {
    if offset.checked_add(len).is_some_and(|end| end <= OFFSET_MAX) {
        return Ok(());
    }
    Err(Error::invalid("offset or size is 2^63 or more; give a smaller one"))
}
