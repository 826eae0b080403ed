//! Free space.

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

impl Deref for Space {
    type Target = Store;
    fn deref(&self) -> &Store {
        &self.store
    }
}
