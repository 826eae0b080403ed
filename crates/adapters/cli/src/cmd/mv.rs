//! `mv`: a new name within an image, in one transaction.

use syncline_fs::RenameFlags;

use crate::args::Mv;
use crate::error::{Failure, Result};
use crate::image::{Image, Place};

/// Renames.
pub(crate) fn run(args: &Mv) -> Result<()> {
    let (from, to) = (Place::parse(&args.from)?, Place::parse(&args.to)?);
    if from.image != to.image {
        let text = "the two names are in different images; use `syncline cp` and `syncline rm`";
        return Err(Failure::Usage(text.into()));
    }
    let image = Image::write(&from.image)?;
    let done = rename(&image, &from, &to, args.no_clobber).map_err(|err| err.at(from.shown()));
    image.close(done)
}

fn rename(image: &Image, from: &Place, to: &Place, no_clobber: bool) -> Result<()> {
    let vol = &image.vol;
    let (old_dir, old_name) = vol.resolve_parent(&from.path)?;
    let into = vol.resolve(&to.path).ok().filter(|inode| inode.is_dir());
    let (new_dir, new_name) = match into {
        Some(dir) => (dir, old_name),
        None => vol.resolve_parent(&to.path)?,
    };
    let flags = if no_clobber { RenameFlags::NOREPLACE } else { RenameFlags::NONE };
    Ok(vol.rename(&old_dir, old_name, &new_dir, new_name, flags)?)
}
