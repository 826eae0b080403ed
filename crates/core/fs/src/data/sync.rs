//! fsync, fdatasync, fdatabarrier, syncfs, sync_file_range and close.
//!
//! ```text
//!   fsync(file):  write back its pages --> commit(sync_tid or datasync_tid) --> flush, unless the
//!                                                                        commit just did one
//! ```
//!
//! As `ext4_sync_file` does: the device is flushed even if nothing is dirty, because earlier
//! write-back may still be in its cache. fdatasync waits for [`crate::incore::Dirty::Data`] changes
//! only: an overwrite is one data write and one flush. For a directory and other inodes without
//! data both commit the running transaction, and flush nothing else.
//!
//! Promises: after Ok everything the call covers survives a power cut. After a failed write, flush
//! or commit the volume is latched and no fsync returns Ok again.
//!
//! Locks: waits for `io` of one file at a time; neither `rwsem` nor a handle is held while waiting
//! for the device.
//!
//! Tested in `tests/it/file_io_sync.rs`, with exact request counts.

use std::ops::Range;
use std::sync::atomic::Ordering;

use syncline_ondisk::inode::{S_IFMT, S_IFREG};

use crate::data::Files;
use crate::data::durability::WROTE;
#[cfg(doc)]
use crate::data::engine::Engine;
use crate::data::flush::file::{write_back, write_delayed};
use crate::data::relaxed::flush_relaxed;
use crate::error::Result;
use crate::incore::Inode;
use crate::inode::reference::InodeRef;
use crate::store::Store;

/// First block and block after the last one of a byte range.
fn blocks_of(store: &Store, offset: u64, len: u64) -> (u64, u64) {
    let block_size = store.block_size() as u64;
    (offset / block_size, offset.saturating_add(len).div_ceil(block_size))
}

/// Calls `sync` with the blocks of the bytes `offset..offset + len` of a file.
fn sync_range(
    files: &Files,
    inode: &Inode,
    offset: u64,
    len: u64,
    sync: impl FnOnce(Range<u64>) -> Result<()>,
) -> Result<()> {
    files.latch.check()?;
    if files.journal().is_err() {
        return Ok(());
    }
    let regular = inode.state.read().raw.i_mode & S_IFMT == S_IFREG;
    let (from, to) = blocks_of(files, offset, len);
    sync(if regular { from..to } else { 0..0 })
}

/// Makes everything on the volume durable, whichever files are relaxed.
///
/// # Errors
/// As [`Engine::sync_all`].
pub(crate) fn sync_all(files: &Files) -> Result<()> {
    files.latch.check()?;
    let Ok(journal) = files.journal() else { return Ok(()) };
    files.engine.sync_all(files)?;
    // `sync_blockdev`: committed blocks go to their home blocks, without a flush.
    Ok(journal.write_back()?)
}

/// Makes a part of a file durable, and its inode. Does nothing where the engine defers fsync of
/// this file.
///
/// # Errors
/// As [`Engine::fsync`].
pub(crate) fn fsync_file(
    files: &Files,
    inode: &InodeRef,
    offset: u64,
    len: u64,
    datasync: bool,
) -> Result<()> {
    if files.engine.defers_fsync(files, inode) {
        return files.latch.check();
    }
    let sync = |range| files.engine.fsync(files, inode, range, datasync);
    sync_range(files, inode, offset, len, sync)?;
    if !files.engine.sends_relaxed() {
        return Ok(());
    }
    let wrote = {
        // No write of this file is under way.
        let _io = inode.io.lock();
        inode.durability.fetch_and(!WROTE, Ordering::AcqRel) & WROTE != 0
    };
    if wrote { flush_relaxed(files) } else { Ok(()) }
}

impl crate::Volume {
    /// Returns true if relaxed files are enabled, as they are at every mount; false makes every
    /// file strict.
    pub fn relaxed_enabled(&self) -> bool {
        self.0.relaxed.is_on()
    }

    /// True once an fsync of a relaxed file was deferred, since the mount.
    pub fn has_deferred(&self) -> bool {
        self.0.relaxed.deferred.load(Ordering::Relaxed)
    }

    /// Enables relaxed files, or disables them: then every file is strict, and deferred data of
    /// relaxed files is durable when this returns.
    ///
    /// # Errors
    /// As [`Self::syncfs`]; relaxed files are disabled nevertheless.
    pub fn set_relaxed_enabled(&self, on: bool) -> Result<()> {
        let was_off = self.0.relaxed.off.swap(!on, Ordering::AcqRel);
        if on || was_off { Ok(()) } else { self.syncfs() }
    }

    /// Makes a file durable: its data and its inode; with `datasync` of the inode only the changes
    /// that are needed to read the data back. Of directories and other inodes it makes the metadata
    /// durable.
    ///
    /// # Errors
    /// I/O errors, [`crate::FsError::Latched`] for ever after one, [`crate::FsError::NoSpace`] if
    /// index blocks for delayed data cannot be had.
    pub fn fsync(&self, inode: &InodeRef, datasync: bool) -> Result<()> {
        fsync_file(&self.0, inode, 0, u64::MAX, datasync)
    }

    /// Orders the data of a file, and what is needed to read it back, before everything that is
    /// changed after this call: after a power cut nothing of the latter is there without all of
    /// the former. Nothing need be durable when this returns; the next sync of any file makes it
    /// so, and [`Self::tick`] after `commit=` seconds.
    ///
    /// With `sync=eager` it waits for no flash on a device with a cache barrier
    /// ([`syncline_device::Geometry::barrier`]). With `sync=periodic` it does nothing, since the
    /// volume is always one moment of its past. Otherwise it is fdatasync.
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn fdatabarrier(&self, inode: &InodeRef) -> Result<()> {
        let files: &Files = &self.0;
        if !files.engine.can_order() || files.engine.defers_fsync(files, inode) {
            return self.fsync(inode, true);
        }
        sync_range(files, inode, 0, u64::MAX, |range| files.engine.order(files, inode, range))
    }

    /// Makes everything on the volume durable, in every mode of `sync=`.
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn sync(&self) -> Result<()> {
        sync_all(&self.0)
    }

    /// Makes everything on the volume durable. With `sync=periodic` it does nothing, as fsync of a
    /// file that is not strict.
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn syncfs(&self) -> Result<()> {
        let files: &Files = &self.0;
        if files.engine.defers_syncfs(files) {
            return files.latch.check();
        }
        sync_all(files)
    }

    /// Writes dirty data of a byte range to the device, without making it durable
    /// (`sync_file_range` with WRITE and WAIT_AFTER). Returns the pages sent.
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn writeback_range(&self, inode: &InodeRef, offset: u64, len: u64) -> Result<usize> {
        let (from, to) = blocks_of(&self.0, offset, len);
        write_back(&self.0, inode, from, to, true)
    }

    /// Notes that an open file is closed. If the file was truncated to zero and written again, its
    /// delayed data is written back, so that a crash after the next commit does not leave it empty
    /// (`auto_da_alloc`, as `ext4_release_file`).
    ///
    /// # Errors
    /// As [`Self::writeback_range`].
    pub fn close(&self, inode: &InodeRef) -> Result<()> {
        if !inode.state.read().write_at_close {
            return Ok(());
        }
        inode.state.write().write_at_close = false;
        write_delayed(&self.0, inode)
    }
}
