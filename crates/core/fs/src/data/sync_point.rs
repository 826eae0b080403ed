//! Sync points (`sync=periodic`): one transaction makes the whole volume durable at one point in
//! time.
//!
//! ```text
//!   ahead   writers go on: new blocks written in place, overwritten ones given to the running
//!           transaction, log space made
//!   hold    writers stand still: pages changed since then join the running transaction by
//!           reference; a later write to such a page copies it first
//!   seal    the transaction is frozen by reference; writers go on, in the next one
//!   write   new blocks that were held, in place; one record, one flush; another flush before the
//!           record if data was written in place
//! ```
//!
//! Promises
//! - A sync point has every change that returned before the hold, and no change that began after
//!   it. A change of pages or sizes holds [`crate::pages::PageCache::change`], a change of metadata
//!   a handle; each is either before the hold or after it.
//! - After any power cut the volume is at the last durable sync point. Recovery finishes orphans as
//!   after any crash.
//! - Writers stand still only while the pages that changed during `ahead` are collected, without a
//!   request to the device. A file whose data is on its way to the device is waited for before the
//!   hold ([`HOLD_TRIES`]); new data is sent after it. Metadata that is not cached is read.
//! - A sync point that fails makes nothing durable. The next one includes all of its changes.
//! - A caller that arrives while a sync point is being made shares the next one.
//!
//! A large write, truncation or fallocate is several changes: a sync point may lie between them, as
//! a kill of the program might. Tested in `tests/it/periodic.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use syncline_jbd2::WriteAction;

use crate::data::Files;
use crate::data::engine::eager::{journal_again, log_all_pages};
use crate::data::flush::batch::{Job, collect_job, zero_behind_end};
use crate::data::flush::install::{end_job, install_job};
use crate::data::flush::pass::write_jobs;
use crate::data::flush::plan::{Target, plan_batch};
use crate::data::flush::send::send_jobs;
use crate::data::schedule::state::SyncPointStats;
use crate::error::Result;
use crate::incore::Inode;
use crate::inode::iget::cached_inode;
use crate::pages::{GROUP_PAGES, UNLOGGED};

/// Bytes of changed pages up to which nothing is done ahead, and new blocks go to the log as well:
/// a sync point is one write then. More new ones are a stream (`engine/eager.rs`).
const AHEAD_BYTES: usize = 128 * 1024;
/// Rounds of work ahead, while writers are about as fast as the device.
const AHEAD_ROUNDS: usize = 3;
/// Attempts to find no file on its way to the device, before writes stand still until one is there.
const HOLD_TRIES: usize = 64;
/// Attempts to give to the running transaction what it had no room for.
const STAGE_ATTEMPTS: usize = 4;

/// Makes a sync point: everything that returned before this call becomes durable.
///
/// # Errors
/// As write-back and commit. For lack of space nothing became durable.
pub(crate) fn make_sync_point(files: &Files) -> Result<()> {
    files.latch.check()?;
    let asked = files.schedule.sync_points_held.load(Ordering::Acquire);
    let _turn = files.schedule.sync_point.lock();
    if files.schedule.sync_points_durable.load(Ordering::Acquire) > asked {
        // Another caller made one that began after this call.
        return files.latch.check();
    }
    let began_ns = files.clock.now_ns();
    let (mut few, mut tries, mut attempts) = (ahead_pages(files), 0, 0);
    stage_ahead(files, few)?;
    loop {
        match hold_and_commit(files, few, tries == HOLD_TRIES) {
            Ok(Outcome::Taken) => break,
            // The request to the device ends without the hold.
            Ok(Outcome::Busy(inode)) => {
                drop(inode.io.lock());
                tries += 1;
            }
            Err(err) if attempts == STAGE_ATTEMPTS => return Err(err),
            // The log, or the volume, had no room for the changes of many writers: try with fewer.
            Err(_) => {
                files.latch.check()?;
                (few, attempts) = (0, attempts + 1);
                stage_ahead(files, few)?;
            }
        }
    }
    let took_ns = files.clock.now_ns().saturating_sub(began_ns);
    let mut stats = files.schedule.sync_point_stats.lock();
    stats.commit_ns_max = stats.commit_ns_max.max(took_ns);
    drop(stats);
    files.latch.check()
}

/// Result of an attempt to make a sync point.
enum Outcome {
    Taken,
    /// Data of this file is on its way to the device.
    Busy(Arc<Inode>),
}

/// Makes the sync point, unless a file is busy and `wait` is false. Up to `few` changed pages go to
/// the log, new ones too.
fn hold_and_commit(files: &Files, few: usize, wait: bool) -> Result<Outcome> {
    let began_ns = files.clock.now_ns();
    let hold = files.pages.hold_changes();
    let changed = changed_files(files);
    let mut io = Vec::with_capacity(changed.len());
    for inode in &changed {
        match inode.io.try_lock() {
            Some(guard) => io.push(guard),
            None if wait => io.push(inode.io.lock()),
            None => return Ok(Outcome::Busy(Arc::clone(inode))),
        }
    }
    let number = files.schedule.sync_points_held.fetch_add(1, Ordering::AcqRel) + 1;
    let at_ns = files.clock.now_ns();
    let journal = files.journal()?;
    let log_new = unlogged_pages(&changed) <= few;
    let mut jobs = Vec::new();
    let staged = changed.iter().try_for_each(|inode| stage_held(files, inode, log_new, &mut jobs));
    if let Err(err) = staged {
        drop(hold);
        // Files in the running transaction must have their data.
        send_held(files, &mut jobs);
        files.latch.check()?;
        return Err(err);
    }
    files.pages.forget_unlogged_since();
    let mut held_ns = 0;
    let written = journal.commit_sealed(|| {
        held_ns = files.clock.now_ns().saturating_sub(began_ns);
        drop(hold);
        send_held(files, &mut jobs);
        drop(io);
    });
    // After an error some are left.
    send_held(files, &mut jobs);
    let written = written?;
    let mut stats = files.schedule.sync_point_stats.lock();
    stats.count += u64::from(written);
    stats.last_ns = at_ns;
    stats.hold_ns_max = stats.hold_ns_max.max(held_ns);
    drop(stats);
    files.schedule.sync_points_durable.fetch_max(number, Ordering::AcqRel);
    Ok(Outcome::Taken)
}

