//! Relocation of a file, or of the files of a directory, into the zones of the mount.

use crate::data::Files;
use crate::data::relocate::relocate_file;
use crate::error::{FsError, Result};
use crate::inode::iget::iget;
use crate::inode::reference::InodeRef;
use crate::names::namei::readdir;
use crate::options::Alloc;

impl crate::Volume {
    /// Moves the blocks of a file into the zones of the mount and keeps it there; of a directory,
    /// those of the files in it, not further down. Returns how many blocks moved.
    ///
    /// # Errors
    /// [`FsError::Invalid`] on a mount without zones; [`FsError::NotSupported`] for anything but a
    /// file with extents or a directory; I/O and corruption.
    pub fn relocate(&self, inode: &InodeRef) -> Result<u64> {
        relocate(&self.0, inode)
    }
}

/// Moves the blocks of a file, or of the files in a directory, into zones. Returns the number of
/// blocks.
pub(crate) fn relocate(files: &Files, inode: &InodeRef) -> Result<u64> {
    files.before_change()?;
    if files.options.alloc == Alloc::Default {
        let text = "the mount keeps no blocks for hot files; mount with -o alloc=hot_zones";
        return Err(FsError::invalid(text));
    }
    if !inode.is_dir() {
        return relocate_file(files, inode);
    }
    let mut inos = Vec::new();
    readdir(
        files,
        inode,
        0,
        &mut |entry| {
            inos.push(entry.ino);
            true
        },
        false,
    )?;
    let mut moved = 0;
    for ino in inos {
        let file = iget(files, ino)?;
        if file.state.read().raw.is_file() {
            moved += relocate_file(files, &file)?;
        }
    }
    Ok(moved)
}
