//! Taking names away: unlink and rmdir.
//!
//! Promises: an inode that loses its last name becomes an orphan in the same transaction and is
//! freed when the last [`InodeRef`] to it goes, by recovery if that does not happen before a crash.

use syncline_jbd2::Handle;
use syncline_ondisk::superblock::ROOT_INO;

use crate::dcache::Known;
use crate::dir::live::{Edit, View};
use crate::dir::{self, Found};
use crate::error::{FsError, Result};
use crate::inode::{Dirty, Inode, InodeRef, InodeState};
use crate::namei::{self, ORPHAN_CREDITS, REMOVE_CREDITS};
use crate::volume::{Inner, Volume};

impl Volume {
    /// Removes a name of something that is not a directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDir`], [`FsError::Perm`] for immutable and append-only
    /// files and directories.
    pub fn unlink(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let vol = &self.0;
        namei::check_name(name)?;
        vol.check_writable()?;
        let victim = {
            let _rwsem = dir.rwsem.write();
            let found = vol.find(dir, name)?;
            namei::check_may_remove(dir)?;
            let victim = vol.iget_entry(dir, &found)?;
            if victim.is_dir() {
                return Err(FsError::IsDir);
            }
            namei::check_may_lose_name(&victim)?;
            vol.dcache.forget(dir.ino, name);
            let mut h = vol.start(REMOVE_CREDITS + ORPHAN_CREDITS + 1)?;
            h.follow_names();
            vol.remove_name(&mut h, dir, &mut dir.state.write(), &found)?;
            vol.drop_link(&mut h, &victim)?;
            vol.dcache.put(dir.ino, name, Known::Absent);
            vol.hot.note_removed(&victim, name, vol.now().seconds);
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
    /// root, [`FsError::Invalid`] for `.`, [`FsError::Perm`] as for [`Volume::unlink`].
    pub fn rmdir(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let vol = &self.0;
        namei::check_name(name)?;
        vol.check_writable()?;
        if name == b"." {
            return Err(FsError::invalid("`.` cannot be removed; name the directory"));
        }
        if name == b".." {
            return Err(FsError::NotEmpty);
        }
        let victim = {
            let _rwsem = dir.rwsem.write();
            let found = vol.find(dir, name)?;
            namei::check_may_remove(dir)?;
            let victim = vol.iget_entry(dir, &found)?;
            vol.dcache.forget(dir.ino, name);
            vol.rmdir_locked(dir, &found, &victim)?;
            victim
        };
        drop(victim);
        Ok(())
    }
}

impl Inner {
    fn rmdir_locked(&self, dir: &InodeRef, found: &Found, victim: &InodeRef) -> Result<()> {
        if !victim.is_dir() {
            return Err(FsError::NotDir);
        }
        if victim.ino == ROOT_INO || victim.ino == dir.ino {
            return Err(FsError::Busy);
        }
        namei::check_may_lose_name(victim)?;
        let _victim_rwsem = victim.rwsem.write();
        self.check_empty(victim)?;
        let mut h = self.start(REMOVE_CREDITS + ORPHAN_CREDITS + 1)?;
        {
            let mut st = dir.state.write();
            namei::dec_links_of_dir(&mut st);
            self.remove_name(&mut h, dir, &mut st, found)?;
        }
        self.drop_dir(&mut h, victim)
    }

    /// Fails unless the directory, whose `rwsem` is held, has no entries but the dots.
    pub(crate) fn check_empty(&self, dir: &Inode) -> Result<()> {
        let st = dir.state.read();
        if dir::is_empty(&View::new(self, dir, &st)?)? { Ok(()) } else { Err(FsError::NotEmpty) }
    }

    /// Removes an entry in the handle's transaction and writes the directory's inode.
    pub(crate) fn remove_name(
        &self,
        h: &mut Handle,
        dir: &Inode,
        st: &mut InodeState,
        found: &Found,
    ) -> Result<()> {
        dir::remove(&mut Edit::new(self, h, dir, st)?, found)?;
        self.touch_dir(st);
        self.write_inode(h, dir, st, Dirty::Data)
    }

    /// One name less for something that is not a directory.
    pub(crate) fn drop_link(&self, h: &mut Handle, inode: &Inode) -> Result<()> {
        let mut st = inode.state.write();
        if st.raw.i_links_count == 0 {
            let what = "a file with a name has a link count of zero";
            return Err(self.corrupt(Some(inode.ino), None, None, what));
        }
        st.raw.i_links_count -= 1;
        st.raw.i_ctime = self.now();
        if st.raw.i_links_count == 0 {
            self.orphan_add(h, inode, &mut st)
        } else {
            self.write_inode(h, inode, &mut st, Dirty::Times)
        }
    }

    /// An empty directory lost its name. Its contents did not change, so its mtime stays
    /// (`ext4_rmdir`).
    pub(crate) fn drop_dir(&self, h: &mut Handle, inode: &Inode) -> Result<()> {
        let mut st = inode.state.write();
        st.raw.i_links_count = 0;
        st.raw.i_ctime = self.now();
        self.orphan_add(h, inode, &mut st)
    }
}
