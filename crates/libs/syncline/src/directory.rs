//! Open directories, read in steps.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use syncline_fs::FileKind;

use crate::disk::{Held, Inner, Node, On, Slot};
use crate::error::{EBADF, Error, Result};
use crate::wire::Call;

/// Entries taken from the volume at once.
const STEP_ENTRIES: usize = 1024;

/// One name of a directory.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::FileKind;
///
/// disk.mkdir(b"/photos", 0o755)?;
/// let mut root = disk.open_directory(b"/")?;
/// let mut names = Vec::new();
/// while let Some(entry) = root.next_entry()? {
///     assert_eq!(entry.kind, FileKind::Directory);
///     names.push(entry.name);
/// }
/// names.sort();
/// assert_eq!(names, [b"lost+found".to_vec(), b"photos".to_vec()]);
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The name, 1 to 255 bytes.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: u32,
    /// Kind of the file.
    pub kind: FileKind,
}

/// An open directory. A name that is there from the first to the last call comes exactly once.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// let mut root = disk.open_directory(b"/")?;
/// assert_eq!(root.next_entry()?.expect("mke2fs makes it").name, b"lost+found");
/// assert!(root.next_entry()?.is_none());
/// # Ok::<(), syncline::Error>(())
/// ```
pub struct Directory {
    disk: Arc<Inner>,
    id: u64,
    slot: Arc<Slot>,
    cookie: Option<u64>,
    waiting: VecDeque<Entry>,
}

impl Directory {
    pub(crate) fn new(disk: &Arc<Inner>, node: Node) -> Directory {
        let (id, slot) = disk.keep(node);
        let disk = Arc::clone(disk);
        Directory { disk, id, slot, cookie: Some(0), waiting: VecDeque::new() }
    }

    /// The next entry, without `.` and `..`; `None` at the end.
    ///
    /// # Errors
    /// EBADF, EUCLEAN, EIO.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        let store = self.disk.in_use()?;
        let node = RwLockReadGuard::try_map(self.slot.read_recursive(), Option::as_ref);
        let node = node.map_err(|_| Error::new(EBADF, "the directory is closed"))?;
        let held = Held { store, node };
        while self.waiting.is_empty() {
            let Some(cookie) = self.cookie else { return Ok(None) };
            let (volume, inode) = match held.on()? {
                On::Volume(volume, inode) => (volume, inode),
                On::Helper(helper, directory) => {
                    let entries: Vec<Entry> = helper.call(Call::Entries { directory })?;
                    self.cookie = Some(0).filter(|_| !entries.is_empty());
                    self.waiting.extend(entries);
                    continue;
                }
            };
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

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.disk.forget(self.id, &self.slot);
    }
}
