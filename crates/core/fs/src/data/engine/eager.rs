//! Eager sync: the changed data of one file and its part of the metadata, in one write.
//!
//! ```text
//!   fsync  io locked -> pages changed since the last sync (snapshots; they stay dirty)
//!          the log is cheaper (`route.rs`):
//!                 one handle: blocks installed, i_disksize, data given to the journal
//!          in place is cheaper:
//!                 write_unlogged: data in place, installed after it (the commit flushes first)
//!          -> Journal::sync(data blocks, inode slot): one write, one flush
//!  fdatabarrier  the same with Journal::order_sets: one write, one cache barrier
//!
//!   write-back of a page of which the log holds a copy
//!          not changed since it was logged:  in place; then the log may drop its copy
//!          changed, in a sync that writes in place:  in place, flush, then the copy is revoked
//!          changed, otherwise:  logged again, or recovery would replay the old copy over it
//! ```
//!
//! Promises
//! - Data goes to the log in the same group commit as the extents that lead to it, so no crash
//!   shows blocks without their data. Extents of data that was written in place are committed after
//!   a flush of that data.
//! - A page that was logged is logged again only after a change. Each logged version is written to
//!   its home block at most once: by write-back or by the checkpoint, whichever comes first.
//! - fdatasync of an overwrite logs the data only, and with `log=packed` only its changed parts
//!   (`../../pages/changes.rs`).
//!
//! Locks: if the data is logged, `io` is held from the snapshots to the end of the group commit.
//! So truncation and write-back of this file wait for that commit, and only then see the blocks
//! that the sync installed. If the data goes in place, `io` is released, taken by the write-back,
//! and taken again for the group commit. Writers do not take it. Tested in `tests/it/eager.rs`.

use std::ops::Range;

use syncline_device::{Costs, Geometry};
use syncline_jbd2::{
    Checksums, InPlacePage, Journal, JournalError, JournalOptions, Member, WriteAction,
};

use crate::data::Files;
use crate::data::blocks::map_range;
use crate::data::engine::Engine;
use crate::data::engine::ordered::Ordered;
use crate::data::engine::route::{self, SyncWork};
use crate::data::flush::batch::{Job, OutPage, out_pages, zero_behind_end};
use crate::data::flush::file::write_unlogged;
use crate::data::flush::install::install_one;
use crate::data::flush::plan::{
    Segment, Target, cancel_segments, first_unreached_block, plan_batch,
};
use crate::data::schedule::incremental::{STEP_PAGES, incremental_is_due, incremental_tick};
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode};
use crate::inode::Inodes;
use crate::inode::lazytime::write_lazy_times_of;
use crate::inode::table::{inode_place, write_inode};
use crate::map::extents::volume::map_credits;
use crate::options::{LogFormat, MountOptions};
use crate::pages::SyncDirty;
use crate::store::Store;

/// Pages that one handle gives to the journal during write-back.
const PAGES_PER_HANDLE: usize = 64;

/// New data of one sync from which on all of it counts as written back, in bytes.
const STREAM_BYTES: u64 = 256 << 10;

/// New data of one sync that always goes in place, in bytes: in the log it takes the place of what
/// others have there, and its prices do not show that.
const LONG_STREAM_BYTES: u64 = 1 << 20;

/// Clean pages between two dirty ones that are written along with them. A flash device programs
/// more than that anyway when it has to end one run and begin another. Filling them by the time of
/// an address lost a quarter of the speed on an aged volume, where that time comes later.
const GAP_PAGES_MAX: usize = 8;

/// `sync=eager`.
pub(crate) struct Eager;

impl Engine for Eager {
    fn fsync(&self, files: &Files, inode: &Inode, range: Range<u64>, datasync: bool) -> Result<()> {
        sync_file(files, inode, range, datasync, Journal::sync)
    }

    fn can_order(&self) -> bool {
        true
    }

    fn order(&self, files: &Files, inode: &Inode, range: Range<u64>) -> Result<()> {
        sync_file(files, inode, range, true, Journal::order_sets)
    }

