//! Space: free blocks and free inodes, and the policy that chooses among them.
//!
//! ```text
//!   balloc/   blocks: accounts, maps in memory, bits in the journal
//!   ialloc    inode numbers
//!   hot       expected lifetime of a file's blocks, by name, contents and history
//!   retry     operations that meet a full volume wait for a commit that frees something
//! ```
//!
//! Taking blocks and installing them are two steps: a block that is taken is taken in memory only,
//! and the handle that makes it part of a file sets its bit.

pub(crate) mod balloc;
pub(crate) mod hot;
pub(crate) mod ialloc;
pub(crate) mod retry;

use std::ops::Deref;
use std::sync::Arc;

use crate::space::balloc::Balloc;
use crate::space::hot::HotFiles;
use crate::space::ialloc::Ialloc;
use crate::store::Store;

pub(crate) struct Space {
    pub(crate) store: Arc<Store>,
    pub(crate) balloc: Balloc,
    pub(crate) hot: HotFiles,
    pub(crate) ialloc: Ialloc,
}

impl Space {
    /// True if blocks of a file may get other places. Those of a cluster would have to move
    /// together, mapped or not, with their copies in the log: a volume of clusters moves nothing.
    pub(crate) fn may_move_data(&self) -> bool {
        self.geo.cluster_bits == 0
    }
}

impl Deref for Space {
    type Target = Store;
    fn deref(&self) -> &Store {
        &self.store
    }
}
