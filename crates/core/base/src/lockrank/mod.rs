//! Locks with a rank: taking them in the wrong order panics in debug builds.
//!
//! ```text
//!   held by this thread   [ io 30 | state 50 ]     lock(pages 60)  allowed
//!                                                  lock(io 30)     panics: some other thread
//!                                                                  goes by the rules
//! ```
//!
//! A deadlock needs two threads at the wrong moment; a wrong order needs one. So every test that
//! takes two locks checks their order, whether or not the threads meet.
//!
//! Promises
//! - Debug builds: a lock is taken only if its level is above the level of every lock that the
//!   thread holds, or equal to it for a [`Rank::family`]. `try_lock` is allowed anywhere, since it
//!   does not wait; what is locked after it is checked against it.
//! - Release builds: the types are `parking_lot`'s and nothing is recorded or compared.
//!
//! Assumptions: within a family the caller keeps an order of its own, such as ascending numbers.
//! Levels are compared across crates: `fuse` uses those below 1000, `fs` 1000 to 1999, `jbd2` 2000
//! to 2999, where 2240 to 2299 are of what it calls back. Each crate lists its ranks in one module.
//! Tested below.

#![cfg_attr(not(debug_assertions), allow(dead_code, reason = "ranks are compared in debug builds"))]

mod mutex;
mod rank;
mod rwlock;

pub use mutex::{Condvar, Mutex, MutexGuard};
pub use rank::Rank;
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
