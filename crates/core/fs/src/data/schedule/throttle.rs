//! Dirty throttling: a writer that dirties too much writes some pages back before it continues.
//!
//! Names and meaning are Linux's `vm.dirty_ratio`, as a share of `cache=`. Above
//! `dirty_background_ratio` [`crate::Volume::tick`] writes at once, whatever the age of the pages
//! (`sync.rs`), so that a writer which is not faster than the device does not come here. One that
//! is writes itself, its own file first (in an order of pages those that are next):
//! more than it has dirtied since, so that the dirty pages get fewer, but no more than
//! [`SHARE_PAGES`], so that no call waits for the whole backlog.
//!
//! Called with `rwsem` of the writer's file at most; waits for `io` of one file at a time.

use crate::data::Files;
use crate::data::flush::file::write_back_at_most;
use crate::data::flush::files::{Group, write_group};
use crate::data::schedule::victims::write_victims;
use crate::incore::Inode;
use crate::inode::iget::cached_inode;

/// Pages that one step of a writer writes back at most: 4 times what the step dirties.
const SHARE_PAGES: usize = 256;

/// Writes back the writer's share, or the remaining excess if that is less. An error latches the
/// volume (or, for lack of space, stays with the file); the next write or fsync reports it.
#[cold]
pub(crate) fn balance_dirty(files: &Files, inode: &Inode) {
    if write_victims(files, files.pages.excess().min(SHARE_PAGES)).is_ok_and(|cleaned| cleaned > 0)
    {
        return;
    }
    let write = |file: &Inode, pages| write_back_at_most(files, file, (0, u64::MAX), pages, false);
    let mut left = SHARE_PAGES.saturating_sub(write(inode, SHARE_PAGES).unwrap_or(0));
    let (mut after, mut group) = (None, Group::default());
    while left > 0 && files.pages.above_throttle_by(group.pages) {
        let Some(file) = files.pages.next_dirty_file(after) else { break };
        after = Some(file);
        let Some(other) = cached_inode(files, file.1) else { continue };
        let pages = other.pages.lock().dirty();
        if pages <= left {
            group.push(other, pages);
            left -= pages;
        } else {
            left -= write(&other, left).unwrap_or(0).min(left);
        }
    }
    let _ = write_group(files, group, false);
    let _ = files.engine.throttle(files, inode, SHARE_PAGES);
}
