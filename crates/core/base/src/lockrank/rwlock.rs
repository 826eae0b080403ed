//! Reader-writer lock.

use std::ops::{Deref, DerefMut};

use crate::lockrank::Rank;
#[cfg(debug_assertions)]
use crate::lockrank::rank::Held;

/// A reader-writer lock with a rank. A second read lock counts as a lock: it may wait for a writer
/// that waits for the first.
pub struct RwLock<T: ?Sized> {
    #[cfg(debug_assertions)]
    rank: Rank,
    inner: parking_lot::RwLock<T>,
}

/// A shared lock, released on drop.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard<'a, T: ?Sized> {
    inner: parking_lot::RwLockReadGuard<'a, T>,
    #[cfg(debug_assertions)]
    _held: Held,
}

/// An exclusive lock, released on drop.
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<'a, T: ?Sized> {
    inner: parking_lot::RwLockWriteGuard<'a, T>,
    #[cfg(debug_assertions)]
    _held: Held,
}

impl<T> RwLock<T> {
    /// A lock of `rank` over `value`.
    #[cfg_attr(not(debug_assertions), allow(unused_variables, reason = "checked in debug builds"))]
    pub const fn new(rank: Rank, value: T) -> RwLock<T> {
        RwLock {
            #[cfg(debug_assertions)]
            rank,
            inner: parking_lot::RwLock::new(value),
        }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for a shared lock.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock that comes after this one.
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T> {
        #[cfg(debug_assertions)]
        let held = Held::acquire(self.rank);
        ReadGuard {
            inner: self.inner.read(),
            #[cfg(debug_assertions)]
            _held: held,
        }
    }

    /// Takes a shared lock if no writer has the lock.
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        let inner = self.inner.try_read()?;
        Some(ReadGuard {
            inner,
            #[cfg(debug_assertions)]
            _held: Held::acquire_unchecked(self.rank),
        })
    }

    /// The value, without a lock: `&mut` is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Waits for the exclusive lock.
    ///
    /// # Panics
    /// As [`RwLock::read`].
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, T> {
        #[cfg(debug_assertions)]
        let held = Held::acquire(self.rank);
        WriteGuard {
            inner: self.inner.write(),
            #[cfg(debug_assertions)]
            _held: held,
        }
    }
}

impl<T: ?Sized> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: Rank = Rank::new(10, "state");

    #[test]
    fn readers_and_writers_see_one_value_and_a_second_lock_panics_in_debug_builds() {
        let lock = RwLock::new(STATE, 1);
        *lock.write() += 1;
        assert_eq!(*lock.read(), 2);
        let writer = lock.write();
        assert!(lock.try_read().is_none());
        drop(writer);
        assert_eq!(lock.try_read().map(|value| *value), Some(2));
        let twice = std::thread::spawn(|| {
            let lock = RwLock::new(STATE, 1);
            let first = lock.read();
            *first + *lock.read()
        });
        assert_eq!(twice.join().is_err(), cfg!(debug_assertions));
    }
}
