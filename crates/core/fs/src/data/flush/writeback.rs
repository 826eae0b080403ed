//! Write-back of one file: allocate, write the data in place, then install the blocks.
//!
//! ```text
//!   io locked --> collect dirty pages (snapshots) --> plan: where each run goes
//!      | allocate: delayed blocks get places in memory only
//!      v
//!   write: one plug of data, no handle, no state lock held
//!      v
//!   install: handle(s): bitmap bits, extents, unwritten -> written, i_blocks, i_disksize
//!      v
//!   pages clean, unless somebody wrote to them meanwhile
//! ```
//!
//! Promises ("install after write", the ordered mode)
//! - No transaction ever points at a block whose data was not written before the transaction could
//!   commit; the commit's flush makes that data durable before its commit record. So a crash shows
//!   no stale data.
//! - i_disksize covers only what was written; in each handle it grows with the extents.
//! - An overwrite of written blocks starts no handle at all.
//! - A failed write latches the volume: the pages stay dirty, every later fsync fails.
//!
//! Several files go out as one plug: `together.rs`.
//!
//! Bounds: one pass sends at most [`PASS_PAGES`] pages; pages dirtied behind the cursor are left
//! for the next call, so a call ends however fast others write.
//!
//! Tested in `tests/file_io.rs`.

use std::sync::Arc;

use syncline_jbd2::Handle;

use crate::data::Files;
use crate::data::blocks::{Run, map_range};
use crate::data::flush::together::{collect_job, gap_max, write_jobs};
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::Inodes;
use crate::inode::table::write_inode;
use crate::map::extents::volume::{allocate_blocks, convert_extent, install_extent, map_credits};
use crate::pages::{Outgoing, Pick};
use crate::space::Space;
use crate::space::balloc::{Range, Source};
use crate::store::Store;

/// Pages in one pass.
const PASS_PAGES: usize = 8192;

/// Eager mode: clean pages between two dirty ones that are written along with them. A flash device
/// programs more than that anyway when it has to end one run and begin another.
pub(crate) const GAP_PAGES_MAX: usize = 8;

/// Journal credits of one handle that installs several segments.
const HANDLE_CREDITS: u32 = 64;

/// What has to be done about a segment once its data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The blocks were in use already.
    Nothing,
    /// Unwritten blocks become written.
    Convert,
    /// Blocks taken in memory, from reserved ones or not, go into bitmap and extents.
    Install(Source),
}

/// Consecutive logical blocks that go to consecutive physical ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) lblk: u64,
    pub(crate) pblk: u64,
    pub(crate) len: u32,
    pub(crate) after: After,
    /// Its pages hold reserved blocks.
    pub(crate) reserved: bool,
}

impl Segment {
    pub(crate) fn end(&self) -> u64 {
        self.lblk + u64::from(self.len)
    }

    /// Its blocks hold data already: nothing has to be installed.
    pub(crate) fn is_plain(&self) -> bool {
        self.after == After::Nothing && !self.reserved
    }
}

/// Writes back the dirty pages of blocks `from..to` that are dirty now. Returns how many were
/// sent. `sync`: somebody waits for it (the requests say so).
///
/// Takes `io`; the caller holds nothing below it.
///
/// # Errors
/// [`FsError::Latched`] and [`FsError::ReadOnly`]; I/O errors, which latch the volume;
/// [`FsError::NoSpace`] if index blocks cannot be had, which leaves the pages dirty.
pub(crate) fn write_back(
    files: &Files,
    inode: &Inode,
    from: u64,
    to: u64,
    sync: bool,
) -> Result<usize> {
    write_back_at_most(files, inode, (from, to), usize::MAX, sync)
}

