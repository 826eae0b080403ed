//! Hard links.

use syncline_ondisk::dir::file_type;

use crate::data::relaxed::note_name;
use crate::error::{FsError, Result};
use crate::incore::Dirty;
use crate::inode::orphan::{orphan_add, orphan_del};
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::inode::times::change_time;
use crate::names::Names;
use crate::names::dcache::Known;
use crate::names::dir::Probe;
use crate::names::namei::{self, INSERT_CREDITS, LINKS_MAX, ORPHAN_CREDITS, add_name, probe_name};
use crate::space::retry::retry_when_full;

const HALF_WAY: &str = "a first name was given half way";

impl crate::Volume {
    /// Gives `inode` one more name, or its first one if [`Self::tmpfile`] made it.
    ///
    /// # Errors
    /// [`FsError::Perm`] for a directory, an immutable or append-only file, [`FsError::Exists`],
    /// [`FsError::TooManyLinks`] above 65,000, [`FsError::NotFound`] for a file that was removed.
    pub fn link(&self, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
        namei::check_name(name)?;
        self.0.before_change()?;
        retry_when_full(&self.0, || link_once(&self.0, inode, dir, name))
    }
}
fn link_once(names: &Names, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
    let _rwsem = dir.rwsem.write();
    let place = match probe_name(names, dir, name)? {
        Probe::Found(_) => return Err(FsError::Exists),
        Probe::Absent(place) => place,
    };
    // As Linux: a name that exists comes before what may not be linked.
    if inode.is_dir() {
        return Err(FsError::Perm);
    }
    namei::check_may_lose_name(inode)?;
    namei::check_may_add(dir)?;
    names.dcache.forget(dir.ino, name);
    note_name(names, inode, name);
    let mut h = names.start(INSERT_CREDITS + 2 * ORPHAN_CREDITS + 1)?;
    h.keep_order();
    let (file_type, is_first) = {
        let mut st = inode.state.write();
        let links = st.raw.i_links_count;
        let is_first = links == 0;
        match links {
            0 if !st.may_get_name => return Err(FsError::NotFound),
            links if links >= LINKS_MAX => return Err(FsError::TooManyLinks),
            links => st.raw.i_links_count = links + 1,
        }
        if is_first {
            let freed = orphan_del(names, &mut h, inode, &mut st);
            names.all_or_nothing(&h, freed, HALF_WAY)?;
        }
        let before = st.raw.i_ctime;
        st.raw.i_ctime = change_time(names, inode, &mut st);
        if let Err(err) = write_inode(names, &mut h, inode, &mut st, Dirty::Times) {
            st.raw.i_links_count = links;
            st.raw.i_ctime = before;
            return if is_first { names.all_or_nothing(&h, Err(err), HALF_WAY) } else { Err(err) };
        }
        (file_type::from_mode(st.raw.i_mode), is_first)
    };
    let entry = (name, inode.ino, file_type);
    let added = add_name(names, &mut h, dir, &mut dir.state.write(), entry, place);
    if added.is_err() {
        let mut st = inode.state.write();
        st.raw.i_links_count -= 1;
        let undone = match is_first {
            true => orphan_add(names, &mut h, inode, &mut st),
            false => write_inode(names, &mut h, inode, &mut st, Dirty::Times),
        };
        names.all_or_nothing(&h, undone, "a link was not taken back")?;
    } else {
        if is_first {
            inode.state.write().may_get_name = false;
        }
        names.know(dir, name, Known::Inode(inode.ino));
    }
    added
}
