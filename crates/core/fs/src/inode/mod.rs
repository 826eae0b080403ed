//! Inodes.

pub(crate) mod attr;
pub(crate) mod blocks;
pub(crate) mod create;
pub(crate) mod evict;
pub(crate) mod icache;
pub(crate) mod iget;
pub(crate) mod lazytime;
pub(crate) mod orphan;
pub(crate) mod orphans;
pub(crate) mod recovery;
pub(crate) mod reference;
pub(crate) mod table;
pub(crate) mod xattr;

use std::ops::Deref;

use parking_lot::Mutex;

use crate::inode::icache::Icache;
use crate::inode::orphans::Orphans;
use crate::pages::PageCache;
use crate::space::Space;

pub(crate) struct Inodes {
    pub(crate) space: Space,
    pub(crate) pages: PageCache,
    pub(crate) icache: Icache,
    pub(crate) orphans: Mutex<Orphans>,
}

impl Deref for Inodes {
    type Target = Space;
    fn deref(&self) -> &Space {
        &self.space
    }
}
