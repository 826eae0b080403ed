//! fsync, fdatasync, syncfs and the write-back in the background.
//!
//! ```text
//!   fsync(file):  write back its pages --> commit(sync_tid or datasync_tid) --> flush, unless the
//!                                                                        commit just did one
//! ```
//!
//! As `ext4_sync_file` does: even if nothing is dirty the device is flushed, since what was written
//! back earlier may still be in its cache. fdatasync waits for [`crate::inode::Dirty::Data`]
//! changes only: an overwrite is one data write and one flush. For a directory and other inodes
//! without data both commit whatever runs, and flush nothing else.
//!
//! Promises: after Ok everything the call covers survives a power cut. After a failed write, flush
//! or commit the volume is latched and no fsync returns Ok again.
//!
//! Locks: waits for `io` of one file at a time; neither `rwsem` nor a handle is held while waiting
//! for the device.
//!
//! Tested in `tests/file_io_sync.rs`, with exact request counts.

use crate::error::{FsError, Result};
use crate::inode::{Dirty, Inode, InodeRef};
use crate::options::SyncMode;
use crate::pagecache::CacheStats;
use crate::volume::{Inner, Volume};
use std::sync::atomic::Ordering;
use syncline_device::{Kind, Origin};
use syncline_jbd2::Tid;
use syncline_ondisk::inode::{S_IFMT, S_IFREG};

/// Nanoseconds in a hundredth of a second.
const NS_PER_CENTISECOND: u64 = 10_000_000;

/// Least time between the starts of two write-backs because of `dirty_background_ratio`: where
/// nothing can be written, for lack of space, nobody spins.
const BACKGROUND_PAUSE_NS: u64 = 50_000_000;

/// Age at which timestamps that lazytime kept in memory are written (`dirtytime_expire_seconds`).
const LAZY_EXPIRE_NS: u64 = 12 * 60 * 60 * 1_000_000_000;

impl Volume {
    /// Makes the file durable: its data, and with `datasync` false its inode whatever changed;
    /// with `datasync` true only what is needed to read the data back. For directories and other
    /// inodes: their metadata.
    ///
    /// # Errors
    /// I/O errors, [`FsError::Latched`] for ever after one, [`FsError::NoSpace`] if index blocks
    /// for delayed data cannot be had.
    pub fn fsync(&self, inode: &InodeRef, datasync: bool) -> Result<()> {
        self.0.fsync_file(inode, 0, u64::MAX, datasync)
    }

    /// Makes everything on the volume durable.
    ///
    /// # Errors
    /// As [`Volume::fsync`].
    pub fn syncfs(&self) -> Result<()> {
        self.0.sync_all()
    }

    /// Writes dirty data of a byte range to the device, without making it durable
    /// (`sync_file_range` with WRITE and WAIT_AFTER). Returns the pages sent.
    ///
    /// # Errors
    /// As [`Volume::fsync`].
    pub fn writeback_range(&self, inode: &InodeRef, offset: u64, len: u64) -> Result<usize> {
        let (from, to) = self.0.blocks_of(offset, len);
        self.0.write_back(inode, from, to, true)
    }

    /// An open file is closed. If the file was cut to nothing and written again, its data is sent
    /// on its way, so that a crash after the next commit does not leave it empty
    /// (`auto_da_alloc`, as `ext4_release_file`).
    ///
    /// # Errors
    /// As [`Volume::writeback_range`].
    pub fn close(&self, inode: &InodeRef) -> Result<()> {
        if !inode.state.read().write_at_close {
            return Ok(());
        }
        inode.state.write().write_at_close = false;
        self.0.write_delayed(inode)
    }

    /// What Linux does in the background: commits the running transaction at its age, writes back
    /// what has been dirty too long or is too much. To be called at [`Volume::next_deadline_ns`] or
    /// at any time; with a wall clock by a maintenance thread, with a virtual one by the
    /// simulation.
    ///
    /// # Errors
    /// As [`Volume::fsync`].
    pub fn tick(&self, now_ns: u64) -> Result<()> {
        let Ok(journal) = self.0.journal() else { return Ok(()) };
        self.0.latch.check()?;
        journal.tick(now_ns)?;
        match self.0.options.sync {
            SyncMode::Eager => self.0.sweep_tick(now_ns),
            SyncMode::Ordered => self.0.background_writeback(now_ns),
        }
    }

