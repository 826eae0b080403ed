//! Write-back of several files as one plug.
//!
//! ```text
//!   files in the order of (dirtied, inode):   small | small | large | small ...
//!                                             '--- a group ---'  alone
//!   group   io of each locked, or the file is left for later
//!           plan each --> one plug of all their data --> install each
//! ```
//!
//! The allocator puts small files that are made one after the other side by side. Each by itself is
//! a request; in one plug they are merged, as Linux merges what one round of its flusher sends.
//!
//! Promises: for each file those of `writeback.rs`. A group is made of at most [`GROUP_PAGES`]
//! pages, so that a sync of one of its files waits for no more than that.
//!
//! Locks: `io` of a group's files are taken without waiting, so their order does not matter; a file
//! that is busy is written by itself after the group. Tested in
//! `tests/file_io_sync.rs`, the crash tests of `syncline-model` and every count of a benchmark.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use syncline_device::{Kind, Origin, Plug};
use syncline_jbd2::{Fate, InPlace};

use crate::data::Files;
use crate::data::flush::eager::judge;
use crate::data::flush::writeback::{
    GAP_PAGES_MAX, Segment, cancel_segments, install_segments, plan_batch, write_back,
    zero_behind_end,
};
use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::Inodes;
use crate::inode::iget::cached_inode;
use crate::options::SyncMode;
use crate::pages::{GROUP_PAGES, Outgoing, PageTree, Pick};
use crate::store::Store;

/// What one file gives to a write-back. Its `io` is held.
pub(crate) struct Job<'a> {
    inode: &'a Inode,
    size: u64,
    pub(crate) batch: Vec<Outgoing>,
    segments: Vec<Segment>,
    /// Eager mode: the pages as the journal sees them, and what becomes of each.
    pages: Vec<InPlace>,
    fates: Vec<Fate>,
    pub(crate) result: Result<()>,
}

impl Job<'_> {
    /// Off the list of dirty files if nothing is left; otherwise the file is as old as before.
    pub(crate) fn settle(&self, inner: &Files) {
        let mut tree = self.inode.pages.lock();
        if !tree.has_dirty() {
            tree.settle(&inner.pages, &*inner.clock);
        }
    }
}

/// Files whose dirty pages go together.
#[derive(Default)]
pub(crate) struct Group {
    files: Vec<Arc<Inode>>,
    /// Dirty pages of all.
    pub(crate) pages: usize,
}

impl Group {
    /// Adds a file with `pages` dirty pages.
    pub(crate) fn push(&mut self, inode: Arc<Inode>, pages: usize) {
        self.files.push(inode);
        self.pages += pages;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// Writes back the dirty files in the order of (dirtied, inode) while `go_on(dirtied_ns, pages
/// that are on their way already)` says so. Bounded by the files that are dirty now: those that
/// get dirty meanwhile are younger, and the walk ends at the present time.
pub(crate) fn write_back_files(
    files: &Files,
    sync: bool,
    go_on: impl Fn(u64, usize) -> bool,
) -> Result<()> {
    let now = files.clock.now_ns();
    let (mut after, mut group, mut result) = (None, Group::default(), Ok(()));
    while let Some(file) = files.pages.next_dirty_file(after) {
        if file.0 > now || !go_on(file.0, group.pages) {
            break;
        }
        after = Some(file);
        let Some(inode) = cached_inode(files, file.1) else { continue };
        let pages = inode.pages.lock().dirty();
        if group.pages + pages > GROUP_PAGES {
            note_result(files, write_group(files, std::mem::take(&mut group), sync), &mut result)?;
        }
        if pages > GROUP_PAGES {
            note_result(files, write_back(files, &inode, 0, u64::MAX, sync), &mut result)?;
        } else {
            group.push(inode, pages);
        }
    }
    note_result(files, write_group(files, group, sync), &mut result)?;
    result
}

/// What fails for one file, for lack of space, is no reason to leave out the others.
fn note_result(store: &Store, written: Result<usize>, result: &mut Result<()>) -> Result<()> {
    if let Err(err) = written {
        store.latch.check()?;
        *result = Err(err);
    }
    Ok(())
}

/// Writes back the files of a group whole. Returns the pages sent.
///
/// # Errors
/// As [`write_back`], of the last file that failed.
pub(crate) fn write_group(files: &Files, group: Group, sync: bool) -> Result<usize> {
    if group.is_empty() {
        return Ok(0);
    }
    files.check_writable()?;
    let pick =
        Pick { from: 0, to: u64::MAX, max: GROUP_PAGES, run_max: 0, gap_max: gap_max(files) };
    let (mut held, mut jobs, mut busy) = (Vec::new(), Vec::new(), Vec::new());
    for inode in &group.files {
        match inode.io.try_lock() {
            Some(io) => {
                held.push(io);
                jobs.push(collect_job(inode, |tree| tree.collect(&files.pages, &pick)));
            }
            None => busy.push(inode),
        }
    }
    write_jobs(files, &mut jobs, sync);
    let (mut sent, mut result) = (0, Ok(()));
    for job in jobs {
        job.inode.pages.lock().settle(&files.pages, &*files.clock);
        sent += job.batch.len();
        result = job.result.and(result);
    }
    drop(held);
    for inode in busy {
        match write_back(files, inode, 0, u64::MAX, sync) {
            Ok(pages) => sent += pages,
            Err(err) => result = Err(err),
        }
    }
    result.map(|()| sent)
}

/// Clean pages between two dirty ones that are written along with them.
pub(crate) fn gap_max(store: &Store) -> usize {
    if store.options.sync == SyncMode::Eager { GAP_PAGES_MAX } else { 0 }
}

/// Snapshots of what `take` finds in the pages of a file; the caller holds its `io` and passes
/// the job to [`write_jobs`].
pub(crate) fn collect_job<'a>(
    inode: &'a Inode,
    take: impl FnOnce(&mut PageTree) -> Vec<Outgoing>,
) -> Job<'a> {
    let (size, batch) = {
        let st = inode.state.read();
        (st.size, take(&mut inode.pages.lock()))
    };
    let (segments, pages, fates) = Default::default();
    Job { inode, size, batch, segments, pages, fates, result: Ok(()) }
}

