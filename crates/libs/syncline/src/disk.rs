//! An opened image: opening, closing, what calls of other threads and forked processes find.
//!
//! Lock order: `Inner::maintenance`, `Inner::store`, `FileState`, `Inner::files`. A call holds
//! `Inner::store` for reading as long as it runs; close takes it for writing, so it waits for
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use syncline_device::{BlockDevice, Clock, FileDevice, FileOptions, Kind, Origin, WallClock};
use syncline_fs::{InodeRef, MountReport, StatFs, Volume};
use syncline_ondisk::Superblock;
use syncline_ondisk::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};

use crate::error::{EBADF, EOPNOTSUPP, EROFS, Error, Result};
use crate::helper::{self, Helper};
use crate::images;
use crate::maintenance::MaintenanceThread;
use crate::options::OpenOptions;
use crate::wire::Call;

/// Who reads the image.
pub(crate) enum Store {
    /// This process.
    Volume(Volume),
    /// Another one.
    Helper(Box<Helper>),
}

/// An open file of the volume.
pub(crate) enum Node {
    Inode(InodeRef),
    Number(u64),
}

/// The node of an open file; empty once its disk was closed.
pub(crate) type Slot = RwLock<Option<Node>>;

/// The store of a disk, as long as a call runs.
pub(crate) type InUse<'a> = MappedRwLockReadGuard<'a, Store>;

/// An open file, as long as a call runs.
pub(crate) struct Held<'a> {
    pub(crate) store: InUse<'a>,
    pub(crate) node: MappedRwLockReadGuard<'a, Node>,
}

/// Both of a file in one.
pub(crate) enum On<'a> {
    Volume(&'a Volume, &'a InodeRef),
    Helper(&'a Helper, u64),
}

impl Held<'_> {
    pub(crate) fn on(&self) -> Result<On<'_>> {
        match (&*self.store, &*self.node) {
            (Store::Volume(volume), Node::Inode(inode)) => Ok(On::Volume(volume, inode)),
            (Store::Helper(helper), Node::Number(number)) => Ok(On::Helper(helper, *number)),
            // No file outlives its store.
            _ => Err(closed()),
        }
    }
}

pub(crate) struct Inner {
    /// Empty once closed.
    store: RwLock<Option<Store>>,
    maintenance: Mutex<Option<MaintenanceThread>>,
    files: Mutex<BTreeMap<u64, Weak<Slot>>>,
    next_file: AtomicU64,
    clock: Arc<dyn Clock>,
    /// The process that opened it.
    pid: u32,
    read_only: bool,
    opened: MountReport,
    in_memory: bool,
}

/// An opened image: files and directories by path. Clones are the same one.
///
/// ```
/// # let image = syncline_testkit::TempImage::tiny();
/// use syncline::{Access, Disk, OpenOptions};
///
/// let disk = Disk::open(image.path(), &OpenOptions::default())?;
/// disk.mkdir(b"/logs", 0o755)?;
/// let file = disk.open_file(b"/logs/today", Access::CREATE, 0o644)?;
/// file.write(b"first line\n")?;
/// file.sync(false)?;
/// drop(file);
/// disk.close()?;
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Clone)]
pub struct Disk(pub(crate) Arc<Inner>);

