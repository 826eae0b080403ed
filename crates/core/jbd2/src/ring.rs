//! The log as a ring: head, tail, free space, and the transactions between.
//!
//! ```text
//!   s_first                                            s_maxlen
//!   |  free  | checkpointed | pending ... newest | free  |
//!            ^ tail on the device                ^ head
//!                           ^ where the tail may move: flush, superblock, then the space is free
//! ```
//!
//! On a file system with `fast_commit` the log does not wrap: Linux takes the last blocks for fast
//! commits as soon as it mounts, and recovery, which knows `s_maxlen` only, wraps behind them.
//! The ring ends before that area, and where a transaction does not fit any more the log is emptied
//! and starts anew in front ([`Ring::restart`]). Otherwise Linux 6.18 goes on behind the newest
//! transaction, inside its own area, and runs off the log.
//!
//! Blocks are counted as used until the superblock with the new tail is durable: a recovery that
//! starts at the old tail must still find them. Nothing here does I/O or locks. Tested below, in
//! `tests/it/transactions.rs` and in `tests/it/crash.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::tid_gt;
use crate::turns::Committing;
use crate::zeroed::ZeroedBlocks;

/// First log block of the ring (`s_first`) and one past its last (`s_maxlen`, or the first of the
/// area for fast commits).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) first: u32,
    pub(crate) end: u32,
    /// A log that does not wrap.
    pub(crate) is_linear: bool,
}

impl Span {
    pub(crate) fn len(self) -> u32 {
        self.end - self.first
    }

    /// The log block `count` after `block`.
    pub(crate) fn advance(self, block: u32, count: u32) -> u32 {
        let inside = u64::from(block - self.first) + u64::from(count);
        self.first + (inside % u64::from(self.len())) as u32
    }
}

/// Place of a transaction in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) sequence: u32,
    pub(crate) first_block: u32,
    pub(crate) len: u32,
}

/// One transaction in the log.
struct Logged {
    place: Place,
    /// Blocks whose newest committed image is not in place yet and begins in here: this is the
    /// oldest transaction that recovery needs for it.
    pending: BTreeSet<u64>,
    /// Every block that has a copy in here.
    blocks: Vec<u64>,
}

/// A position in the log and how many blocks are free once the tail is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) sequence: u32,
    pub(crate) block: u32,
    pub(crate) freed: u32,
}

/// State of the ring.
#[derive(Default)]
pub(crate) struct Ring {
    span: Span,
    /// Next log block to be written.
    head: u32,
    /// Blocks between the durable tail and the head.
    used: u32,
    /// True if the superblock on the device has `s_start` != 0.
    started: bool,
    next_sequence: u32,
    /// Transactions from the durable tail on, sequences without gaps.
    transactions: VecDeque<Logged>,
    /// Block -> newest sequence whose copy recovery would replay.
    live: BTreeMap<u64, u32>,
    /// Log blocks that may take a commit block without being zeroed first.
    pub(crate) zeroed: ZeroedBlocks,
}

impl Ring {
    /// An empty log whose next transaction is `sequence`.
    pub(crate) fn new(span: Span, sequence: u32) -> Ring {
        Ring { span, head: span.first, next_sequence: sequence, ..Ring::default() }
    }

    pub(crate) fn next_sequence(&self) -> u32 {
        self.next_sequence
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started
    }

    /// The superblock with `s_start` is durable.
    pub(crate) fn set_started(&mut self) {
        self.started = true;
    }

    /// True if no transaction is between tail and head.
    pub(crate) fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// Blocks that can be taken now. One always stays free.
    pub(crate) fn free(&self) -> u32 {
        let free = match self.span.is_linear {
            true if self.started => self.span.end.saturating_sub(self.head),
            true => self.span.len(),
            false => self.span.len().saturating_sub(self.used),
        };
        free.saturating_sub(1)
    }

    /// True if no more than an empty log, which starts anew in front, has room.
    pub(crate) fn needs_restart(&self) -> bool {
        self.span.is_linear && self.started
    }

