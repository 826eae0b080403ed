//! Images as arguments: opened with remarks on standard error, and runs of `IMAGE:/path`.

use std::ffi::OsString;
use std::path::Path;

use syncline_device::BlockDevice;
use syncline_fs::{Rescue, Volume};
use syncline_image::partition::{Part, part_of};
use syncline_image::{Image, Opening, Watch};
use syncline_ondisk::Superblock;

pub(crate) use syncline_image::Place;

use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::progress::Bar;
use crate::{args, interrupt, progress};

/// Remarks and progress on standard error; Ctrl-C stops.
pub(crate) struct Standard(Bar);

impl Standard {
    /// Of work whose bytes are called `what`.
    pub(crate) fn new(what: &str) -> Standard {
        Standard(progress::bytes(what, 0))
    }

    /// The same in a process that gives up its rights before the work.
    #[cfg(target_os = "linux")]
    pub(crate) fn contained(what: &str) -> Standard {
        Standard(progress::bytes(what, 0).of_this_width())
    }
}

impl Watch for Standard {
    fn stop_check(&self) -> fn() -> bool {
        interrupt::asked
    }

    fn remark(&self, text: &str) {
        self.0.suspend(|| crate::complain(text));
    }

    fn wants_total(&self) -> bool {
        self.0.is_watched()
    }

    fn total(&self, bytes: u64) {
        self.0.set_total(bytes);
    }

    fn copied(&self, bytes: u64) {
        self.0.add(bytes);
    }
}

/// Opens the file or device.
pub(crate) fn device(path: &Path, read_only: bool) -> Result<std::sync::Arc<dyn BlockDevice>> {
    Ok(syncline_image::device(path, read_only)?)
}

/// Reads the superblock, whatever its features are.
pub(crate) fn superblock(dev: &dyn BlockDevice, path: &Path) -> Result<Superblock> {
    Ok(syncline_image::superblock(dev, path)?)
}

/// The part of a file that was named.
pub(crate) fn place(part: &args::Part) -> Part {
    match (part.partition, part.offset) {
        (Some(number), _) => Part::Partition(number),
        (None, Some(offset)) => Part::Offset(offset),
        (None, None) => Part::Whole,
    }
}

/// How far a command that reads goes past damage.
pub(crate) fn rescue(args: args::Rescued) -> Option<Rescue> {
    let asked = [(args.undelete, Rescue::All), (args.rescue, Rescue::Named)];
    asked.into_iter().find_map(|(is_asked, rescue)| is_asked.then_some(rescue))
}

/// Returns the options for opening the part of an image that was named, by a command with these
/// bounds.
pub(crate) fn opening(part: &args::Part, bounds: Bounds) -> Opening {
    let (backing, opened) = (part.backing.clone(), bounds.over(part).when_opened());
    let unpacking: fn() -> Box<dyn Watch> = || Box::new(Standard::new("unpack"));
    Opening { part: place(part), backing, opened, unpacking, ..Opening::default() }
}

/// Opens the named part of a file or device. `opened` is called when all files are open and locked,
/// before they are read.
pub(crate) fn opened(
    path: &Path,
    read_only: bool,
    part: &args::Part,
    opened: &dyn Fn(),
) -> Result<std::sync::Arc<dyn BlockDevice>> {
    let watch = Standard::new("unpack");
    let dev = syncline_image::opened_device(path, read_only, &part.backing, opened, &watch)?;
    Ok(part_of(dev, place(part), path)?)
}

/// As [`opened`], to read.
pub(crate) fn part(path: &Path, part: &args::Part) -> Result<std::sync::Arc<dyn BlockDevice>> {
    opened(path, true, part, &|| {})
}

/// Opens for reading.
pub(crate) fn read(path: &Path, how: &Opening) -> Result<Image> {
    let image = Image::read(path, how)?;
    image.tell(path, &Standard::new("read"));
    Ok(image)
}

/// How places are opened.
pub(crate) enum Access {
    Read(args::Rescued),
    Write,
}

/// Calls `each` with every place, each image mounted once for a run of places in it. All are tried;
/// the first failure decides the exit code, the others are printed.
pub(crate) fn for_each(
    arguments: &[OsString],
    part: &args::Part,
    access: Access,
    each: &mut dyn FnMut(&Volume, &Place) -> Result<()>,
) -> Result<()> {
    let places: Vec<Place> =
        arguments.iter().map(|a| Place::parse(a)).collect::<syncline_image::Result<_>>()?;
    let images: Vec<_> = places.iter().map(|place| place.image.clone()).collect();
    let bounds = match access {
        Access::Write => Bounds {
            starts: images.iter().any(|image| syncline_image::is_qcow2(image)),
            writes: images,
            ..Bounds::default()
        },
        Access::Read(_) => Bounds { reads: images, ..Bounds::default() },
    };
    let mut how = opening(part, bounds);
    if let Access::Read(rescued) = access {
        how.rescue = rescue(rescued);
    }
    let mut outcome = Ok(());
    for run in places.chunk_by(|a, b| a.image == b.image) {
        let Some(first) = run.first() else { continue };
        let image = &first.image;
        let opened = match access {
            Access::Write => Ok(Image::write(image, &how)?),
            Access::Read(_) => read(image, &how),
        };
        let image = match opened {
            Ok(image) => image,
            Err(failure) => {
                fail(&mut outcome, failure)?;
                continue;
            }
        };
        let mut done = Ok(());
        for place in run {
            let result = interrupt::check().and_then(|()| each(&image.vol, place));
            if let Err(failure) = result {
                if let Err(end) = fail(&mut done, failure.at(place.shown())) {
                    done = Err(end);
                    break;
                }
            }
        }
        for what in image.vol.take_missing() {
            fail(&mut done, Failure::Corrupt(what))?;
        }
        if let Err(failure) = image.close(done) {
            fail(&mut outcome, failure)?;
        }
    }
    outcome
}

/// Keeps the first failure for the end and prints the others; what makes going on useless is
/// returned.
pub(crate) fn fail(outcome: &mut Result<()>, failure: Failure) -> Result<()> {
    if matches!(failure, Failure::Interrupted | Failure::PipeClosed) {
        return Err(failure);
    }
    if outcome.is_ok() {
        *outcome = Err(failure);
    } else if let Some(text) = failure.message() {
        crate::complain(text);
    }
    Ok(())
}
