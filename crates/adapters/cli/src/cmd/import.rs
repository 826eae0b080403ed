//! `import`: images filled from directories, archives and container images.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::VirtualClock;
use syncline_fs::build::{Size, Spare};
use syncline_fs::mkfs::Options;
use syncline_image::archive::{self, IdMap, Rules};
use syncline_image::build::{NewTree, build};
use syncline_image::copy::{Outcome, Pins, fill, fill_new};
use syncline_image::oci::{Form, Layers, Platform, Source};
use syncline_image::stoppable::Stoppable;
use syncline_image::{Image, ImageError, Opening, Place, Watch, mkfs, stream};

use super::transfer::epoch_s;
use crate::args::{self as arguments, Import};
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::image::{self, Standard};
use crate::interrupt;

/// Room in an image whose size is not given.
const DEFAULT_SPARE: Spare = Spare::Bytes(16 << 20);

/// Source of the files of an image.
enum From {
    Directory(PathBuf),
    /// Its volumes.
    Archive(Vec<PathBuf>),
    Container(Source),
    Layers(Vec<PathBuf>),
}

impl From {
    fn new(args: &Import, sources: &[PathBuf]) -> Result<From> {
        if args.layers {
            return Ok(From::Layers(sources.to_vec()));
        }
        if args.multi_volume {
            return Ok(From::Archive(sources.to_vec()));
        }
        let [source] = sources else {
            let text = "several sources are layers (--layers) or volumes (-M); give one of these";
            return Err(Failure::Usage(text.to_owned()));
        };
        if args.docker {
            let rest = source.as_os_str().as_encoded_bytes();
            return Ok(From::Container(Source::split(Form::Docker, rest)));
        }
        if let Some(container) = Source::parse(source.as_os_str()) {
            return Ok(From::Container(container));
        }
        let path = source.clone();
        Ok(if path.is_dir() { From::Directory(path) } else { From::Archive(vec![path]) })
    }

    fn is_container(&self) -> bool {
        matches!(self, From::Container(_) | From::Layers(_))
    }

    /// Files and directories that are read.
    fn paths(&self) -> Vec<PathBuf> {
        match self {
            From::Directory(path) => vec![path.clone()],
            From::Container(source) => vec![source.path.clone()],
            From::Archive(paths) | From::Layers(paths) => paths.clone(),
        }
    }
}

/// The image that a target names; `IMAGE:/` is all of it.
fn whole_image(target: &Path) -> Result<PathBuf> {
    let Some(place) = Place::split(target.as_os_str()).filter(|place| place.image.exists()) else {
        return Ok(target.to_owned());
    };
    match &place.path[..] {
        b"/" => Ok(place.image),
        _ => {
            let text = "is a directory of an image, and import fills from the root; use cp -r";
            Err(Failure::Usage(text.to_owned()).at(target.display()))
        }
    }
}

/// Fills an image, which is made if it is not there.
pub(crate) fn run(args: &Import) -> Result<()> {
    let epoch_s = epoch_s()?;
    let (target, sources) = match args.paths.split_last() {
        Some((target, sources)) if !sources.is_empty() => (target, sources),
        _ => {
            let text = "a source or the image is missing; give both, as in `import FILE IMAGE`";
            return Err(Failure::Usage(text.into()));
        }
    };
    let from = From::new(args, sources)?;
    check(args, &from)?;
    let target = &whole_image(target)?;
    let mut bounds = Bounds::writer(target).makes(target);
    bounds.reads.extend(from.paths());
    bounds.reads.extend([&args.owner_map, &args.group_map].into_iter().flatten().cloned());
    if target.exists() {
        if from.is_container() {
            let text = "exists: a container image fills a new image; choose another name";
            return Err(Failure::Usage(text.to_owned()).at(target.display()));
        }
        return import_into(args, target, &from, epoch_s, bounds);
    }
    if args.part.partition.is_some() || args.part.offset.is_some() {
        let text = "--partition and --offset are for images that exist; leave them out";
        return Err(Failure::Usage(text.to_owned()));
    }
    // Nobody reads it yet.
    bounds.enter();
    let rules = rules(args)?;
    let watch = Standard::new("imported");
    match &from {
        From::Directory(source) => {
            let pins = pins(args, epoch_s);
            let mut left_out = Ok(());
            let made = make(args, target, epoch_s, |tree| {
                let outcome = fill_new(tree, source, pins, &watch)?;
                left_out = complete(outcome, args.ignore_failed_read);
                // Nothing half-made stays.
                if left_out.is_ok() { Ok(()) } else { Err(ImageError::Stopped) }
            });
            left_out.and(made)
        }
        From::Archive(volumes) => {
            // A file that cannot be read makes no image.
            let mut from = opened(volumes, &watch)?;
            make(args, target, epoch_s, |tree| {
                let done = archive::import_new(&mut from, tree, &rules, &watch);
                done.map_err(|err| at(volumes, err))
            })
        }
        From::Container(source) => {
            let scratch = target.parent().filter(|dir| !dir.as_os_str().is_empty());
            let scratch = scratch.unwrap_or(Path::new("."));
            let layers = source.layers(platform(args)?.as_ref(), scratch, &watch)?;
            make(args, target, epoch_s, |tree| {
                let done = layers.unpack(tree, &rules, &watch);
                done.map_err(|err| err.at(source.path.display()))
            })
        }
        From::Layers(paths) => {
            let layers = Layers::of_files(paths)?;
            make(args, target, epoch_s, |tree| layers.unpack(tree, &rules, &watch))
        }
    }
}