    /// Gives the next sequence to a transaction with copies of `blocks`, which are live from now
    /// on: what is freed later has to know.
    pub(crate) fn number(&mut self, blocks: impl Iterator<Item = u64>) -> u32 {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        for block in blocks {
            self.live.insert(block, sequence);
        }
        sequence
    }

    /// Takes `len` blocks at the head, which are free. Returns the first.
    pub(crate) fn take(&mut self, len: u32) -> u32 {
        if self.span.is_linear && !self.started {
            self.head = self.span.first;
        }
        let first_block = self.head;
        self.head = self.span.advance(first_block, len);
        self.used = self.used.saturating_add(len);
        first_block
    }

    /// A transaction with copies of `blocks` is durable. None of them has to be written in place
    /// for its sake before [`Ring::owe_write`].
    pub(crate) fn push(&mut self, place: Place, blocks: Vec<u64>, revokes: &[u64]) {
        for block in revokes {
            // Dead from now on: the log is a queue, so the copy leaves it before the revoke does.
            self.live.remove(block);
        }
        self.transactions.push_back(Logged { place, pending: BTreeSet::new(), blocks });
    }

    /// `block` of transaction `sequence` needs no in-place write any more.
    pub(crate) fn end_write(&mut self, block: u64, sequence: u32) {
        if let Some(transaction) = self.find(sequence) {
            transaction.pending.remove(&block);
        }
    }

    /// `block` of transaction `sequence` needs an in-place write again.
    pub(crate) fn owe_write(&mut self, block: u64, sequence: u32) {
        if let Some(transaction) = self.find(sequence) {
            transaction.pending.insert(block);
        }
    }

    fn find(&mut self, sequence: u32) -> Option<&mut Logged> {
        let front = self.transactions.front()?;
        let index = sequence.wrapping_sub(front.place.sequence) as usize;
        self.transactions.get_mut(index)
    }

    /// Newest sequence whose copy of `block` recovery would replay.
    pub(crate) fn live(&self, block: u64) -> Option<u32> {
        self.live.get(&block).copied()
    }

    /// Blocks of `first..end` with a live copy, and its sequence.
    pub(crate) fn live_in(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u32)> {
        let range = (first < end).then(|| self.live.range(first..end));
        range.into_iter().flatten().map(|(block, sequence)| (*block, *sequence))
    }

    /// Position to which the tail may move, if it can. `committing` is on its way into the log.
    pub(crate) fn reclaimable(&self, committing: Option<&Committing>) -> Option<Tail> {
        if !self.started {
            return None;
        }
        let mut freed = 0u32;
        for Logged { place, pending, .. } in &self.transactions {
            if !pending.is_empty() {
                let tail = Tail { sequence: place.sequence, block: place.first_block, freed };
                return Some(tail).filter(|t| t.freed > 0);
            }
            freed = freed.saturating_add(place.len);
        }
        // Nothing is pending: the tail is where the next transaction starts or will start.
        let sequence = committing.and_then(|c| c.sequence).unwrap_or(self.next_sequence);
        let block = committing.and_then(|c| c.first_block).unwrap_or(self.head);
        Some(Tail { sequence, block, freed }).filter(|t| t.freed > 0)
    }

    /// The oldest blocks to be written in place, `most` at most, as far as `goal` log blocks can be
    /// freed by it.
    pub(crate) fn oldest_pending(&self, most: usize, goal: u32) -> Vec<u64> {
        let mut blocks: Vec<u64> = Vec::new();
        let mut freed = 0u32;
        for Logged { place, pending, .. } in &self.transactions {
            blocks.extend(pending.iter().take(most - blocks.len()));
            freed = freed.saturating_add(place.len);
            if blocks.len() >= most || freed >= goal && !blocks.is_empty() {
                break;
            }
        }
        blocks
    }

    /// The durable tail moved to `sequence`.
    pub(crate) fn pop_before(&mut self, sequence: u32) {
        while self.transactions.front().is_some_and(|t| tid_gt(sequence, t.place.sequence)) {
            let Some(gone) = self.transactions.pop_front() else { break };
            self.used = self.used.saturating_sub(gone.place.len);
            for block in gone.blocks {
                if self.live.get(&block) == Some(&gone.place.sequence) {
                    self.live.remove(&block);
                }
            }
        }
    }

