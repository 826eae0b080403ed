//! `mkfs`, `resize`, `import` and `export`: images made, filled from trees and archives, and
//! written as such.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use syncline_device::VirtualClock;
use syncline_image::archive::{self, Estimate};
use syncline_image::copy::{Pins, estimate, fill};
use syncline_image::resize::NewSize;
use syncline_image::{Image, Opening, mkfs};

use crate::archive_stream;
use crate::args::{Export, Import, Mkfs, Resize};
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::format::{Out, Staged};
use crate::image::{self, Place, Standard};

/// The time of reproducible builds (reproducible-builds.org).
const EPOCH: &str = "SOURCE_DATE_EPOCH";

fn epoch_s() -> Result<Option<u64>> {
    let Some(text) = std::env::var_os(EPOCH) else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.trim().parse::<u64>().ok());
    let seconds = seconds.filter(|seconds| *seconds < 1 << 33);
    let bad = || Failure::Usage(format!("{EPOCH} is not a number of seconds; correct or unset it"));
    seconds.ok_or_else(bad).map(Some)
}

/// Makes a volume.
pub(crate) fn mkfs(args: &Mkfs) -> Result<()> {
    let made = mkfs::Mkfs {
        size_bytes: args.size,
        label: args.label.clone(),
        force: args.force,
        time_s: epoch_s()?,
        mode: args.mode,
        more: args.more.clone(),
        ..mkfs::Mkfs::default()
    };
    Ok(made.make(&args.image)?)
}

/// Changes the size of an image.
pub(crate) fn resize(args: &Resize) -> Result<()> {
    let size = args.size.map_or(NewSize::Minimum, NewSize::Bytes);
    let bytes = syncline_image::resize::resize(&args.image, size)?;
    let mut out = Out::new();
    out.text(format!("{}: {} bytes\n", args.image.display(), bytes))?;
    out.flush()
}

/// Fills an image, which is made if it is not there.
pub(crate) fn import(args: &Import) -> Result<()> {
    let epoch_s = epoch_s()?;
    let is_dir = args.source.is_dir();
    if !is_dir && args.owner.is_some() {
        let text = "--owner is for directories; an archive has owners of its own";
        return Err(Failure::Usage(text.to_owned()));
    }
    let made = !args.image.exists();
    let mut bounds = Bounds::writer(&args.image).makes(&args.image);
    bounds.reads.push(args.source.clone());
    if made {
        // Nobody reads it yet, and mke2fs makes it.
        bounds.starts = true;
        bounds.enter();
        let new = mkfs::Mkfs {
            size_bytes: args.size,
            label: args.label.clone(),
            time_s: epoch_s,
            mode: args.mode,
            ..mkfs::Mkfs::default()
        };
        new.for_tree(needs(args, is_dir)?).make(&args.image)?;
    } else if args.size.is_some() || args.label.is_some() {
        let text = "exists: --size and --label are for new images; leave them out";
        return Err(Failure::Usage(text.to_owned()).at(args.image.display()));
    }
    let done = filled(args, is_dir, epoch_s, bounds);
    if made && done.is_err() {
        // Nothing half-made stays; the first error counts.
        let _ = std::fs::remove_file(&args.image);
    }
    done
}

/// Estimates the space for the tree, from which the size of a new image is computed.
fn needs(args: &Import, is_dir: bool) -> Result<Estimate> {
    if is_dir {
        return Ok(estimate(&args.source, &Standard)?);
    }
    if archive_stream::is_stream(&args.source) {
        return match args.size {
            Some(_) => Ok(Estimate::default()),
            None => Err(Failure::Usage(
                "the size of standard input or a pipe is unknown; give --size".to_owned(),
            )),
        };
    }
    let mut from = archive_stream::open(&args.source)?;
    archive::estimate(&mut *from, &Standard).map_err(|err| at(args, err))
}

fn at(args: &Import, err: syncline_image::ImageError) -> Failure {
    Failure::from(err).at(args.source.display())
}

fn filled(args: &Import, is_dir: bool, epoch_s: Option<u64>, bounds: Bounds) -> Result<()> {
    let mut how = image::opening(&args.part, bounds);
    if let Some(seconds) = epoch_s {
        how = Opening { clock: Arc::new(VirtualClock::new(seconds * 1_000_000_000)), ..how };
    }
    let image = Image::write(&args.image, &how)?;
    if !is_dir {
        let done = archive_stream::open(&args.source).and_then(|mut from| {
            archive::import(&mut *from, &image, &Standard).map_err(|err| at(args, err))
        });
        return image.close(done);
    }
    let pins = Pins { owner: args.owner, latest_s: epoch_s.and_then(|s| i64::try_from(s).ok()) };
    let done = fill(&image, &args.source, pins, &Standard);
    let outcome = image.close(done)?;
    let Some(first) = outcome.first.map(Failure::from) else { return Ok(()) };
    let count = outcome.failures;
    crate::complain(&format!("{count} files were not copied, see above; correct and run it again"));
    Err(Failure::Said(first.code()))
}

/// Writes an archive.
pub(crate) fn export(args: &Export) -> Result<()> {
    let whole = || Place { image: (&args.source).into(), path: b"/".to_vec() };
    let place = Place::split(&args.source).unwrap_or_else(whole);
    let to_file = args.output != Path::new("-");
    let bounds = Bounds::reader(&place.image);
    let bounds = if to_file { bounds.makes(&args.output) } else { bounds };
    let image = image::read(&place.image, &image::opening(&args.part, bounds))?;
    if !to_file {
        let mut out = Out::new();
        let done = archive::export(&image, &place.path, &mut out, &Standard);
        return image.close(done.map_err(Failure::from).and_then(|()| out.flush()));
    }
    let staged = Staged::private(&args.output)?;
    let mut out = BufWriter::with_capacity(1 << 20, staged.file(&args.output)?);
    let done = archive::export(&image, &place.path, &mut out, &Standard).map_err(Failure::from);
    let written = out.flush().map_err(|err| Failure::host(&args.output, &err));
    image.close(done.and(written))?;
    Ok(staged.commit(&args.output)?)
}
