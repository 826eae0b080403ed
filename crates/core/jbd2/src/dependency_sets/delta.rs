//! Changes of blocks that many files share, kept apart for each set.

use std::collections::{BTreeMap, BTreeSet};

/// Changes of one group descriptor by one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Change of `bg_free_blocks_count`.
    pub free_blocks: i64,
    /// Change of `bg_free_inodes_count`.
    pub free_inodes: i64,
    /// Change of `bg_used_dirs_count`.
    pub used_dirs: i64,
    /// Bits of `bg_flags` that were cleared.
    pub flags_cleared: u16,
    /// `bg_itable_unused` is at most this.
    pub itable_unused_max: Option<u32>,
}

impl Counters {
    fn add(&mut self, other: &Counters) {
        self.free_blocks += other.free_blocks;
        self.free_inodes += other.free_inodes;
        self.used_dirs += other.used_dirs;
        self.flags_cleared |= other.flags_cleared;
        self.itable_unused_max = match (self.itable_unused_max, other.itable_unused_max) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// Changes of one shared block by one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    /// First byte and length of slots.
    Slots(BTreeSet<(u32, u32)>),
    /// First bit and length of runs.
    Bits(Vec<(u32, u32)>),
    /// Counters by group.
    Groups(BTreeMap<u32, Counters>),
}

impl Delta {
    /// Takes the other in. False: they are not of one kind.
    pub(super) fn merge(&mut self, other: Delta) -> bool {
        match (self, other) {
            (Delta::Slots(mine), Delta::Slots(theirs)) => mine.extend(theirs),
            (Delta::Bits(mine), Delta::Bits(theirs)) => mine.extend(theirs),
            (Delta::Groups(mine), Delta::Groups(theirs)) => {
                for (group, counters) in theirs {
                    mine.entry(group).or_default().add(&counters);
                }
            }
            _ => return false,
        }
        true
    }

    /// Copies slots or bits from `newest`. Counters are applied by the file system.
    pub(crate) fn copy(&self, newest: &[u8], into: &mut [u8]) {
        match self {
            Delta::Slots(slots) => {
                for &(offset, len) in slots {
                    let range = offset as usize..offset as usize + len as usize;
                    if let (Some(to), Some(from)) = (into.get_mut(range.clone()), newest.get(range))
                    {
                        to.copy_from_slice(from);
                    }
                }
            }
            Delta::Bits(runs) => {
                for &(first, len) in runs {
                    copy_bits(newest, into, first, len);
                }
            }
            Delta::Groups(_) => {}
        }
    }
}

fn copy_bits(from: &[u8], into: &mut [u8], first: u32, len: u32) {
    let end = first.saturating_add(len);
    let mut bit = first;
    while bit < end {
        let at = (bit / 8) as usize;
        let (Some(to), Some(new)) = (into.get_mut(at), from.get(at)) else { return };
        let low = bit % 8;
        let high = (end - (bit - low)).min(8);
        let mask = ((1u16 << high) - (1u16 << low)) as u8;
        *to = *to & !mask | *new & mask;
        bit += high - low;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_copied_exactly() {
        for first in 0..20u32 {
            for len in 0..30u32 {
                let mut into = [0u8; 8];
                copy_bits(&[0xff; 8], &mut into, first, len);
                for bit in 0..64 {
                    let set = into[bit as usize / 8] & 1 << (bit % 8) != 0;
                    assert_eq!(set, bit >= first && bit < first + len, "{first}+{len}: {bit}");
                }
            }
        }
    }
}
