//! Dependency sets: changes of the running transaction that must reach the log together.
//!
//! ```text
//!   operation (handle)                       set of the running transaction
//!   members   exclusive blocks, slots   --+
//!   deltas    of shared blocks            |--> sets that share a member are one
//!   callbacks, freed blocks             --+
//!
//!   shared block:  logged image --(deltas of the sets that are committed)--> next logged image
//!                     \---------(deltas of all sets)---------------------> newest contents
//! ```
//!
//! Directory, extent, xattr blocks and inode slots are members: operations that touch the same one
//! are recovered together. Bitmaps, group descriptors, inode table blocks and orphan file blocks
//! belong to many files. For each of them the transaction keeps the image that recovery would give
//! beside the newest contents, and each set knows its own bits, counters and slots. So two files
//! that share only such blocks are independent. (The kernel's jbd2 knows blocks only.)
//!
//! Programs rely on the order of renames and links without syncing directories: a file that is
//! renamed into place last may refer to those before it. So all renames and links are one set
//! ([`Member::Names`]). A set that removes a name takes that set along, since a rename in it may
//! have made the old name superfluous.
//!
//! Promises
//! - Sets are closed: two operations that touched the same [`Member`] are in one set.
//! - Bits and slots belong to one set at a time, since a freed block or inode is not reused before
//!   the set that freed it is durable. Counters add up in any order.
//! - Where a corrupt file system uses one block in both ways, everything is committed at once.
//!
//! Assumptions: no handle is open while sets are taken. Locks: sets are acquired and released under
//! the transaction's lock; images are composed without any lock of the journal (`compose.rs`), by
//! the holder of the commit turn, while the transaction admits no handle. Tested below and in the
//! file system's `fs/tests/it/eager.rs`.

mod compose;
mod delta;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use compose::{Shared, compose};
pub use delta::Counters;
pub(crate) use delta::Delta;

use crate::transaction::Callback;

/// A thing that links the operations that touched it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// A block that belongs to one file: directory, extents, xattrs, journaled data.
    Block(u64),
    /// A part of a shared block that belongs to one file: an inode, an orphan file entry.
    Slot {
        /// The block.
        block: u64,
        /// First byte of the slot.
        offset: u32,
    },
    /// The order of renames and links, which all of them share.
    Names,
}

/// Something to run once a set is durable.
pub(crate) struct Release {
    pub(crate) run: Callback,
    /// First block and number of the blocks that it frees. They are not reused while the log has a
    /// live copy of one.
    pub(crate) range: Option<(u64, u64)>,
}

/// One set, or the members of one operation so far.
#[derive(Default)]
pub(crate) struct DependencySet {
    pub(crate) members: BTreeSet<Member>,
    pub(crate) shared: BTreeMap<u64, Delta>,
    pub(crate) callbacks: Vec<Release>,
    pub(crate) forgotten: BTreeSet<u64>,
    /// Blocks written in place over a copy that the log has. Each is a member, too: a copy that
    /// joins the set takes the place of the revoke.
    pub(crate) revokes: BTreeSet<u64>,
    /// Number of the device flush that has to be over before this may be committed; 0: none.
    pub(crate) flush: u64,
    /// Not to be committed before the renames and links that came earlier.
    pub(crate) follows_names: bool,
    /// Two kinds of use met in one block.
    pub(crate) mixed: bool,
}

impl DependencySet {
    fn is_empty(&self) -> bool {
        self.members.is_empty()
            && self.shared.is_empty()
            && self.callbacks.is_empty()
            && self.forgotten.is_empty()
            && self.flush == 0
    }

    fn weight(&self) -> usize {
        self.members.len() + self.shared.len() + self.callbacks.len()
    }

    /// Adds a change of a shared block.
    pub(crate) fn change(&mut self, block: u64, delta: Delta) {
        match self.shared.get_mut(&block) {
            Some(mine) => self.mixed |= !mine.merge(delta),
            None => {
                self.shared.insert(block, delta);
            }
        }
    }

    /// Takes another set in; calls `both` for each shared block that both had changed.
    fn absorb(&mut self, other: DependencySet, mut both: impl FnMut(u64)) {
        self.members.extend(other.members);
        for (block, delta) in other.shared {
            if self.shared.contains_key(&block) {
                both(block);
            }
            self.change(block, delta);
        }
        self.callbacks.extend(other.callbacks);
        self.forgotten.extend(other.forgotten);
        self.revokes.extend(other.revokes);
        self.flush = self.flush.max(other.flush);
        self.follows_names |= other.follows_names;
        self.mixed |= other.mixed;
    }
}

/// A shared block of the running transaction.
pub(crate) struct Logged {
    /// Image that recovery would give.
    pub(crate) image: Arc<[u8]>,
    /// A bitmap block initialised in this transaction: there is no logged or on-disk image yet. The
    /// first set that changes it logs it, even if the change was undone.
    pub(crate) fresh: bool,
    /// Sets with changes of it.
    pub(crate) uses: u32,
}

/// The sets of the running transaction.
#[derive(Default)]
pub(crate) struct DependencySets {
    of: BTreeMap<Member, u64>,
    pub(crate) sets: BTreeMap<u64, DependencySet>,
    next: u64,
    pub(crate) logged: BTreeMap<u64, Logged>,
    /// Some block is used in two ways: sets cannot be told apart any more.
    pub(crate) mixed: bool,
}

