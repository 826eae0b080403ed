//! The frame table: slot numbers with a key and flags each, readable without a lock.
//!
//! ```text
//!   tops: [ OnceLock<chunk> | OnceLock<chunk> | ... ]     fixed length, chunks made on first use
//!             chunk: FRAMES_PER_CHUNK x { key.index and four flags, key.file }      16 bytes each
//! ```
//!
//! Promises: a frame's state stays at one address, so hits are single atomic operations; released
//! slots are reused last-in first-out, which makes the order of [`crate::policy::clock::Clock`] the
//! textbook one (a new page takes the place of the victim).
//!
//! Assumptions: the owner serialises insert and release of one frame, see the crate documentation.

use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Frames in one allocation of the table.
const FRAMES_PER_CHUNK: usize = 4096;

const IN_USE: u64 = 1;
const DIRTY: u64 = 2;
const PINNED: u64 = 4;
const REFERENCED: u64 = 8;
/// The flags are the low bits of the word that holds the index.
const FLAG_BITS: u32 = 4;

/// Slot number of a page in [`Frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// Identity of a cached page. Traces of a whole device use file 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey {
    /// Inode number, or 0.
    pub file: u64,
    /// Page index within the file, in pages.
    pub index: u64,
}

#[derive(Default)]
struct Frame {
    word: AtomicU64,
    file: AtomicU64,
}

/// The table of frames.
pub struct Frames {
    tops: Vec<OnceLock<Box<[Frame]>>>,
    free: Mutex<Free>,
    in_use: AtomicUsize,
    high_water: AtomicUsize,
}

struct Free {
    released: Vec<u32>,
    never_used: u32,
}

impl Frames {
    /// Memory of one frame, in bytes.
    pub const FRAME_BYTES: usize = size_of::<Frame>();

    /// A table that can grow to `frames_max` frames (rounded up to a whole chunk). Memory is taken
    /// as frames are used: [`Frames::FRAME_BYTES`] each.
    pub fn new(frames_max: usize) -> Self {
        let frames_max = frames_max.clamp(1, u32::MAX as usize - FRAMES_PER_CHUNK);
        let chunks = frames_max.div_ceil(FRAMES_PER_CHUNK);
        Frames {
            tops: (0..chunks).map(|_| OnceLock::new()).collect(),
            free: Mutex::new(Free { released: Vec::new(), never_used: 0 }),
            in_use: AtomicUsize::new(0),
            high_water: AtomicUsize::new(0),
        }
    }

    /// Takes a free slot for `key`; `None` when the table is full, or for an index of 2^60 and
    /// more, which no file has.
    #[inline]
    pub fn insert(&self, key: PageKey, dirty: bool) -> Option<FrameId> {
        let word = word(key, dirty)?;
        let slot = {
            let mut free = self.free.lock();
            match free.released.pop() {
                Some(slot) => slot,
                None => {
                    let slot = free.never_used;
                    let chunk = self.tops.get(slot as usize / FRAMES_PER_CHUNK)?;
                    chunk.get_or_init(|| (0..FRAMES_PER_CHUNK).map(|_| Frame::default()).collect());
                    free.never_used = slot + 1;
                    self.high_water.store(slot as usize + 1, Ordering::Release);
                    slot
                }
            }
        };
        let frame = self.frame(FrameId(slot))?;
        frame.file.store(key.file, Ordering::Relaxed);
        frame.word.store(word, Ordering::Release);
        self.in_use.fetch_add(1, Ordering::Relaxed);
        Some(FrameId(slot))
    }

    /// Puts `key` into a frame that is in use: a release and an insert in one. False, and nothing
    /// is changed, if the frame is not in use or the index is 2^60 or more.
    #[inline]
    pub fn replace(&self, id: FrameId, key: PageKey, dirty: bool) -> bool {
        let (Some(word), Some(frame)) = (word(key, dirty), self.frame(id)) else { return false };
        if frame.word.load(Ordering::Acquire) & IN_USE == 0 {
            return false;
        }
        frame.file.store(key.file, Ordering::Relaxed);
        frame.word.store(word, Ordering::Release);
        true
    }

    /// Gives the slot back. A frame that is not in use is left alone.
    #[inline]
    pub fn release(&self, id: FrameId) {
        let Some(frame) = self.frame(id) else { return };
        if frame.word.swap(0, Ordering::AcqRel) & IN_USE != 0 {
            self.in_use.fetch_sub(1, Ordering::Relaxed);
            self.free.lock().released.push(id.0);
        }
    }

    /// Frames in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// True if no frame is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One more than the largest slot ever used.
    #[inline]
    pub fn high_water(&self) -> usize {
        self.high_water.load(Ordering::Acquire)
    }

    /// The page in the frame; `None` when it is not in use.
    #[inline]
    pub fn key(&self, id: FrameId) -> Option<PageKey> {
        let frame = self.frame(id)?;
        let word = frame.word.load(Ordering::Acquire);
        if word & IN_USE == 0 {
            return None;
        }
        Some(PageKey { file: frame.file.load(Ordering::Relaxed), index: word >> FLAG_BITS })
    }

    /// True if the page was modified since it was last written back.
    #[inline]
    pub fn is_dirty(&self, id: FrameId) -> bool {
        self.has(id, DIRTY)
    }

    /// Says that the page is dirty or clean.
    #[inline]
    pub fn set_dirty(&self, id: FrameId, dirty: bool) {
        self.set(id, DIRTY, dirty);
    }

