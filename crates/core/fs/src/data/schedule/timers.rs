//! Timers of write-back in the background, by Linux's rules (`mm/page-writeback.c`,
//! `fs/fs-writeback.c`): data is written at its age, or at once above the background limit.
//!
//! Times are nanoseconds of the volume's clock. Nothing here waits: the caller ticks.

use std::sync::atomic::Ordering;

use crate::data::Files;
use crate::data::flush::files::write_back_files;
use crate::data::schedule::victims::write_victims_down;
use crate::error::Result;
use crate::inode::lazytime::{newer_times_due_ns, write_lazy_times, write_newer_times};

/// Nanoseconds in a hundredth of a second.
pub(crate) const NS_PER_CENTISECOND: u64 = 10_000_000;
/// Least time between the starts of two write-backs because of `dirty_background_ratio`: without
/// space for any write, no thread spins.
const BACKGROUND_PAUSE_NS: u64 = 50_000_000;
/// Age at which timestamps that lazytime kept in memory are written (`dirtytime_expire_seconds`).
const LAZY_EXPIRE_NS: u64 = 12 * 60 * 60 * 1_000_000_000;

impl crate::Volume {
    /// Does the background work of Linux: commits the running transaction at its age, and writes
    /// back data that has been dirty too long or is too much. Call it at
    /// [`Self::next_deadline_ns`] or at any time: with a wall clock from a maintenance thread,
    /// with a virtual one from the simulation.
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn tick(&self, now_ns: u64) -> Result<()> {
        let files: &Files = &self.0;
        let Ok(journal) = files.journal() else { return Ok(()) };
        files.latch.check()?;
        write_newer_times(files, now_ns)?;
        journal.tick(now_ns)?;
        files.engine.background(files, now_ns)
    }

    /// Returns the time at which [`Self::tick`] has something to do next, in nanoseconds of the
    /// volume's clock; 0 if it is due now.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let files: &Files = &self.0;
        let journal = files.journal().ok()?;
        if files.engine.is_due_at_once(files) {
            return Some(0);
        }
        let engine_ns = files.engine.deadline_ns(files);
        let times_ns = newer_times_due_ns(files);
        let deadlines =
            [journal.next_deadline_ns(), writeback_deadline_ns(files), engine_ns, times_ns];
        deadlines.into_iter().flatten().min()
    }

    /// Returns true if dirty pages are above `dirty_background_ratio`, or with `sync=periodic` the
    /// next sync point fills a quarter of a transaction: with a wall clock the maintenance thread
    /// should check [`Self::next_deadline_ns`] now.
    pub fn wants_writeback(&self) -> bool {
        self.0.pages.above_background() || self.0.sync_point_fills(1)
    }

    /// Returns true if writers will soon have to write back themselves: half way from
    /// `dirty_background_ratio` to `dirty_ratio`, or with `sync=periodic` half of a transaction.
    pub fn is_near_throttle(&self) -> bool {
        self.0.pages.above_free_run() || self.0.sync_point_fills(2)
    }

    /// Ends the pause between two write-backs for `dirty_background_ratio`: [`Self::tick`] is due
    /// at once if there is something to do for it. For a maintenance thread, which writes
    /// concurrently with the writers; in a simulation with one thread it makes no difference.
    pub fn hurry_writeback(&self) {
        self.0.schedule.last_background_ns.store(0, Ordering::Relaxed);
    }
}
/// Write-back in the background, to be called at [`writeback_deadline_ns`] or whenever:
/// every `dirty_writeback_centisecs` it writes the files that have been dirty for
/// `dirty_expire_centisecs`, and at once above `dirty_background_ratio` the oldest whatever
/// their age.
pub(crate) fn background_writeback(files: &Files, now_ns: u64) -> Result<()> {
    if !writeback_due(files, now_ns)? {
        return Ok(());
    }
    let expire_ns = expire_ns(files);
    let expired = |dirtied_ns: u64| dirtied_ns.saturating_add(expire_ns) <= now_ns;
    if files.pages.cleaner.is_some() {
        write_back_files(files, false, |dirtied_ns, _| expired(dirtied_ns))?;
        write_victims_down(files)?;
    }
    write_back_files(files, false, |dirtied_ns, sent| {
        expired(dirtied_ns) || files.pages.above_background_by(sent)
    })
}

/// True if write-back has to start: the timer has expired, or too much is dirty
/// (`wb_over_bg_thresh`).
pub(crate) fn writeback_due(files: &Files, now_ns: u64) -> Result<bool> {
    let timer = periodic_due(files, now_ns)?;
    let background = files.pages.above_background() && now_ns >= background_due_ns(files);
    if background {
        files.schedule.last_background_ns.store(now_ns, Ordering::Relaxed);
    }
    Ok(timer || background)
}

/// When write-back may begin again because of too much, in nanoseconds of the clock.
pub(crate) fn background_due_ns(files: &Files) -> u64 {
    match files.schedule.last_background_ns.load(Ordering::Relaxed) {
        0 => 0,
        last_ns => last_ns.saturating_add(BACKGROUND_PAUSE_NS),
    }
}

/// Returns true if the timer of the periodic write-back has expired, and restarts it. Timestamps
/// that lazytime kept long enough are written then.
fn periodic_due(files: &Files, now_ns: u64) -> Result<bool> {
    if files.journal().is_err() || now_ns < writeback_due_ns(files) {
        return Ok(false);
    }
    files.schedule.last_writeback_ns.store(now_ns, Ordering::Relaxed);
    let lazy_since_ns = files.schedule.lazy_since_ns.load(Ordering::Relaxed);
    if lazy_since_ns == 0 || now_ns >= lazy_since_ns.saturating_add(LAZY_EXPIRE_NS) {
        files.schedule.lazy_since_ns.store(now_ns, Ordering::Relaxed);
        if lazy_since_ns != 0 {
            write_lazy_times(files)?;
        }
    }
    Ok(true)
}

/// Age at which dirty data is written.
pub(crate) fn expire_ns(files: &Files) -> u64 {
    u64::from(files.schedule.live.lock().dirty_expire_centisecs) * NS_PER_CENTISECOND
}

fn writeback_due_ns(files: &Files) -> u64 {
    let interval = u64::from(files.options.dirty_writeback_centisecs) * NS_PER_CENTISECOND;
    files.schedule.last_writeback_ns.load(Ordering::Relaxed).saturating_add(interval)
}

/// When [`background_writeback`] has something to do next; `None` while nothing is
/// dirty.
fn writeback_deadline_ns(files: &Files) -> Option<u64> {
    files.pages.next_dirty_file(None).map(|(dirtied_ns, _)| {
        let interval = u64::from(files.options.dirty_writeback_centisecs) * NS_PER_CENTISECOND;
        // The timer starts with the first dirty page (`wb_wakeup_delayed`).
        let timer_ns = writeback_due_ns(files).max(dirtied_ns.saturating_add(interval));
        if files.pages.above_background() {
            timer_ns.min(background_due_ns(files))
        } else {
            timer_ns
        }
    })
}
