//! Taking names away: unlink and rmdir.
//!
//! Promises: an inode that loses its last name becomes an orphan in the same transaction and is
//! freed when the last [`InodeRef`] to it goes, by recovery if that does not happen before a crash.

use syncline_jbd2::Handle;
use syncline_ondisk::superblock::ROOT_INO;

use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::Inodes;
use crate::inode::orphan::orphan_add;
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::inode::times::change_time;
use crate::names::Names;
use crate::names::dcache::Known;
use crate::names::dir::live::{Edit, View};
use crate::names::dir::{self, Found};
use crate::names::namei::{self, ORPHAN_CREDITS, REMOVE_CREDITS, find_name, iget_entry, touch_dir};
use crate::store::Store;

impl crate::Volume {
    /// Removes a name of something that is not a directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDir`], [`FsError::Perm`] for immutable and append-only
    /// files and directories.
    pub fn unlink(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let names: &Names = &self.0;
        namei::check_name(name)?;
        names.before_change()?;
        let victim = {
            let _rwsem = dir.rwsem.write();
            let found = find_name(names, dir, name)?;
            namei::check_may_remove(dir)?;
            let victim = iget_entry(names, dir, &found)?;
            if victim.is_dir() {
                return Err(FsError::IsDir);
            }
            namei::check_may_lose_name(&victim)?;
            names.dcache.forget(dir.ino, name);
            let mut h = names.start(REMOVE_CREDITS + ORPHAN_CREDITS + 1)?;
            h.follow_names();
            let done = remove_name(names, &mut h, dir, &mut dir.state.write(), &found);
            let done = done.and_then(|()| drop_link(names, &mut h, &victim));
            names.all_or_nothing(&h, done, "an unlink failed half way")?;
            names.know(dir, name, Known::Absent);
            names.hot.note_removed(&victim, name, names.now().seconds);
            victim
        };
        // Handle and locks are released: this may free the file.
        drop(victim);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDir`], [`FsError::NotEmpty`], [`FsError::Busy`] for the
    /// root, [`FsError::Invalid`] for `.`, [`FsError::Perm`] as for [`Self::unlink`].
    pub fn rmdir(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let names: &Names = &self.0;
        namei::check_name(name)?;
        names.before_change()?;
        if name == b"." {
            return Err(FsError::invalid("`.` cannot be removed; name the directory"));
        }
        if name == b".." {
            return Err(FsError::NotEmpty);
        }
        let victim = {
            let _rwsem = dir.rwsem.write();
            let found = find_name(names, dir, name)?;
            namei::check_may_remove(dir)?;
            let victim = iget_entry(names, dir, &found)?;
            names.dcache.forget(dir.ino, name);
            rmdir_locked(names, dir, &found, &victim)?;
            victim
        };
        drop(victim);
        Ok(())
    }
}
fn rmdir_locked(inodes: &Inodes, dir: &InodeRef, found: &Found, victim: &InodeRef) -> Result<()> {
    if !victim.is_dir() {
        return Err(FsError::NotDir);
    }
    if victim.ino == ROOT_INO || victim.ino == dir.ino {
        return Err(FsError::Busy);
    }
    namei::check_may_lose_name(victim)?;
    let _victim_rwsem = victim.rwsem.write();
    check_empty(inodes, victim)?;
    let mut h = inodes.start(REMOVE_CREDITS + ORPHAN_CREDITS + 1)?;
    h.follow_names();
    let done = {
        let mut st = dir.state.write();
        namei::dec_links_of_dir(&mut st);
        remove_name(inodes, &mut h, dir, &mut st, found)
    };
    let done = done.and_then(|()| drop_dir(inodes, &mut h, victim));
    inodes.all_or_nothing(&h, done, "an rmdir failed half way")
}

/// Fails unless the directory, whose `rwsem` is held, has no entries but the dots.
pub(crate) fn check_empty(store: &Store, dir: &Inode) -> Result<()> {
    let st = dir.state.read();
    if dir::is_empty(&View::new(store, dir, &st)?)? { Ok(()) } else { Err(FsError::NotEmpty) }
}

/// Removes an entry in the handle's transaction and writes the directory's inode.
pub(crate) fn remove_name(
    inodes: &Inodes,
    h: &mut Handle,
    dir: &Inode,
    st: &mut InodeState,
    found: &Found,
) -> Result<()> {
    dir::remove(&mut Edit::new(inodes, h, dir, st)?, found)?;
    touch_dir(inodes, dir, st);
    write_inode(inodes, h, dir, st, Dirty::Data)
}

/// One name less for something that is not a directory.
pub(crate) fn drop_link(inodes: &Inodes, h: &mut Handle, inode: &Inode) -> Result<()> {
    let mut st = inode.state.write();
    if st.raw.i_links_count == 0 {
        let what = "a file with a name has a link count of zero";
        return Err(inodes.corrupt(Some(inode.ino), None, None, what));
    }
    st.raw.i_links_count -= 1;
    st.raw.i_ctime = change_time(inodes, inode, &mut st);
    if st.raw.i_links_count == 0 {
        orphan_add(inodes, h, inode, &mut st)
    } else {
        write_inode(inodes, h, inode, &mut st, Dirty::Times)
    }
}

/// An empty directory lost its name. Its contents did not change, so its mtime stays
/// (`ext4_rmdir`).
pub(crate) fn drop_dir(inodes: &Inodes, h: &mut Handle, inode: &Inode) -> Result<()> {
    let mut st = inode.state.write();
    st.raw.i_links_count = 0;
    st.raw.i_ctime = change_time(inodes, inode, &mut st);
    orphan_add(inodes, h, inode, &mut st)
}
