//! The kernel's offer of FUSE over io_uring to new mounts.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::env::{Need, require, skip};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Tests of a program change the offer one after the other.
static CHANGES: Mutex<()> = Mutex::new(());

/// The offer, until it is as before.
pub struct UringOffer {
    before: String,
    _changes: MutexGuard<'static, ()>,
}

impl UringOffer {
    /// Switches the offer on for `test`, which is skipped (`None`) where that cannot be.
    ///
    /// # Panics
    /// If root cannot write the parameter.
    pub fn on(test: &str) -> Option<UringOffer> {
        if !require(test, &[Need::Root]) {
            return None;
        }
        let changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(before) = fs::read_to_string(PARAMETER) else {
            skip(test, "the kernel has no FUSE over io_uring (Linux 6.14)");
            return None;
        };
        let offer = UringOffer { before, _changes: changes };
        offer.set(true);
        Some(offer)
    }

    /// Makes the offer to mounts from now on, or takes it back.
    ///
    /// # Panics
    /// As [`UringOffer::on`].
    pub fn set(&self, on: bool) {
        fs::write(PARAMETER, if on { "Y" } else { "N" }).expect("a parameter that root writes");
    }
}

impl Drop for UringOffer {
    fn drop(&mut self) {
        // A test that fails has an error of its own.
        let _ = fs::write(PARAMETER, &self.before);
    }
}
