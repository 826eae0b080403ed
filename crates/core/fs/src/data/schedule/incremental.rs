//! Background write-back of eager mode, in steps of bounded length.
//!
//! ```text
//!   starts   data or metadata has expired, too much is dirty, or the log is 7/8 full
//!   down     while too much is dirty, in an order of pages (`victims`): `run_step_pages` a step
//!   pages    file by file, block by block: at most STEP_PAGES changed pages a step, or one request
//!            of consecutive ones; small files together (`flush/files`)
//!   journal  what is left of the transactions that were there at the start, a step at a time; not
//!            if too many dirty pages are the only reason, of which its blocks are none
//!   ends     the tail moves
//! ```
//!
//! An eager sync leaves data in the log and dirty in the cache, so a file that is overwritten at
//! random is written back long after, sorted and whole. Between two steps nothing is locked: a sync
//! of the same file waits for one step at most, everybody else for none.
//!
//! For log space only files are written of which the log holds something; the others stay until
//! they expire. A pass that lasts is continued by each [`crate::Volume::tick`], which is due at
//! once until it is over. A caller that finds the log full before that makes room itself, in the
//! journal's steps.
//!
//! Tested in `tests/it/eager.rs`.

use syncline_device::MAX_REQUEST_BYTES;

use crate::data::Files;
use crate::data::flush::file::write_pass;
use crate::data::flush::files::{Group, write_group};
use crate::data::flush::plan::first_unreached_block;
use crate::data::schedule::state::Incremental;
use crate::data::schedule::timers::{expire_ns, writeback_due};
use crate::data::schedule::victims::write_victims;
use crate::error::Result;
use crate::incore::Inode;
use crate::inode::Inodes;
use crate::inode::iget::cached_inode;
use crate::options::Writeback;
use crate::pages::{GROUP_PAGES, Pick};

/// Changed pages of one step; also blocks of one step of the journal.
pub(crate) const STEP_PAGES: usize = 64;

/// Times that the pages of a step in an order of pages take at least what going to them takes.
const RUN_FACTOR: f64 = 4.0;

/// True if [`incremental_tick`] has work to do at once.
pub(crate) fn incremental_is_due(files: &Files) -> bool {
    let low = || files.journal().is_ok_and(|journal| journal.is_space_low());
    files.schedule.incremental.try_lock().is_some_and(|pass| pass.is_some()) || low()
}

/// True while a pass is under way.
pub(crate) fn is_incremental_under_way(files: &Files) -> bool {
    files.schedule.incremental.try_lock().is_none_or(|pass| pass.is_some())
}

/// Begins a pass if one is due, and does one step. One caller at a time; others do nothing.
pub(crate) fn incremental_tick(files: &Files, now_ns: u64) -> Result<()> {
    let Some(mut current) = files.schedule.incremental.try_lock() else { return Ok(()) };
    if current.is_none() {
        *current = begin_incremental(files, now_ns)?;
    }
    if let Some(pass) = current.as_mut() {
        if !incremental_step(files, pass)? {
            *current = None;
        }
    }
    Ok(())
}

fn begin_incremental(files: &Files, now_ns: u64) -> Result<Option<Incremental>> {
    let journal = files.journal()?;
    let pass = Incremental {
        started_ns: files.clock.now_ns(),
        before_ns: u64::MAX,
        for_space: true,
        journal: true,
        upto: journal.next_sequence(),
        file: None,
        next: 0,
        after: None,
        pages_done: false,
        down: files.pages.cleaner.is_some() && files.pages.above_background(),
    };
    if journal.is_space_low() {
        return Ok(Some(pass));
    }
    let expire_ns = expire_ns(files);
    let before_ns = now_ns.saturating_sub(expire_ns);
    let due = writeback_due(files, now_ns)?;
    let oldest = files.pages.next_dirty_file(None);
    let old = oldest.is_some_and(|(dirtied_ns, _)| dirtied_ns.saturating_add(expire_ns) <= now_ns);
    let journal = journal.take_expired(now_ns) || due && old;
    let many = due && oldest.is_some() && files.pages.above_background();
    Ok((journal || many).then_some(Incremental { before_ns, for_space: false, journal, ..pass }))
}

/// One step. False: the pass is over.
fn incremental_step(files: &Files, pass: &mut Incremental) -> Result<bool> {
    if pass.down && files.pages.excess() > 0 && write_victims(files, run_step_pages(files))? > 0 {
        return Ok(true);
    }
    pass.down = false;
    let mut group = Group::default();
    while !pass.pages_done {
        let Some(file) = pass.file.or_else(|| next_file(files, pass, group.pages)) else {
            pass.pages_done = true;
            break;
        };
        let inode = cached_inode(files, file.1)
            .filter(|inode| !pass.for_space || pass.next > 0 || inode.pages.lock().has_logged());
        if let Some(inode) = inode {
            let pages = inode.pages.lock().dirty();
            let small = pass.next == 0 && pages <= STEP_PAGES;
            if !group.is_empty() && (!small || group.pages + pages > STEP_PAGES) {
                break;
            }
            if small {
                group.push(inode, pages);
            } else if write_step(files, pass, &inode)? {
                return Ok(true);
            }
        }
        (pass.file, pass.after) = (None, Some(file));
    }
    if !group.is_empty() {
        // The pages of a file that fails stay dirty; its next fsync reports the error.
        if write_group(files, group, false).is_err() {
            files.latch.check()?;
        }
        return Ok(true);
    }
    Ok(pass.journal && files.journal()?.checkpoint_step(pass.upto, pass.for_space)?)
}

/// Pages of a step in an order of pages. Along the files (`writeback=space`) it depends on the
/// device: between two steps a sync may write to the log, and the device has to go to another
/// address twice. Where that costs much a step is longer, up to what goes together anywhere.
fn run_step_pages(files: &Files) -> usize {
    if files.options.writeback_order() != Writeback::Space {
        return STEP_PAGES;
    }
    let costs = files.device_costs();
    let page_ns = costs.byte_ns * files.block_size() as f64;
    ((RUN_FACTOR * costs.run_ns / page_ns) as usize).clamp(STEP_PAGES, GROUP_PAGES)
}

/// The file after the last one that is due once `sent` pages are clean.
fn next_file(inodes: &Inodes, pass: &mut Incremental, sent: usize) -> Option<(u64, u32)> {
    let file = inodes.pages.next_dirty_file(pass.after)?;
    let old = file.0 <= pass.before_ns || inodes.pages.above_background_by(sent);
    if file.0 > pass.started_ns || !old {
        return None;
    }
    (pass.file, pass.next) = (Some(file), 0);
    Some(file)
}

/// One step on a file. False: nothing is left of it.
fn write_step(files: &Files, pass: &mut Incremental, inode: &Inode) -> Result<bool> {
    let _io = inode.io.lock();
    let pick = Pick {
        from: pass.next.min(first_unreached_block(files, inode)),
        to: u64::MAX,
        max: STEP_PAGES,
        run_max: MAX_REQUEST_BYTES as usize / files.block_size(),
        gap_max: files.engine.gap_pages_max(),
        unlogged: false,
    };
    match write_pass(files, inode, &pick, false) {
        Ok(Some((next, _))) => {
            pass.next = next;
            return Ok(true);
        }
        Ok(None) => {}
        // The pages stay dirty; the next fsync of the file reports the error.
        Err(_) => files.latch.check()?,
    }
    inode.pages.lock().end_pass(&files.pages, &*files.clock);
    Ok(false)
}
