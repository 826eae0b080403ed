//! Open directories, read in steps.

use std::collections::VecDeque;
use std::sync::Arc;

use syncline_fs::{FileKind, InodeRef};

use crate::disk::{Inner, Slot};
use crate::error::{EBADF, Error, Result};

/// Entries taken from the volume at once.
const STEP_ENTRIES: usize = 1024;

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, 1 to 255 bytes.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: u32,
    /// Kind of the file.
    pub kind: FileKind,
}

/// An open directory. A name that is there from the first to the last call comes exactly once.
pub struct Directory {
    disk: Arc<Inner>,
    id: u64,
    slot: Arc<Slot>,
    cookie: Option<u64>,
    waiting: VecDeque<Entry>,
}

impl Directory {
    pub(crate) fn new(disk: &Arc<Inner>, inode: InodeRef) -> Directory {
        let (id, slot) = disk.keep(inode);
        let disk = Arc::clone(disk);
        Directory { disk, id, slot, cookie: Some(0), waiting: VecDeque::new() }
    }

    /// The next entry, without `.` and `..`; `None` at the end.
    ///
    /// # Errors
    /// EBADF, EUCLEAN, EIO.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        let volume = self.disk.in_use()?;
        let inode = self.slot.read_recursive();
        let inode = inode.as_ref().ok_or_else(|| Error::new(EBADF, "the directory is closed"))?;
        while self.waiting.is_empty() {
            let Some(cookie) = self.cookie else { return Ok(None) };
            let (mut taken, mut next) = (0, None);
            volume.readdir(inode, cookie, &mut |entry| {
                if taken == STEP_ENTRIES {
                    return false;
                }
                taken += 1;
                next = Some(entry.next_cookie);
                if entry.name != b"." && entry.name != b".." {
                    let name = entry.name.to_vec();
                    self.waiting.push_back(Entry { name, ino: entry.ino, kind: entry.kind });
                }
                true
            })?;
            self.cookie = next.filter(|_| taken == STEP_ENTRIES);
        }
        Ok(self.waiting.pop_front())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.disk.forget(self.id, &self.slot);
    }
}
