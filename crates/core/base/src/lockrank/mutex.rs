//! Mutex and condition variable.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::lockrank::Rank;
#[cfg(debug_assertions)]
use crate::lockrank::rank::Held;

/// A mutex with a rank.
pub struct Mutex<T: ?Sized> {
    #[cfg(debug_assertions)]
    rank: Rank,
    inner: parking_lot::Mutex<T>,
}

/// The lock of a [`Mutex`], released on drop.
#[must_use = "the mutex is unlocked when the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    inner: parking_lot::MutexGuard<'a, T>,
    #[cfg(debug_assertions)]
    held: Held,
}

impl<T> Mutex<T> {
    /// A mutex of `rank` over `value`.
    #[cfg_attr(not(debug_assertions), allow(unused_variables, reason = "checked in debug builds"))]
    pub const fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex {
            #[cfg(debug_assertions)]
            rank,
            inner: parking_lot::Mutex::new(value),
        }
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock that comes after this one.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(debug_assertions)]
        let held = Held::acquire(self.rank);
        MutexGuard {
            inner: self.inner.lock(),
            #[cfg(debug_assertions)]
            held,
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard {
            inner,
            #[cfg(debug_assertions)]
            held: Held::acquire_unchecked(self.rank),
        })
    }

    /// Waits for the lock, but no longer than `timeout`.
    ///
    /// # Panics
    /// As [`Mutex::lock`].
    #[track_caller]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        #[cfg(debug_assertions)]
        let held = Held::acquire(self.rank);
        Some(MutexGuard {
            inner: self.inner.try_lock_for(timeout)?,
            #[cfg(debug_assertions)]
            held,
        })
    }

    /// The value, without a lock: `&mut` is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    /// Runs `f` without the lock and takes the lock again.
    ///
    /// # Panics
    /// As [`Mutex::lock`], for locks that `f` left locked.
    #[track_caller]
    pub fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        #[cfg(debug_assertions)]
        {
            let held = &mut guard.held;
            parking_lot::MutexGuard::unlocked(&mut guard.inner, || held.released(f))
        }
        #[cfg(not(debug_assertions))]
        parking_lot::MutexGuard::unlocked(&mut guard.inner, f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A condition variable for [`Mutex`].
#[derive(Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// Releases the lock until somebody notifies.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTER: Rank = Rank::new(10, "outer");
    const INNER: Rank = Rank::family(20, "inner");

    fn panics(f: impl FnOnce() + Send + 'static) -> bool {
        std::thread::spawn(f).join().is_err()
    }

    #[test]
    fn the_right_order_passes_and_the_wrong_one_panics() {
        assert!(!panics(|| {
            let (outer, inner) = (Mutex::new(OUTER, 1), Mutex::new(INNER, 2));
            let held = outer.lock();
            assert_eq!(*held + *inner.lock(), 3);
        }));
        assert_eq!(
            panics(|| {
                let (outer, inner) = (Mutex::new(OUTER, 1), Mutex::new(INNER, 2));
                let _held = inner.lock();
                drop(outer.lock());
            }),
            cfg!(debug_assertions)
        );
    }

    #[test]
    fn a_rank_is_held_once_and_a_family_often() {
        assert!(!panics(|| {
            let (a, b) = (Mutex::new(INNER, 1), Mutex::new(INNER, 2));
            let held = a.lock();
            assert_eq!(*held + *b.lock(), 3);
        }));
        assert_eq!(
            panics(|| {
                let (a, b) = (Mutex::new(OUTER, 1), Mutex::new(OUTER, 2));
                let held = a.lock();
                assert_eq!(*held + *b.lock(), 3);
            }),
            cfg!(debug_assertions)
        );
    }

    #[test]
    fn a_lock_that_is_given_up_for_a_moment_is_not_held_meanwhile() {
        let (outer, inner) = (Mutex::new(OUTER, 1), Mutex::new(INNER, 2));
        let mut held = inner.lock();
        MutexGuard::unlocked(&mut held, || *outer.lock() += 1);
        drop(held);
        let tried = inner.try_lock();
        assert!(tried.is_some() && inner.try_lock().is_none());
        drop(tried);
        assert_eq!((outer.into_inner(), *inner.lock()), (2, 2));
    }

    /// Locks a mutex when its thread ends, after all else of the thread is gone.
    struct LocksLast(std::sync::Arc<Mutex<u32>>);

    impl Drop for LocksLast {
        fn drop(&mut self) {
            *self.0.lock() += 1;
        }
    }

    #[test]
    fn a_destructor_at_the_end_of_a_thread_may_lock() {
        thread_local! {
            static LAST: std::cell::Cell<Option<LocksLast>> = const { std::cell::Cell::new(None) };
        }
        let lock = std::sync::Arc::new(Mutex::new(OUTER, 0));
        let inner = std::sync::Arc::clone(&lock);
        let thread = std::thread::spawn(move || {
            LAST.set(Some(LocksLast(std::sync::Arc::clone(&inner))));
            // The list of held locks is made after it, and so it may be destroyed before.
            drop(inner.lock());
        });
        thread.join().unwrap();
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn a_wait_for_a_lock_ends() {
        let moment = Duration::from_millis(1);
        let lock = Mutex::new(OUTER, 1);
        let held = lock.lock();
        std::thread::scope(|scope| {
            let waited = scope.spawn(|| lock.try_lock_for(moment).is_none());
            assert!(waited.join().unwrap(), "another thread has it");
        });
        drop(held);
        assert_eq!(lock.try_lock_for(moment).map(|value| *value), Some(1));
        assert!(lock.try_lock().is_some(), "it is free again");
        let wrong = panics(|| {
            let (outer, inner) = (Mutex::new(OUTER, 1), Mutex::new(INNER, 2));
            let _held = inner.lock();
            drop(outer.try_lock_for(Duration::from_millis(1)));
        });
        assert_eq!(wrong, cfg!(debug_assertions));
    }

    #[test]
    fn whoever_waits_is_woken() {
        let shared = std::sync::Arc::new((Mutex::new(OUTER, false), Condvar::new()));
        let other = std::sync::Arc::clone(&shared);
        let waiter = std::thread::spawn(move || {
            let mut ready = other.0.lock();
            while !*ready {
                other.1.wait(&mut ready);
            }
        });
        *shared.0.lock() = true;
        shared.1.notify_all();
        waiter.join().unwrap();
    }
}