    /// True if the page must stay, for example because its write-back is under way.
    #[inline]
    pub fn is_pinned(&self, id: FrameId) -> bool {
        self.has(id, PINNED)
    }

    /// Pins or unpins.
    #[inline]
    pub fn set_pinned(&self, id: FrameId, pinned: bool) {
        self.set(id, PINNED, pinned);
    }

    /// Sets the reference bit; a store only if it was clear, so that hot pages stay shared between
    /// processor caches.
    #[inline]
    pub fn reference(&self, id: FrameId) {
        if let Some(frame) = self.frame(id) {
            if frame.word.load(Ordering::Relaxed) & (REFERENCED | IN_USE) == IN_USE {
                frame.word.fetch_or(REFERENCED, Ordering::Relaxed);
            }
        }
    }

    /// True if the reference bit is set.
    #[inline]
    pub fn is_referenced(&self, id: FrameId) -> bool {
        self.has(id, REFERENCED)
    }

    /// Clears the reference bit and returns its old value.
    #[inline]
    pub fn take_reference(&self, id: FrameId) -> bool {
        let Some(frame) = self.frame(id) else { return false };
        // Most bits that a sweep meets are clear: a load does then.
        frame.word.load(Ordering::Relaxed) & REFERENCED != 0
            && frame.word.fetch_and(!REFERENCED, Ordering::Relaxed) & REFERENCED != 0
    }

    /// True if a victim search with `accept` may return the frame.
    #[inline]
    pub fn evictable(&self, id: FrameId, accept: crate::Accept) -> bool {
        let Some(frame) = self.frame(id) else { return false };
        let flags = frame.word.load(Ordering::Acquire);
        let accepted = match accept {
            crate::Accept::Any => true,
            crate::Accept::Clean => flags & DIRTY == 0,
            crate::Accept::Dirty => flags & DIRTY != 0,
        };
        flags & (IN_USE | PINNED) == IN_USE && accepted
    }

    #[inline]
    fn has(&self, id: FrameId, flag: u64) -> bool {
        self.frame(id).is_some_and(|frame| frame.word.load(Ordering::Acquire) & flag != 0)
    }

    #[inline]
    fn set(&self, id: FrameId, flag: u64, on: bool) {
        if let Some(frame) = self.frame(id) {
            if on {
                frame.word.fetch_or(flag, Ordering::AcqRel);
            } else {
                frame.word.fetch_and(!flag, Ordering::AcqRel);
            }
        }
    }

    #[inline]
    fn frame(&self, id: FrameId) -> Option<&Frame> {
        let slot = id.0 as usize;
        self.tops.get(slot / FRAMES_PER_CHUNK)?.get()?.get(slot % FRAMES_PER_CHUNK)
    }
}

/// Index and flags in one word; `None` if the index does not fit.
fn word(key: PageKey, dirty: bool) -> Option<u64> {
    let flags = if dirty { IN_USE | DIRTY } else { IN_USE };
    (key.index >> (u64::BITS - FLAG_BITS) == 0).then_some(key.index << FLAG_BITS | flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Accept;

    fn key(index: u64) -> PageKey {
        PageKey { file: 7, index }
    }

    #[test]
    fn slots_are_reused_last_in_first_out_and_keep_their_keys() {
        let frames = Frames::new(10);
        let ids: Vec<FrameId> = (0..3).map(|i| frames.insert(key(i), false).unwrap()).collect();
        assert_eq!(frames.key(ids[1]), Some(key(1)));
        frames.release(ids[0]);
        frames.release(ids[1]);
        assert_eq!(frames.key(ids[1]), None);
        assert_eq!(frames.insert(key(9), false), Some(ids[1]));
        assert_eq!(frames.len(), 2);
        assert_eq!(frames.high_water(), 3);
    }

    #[test]
    fn the_table_is_bounded() {
        let frames = Frames::new(1);
        for i in 0..FRAMES_PER_CHUNK as u64 {
            assert!(frames.insert(key(i), false).is_some());
        }
        assert_eq!(frames.insert(key(0), false), None);
        frames.release(FrameId(5));
        assert_eq!(frames.insert(key(0), false), Some(FrameId(5)));
    }

    #[test]
    fn a_frame_takes_another_page_in_place() {
        let frames = Frames::new(1);
        let id = frames.insert(key(1), true).unwrap();
        frames.reference(id);
        assert!(frames.replace(id, key((1 << 60) - 1), false));
        assert_eq!(frames.key(id), Some(key((1 << 60) - 1)));
        assert!(!frames.is_dirty(id) && !frames.take_reference(id));
        assert!(!frames.replace(id, key(1 << 60), false));
        assert_eq!(frames.insert(key(1 << 60), false), None);
        frames.release(id);
        assert!(!frames.replace(id, key(2), false));
        assert_eq!((frames.len(), Frames::FRAME_BYTES), (0, 16));
    }

    #[test]
    fn flags_decide_what_may_go() {
        let frames = Frames::new(10);
        let id = frames.insert(key(0), true).unwrap();
        assert!(!frames.evictable(id, Accept::Clean));
        assert!(frames.evictable(id, Accept::Any) && frames.evictable(id, Accept::Dirty));
        frames.set_dirty(id, false);
        assert!(frames.evictable(id, Accept::Clean) && !frames.evictable(id, Accept::Dirty));
        frames.set_pinned(id, true);
        assert!(!frames.evictable(id, Accept::Any));
        frames.reference(id);
        assert!(frames.take_reference(id));
        assert!(!frames.take_reference(id));
        frames.release(id);
        frames.release(id);
        assert!(frames.is_empty());
    }
}
