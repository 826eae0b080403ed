//! Directories made, files renamed and trees removed, by path.

use std::collections::BTreeSet;

use syncline_fs::{Create, FsError, InodeRef, RenameFlags, Volume};

use crate::{ImageError, Result, Watch, platform};

/// Owner and group of the caller, for new files.
pub fn owned(mode: u16) -> Create {
    let (uid, gid) = platform::user();
    Create { mode, uid, gid }
}

/// `dir/name`.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Names in a directory, without `.` and `..`, in the order of the directory.
pub(crate) fn names(vol: &Volume, dir: &InodeRef) -> syncline_fs::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    vol.readdir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        true
    })?;
    Ok(names)
}

/// Makes a directory; with `parents` those above it too, and one that is there is no error.
///
/// # Errors
/// A part of the path is not a directory, the name is taken, the volume is full.
pub fn make_directory(vol: &Volume, path: &[u8], create: &Create, parents: bool) -> Result<()> {
    if parents {
        let parts: Vec<&[u8]> =
            path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        let mut dir = vol.root()?;
        for part in parts {
            dir = match vol.lookup(&dir, part) {
                Ok(found) if found.is_dir() => found,
                // A link to a directory will do, and `..` has been looked up like any name.
                Ok(found) if found.is_symlink() => return make_directory(vol, path, create, false),
                Ok(_) => return Err(FsError::NotDir.into()),
                Err(FsError::NotFound) => vol.mkdir(&dir, part, create)?,
                Err(err) => return Err(err.into()),
            };
        }
        return Ok(());
    }
    let (dir, name) = vol.resolve_parent(path)?;
    vol.mkdir(&dir, name, create)?;
    Ok(())
}

/// Renames in one transaction. An existing directory `to` takes the file under its old name.
///
/// # Errors
/// As of rename(2).
pub fn rename(vol: &Volume, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<()> {
    let (old_dir, old_name) = vol.resolve_parent(from)?;
    let into = vol.resolve(to).ok().filter(|inode| inode.is_dir());
    let (new_dir, new_name) = match into {
        Some(dir) => (dir, old_name),
        None => vol.resolve_parent(to)?,
    };
    Ok(vol.rename(&old_dir, old_name, &new_dir, new_name, flags)?)
}

/// Options of [`remove`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Removal {
    /// Directories with what is in them.
    pub recursive: bool,
    /// A file that is not there is no error.
    pub force: bool,
}

/// Removes a file, or a tree.
///
/// # Errors
/// No such file, a directory without `recursive`, an image whose directories go round.
pub fn remove(vol: &Volume, path: &[u8], how: Removal, watch: &dyn Watch) -> Result<()> {
    let (dir, name) = match vol.resolve_parent(path) {
        Err(FsError::NotFound) if how.force => return Ok(()),
        other => other?,
    };
    let inode = match vol.lookup(&dir, name) {
        Err(FsError::NotFound) if how.force => return Ok(()),
        other => other?,
    };
    if !inode.is_dir() {
        return Ok(vol.unlink(&dir, name)?);
    }
    if !how.recursive {
        return Err(ImageError::Failed("is a directory; give -r to remove it".into()));
    }
    remove_tree(vol, &dir, name, inode, watch)
}

/// Remaining work in one directory.
struct Open {
    parent: InodeRef,
    name: Vec<u8>,
    dir: InodeRef,
    names: Vec<Vec<u8>>,
}

/// Removes a directory with what is in it. Without recursion: depth is the image's choice.
fn remove_tree(
    vol: &Volume,
    parent: &InodeRef,
    name: &[u8],
    dir: InodeRef,
    watch: &dyn Watch,
) -> Result<()> {
    let open = |parent: InodeRef, name: Vec<u8>, dir: InodeRef| -> Result<Open> {
        let names = names(vol, &dir)?;
        Ok(Open { parent, name, dir, names })
    };
    // A directory has one name, except in images that nobody vouches for.
    let mut entered = BTreeSet::from([dir.ino]);
    let mut stack = vec![open(parent.clone(), name.to_vec(), dir)?];
    while let Some(top) = stack.last_mut() {
        watch.check()?;
        let Some(name) = top.names.pop() else {
            let Some(done) = stack.pop() else { break };
            drop(done.dir);
            vol.rmdir(&done.parent, &done.name)?;
            continue;
        };
        let inode = vol.lookup(&top.dir, &name)?;
        if inode.is_dir() {
            if !entered.insert(inode.ino) {
                let text = "a directory with two names; run `syncline check` on the image";
                return Err(ImageError::Corrupt(text.into()));
            }
            let parent = top.dir.clone();
            stack.push(open(parent, name, inode)?);
        } else {
            drop(inode);
            vol.unlink(&top.dir, &name)?;
        }
    }
    Ok(())
}
