//! Moments (`sync=periodic`): the volume as it was at one point in time becomes durable, all of it
//! in one transaction.
//!
//! ```text
//!   ahead   nobody waits: new blocks written in place, overwritten ones given to the running
//!           transaction, log space made
//!   hold    writes stand still: what was changed since goes to the running transaction
//!   seal    that transaction is frozen by reference; writes go on, in the next one
//!   write   one record, one flush; before it a flush if data was written in place
//! ```
//!
//! Promises
//! - A moment has every change that returned before it was held, and none that began after: every
//!   change of pages or sizes holds [`crate::pages::PageCache::change`], every change of metadata a
//!   handle, and both are either before or after it.
//! - After any cut the volume is as it was at the last durable moment; recovery finishes orphans as
//!   after any crash.
//! - Writes stand still for as long as it takes to look at the pages that were changed during the
//!   stage before, without a request to the device unless a file grew by more than
//!   [`AHEAD_PAGES`] meanwhile.
//! - A moment that fails changes nothing durable; the next one has all of it again.
//! - Whoever asks while one is being taken shares the next.
//!
//! A large write, truncation or fallocate is several changes: a moment may lie between them, as a
//! kill of the program might. Tested in `tests/it/periodic.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::data::Files;
use crate::data::engine::eager::stage_pages;
use crate::data::flush::batch::collect_job;
use crate::data::flush::pass::write_jobs;
use crate::data::schedule::state::MomentStats;
use crate::error::Result;
use crate::incore::Inode;
use crate::inode::iget::cached_inode;
use crate::pages::{GROUP_PAGES, UNLOGGED};

/// Changed pages up to which nothing is done ahead, and up to which new blocks go to the log as
/// well: a moment is one write and one flush then.
const AHEAD_PAGES: usize = 64;
/// Rounds of work ahead, while writers are about as fast as the device.
const AHEAD_ROUNDS: usize = 3;

/// Makes everything that returned before this call durable, as of one moment.
///
/// # Errors
/// As write-back and commit. For lack of space nothing became durable.
pub(crate) fn take_moment(files: &Files) -> Result<()> {
    files.latch.check()?;
    let asked = files.schedule.moments_held.load(Ordering::Acquire);
    let _turn = files.schedule.moment.lock();
    if files.schedule.moments_done.load(Ordering::Acquire) > asked {
        // Another caller's, which began after this call.
        return files.latch.check();
    }
    stage_ahead(files)?;
    let began_ns = files.clock.now_ns();
    let hold = files.pages.hold_changes();
    let number = files.schedule.moments_held.fetch_add(1, Ordering::AcqRel) + 1;
    let at_ns = files.clock.now_ns();
    let changed = changed_files(files);
    let io: Vec<_> = changed.iter().map(|inode| inode.io.lock()).collect();
    let journal = files.journal()?;
    journal.set_sealing(true);
    let few = unlogged_pages(&changed) <= AHEAD_PAGES;
    let staged = changed.iter().try_for_each(|inode| stage_pages(files, inode, few));
    if let Err(err) = staged {
        journal.set_sealing(false);
        files.latch.check()?;
        return Err(err);
    }
    files.pages.forget_unlogged_since();
    let mut held_ns = 0;
    let written = journal.commit_sealed(|| {
        journal.set_sealing(false);
        held_ns = files.clock.now_ns().saturating_sub(began_ns);
        drop(io);
        drop(hold);
    });
    journal.set_sealing(false);
    let written = written?;
    let mut stats = files.schedule.moment_stats.lock();
    stats.count += u64::from(written);
    stats.last_ns = at_ns;
    stats.hold_ns_max = stats.hold_ns_max.max(held_ns);
    drop(stats);
    files.schedule.moments_done.fetch_max(number, Ordering::AcqRel);
    files.latch.check()
}

/// Does what needs no standstill: most of the work, while others go on writing.
fn stage_ahead(files: &Files) -> Result<()> {
    for _ in 0..AHEAD_ROUNDS {
        let changed = changed_files(files);
        if unlogged_pages(&changed) <= AHEAD_PAGES {
            break;
        }
        let mut rest = &changed[..];
        while !rest.is_empty() {
            let mut pages = 0;
            let group = rest.iter().take_while(|inode| {
                pages += inode.pages.lock().unlogged();
                pages <= GROUP_PAGES
            });
            let (group, others) = rest.split_at(group.count().max(1));
            rest = others;
            if stage_group(files, group).is_err() {
                // No space in the volume or in the log: the moment itself says so, if it must.
                return files.latch.check();
            }
        }
    }
    let journal = files.journal()?;
    let overwritten = u32::try_from(files.pages.overwritten()).unwrap_or(u32::MAX);
    let blocks = journal.running_blocks().saturating_add(overwritten);
    Ok(journal.prepare_space(blocks.min(journal.running_blocks_max()))?)
}

/// Stages files together, so that the allocator's neighbours are one request; a large one alone.
fn stage_group(files: &Files, group: &[Arc<Inode>]) -> Result<()> {
    if let [alone] = group {
        return files.engine.stage(files, alone);
    }
    let (mut held, mut jobs) = (Vec::new(), Vec::new());
    for inode in group {
        // A file that is busy is being written, or cut.
        let Some(io) = inode.io.try_lock() else { continue };
        held.push(io);
        jobs.push(collect_job(inode, |tree| tree.collect(&files.pages, &UNLOGGED)));
    }
    write_jobs(files, &mut jobs, true);
    jobs.into_iter().try_for_each(|job| {
        job.settle(files);
        job.result
    })
}

fn unlogged_pages(changed: &[Arc<Inode>]) -> usize {
    changed.iter().map(|inode| inode.pages.lock().unlogged()).sum()
}

/// Files with pages that no transaction has, or that are on their way to the device; ascending.
fn changed_files(files: &Files) -> Vec<Arc<Inode>> {
    let (mut changed, mut after) = (Vec::new(), None);
    while let Some(file) = files.pages.next_dirty_file(after) {
        after = Some(file);
        let Some(inode) = cached_inode(files, file.1) else { continue };
        let is_changed = {
            let tree = inode.pages.lock();
            tree.unlogged() > 0 || tree.in_writeback()
        };
        if is_changed {
            changed.push(inode);
        }
    }
    changed.sort_unstable_by_key(|inode| inode.ino);
    changed.dedup_by_key(|inode| inode.ino);
    changed
}

/// When the next moment is due, in nanoseconds of the clock; `None` while nothing was changed.
pub(crate) fn moment_due_ns(files: &Files) -> Option<u64> {
    let interval_ns = u64::from(files.options.commit_s) * crate::time::NS_PER_S;
    let pages_ns = files.pages.unlogged_since_ns().map(|since| since.saturating_add(interval_ns));
    let metadata_ns = files.journal().ok()?.commit_due_ns();
    [pages_ns, metadata_ns].into_iter().flatten().min()
}

/// Figures; `None` without `sync=periodic`.
pub(crate) fn moment_stats(files: &Files) -> Option<MomentStats> {
    let stats = files.engine.is_periodic().then(|| *files.schedule.moment_stats.lock())?;
    Some(MomentStats { is_behind: moment_due_ns(files).is_some(), ..stats })
}
