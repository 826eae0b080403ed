//! stub
use crate::{error::*, inode::*, volume::*};
use syncline_jbd2::Handle;
impl Inner {
    pub(crate) fn release_xattrs(
        &self,
        _: &mut Handle,
        _: &Inode,
        _: &mut InodeState,
    ) -> Result<()> {
        Ok(())
    }
}
