//! Dirty throttling: whoever dirties too much writes back before it goes on.
//!
//! Names and meaning are Linux's `vm.dirty_ratio`, as a share of `cache=`. Linux lets the flusher
//! threads write and the writer sleep; here the writer writes itself, its own file first, since
//! nothing runs in the background. Above `dirty_background_ratio` the periodic
//! [`crate::Volume::tick`] writes whatever the age of the pages (`sync.rs`).
//!
//! Called with `rwsem` of the writer's file at most; takes `io` of one file at a time.

use crate::inode::Inode;
use crate::volume::Inner;

impl Inner {
    /// Writes back until the dirty pages are below the limit or nothing is left that can be
    /// written. An error latches the volume (or, for lack of space, stays with the file); the next
    /// write or fsync reports it.
    #[cold]
    pub(crate) fn balance_dirty(&self, inode: &Inode) {
        let _ = self.write_back(inode, 0, u64::MAX, false);
        let mut after = None;
        while self.pages.above_throttle() {
            let Some(file) = self.pages.next_dirty_file(after) else { return };
            after = Some(file);
            if let Some(other) = self.cached_inode(file.1) {
                let _ = self.write_back(&other, 0, u64::MAX, false);
            }
        }
    }
}
