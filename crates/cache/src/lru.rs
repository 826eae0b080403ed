//! LRU: the page that was not used for the longest time goes first.
//!
//! ```text
//!    newest <-> ... <-> oldest        doubly linked through one vector, indexed by slot
//! ```
//!
//! When not to use it: under many threads (every hit takes the list's lock), or with scans larger
//! than the cache. It does not tell clean from dirty.
//!
//! Promises: a hit is O(1); a pick looks at no more than [`SCAN_MAX`] frames from the oldest on, so
//! that pinned or dirty pages at the end of the list cannot make it slow. A picked frame that stays
//! becomes the newest. Tested below and in `tests/golden.rs`.

use crate::{Accept, Access, FrameId, Frames, Policy};
use parking_lot::Mutex;

/// Frames that one pick looks at.
pub const SCAN_MAX: usize = 4096;

/// End of a list, or a slot that is not linked.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
    linked: bool,
}

const UNLINKED: Link = Link { newer: NONE, older: NONE, linked: false };

/// The policy `lru`.
pub struct Lru {
    list: Mutex<List>,
}

struct List {
    links: Vec<Link>,
    newest: u32,
    oldest: u32,
}

impl List {
    fn push_newest(&mut self, slot: u32) {
        let at = slot as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, UNLINKED);
        }
        self.links[at] = Link { newer: NONE, older: self.newest, linked: true };
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.links[newest as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) -> bool {
        let Some(link) = self.links.get(slot as usize).copied().filter(|link| link.linked) else {
            return false;
        };
        match link.newer {
            NONE => self.newest = link.older,
            newer => self.links[newer as usize].older = link.older,
        }
        match link.older {
            NONE => self.oldest = link.newer,
            older => self.links[older as usize].newer = link.newer,
        }
        self.links[slot as usize] = UNLINKED;
        true
    }

    fn refresh(&mut self, slot: u32) {
        if self.newest != slot && self.unlink(slot) {
            self.push_newest(slot);
        }
    }
}

impl Lru {
    /// An empty list with room for `capacity_frames`; it grows when more are inserted.
    pub fn new(capacity_frames: usize) -> Self {
        let links = Vec::with_capacity(capacity_frames.min(1 << 20));
        Lru { list: Mutex::new(List { links, newest: NONE, oldest: NONE }) }
    }
}

impl Policy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn on_insert(&self, _frames: &Frames, frame: FrameId, _access: Access) {
        let mut list = self.list.lock();
        list.unlink(frame.0);
        list.push_newest(frame.0);
    }

    fn on_hit(&self, _frames: &Frames, frame: FrameId, _access: Access) {
        self.list.lock().refresh(frame.0);
    }

    fn on_remove(&self, _frames: &Frames, frame: FrameId) {
        self.list.lock().unlink(frame.0);
    }

    fn pick_victim(&self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let mut list = self.list.lock();
        let mut slot = list.oldest;
        for _ in 0..SCAN_MAX {
            if slot == NONE {
                return None;
            }
            if frames.evictable(FrameId(slot), accept) {
                list.refresh(slot);
                return Some(FrameId(slot));
            }
            slot = list.links[slot as usize].newer;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageKey;

    fn three() -> (Frames, Lru) {
        let (frames, lru) = (Frames::new(3), Lru::new(3));
        for index in 0..3 {
            let frame = frames.insert(PageKey { file: 0, index }, false).unwrap();
            lru.on_insert(&frames, frame, Access::Read);
        }
        (frames, lru)
    }

    #[test]
    fn the_oldest_goes_and_a_hit_makes_it_the_newest() {
        let (frames, lru) = three();
        lru.on_hit(&frames, FrameId(0), Access::Write);
        assert_eq!(lru.pick_victim(&frames, Accept::Any), Some(FrameId(1)));
        lru.on_remove(&frames, FrameId(1));
        frames.release(FrameId(1));
        assert_eq!(lru.pick_victim(&frames, Accept::Any), Some(FrameId(2)));
        assert_eq!(lru.pick_victim(&frames, Accept::Any), Some(FrameId(0)));
        assert_eq!(lru.pick_victim(&frames, Accept::Any), Some(FrameId(2)));
    }

    #[test]
    fn pinned_and_dirty_pages_are_passed_over_in_place() {
        let (frames, lru) = three();
        frames.set_pinned(FrameId(0), true);
        frames.set_dirty(FrameId(1), true);
        assert_eq!(lru.pick_victim(&frames, Accept::Clean), Some(FrameId(2)));
        frames.set_pinned(FrameId(0), false);
        assert_eq!(lru.pick_victim(&frames, Accept::Clean), Some(FrameId(0)));
    }

    #[test]
    fn removing_twice_or_an_unknown_frame_does_nothing() {
        let (frames, lru) = three();
        lru.on_remove(&frames, FrameId(1));
        lru.on_remove(&frames, FrameId(1));
        lru.on_remove(&frames, FrameId(99));
        lru.on_hit(&frames, FrameId(1), Access::Read);
        assert_eq!(lru.pick_victim(&frames, Accept::Any), Some(FrameId(0)));
        assert_eq!(lru.pick_victim(&frames, Accept::Any), Some(FrameId(2)));
    }
}
