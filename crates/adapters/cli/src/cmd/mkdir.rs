//! `mkdir`: directories in an image.

use syncline_fs::Create;
use syncline_image::names::{make_directory, owned};

use crate::args::Mkdir;
use crate::error::{Failure, Result};
use crate::image::{self, Access};

/// Makes each directory.
pub(crate) fn run(args: &Mkdir) -> Result<()> {
    let create = create(args)?;
    image::for_each(&args.paths, &args.part, Access::Write, &mut |vol, place| {
        Ok(make_directory(vol, &place.path, &create, args.parents)?)
    })
}

/// Mode and owner of new directories.
pub(super) fn create(args: &Mkdir) -> Result<Create> {
    let mode = u16::from_str_radix(&args.mode, 8).ok().filter(|mode| *mode <= 0o7777);
    let mode = mode.ok_or_else(|| {
        Failure::Usage(format!("`{}` is not a mode; give octal digits as in 755", args.mode))
    })?;
    Ok(owned(mode))
}
