//! The public face of a mounted volume: every call goes to the floor that does it.
//!
//! ```text
//!  Volume ── Names    directories, names, their cache                       names/
//!              └ Files   contents: read, write, write-back, sync            data/
//!                  └ Inodes   inodes in memory, orphans, attributes, pages  inode/
//!                      └ Space   free blocks and inodes                     space/  map/
//!                          └ Store   device, superblock, checksums, journal store/
//! ```
//!
//! Each floor owns the one below and lends what that has by `Deref`, so a function says in its
//! first parameter how much of the volume it needs, and none can reach a floor above its own.
//!
//! Lock order, each level may be skipped, never taken backwards: `rename_lock`, `Inode::rwsem`
//! (parents before children, then ascending inode number), `Inode::io`, a journal handle,
//! `Inode::state`, `Inode::pages`, allocator groups, `sb`, buffer internals.
//!
//! - No handle is started while `state` or `pages` is held.
//! - Neither `rwsem` nor `io` is taken, no commit is waited for and no last [`InodeRef`] of
//!   an unlinked inode is dropped while a handle is held.
//! - No device write happens under `state`, `pages` or a handle.
//!
//! So an fsync of one file never makes a write to another wait for the device: the writer needs
//! only its own `rwsem` and `state`, and the journal admits handles while a commit is in flight.
//!
//! This file is long because it documents every public call; it decides nothing.

use std::sync::Arc;

use syncline_device::{BlockDevice, Clock};

use crate::check::{CheckProgress, CheckReport};
use crate::data::atomic::AtomicWrite;
use crate::data::engine::eager::EagerCosts;
use crate::data::fallocate::FallocateMode;
use crate::data::schedule::state::MomentStats;
use crate::data::seek::FileExtent;
use crate::error::{FsError, Result};
use crate::inode::attr::{Attr, SetAttr, StatFs};
use crate::inode::reference::InodeRef;
use crate::inode::xattr::XattrFlags;
use crate::mount::MountReport;
use crate::names::Names;
use crate::names::create::Create;
use crate::names::dir::readdir::DirEntry;
use crate::names::rename::RenameFlags;
use crate::options::{LiveLimits, MountOptions};
use crate::pages::CacheStats;

/// A mounted ext4 volume. Cheap to clone; shared between threads.
#[derive(Clone)]
pub struct Volume(pub(crate) Arc<Names>);