/// Gives what was changed of a file to the running transaction, without a request to the device:
/// with `log_new` all of it; otherwise new blocks become part of the file, and their data one of
/// the `jobs`, to be sent before the transaction commits. The caller holds `io`.
fn stage_held<'a>(
    files: &Files,
    inode: &'a Inode,
    log_new: bool,
    jobs: &mut Vec<Job<'a>>,
) -> Result<()> {
    if inode.pages.lock().unlogged() == 0 {
        return Ok(());
    }
    if log_new && log_all_pages(files, inode, 0..u64::MAX, &mut Vec::new())? {
        return Ok(());
    }
    let mut job = collect_job(inode, |tree| tree.collect(&files.pages, &UNLOGGED));
    job.result = plan_held(files, &mut job);
    install_job(files, &mut job);
    let result = std::mem::replace(&mut job.result, Ok(()));
    jobs.push(job);
    result
}

/// Places for the pages of a job: blocks that are part of the file may be in the last sync point,
/// so their data goes to the log.
fn plan_held(files: &Files, job: &mut Job<'_>) -> Result<()> {
    zero_behind_end(files, &mut job.pages, job.size);
    plan_batch(files, job.inode, &mut job.pages, Target::Home, &mut job.segments)?;
    let unwrote = files.journal()?.needs_commit(job.inode.state.read().unwrote_tid);
    for out in &mut job.pages {
        let in_sync_point = out.plain || unwrote && out.owned;
        out.action = if in_sync_point { WriteAction::Journal } else { WriteAction::Write };
    }
    journal_again(files, job.inode, &job.pages)
}

/// Sends the data of the jobs and ends their write-back. A failure latches the volume.
fn send_held(files: &Files, jobs: &mut Vec<Job<'_>>) {
    if jobs.is_empty() {
        return;
    }
    let sent = send_jobs(files, jobs, true).is_ok();
    for job in jobs.drain(..) {
        let sent = sent && files.engine.on_data_written(files, &job).is_ok();
        let job = if sent { job } else { Job { placed_end: 0, ..job } };
        end_job(files, &job);
        job.end_pass(files);
    }
}

/// Changed pages up to which nothing is done ahead.
fn ahead_pages(files: &Files) -> usize {
    AHEAD_BYTES / files.block_size()
}

/// Does most of the work while others go on writing, until no more than
/// `few` changed pages are left.
fn stage_ahead(files: &Files, few: usize) -> Result<()> {
    for _ in 0..AHEAD_ROUNDS {
        let changed = changed_files(files);
        if unlogged_pages(&changed) <= few {
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
                // No space in the volume or in the log: the sync point reports it, if it must.
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
        return files.engine.prepare_sync(files, alone);
    }
    let (mut held, mut jobs) = (Vec::new(), Vec::new());
    for inode in group {
        // A busy file is being written back or truncated.
        let Some(io) = inode.io.try_lock() else { continue };
        held.push(io);
        jobs.push(collect_job(inode, |tree| tree.collect(&files.pages, &UNLOGGED)));
    }
    write_jobs(files, &mut jobs, true);
    jobs.into_iter().try_for_each(|job| {
        job.end_pass(files);
        job.result
    })
}

fn unlogged_pages(changed: &[Arc<Inode>]) -> usize {
    changed.iter().map(|inode| inode.pages.lock().unlogged()).sum()
}

/// Files with pages that no transaction has, or that are on their way to the device; ascending.
fn changed_files(files: &Files) -> Vec<Arc<Inode>> {
    let cached = files.pages.dirty_files().into_iter().filter_map(|ino| cached_inode(files, ino));
    cached
        .filter(|inode| {
            let tree = inode.pages.lock();
            tree.unlogged() > 0 || tree.in_writeback()
        })
        .collect()
}

/// When the next sync point is due, in nanoseconds of the clock; `None` while nothing was changed.
pub(crate) fn sync_point_due_ns(files: &Files) -> Option<u64> {
    let interval_ns = u64::from(files.options.commit_s) * crate::time::NS_PER_S;
    let pages_ns = files.pages.unlogged_since_ns().map(|since| since.saturating_add(interval_ns));
    let metadata_ns = files.journal().ok()?.commit_due_ns();
    [pages_ns, metadata_ns].into_iter().flatten().min()
}

/// Figures of the sync points.
pub(crate) fn sync_point_stats(files: &Files) -> SyncPointStats {
    let stats = *files.schedule.sync_point_stats.lock();
    SyncPointStats { is_behind: sync_point_due_ns(files).is_some(), ..stats }
}

impl crate::Volume {
    /// Sync points of a volume with `sync=periodic`; `None` for others.
    pub fn sync_points(&self) -> Option<SyncPointStats> {
        self.0.engine.sync_point_stats(&self.0)
    }
}
