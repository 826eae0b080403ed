//! `mv`: a new name within an image, in one transaction.

use syncline_fs::RenameFlags;
use syncline_image::names::rename;

use crate::args::Mv;
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::image::{self, Place};

/// Renames.
pub(crate) fn run(args: &Mv) -> Result<()> {
    let (from, to) = (Place::parse(&args.from)?, Place::parse(&args.to)?);
    if from.image != to.image {
        let text = "the two names are in different images; use `syncline cp` and `syncline rm`";
        return Err(Failure::Usage(text.into()));
    }
    let flags = if args.no_clobber { RenameFlags::NOREPLACE } else { RenameFlags::NONE };
    let how = image::opening(&args.part, Bounds::writer(&from.image));
    let image = syncline_image::Image::write(&from.image, &how)?;
    let done = rename(&image.vol, &from.path, &to.path, flags).map_err(|err| err.at(from.shown()));
    Ok(image.close(done)?)
}
