//! Recency lists over slots, through one vector, for the list policies.
//!
//! ```text
//!   links: [ head 0 | head 1 | ... | slot 0 | slot 1 | ... ]      8 bytes each
//!   states:                        [ slot 0 | slot 1 | ... ]      1 byte each: list, mark
//!   head -> oldest <-> ... <-> newest -> head                     a ring, so no end is special
//! ```
//!
//! Promises: every operation but [`Lists::oldest_evictable`] is O(1); a slot is in one list at
//! most; slots that were never linked, however large, are no member of any. Tested below.

use crate::{Accept, FrameId, Frames};

/// Frames that one search from the old end looks at.
pub(crate) const SCAN_MAX: usize = 4096;

/// Aligned, so that none straddles two lines of the processor's cache.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Link {
    newer: u32,
    older: u32,
}

const UNLINKED: Link = Link { newer: 0, older: 0 };

/// The bits of a state: number of the list plus one, 0 in none; and the mark.
const LIST: u8 = 0x7F;
const MARK: u8 = 0x80;

/// `N` lists over the same slots.
pub(crate) struct Lists<const N: usize> {
    links: Vec<Link>,
    states: Vec<u8>,
    lens: [usize; N],
}

impl<const N: usize> Lists<N> {
    /// Memory of one slot, in bytes.
    pub const SLOT_BYTES: usize = size_of::<Link>() + size_of::<u8>();

    /// Empty lists with room for `capacity` slots; they grow when there are more.
    pub fn new(capacity: usize) -> Self {
        const { assert!(N < LIST as usize) };
        let room = capacity.min(1 << 22);
        let mut links = Vec::with_capacity(N + room);
        for head in 0..N {
            // A head fits, see the assertion.
            links.push(Link { newer: head as u32, older: head as u32 });
        }
        Lists { links, states: Vec::with_capacity(room), lens: [0; N] }
    }

    /// Members of `list`.
    #[inline]
    pub fn len(&self, list: usize) -> usize {
        self.lens[list]
    }

    /// The list that `slot` is in.
    #[inline]
    pub fn list_of(&self, slot: u32) -> Option<usize> {
        let list = self.states.get(slot as usize)? & LIST;
        usize::from(list).checked_sub(1)
    }