    fn sync_all(&self, files: &Files) -> Result<()> {
        Ordered.sync_all(files)
    }

    fn uses_costs(&self) -> bool {
        true
    }

    fn logs_data(&self) -> bool {
        true
    }

    fn log_together(
        &self,
        files: &Files,
        inode: &Inode,
        size: u64,
        pages: &mut [OutPage],
    ) -> Result<Vec<Member>> {
        zero_behind_end(files, pages, size);
        let (mut segments, mut installed) = (Vec::new(), 0);
        let logged = plan_batch(files, inode, pages, Target::Log, &mut segments)
            .and_then(|()| log_segments(files, inode, size, pages, &segments, &mut installed));
        let whole = installed == segments.len();
        cancel_segments(files, &segments[installed..]);
        match logged {
            Ok(true) if whole => {}
            Ok(_) => {
                let limit_bytes = files.journal()?.max_credits() as usize / 2 * files.block_size();
                return Err(FsError::AtomicTooBig { limit_bytes: limit_bytes as u64 });
            }
            Err(err) if installed == 0 => return Err(err),
            // Half of it must not commit.
            Err(err) => return Err(files.give_up(err, "an atomic write failed half way")),
        }
        let mut seeds = members_of(&segments);
        let (block, offset) = inode_place(files, inode.ino)?;
        seeds.push(Member::Slot { block, offset: offset as u32 });
        Ok(seeds)
    }

    fn classify(&self, files: &Files, job: &mut Job<'_>) -> Result<()> {
        files.journal()?.begin_in_place(&mut job.pages, job.may_revoke)?;
        journal_again(files, job.inode, &job.pages)
    }

    fn on_data_written(&self, files: &Files, job: &Job<'_>) -> Result<()> {
        let (journal, pages) = (files.journal()?, job.pages.as_slice());
        revoke_copies(files, job)?;
        let is_unlogged = |out: &OutPage| out.action.is_write() && out.is_newer();
        if pages.iter().any(is_unlogged) {
            files.pages.note_unlogged(journal.next_flush());
        }
        let logged = |out: &&OutPage| out.action.is_write() && !out.is_newer();
        let written = pages.iter().filter(logged).count();
        if written > 0 {
            let ways = pages.windows(2).filter(|two| two[0].place + 1 != two[1].place).count() + 1;
            files.pages.rewrites.note_written(written, ways);
        }
        journal.end_in_place(pages);
        Ok(())
    }

    fn background(&self, files: &Files, now_ns: u64) -> Result<()> {
        incremental_tick(files, now_ns)
    }

    fn is_due_at_once(&self, files: &Files) -> bool {
        incremental_is_due(files)
    }

    fn gap_pages_max(&self) -> usize {
        GAP_PAGES_MAX
    }

    fn sends_relaxed(&self) -> bool {
        false
    }

    fn journal_options(&self, log: LogFormat, kernels: Checksums) -> JournalOptions {
        JournalOptions {
            checksums: match log {
                LogFormat::Jbd2 => Checksums::V1Async,
                LogFormat::Packed => Checksums::Packed,
            },
            checksums_at_rest: kernels,
            checkpoint_step_blocks: STEP_PAGES,
            ..JournalOptions::default()
        }
    }
}

