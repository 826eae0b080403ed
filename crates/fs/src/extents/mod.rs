//! stub
use crate::{error::*, inode::*, volume::Inner};
#[derive(Default)]
pub(crate) struct ExtentCache;
#[allow(dead_code)]
pub(crate) enum Mapping {
    Hole { len: u32 },
    Mapped { pblk: u64, len: u32, unwritten: bool },
}
impl Inner {
    pub(crate) fn map_blocks(&self, _: &Inode, _: &InodeState, _: u32, _: u32) -> Result<Mapping> {
        Err(FsError::Stale)
    }
}
