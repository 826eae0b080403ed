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
//! Promises: for each file those of the module above. A group is made of at most [`GROUP_PAGES`]
//! pages, so that a sync of one of its files waits for no more than that.
//!
//! Locks: `io` of a group's files are taken without waiting, so their order does not matter; a file
//! that is busy is written by itself after the group. Tested in
//! `tests/it/file_io_sync.rs`, the crash tests of `syncline-model` and every count of a benchmark.

use std::sync::Arc;

use crate::data::Files;
use crate::data::flush::batch::collect_job;
use crate::data::flush::file::write_back;
use crate::data::flush::pass::write_jobs;
use crate::error::Result;
use crate::incore::Inode;
use crate::inode::iget::cached_inode;
use crate::pages::{GROUP_PAGES, Pick};
use crate::store::Store;

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

/// Records a file's error and lets the batch go on: lack of space for one file does not stop the
/// others. A latched volume does.
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
    let pick = Pick {
        from: 0,
        to: u64::MAX,
        max: GROUP_PAGES,
        run_max: 0,
        gap_max: files.engine.gap_pages_max(),
        unlogged: false,
    };
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
        job.inode.pages.lock().end_pass(&files.pages, &*files.clock);
        sent += job.pages.len();
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
