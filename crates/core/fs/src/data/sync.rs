//! fsync, fdatasync, syncfs and the write-back in the background.
//!
//! ```text
//!   fsync(file):  write back its pages --> commit(sync_tid or datasync_tid) --> flush, unless the
//!                                                                        commit just did one
//! ```
//!
//! As `ext4_sync_file` does: even if nothing is dirty the device is flushed, since what was written
//! back earlier may still be in its cache. fdatasync waits for [`crate::incore::Dirty::Data`]
//! changes only: an overwrite is one data write and one flush. For a directory and other inodes
//! without data both commit whatever runs, and flush nothing else.
//!
//! Promises: after Ok everything the call covers survives a power cut. After a failed write, flush
//! or commit the volume is latched and no fsync returns Ok again.
//!
//! Locks: waits for `io` of one file at a time; neither `rwsem` nor a handle is held while waiting
//! for the device.
//!
//! Tested in `tests/it/file_io_sync.rs`, with exact request counts.

use std::sync::atomic::Ordering;

use syncline_device::Kind;
use syncline_ondisk::inode::{S_IFMT, S_IFREG};

use crate::data::Files;
use crate::data::durability::{WROTE, durability_bits, is_relaxed};
use crate::data::engine::ordered::commit_or_flush;
use crate::data::flush::file::{write_back, write_delayed};
use crate::data::flush::files::write_back_files;
use crate::data::moment::take_moment;
use crate::data::relaxed::flush_relaxed;
use crate::error::Result;
use crate::incore::Inode;
use crate::inode::Inodes;
use crate::inode::lazytime::write_lazy_times;
use crate::inode::reference::InodeRef;
use crate::pages::CacheStats;
use crate::store::Store;

/// [`crate::Volume::fsync`].
pub(crate) fn fsync(files: &Files, inode: &InodeRef, datasync: bool) -> Result<()> {
    fsync_file(files, inode, 0, u64::MAX, datasync)
}

/// [`crate::Volume::syncfs`].
pub(crate) fn syncfs(files: &Files) -> Result<()> {
    if files.engine.is_periodic() && files.relaxed.is_on() {
        return files.latch.check();
    }
    sync_all(files)
}

/// [`crate::Volume::writeback_range`].
pub(crate) fn writeback_range(
    files: &Files,
    inode: &InodeRef,
    offset: u64,
    len: u64,
) -> Result<usize> {
    let (from, to) = blocks_of(files, offset, len);
    write_back(files, inode, from, to, true)
}

/// [`crate::Volume::close`].
pub(crate) fn close_file(files: &Files, inode: &InodeRef) -> Result<()> {
    if !inode.state.read().write_at_close {
        return Ok(());
    }
    inode.state.write().write_at_close = false;
    write_delayed(files, inode)
}

/// Figures of the page cache.
pub(crate) fn cache_stats(inodes: &Inodes) -> CacheStats {
    inodes.pages.stats()
}

/// First block and block after the last one of a byte range.
fn blocks_of(store: &Store, offset: u64, len: u64) -> (u64, u64) {
    let block_size = store.block_size() as u64;
    (offset / block_size, offset.saturating_add(len).div_ceil(block_size))
}

/// [`crate::Volume::fsync`] of the bytes `offset..offset + len`, and of the whole inode.
fn fsync_range(files: &Files, inode: &Inode, offset: u64, len: u64, datasync: bool) -> Result<()> {
    files.latch.check()?;
    if files.journal().is_err() {
        return Ok(());
    }
    let regular = inode.state.read().raw.i_mode & S_IFMT == S_IFREG;
    let (from, to) = blocks_of(files, offset, len);
    files.engine.fsync(files, inode, if regular { from..to } else { 0..0 }, datasync)
}

/// Writes back every dirty file, oldest first.
fn write_back_all(files: &Files, sync: bool) -> Result<()> {
    write_back_files(files, sync, |_, _| true)
}

/// [`crate::Volume::sync`].
pub(crate) fn sync_all(files: &Files) -> Result<()> {
    files.latch.check()?;
    let Ok(journal) = files.journal() else { return Ok(()) };
    if files.engine.is_periodic() {
        write_lazy_times(files)?;
        take_moment(files)?;
        write_back_all(files, true)?;
        return Ok(journal.write_back()?);
    }
    write_back_all(files, true)?;
    write_lazy_times(files)?;
    commit_or_flush(files, journal.newest_tid(), Kind::Other)?;
    flush_relaxed(files)?;
    // `sync_blockdev`: what is committed goes to its place, without a flush.
    Ok(journal.write_back()?)
}

/// fsync of a part of a file: nothing, if the file is relaxed.
pub(crate) fn fsync_file(
    files: &Files,
    inode: &InodeRef,
    offset: u64,
    len: u64,
    datasync: bool,
) -> Result<()> {
    if files.engine.is_periodic() {
        return match files.relaxed.is_strict(inode) {
            true => fsync_range(files, inode, offset, len, datasync),
            false => files.latch.check(),
        };
    }
    let relaxed = files.relaxed.is_on() && inode.state.read().raw.is_file();
    if relaxed && is_relaxed(durability_bits(inode)) {
        return files.latch.check();
    }
    fsync_range(files, inode, offset, len, datasync)?;
    let wrote = {
        // No write of this file is under way.
        let _io = inode.io.lock();
        inode.durability.fetch_and(!WROTE, Ordering::AcqRel) & WROTE != 0
    };
    if wrote { flush_relaxed(files) } else { Ok(()) }
}

/// [`crate::Volume::set_relaxes`].
pub(crate) fn set_relaxes(files: &Files, on: bool) -> Result<()> {
    let was_off = files.relaxed.off.swap(!on, Ordering::AcqRel);
    if on || was_off { Ok(()) } else { syncfs(files) }
}

/// Returns the switch for relaxed files; false makes every file strict. It is on at every mount.
pub(crate) fn relaxes(files: &Files) -> bool {
    files.relaxed.is_on()
}