/// Brings the changed pages and the metadata of a file into the log or to their places, and ends
/// with the group commit `commit`.
fn sync_file(
    files: &Files,
    inode: &Inode,
    range: Range<u64>,
    datasync: bool,
    commit: impl FnOnce(&Journal, &[Member], bool) -> std::result::Result<(), JournalError>,
) -> Result<()> {
    let journal = files.journal()?;
    if !datasync || range.is_empty() {
        write_lazy_times_of(files, inode)?;
    }
    let mut seeds = Vec::new();
    let mut io = inode.io.lock();
    if let Some(runs) = log_pages(files, inode, &range, datasync, &mut seeds)? {
        let note = |is_over| inode.pages.lock().note_in_place(&files.pages, &runs, is_over);
        drop(io);
        note(false);
        write_unlogged(files, inode, range.start, range.end)?;
        note(true);
        io = inode.io.lock();
    }
    let changes = {
        let st = inode.state.read();
        if !datasync || journal.needs_commit(st.datasync_tid) {
            let (block, offset) = inode_place(files, inode.ino)?;
            seeds.push(Member::Slot { block, offset: offset as u32 });
        }
        st.data_changes
    };
    // Without a commit only data needs a flush that was written in place and is not durable.
    let is_flushed = journal.is_flushed(files.pages.flush_needed());
    commit(journal, &seeds, !range.is_empty() && !is_flushed)?;
    drop(io);
    files.latch.check()?;
    let mut st = inode.state.write();
    if st.data_changes == changes {
        // Nothing that fdatasync must keep was changed since the set was named.
        st.datasync_tid = journal.committed_tid();
    }
    Ok(())
}

/// Gives the changed pages of a range to the journal, or returns their runs: they go in place. The
/// caller holds `io`.
fn log_pages(
    files: &Files,
    inode: &Inode,
    range: &Range<u64>,
    datasync: bool,
    seeds: &mut Vec<Member>,
) -> Result<Option<Vec<Range<u64>>>> {
    if range.is_empty() {
        return Ok(None);
    }
    let from = range.start.min(first_unreached_block(files, inode));
    let (dirty, runs) = {
        let tree = inode.pages.lock();
        (tree.sync_dirty_in(from, range.end), tree.sync_runs(from, range.end))
    };
    let in_place = dirty.pages > 0 && goes_in_place(files, inode, dirty, &runs, datasync)?;
    let is_logged = !in_place && log_all_pages(files, inode, from..range.end, seeds)?;
    Ok((!is_logged).then_some(runs))
}

/// Costs of the device of a mount with `sync=eager`, and the sizes that follow from them without
/// options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EagerCosts {
    /// Costs of the last requests.
    pub device: Costs,
    /// Size from which on a sync of consecutive blocks writes them in place, in bytes; never
    /// without.
    pub run_bytes: Option<u64>,
    /// As that of blocks of which no two are consecutive.
    pub scattered_bytes: Option<u64>,
}

impl crate::Volume {
    /// Returns the measured costs of the device with `sync=eager`; `None` in other modes.
    pub fn eager_costs(&self) -> Option<EagerCosts> {
        let device = self.0.costs.get()?.costs();
        let block_bytes = self.0.block_size() as u64;
        let rewritten = self.0.pages.rewrites.of_overwritten();
        let from = |is_run| route::in_place_from(is_run, rewritten, block_bytes, &device);
        Some(EagerCosts { device, run_bytes: from(true), scattered_bytes: from(false) })
    }
}

/// True if a sync writes these pages in place. An option rules its kind of data: new blocks, runs
/// of overwritten ones, scattered ones. Without an option the costs decide.
fn goes_in_place(
    files: &Files,
    inode: &Inode,
    dirty: SyncDirty,
    runs: &[Range<u64>],
    datasync: bool,
) -> Result<bool> {
    let block_bytes = files.block_size() as u64;
    if let Some(in_place) = ruled_by_option(dirty, block_bytes, &files.options) {
        return Ok(in_place);
    }
    if dirty.fresh as u64 * block_bytes >= LONG_STREAM_BYTES {
        return Ok(true);
    }
    let work = sync_work(files, inode, runs, datasync)?;
    Ok(files.schedule.route.lock().decide(&work, block_bytes, &files.device_costs()))
}