impl Volume {
    /// Mounts the ext4 volume on `dev`: replays its log, finishes its orphans. Timestamps and
    /// intervals come from `clock`.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] names a feature, [`FsError::Corrupt`] a broken structure; nothing
    /// has been written then, unless the log was replayed.
    pub fn mount(
        dev: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<Volume> {
        Ok(Volume::mount_report(dev, clock, options)?.0)
    }

    /// As [`Volume::mount`], and says what had to be repaired.
    ///
    /// # Errors
    /// As [`Volume::mount`].
    pub fn mount_report(
        dev: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<(Volume, MountReport)> {
        let (names, report) = crate::mount::mount(dev, clock, options)?;
        Ok((Volume(names), report))
    }

    /// Recovers for a reader: `dev` as recovery would leave it, in memory, and the report of that.
    /// `dev` itself is only read. `None` if there is nothing to replay.
    ///
    /// # Errors
    /// As of a mount that may write.
    pub fn recovered_in_memory(
        dev: &Arc<dyn BlockDevice>,
        clock: &Arc<dyn Clock>,
        cache_bytes: u64,
    ) -> Result<Option<(Arc<dyn BlockDevice>, MountReport)>> {
        crate::mount::in_memory::recovered(dev, clock, cache_bytes)
    }

    /// Writes everything back and leaves the image clean. Other clones of the volume fail from then
    /// on. On an error the image is recoverable, as after a crash.
    ///
    /// # Errors
    /// The first failure of a write; whatever latched the volume before.
    pub fn unmount(self) -> Result<()> {
        crate::mount::unmount(&self.0)
    }

    /// Makes a volume that was mounted read-only writable, as a remount of ext4 does. Its device
    /// has to take writes by now. Nobody else calls it at the same time.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for features that can only be read, a volume without a journal and
    /// one whose log has to be replayed; [`FsError::Invalid`] if the superblock is not the one that
    /// was mounted. The volume is read-only as before then. After an I/O error it is to be
    /// unmounted.
    pub fn make_writable(&self) -> Result<()> {
        crate::mount::make_writable(&self.0)
    }

    /// True if the volume was mounted read-only and was not made writable.
    pub fn is_read_only(&self) -> bool {
        self.0.journal.get().is_none()
    }

    /// Nanoseconds by which timestamps of its files differ at least: a second with inodes of 128
    /// bytes.
    pub fn time_granularity_ns(&self) -> u32 {
        if self.0.has_long_times() { 1 } else { 1_000_000_000 }
    }

    /// Counters and fill level of the journal; `None` on a read-only mount.
    pub fn journal_stats(&self) -> Option<syncline_jbd2::JournalStats> {
        self.0.journal.get().map(|journal| journal.stats())
    }

    /// [`FsError::Latched`] with its cause once nothing is written any more.
    pub fn latched(&self) -> Option<FsError> {
        self.0.latch.check().err()
    }
}
impl Volume {
    /// Attributes of an inode.
    pub fn getattr(&self, inode: &InodeRef) -> Attr {
        crate::inode::attr::getattr(&self.0, inode)
    }

    /// Changes attributes. A size goes through [`Volume::truncate`].
    ///
    /// # Errors
    /// [`FsError::Perm`] on an immutable file, and what truncation gives.
    pub fn setattr(&self, inode: &InodeRef, set: &SetAttr) -> Result<Attr> {
        crate::data::truncate::setattr(&self.0, inode, set)
    }

    /// Space and inodes of the volume.
    pub fn statfs(&self) -> StatFs {
        crate::inode::attr::statfs(&self.0)
    }

    /// Checks the whole volume; see the module. `progress` is called about once a group and a
    /// directory and stops the check by returning false.
    ///
    /// # Errors
    /// I/O; [`FsError::Unsupported`] for what cannot be judged. Broken rules are no errors.
    pub fn check(&self, progress: &mut dyn FnMut(CheckProgress) -> bool) -> Result<CheckReport> {
        crate::check::check(&self.0, progress)
    }

    /// Allocates, punches or zeroes `len` bytes from `offset`.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an empty range, [`FsError::TooBig`], [`FsError::NotSupported`] for
    /// files with block maps, [`FsError::NoSpace`] (a part may be done), [`FsError::IsDir`],
    /// [`FsError::Perm`], [`FsError::ReadOnly`], [`FsError::Latched`], I/O errors.
    pub fn fallocate(
        &self,
        inode: &InodeRef,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        crate::data::fallocate::fallocate(&self.0, inode, mode, offset, len)
    }

    /// Reads at `offset` into `into`. Returns how many bytes there were: fewer than asked only at
    /// the end of the file.
    ///
    /// # Errors
    /// [`crate::FsError::IsDir`], I/O errors, and corruption found on the way to the blocks.
    pub fn read(&self, inode: &InodeRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        crate::data::read::read(&self.0, inode, offset, into)
    }

    /// As [`Volume::read`] for a caller with a cache of its own, which will not ask again soon:
    /// what large reads bring from the device is not cached here, too.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read_once(&self, inode: &InodeRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        crate::data::read::read_once(&self.0, inode, offset, into)
    }

    /// As [`Volume::read_once`], and the access time stays (`O_NOATIME`).
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read_unseen(&self, inode: &InodeRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        crate::data::read::read_unseen(&self.0, inode, offset, into)
    }

    /// Writes `data` at `offset`; holes before it appear by themselves. Returns how many bytes were
    /// taken: fewer than given only if space or the largest file size ran out on the way.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] and [`FsError::TooBig`] if not one byte could be taken;
    /// [`FsError::IsDir`], [`FsError::Perm`] (immutable, or not at the end of an append-only file),
    /// [`FsError::ReadOnly`], [`FsError::Latched`], I/O errors.
    pub fn write(&self, inode: &InodeRef, offset: u64, data: &[u8]) -> Result<usize> {
        crate::data::write::write(&self.0, inode, offset, data)
    }

    /// Writes `data` at the end of the file, wherever that is by then. Returns the offset and how
    /// many bytes were taken.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn write_append(&self, inode: &InodeRef, data: &[u8]) -> Result<(u64, usize)> {
        crate::data::write::write_append(&self.0, inode, data)
    }

