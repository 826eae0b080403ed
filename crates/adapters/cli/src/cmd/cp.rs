//! `cp`: into, out of and between images.

use std::ffi::OsString;
use std::path::Path;

use syncline_image::Opening;
use syncline_image::copy::{Options, Outcome, copy};

use crate::args::Cp;
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::image;
use crate::image::{Place, Standard};

/// Copies.
pub(crate) fn run(args: &Cp) -> Result<()> {
    let (target, sources) = match args.paths.split_last() {
        Some((target, sources)) if !sources.is_empty() => (target, sources),
        _ => {
            let text =
                "a file to copy or its target is missing; give both, as in `cp FILE IMAGE:/`";
            return Err(Failure::Usage(text.into()));
        }
    };
    let opening = image::opening(&args.part, bounds(&args.paths, target));
    let opening = Opening { rescue: image::rescue(args.rescued), ..opening };
    let options = Options { opening, ..options(args) };
    complete(copy(sources, target, options, &Standard::new("copied"))?)
}

/// Options of a copy, without those of opening images.
pub(super) fn options(args: &Cp) -> Options {
    Options {
        recursive: args.recursive || args.archive,
        preserve: args.preserve || args.archive,
        devices: args.devices || args.archive,
        special_bits: args.archive,
        ..Options::default()
    }
}

/// Fails if files were left out.
pub(super) fn complete(outcome: Outcome) -> Result<()> {
    let Some(first) = outcome.first.map(Failure::from) else { return Ok(()) };
    let count = outcome.failures;
    crate::complain(&format!("{count} files were not copied, see above; copy them again"));
    Err(Failure::Said(first.code()))
}

/// The places of a copy.
fn bounds(paths: &[OsString], target: &OsString) -> Bounds {
    let mut bounds = Bounds::default();
    for path in paths {
        let (place, is_target) = (Place::split(path), path == target);
        match place {
            // A qcow2 that was not closed is repaired by qemu-img.
            Some(place) if is_target => {
                bounds = Bounds { reads: bounds.reads, ..Bounds::writer(&place.image) }
            }
            Some(place) => bounds.reads.push(place.image),
            None if is_target && Path::new(path).is_dir() => bounds.fills.push(path.into()),
            None if is_target => bounds = bounds.makes(path.as_ref()),
            None => bounds.reads.push(path.into()),
        }
    }
    bounds
}