    /// When [`Volume::tick`] has something to do next, in nanoseconds of the volume's clock. What
    /// is due at once was due at 0: a caller that has read the clock before finds it past.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let journal = self.0.journal().ok()?;
        if self.0.sweep_is_due() {
            return Some(0);
        }
        let deadlines = [journal.next_deadline_ns(), self.0.writeback_deadline_ns()];
        deadlines.into_iter().flatten().min()
    }

    /// Whether dirty pages are above `dirty_background_ratio`: with a wall clock the maintenance
    /// thread is to look at [`Volume::next_deadline_ns`] now.
    pub fn wants_writeback(&self) -> bool {
        self.0.pages.above_background()
    }

    /// Whether so much is dirty that writers will soon have to write back themselves: half way from
    /// `dirty_background_ratio` to `dirty_ratio`.
    pub fn is_near_throttle(&self) -> bool {
        self.0.pages.above_free_run()
    }

    /// Ends the pause between two write-backs for `dirty_background_ratio`: [`Volume::tick`] is due
    /// at once if there is something to do for it. For a maintenance thread, which writes beside
    /// the writers; a simulation has one thread, and writes as much whoever does it.
    pub fn hurry_writeback(&self) {
        self.0.pages.last_background_ns.store(0, Ordering::Relaxed);
    }

    /// Figures of the page cache.
    pub fn cache_stats(&self) -> CacheStats {
        self.0.pages.stats()
    }
}

impl Inner {
    /// First block and block after the last one of a byte range.
    fn blocks_of(&self, offset: u64, len: u64) -> (u64, u64) {
        let block_size = self.block_size() as u64;
        (offset / block_size, offset.saturating_add(len).div_ceil(block_size))
    }

    /// [`Volume::fsync`] of the bytes `offset..offset + len`, and of the whole inode.
    pub(crate) fn fsync_range(
        &self,
        inode: &Inode,
        offset: u64,
        len: u64,
        datasync: bool,
    ) -> Result<()> {
        self.latch.check()?;
        if self.journal().is_err() {
            return Ok(());
        }
        let regular = inode.state.read().raw.i_mode & S_IFMT == S_IFREG;
        let (from, to) = self.blocks_of(offset, len);
        if self.options.sync == SyncMode::Eager {
            return self.fsync_eager(inode, if regular { from..to } else { 0..0 }, datasync);
        }
        if regular {
            self.write_back(inode, from, to, true)?;
        }
        if !datasync || !regular {
            self.write_lazy_times_of(inode)?;
        }
        if !regular {
            // `ext4_force_commit`: whatever runs is committed, with datasync as well. A directory
            // has no data outside of the journal, so without a commit there is nothing to flush.
            self.journal()?.commit(self.journal()?.newest_tid())?;
            return self.latch.check();
        }
        let tid = {
            let st = inode.state.read();
            if datasync { st.datasync_tid } else { st.sync_tid }
        };
        self.commit_or_flush(tid, Kind::Data { inode: u64::from(inode.ino) })
    }

    /// Waits until `tid` is on disk and everything written before this call is durable.
    fn commit_or_flush(&self, tid: Tid, kind: Kind) -> Result<()> {
        let journal = self.journal()?;
        if !journal.commit(tid)?.flushed {
            self.flush_device(kind)?;
        }
        // An abort between the two means that something acknowledged by the device was lost.
        self.latch.check()
    }

    fn flush_device(&self, kind: Kind) -> Result<()> {
        if !self.dev.geometry().volatile_cache {
            return Ok(());
        }
        self.dev.flush(Origin::new(kind, true)).map_err(|err| self.fail(FsError::Io(err)))
    }

    /// Writes timestamps that lazytime kept in memory.
    pub(crate) fn write_lazy_times_of(&self, inode: &Inode) -> Result<()> {
        if !inode.state.read().times_dirty {
            return Ok(());
        }
        let mut h = self.start(1)?;
        let mut st = inode.state.write();
        self.write_inode(&mut h, inode, &mut st, Dirty::Times)
    }

    /// Writes back every dirty file, oldest first.
    pub(crate) fn write_back_all(&self, sync: bool) -> Result<()> {
        self.write_back_files(sync, |_, _| true)
    }

