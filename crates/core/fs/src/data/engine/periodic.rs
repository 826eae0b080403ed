//! Periodic sync: the whole volume becomes durable at sync points (`../sync_point.rs`).
//!
//! ```text
//!   fsync        of a strict file: a sync point, now; of other files: nothing
//!   write-back   new blocks: in place, before the transaction that points at them commits
//!                blocks of the last sync point: never in place. Runs of 256 KiB and more go to new
//!                blocks, and the same transaction frees the old ones; shorter runs go to the
//!                running transaction
//!                pages that a committed transaction holds: in place
//!   background   a sync point every `commit=` seconds, or when the next one fills a quarter of a
//!                transaction; then the steps of eager mode
//!   writer       waits for a sync point when the next one fills three quarters
//! ```
//!
//! Promises
//! - The running transaction commits only as a sync point, so recovery never shows a change that
//!   was made after the last one.
//! - No block of the last sync point is overwritten in place, except with the contents that it has
//!   in that sync point or in a later one that is durable.
//!
//! Locks: a sync point locks `io` of every file with changed pages, so its caller holds neither
//! `io` nor a handle. Tested in `tests/it/periodic.rs`; the crash tests of `syncline-model` cut its
//! power.

use std::ops::Range;
use std::sync::atomic::Ordering;

use syncline_jbd2::{Checksums, JournalOptions, Member, WriteAction};

use crate::data::Files;
use crate::data::engine::Engine;
use crate::data::engine::eager::{Eager, journal_again};
use crate::data::flush::batch::{Job, OutPage};
use crate::data::flush::file::{write_back_at_most, write_pass};
use crate::data::flush::files::write_back_files;
use crate::data::flush::plan::Target;
use crate::data::schedule::incremental::{
    incremental_is_due, incremental_tick, is_incremental_under_way,
};
use crate::data::schedule::state::SyncPointStats;
use crate::data::schedule::timers::background_due_ns;
use crate::data::sync_point::{make_sync_point, sync_point_due_ns, sync_point_stats};
use crate::error::Result;
use crate::incore::Inode;
use crate::inode::lazytime::{write_lazy_times, write_lazy_times_of};
use crate::inode::reference::InodeRef;
use crate::options::LogFormat;
use crate::pages::{Pick, UNLOGGED};

/// Pages that go to the device while a file is locked for it: 4 MiB.
const STAGE_PAGES: usize = 1024;

/// Bytes of a write that no sync point tears, where the log is large enough: as many as Linux gives
/// a FUSE mount at once.
const WHOLE_WRITE_BYTES: u64 = 1 << 20;

/// `sync=periodic`.
pub(crate) struct Periodic;

impl Engine for Periodic {
    fn fsync(&self, files: &Files, inode: &Inode, _: Range<u64>, datasync: bool) -> Result<()> {
        if !datasync {
            write_lazy_times_of(files, inode)?;
        }
        make_sync_point(files)
    }

    fn can_order(&self) -> bool {
        true
    }

    fn order(&self, files: &Files, _: &Inode, _: Range<u64>) -> Result<()> {
        // A sync point has everything before it.
        files.latch.check()
    }

    fn defers_fsync(&self, files: &Files, inode: &InodeRef) -> bool {
        !files.relaxed.is_strict(inode)
    }

    fn defers_syncfs(&self, files: &Files) -> bool {
        files.relaxed.is_on()
    }

    fn sync_all(&self, files: &Files) -> Result<()> {
        write_lazy_times(files)?;
        make_sync_point(files)?;
        write_back_files(files, true, |_, _| true)
    }

    fn sync_point_stats(&self, files: &Files) -> Option<SyncPointStats> {
        Some(sync_point_stats(files))
    }

    fn owner_commits(&self) -> bool {
        true
    }

    fn whole_write_bytes(&self, files: &Files) -> Result<Option<u64>> {
        // A quarter of the running transaction's limit, so that a write soon finds it free.
        let blocks = u64::from(files.journal()?.running_blocks_max() / 4).max(1);
        Ok(Some(WHOLE_WRITE_BYTES.min(blocks * files.block_size() as u64)))
    }

