//! Names: entries that come and go, and the directories that are made for them.

use syncline_ondisk::dir::file_type;
use syncline_ondisk::fast_commit::NameOf;

use super::{Replay, contradiction};
use crate::error::Result;
use crate::incore::Dirty;
use crate::inode::orphan::orphan_del;
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::names::create::fill_new_dir;
use crate::names::dir::Probe;
use crate::names::namei::{
    INSERT_CREDITS, LINKS_MAX, ORPHAN_CREDITS, REMOVE_CREDITS, add_name, check_dir_links,
    dec_links_of_dir, inc_links_of_dir, probe_name,
};
use crate::names::unlink::{check_empty, drop_dir, drop_link, remove_name};

/// Blocks of a handle that adds a name, beside those of the directory: the inode, a first block
/// with bitmap and descriptor, and the end of being an orphan.
const LINK_CREDITS: u32 = INSERT_CREDITS + 4 + ORPHAN_CREDITS;

impl Replay<'_> {
    /// A directory in which names can be looked up; `None` if it is gone.
    fn dir(&mut self, of: &NameOf<'_>) -> Result<Option<InodeRef>> {
        let Some(dir) = self.get(of.parent)? else { return Ok(None) };
        if dir.state.read().raw.i_links_count == 0 && !self.unmade.contains(&of.parent) {
            return Ok(None);
        }
        if !dir.is_dir() || self.unmade.contains(&of.parent) {
            return Err(contradiction(self.names, of.parent, "names in what is no directory"));
        }
        Ok(Some(dir))
    }

    /// Adds a name. `is_new`: the inode was made by this fast commit.
    pub(super) fn link(&mut self, of: &NameOf<'_>, is_new: bool) -> Result<()> {
        let names = self.names;
        let Some(dir) = self.dir(of)? else { return Ok(()) };
        let Some(inode) = self.get(of.ino)? else {
            if is_new {
                return Err(contradiction(names, of.ino, "a name of an inode without a slot"));
            }
            return Ok(());
        };
        let Probe::Absent(place) = probe_name(names, &dir, of.name)? else {
            // The same, or that of a later tag.
            return Ok(());
        };
        let is_dir = inode.is_dir();
        if is_dir && (!self.unmade.contains(&of.ino) || of.ino == of.parent) {
            return Err(contradiction(names, of.ino, "a second name of a directory"));
        }
        if is_dir {
            check_dir_links(names, &dir)?;
        }
        let mut h = names.start(LINK_CREDITS)?;
        let kind = {
            let mut st = inode.state.write();
            if is_dir {
                fill_new_dir(names, &mut h, &inode, &mut st, of.parent)?;
                st.raw.i_links_count = 2;
            } else if st.raw.i_links_count >= LINKS_MAX {
                return Err(contradiction(names, of.ino, "too many names"));
            } else {
                st.raw.i_links_count += 1;
                orphan_del(names, &mut h, &inode, &mut st)?;
            }
            write_inode(names, &mut h, &inode, &mut st, Dirty::Data)?;
            file_type::from_mode(st.raw.i_mode)
        };
        self.unmade.remove(&of.ino);
        let mut st = dir.state.write();
        if is_dir {
            inc_links_of_dir(&mut st);
        }
        add_name(names, &mut h, &dir, &mut st, (of.name, of.ino, kind), place)
    }

    /// Takes a name away, if it is still that of this inode.
    pub(super) fn unlink(&mut self, of: &NameOf<'_>) -> Result<()> {
        let names = self.names;
        let Some(dir) = self.dir(of)? else { return Ok(()) };
        let found = match probe_name(names, &dir, of.name)? {
            Probe::Found(found) if found.ino == of.ino => found,
            _ => return Ok(()),
        };
        let Some(inode) = self.get(of.ino)? else {
            return Err(contradiction(names, of.ino, "a name of a free inode"));
        };
        let is_dir = inode.is_dir();
        if is_dir {
            check_empty(names, &inode)
                .map_err(|_| contradiction(names, of.ino, "a directory with names is gone"))?;
        }
        let mut h = names.start(REMOVE_CREDITS + ORPHAN_CREDITS + 1)?;
        {
            let mut st = dir.state.write();
            if is_dir {
                dec_links_of_dir(&mut st);
            }
            remove_name(names, &mut h, &dir, &mut st, &found)?;
        }
        if is_dir { drop_dir(names, &mut h, &inode) } else { drop_link(names, &mut h, &inode) }
    }
}
