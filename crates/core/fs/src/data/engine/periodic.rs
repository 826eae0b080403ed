//! Periodic sync: the whole volume becomes durable as it was at one moment (`../moment.rs`).
//!
//! ```text
//!   fsync        nothing; of a strict file: a moment, now
//!   write-back   new blocks: in place, before the transaction that points at them commits
//!                blocks that the last moment has: never in place; from 256 KiB on that follow each
//!                other to new blocks, whose old ones the same transaction frees, the others to the
//!                running transaction
//!                pages that a committed transaction holds: in place
//!   background   a moment every `commit=` seconds, or when a quarter of a transaction waits for
//!                one; then the steps of eager mode
//!   writer       waits for a moment when three quarters do
//! ```
//!
//! Promises
//! - The running transaction commits only as a moment, so nothing that happened after the last
//!   moment is ever recovered.
//! - No block that the last moment refers to is written with anything but its contents in that
//!   moment, or in a later one that is durable.
//!
//! Locks: a moment needs `io` of every file with changed pages, so whoever may take one holds
//! neither `io` nor a handle. Tested in `tests/it/periodic.rs`; the crash tests of
//! `syncline-model` have its power cuts.

use std::ops::Range;
use std::sync::atomic::Ordering;

use syncline_jbd2::{Checksums, JournalOptions, Member, WriteAction};

use crate::data::Files;
use crate::data::engine::Engine;
use crate::data::engine::eager::{Eager, journal_again};
use crate::data::flush::batch::OutPage;
use crate::data::flush::file::write_pass;
use crate::data::flush::plan::Target;
use crate::data::moment::{moment_due_ns, take_moment};
use crate::data::schedule::incremental::{
    incremental_is_due, incremental_tick, is_incremental_under_way,
};
use crate::data::schedule::timers::background_due_ns;
use crate::error::Result;
use crate::incore::Inode;
use crate::inode::lazytime::write_lazy_times_of;
use crate::options::LogFormat;
use crate::pages::{Pick, UNLOGGED};

/// Pages that go to the device while a file is locked for it: 4 MiB.
const STAGE_PAGES: usize = 1024;

/// `sync=periodic`.
pub(crate) struct Periodic;

impl Engine for Periodic {
    fn fsync(&self, files: &Files, inode: &Inode, _: Range<u64>, datasync: bool) -> Result<()> {
        if !datasync {
            write_lazy_times_of(files, inode)?;
        }
        take_moment(files)
    }

    fn is_periodic(&self) -> bool {
        true
    }

    fn logs_data(&self) -> bool {
        true
    }

    fn target(&self, files: &Files, inode: &Inode) -> Result<Target> {
        // Blocks whose extents became unwritten since the last moment hold data in it.
        let unwrote = files.journal()?.needs_commit(inode.state.read().unwrote_tid);
        Ok(if unwrote { Target::Home } else { Target::NewRuns })
    }

    fn stage(&self, files: &Files, inode: &Inode) -> Result<()> {
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
            tree.settle(&files.pages, &*files.clock);
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

    fn classify(&self, files: &Files, inode: &Inode, pages: &mut [OutPage]) -> Result<()> {
        let journal = files.journal()?;
        journal.begin_in_place(pages)?;
        let unwrote = journal.needs_commit(inode.state.read().unwrote_tid);
        for out in pages.iter_mut().filter(|out| out.action == WriteAction::Write) {
            let in_moment = out.plain || unwrote && !out.page.delalloc;
            if out.is_changed() && in_moment {
                out.action = WriteAction::Journal;
            }
        }
        journal_again(files, inode, pages)
    }

    fn sent(&self, files: &Files, pages: &[OutPage]) {
        Eager.sent(files, pages);
    }

    fn background(&self, files: &Files, now_ns: u64) -> Result<()> {
        let due = moment_due_ns(files).is_some_and(|due_ns| due_ns <= now_ns);
        let filled = files.moment_fills(1) && background_due_ns(files) <= now_ns;
        // Pages that were changed since the last moment cannot be written in place before the next.
        let full = files.pages.above_background() && files.pages.overwritten() > 0;
        if filled {
            files.schedule.last_background_ns.store(now_ns, Ordering::Relaxed);
        }
        if due || filled || full && !is_incremental_under_way(files) {
            take_moment(files)?;
        }
        incremental_tick(files, now_ns)
    }

    fn is_due_at_once(&self, files: &Files) -> bool {
        incremental_is_due(files)
    }

    fn deadline_ns(&self, files: &Files) -> Option<u64> {
        // Before a writer has to wait for log space (`Inodes::relieve_log`).
        let filled_ns = files.moment_fills(1).then(|| background_due_ns(files));
        [moment_due_ns(files), filled_ns].into_iter().flatten().min()
    }

    fn gap_pages_max(&self) -> usize {
        Eager.gap_pages_max()
    }

    fn sends_relaxed(&self) -> bool {
        false
    }

    fn journal_options(&self, log: LogFormat, kernels: Checksums) -> JournalOptions {
        JournalOptions { owner_commits: true, ..Eager.journal_options(log, kernels) }
    }
}