/// As [`write_back`] of the first `most` of these pages.
pub(crate) fn write_back_at_most(
    files: &Files,
    inode: &Inode,
    (from, to): (u64, u64),
    most: usize,
    sync: bool,
) -> Result<usize> {
    if !inode.pages.lock().has_dirty() {
        return Ok(0);
    }
    files.check_writable()?;
    let _io = inode.io.lock();
    let from = from.min(first_unreached_block(files, inode));
    let mut pick = Pick { from, to, max: PASS_PAGES, run_max: 0, gap_max: gap_max(files) };
    let mut sent = 0;
    let result = loop {
        if sent >= most {
            break Ok(());
        }
        pick.max = PASS_PAGES.min(most - sent);
        match write_pass(files, inode, &pick, sync) {
            Ok(None) => break Ok(()),
            Ok(Some((next, pages))) => (pick.from, sent) = (next, sent + pages),
            Err(err) => break Err(err),
        }
    };
    let mut tree = inode.pages.lock();
    // What was not asked for is as old as before.
    if sent < most || !tree.has_dirty() {
        tree.settle(&files.pages, &*files.clock);
    }
    result.map(|()| sent)
}

/// Writes back a file that has delayed blocks, so that its data is on the device, and its
/// blocks part of the running transaction, before anything later commits
/// (`ext4_alloc_da_blocks`). Nobody waits for a flush.
///
/// # Errors
/// As [`write_back`].
pub(crate) fn write_delayed(files: &Files, inode: &Inode) -> Result<()> {
    let reserved_blocks = inode.state.read().reserved_blocks;
    if reserved_blocks == 0 {
        return Ok(());
    }
    write_back(files, inode, 0, u64::MAX, false).map(drop)
}

/// One pass of write-back: returns where the next one begins and how many pages went; `None`:
/// there was nothing. The caller holds `io`.
pub(crate) fn write_pass(
    files: &Files,
    inode: &Inode,
    pick: &Pick,
    sync: bool,
) -> Result<Option<(u64, usize)>> {
    let mut job = collect_job(inode, |tree| tree.collect(&files.pages, pick));
    let Some(last) = job.batch.last() else { return Ok(None) };
    let (next, pages) = (last.lblk + 1, job.batch.len());
    write_jobs(files, std::slice::from_mut(&mut job), sync);
    job.result.map(|()| Some((next, pages)))
}

/// Block of the size on disk if that lags behind. Whatever raises it writes from there on: the
/// block may hold zeros over old bytes that a shrinking truncate left, and a size beyond it
/// would show those bytes after a crash.
pub(crate) fn first_unreached_block(store: &Store, inode: &Inode) -> u64 {
    let st = inode.state.read();
    if st.size > st.raw.i_size { st.raw.i_size >> store.geo.block_bits } else { u64::MAX }
}

/// What is sent of the block that holds the end of the file is zero behind it.
pub(crate) fn zero_behind_end(store: &Store, batch: &mut [Outgoing], size: u64) {
    let block_size = store.block_size() as u64;
    let Some(last) = batch.last_mut() else { return };
    let used = size.saturating_sub(last.lblk.saturating_mul(block_size));
    if used < block_size && last.data[used as usize..].iter().any(|byte| *byte != 0) {
        Arc::make_mut(&mut last.data)[used as usize..].fill(0);
    }
}

/// Finds or allocates a place for every page of the batch. What `segments` holds after an error
/// has to be cancelled. `to_log`: the data goes to the log, not in place.
pub(crate) fn plan_batch(
    space: &Space,
    inode: &Inode,
    batch: &[Outgoing],
    to_log: bool,
    segments: &mut Vec<Segment>,
) -> Result<()> {
    let mut rest = batch;
    while let Some(first) = rest.first() {
        // One run: consecutive blocks that are all delayed or all not.
        let same = |i: u64, page: &Outgoing| {
            page.lblk == first.lblk + i && page.delalloc == first.delalloc
        };
        let len = (0..).zip(rest).take_while(|(i, page)| same(*i, page)).count();
        for run in map_range(space, inode, first.lblk, first.lblk + len as u64)? {
            plan_mapped(space, inode, &run, (first.delalloc, to_log), segments)?;
        }
        rest = &rest[len..];
    }
    Ok(())
}

fn plan_mapped(
    space: &Space,
    inode: &Inode,
    run: &Run,
    (reserved, to_log): (bool, bool),
    segments: &mut Vec<Segment>,
) -> Result<()> {
    let after = match (run.is_hole(), run.unwritten) {
        (true, _) => return plan_hole(space, inode, run, (reserved, to_log), segments),
        (false, true) => After::Convert,
        (false, false) => After::Nothing,
    };
    // A batch has fewer than 2^32 pages.
    let len = run.len as u32;
    if after == After::Nothing && !reserved {
        space.hot.note_overwritten(inode, len, || {
            inode.state.read().size.div_ceil(space.block_size() as u64)
        });
    }
    segments.push(Segment { lblk: run.lblk, pblk: run.pblk, len, after, reserved });
    Ok(())
}

