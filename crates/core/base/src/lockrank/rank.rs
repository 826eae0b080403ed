//! Ranks, and the list of those that a thread holds.

use std::cell::{Cell, RefCell};

/// Place of a lock in the order in which locks are taken: lower levels first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    level: u16,
    name: &'static str,
    family: bool,
}

impl Rank {
    /// Rank of a lock of which a thread holds one at a time.
    pub const fn new(level: u16, name: &'static str) -> Rank {
        Rank { level, name, family: false }
    }

    /// Rank of locks of which a thread may hold several, in an order that the caller keeps.
    pub const fn family(level: u16, name: &'static str) -> Rank {
        Rank { level, name, family: true }
    }
}

thread_local! {
    static HELD: RefCell<Vec<(u64, Rank)>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// An entry in the thread's list, for as long as a guard lives.
pub(crate) struct Held {
    id: u64,
    #[cfg(debug_assertions)]
    rank: Rank,
}

impl Held {
    /// Checks the order and enters the lock. Called before the thread may block on it.
    #[track_caller]
    pub(crate) fn acquire(rank: Rank) -> Held {
        check(rank);
        Held::acquire_unchecked(rank)
    }

    /// Enters a lock that was taken without waiting.
    pub(crate) fn acquire_unchecked(rank: Rank) -> Held {
        let id = NEXT.get();
        NEXT.set(id + 1);
        // At the end of a thread a destructor may lock after the list is gone: nobody compares.
        let _ = HELD.try_with(|held| held.borrow_mut().push((id, rank)));
        Held {
            id,
            #[cfg(debug_assertions)]
            rank,
        }
    }

    fn leave(&self) {
        // As in `acquire_unchecked`.
        let _ = HELD.try_with(|held| held.borrow_mut().retain(|(id, _)| *id != self.id));
    }

    /// Runs `f`, during which the lock is not held.
    #[cfg(debug_assertions)]
    pub(crate) fn released<R>(&mut self, f: impl FnOnce() -> R) -> R {
        self.leave();
        let result = f();
        *self = Held::acquire(self.rank);
        result
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.leave();
    }
}

#[track_caller]
fn check(rank: Rank) {
    let wrong = HELD.try_with(|held| {
        let above = |other: &Rank| {
            other.level > rank.level || other.level == rank.level && !(other.family && rank.family)
        };
        held.borrow().iter().map(|(_, other)| *other).find(above)
    });
    if let Ok(Some(other)) = wrong {
        panic!(
            "lock order: `{}` ({}) is taken while `{}` ({}) is held",
            rank.name, rank.level, other.name, other.level
        );
    }
}
