//! Timestamps that lazytime kept in memory, on their way to the inode table.

use crate::error::Result;
use crate::incore::{Dirty, Inode};
use crate::inode::Inodes;
use crate::inode::iget::cached_inodes;
use crate::inode::table::write_inode;

/// Writes lazily kept timestamps of all cached inodes into the running transaction
/// (syncfs, unmount).
pub(crate) fn write_lazy_times(inodes: &Inodes) -> Result<()> {
    for inode in cached_inodes(inodes) {
        if inode.state.read().times_dirty {
            inodes.relieve_log()?;
            let mut h = inodes.start(2)?;
            let mut st = inode.state.write();
            if st.times_dirty {
                write_inode(inodes, &mut h, &inode, &mut st, Dirty::Times)?;
            }
        }
    }
    Ok(())
}

/// Writes timestamps that lazytime kept in memory.
pub(crate) fn write_lazy_times_of(inodes: &Inodes, inode: &Inode) -> Result<()> {
    if !inode.state.read().times_dirty {
        return Ok(());
    }
    let mut h = inodes.start(1)?;
    let mut st = inode.state.write();
    write_inode(inodes, &mut h, inode, &mut st, Dirty::Times)
}
