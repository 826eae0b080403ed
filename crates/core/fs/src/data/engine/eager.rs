//! Eager sync: the changed data of one file and its part of the metadata, in one write.
//!
//! ```text
//!   fsync  io locked -> pages changed since the last sync (snapshots; they stay dirty)
//!          few:   one handle: blocks installed, i_disksize, data given to the journal
//!          many (a copy costs more than a second flush and the addresses, `goes_in_place`):
//!                 write_back: data in place, installed after it (the commit flushes first)
//!          -> Journal::sync(data blocks, inode slot): one write, one flush
//!
//!   write-back of a page that the log holds
//!          not changed since:  in place; that ends the log's obligation
//!          changed since:      journaled again, since recovery would put the old copy over it
//! ```
//!
//! Promises
//! - Data goes to the log in the same dependency set as the extents that lead to it, so no crash
//!   shows blocks without their data. Extents of data that was written in place are committed after
//!   a flush of that data.
//! - A page that was logged is not logged again unless it was changed; in place it is written once,
//!   by write-back or by the checkpoint.
//! - fdatasync of an overwrite logs the data only; packed records no more than its changed parts
//!   (`../../pages/changes.rs`).
//!
//! Locks: `io` is held from the snapshots to the end of the group commit, so that truncation and
//! write-back of this file see its blocks either in a committed transaction or not at all. Writers
//! need neither. Tested in `tests/it/eager.rs`.

use std::ops::Range;

use syncline_device::{Costs, Kind};
use syncline_jbd2::{Checksums, InPlacePage, JournalOptions, Member, WriteAction};

use crate::data::Files;
use crate::data::engine::Engine;
use crate::data::engine::ordered::Ordered;
use crate::data::flush::batch::{OutPage, out_pages, zero_behind_end};
use crate::data::flush::file::write_back;
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

/// Clean pages between two dirty ones that are written along with them. A flash device programs
/// more than that anyway when it has to end one run and begin another.
const GAP_PAGES_MAX: usize = 8;

/// `sync=eager`.
pub(crate) struct Eager;