    /// Writes and makes what was written durable before it returns (`O_SYNC`; with `datasync`
    /// `O_DSYNC`, `RWF_DSYNC`).
    ///
    /// # Errors
    /// As [`Volume::write`] and [`Volume::fsync`].
    pub fn write_sync(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        datasync: bool,
    ) -> Result<usize> {
        crate::data::write::write_sync(&self.0, inode, offset, data, datasync)
    }

    /// Reports whether [`Volume::begin_atomic`] is supported: with `sync=eager`.
    pub fn has_atomic_writes(&self) -> bool {
        self.0.engine.logs_data()
    }

    /// Begins an atomic write of a file: what [`Volume::write_atomic`] stages becomes visible and
    /// durable as one at [`Volume::commit_atomic`]. Dropping it, or a crash, undoes all of it.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] without `sync=eager`, [`FsError::Busy`] if one has begun already,
    /// [`FsError::Invalid`] or [`FsError::IsDir`] for what is no regular file.
    pub fn begin_atomic(&self, inode: &InodeRef) -> Result<AtomicWrite> {
        crate::data::atomic::begin(&self.0, inode)
    }

    /// Stages bytes. Returns how many: all.
    ///
    /// # Errors
    /// [`FsError::AtomicTooBig`] for more than one record of the log holds, [`FsError::NoSpace`],
    /// [`FsError::TooBig`], [`FsError::Perm`]: nothing of this call is staged then, and what was
    /// staged before may still be committed.
    pub fn write_atomic(
        &self,
        atomic: &mut AtomicWrite,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        crate::data::atomic::write(&self.0, atomic, offset, data)
    }

