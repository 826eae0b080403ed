//! `cat`: the contents of files.

use syncline_fs::Volume;

use crate::args::Cat;
use crate::error::Result;
use crate::format::Out;
use crate::image::{self, Place};

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Prints each file.
pub(crate) fn run(args: &Cat) -> Result<()> {
    let mut out = Out::new();
    let done = image::for_each(&args.paths, &args.part, false, &mut |vol, place| {
        print(vol, place, &mut out)
    });
    out.flush().and(done)
}

pub(super) fn print(vol: &Volume, place: &Place, out: &mut Out) -> Result<()> {
    let inode = vol.resolve(&place.path)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        crate::interrupt::check()?;
        let len = vol.read(&inode, at, &mut chunk)?;
        let Some(read) = chunk.get(..len).filter(|read| !read.is_empty()) else { return Ok(()) };
        out.bytes(read)?;
        at += len as u64;
    }
}
