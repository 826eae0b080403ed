//! System calls of an application on a volume, each with a cost in time.
//!
//! ```text
//!   SQLite VFS, workloads ──> charge_syscall: clock += syscall_us; Volume::tick if due
//!                        └──> Volume: the call itself, with the time of the device
//! ```
//!
//! Promises: every call costs [`VolumeFs::syscall_us`] of a virtual clock and no time of a wall
//! clock. Background work that is due is done before the call, in the caller's time, since a
//! virtual run has one thread and one device. Bytes that the application reads and writes are
//! counted. Paths are relative to the root of the volume. Tested through everything above it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use syncline_device::Clock;
use syncline_fs::{Attr, Create, FsError, InodeRef, RenameFlags, Result, Volume};

use crate::barriers::Barriers;
use crate::batch::Batch;
use crate::store::{Answer, OpenFile, Store};

/// Bytes an application moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppBytes {
    /// Handed to write calls.
    pub written_bytes: u64,
    /// Returned by read calls.
    pub read_bytes: u64,
    /// System calls; 0 where they are not counted.
    pub calls: u64,
}

impl std::ops::Sub for AppBytes {
    type Output = AppBytes;

    /// Bytes and calls since `start`.
    fn sub(self, start: AppBytes) -> AppBytes {
        AppBytes {
            written_bytes: self.written_bytes - start.written_bytes,
            read_bytes: self.read_bytes - start.read_bytes,
            calls: self.calls - start.calls,
        }
    }
}

/// Work of devices below the volume that time asks for; gets the time of the clock.
pub type Background = Box<dyn Fn(u64) + Send + Sync>;

/// Shortest interval between two calls, in nanoseconds.
const BACKGROUND_NS: u64 = 100_000_000;

/// Mode and owner of files that have no other.
pub(crate) const NEW_FILE: Create = Create { mode: 0o644, uid: 0, gid: 0 };

/// System calls on a [`Volume`]. See the module's description.
pub struct VolumeFs {
    volume: Volume,
    clock: Arc<dyn Clock>,
    syscall_ns: u64,
    written_bytes: AtomicU64,
    read_bytes: AtomicU64,
    calls: AtomicU64,
    always_fsync: AtomicBool,
    offers_atomic: AtomicBool,
    barriers: AtomicU8,
    background: OnceLock<Background>,
    background_ns: AtomicU64,
}

impl VolumeFs {
    /// Calls on `volume`; each costs `syscall_us` of `clock` if that is virtual.
    pub fn new(volume: Volume, clock: Arc<dyn Clock>, syscall_us: u32) -> VolumeFs {
        let syscall_ns = if clock.is_virtual() { u64::from(syscall_us) * 1000 } else { 0 };
        VolumeFs {
            volume,
            clock,
            syscall_ns,
            written_bytes: 0.into(),
            read_bytes: 0.into(),
            calls: 0.into(),
            always_fsync: false.into(),
            offers_atomic: false.into(),
            barriers: (Barriers::None as u8).into(),
            background: OnceLock::new(),
            background_ns: 0.into(),
        }
    }

    /// The volume below.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The clock of the volume.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Price of a call in microseconds of virtual time.
    pub fn syscall_us(&self) -> u64 {
        self.syscall_ns / 1000
    }

    /// Bytes moved since this was made.
    pub fn app_bytes(&self) -> AppBytes {
        AppBytes {
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            calls: self.calls.load(Ordering::Relaxed),
        }
    }

    /// From now on fdatasync is fsync, as in a libc or a SQLite that has no fdatasync.
    pub fn always_fsync(&self, always: bool) {
        self.always_fsync.store(always, Ordering::Relaxed);
    }

    /// Offers atomic writes to SQLite from now on, if the volume has them; not by default, so that
    /// a journal mode is what its name says.
    pub fn offer_atomic(&self, offer: bool) {
        self.offers_atomic.store(offer, Ordering::Relaxed);
    }

    /// From now on these syncs of SQLite are barriers.
    pub fn use_barriers(&self, barriers: Barriers) {
        self.barriers.store(barriers as u8, Ordering::Relaxed);
    }

    /// Syncs of SQLite that are barriers.
    pub fn barriers(&self) -> Barriers {
        let number = usize::from(self.barriers.load(Ordering::Relaxed));
        Barriers::ALL.get(number).copied().unwrap_or_default()
    }

    /// Reports whether SQLite is offered atomic writes.
    pub fn offers_atomic(&self) -> bool {
        self.offers_atomic.load(Ordering::Relaxed) && self.volume.has_atomic_writes()
    }