    /// Reads the file as it would be after the commit.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read_atomic(&self, atomic: &AtomicWrite, offset: u64, into: &mut [u8]) -> Result<usize> {
        crate::data::atomic::read(&self.0, atomic, offset, into)
    }

    /// Makes what was staged visible and durable, as one.
    ///
    /// # Errors
    /// For lack of space nothing has changed. I/O errors latch the volume; whether all of it or
    /// nothing is on the device is known after recovery.
    pub fn commit_atomic(&self, atomic: AtomicWrite) -> Result<()> {
        crate::data::atomic::commit(&self.0, atomic)
    }

    /// The inode with this number.
    ///
    /// # Errors
    /// [`FsError::Stale`] if it is not in use, [`FsError::Corrupt`] if its slot is broken.
    pub fn iget(&self, ino: u32) -> Result<InodeRef> {
        crate::inode::iget::iget(&self.0, ino)
    }

    /// The inode that a file handle names, which may have any number.
    ///
    /// # Errors
    /// As [`Volume::iget`]; [`FsError::Stale`] also if no file can have the number, as the
    /// journal's.
    pub fn iget_handle(&self, ino: u32) -> Result<InodeRef> {
        crate::inode::iget::iget_handle(&self.0, ino)
    }

    /// The root directory.
    ///
    /// # Errors
    /// As [`Volume::iget`].
    pub fn root(&self) -> Result<InodeRef> {
        crate::inode::iget::root(&self.0)
    }

    /// The limits now.
    pub fn live_limits(&self) -> LiveLimits {
        crate::data::schedule::limits::live_limits(&self.0)
    }

    /// Changes all of them.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for one that is out of its range; nothing changes then.
    pub fn set_live_limits(&self, limits: LiveLimits) -> Result<()> {
        crate::data::schedule::limits::set_live_limits(&self.0, limits)
    }

    /// Makes an empty regular file.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NoSpace`], [`FsError::NotFound`] if `dir` was removed.
    pub fn create(&self, dir: &InodeRef, name: &[u8], create: &Create) -> Result<InodeRef> {
        crate::names::create::create(&self.0, dir, name, create)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Volume::create`], and [`FsError::TooManyLinks`].
    pub fn mkdir(&self, dir: &InodeRef, name: &[u8], create: &Create) -> Result<InodeRef> {
        crate::names::create::mkdir(&self.0, dir, name, create)
    }

    /// Makes a device file, pipe, socket or regular file, by the type bits of `mode`; `rdev` is
    /// Linux's 64-bit device number.
    ///
    /// # Errors
    /// As [`Volume::create`]; [`FsError::Perm`] for a directory, [`FsError::Invalid`] for other
    /// types.
    pub fn mknod(
        &self,
        dir: &InodeRef,
        name: &[u8],
        create: &Create,
        rdev: u64,
    ) -> Result<InodeRef> {
        crate::names::create::mknod(&self.0, dir, name, create, rdev)
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// As [`Volume::create`]; [`FsError::NotFound`] for an empty target, [`FsError::NameTooLong`]
    /// for one that does not fit a block.
    pub fn symlink(
        &self,
        dir: &InodeRef,
        name: &[u8],
        target: &[u8],
        create: &Create,
    ) -> Result<InodeRef> {
        crate::names::create::symlink(&self.0, dir, name, target, create)
    }

    /// Gives `inode` one more name.
    ///
    /// # Errors
    /// [`FsError::Perm`] for a directory, an immutable or append-only file, [`FsError::Exists`],
    /// [`FsError::TooManyLinks`] above 65,000, [`FsError::NotFound`] for a file without names.
    pub fn link(&self, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
        crate::names::link::link(&self.0, inode, dir, name)
    }

    /// The inode that `name` means in `dir`.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDir`], [`FsError::NameTooLong`].
    pub fn lookup(&self, dir: &InodeRef, name: &[u8]) -> Result<InodeRef> {
        crate::names::namei::lookup(&self.0, dir, name)
    }

    /// Calls `sink` for each entry from `cookie` on (0 is the start; then
    /// [`DirEntry::next_cookie`]), `.` and `..` included, until it returns false or the end. No
    /// lock is held while `sink` runs, so it may look entries up. Names that exist from the first
    /// to the last call of a reader that passes cookies on come exactly once.
    ///
    /// # Errors
    /// [`FsError::NotDir`], or what reading the directory gives; entries before the error were
    /// delivered.
    pub fn readdir(
        &self,
        dir: &InodeRef,
        cookie: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        crate::names::namei::readdir(&self.0, dir, cookie, sink, true)
    }

    /// As [`Volume::readdir`], and the access time stays (`O_NOATIME`).
    ///
    /// # Errors
    /// As [`Volume::readdir`].
    pub fn readdir_unseen(
        &self,
        dir: &InodeRef,
        cookie: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        crate::names::namei::readdir(&self.0, dir, cookie, sink, false)
    }

    /// Moves `old_name` of `old_dir` to `new_name` of `new_dir`.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::Exists`] with NOREPLACE, [`FsError::NotDir`],
    /// [`FsError::IsDir`], [`FsError::NotEmpty`], [`FsError::Invalid`] for a directory moved below
    /// itself, [`FsError::Busy`] for `.` and `..`, [`FsError::TooManyLinks`], [`FsError::NoSpace`],
    /// [`FsError::Perm`].
    pub fn rename(
        &self,
        old_dir: &InodeRef,
        old_name: &[u8],
        new_dir: &InodeRef,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        crate::names::rename::rename(&self.0, (old_dir, old_name), (new_dir, new_name), flags, None)
    }

    /// As [`Volume::rename`]; the old name becomes a whiteout of overlayfs, a character device 0:0
    /// of this owner (`RENAME_WHITEOUT`), in the same transaction.
    ///
    /// # Errors
    /// As [`Volume::rename`]; [`FsError::Invalid`] for an exchange.
    pub fn rename_whiteout(
        &self,
        (old_dir, old_name): (&InodeRef, &[u8]),
        (new_dir, new_name): (&InodeRef, &[u8]),
        flags: RenameFlags,
        owner: &Create,
    ) -> Result<()> {
        let (from, to) = ((old_dir, old_name), (new_dir, new_name));
        crate::names::rename::rename(&self.0, from, to, flags, Some(owner))
    }

    /// Discards the free blocks in a range of bytes of the device, for the sake of flash
    /// (`FITRIM`). Runs shorter than `least_bytes` are left out. Returns the bytes discarded.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a range outside of the volume or below a block, and for runs longer
    /// than a group; [`FsError::NotSupported`] without a discard of the device,
    /// [`FsError::ReadOnly`], [`FsError::Latched`], I/O.
    pub fn trim(&self, range: std::ops::Range<u64>, least_bytes: u64) -> Result<u64> {
        crate::space::balloc::trim::trim(&self.0, range, least_bytes)
    }

    /// Ends the volume as a crash does (`EXT4_IOC_SHUTDOWN`): from here on nothing is written, and
    /// every call that would reach the device fails. With `flush` everything is durable before.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`], [`FsError::Latched`]; with `flush` as [`Volume::fsync`], and then the
    /// volume goes on or has latched.
    pub fn shutdown(&self, flush: bool) -> Result<()> {
        crate::data::shutdown::shutdown(&self.0, flush)
    }

    /// Fails once [`Volume::shutdown`] has ended the volume, for calls that reach no device.
    ///
    /// # Errors
    /// [`FsError::Latched`].
    pub fn check_running(&self) -> Result<()> {
        crate::data::shutdown::check_running(&self.0)
    }

    /// Removes a name of something that is not a directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDir`], [`FsError::Perm`] for immutable and append-only
    /// files and directories.
    pub fn unlink(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        crate::names::unlink::unlink(&self.0, dir, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDir`], [`FsError::NotEmpty`], [`FsError::Busy`] for the
    /// root, [`FsError::Invalid`] for `.`, [`FsError::Perm`] as for [`Volume::unlink`].
    pub fn rmdir(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        crate::names::unlink::rmdir(&self.0, dir, name)
    }

    /// The inode that `path` names, following symbolic links everywhere. Relative paths start at
    /// the root.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDir`], [`FsError::Loop`], [`FsError::NameTooLong`], and
    /// what reading directories gives.
    pub fn resolve(&self, path: impl AsRef<[u8]>) -> Result<InodeRef> {
        crate::names::path::resolve(&self.0, path)
    }

    /// As [`Volume::resolve`], but a symbolic link in the last component is itself the result.
    ///
    /// # Errors
    /// As [`Volume::resolve`].
    pub fn resolve_nofollow(&self, path: impl AsRef<[u8]>) -> Result<InodeRef> {
        crate::names::path::resolve_nofollow(&self.0, path)
    }

    /// The directory that holds the last component of `path`, and that component: what create,
    /// unlink and rename want. Trailing slashes are ignored.
    ///
    /// # Errors
    /// As [`Volume::resolve`]; [`FsError::Invalid`] if there is no last component or it is `.` or
    /// `..`.
    pub fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(InodeRef, &'p [u8])> {
        crate::names::path::resolve_parent(&self.0, path)
    }

    /// Returns the switch for relaxed files; false makes every file strict. It is on at every
    /// mount.
    pub fn relaxes(&self) -> bool {
        crate::data::sync::relaxes(&self.0)
    }

    /// Switches that on, or off: then every file is strict, and what relaxed files had waiting is
    /// durable when this returns.
    ///
    /// # Errors
    /// As [`Volume::syncfs`]; it is off all the same.
    pub fn set_relaxes(&self, on: bool) -> Result<()> {
        crate::data::sync::set_relaxes(&self.0, on)
    }

    /// Moves the blocks of a file into the zones of the mount and keeps it there; of a directory,
    /// those of the files in it, not further down. Returns how many blocks moved.
    ///
    /// # Errors
    /// [`FsError::Invalid`] on a mount without zones; [`FsError::NotSupported`] for anything but a
    /// file with extents or a directory; I/O and corruption.
    pub fn relocate(&self, inode: &InodeRef) -> Result<u64> {
        crate::names::relocate::relocate(&self.0, inode)
    }

    /// First offset from `offset` on that holds data (`SEEK_DATA`).
    ///
    /// # Errors
    /// [`FsError::NoSuchOffset`] (ENXIO) if none does before the end.
    pub fn seek_data(&self, inode: &InodeRef, offset: u64) -> Result<u64> {
        crate::data::seek::seek_data(&self.0, inode, offset)
    }

    /// First offset from `offset` on that is in a hole; the end counts as one (`SEEK_HOLE`).
    ///
    /// # Errors
    /// [`FsError::NoSuchOffset`] (ENXIO) behind the end.
    pub fn seek_hole(&self, inode: &InodeRef, offset: u64) -> Result<u64> {
        crate::data::seek::seek_hole(&self.0, inode, offset)
    }

    /// The extents that touch `len` bytes from `start`, in order, also those behind the end.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for special files, I/O, corrupt trees.
    pub fn fiemap(&self, inode: &InodeRef, start: u64, len: u64) -> Result<Vec<FileExtent>> {
        crate::data::seek::fiemap(&self.0, inode, start, len)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it is not one.
    pub fn readlink(&self, inode: &InodeRef) -> Result<Vec<u8>> {
        crate::names::symlink::readlink(&self.0, inode)
    }

    /// Makes the file durable: its data, and with `datasync` false its inode whatever changed;
    /// with `datasync` true only what is needed to read the data back. For directories and other
    /// inodes: their metadata.
    ///
    /// # Errors
    /// I/O errors, [`FsError::Latched`] for ever after one, [`FsError::NoSpace`] if index blocks
    /// for delayed data cannot be had.
    pub fn fsync(&self, inode: &InodeRef, datasync: bool) -> Result<()> {
        crate::data::sync::fsync(&self.0, inode, datasync)
    }

    /// Makes everything on the volume durable, whatever `sync=` says.
    ///
    /// # Errors
    /// As [`Volume::fsync`].
    pub fn sync(&self) -> Result<()> {
        crate::data::sync::sync_all(&self.0)
    }

    /// Moments of a volume with `sync=periodic`; `None` for others.
    pub fn moments(&self) -> Option<MomentStats> {
        crate::data::moment::moment_stats(&self.0)
    }

    /// Measured costs of the device of a volume with `sync=eager`; `None` for others.
    pub fn eager_costs(&self) -> Option<EagerCosts> {
        crate::data::engine::eager::eager_costs(&self.0)
    }

    /// Makes everything on the volume durable; with `sync=periodic` nothing, as fsync of a file
    /// that is not strict.
    ///
    /// # Errors
    /// As [`Volume::fsync`].
    pub fn syncfs(&self) -> Result<()> {
        crate::data::sync::syncfs(&self.0)
    }

    /// Writes dirty data of a byte range to the device, without making it durable
    /// (`sync_file_range` with WRITE and WAIT_AFTER). Returns the pages sent.
    ///
    /// # Errors
    /// As [`Volume::fsync`].
    pub fn writeback_range(&self, inode: &InodeRef, offset: u64, len: u64) -> Result<usize> {
        crate::data::sync::writeback_range(&self.0, inode, offset, len)
    }

    /// An open file is closed. If the file was cut to nothing and written again, its data is sent
    /// on its way, so that a crash after the next commit does not leave it empty
    /// (`auto_da_alloc`, as `ext4_release_file`).
    ///
    /// # Errors
    /// As [`Volume::writeback_range`].
    pub fn close(&self, inode: &InodeRef) -> Result<()> {
        crate::data::sync::close_file(&self.0, inode)
    }

    /// Does the background work of Linux: commits the running transaction at its age, and writes
    /// back data that has been dirty too long or is too much. Call it at
    /// [`Volume::next_deadline_ns`] or at any time: with a wall clock from a maintenance thread,
    /// with a virtual one from the simulation.
    ///
    /// # Errors
    /// As [`Volume::fsync`].
    pub fn tick(&self, now_ns: u64) -> Result<()> {
        crate::data::schedule::timers::tick(&self.0, now_ns)
    }

    /// When [`Volume::tick`] has something to do next, in nanoseconds of the volume's clock. What
    /// is due at once was due at 0: a caller that has read the clock before finds it past.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        crate::data::schedule::timers::next_deadline_ns(&self.0)
    }

    /// True if dirty pages are above `dirty_background_ratio`, or with `sync=periodic` a quarter of
    /// what one transaction may have waits for the next moment: with a wall clock the maintenance
    /// thread should check [`Volume::next_deadline_ns`] now.
    pub fn wants_writeback(&self) -> bool {
        crate::data::schedule::timers::wants_writeback(&self.0)
    }

    /// True if so much is dirty that writers will soon have to write back themselves: half way from
    /// `dirty_background_ratio` to `dirty_ratio`, or with `sync=periodic` half of a transaction.
    pub fn is_near_throttle(&self) -> bool {
        crate::data::schedule::timers::is_near_throttle(&self.0)
    }

    /// Ends the pause between two write-backs for `dirty_background_ratio`: [`Volume::tick`] is due
    /// at once if there is something to do for it. For a maintenance thread, which writes beside
    /// the writers; a simulation has one thread, and writes as much whoever does it.
    pub fn hurry_writeback(&self) {
        crate::data::schedule::timers::hurry_writeback(&self.0)
    }

    /// Figures of the page cache.
    pub fn cache_stats(&self) -> CacheStats {
        crate::data::sync::cache_stats(&self.0)
    }

    /// Sets the size of a regular file. What is cut off is freed; what is added reads as zeros.
    /// Also frees what is allocated behind the end, if the size stays.
    ///
    /// # Errors
    /// [`FsError::IsDir`], [`FsError::Invalid`] for what has no size, [`FsError::Perm`] (immutable
    /// or append-only), [`FsError::TooBig`], [`FsError::ReadOnly`], [`FsError::Latched`], I/O
    /// errors.
    pub fn truncate(&self, inode: &InodeRef, size: u64) -> Result<()> {
        crate::data::truncate::truncate(&self.0, inode, size)
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// [`FsError::NoData`] if there is none, [`FsError::NotSupported`] for another namespace,
    /// [`FsError::Range`] for a name that is too long.
    pub fn getxattr(&self, inode: &InodeRef, name: &[u8]) -> Result<Vec<u8>> {
        crate::inode::xattr::getxattr(&self.0, inode, name)
    }

    /// Full names of all attributes, in the order in which they are stored.
    ///
    /// # Errors
    /// The error of a read.
    pub fn listxattr(&self, inode: &InodeRef) -> Result<Vec<Vec<u8>>> {
        crate::inode::xattr::listxattr(&self.0, inode)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// [`FsError::Exists`] and [`FsError::NoData`] by `flags`, [`FsError::ArgumentTooBig`] above
    /// 64 KiB, [`FsError::NoSpace`] if it does not fit, [`FsError::Perm`] for immutable and
    /// append-only files and for `user.` on anything but files and directories,
    /// [`FsError::Invalid`] for a broken ACL. `user.syncline.relocate` is no attribute but a
    /// request: errors are those of [`Volume::relocate`].
    pub fn setxattr(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        crate::names::xattr::setxattr(&self.0, inode, name, value, flags)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`FsError::NoData`] if there is none; otherwise as [`Volume::setxattr`].
    pub fn removexattr(&self, inode: &InodeRef, name: &[u8]) -> Result<()> {
        crate::names::xattr::removexattr(&self.0, inode, name)
    }
}
