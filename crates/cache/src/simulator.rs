//! A cache without contents: runs one policy on a trace of page accesses and counts.
//!
//! Write-back is lazy: a dirty page is written when it is evicted, the rest at
//! [`Simulator::finish`]. Tested in `tests/golden.rs` against a plain model and exact figures.

use crate::{Accept, Access, CacheError, FrameId, Frames, PageKey, Policy};
use std::collections::BTreeMap;

/// What happened on a trace so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accesses to pages that were in the cache.
    pub hits: u64,
    /// Accesses to pages that were not.
    pub misses: u64,
    /// Pages given up.
    pub evictions: u64,
    /// Dirty pages written: at eviction, and at the end.
    pub write_backs: u64,
}

/// A policy with `capacity` frames.
pub struct Simulator {
    frames: Frames,
    policy: Box<dyn Policy>,
    pages: BTreeMap<PageKey, FrameId>,
    capacity: usize,
    counts: Counts,
}

impl Simulator {
    /// Runs the policy called `policy` on `capacity` frames (at least one).
    ///
    /// # Errors
    /// [`CacheError::UnknownPolicy`].
    pub fn new(policy: &str, capacity: usize) -> Result<Self, CacheError> {
        let capacity = capacity.max(1);
        Ok(Simulator {
            frames: Frames::new(capacity),
            policy: crate::policy(policy, capacity)?,
            pages: BTreeMap::new(),
            capacity,
            counts: Counts::default(),
        })
    }

    /// One access. Returns whether it hit.
    pub fn access(&mut self, key: PageKey, access: Access) -> bool {
        if let Some(&frame) = self.pages.get(&key) {
            self.counts.hits += 1;
            if access == Access::Write && !self.frames.is_dirty(frame) {
                self.frames.set_dirty(frame, true);
                self.policy.on_dirty(&self.frames, frame);
            }
            self.policy.on_hit(&self.frames, frame, access);
            return true;
        }
        self.counts.misses += 1;
        while self.pages.len() >= self.capacity {
            if !self.evict_one() {
                return false;
            }
        }
        if let Some(frame) = self.frames.insert(key, access == Access::Write) {
            self.policy.on_insert(&self.frames, frame, access);
            self.pages.insert(key, frame);
        }
        false
    }

    /// Drops a page without writing it, as when its file is deleted.
    pub fn forget(&mut self, key: PageKey) {
        if let Some(frame) = self.pages.remove(&key) {
            self.policy.on_remove(&self.frames, frame);
            self.frames.release(frame);
        }
    }

    /// Writes back what is dirty and returns the counts of the whole run.
    pub fn finish(mut self) -> Counts {
        let dirty = self.pages.values().filter(|frame| self.frames.is_dirty(**frame)).count();
        self.counts.write_backs += dirty as u64;
        self.counts
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Gives up one page. False if the policy named none: then the access is not cached.
    fn evict_one(&mut self) -> bool {
        let Some(frame) = self.policy.pick_victim(&self.frames, Accept::Any) else { return false };
        let Some(key) = self.frames.key(frame) else { return false };
        self.counts.evictions += 1;
        self.counts.write_backs += u64::from(self.frames.is_dirty(frame));
        self.forget(key);
        true
    }
}