    /// [`Volume::syncfs`].
    pub(crate) fn sync_all(&self) -> Result<()> {
        self.latch.check()?;
        let Ok(journal) = self.journal() else { return Ok(()) };
        self.write_back_all(true)?;
        self.write_lazy_times()?;
        self.commit_or_flush(journal.newest_tid(), Kind::Other)?;
        self.flush_relaxed()?;
        // `sync_blockdev`: what is committed goes to its place, without a flush.
        Ok(journal.write_back()?)
    }

    /// Write-back in the background, to be called at [`Inner::writeback_deadline_ns`] or whenever:
    /// every `dirty_writeback_centisecs` it writes the files that have been dirty for
    /// `dirty_expire_centisecs`, and at once above `dirty_background_ratio` the oldest whatever
    /// their age.
    pub(crate) fn background_writeback(&self, now_ns: u64) -> Result<()> {
        if !self.writeback_due(now_ns)? {
            return Ok(());
        }
        let expire_ns = self.expire_ns();
        let expired = |dirtied_ns: u64| dirtied_ns.saturating_add(expire_ns) <= now_ns;
        if self.pages.cleaner.is_some() {
            self.write_back_files(false, |dirtied_ns, _| expired(dirtied_ns))?;
            self.write_victims_down()?;
        }
        self.write_back_files(false, |dirtied_ns, sent| {
            expired(dirtied_ns) || self.pages.above_background_by(sent)
        })
    }

    /// Whether files may have to be written: the timer has run out, or too much is dirty
    /// (`wb_over_bg_thresh`).
    pub(crate) fn writeback_due(&self, now_ns: u64) -> Result<bool> {
        let timer = self.periodic_due(now_ns)?;
        let background = self.pages.above_background() && now_ns >= self.background_due_ns();
        if background {
            self.pages.last_background_ns.store(now_ns, Ordering::Relaxed);
        }
        Ok(timer || background)
    }

    fn background_due_ns(&self) -> u64 {
        match self.pages.last_background_ns.load(Ordering::Relaxed) {
            0 => 0,
            last_ns => last_ns.saturating_add(BACKGROUND_PAUSE_NS),
        }
    }

    /// Whether the timer of the periodic write-back has run out; then it starts again, and
    /// timestamps that lazytime kept long enough are written.
    fn periodic_due(&self, now_ns: u64) -> Result<bool> {
        if self.journal().is_err() || now_ns < self.writeback_due_ns() {
            return Ok(false);
        }
        self.pages.last_writeback_ns.store(now_ns, Ordering::Relaxed);
        let lazy_since_ns = self.pages.lazy_since_ns.load(Ordering::Relaxed);
        if lazy_since_ns == 0 || now_ns >= lazy_since_ns.saturating_add(LAZY_EXPIRE_NS) {
            self.pages.lazy_since_ns.store(now_ns, Ordering::Relaxed);
            if lazy_since_ns != 0 {
                self.write_lazy_times()?;
            }
        }
        Ok(true)
    }

    /// Age at which dirty data is written.
    pub(crate) fn expire_ns(&self) -> u64 {
        u64::from(self.live.lock().dirty_expire_centisecs) * NS_PER_CENTISECOND
    }

    fn writeback_due_ns(&self) -> u64 {
        let interval = u64::from(self.options.dirty_writeback_centisecs) * NS_PER_CENTISECOND;
        self.pages.last_writeback_ns.load(Ordering::Relaxed).saturating_add(interval)
    }

    /// When [`Inner::background_writeback`] has something to do next; `None` while nothing is
    /// dirty.
    pub(crate) fn writeback_deadline_ns(&self) -> Option<u64> {
        self.pages.next_dirty_file(None).map(|(dirtied_ns, _)| {
            let interval = u64::from(self.options.dirty_writeback_centisecs) * NS_PER_CENTISECOND;
            // The timer starts with the first dirty page (`wb_wakeup_delayed`).
            let timer_ns = self.writeback_due_ns().max(dirtied_ns.saturating_add(interval));
            if self.pages.above_background() {
                timer_ns.min(self.background_due_ns())
            } else {
                timer_ns
            }
        })
    }
}
