//! Preallocation windows: free blocks kept for one file, or for the small files of a flex group.
//!
//! ext4's inode and locality-group preallocations (mballoc.c), kept in memory only. Blocks in a
//! window are taken in the group maps but free in the accounts: `core.rs` releases all windows
//! before an allocation fails. Tested in `space/balloc/tests.rs`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::core::Range;
use crate::incore::Lifetime;

/// Most files with a window. Beyond it the file with the lowest inode number loses its window.
const WINDOWS_MAX: usize = 4096;

struct Packed {
    range: Range,
    /// Inode that took from it last. If that file outgrows the small sizes it keeps the window and
    /// stays in one extent.
    last: u32,
}

/// All windows of a volume.
#[derive(Default)]
pub(super) struct Windows {
    owned: BTreeMap<u32, Range>,
    /// By flex group and lifetime.
    packed: BTreeMap<(u32, Lifetime), Packed>,
}

fn cut(range: &mut Range, want: u32) -> Range {
    let len = range.len.min(want);
    let taken = Range { start: range.start, len };
    range.start += u64::from(len);
    range.len -= len;
    taken
}

impl Windows {
    /// Takes up to `want` blocks from the window of `owner` if that starts at the goal, where the
    /// file ended. Otherwise takes them from the window of the flex group of a small file (`flex`);
    /// of a file that is not small, from the packed window in which it ended.
    pub(super) fn take(
        &mut self,
        owner: u32,
        goal: u64,
        want: u32,
        flex: Option<(u32, Lifetime)>,
    ) -> Option<Range> {
        self.take_owned(owner, goal, want).or_else(|| match flex {
            Some(flex) => self.take_packed(owner, want, flex),
            None => self.take_outgrown(owner, goal, want),
        })
    }

    fn take_owned(&mut self, owner: u32, goal: u64, want: u32) -> Option<Range> {
        let window = self.owned.get_mut(&owner).filter(|window| window.start == goal)?;
        let taken = cut(window, want);
        if window.len == 0 {
            self.owned.remove(&owner);
        }
        Some(taken)
    }

    fn take_packed(&mut self, owner: u32, want: u32, flex: (u32, Lifetime)) -> Option<Range> {
        let packed = self.packed.get_mut(&flex).filter(|packed| packed.range.len >= want)?;
        packed.last = owner;
        let taken = cut(&mut packed.range, want);
        if packed.range.len == 0 {
            self.packed.remove(&flex);
        }
        Some(taken)
    }

    /// A file that outgrew the small sizes at the end of a packed window keeps that window.
    fn take_outgrown(&mut self, owner: u32, goal: u64, want: u32) -> Option<Range> {
        let ends_in = |packed: &Packed| packed.last == owner && packed.range.start == goal;
        let (&flex, _) = self.packed.iter().find(|(_, packed)| ends_in(packed))?;
        let mut range = self.packed.remove(&flex)?.range;
        let taken = cut(&mut range, want);
        if range.len > 0 {
            // An older window of this file elsewhere would be lost; keep that one.
            match self.owned.entry(owner) {
                Entry::Vacant(slot) => {
                    slot.insert(range);
                }
                Entry::Occupied(_) => {
                    self.packed.insert(flex, Packed { range, last: owner });
                }
            }
        }
        Some(taken)
    }

    /// Files a window for `owner`; returns the window that has to go for it.
    pub(super) fn put(&mut self, owner: u32, range: Range) -> Option<Range> {
        if let Some(old) = self.owned.insert(owner, range) {
            return Some(old);
        }
        if self.owned.len() > WINDOWS_MAX {
            return self.owned.pop_first().map(|(_, range)| range);
        }
        None
    }

    /// Files the window for small files of a flex group; returns the one it replaces.
    pub(super) fn put_packed(
        &mut self,
        flex: (u32, Lifetime),
        owner: u32,
        range: Range,
    ) -> Option<Range> {
        self.packed.insert(flex, Packed { range, last: owner }).map(|old| old.range)
    }

    /// Removes the window of one file.
    pub(super) fn remove(&mut self, owner: u32) -> Option<Range> {
        self.owned.remove(&owner)
    }

    /// Removes all windows.
    pub(super) fn remove_all(&mut self) -> Vec<Range> {
        let owned = std::mem::take(&mut self.owned).into_values();
        let packed = std::mem::take(&mut self.packed).into_values();
        owned.chain(packed.map(|window| window.range)).collect()
    }
}