fn sync_work(
    files: &Files,
    inode: &Inode,
    dirty_runs: &[Range<u64>],
    datasync: bool,
) -> Result<SyncWork> {
    let (journal, block_bytes) = (files.journal()?, files.block_size() as u64);
    let Geometry { volatile_cache: cached, fua, .. } = files.dev.geometry();
    let rewrites = &files.pages.rewrites;
    let mut work = SyncWork { ways: rewrites.ways(), cached, fua, ..SyncWork::default() };
    for dirty in dirty_runs {
        for run in map_range(files, inode, dirty.start, dirty.end)? {
            if run.is_hole() {
                (work.blocks, work.runs) = (work.blocks + run.len, work.runs + 1);
            } else {
                work.add(run.pblk, run.len, block_bytes);
                let live = journal.count_live(run.pblk..run.pblk + run.len) as u64;
                *(if journal.is_packed() { &mut work.live } else { &mut work.revoked }) += live;
            }
            work.grows |= !run.holds_data();
        }
    }
    work.rewritten = match work.grows {
        // What is freed before write-back is small: rollback journals, temporary files.
        true if work.blocks * block_bytes >= STREAM_BYTES => 1.0,
        true => rewrites.of_fresh(),
        false => rewrites.of_overwritten(),
    };
    let (block, offset) = inode_place(files, inode.ino)?;
    let slot = Member::Slot { block, offset: offset as u32 };
    let st = inode.state.read();
    work.grows |= st.size > st.raw.i_size;
    let is_due = !datasync || journal.needs_commit(st.datasync_tid);
    work.commits = work.grows || is_due && journal.is_member(slot);
    Ok(work)
}

/// The route that an option of the mount prescribes.
fn ruled_by_option(dirty: SyncDirty, block_bytes: u64, options: &MountOptions) -> Option<bool> {
    let bytes = |pages: usize| pages as u64 * block_bytes;
    let above = options.eager_threshold.map(|most| dirty.pages > most as usize);
    let stream = options.eager_stream_bytes.map(|from| bytes(dirty.fresh) >= from);
    let run = options.eager_run_bytes.map(|from| dirty.runs == 1 && bytes(dirty.pages) >= from);
    if [above, stream, run].contains(&Some(true)) {
        return Some(true);
    }
    match dirty {
        SyncDirty { fresh: 1.., .. } => stream,
        SyncDirty { runs: 1, .. } => run,
        _ => above,
    }
}

/// As [`log_pages`] for any number of pages; false if they do not fit into one handle.
pub(crate) fn log_all_pages(
    inodes: &Inodes,
    inode: &Inode,
    range: Range<u64>,
    seeds: &mut Vec<Member>,
) -> Result<bool> {
    let (size, mut pages) = {
        let st = inode.state.read();
        let pages = inode.pages.lock().collect_sync(&inodes.pages, range.start, range.end);
        (st.size, out_pages(pages))
    };
    if pages.is_empty() {
        return Ok(true);
    }
    zero_behind_end(inodes, &mut pages, size);
    let (mut segments, mut installed) = (Vec::new(), 0);
    let result = plan_batch(inodes, inode, &mut pages, Target::Log, &mut segments)
        .and_then(|()| log_segments(inodes, inode, size, &pages, &segments, &mut installed));
    let (done, undone) = segments.split_at(installed);
    cancel_segments(inodes, undone);
    let logged_end = done.last().map_or(0, Segment::end);
    seeds.extend(members_of(done));
    let mut tree = inode.pages.lock();
    for OutPage { page, .. } in &pages {
        tree.end_log(&inodes.pages, page.lblk, page.lblk < logged_end, page.changes);
    }
    result
}

/// Members of the sets that hold the data of these segments.
fn members_of(segments: &[Segment]) -> Vec<Member> {
    let blocks = segments.iter().flat_map(|at| at.pblk..at.pblk + u64::from(at.len));
    blocks.map(Member::Block).collect()
}

