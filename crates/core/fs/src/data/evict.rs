//! Making room: clean pages leave in the order of the policy before new ones come in.
//!
//! Called with no `state`, `pages` or handle held, since the victim may belong to any file. A dirty
//! victim is written back only if the policy finds no clean one, which takes a cache full of dirty
//! pages: `dirty_ratio` keeps writers far from that.
//!
//! Bound: at most [`TRIES_PER_PAGE`] picks for each page of room, then the cache grows over its
//! limit rather than refuse; the next call tries again.

use std::sync::atomic::Ordering;

use syncline_cache::{Accept, FrameId};

use crate::data::Files;
use crate::data::flush::file::write_back;
use crate::data::schedule::victims::write_victims;
use crate::inode::Inodes;
use crate::inode::iget::cached_inode;
use crate::pages::GROUP_PAGES;

/// Picks that may turn out useless (raced by a writer) for each page of room.
const TRIES_PER_PAGE: usize = 4;

/// Gives up clean pages until `pages` more fit under the limit.
#[inline]
pub(crate) fn make_room(files: &Files, pages: usize) {
    let limit = files.pages.pages_max().saturating_sub(pages);
    if files.pages.frames.len() > limit {
        evict_down_to(files, limit, pages);
    }
}

#[cold]
fn evict_down_to(files: &Files, limit: usize, pages: usize) {
    let excess = files.pages.frames.len().saturating_sub(limit);
    let mut tries = excess.max(pages).saturating_mul(TRIES_PER_PAGE);
    while files.pages.frames.len() > limit && tries > 0 {
        tries -= 1;
        match files.pages.policy.pick_victim(&files.pages.frames, Accept::Clean) {
            Some(frame) => evict_frame(files, frame),
            None if !write_back_a_victim(files) => return,
            None => {}
        }
    }
}

/// Removes the page in `frame` if it is still clean.
fn evict_frame(inodes: &Inodes, frame: FrameId) {
    let Some(key) = inodes.pages.frames.key(frame) else { return };
    let Ok(ino) = u32::try_from(key.file) else { return };
    let Some(inode) = cached_inode(inodes, ino) else { return };
    if inode.pages.lock().evict(&inodes.pages, key.index, frame) {
        inodes.pages.evicted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes back the file of the policy's dirty victim, in an order of pages those that are next in
/// it. False: there is none or it failed.
fn write_back_a_victim(files: &Files) -> bool {
    if write_victims(files, GROUP_PAGES).is_ok_and(|cleaned| cleaned > 0) {
        return true;
    }
    let Some(frame) = files.pages.policy.pick_victim(&files.pages.frames, Accept::Any) else {
        return false;
    };
    let key = files.pages.frames.key(frame);
    let Some(ino) = key.and_then(|key| u32::try_from(key.file).ok()) else { return false };
    match cached_inode(files, ino) {
        Some(inode) => write_back(files, &inode, 0, u64::MAX, false).is_ok(),
        None => false,
    }
}