    /// The superblock says durably that the log is empty, and that `sequence` comes next, which may
    /// have been given to a transaction already.
    pub(crate) fn restart(&mut self, sequence: u32) {
        self.transactions.clear();
        self.live.retain(|_, newest| *newest == sequence);
        self.used = 0;
        self.started = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Ring {
        let span = Span { first: 1, end: 11, is_linear: false };
        let mut ring = Ring::new(span, u32::MAX);
        ring.set_started();
        ring
    }

    fn log(ring: &mut Ring, blocks: &[u64]) -> u32 {
        let sequence = ring.number(blocks.iter().copied());
        let len = blocks.len() as u32 + 2;
        let first_block = ring.take(len);
        ring.push(Place { sequence, first_block, len }, blocks.to_vec(), &[]);
        blocks.iter().for_each(|block| ring.owe_write(*block, sequence));
        sequence
    }

    #[test]
    fn the_tail_moves_over_what_is_in_place_and_wraps_with_ring_and_sequence() {
        let mut ring = ring();
        let first = log(&mut ring, &[7]);
        let second = log(&mut ring, &[8]);
        assert_eq!((first, second, ring.free()), (u32::MAX, 0, 3));
        assert_eq!(ring.reclaimable(None), None);
        ring.end_write(7, first);
        let tail = Tail { sequence: second, block: 4, freed: 3 };
        assert_eq!(ring.reclaimable(None), Some(tail));
        ring.pop_before(tail.sequence);
        assert_eq!((ring.free(), ring.live(7), ring.live(8)), (6, None, Some(second)));
        let third = log(&mut ring, &[7, 9]);
        assert_eq!(ring.span.advance(7, 4), 1, "the third ended where the ring begins");
        assert_eq!(ring.oldest_pending(9, 1), [8]);
        assert_eq!(ring.oldest_pending(2, 9), [8, 7]);
        for (block, sequence) in [(8, second), (7, third), (9, third)] {
            ring.end_write(block, sequence);
        }
        assert_eq!(ring.reclaimable(None), Some(Tail { sequence: 2, block: 1, freed: 7 }));
    }

    #[test]
    fn a_newer_copy_stays_live_when_the_older_one_leaves_and_a_revoke_ends_it() {
        let mut ring = ring();
        let first = log(&mut ring, &[7]);
        let second = log(&mut ring, &[7]);
        ring.end_write(7, first);
        ring.pop_before(second);
        assert_eq!(ring.live_in(0, 9).collect::<Vec<_>>(), [(7, second)]);
        assert_eq!(ring.live_in(9, 0).count(), 0);
        let sequence = ring.number(std::iter::empty());
        let first_block = ring.take(2);
        ring.push(Place { sequence, first_block, len: 2 }, Vec::new(), &[7]);
        assert_eq!(ring.live(7), None);
        ring.restart(ring.next_sequence());
        assert!(ring.is_empty() && !ring.is_started() && ring.free() == 9);
    }

    #[test]
    fn a_log_that_does_not_wrap_has_the_blocks_behind_its_head_until_it_is_empty() {
        let mut ring = Ring::new(Span { first: 1, end: 11, is_linear: true }, 5);
        assert_eq!((ring.free(), ring.needs_restart()), (9, false));
        let first = log(&mut ring, &[7]);
        ring.set_started();
        let second = log(&mut ring, &[8, 9]);
        for (block, sequence) in [(7, first), (8, second), (9, second)] {
            ring.end_write(block, sequence);
        }
        let tail = ring.reclaimable(None).unwrap();
        ring.pop_before(tail.sequence);
        assert_eq!((tail.block, ring.free(), ring.needs_restart()), (8, 2, true));
        // Its own number, from before the restart.
        let third = ring.number([8].into_iter());
        ring.restart(third);
        assert_eq!((ring.free(), ring.take(4), ring.live(8), ring.live(9)), (9, 1, Some(7), None));
    }
}
