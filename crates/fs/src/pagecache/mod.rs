//! stub
use crate::{error::*, inode::*, options::*};
#[derive(Default)]
pub(crate) struct PageTree;
impl PageTree {
    pub(crate) fn has_dirty(&self) -> bool {
        false
    }
}
pub(crate) struct PageCache;
impl PageCache {
    pub(crate) fn new(_: &MountOptions, _: usize) -> Result<PageCache> {
        Ok(PageCache)
    }
    pub(crate) fn forget_inode(&self, _: &Inode) {}
}
