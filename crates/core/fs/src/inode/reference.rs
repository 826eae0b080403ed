//! Counted references to cached inodes. The last one of an unlinked inode frees it when dropped.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::incore::Inode;
use crate::inode::Inodes;
use crate::inode::evict::last_reference_dropped;

/// A counted reference to an inode. While one exists the inode stays usable, also when unlinked.
///
/// The last one of an unlinked inode frees the file when dropped: it must not be dropped while a
/// journal handle or a lock of that inode is held.
pub struct InodeRef {
    inodes: Arc<Inodes>,
    inode: Arc<Inode>,
}

impl InodeRef {
    pub(crate) fn new(inodes: &Arc<Inodes>, inode: Arc<Inode>) -> InodeRef {
        inode.refs.fetch_add(1, Ordering::AcqRel);
        InodeRef { inodes: Arc::clone(inodes), inode }
    }

    pub(crate) fn arc(&self) -> &Arc<Inode> {
        &self.inode
    }

    pub(crate) fn inodes(&self) -> &Arc<Inodes> {
        &self.inodes
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> InodeRef {
        InodeRef::new(&self.inodes, Arc::clone(&self.inode))
    }
}

impl Deref for InodeRef {
    type Target = Inode;
    fn deref(&self) -> &Inode {
        &self.inode
    }
}

impl std::fmt::Debug for InodeRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InodeRef({})", self.inode.ino)
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        if self.inode.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            last_reference_dropped(&self.inodes, &self.inode);
        }
    }
}
