//! `rm`: files and trees of an image.

use syncline_image::names::{Removal, remove};

use crate::args::Rm;
use crate::error::Result;
use crate::image::{self, Access, Standard};

/// Removes each path.
pub(crate) fn run(args: &Rm) -> Result<()> {
    let how = Removal { recursive: args.recursive, force: args.force };
    image::for_each(&args.paths, &args.part, Access::Write, &mut |vol, place| {
        Ok(remove(vol, &place.path, how, &Standard::new("removed"))?)
    })
}
