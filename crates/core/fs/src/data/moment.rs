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
use crate::data::schedule::state::MomentStats;
use crate::error::Result;
use crate::incore::Inode;
use crate::inode::iget::cached_inode;

/// Changed pages up to which nothing is done ahead: to look at them twice costs more than it saves.
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
    let hold = files.pages.hold_changes();
    let number = files.schedule.moments_held.fetch_add(1, Ordering::AcqRel) + 1;
    let at_ns = files.clock.now_ns();
    let changed = changed_files(files);
    let io: Vec<_> = changed.iter().map(|inode| inode.io.lock()).collect();
    let journal = files.journal()?;
    journal.set_sealing(true);
    let staged = changed.iter().try_for_each(|inode| stage_pages(files, inode));
    if let Err(err) = staged {
        journal.set_sealing(false);
        files.latch.check()?;
        return Err(err);
    }
    files.pages.forget_unlogged_since();
    let mut held_ns = 0;
    let written = journal.commit_sealed(|| {
        journal.set_sealing(false);
        held_ns = files.clock.now_ns().saturating_sub(at_ns);
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
        let pages = |inode: &Arc<Inode>| inode.pages.lock().unlogged();
        if changed.iter().map(pages).sum::<usize>() <= AHEAD_PAGES {
            break;
        }
        let staged = changed.iter().try_for_each(|inode| files.engine.stage(files, inode));
        if staged.is_err() {
            // For lack of space, in the volume or in the log: the moment itself says so, if it
            // must.
            files.latch.check()?;
            break;
        }
    }
    let journal = files.journal()?;
    let overwritten = u32::try_from(files.pages.overwritten()).unwrap_or(u32::MAX);
    let blocks = journal.running_blocks().saturating_add(overwritten);
    Ok(journal.prepare_space(blocks.min(journal.running_blocks_max()))?)
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