    /// Writes `batch` to the file atomically, durable when this returns. It is charged as one call
    /// for any number of writes.
    ///
    /// # Errors
    /// As [`Volume::begin_atomic`], [`Volume::write_atomic`] and [`Volume::commit_atomic`].
    pub fn write_batch(&self, inode: &InodeRef, batch: &Batch) -> Result<()> {
        self.charge_syscall();
        let mut atomic = self.volume.begin_atomic(inode)?;
        for (offset, bytes) in &batch.writes {
            let done = self.volume.write_atomic(&mut atomic, *offset, bytes)?;
            self.written_bytes.fetch_add(done as u64, Ordering::Relaxed);
        }
        self.volume.commit_atomic(atomic)
    }

    /// Adds work that is done every tenth of a second of the clock. Only the first call counts.
    pub fn set_background(&self, work: Background) {
        let _ = self.background.set(work);
    }

    /// Begins a system call: advances the clock by its cost and does background work that is due.
    pub fn charge_syscall(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let now_ns = self.clock.now_ns() + self.syscall_ns;
        if self.syscall_ns > 0 {
            self.clock.sleep_until(now_ns);
        }
        if self.volume.next_deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            // A failure here has latched the volume: the next call that writes reports it.
            let _ = self.volume.tick(now_ns);
        }
        if let Some(work) = self.background.get()
            && now_ns >= self.background_ns.load(Ordering::Relaxed)
        {
            self.background_ns.store(now_ns + BACKGROUND_NS, Ordering::Relaxed);
            work(now_ns);
        }
    }

    /// The inode at `path`.
    ///
    /// # Errors
    /// As [`Volume::resolve`].
    pub fn open(&self, path: &str) -> Result<InodeRef> {
        self.charge_syscall();
        self.volume.resolve(path)
    }

    /// A new, empty file.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create(&self, path: &str) -> Result<InodeRef> {
        self.create_as(path, &NEW_FILE)
    }

    /// A new, empty file with a mode and an owner.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create_as(&self, path: &str, of: &Create) -> Result<InodeRef> {
        self.charge_syscall();
        let (dir, name) = self.volume.resolve_parent(path.as_bytes())?;
        self.volume.create(&dir, name, of)
    }

    /// A new directory.
    ///
    /// # Errors
    /// As [`Volume::mkdir`].
    pub fn mkdir(&self, path: &str) -> Result<()> {
        self.charge_syscall();
        let (dir, name) = self.volume.resolve_parent(path.as_bytes())?;
        self.volume.mkdir(&dir, name, &Create { mode: 0o755, uid: 0, gid: 0 })?;
        Ok(())
    }

    /// Removes a name.
    ///
    /// # Errors
    /// As [`Volume::unlink`].
    pub fn unlink(&self, path: &str) -> Result<()> {
        self.charge_syscall();
        let (dir, name) = self.volume.resolve_parent(path.as_bytes())?;
        self.volume.unlink(&dir, name)
    }

    /// Gives a file another name, in place of what has it.
    ///
    /// # Errors
    /// As [`Volume::rename`].
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.charge_syscall();
        let (old_dir, old_name) = self.volume.resolve_parent(from.as_bytes())?;
        let (new_dir, new_name) = self.volume.resolve_parent(to.as_bytes())?;
        self.volume.rename(&old_dir, old_name, &new_dir, new_name, RenameFlags::default())
    }

    /// The directory that holds `path`.
    ///
    /// # Errors
    /// As [`Volume::resolve_parent`].
    pub fn parent(&self, path: &str) -> Result<InodeRef> {
        self.charge_syscall();
        Ok(self.volume.resolve_parent(path.as_bytes())?.0)
    }

    /// Size in bytes.
    pub fn size(&self, inode: &InodeRef) -> u64 {
        self.charge_syscall();
        self.volume.getattr_unseen(inode).size
    }

    /// Reads; fewer bytes than asked only at the end of the file.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read(&self, inode: &InodeRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.charge_syscall();
        let mut done = 0;
        while done < into.len() {
            let n = self.volume.read(inode, offset + done as u64, &mut into[done..])?;
            if n == 0 {
                break;
            }
            done += n;
        }
        self.read_bytes.fetch_add(done as u64, Ordering::Relaxed);
        Ok(done)
    }

    /// Writes all of `from`.
    ///
    /// # Errors
    /// As [`Volume::write`]; [`FsError::NoSpace`] if only a part was taken.
    pub fn write(&self, inode: &InodeRef, offset: u64, from: &[u8]) -> Result<()> {
        self.charge_syscall();
        let mut done = 0;
        while done < from.len() {
            let n = self.volume.write(inode, offset + done as u64, &from[done..])?;
            if n == 0 {
                return Err(FsError::NoSpace);
            }
            done += n;
        }
        self.written_bytes.fetch_add(done as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the size.
    ///
    /// # Errors
    /// As [`Volume::truncate`].
    pub fn truncate(&self, inode: &InodeRef, size: u64) -> Result<()> {
        self.charge_syscall();
        self.volume.truncate(inode, size)
    }

    /// fsync, or fdatasync with `datasync`.
    ///
    /// # Errors
    /// As [`Volume::fsync`].
    pub fn fsync(&self, inode: &InodeRef, datasync: bool) -> Result<()> {
        self.charge_syscall();
        let datasync = datasync && !self.always_fsync.load(Ordering::Relaxed);
        self.volume.fsync(inode, datasync)
    }

    /// fdatabarrier.
    ///
    /// # Errors
    /// As [`Volume::fdatabarrier`].
    pub fn fdatabarrier(&self, inode: &InodeRef) -> Result<()> {
        self.charge_syscall();
        self.volume.fdatabarrier(inode)
    }

    /// syncfs.
    ///
    /// # Errors
    /// As [`Volume::syncfs`].
    pub fn syncfs(&self) -> Result<()> {
        self.charge_syscall();
        self.volume.syncfs()
    }

    /// Makes everything durable, whatever `sync=` says.
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn sync(&self) -> Result<()> {
        self.charge_syscall();
        self.volume.sync()
    }
}

/// A file of a volume as SQLite uses it.
struct VolumeFile {
    fs: Arc<VolumeFs>,
    inode: InodeRef,
}

impl VolumeFs {
    fn opened(self: Arc<Self>, inode: InodeRef) -> Box<dyn OpenFile> {
        Box::new(VolumeFile { fs: self, inode })
    }
}

impl Store for VolumeFs {
    fn open(self: Arc<Self>, path: &str) -> Answer<Box<dyn OpenFile>> {
        let inode = VolumeFs::open(&self, path).map_err(|err| err.errno())?;
        Ok(self.opened(inode))
    }

    fn create(self: Arc<Self>, path: &str, of: &Create) -> Answer<Box<dyn OpenFile>> {
        let inode = self.create_as(path, of).map_err(|err| err.errno())?;
        Ok(self.opened(inode))
    }

    fn parent(self: Arc<Self>, path: &str) -> Answer<Box<dyn OpenFile>> {
        let inode = VolumeFs::parent(&self, path).map_err(|err| err.errno())?;
        Ok(self.opened(inode))
    }

    fn stat(&self, path: &str) -> Answer<Attr> {
        let inode = VolumeFs::open(self, path).map_err(|err| err.errno())?;
        Ok(self.volume.getattr_unseen(&inode))
    }

    fn owner(&self, path: &str) -> Option<Attr> {
        // Not `stat`: the price of a call is in the stored figures of every journal mode.
        self.volume.resolve(path).ok().map(|inode| self.volume.getattr_unseen(&inode))
    }

    fn unlink(&self, path: &str) -> Answer<()> {
        VolumeFs::unlink(self, path).map_err(|err| err.errno())
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn charge_syscall(&self) {
        VolumeFs::charge_syscall(self);
    }

    fn barriers(&self) -> Barriers {
        VolumeFs::barriers(self)
    }

    fn offers_atomic(&self) -> bool {
        VolumeFs::offers_atomic(self)
    }
}

impl OpenFile for VolumeFile {
    fn attr(&self) -> Answer<Attr> {
        Ok(self.fs.volume.getattr_unseen(&self.inode))
    }

    fn size(&self) -> Answer<u64> {
        Ok(self.fs.size(&self.inode))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Answer<usize> {
        self.fs.read(&self.inode, offset, into).map_err(|err| err.errno())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Answer<()> {
        self.fs.write(&self.inode, offset, from).map_err(|err| err.errno())
    }

    fn truncate(&self, size: u64) -> Answer<()> {
        self.fs.truncate(&self.inode, size).map_err(|err| err.errno())
    }

    fn fdatasync(&self) -> Answer<()> {
        self.fs.fsync(&self.inode, true).map_err(|err| err.errno())
    }

    fn fdatabarrier(&self) -> Answer<()> {
        self.fs.fdatabarrier(&self.inode).map_err(|err| err.errno())
    }

    fn write_batch(&self, batch: &Batch) -> Answer<()> {
        self.fs.write_batch(&self.inode, batch).map_err(|err| err.errno())
    }
}