impl DependencySets {
    /// An operation ended.
    pub(crate) fn close(&mut self, op: DependencySet) {
        if op.is_empty() {
            return;
        }
        let ids: BTreeSet<u64> =
            op.members.iter().filter_map(|m| self.of.get(m).copied()).collect();
        let weight = |id: &u64| self.sets.get(id).map_or(0, DependencySet::weight);
        let target = ids.iter().copied().max_by_key(weight).unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        for block in op.shared.keys() {
            self.count(*block, 1);
        }
        self.add(target, op);
        for id in ids.into_iter().filter(|id| *id != target) {
            if let Some(other) = self.sets.remove(&id) {
                self.add(target, other);
            }
        }
    }

    /// True if some set has this member.
    pub(crate) fn has(&self, member: Member) -> bool {
        self.of.contains_key(&member)
    }

    fn add(&mut self, target: u64, other: DependencySet) {
        for member in &other.members {
            self.of.insert(*member, target);
        }
        let mut both = Vec::new();
        let set = self.sets.entry(target).or_default();
        set.absorb(other, |block| both.push(block));
        self.mixed |= set.mixed;
        for block in both {
            self.count(block, -1);
        }
    }

    fn count(&mut self, block: u64, by: i32) {
        match self.logged.get_mut(&block) {
            Some(logged) => logged.uses = logged.uses.saturating_add_signed(by),
            None => self.mixed = true,
        }
    }

    /// Takes the sets of `seeds` out, as one. Shared blocks are no longer counted for it.
    pub(crate) fn take(&mut self, seeds: &[Member]) -> DependencySet {
        let mut ids: BTreeSet<u64> = seeds.iter().filter_map(|m| self.of.get(m).copied()).collect();
        if ids.iter().any(|id| self.sets.get(id).is_some_and(|set| set.follows_names)) {
            ids.extend(self.of.get(&Member::Names));
        }
        let mut all = DependencySet::default();
        for id in ids {
            let Some(set) = self.sets.remove(&id) else { continue };
            for member in &set.members {
                self.of.remove(member);
            }
            for block in set.shared.keys() {
                self.count(*block, -1);
            }
            all.absorb(set, |_| {});
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(blocks: &[u64], slots: &[u32]) -> DependencySet {
        let mut op = DependencySet::default();
        op.members.extend(blocks.iter().map(|b| Member::Block(*b)));
        for &offset in slots {
            op.members.insert(Member::Slot { block: 9, offset });
            op.change(9, Delta::Slots(BTreeSet::from([(offset, 4)])));
        }
        op
    }

    fn sets() -> DependencySets {
        let mut sets = DependencySets::default();
        sets.logged
            .insert(9, Logged { image: Arc::from([0u8; 64].as_slice()), fresh: false, uses: 0 });
        sets
    }

    #[test]
    fn operations_that_share_a_member_are_one_set_and_others_are_not() {
        let mut sets = sets();
        sets.close(op(&[1], &[0]));
        sets.close(op(&[2], &[4]));
        sets.close(op(&[3], &[8]));
        assert_eq!((sets.sets.len(), sets.logged[&9].uses), (3, 3));
        sets.close(op(&[1, 2], &[]));
        assert_eq!((sets.sets.len(), sets.logged[&9].uses), (2, 2));
        let taken = sets.take(&[Member::Block(2)]);
        assert_eq!(taken.members.len(), 4);
        assert_eq!(taken.shared[&9], Delta::Slots(BTreeSet::from([(0, 4), (4, 4)])));
        assert_eq!((sets.sets.len(), sets.logged[&9].uses), (1, 1));
        assert!(sets.take(&[Member::Block(1)]).is_empty(), "an empty set goes");
        assert!(!sets.mixed);
    }

    #[test]
    fn renames_are_one_set_and_a_removal_takes_them_along_but_not_the_other_way_round() {
        let mut sets = sets();
        let mut rename = |block| {
            let mut op = op(&[block], &[]);
            op.members.insert(Member::Names);
            sets.close(op);
        };
        rename(1);
        rename(2);
        sets.close(op(&[3], &[]));
        sets.close(DependencySet { follows_names: true, ..op(&[4], &[]) });
        assert_eq!(sets.sets.len(), 3);
        let renames = [Member::Block(1), Member::Block(2), Member::Names];
        let removal = [Member::Block(1), Member::Block(2), Member::Block(4), Member::Names];
        assert_eq!(sets.take(&[Member::Block(3)]).members, [Member::Block(3)].into());
        assert_eq!(sets.take(&[Member::Block(4)]).members, removal.into());
        for block in [1, 2] {
            let mut op = op(&[block], &[]);
            op.members.insert(Member::Names);
            sets.close(op);
        }
        sets.close(DependencySet { follows_names: true, ..op(&[4], &[]) });
        assert_eq!(sets.take(&[Member::Block(2)]).members, renames.into());
        assert_eq!(sets.take(&[Member::Block(4)]).members, [Member::Block(4)].into());
    }

    #[test]
    fn two_kinds_of_use_of_one_block_are_noticed() {
        let mut sets = sets();
        sets.close(op(&[], &[0]));
        let mut other = op(&[], &[0]);
        other.change(9, Delta::Bits(vec![(0, 1)]));
        sets.close(other);
        assert!(sets.mixed);
    }
}