impl Disk {
    /// Opens an image file or a block device. With `ro` an image whose journal has to be replayed
    /// is replayed in memory, and not one byte of it is written; and a disk in the file of another
    /// program is read.
    ///
    /// # Errors
    /// EBUSY for an image that is in use, EUCLEAN and EOPNOTSUPP as the volume says, and what the
    /// host says.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Disk> {
        check_host_path(path)?;
        let file = FileOptions { read_only: options.mount.read_only, ..FileOptions::default() };
        let Some(program) = &options.isolate else {
            let image = FileDevice::open(path, file)?;
            let device = images::disk(image, path, &options.backing)?;
            return Disk::on(device, options).map_err(|err| err.at(path.display()));
        };
        let program = helper::program(program)?;
        // The ring would be of this process.
        let image = FileDevice::open(path, FileOptions { io_uring: false, ..file })?;
        let plain = images::check_plain(&image, &options.backing);
        let started = plain.and_then(|()| Helper::start(&program, image, options));
        let (helper, opened) = started.map_err(|err| err.at(path.display()))?;
        Ok(Disk(Arc::new(Inner {
            store: RwLock::new(Some(Store::Helper(Box::new(helper)))),
            maintenance: Mutex::default(),
            files: Mutex::default(),
            next_file: AtomicU64::new(0),
            clock: Arc::new(WallClock::new()),
            pid: std::process::id(),
            read_only: opened.read_only,
            opened: opened.report,
            in_memory: opened.in_memory,
        })))
    }

    /// Opens the volume on any device: memory, a partition, storage of yours.
    ///
    /// ```
    /// # let bytes = syncline_testkit::tiny_ext4();
    /// use std::sync::Arc;
    /// use syncline::{Disk, MemoryDevice, OpenOptions};
    ///
    /// let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    /// let disk = Disk::on(device.clone(), &OpenOptions::default())?;
    /// disk.symlink(b"target", b"/link")?;
    /// disk.close()?; // the device holds a clean ext4 from here on
    /// assert!(Disk::on(device, &OpenOptions::default())?.readlink(b"/link")? == b"target");
    /// # Ok::<(), syncline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Disk::open`]; EINVAL with `isolate`, for which a device has no files.
    pub fn on(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Disk> {
        if options.isolate.is_some() {
            let text = "a helper process needs an image or a device of this machine; open it by \
                        its path, or leave `isolate` out";
            return Err(Error::invalid(text));
        }
        let read_only = options.mount.read_only || device.geometry().read_only;
        let clock: Arc<dyn Clock> = Arc::new(WallClock::new());
        let recovered = match read_only && options.mount.rescue.is_none() {
            true => Volume::recovered_in_memory(&device, &clock, options.mount.cache_bytes)?,
            false => None,
        };
        let in_memory = recovered.is_some();
        let (device, replayed) =
            recovered.map_or((device, None), |(memory, report)| (memory, Some(report)));
        let mount = options.mount.clone().with(|mount| mount.read_only = read_only);
        let (volume, opened) = Volume::mount_report(device, Arc::clone(&clock), mount)?;
        let opened = replayed.unwrap_or(opened);
        let maintenance = match options.background && !read_only {
            true => Some(MaintenanceThread::start(volume.clone(), Arc::clone(&clock))?),
            false => None,
        };
        Ok(Disk(Arc::new(Inner {
            store: RwLock::new(Some(Store::Volume(volume))),
            maintenance: Mutex::new(maintenance),
            files: Mutex::default(),
            next_file: AtomicU64::new(0),
            clock,
            pid: std::process::id(),
            read_only,
            opened,
            in_memory,
        })))
    }

    /// The volume and its clock, for an interface of its own over it; calls through it do not hold
    /// up [`Disk::close`] and fail after it.
    ///
    /// ```
    /// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
    /// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
    /// let (volume, _clock) = disk.volume()?;
    /// let root = volume.root()?;
    /// assert!(volume.getattr(&root).nlink >= 2);
    /// # Ok::<(), syncline::Error>(())
    /// ```
    ///
    /// # Errors
    /// EBADF; EOPNOTSUPP with `isolate`, where the volume is in another process.
    pub fn volume(&self) -> Result<(Volume, Arc<dyn Clock>)> {
        match &*self.0.in_use()? {
            Store::Volume(volume) => Ok((volume.clone(), Arc::clone(&self.0.clock))),
            Store::Helper(_) => {
                let text = "the volume is in a helper process, which has calls by path only; open \
                            it without `isolate`";
                Err(Error::new(EOPNOTSUPP, text))
            }
        }
    }

    /// Report of the recovery that opening took.
    pub fn opened(&self) -> &MountReport {
        &self.0.opened
    }

    /// True if nothing can be written.
    pub fn is_read_only(&self) -> bool {
        self.0.read_only
    }

    /// True if the journal was replayed in memory only, for a reader.
    pub fn is_replayed_in_memory(&self) -> bool {
        self.0.in_memory
    }

    /// True if it is open, in this process.
    pub fn is_open(&self) -> bool {
        self.0.in_use().is_ok()
    }

    /// Ends every file and directory of the disk, writes everything and leaves the image clean.
    /// Waits for calls under way in other threads. On an error the disk is closed all the same, and
    /// the image is recoverable, as after a power cut.
    ///
    /// # Errors
    /// EBADF if it is closed already; the first failure of a write, or what latched the volume.
    pub fn close(&self) -> Result<()> {
        self.0.check_process()?;
        if let Some(maintenance) = self.0.maintenance.lock().take() {
            maintenance.stop();
        }
        let store = {
            let mut open = self.0.store.write();
            let store = open.take().ok_or_else(closed)?;
            // A file that is dropped meanwhile waits, and finds that its inode is gone.
            self.0.end_files();
            store
        };
        match store {
            Store::Helper(helper) => helper.call(Call::Close {}),
            Store::Volume(_) if self.0.in_memory => Ok(()),
            Store::Volume(volume) => Ok(volume.unmount()?),
        }
    }

    /// Makes everything durable, in every sync mode.
    ///
    /// ```
    /// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
    /// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
    /// disk.mkdir(b"/a", 0o755)?;
    /// disk.mkdir(b"/b", 0o755)?;
    /// disk.sync()?; // one commit for both
    /// # Ok::<(), syncline::Error>(())
    /// ```
    ///
    /// # Errors
    /// EIO, for ever after a failed write.
    pub fn sync(&self) -> Result<()> {
        let store = self.0.in_use()?;
        match &*store {
            Store::Helper(helper) => helper.call(Call::Sync {}),
            Store::Volume(_) if self.0.read_only => Ok(()),
            Store::Volume(volume) => Ok(volume.sync()?),
        }
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// EBADF.
    pub fn statfs(&self) -> Result<StatFs> {
        match &*self.0.in_use()? {
            Store::Volume(volume) => Ok(volume.statfs()),
            Store::Helper(helper) => helper.call(Call::StatFs {}),
        }
    }

    /// Does what is due in the background, for a disk that was opened with `nobackground`. Returns
    /// how many milliseconds later to call again, at most.
    ///
    /// ```
    /// # let bytes = syncline_testkit::tiny_ext4();
    /// use std::sync::Arc;
    /// use syncline::{Disk, MemoryDevice, OpenOptions};
    ///
    /// let options = OpenOptions::parse("nobackground")?;
    /// let disk = Disk::on(Arc::new(MemoryDevice::from_bytes(&bytes)), &options)?;
    /// let wait_ms = disk.tick()?; // an event loop sleeps for so long, at most
    /// assert!(wait_ms <= 5000);
    /// # Ok::<(), syncline::Error>(())
    /// ```
    ///
    /// # Errors
    /// EIO as [`Disk::sync`].
    pub fn tick(&self) -> Result<u64> {
        let store = self.0.in_use()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Tick {}),
        };
        let now = self.0.clock.now_ns();
        if volume.next_deadline_ns().is_some_and(|due| due <= now) {
            volume.tick(now)?;
        }
        let due = volume.next_deadline_ns().unwrap_or(u64::MAX);
        Ok((due.saturating_sub(now) / 1_000_000).min(5000))
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { pid, read_only, opened, .. } = &*self.0;
        let mut disk = f.debug_struct("Disk");
        disk.field("pid", pid).field("read_only", read_only).field("opened", opened);
        disk.finish_non_exhaustive()
    }
}

