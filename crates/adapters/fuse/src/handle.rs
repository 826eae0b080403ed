//! Handles of open files, as the kernel keeps them and hands them back with each request.

use std::sync::atomic::{AtomicU64, Ordering};

use fuser::FileHandle;

/// Path of the reads and writes of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through the kernel's cache.
    Cached,
    /// Past it.
    Past,
}

/// Bits of a handle below the number of the open file.
const WAY_BITS: u32 = 3;
const PAST: u64 = 1;
const WRITES: u64 = 2;
const UNSEEN: u64 = 4;

/// An open file: a number of its own, and the way that was answered to its open.
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

    /// Reports whether its reads and writes go past the kernel's cache.
    pub(crate) fn bypasses(self) -> bool {
        self.0 & PAST != 0
    }

    /// Reports whether it was opened for writing.
    pub(crate) fn may_write(self) -> bool {
        self.0 & WRITES != 0
    }

    /// Reports whether it writes past the kernel's cache.
    pub(crate) fn writes_past(self) -> bool {
        self.bypasses() && self.may_write()
    }

    pub(crate) fn number(self) -> FileHandle {
        FileHandle(self.0)
    }
}

impl From<FileHandle> for Handle {
    fn from(number: FileHandle) -> Handle {
        Handle(number.0)
    }
}

/// Numbers of the open files of one mount.
#[derive(Default)]
pub(crate) struct Handles(AtomicU64);

impl Handles {
    /// A handle that no other open file of the mount has.
    pub(crate) fn next(&self, way: Way, writes: bool) -> Handle {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let past = if way == Way::Past { PAST } else { 0 };
        let bits = past | if writes { WRITES } else { 0 };
        Handle(number << WAY_BITS | bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_the_way_and_is_one_open_file() {
        let handles = Handles::default();
        let ways = [(Way::Cached, true), (Way::Past, false), (Way::Past, true)];
        let made = ways.map(|(way, writes)| handles.next(way, writes));
        let said = made.map(|handle| {
            let back = Handle::from(handle.number());
            (back.bypasses(), back.writes_past(), back.may_write())
        });
        assert_eq!(said, [(false, false, true), (true, false, false), (true, true, true)]);
        assert_ne!(handles.next(Way::Cached, true), made[0]);
    }
}