/// Installs the segments and journals their pages, in one handle.
fn log_segments(
    inodes: &Inodes,
    inode: &Inode,
    size: u64,
    pages: &[OutPage],
    segments: &[Segment],
    installed: &mut usize,
) -> Result<bool> {
    let changed = segments.iter().filter(|segment| !segment.is_plain()).count();
    let credits = map_credits(inodes, &inode.state.read()) as usize * changed + pages.len() + 1;
    if credits > inodes.journal()?.max_credits() as usize / 2 {
        return Ok(false);
    }
    let mut h = inodes.start_under_io(credits as u32)?;
    let mut st = inode.state.write();
    let size_before = st.raw.i_size;
    let origin = inode.origin(false);
    let (mut result, mut rest) = (Ok(()), pages.iter());
    for segment in segments {
        result = install_one(inodes, &mut h, inode, &mut st, segment);
        if result.is_err() {
            break;
        }
        *installed += 1;
        for out in rest.by_ref().take(segment.len as usize) {
            let OutPage { page, place, .. } = out;
            let changed = known_changes(inodes, out);
            let joined = h.journal_data(*place, page.data.clone(), origin, changed);
            // The blocks are part of the file by now: without their data nothing may commit.
            joined.map_err(|err| inodes.fail_journal(err))?;
        }
        let end = segment.end().saturating_mul(inodes.block_size() as u64);
        st.raw.i_size = st.raw.i_size.max(end.min(size));
    }
    // What was installed before an error is part of the file.
    if changed > 0 || st.raw.i_size != size_before {
        write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)?;
    }
    result.map(|()| true)
}

/// Parts of a page that may differ from the image that recovery gives of its block, if they are
/// known.
fn known_changes(store: &Store, out: &OutPage) -> Option<u64> {
    let journal = store.journal.get().filter(|journal| out.plain && journal.is_packed())?;
    out.page.changes.known(|number| journal.is_flushed(number))
}

/// Revokes the copies that the log has of pages that were written in place. From now on fdatasync
/// of the file needs a commit.
fn revoke_copies(files: &Files, job: &Job<'_>) -> Result<()> {
    let revoked = job.pages.iter().filter(|out| out.action == WriteAction::Revoke);
    let revoked: Vec<u64> = revoked.map(|out| out.place).collect();
    if revoked.is_empty() {
        return Ok(());
    }
    let (block, offset) = inode_place(files, job.inode.ino)?;
    let mut h = files.start_under_io(1)?;
    h.revoke_copies(&revoked, Member::Slot { block, offset: offset as u32 });
    let mut st = job.inode.state.write();
    st.datasync_tid = h.tid();
    st.data_changes = st.data_changes.wrapping_add(1);
    Ok(())
}

/// Journals the pages that must not be written over their older copies, in the set of the inode, so
/// that metadata that shows them is not durable without them.
pub(crate) fn journal_again(inodes: &Inodes, inode: &Inode, pages: &[OutPage]) -> Result<()> {
    let chosen = pages.iter().filter(|out| out.action == WriteAction::Journal);
    let chosen: Vec<&OutPage> = chosen.collect();
    let origin = inode.origin(false);
    for pages in chosen.chunks(PAGES_PER_HANDLE) {
        let mut h = inodes.start_under_io(1 + pages.len() as u32)?;
        let mut st = inode.state.write();
        for out in pages {
            let changed = known_changes(inodes, out);
            h.journal_data(out.place, out.page.data.clone(), origin, changed)?;
        }
        write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_rules_its_own_kind_of_data_in_both_directions() {
        let dirty = |pages, fresh, runs| SyncDirty { pages, fresh, runs };
        let ruled = |dirty, options: &str| {
            ruled_by_option(dirty, 4096, &MountOptions::parse(options).unwrap())
        };
        assert_eq!(ruled(dirty(4, 0, 4), ""), None);
        assert_eq!(ruled(dirty(4, 0, 4), "eager_threshold=3"), Some(true));
        assert_eq!(ruled(dirty(3, 0, 3), "eager_threshold=3"), Some(false));
        assert_eq!(ruled(dirty(100, 0, 1), "eager_threshold=100"), None);
        assert_eq!(ruled(dirty(2, 2, 1), "eager_stream=8K"), Some(true));
        assert_eq!(ruled(dirty(1000, 1000, 1), "eager_stream=8M"), Some(false));
        assert_eq!(ruled(dirty(2, 0, 1), "eager_run=8K"), Some(true));
        assert_eq!(ruled(dirty(2, 0, 2), "eager_run=8K"), None);
        assert_eq!(ruled(dirty(1000, 0, 1), "eager_run=8M"), Some(false));
    }
}
