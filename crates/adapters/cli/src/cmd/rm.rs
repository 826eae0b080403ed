//! `rm`: files and trees of an image.

use syncline_fs::{FsError, InodeRef, Volume};

use crate::args::Rm;
use crate::error::{Failure, Result};
use crate::image::{self, Place};

/// Removes each path.
pub(crate) fn run(args: &Rm) -> Result<()> {
    image::for_each(&args.paths, true, &mut |vol, place| remove(vol, place, args))
}

fn remove(vol: &Volume, place: &Place, args: &Rm) -> Result<()> {
    let (dir, name) = match vol.resolve_parent(&place.path) {
        Err(FsError::NotFound) if args.force => return Ok(()),
        other => other?,
    };
    let inode = match vol.lookup(&dir, name) {
        Err(FsError::NotFound) if args.force => return Ok(()),
        other => other?,
    };
    if !inode.is_dir() {
        return Ok(vol.unlink(&dir, name)?);
    }
    if !args.recursive {
        return Err(FsError::IsDir.into());
    }
    remove_tree(vol, &dir, name, inode)
}

/// What is left to do for one directory.
struct Open {
    parent: InodeRef,
    name: Vec<u8>,
    dir: InodeRef,
    names: Vec<Vec<u8>>,
}

/// Removes a directory with what is in it. Without recursion: depth is the image's choice.
fn remove_tree(vol: &Volume, parent: &InodeRef, name: &[u8], dir: InodeRef) -> Result<()> {
    let open = |parent: InodeRef, name: Vec<u8>, dir: InodeRef| -> Result<Open> {
        let mut names = Vec::new();
        vol.readdir(&dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            true
        })?;
        Ok(Open { parent, name, dir, names })
    };
    // A directory has one name, except in images that nobody vouches for.
    let mut entered = std::collections::BTreeSet::from([dir.ino]);
    let mut stack = vec![open(parent.clone(), name.to_vec(), dir)?];
    while let Some(top) = stack.last_mut() {
        crate::interrupt::check()?;
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
                return Err(Failure::Corrupt(text.into()));
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