/// Allocates, in memory, for a hole.
fn plan_hole(
    space: &Space,
    inode: &Inode,
    hole: &Run,
    (reserved, to_log): (bool, bool),
    segments: &mut Vec<Segment>,
) -> Result<()> {
    let source = match reserved {
        true => Source::Reserved,
        false => space.balloc.unreserved(),
    };
    let (mut lblk, end) = (hole.lblk, hole.lblk + hole.len);
    while lblk < end {
        let before = segments.last().filter(|last| last.end() == lblk);
        let goal = before.map(|last| last.pblk + u64::from(last.len));
        let at = u32::try_from(lblk).map_err(|_| FsError::TooBig)?;
        let want = u32::try_from(end - lblk).unwrap_or(u32::MAX);
        let claimed =
            (reserved && to_log).then(|| space.balloc.claim(inode.ino, inode.life(), want));
        let (range, source) = match claimed.flatten() {
            Some(claimed) => claimed,
            None => {
                let st = inode.state.read();
                (allocate_blocks(space, inode, &st, (at, want), source, goal)?, source)
            }
        };
        let (pblk, len, after) = (range.start, range.len, After::Install(source));
        segments.push(Segment { lblk, pblk, len, after, reserved });
        lblk += u64::from(range.len.max(1));
    }
    Ok(())
}

/// Gives back what was allocated and will not be installed.
pub(crate) fn cancel_segments(space: &Space, segments: &[Segment]) {
    for segment in segments {
        if let After::Install(source) = segment.after {
            let range = Range { start: segment.pblk, len: segment.len };
            space.balloc.cancel(range, source);
        }
    }
}

/// Makes the written segments part of the file. `installed` counts those that are.
pub(crate) fn install_segments(
    inodes: &Inodes,
    inode: &Inode,
    segments: &[Segment],
    size: u64,
    installed: &mut usize,
) -> Result<()> {
    let credits = map_credits(inodes, &inode.state.read());
    let per_handle = (HANDLE_CREDITS / credits.max(1)).max(1);
    for group in segments.chunks(per_handle as usize) {
        let end = group.last().map_or(0, Segment::end) * inodes.block_size() as u64;
        let grows = end.min(size) > inode.state.read().raw.i_size;
        if !grows && group.iter().all(Segment::is_plain) {
            *installed += group.len();
            continue;
        }
        let mut h = inodes.start(1 + credits * group.len() as u32)?;
        h.require_flush();
        let mut st = inode.state.write();
        let mut result = Ok(());
        for segment in group {
            result = install_one(inodes, &mut h, inode, &mut st, segment);
            if result.is_err() {
                break;
            }
            *installed += 1;
            // A truncate cannot run now (`io`), so the size is still at least this.
            let end = segment.end().saturating_mul(inodes.block_size() as u64);
            st.raw.i_size = st.raw.i_size.max(end.min(size));
        }
        // What was installed before an error is part of the file.
        write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)?;
        result?;
    }
    Ok(())
}

pub(crate) fn install_one(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    segment: &Segment,
) -> Result<()> {
    let lblk = u32::try_from(segment.lblk).map_err(|_| FsError::TooBig)?;
    let range = Range { start: segment.pblk, len: segment.len };
    match segment.after {
        After::Nothing => {}
        After::Convert => {
            // One extent, so one step; the mapping of this range came from it.
            convert_extent(space, h, inode, st, (lblk, lblk + segment.len), false)?;
        }
        After::Install(_) => install_extent(space, h, inode, st, lblk, range, false)?,
    }
    if segment.reserved {
        st.reserved_blocks = st.reserved_blocks.saturating_sub(u64::from(segment.len));
        if !matches!(segment.after, After::Install(_)) {
            // Somebody allocated below a delayed page: its reservation is not needed.
            space.balloc.release(u64::from(segment.len));
        }
    }
    Ok(())
}
