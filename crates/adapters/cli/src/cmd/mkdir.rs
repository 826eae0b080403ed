//! `mkdir`: directories in an image.

use syncline_fs::{Create, FsError, Volume};

use crate::args::Mkdir;
use crate::error::{Failure, Result};
use crate::image::{self, Place};

/// Makes each directory.
pub(crate) fn run(args: &Mkdir) -> Result<()> {
    let mode = u16::from_str_radix(&args.mode, 8).ok().filter(|mode| *mode <= 0o7777);
    let mode = mode.ok_or_else(|| {
        Failure::Usage(format!("`{}` is no mode; give octal digits as in 755", args.mode))
    })?;
    let create = owned(mode);
    image::for_each(&args.paths, true, &mut |vol, place| make(vol, place, &create, args.parents))
}

/// Made by whoever runs this.
pub(crate) fn owned(mode: u16) -> Create {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    Create { mode, uid: uid.as_raw(), gid: gid.as_raw() }
}

fn make(vol: &Volume, place: &Place, create: &Create, parents: bool) -> Result<()> {
    if parents {
        let parts: Vec<&[u8]> =
            place.path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        let mut dir = vol.root()?;
        for part in parts {
            dir = match vol.lookup(&dir, part) {
                Ok(found) if found.is_dir() => found,
                // A link to a directory will do, and `..` has been looked up like any name.
                Ok(found) if found.is_symlink() => return make(vol, place, create, false),
                Ok(_) => return Err(FsError::NotDir.into()),
                Err(FsError::NotFound) => vol.mkdir(&dir, part, create)?,
                Err(err) => return Err(err.into()),
            };
        }
        return Ok(());
    }
    let (dir, name) = vol.resolve_parent(&place.path)?;
    vol.mkdir(&dir, name, create)?;
    Ok(())
}
