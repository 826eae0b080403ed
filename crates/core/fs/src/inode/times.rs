//! The times of a change: which mtime and ctime a write, a truncation or a new name gives, and
//! which of them fsync must keep.
//!
//! ```text
//!   mtime_update=seen   programs see    the slot in the inode table has, for fsync
//!   0 ms     write      0               0
//!   8 ms     write      8               0     nobody saw 0, so it may stand for both
//!            stat       8, `shown`
//!   12 ms    write      12              12    8 was seen, so fsync keeps 12
//!   112 ms   write      112             112   a step of 100 ms has ended
//! ```
//!
//! Promises of `mtime_update=seen`
//! - Programs see the times that ext4 gives since Linux 6.13: those of the tick, and a finer one if
//!   a program has seen that of the tick. A finer time is a floor for the times of all files until
//!   the next tick, so the times of two files have the order of their changes.
//! - After a crash, no file whose change was synced has a time that a program saw with the contents
//!   before that change. A time that is less than 100 ms too old was seen by nobody.
//! - Twice `commit=` after a change, and after `syncline ctl sync` and unmount, the slot on the
//!   device has the newest time.
//!
//! A look is [`crate::Volume::getattr`], which every reply with attributes is made of: stat and
//! readdirplus of a mount, the attributes before and after an operation of NFS, stat of the
//! libraries. The kernel of a mount shows no other times than those of replies, and shows them
//! until the next write to the file (statx with `AT_STATX_DONT_SYNC`: longer). So each time that it
//! shows was looked at, and the change after it has another one. Where the kernel stamps files
//! itself (`writeback_cache`), by its tick, it sends each time by setattr before a sync. Setattr
//! counts as a look, because its caller knows the time. So does [`crate::Volume::sync`], because a
//! copy of the device may follow, and the slot from which an inode is read, because an earlier
//! mount may have shown it.
//!
//! Assumptions: nobody compares copies of the device that were made while files were written. The
//! volume does not hear of such a look, and a copy may have the time of an earlier copy if the
//! change between them is less than 100 ms younger than that time, and the later copy less than
//! twice `commit=` younger or of a crash. The order of two files' times after a crash is that of
//! their changes only if a program looked, or if 100 ms lay between them. fdatasync keeps no times,
//! as in ext4.
//!
//! No steps, only the finer times: with `sync=periodic`, where fsync writes no times of its own,
//! and for inodes without nanoseconds. No finer times: with an interval, and without the option.
//!
//! Tested in `tests/it/seen.rs`: against a reference that stamps every write, with crashes.

use std::sync::atomic::Ordering;

use crate::incore::{Inode, InodeState};
use crate::inode::Inodes;
use crate::options::{MtimeUpdate, SyncMode};
use crate::store::Store;
use crate::time::{self, Timestamp};

/// Longest time between the changes of a slot's times by changes that nobody watches (coarse-mtime
/// paper, section 5).
const STEP_NS: u32 = 100_000_000;

/// Times of a change of contents or names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// Those that the inode has.
    Same,
    /// Both so many nanoseconds after the ctime of the slot, in memory.
    Memory(u32),
    /// mtime and ctime, for the slot.
    Slot(Timestamp, Timestamp),
}

impl InodeState {
    /// mtime and ctime as programs see them.
    pub(crate) fn times(&self) -> (Timestamp, Timestamp) {
        if self.newer_by_ns == 0 {
            return (self.raw.i_mtime, self.raw.i_ctime);
        }
        let newer = time::later(self.raw.i_ctime, self.newer_by_ns);
        (newer, newer)
    }

    /// Takes the newest times into `raw`, for the slot.
    pub(crate) fn take_newer(&mut self) {
        (self.raw.i_mtime, self.raw.i_ctime) = self.times();
        self.newer_by_ns = 0;
    }

    /// A change of contents or names moved both times, and nobody has seen them yet.
    pub(crate) fn set_times(&mut self, inode: &Inode, mtime: Timestamp, ctime: Timestamp) {
        (self.raw.i_mtime, self.raw.i_ctime, self.newer_by_ns) = (mtime, ctime, 0);
        inode.shown.store(false, Ordering::Relaxed);
    }
}

/// Returns the times of a change of contents or names. The caller holds `state`.
pub(crate) fn stamp(store: &Store, inode: &Inode, st: &InodeState) -> Stamp {
    let (mtime, ctime) = st.times();
    let now = now_after(store, inode, ctime);
    let (new_mtime, new_ctime) = match store.options.mtime_update {
        MtimeUpdate::Interval(ms) => {
            let ms = ms.max(store.options.timer_tick_ms);
            (time::coarse_update(mtime, now, ms), time::coarse_update(ctime, now, ms))
        }
        MtimeUpdate::Tick | MtimeUpdate::Seen => (now, now),
    };
    if (new_mtime, new_ctime) == (mtime, ctime) {
        return Stamp::Same;
    }
    let may_step = store.options.mtime_update == MtimeUpdate::Seen
        && store.options.sync != SyncMode::Periodic
        && st.raw.has_fine_times()
        && !inode.shown.load(Ordering::Relaxed);
    // A rename moves ctime alone.
    let within = |time| time::ns_between(time, now).filter(|ns| (1..STEP_NS).contains(ns));
    match within(st.raw.i_mtime).and(within(st.raw.i_ctime)) {
        Some(ns) if may_step => Stamp::Memory(ns),
        _ => Stamp::Slot(new_mtime, new_ctime),
    }
}

/// Keeps a time in memory, for the next [`crate::inode::lazytime::write_newer_times`].
pub(crate) fn keep_newer(inodes: &Inodes, inode: &Inode, st: &mut InodeState, ns: u32) {
    st.newer_by_ns = ns;
    inode.shown.store(false, Ordering::Relaxed);
    let _ = inodes.newer_since_ns.compare_exchange(
        0,
        inodes.clock.now_ns(),
        Ordering::Relaxed,
        Ordering::Relaxed,
    );
}

/// Returns the time of any other change of an inode, whose newest times go to the slot with it.
pub(crate) fn change_time(store: &Store, inode: &Inode, st: &mut InodeState) -> Timestamp {
    st.take_newer();
    now_after(store, inode, st.raw.i_ctime)
}

/// The tick, or the time between two ticks if a program may have seen that of the tick
/// (`inode_set_ctime_current`).
fn now_after(store: &Store, inode: &Inode, ctime: Timestamp) -> Timestamp {
    let now = store.now();
    let shown = || inode.shown.load(Ordering::Relaxed);
    if store.options.mtime_update != MtimeUpdate::Seen || now > ctime || !shown() {
        return now;
    }
    let (fine, ns) = time::fine(&*store.clock);
    store.fine_ns.fetch_max(ns, Ordering::Relaxed);
    fine.fitted(store.has_long_times())
}
