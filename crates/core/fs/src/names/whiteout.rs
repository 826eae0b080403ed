//! Whiteouts: character devices 0:0 that overlayfs takes for "this name is gone".
//!
//! ```text
//!   rename(old, new, WHITEOUT)   one transaction:   new -> inode of old     old -> whiteout
//! ```
//!
//! So after a crash a layer above shows the old name or the new one, never both and never an entry
//! of a lower layer. Linux: `ext4_whiteout_for_rename`. Tested in `tests/it/whiteout.rs`, and under
//! overlayfs in the tests of `fuse`.

use std::sync::Arc;

use syncline_jbd2::Handle;
use syncline_ondisk::inode::S_IFCHR;

use crate::error::Result;
use crate::incore::{Dirty, Lifetime};
use crate::inode::Inodes;
use crate::inode::create::new_inode;
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::names::create::{Create, owned_by};

/// A whiteout of this owner for a name in `dir`, with one link and no name yet.
///
/// # Errors
/// [`crate::FsError::NoSpace`] if no inode is free.
pub(super) fn new_whiteout(
    inodes: &Arc<Inodes>,
    h: &mut Handle,
    dir: &InodeRef,
    owner: &Create,
) -> Result<InodeRef> {
    let create = Create { mode: 0, ..*owner };
    let new = owned_by(&dir.state.read(), (S_IFCHR, Lifetime::Long), &create);
    let whiteout = new_inode(inodes, h, dir, &new)?;
    {
        let mut st = whiteout.state.write();
        st.raw.set_device_number(0, 0);
        write_inode(inodes, h, &whiteout, &mut st, Dirty::Data)?;
    }
    Ok(whiteout)
}
