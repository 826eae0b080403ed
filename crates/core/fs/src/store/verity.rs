//! What is known of the hashes of files with fs-verity.
//!
//! A file keeps its descriptor for life, and no other file gets one while the volume is mounted: an
//! entry is never wrong, whatever becomes of its inode.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use syncline_base::lockrank::Mutex;
use syncline_ondisk::verity::Verity;

use crate::ranks;

/// Files that are known at most. One more, and all are forgotten.
const FILES_MAX: usize = 256;

/// By level: number and contents of the block of the tree that was checked last.
pub(crate) type Newest = Vec<Option<(u64, Arc<[u8]>)>>;

/// The descriptor of a file, and how far its tree is checked.
pub(crate) struct FileVerity {
    pub(crate) verity: Verity,
    pub(crate) newest: Mutex<Newest>,
}

/// The files that were read, by inode number.
pub(crate) struct KnownVerity(Mutex<FxHashMap<u32, Arc<FileVerity>>>);

impl Default for KnownVerity {
    fn default() -> KnownVerity {
        KnownVerity(Mutex::new(ranks::KNOWN_VERITY, FxHashMap::default()))
    }
}

impl KnownVerity {
    pub(crate) fn get(&self, ino: u32) -> Option<Arc<FileVerity>> {
        self.0.lock().get(&ino).cloned()
    }

    pub(crate) fn put(&self, ino: u32, verity: Verity) -> Arc<FileVerity> {
        let newest = Mutex::new(ranks::VERITY, vec![None; verity.levels() + 1]);
        let file = Arc::new(FileVerity { verity, newest });
        let mut known = self.0.lock();
        if known.len() >= FILES_MAX {
            known.clear();
        }
        known.insert(ino, Arc::clone(&file));
        file
    }
}
