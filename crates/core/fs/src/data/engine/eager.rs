//! Eager sync: the changed data of one file and its part of the metadata, in one write.
//!
//! ```text
//!   fsync  io locked -> pages changed since the last sync (snapshots; they stay dirty)
//!          few:   one handle: blocks installed, i_disksize, data given to the journal
//!          many (more than eager_threshold, or a stream of new ones):
//!                 write_back: data in place, installed after it (the commit flushes first)
//!          -> Journal::sync(data blocks, inode slot): one write, one flush
//!
//!   write-back of a page that the log holds
//!          not changed since:  in place; that ends the log's obligation
//!          changed since:      journaled again, since recovery would put the old copy over it
//! ```
//!
//! Promises
//! - Data goes to the log in the same indivisible set as the extents that lead to it, so no crash
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

use syncline_device::Kind;
use syncline_jbd2::{Checksums, InPlacePage, JournalOptions, Member, WriteAction};

use crate::data::Files;
use crate::data::engine::Engine;
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
use crate::options::LogFormat;
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

    fn sent(&self, files: &Files, pages: &[OutPage]) {
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
    let (count, fresh, consecutive) = inode.pages.lock().sync_dirty_in(from, range.end);
    let options = &inodes.options;
    let bytes = |blocks: usize| (blocks * inodes.block_size()) as u64;
    // New blocks have no older content on disk, lie in one piece and are seldom written again; a
    // device takes a run in one piece. Both cost more as a copy in the log than as a second flush.
    if count > options.eager_threshold as usize
        || bytes(fresh) >= options.eager_stream_bytes
        || consecutive && bytes(count) >= options.eager_run_bytes
    {
        return Ok(false);
    }
    log_all_pages(inodes, inode, from..range.end, seeds)
}

/// As [`log_pages`], however many they are: false if one handle cannot have them.
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
    let mut h = inodes.start(credits as u32)?;
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

/// Parts of a page that may differ from what recovery gives of its block, if that is known.
fn known_changes(store: &Store, out: &OutPage) -> Option<u64> {
    let journal = store.journal.get().filter(|journal| out.plain && journal.is_packed())?;
    out.page.changes.known(|number| journal.is_flushed(number))
}

/// Journals the pages that must not be written over their older copies, in the set of the
/// inode: whatever shows them is not durable without them.
pub(crate) fn journal_again(inodes: &Inodes, inode: &Inode, pages: &[OutPage]) -> Result<()> {
    let chosen = pages.iter().filter(|out| out.action == WriteAction::Journal);
    let chosen: Vec<&OutPage> = chosen.collect();
    let kind = Kind::Data { inode: u64::from(inode.ino) };
    for pages in chosen.chunks(PAGES_PER_HANDLE) {
        let mut h = inodes.start(1 + pages.len() as u32)?;
        let mut st = inode.state.write();
        for out in pages {
            let changed = known_changes(inodes, out);
            h.journal_data(out.place, out.page.data.clone(), kind, changed)?;
        }
        write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)?;
    }
    Ok(())
}
