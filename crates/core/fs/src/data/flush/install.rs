//! Installation: written blocks become part of the file.

use syncline_jbd2::{Handle, InPlacePage, WriteAction};

use crate::data::flush::batch::{Job, OutPage};
use crate::data::flush::plan::{After, Segment, cancel_segments};
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::Inodes;
use crate::inode::delayed::end_delayed;
use crate::inode::table::write_inode;
use crate::map::extents::volume::{
    convert_extent, install_extent, map_credits, replace_credits, replace_extent,
};
use crate::pages::{Changes, WriteEnd};
use crate::space::Space;
use crate::space::balloc::core::Range;
use crate::space::balloc::reserve::Source;

/// Journal credits of one handle that installs several segments.
const HANDLE_CREDITS: u32 = 64;

/// Makes the written segments part of the file. `installed` counts those that are.
fn install_segments(
    inodes: &Inodes,
    inode: &Inode,
    segments: &[Segment],
    size: u64,
    installed: &mut usize,
) -> Result<()> {
    let credits = map_credits(inodes, &inode.state.read());
    let per_handle = (HANDLE_CREDITS / credits.max(1)).max(1);
    let one = |segment: &Segment| match segment.after {
        After::Replace(_) => replace_credits(inodes, &inode.state.read()),
        _ => credits,
    };
    for group in segments.chunks(per_handle as usize) {
        let end = group.last().map_or(0, Segment::end) * inodes.block_size() as u64;
        let grows = end.min(size) > inode.state.read().raw.i_size;
        if !grows && group.iter().all(Segment::is_plain) {
            *installed += group.len();
            continue;
        }
        let mut h = inodes.start_under_io(1 + group.iter().map(one).sum::<u32>())?;
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
        After::Replace(_) => replace_extent(space, h, inode, st, lblk, range)?,
    }
    if segment.reserved {
        let is_taken = matches!(segment.after, After::Install(source) if source != Source::Owned);
        end_delayed(space, st, (segment.lblk, segment.end()), is_taken);
    }
    Ok(())
}

/// Makes written blocks part of the file. Pages become clean, unless they were written to meanwhile
/// or are left to the journal.
pub(crate) fn finish_job(inodes: &Inodes, job: &mut Job<'_>) {
    install_job(inodes, job);
    end_job(inodes, job);
}

/// Installs the segments of a job, and cancels those that cannot be.
pub(crate) fn install_job(inodes: &Inodes, job: &mut Job<'_>) {
    let mut installed = 0;
    if job.result.is_ok() {
        job.result = install_segments(inodes, job.inode, &job.segments, job.size, &mut installed);
    }
    cancel_segments(inodes, job.segments.get(installed..).unwrap_or(&[]));
    job.segments.truncate(installed);
    job.placed_end = match &job.result {
        Ok(()) => u64::MAX,
        Err(_) => job.segments.last().map_or(0, Segment::end),
    };
}

/// Ends the write-back of the pages of a job that was installed.
pub(crate) fn end_job(inodes: &Inodes, job: &Job<'_>) {
    let mut tree = job.inode.pages.lock();
    for out in job.pages.iter().filter(|out| !out.page.fill) {
        let lblk = out.page.lblk;
        let placed = lblk < job.placed_end;
        let end = match out.action {
            _ if !placed => WriteEnd::Failed,
            WriteAction::Retry | WriteAction::Journal => WriteEnd::Logged,
            WriteAction::Write | WriteAction::Revoke | WriteAction::Skip => WriteEnd::Written,
        };
        tree.end_writeback(&inodes.pages, lblk, end, base_of(inodes, out, placed));
    }
}

/// The base of a page after its write-back; `placed`: nothing has failed.
fn base_of(inodes: &Inodes, out: &OutPage, placed: bool) -> Changes {
    match out.action {
        _ if !placed => Changes::UNKNOWN,
        // Noted when the write was complete, so it covers this page.
        action if action.is_write() && out.is_newer() => {
            Changes::since_flush(inodes.pages.flush_needed())
        }
        WriteAction::Journal => Changes::NONE,
        // As it was logged, or left for later.
        _ => out.page.changes,
    }
}
