//! `cat`: the contents of files.

use syncline_fs::Volume;
use syncline_image::copy::contents;

use crate::args::Cat;
use crate::error::Result;
use crate::format::Out;
use crate::image::{self, Access, Place};

/// Prints each file.
pub(crate) fn run(args: &Cat) -> Result<()> {
    let mut out = Out::new();
    let done =
        image::for_each(&args.paths, &args.part, Access::Read(args.rescued), &mut |vol, place| {
            print(vol, place, &mut out)
        });
    out.flush().and(done)
}

pub(super) fn print(vol: &Volume, place: &Place, out: &mut Out) -> Result<()> {
    let inode = vol.resolve(&place.path)?;
    contents(vol, &inode, &place.shown(), &mut |read| {
        crate::interrupt::check()?;
        out.bytes(read)
    })
}
