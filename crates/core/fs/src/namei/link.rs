//! Hard links.

use syncline_ondisk::dir::file_type;

use crate::dcache::Known;
use crate::dir::Probe;
use crate::error::{FsError, Result};
use crate::inode::{Dirty, InodeRef};
use crate::namei::{self, INSERT_CREDITS, LINKS_MAX};
use crate::volume::Volume;

impl Volume {
    /// Gives `inode` one more name.
    ///
    /// # Errors
    /// [`FsError::Perm`] for a directory, an immutable or append-only file, [`FsError::Exists`],
    /// [`FsError::TooManyLinks`] above 65,000, [`FsError::NotFound`] for a file without names.
    pub fn link(&self, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
        namei::check_name(name)?;
        self.0.check_writable()?;
        self.0.retry_when_full(|| self.link_once(inode, dir, name))
    }

    fn link_once(&self, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let vol = &self.0;
        let _rwsem = dir.rwsem.write();
        let place = match vol.probe(dir, name)? {
            Probe::Found(_) => return Err(FsError::Exists),
            Probe::Absent(place) => place,
        };
        // As Linux: a name that exists comes before what may not be linked.
        if inode.is_dir() {
            return Err(FsError::Perm);
        }
        namei::check_may_lose_name(inode)?;
        namei::check_may_add(dir)?;
        vol.dcache.forget(dir.ino, name);
        vol.note_name(inode, name);
        let mut h = vol.start(INSERT_CREDITS + 1)?;
        h.keep_order();
        let file_type = {
            let mut st = inode.state.write();
            match st.raw.i_links_count {
                0 => return Err(FsError::NotFound),
                links if links >= LINKS_MAX => return Err(FsError::TooManyLinks),
                links => st.raw.i_links_count = links + 1,
            }
            let before = st.raw.i_ctime;
            st.raw.i_ctime = vol.now();
            if let Err(err) = vol.write_inode(&mut h, inode, &mut st, Dirty::Times) {
                st.raw.i_links_count -= 1;
                st.raw.i_ctime = before;
                return Err(err);
            }
            file_type::from_mode(st.raw.i_mode)
        };
        let entry = (name, inode.ino, file_type);
        let added = vol.add_name(&mut h, dir, &mut dir.state.write(), entry, place);
        if added.is_err() {
            let mut st = inode.state.write();
            st.raw.i_links_count -= 1;
            vol.write_inode(&mut h, inode, &mut st, Dirty::Times)?;
        } else {
            vol.dcache.put(dir.ino, name, Known::Inode(inode.ino));
        }
        added
    }
}