impl Engine for Eager {
    fn fsync(&self, files: &Files, inode: &Inode, range: Range<u64>, datasync: bool) -> Result<()> {
        let journal = files.journal()?;
        if !datasync || range.is_empty() {
            write_lazy_times_of(files, inode)?;
        }
        let mut seeds = Vec::new();
        let mut io = inode.io.lock();
        if !range.is_empty() && !log_pages(files, inode, &range, &mut seeds)? {
            drop(io);
            write_back(files, inode, range.start, range.end, true)?;
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
        journal.sync(&seeds, !range.is_empty() && !is_flushed)?;
        drop(io);
        files.latch.check()?;
        let mut st = inode.state.write();
        if st.data_changes == changes {
            // Nothing that fdatasync must keep was changed since the set was named.
            st.datasync_tid = journal.committed_tid();
        }
        Ok(())
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

    fn classify(&self, files: &Files, inode: &Inode, pages: &mut [OutPage]) -> Result<()> {
        files.journal()?.begin_in_place(pages)?;
        journal_again(files, inode, pages)
    }

    fn on_data_written(&self, files: &Files, pages: &[OutPage]) {
        let Some(journal) = files.journal.get() else { return };
        let is_unlogged = |out: &OutPage| out.action == WriteAction::Write && out.is_newer();
        if pages.iter().any(is_unlogged) {
            files.pages.note_unlogged(journal.next_flush());
        }
        journal.end_in_place(pages);
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

/// Gives the changed pages of a range to the journal. False: there are too many, nothing was
/// done. The caller holds `io`.
fn log_pages(
    inodes: &Inodes,
    inode: &Inode,
    range: &Range<u64>,
    seeds: &mut Vec<Member>,
) -> Result<bool> {
    let from = range.start.min(first_unreached_block(inodes, inode));
    let dirty = inode.pages.lock().sync_dirty_in(from, range.end);
    let costs = inodes.device_costs();
    if goes_in_place(dirty, inodes.block_size() as u64, &inodes.options, costs) {
        return Ok(false);
    }
    log_all_pages(inodes, inode, from..range.end, seeds)
}

/// Price of an in-place write in flushes, above which the copy in the log is cheaper. Writing in
/// place takes one more flush; the copy takes its bytes, and the data is written to its place later
/// all the same. With three the time of all requests is half as long again in the log as in place,
/// the price of one wait less:
///
/// ```text
///   log   = copy + (copy + runs)      the second part later
///   place = copy + runs + flush
///   log >= 1.5 * place   <=>   copy >= runs + 3 * flush
/// ```
const FLUSHES: f64 = 3.0;

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

impl EagerCosts {
    fn new(device: Costs, block_bytes: u64) -> EagerCosts {
        let from = |fixed_ns: f64, byte_ns: f64| {
            (byte_ns > 0.0).then(|| (fixed_ns / byte_ns) as u64 / block_bytes * block_bytes)
        };
        let flushes_ns = FLUSHES * device.flush_ns;
        EagerCosts {
            device,
            run_bytes: from(flushes_ns + device.run_ns, device.byte_ns).map(|b| b + block_bytes),
            scattered_bytes: from(flushes_ns, device.byte_ns - device.run_ns / block_bytes as f64)
                .map(|b| b + block_bytes),
        }
    }
}

impl crate::Volume {
    /// Returns the measured costs of the device with `sync=eager`; `None` in other modes.
    pub fn eager_costs(&self) -> Option<EagerCosts> {
        let device = self.0.costs.get()?.costs();
        Some(EagerCosts::new(device, self.0.block_size() as u64))
    }
}
/// True if a sync writes these pages in place. An option rules its kind of data: new blocks, runs
/// of overwritten ones, scattered ones. Without an option the costs decide.
fn goes_in_place(dirty: SyncDirty, block_bytes: u64, options: &MountOptions, costs: Costs) -> bool {
    let bytes = |pages: usize| pages as u64 * block_bytes;
    let above = options.eager_threshold.map(|most| dirty.pages > most as usize);
    let stream = options.eager_stream_bytes.map(|from| bytes(dirty.fresh) >= from);
    let run = options.eager_run_bytes.map(|from| dirty.runs == 1 && bytes(dirty.pages) >= from);
    if [above, stream, run].contains(&Some(true)) {
        return true;
    }
    let kind = match dirty {
        SyncDirty { fresh: 1.., .. } => stream,
        SyncDirty { runs: 1, .. } => run,
        _ => above,
    };
    let runs_ns = dirty.runs as f64 * costs.run_ns;
    let copy_ns = bytes(dirty.pages) as f64 * costs.byte_ns;
    kind.is_none() && copy_ns > runs_ns + FLUSHES * costs.flush_ns
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
    let kind = Kind::Data { inode: u64::from(inode.ino) };
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
            let joined = h.journal_data(*place, page.data.clone(), kind, changed);
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

/// Journals the pages that must not be written over their older copies, in the set of the inode, so
/// that metadata that shows them is not durable without them.
pub(crate) fn journal_again(inodes: &Inodes, inode: &Inode, pages: &[OutPage]) -> Result<()> {
    let chosen = pages.iter().filter(|out| out.action == WriteAction::Journal);
    let chosen: Vec<&OutPage> = chosen.collect();
    let kind = Kind::Data { inode: u64::from(inode.ino) };
    for pages in chosen.chunks(PAGES_PER_HANDLE) {
        let mut h = inodes.start_under_io(1 + pages.len() as u32)?;
        let mut st = inode.state.write();
        for out in pages {
            let changed = known_changes(inodes, out);
            h.journal_data(out.place, out.page.data.clone(), kind, changed)?;
        }
        write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMMC: Costs = Costs { flush_ns: 1e6, byte_ns: 50.0, run_ns: 3e6 };
    const UFS: Costs = Costs { flush_ns: 2e5, byte_ns: 20.0, run_ns: 0.0 };

    #[test]
    fn costs_decide_where_no_option_does() {
        let dirty = |pages, fresh, runs| SyncDirty { pages, fresh, runs };
        let place = |dirty, options: &str, costs| {
            goes_in_place(dirty, 4096, &MountOptions::parse(options).unwrap(), costs)
        };
        // 6 ms are 120,000 bytes: 29.3 pages of one run.
        assert!(!place(dirty(29, 0, 1), "", EMMC) && place(dirty(30, 0, 1), "", EMMC));
        assert!(place(dirty(30, 30, 1), "", EMMC));
        // An address costs more than a copy of its page: never.
        assert!(!place(dirty(10_000, 0, 10_000), "", EMMC));
        // Where it costs nothing the flushes alone count: 0.6 ms are 30,000 bytes.
        assert!(!place(dirty(7, 0, 7), "", UFS) && place(dirty(8, 0, 8), "", UFS));
        // An option rules its own kind of data, in both directions.
        assert!(place(dirty(4, 0, 4), "eager_threshold=3", EMMC));
        assert!(!place(dirty(3, 0, 3), "eager_threshold=3", UFS));
        assert!(!place(dirty(100, 0, 100), "eager_threshold=100", UFS));
        assert!(place(dirty(100, 0, 1), "eager_threshold=100", UFS));
        assert!(place(dirty(2, 2, 1), "eager_stream=8K", EMMC));
        assert!(!place(dirty(1000, 1000, 1), "eager_stream=8M", EMMC));
        assert!(place(dirty(2, 0, 1), "eager_run=8K", EMMC));
        assert!(!place(dirty(2, 0, 2), "eager_run=8K", EMMC));
        assert!(!place(dirty(1000, 0, 1), "eager_run=8M", EMMC));
        // The sizes that are shown are those that decide.
        let sizes = |costs| {
            let found = EagerCosts::new(costs, 4096);
            (found.run_bytes, found.scattered_bytes)
        };
        assert_eq!(sizes(EMMC), (Some(30 * 4096), None));
        assert_eq!(sizes(UFS), (Some(8 * 4096), Some(8 * 4096)));
        // No time passes: to the log, as long as it takes them.
        let nothing = Costs { flush_ns: 0.0, byte_ns: 0.0, run_ns: 0.0 };
        assert!(!place(dirty(1000, 0, 1), "", nothing));
        assert_eq!(sizes(nothing), (None, None));
    }
}