    /// Links `slot` as the newest of `list`, from wherever it was, its mark cleared.
    #[inline]
    pub fn push_newest(&mut self, list: usize, slot: u32) {
        let at = N + slot as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, UNLINKED);
            self.states.resize(slot as usize + 1, 0);
        } else if self.states[slot as usize] & LIST > 0 {
            self.unlink(slot);
        }
        self.link(list, at);
        // It fits, see the assertion in `new`.
        self.states[slot as usize] = list as u8 + 1;
        self.lens[list] += 1;
    }

    /// Makes a member the oldest of `list`, its mark cleared. Others are left alone.
    pub fn push_oldest(&mut self, list: usize, slot: u32) {
        if self.unlink(slot).is_none() {
            return;
        }
        let at = N + slot as usize;
        let oldest = self.links[list].newer;
        self.links[at] = Link { newer: oldest, older: list as u32 };
        self.links[oldest as usize].older = at as u32;
        self.links[list].newer = at as u32;
        // It fits, see the assertion in `new`.
        self.states[slot as usize] = list as u8 + 1;
        self.lens[list] += 1;
    }

    /// Makes `at` the newest of `list`.
    #[inline]
    fn link(&mut self, list: usize, at: usize) {
        let newest = self.links[list].older;
        self.links[at] = Link { newer: list as u32, older: newest };
        self.links[newest as usize].newer = at as u32;
        self.links[list].older = at as u32;
    }

    /// Lets the neighbours of `at` be neighbours.
    #[inline]
    fn close(&mut self, at: usize) {
        let link = self.links[at];
        self.links[link.newer as usize].older = link.older;
        self.links[link.older as usize].newer = link.newer;
    }

    /// Takes `slot` out of its list and names the list.
    #[inline]
    pub fn unlink(&mut self, slot: u32) -> Option<usize> {
        let list = self.list_of(slot)?;
        self.close(N + slot as usize);
        self.states[slot as usize] &= MARK;
        self.lens[list] -= 1;
        Some(list)
    }

    /// Makes a member the newest of its list; its mark stays. Others are left alone.
    #[inline]
    pub fn refresh(&mut self, slot: u32) {
        let Some(list) = self.list_of(slot) else { return };
        let at = N + slot as usize;
        if self.links[list].older as usize != at {
            self.close(at);
            self.link(list, at);
        }
    }

    /// The member of `list` that was linked first.
    #[inline]
    pub fn oldest(&self, list: usize) -> Option<u32> {
        self.member(self.links[list].newer)
    }

    /// The member after `slot` in the direction of the newest.
    #[inline]
    pub fn newer(&self, slot: u32) -> Option<u32> {
        self.member(self.links.get(N.checked_add(slot as usize)?)?.newer)
    }

    /// Moves the oldest of `from` to the newest end of `to`, and names it.
    #[inline]
    pub fn shift(&mut self, from: usize, to: usize) -> Option<u32> {
        let slot = self.oldest(from)?;
        self.push_newest(to, slot);
        Some(slot)
    }

    /// The mark of a member, for whatever the policy wants.
    #[inline]
    pub fn mark(&self, slot: u32) -> bool {
        self.states.get(slot as usize).is_some_and(|state| state & MARK > 0)
    }

    /// Sets or clears the mark of a slot that was linked.
    #[inline]
    pub fn set_mark(&mut self, slot: u32, mark: bool) {
        if let Some(state) = self.states.get_mut(slot as usize) {
            *state = *state & LIST | if mark { MARK } else { 0 };
        }
    }

    /// The oldest of `list` that may go, among its [`SCAN_MAX`] oldest; it becomes the newest, so
    /// that a caller that cannot use it gets another one next.
    pub fn oldest_evictable(
        &mut self,
        list: usize,
        frames: &Frames,
        accept: Accept,
    ) -> Option<FrameId> {
        let mut slot = self.oldest(list)?;
        for _ in 0..SCAN_MAX {
            if frames.evictable(FrameId(slot), accept) {
                self.refresh(slot);
                return Some(FrameId(slot));
            }
            slot = self.newer(slot)?;
        }
        None
    }

    #[inline]
    fn member(&self, at: u32) -> Option<u32> {
        // A head fits, see `new`.
        at.checked_sub(N as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order<const N: usize>(lists: &Lists<N>, list: usize) -> Vec<u32> {
        std::iter::successors(lists.oldest(list), |slot| lists.newer(*slot)).collect()
    }

    #[test]
    fn members_keep_their_order_and_know_their_list() {
        let mut lists = Lists::<2>::new(4);
        for slot in [3, 1, 9] {
            lists.push_newest(0, slot);
        }
        lists.push_newest(1, 1);
        assert_eq!((order(&lists, 0), order(&lists, 1)), (vec![3, 9], vec![1]));
        assert_eq!((lists.len(0), lists.len(1), lists.list_of(1)), (2, 1, Some(1)));
        lists.refresh(3);
        assert_eq!(order(&lists, 0), [9, 3]);
        lists.push_oldest(0, 3);
        assert_eq!(order(&lists, 0), [3, 9]);
        lists.push_oldest(0, 9);
        lists.push_oldest(0, 77);
        assert_eq!(order(&lists, 0), [9, 3]);
        assert_eq!(lists.shift(0, 1), Some(9));
        assert_eq!((order(&lists, 1), lists.unlink(9)), (vec![1, 9], Some(1)));
        assert_eq!(
            (lists.unlink(9), lists.unlink(77), lists.list_of(u32::MAX)),
            (None, None, None)
        );
    }

    #[test]
    fn marks_outlive_a_refresh_but_no_new_link() {
        let mut lists = Lists::<1>::new(4);
        lists.push_newest(0, 0);
        lists.push_newest(0, 1);
        lists.set_mark(0, true);
        lists.refresh(0);
        assert!(lists.mark(0) && !lists.mark(1) && !lists.mark(50));
        lists.push_newest(0, 0);
        assert!(!lists.mark(0));
        lists.set_mark(u32::MAX, true);
    }
}