/// Plans each job, sends the data of all, installs each. What became of a job is in its result;
/// the pages of one that failed are dirty again.
pub(crate) fn write_jobs(files: &Files, jobs: &mut [Job<'_>], sync: bool) {
    for job in jobs.iter_mut() {
        job.result = prepare_job(files, job);
    }
    let sent = send_jobs(files, jobs, sync);
    for job in jobs {
        if job.result.is_ok() {
            job.result = sent.clone();
        }
        if job.result.is_ok()
            && !job.pages.is_empty()
            && let Some(journal) = files.journal.get()
        {
            journal.end_in_place(&job.pages, &job.fates);
        }
        finish_job(files, job);
    }
}

fn prepare_job(inodes: &Inodes, job: &mut Job<'_>) -> Result<()> {
    zero_behind_end(inodes, &mut job.batch, job.size);
    plan_batch(inodes, job.inode, &job.batch, false, &mut job.segments)?;
    if inodes.options.sync == SyncMode::Eager {
        (job.pages, job.fates) = judge(inodes, job.inode, &job.batch, &job.segments)?;
    }
    Ok(())
}

/// Writes the data in place: one plug, gathered from the pages without a copy.
fn send_jobs(files: &Files, jobs: &[Job<'_>], sync: bool) -> Result<()> {
    let (mut plug, mut pages) = (Plug::new(), 0);
    for job in jobs.iter().filter(|job| job.result.is_ok()) {
        pages += plug_in(files, job, sync, &mut plug);
    }
    plug.submit(&*files.dev).map_err(|err| files.fail(FsError::Io(err)))?;
    files.pages.written.fetch_add(pages, Ordering::Relaxed);
    Ok(())
}

/// Adds the pages that have to go to their places, and counts them.
fn plug_in<'a>(files: &Files, job: &'a Job<'_>, sync: bool, plug: &mut Plug<'a>) -> u64 {
    let inode = job.inode;
    let strict = Origin::new(Kind::Data { inode: u64::from(inode.ino) }, sync);
    let (mut pages, mut count) = (job.batch.as_slice(), 0);
    for segment in &job.segments {
        let (these, rest) = pages.split_at((segment.len as usize).min(pages.len()));
        let first = job.batch.len() - pages.len();
        pages = rest;
        let origin =
            Origin { durability: files.relaxed.durability_of(inode, segment.is_plain()), ..strict };
        // Pages of a segment are consecutive blocks.
        let written = |index: usize| job.fates.get(index).is_none_or(|f| *f == Fate::Write);
        let index = |page: &Outgoing| first + (page.lblk - segment.lblk) as usize;
        for run in these.chunk_by(|a, b| written(index(a)) == written(index(b))) {
            let Some(at) = run.first().map(index).filter(|at| written(*at)) else { continue };
            let offset = files.block_offset(segment.pblk + (at - first) as u64);
            plug.write_run(offset, run.iter().map(|page| &*page.data), origin);
            count += run.len() as u64;
        }
    }
    count
}

/// Makes what was written part of the file; pages are clean, unless they were written to
/// meanwhile or are left to the journal.
fn finish_job(inodes: &Inodes, job: &mut Job<'_>) {
    let mut installed = 0;
    if job.result.is_ok() {
        job.result = install_segments(inodes, job.inode, &job.segments, job.size, &mut installed);
    }
    let (done, undone) = job.segments.split_at(installed);
    cancel_segments(inodes, undone);
    let written_end = match &job.result {
        Ok(()) => u64::MAX,
        Err(_) => done.last().map_or(0, Segment::end),
    };
    let mut tree = job.inode.pages.lock();
    for (index, page) in job.batch.iter().enumerate().filter(|(_, page)| !page.fill) {
        let placed = page.lblk < written_end;
        match job.fates.get(index) {
            Some(Fate::Busy | Fate::Log) if placed => tree.keep_dirty(&inodes.pages, page.lblk),
            _ => tree.end_writeback(&inodes.pages, page.lblk, placed),
        }
    }
}