/// Refuses options that the source cannot follow.
fn check(args: &Import, from: &From) -> Result<()> {
    let is_dir = matches!(from, From::Directory(_));
    let of_archives = !args.exclude.is_empty()
        || args.owner_map.is_some()
        || args.group_map.is_some()
        || args.keep_directory_symlink;
    let text = if !is_dir && args.owner.is_some() {
        "--owner is for directories; an archive has owners of its own, --owner-map changes them"
    } else if is_dir && of_archives {
        "--exclude, --owner-map, --group-map and --keep-directory-symlink are for archives; leave \
         them out, or pipe `tar -c` into `import -`"
    } else if !is_dir && args.ignore_failed_read {
        "--ignore-failed-read is for directories; leave it out"
    } else if args.platform.is_some() && !matches!(from, From::Container(_)) {
        "--platform is for container images; leave it out"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(text.to_owned()))
}

fn platform(args: &Import) -> Result<Option<Platform>> {
    let parsed = args.platform.as_deref().map(|text| {
        let bad = || format!("--platform {text}: no system and processor; write linux/arm64");
        Platform::parse(text).ok_or_else(|| Failure::Usage(bad()))
    });
    parsed.transpose()
}

/// Makes an image.
fn make(
    args: &Import,
    target: &Path,
    epoch_s: Option<u64>,
    fill: impl FnOnce(&NewTree) -> syncline_image::Result<()>,
) -> Result<()> {
    let new = mkfs::Mkfs {
        format: Options {
            label: args.new.label.clone().unwrap_or_default().into_bytes(),
            inodes: args.new.inodes,
            ..Options::default()
        },
        time_s: epoch_s,
        mode: args.new.mode,
        ..mkfs::Mkfs::default()
    };
    let size = match args.new.size {
        Some(bytes) => Size::Bytes(bytes),
        None if args.new.minimum => Size::Minimum,
        None => Size::Spare(match args.new.spare {
            Some(arguments::Spare::Percent(percent)) => Spare::Percent(percent),
            Some(arguments::Spare::Bytes(bytes)) => Spare::Bytes(bytes),
            None => DEFAULT_SPARE,
        }),
    };
    Ok(build(target, &new, size, fill)?)
}

/// Fills an image that is there.
fn import_into(
    args: &Import,
    target: &Path,
    from: &From,
    epoch_s: Option<u64>,
    bounds: Bounds,
) -> Result<()> {
    if args.new.is_given() {
        let text = "exists: --size, --minimum, --spare, --inodes and --label are for new images; \
                    leave them out";
        return Err(Failure::Usage(text.to_owned()).at(target.display()));
    }
    let mut how = image::opening(&args.part, bounds);
    if let Some(seconds) = epoch_s {
        how = Opening { clock: Arc::new(VirtualClock::new(seconds * 1_000_000_000)), ..how };
    }
    let image = Image::write(target, &how)?;
    let watch = Standard::new("imported");
    if let From::Directory(source) = from {
        let done = fill(&image, source, pins(args, epoch_s), &watch);
        return complete(image.close(done)?, args.ignore_failed_read);
    }
    let volumes = from.paths();
    let done = rules(args).and_then(|rules| {
        let done = archive::import(&mut opened(&volumes, &watch)?, &image, &rules, &watch);
        Ok(done.map_err(|err| at(&volumes, err))?)
    });
    image.close(done)
}

/// The volumes of an archive. Their sizes tell how much there is, unless they are compressed.
fn opened(volumes: &[PathBuf], watch: &Standard) -> syncline_image::Result<Vec<Box<dyn Read>>> {
    let sizes: Option<Vec<u64>> = volumes.iter().map(|path| stream::plain_size(path)).collect();
    watch.total(sizes.unwrap_or_default().iter().sum());
    volumes.iter().map(|path| stream::open(path, interrupt::asked)).collect()
}

/// Names the archive, of which the first volume has the name.
fn at(volumes: &[PathBuf], err: ImageError) -> ImageError {
    volumes.iter().take(1).fold(err, |err, first| err.at(first.display()))
}

/// Choice of the members of an archive.
fn rules(args: &Import) -> Result<Rules> {
    let map = |path: &Option<PathBuf>, of: fn(&[u8]) -> syncline_image::Result<IdMap>| {
        let Some(path) = path else { return Ok(IdMap::default()) };
        let mut text = Vec::new();
        let read = Stoppable::open(path, interrupt::asked)
            .and_then(|mut file| file.read_to_end(&mut text));
        read.map_err(|err| Failure::host(path, &err))?;
        of(&text).map_err(|err| Failure::from(err.at(path.display())))
    };
    Ok(Rules {
        exclude: args.exclude.iter().map(|text| text.as_encoded_bytes().to_vec()).collect(),
        users: map(&args.owner_map, IdMap::of_users)?,
        groups: map(&args.group_map, IdMap::of_groups)?,
        keep_directory_symlink: args.keep_directory_symlink,
    })
}

fn pins(args: &Import, epoch_s: Option<u64>) -> Pins {
    Pins { owner: args.owner, latest_s: epoch_s.and_then(|s| i64::try_from(s).ok()) }
}

/// Fails if files were left out, unless they may be.
fn complete(outcome: Outcome, may_leave_out: bool) -> Result<()> {
    let Some(first) = outcome.first.map(Failure::from) else { return Ok(()) };
    let next = match may_leave_out {
        true => "the image is without them",
        false => "correct and run it again, or leave them out with --ignore-failed-read",
    };
    crate::complain(&format!("{} files were not copied, see above; {next}", outcome.failures));
    if may_leave_out { Ok(()) } else { Err(Failure::Said(first.code())) }
}
