//! Write-back of one file, in passes of bounded length.
//!
//! Bounds: one pass sends at most [`PASS_PAGES`] pages; pages dirtied behind the cursor are left
//! for the next call, so a call ends however fast others write.
//!
//! Tested in `tests/it/file_io.rs`.

use crate::data::Files;
use crate::data::flush::batch::collect_job;
use crate::data::flush::pass::write_jobs;
use crate::data::flush::plan::first_unreached_block;
use crate::error::Result;
use crate::incore::Inode;
use crate::pages::{Pick, UNLOGGED};

/// Pages in one pass.
pub(crate) const PASS_PAGES: usize = 8192;

/// Writes back the dirty pages of blocks `from..to` that are dirty now. Returns how many were sent.
/// `sync`: a caller waits, which the requests carry as a flag.
///
/// Takes `io`; the caller holds nothing below it.
///
/// # Errors
/// [`crate::FsError::Latched`] and [`crate::FsError::ReadOnly`]; I/O errors, which latch the
/// volume; [`crate::FsError::NoSpace`] if index blocks cannot be had, which leaves the pages dirty.
pub(crate) fn write_back(
    files: &Files,
    inode: &Inode,
    from: u64,
    to: u64,
    sync: bool,
) -> Result<usize> {
    write_back_at_most(files, inode, (from, to), usize::MAX, sync)
}

/// As [`write_back`] of the pages that no transaction has as they are, for a sync of the file.
pub(crate) fn write_unlogged(files: &Files, inode: &Inode, from: u64, to: u64) -> Result<()> {
    write_picked(files, inode, Pick { from, to, ..UNLOGGED }, usize::MAX, true).map(drop)
}

/// As [`write_back`] of the first `most` of these pages.
pub(crate) fn write_back_at_most(
    files: &Files,
    inode: &Inode,
    (from, to): (u64, u64),
    most: usize,
    sync: bool,
) -> Result<usize> {
    write_picked(files, inode, Pick { from, to, unlogged: false, ..UNLOGGED }, most, sync)
}

fn write_picked(
    files: &Files,
    inode: &Inode,
    mut pick: Pick,
    most: usize,
    sync: bool,
) -> Result<usize> {
    if !inode.pages.lock().has_dirty() {
        return Ok(0);
    }
    files.check_writable()?;
    let _io = inode.io.lock();
    pick.from = pick.from.min(first_unreached_block(files, inode));
    pick.gap_max = files.engine.gap_pages_max();
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
    // Other dirty pages keep their age.
    if sent < most || !tree.has_dirty() {
        tree.end_pass(&files.pages, &*files.clock);
    }
    result.map(|()| sent)
}

/// Writes back a file that has delayed blocks, so that its data is on the device, and its blocks
/// part of the running transaction, before anything later commits (`ext4_alloc_da_blocks`). It does
/// not flush.
///
/// # Errors
/// As [`write_back`].
pub(crate) fn write_delayed(files: &Files, inode: &Inode) -> Result<()> {
    if inode.pages.lock().delalloc() == 0 {
        return Ok(());
    }
    write_back(files, inode, 0, u64::MAX, false).map(drop)
}

/// Writes the delayed blocks back that are in a cluster with an edge of `from..to` and outside of
/// this range, which is to be unmapped: the cluster, which they count on, might go with it. The
/// caller holds `rwsem`, and neither `io` nor a handle.
///
/// # Errors
/// As [`write_back`].
pub(crate) fn place_edges(files: &Files, inode: &Inode, (from, to): (u64, u64)) -> Result<()> {
    let mask = u64::from(files.geo.cluster_blocks()) - 1;
    let outside = [(from & !mask, from), (to, to.saturating_add(mask) & !mask)];
    for (first, end) in outside {
        let is_delayed = {
            let tree = inode.pages.lock();
            tree.delalloc() > 0 && (first..end).any(|lblk| tree.is_delalloc(lblk))
        };
        if is_delayed {
            write_back(files, inode, first, end, false)?;
        }
    }
    Ok(())
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
    job.may_revoke = pick.unlogged;
    let Some(last) = job.pages.last() else { return Ok(None) };
    let (next, pages) = (last.page.lblk + 1, job.pages.len());
    write_jobs(files, std::slice::from_mut(&mut job), sync);
    job.result.map(|()| Some((next, pages)))
}
