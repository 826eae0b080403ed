//! Freed blocks that the same inode may take again, for data that goes to the log.
//!
//! ```text
//!   free (handle of inode n) --> held by n --claim--> data of inode n, journaled
//!                                   |  ^----cancel----/
//!                                   \--> its commit is durable, the log has no live copy: free
//! ```
//!
//! A freed block must not be written in place before its free is durable, nor while recovery would
//! write an older copy over it. Data that goes to the log does neither: its copy is newer than any
//! older one, and it commits with the free or after it, since both change the slot of the same
//! inode. So a file that is deleted and made again (a rollback journal) keeps its blocks, and the
//! bits that were cleared and set again cost no block of the log.
//!
//! Used in eager mode only. Tested here and, with every crash, in `tests/it/eager.rs`.

use std::collections::BTreeMap;

use syncline_base::lockrank::Mutex;

use super::Range;
use crate::ranks;

/// Blocks that one operation freed and that are not reused yet.
struct Run {
    ino: u32,
    left: Vec<Range>,
}

#[derive(Default)]
struct Runs {
    next: u64,
    /// By the order of freeing.
    runs: BTreeMap<u64, Run>,
    by_inode: BTreeMap<u32, Vec<u64>>,
}

/// All held blocks of a volume.
pub(super) struct Held(Mutex<Runs>);

impl Default for Held {
    fn default() -> Held {
        Held(Mutex::new(ranks::DEFERRED_FREE, Runs::default()))
    }
}

impl Held {
    /// Inode `ino` freed a range; returns the number to give to [`Held::end`].
    pub(super) fn put(&self, ino: u32, range: Range) -> u64 {
        let mut held = self.0.lock();
        held.next += 1;
        let id = held.next;
        held.runs.insert(id, Run { ino, left: vec![range] });
        held.by_inode.entry(ino).or_default().push(id);
        id
    }

    /// Releases the rest of a run; it is free for everybody.
    pub(super) fn end(&self, id: u64) -> Vec<Range> {
        let mut held = self.0.lock();
        let Some(run) = held.runs.remove(&id) else { return Vec::new() };
        if let Some(ids) = held.by_inode.get_mut(&run.ino) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                held.by_inode.remove(&run.ino);
            }
        }
        run.left
    }

    /// Takes up to `want` blocks that `ino` freed, the newest first, and says of which free.
    pub(super) fn claim(&self, ino: u32, want: u32) -> Option<(u64, Range)> {
        let mut held = self.0.lock();
        let ids = held.by_inode.get(&ino)?.clone();
        for id in ids.into_iter().rev() {
            let Some(run) = held.runs.get_mut(&id) else { continue };
            let Some(first) = run.left.first_mut() else { continue };
            let taken = Range { start: first.start, len: first.len.min(want) };
            first.start += u64::from(taken.len);
            first.len -= taken.len;
            if first.len == 0 {
                run.left.remove(0);
            }
            return Some((id, taken));
        }
        None
    }

    /// Undoes a claim. False: the free is over by now, the range is free for everybody.
    pub(super) fn cancel(&self, id: u64, range: Range) -> bool {
        let mut held = self.0.lock();
        let Some(run) = held.runs.get_mut(&id) else { return false };
        let behind = run.left.first().filter(|r| range.start + u64::from(range.len) == r.start);
        match behind.copied() {
            Some(next) => run.left[0] = Range { start: range.start, len: range.len + next.len },
            None => run.left.insert(0, range),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u32) -> Range {
        Range { start, len }
    }

    #[test]
    fn only_the_inode_that_freed_blocks_takes_them_again() {
        let held = Held::default();
        let first = held.put(12, range(100, 5));
        let second = held.put(12, range(200, 2));
        assert_eq!(held.claim(13, 1), None);
        assert_eq!(held.claim(12, 9), Some((second, range(200, 2))), "the newest first");
        assert_eq!(held.claim(12, 3), Some((first, range(100, 3))));
        assert!(held.cancel(first, range(100, 3)));
        assert_eq!(held.claim(12, 4), Some((first, range(100, 4))));
        assert_eq!(held.end(first), [range(104, 1)]);
        assert!(!held.cancel(first, range(100, 4)), "its free is over");
        assert_eq!(held.end(second), []);
        assert_eq!(held.claim(12, 1), None);
    }
}
