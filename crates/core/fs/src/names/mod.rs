//! Names: directories, operations on names, paths, and attributes whose change has an effect.
//!
//! ```text
//!   create, link, unlink, rename, symlink    one operation on names, in one handle
//!   namei     lookup, entries, what the operations share        path   whole paths
//!   dir/      algorithms of directory blocks                    dcache  names found before
//!   whiteout  what a rename may leave
//!   xattr, relocate   attributes with an effect, flags; files moved into zones
//! ```

pub(crate) mod create;
pub(crate) mod dcache;
pub(crate) mod dir;
pub(crate) mod link;
pub(crate) mod namei;
pub(crate) mod path;
pub(crate) mod relocate;
pub(crate) mod rename;
pub(crate) mod symlink;
pub(crate) mod unlink;
mod whiteout;
pub(crate) mod xattr;

use std::ops::Deref;

use syncline_base::lockrank::Mutex;
use syncline_ondisk::inode::flags;

use crate::data::Files;
use crate::data::sync_point::make_sync_point;
use crate::error::Result;
use crate::incore::Inode;
use crate::names::dcache::{Dcache, Known};
use crate::store::Committer;

pub(crate) struct Names {
    pub(crate) files: Files,
    pub(crate) dcache: Dcache,
    pub(crate) rename_lock: Mutex<()>,
}

impl Names {
    /// Remembers what a name means, but not in a directory that folds case: other spellings mean
    /// the same there.
    fn know(&self, dir: &Inode, name: &[u8], known: Known) {
        if !dir.state.read().raw.has_flag(flags::CASEFOLD) {
            self.dcache.put(dir.ino, name, known);
        }
    }
}

impl Deref for Names {
    type Target = Files;
    fn deref(&self) -> &Files {
        &self.files
    }
}

impl Committer for Names {
    fn commit_all(&self) -> Result<()> {
        make_sync_point(&self.files)
    }
}
