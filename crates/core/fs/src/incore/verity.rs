//! What is known of the hashes of a file with fs-verity.

use std::sync::Arc;

use syncline_base::lockrank::Mutex;
use syncline_ondisk::verity::Verity;

use crate::ranks;

/// By level: number and contents of the block of the tree that was checked last.
pub(crate) type Newest = Vec<Option<(u64, Arc<[u8]>)>>;

/// The descriptor of a file, and how far its tree is checked.
pub(crate) struct FileVerity {
    pub(crate) verity: Verity,
    pub(crate) newest: Mutex<Newest>,
}

impl FileVerity {
    pub(crate) fn new(verity: Verity) -> FileVerity {
        let newest = Mutex::new(ranks::VERITY, vec![None; verity.levels() + 1]);
        FileVerity { verity, newest }
    }
}