impl Inner {
    /// # Errors
    /// EBADF in a process that did not open the disk. No lock is taken for it: the process that did
    /// may have held it at the fork.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.pid == std::process::id() {
            return Ok(());
        }
        let text = "the volume was opened before a fork; open it again in this process, when the \
                    other one has closed it";
        Err(Error::new(EBADF, text))
    }

    /// The store, which stays open as long as the result lives.
    pub(crate) fn in_use(&self) -> Result<InUse<'_>> {
        self.check_process()?;
        RwLockReadGuard::try_map(self.store.read_recursive(), Option::as_ref).map_err(|_| closed())
    }

    /// As [`Inner::in_use`], for changes.
    pub(crate) fn for_change(&self) -> Result<InUse<'_>> {
        let store = self.in_use()?;
        if self.read_only {
            let text = "the volume is opened for reading only; open it without `ro` to write";
            return Err(Error::new(EROFS, text));
        }
        Ok(store)
    }

    /// Remembers an open file, so that close can end it.
    pub(crate) fn keep(&self, node: Node) -> (u64, Arc<Slot>) {
        let slot = Arc::new(RwLock::new(Some(node)));
        let id = self.next_file.fetch_add(1, Ordering::Relaxed);
        self.files.lock().insert(id, Arc::downgrade(&slot));
        (id, slot)
    }

    /// A file is dropped. In a forked process its inode is left alone.
    pub(crate) fn forget(&self, id: u64, slot: &Arc<Slot>) {
        if self.check_process().is_err() {
            // The locks of the inode may be held for ever here.
            std::mem::forget(Arc::clone(slot));
            return;
        }
        // The last reference to an inode may free its blocks: not beside an unmount.
        let open = self.store.read_recursive();
        self.files.lock().remove(&id);
        let node = slot.write().take();
        if let (Some(Store::Helper(helper)), Some(Node::Number(handle))) = (&*open, node) {
            // Where the helper is gone, so is its file.
            let _ = helper.call::<()>(Call::Forget { handle });
        }
    }

    fn end_files(&self) {
        let files = std::mem::take(&mut *self.files.lock());
        for slot in files.values().filter_map(Weak::upgrade) {
            drop(slot.write().take());
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // Locks may be held for ever here, and the thread is not in this process.
            std::mem::forget(self.store.get_mut().take());
            std::mem::forget(self.maintenance.get_mut().take());
        } else if let Some(maintenance) = self.maintenance.get_mut().take() {
            maintenance.stop();
        }
    }
}

pub(crate) fn closed() -> Error {
    Error::new(EBADF, "the volume is closed; open it again")
}

/// The host's calls cannot take such a path, and do not say so by a number.
pub(crate) fn check_host_path(path: &Path) -> Result<()> {
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(Error::invalid("the path has a zero byte; remove it"));
    }
    Ok(())
}

/// The superblock; `None` where there is none, which opening says better.
pub(crate) fn superblock(device: &dyn BlockDevice) -> Result<Option<Superblock>> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if device.geometry().size_bytes < SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64 {
        return Ok(None);
    }
    device.read(SUPERBLOCK_OFFSET, &mut bytes, Origin::new(Kind::Metadata, true))?;
    Ok(Superblock::decode(&bytes).ok())
}
