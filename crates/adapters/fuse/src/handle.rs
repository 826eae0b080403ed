//! Handles of open files. The kernel stores them and sends one with each request.

use std::sync::atomic::{AtomicU64, Ordering};

/// Use of the kernel's page cache by the reads and writes of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheMode {
    Cached,
    /// As with O_DIRECT.
    Bypassed,
}

/// Bits of a handle below the number of the open file.
const FLAG_BITS: u32 = 3;
const BYPASSES: u64 = 1;
const WRITES: u64 = 2;
const UNSEEN: u64 = 4;

/// An open file: a unique number, and the cache mode of the answer to its open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(u64);

impl Handle {
    /// The handle of an open directory; `unseen`: listing it moves no access time (`O_NOATIME`).
    pub(crate) fn of_directory(unseen: bool) -> Handle {
        Handle(if unseen { UNSEEN } else { 0 })
    }

    /// Reports whether listings of the directory move no access time.
    pub(crate) fn is_unseen(self) -> bool {
        self.0 & UNSEEN != 0
    }

    /// Reports whether its reads and writes bypass the page cache.
    pub(crate) fn bypasses(self) -> bool {
        self.0 & BYPASSES != 0
    }

    /// Reports whether it was opened for writing.
    pub(crate) fn may_write(self) -> bool {
        self.0 & WRITES != 0
    }

    /// Reports whether it writes and bypasses the page cache.
    pub(crate) fn writes_bypassing(self) -> bool {
        self.bypasses() && self.may_write()
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

impl From<u64> for Handle {
    fn from(number: u64) -> Handle {
        Handle(number)
    }
}

/// Numbers of the open files of one mount.
#[derive(Default)]
pub(crate) struct Handles(AtomicU64);

impl Handles {
    /// A handle that no other open file of the mount has.
    pub(crate) fn next(&self, mode: CacheMode, writes: bool) -> Handle {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let bypasses = if mode == CacheMode::Bypassed { BYPASSES } else { 0 };
        let bits = bypasses | if writes { WRITES } else { 0 };
        Handle(number << FLAG_BITS | bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_the_cache_mode_and_is_one_open_file() {
        let handles = Handles::default();
        let modes =
            [(CacheMode::Cached, true), (CacheMode::Bypassed, false), (CacheMode::Bypassed, true)];
        let made = modes.map(|(mode, writes)| handles.next(mode, writes));
        let said = made.map(|handle| {
            let back = Handle::from(handle.number());
            (back.bypasses(), back.writes_bypassing(), back.may_write())
        });
        assert_eq!(said, [(false, false, true), (true, false, false), (true, true, true)]);
        assert_ne!(handles.next(CacheMode::Cached, true), made[0]);
    }
}