    fn throttle(&self, files: &Files, inode: &Inode, pages: usize) -> Result<()> {
        if !files.pages.above_throttle() {
            return Ok(());
        }
        // Blocks of the last sync point are not overwritten before the next.
        let taken = make_sync_point(files);
        write_back_at_most(files, inode, (0, u64::MAX), pages, false)?;
        taken
    }

    fn logs_data(&self) -> bool {
        true
    }

    fn target(&self, files: &Files, inode: &Inode) -> Result<Target> {
        // Blocks whose extents became unwritten since the last sync point hold data in it, and so
        // do those that left the file without their cluster.
        let unwrote = files.journal()?.needs_commit(inode.state.read().unwrote_tid);
        Ok(if unwrote { Target::Home } else { Target::NewRuns })
    }

    fn prepare_sync(&self, files: &Files, inode: &Inode) -> Result<()> {
        let mut pick = Pick { max: STAGE_PAGES, ..UNLOGGED };
        while inode.pages.lock().unlogged() > 0 {
            let _io = inode.io.lock();
            match write_pass(files, inode, &pick, true)? {
                Some((next, _)) => pick.from = next,
                None => break,
            }
        }
        let mut tree = inode.pages.lock();
        if !tree.has_dirty() {
            tree.end_pass(&files.pages, &*files.clock);
        }
        Ok(())
    }

    fn log_together(
        &self,
        files: &Files,
        inode: &Inode,
        size: u64,
        pages: &mut [OutPage],
    ) -> Result<Vec<Member>> {
        Eager.log_together(files, inode, size, pages)
    }

    fn make_durable(&self, _files: &Files, _members: &[Member]) -> Result<()> {
        Ok(())
    }

    fn finish_atomic(&self, files: &Files, inode: &InodeRef) -> Result<()> {
        if files.relaxed.is_strict(inode) { make_sync_point(files) } else { Ok(()) }
    }

    fn classify(&self, files: &Files, job: &mut Job<'_>) -> Result<()> {
        let journal = files.journal()?;
        journal.begin_in_place(&mut job.pages, false)?;
        let unwrote = journal.needs_commit(job.inode.state.read().unwrote_tid);
        for out in job.pages.iter_mut().filter(|out| out.action == WriteAction::Write) {
            let in_sync_point = out.plain || unwrote && out.owned;
            if out.is_changed() && in_sync_point {
                out.action = WriteAction::Journal;
            }
        }
        journal_again(files, job.inode, &job.pages)
    }

    fn on_data_written(&self, files: &Files, job: &Job<'_>) -> Result<()> {
        Eager.on_data_written(files, job)
    }

    fn background(&self, files: &Files, now_ns: u64) -> Result<()> {
        let due = sync_point_due_ns(files).is_some_and(|due_ns| due_ns <= now_ns);
        let filled = files.sync_point_fills(1) && background_due_ns(files) <= now_ns;
        // Pages that were changed since the last sync point cannot be written in place before the
        // next.
        let full = files.pages.above_background() && files.pages.overwritten() > 0;
        if filled {
            files.schedule.last_background_ns.store(now_ns, Ordering::Relaxed);
        }
        if due || filled || full && !is_incremental_under_way(files) {
            make_sync_point(files)?;
        }
        incremental_tick(files, now_ns)
    }

    fn is_due_at_once(&self, files: &Files) -> bool {
        incremental_is_due(files)
    }

    fn deadline_ns(&self, files: &Files) -> Option<u64> {
        // Before a writer has to wait for log space (`Inodes::relieve_log`).
        let filled_ns = files.sync_point_fills(1).then(|| background_due_ns(files));
        [sync_point_due_ns(files), filled_ns].into_iter().flatten().min()
    }

    fn gap_pages_max(&self) -> usize {
        Eager.gap_pages_max()
    }

    fn sends_relaxed(&self) -> bool {
        false
    }

    fn journal_options(&self, log: LogFormat, kernels: Checksums) -> JournalOptions {
        JournalOptions {
            owner_commits: self.owner_commits(),
            ..Eager.journal_options(log, kernels)
        }
    }
}
