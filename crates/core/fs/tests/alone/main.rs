//! Tests of the volume in real time: each has the machine for itself.

#[path = "../it/bed.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod bed;
mod waits;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The machine, for one test at a time.
fn machine() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}
