//! Making room: clean pages leave in the order of the policy before new ones come in.
//!
//! Called with no `state`, `pages` or handle held, since the victim may belong to any file. A dirty
//! victim is written back only if the policy finds no clean one, which takes a cache full of dirty
//! pages: `dirty_ratio` keeps writers far from that.
//!
//! Bound: at most [`TRIES_PER_PAGE`] picks for each page of room, then the cache grows over its
//! limit rather than refuse; the next call tries again.

use crate::together::GROUP_PAGES;
use crate::volume::Inner;
use std::sync::atomic::Ordering;
use syncline_cache::{Accept, FrameId};

/// Picks that may turn out useless (raced by a writer) for each page of room.
const TRIES_PER_PAGE: usize = 4;

impl Inner {
    /// Gives up clean pages until `pages` more fit under the limit.
    #[inline]
    pub(crate) fn make_room(&self, pages: usize) {
        let limit = self.pages.pages_max().saturating_sub(pages);
        if self.pages.frames.len() > limit {
            self.evict_down_to(limit, pages);
        }
    }

    #[cold]
    fn evict_down_to(&self, limit: usize, pages: usize) {
        let excess = self.pages.frames.len().saturating_sub(limit);
        let mut tries = excess.max(pages).saturating_mul(TRIES_PER_PAGE);
        while self.pages.frames.len() > limit && tries > 0 {
            tries -= 1;
            match self.pages.policy.pick_victim(&self.pages.frames, Accept::Clean) {
                Some(frame) => self.evict_frame(frame),
                None if !self.write_back_a_victim() => return,
                None => {}
            }
        }
    }

    /// Removes the page in `frame` if it is still clean.
    fn evict_frame(&self, frame: FrameId) {
        let Some(key) = self.pages.frames.key(frame) else { return };
        let Ok(ino) = u32::try_from(key.file) else { return };
        let Some(inode) = self.cached_inode(ino) else { return };
        if inode.pages.lock().evict(&self.pages, key.index, frame) {
            self.pages.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes back the file of the policy's dirty victim, with `writeback=policy` the pages that
    /// it gives up first. False: there is none or it failed.
    fn write_back_a_victim(&self) -> bool {
        if self.write_victims(GROUP_PAGES).is_ok_and(|cleaned| cleaned > 0) {
            return true;
        }
        let Some(frame) = self.pages.policy.pick_victim(&self.pages.frames, Accept::Any) else {
            return false;
        };
        let key = self.pages.frames.key(frame);
        let Some(ino) = key.and_then(|key| u32::try_from(key.file).ok()) else { return false };
        match self.cached_inode(ino) {
            Some(inode) => self.write_back(&inode, 0, u64::MAX, false).is_ok(),
            None => false,
        }
    }
}
