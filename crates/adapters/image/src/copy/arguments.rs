//! Copies named by the arguments of a command.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::host::Host;
use super::side::{self, Kind, Side};
use super::tree::{self, Copy};
use super::volume::VolumeSide;
use super::{Outcome, Pins};
use crate::build::NewTree;
use crate::names::join;
use crate::platform::{bytes_of, identity};
use crate::{Image, ImageError, Opening, Place, Result, Watch};

/// Standard input as a source, standard output as a target.
const STANDARD: &str = "-";
pub(super) const STANDARD_INPUT: &[u8] = b"/dev/stdin";

/// Options of [`copy`].
#[derive(Clone, Default)]
pub struct Options {
    /// Directories with what is in them; symbolic links, pipes and devices as such.
    pub recursive: bool,
    /// Mode, owner, times and extended attributes, too.
    pub preserve: bool,
    /// Device files of an image become device files of this system.
    pub devices: bool,
    /// Set-user-ID and set-group-ID bits of an image are kept on this system, with `preserve`.
    pub special_bits: bool,
    /// Options for opening images.
    pub opening: Opening,
}

/// Target of an argument.
enum End {
    Host(Vec<u8>),
    Image(Place),
}

impl End {
    fn parse(argument: &OsStr) -> End {
        match Place::split(argument) {
            Some(place) => End::Image(place),
            None if argument == STANDARD => End::Host(STANDARD_INPUT.to_vec()),
            None => End::Host(bytes_of(argument).into_owned()),
        }
    }

    fn image(&self) -> Option<&Path> {
        match self {
            End::Image(place) => Some(&place.image),
            End::Host(_) => None,
        }
    }

    fn path(&self) -> &[u8] {
        match self {
            End::Image(place) => &place.path,
            End::Host(path) => path,
        }
    }
}

/// Copies `sources`, paths of this system or `IMAGE:/path`, to `target`: a directory, or the new
/// name. `-` is standard input or output. One file's failure does not end the copy of several.
///
/// # Errors
/// Arguments that make no sense, images that cannot be opened, a full or failed target.
pub fn copy(
    sources: &[OsString],
    target: &OsStr,
    options: Options,
    watch: &dyn Watch,
) -> Result<Outcome> {
    let sources: Vec<End> = sources.iter().map(|source| End::parse(source)).collect();
    if target == STANDARD {
        return to_standard_output(&sources, &options.opening, watch);
    }
    let target = End::parse(target);
    if target.image().is_none() && sources.iter().all(|source| source.image().is_none()) {
        let text = "neither side is in an image; write IMAGE:/path, or use cp(1)";
        return Err(ImageError::Usage(text.into()));
    }
    let mut images: BTreeMap<PathBuf, Image> = BTreeMap::new();
    // The target first: what is written to is opened for writing, whatever else it is.
    if let Some(path) = target.image() {
        images.insert(path.to_owned(), Image::write(path, &options.opening)?);
    }
    let mut done = Ok(());
    for path in sources.iter().filter_map(End::image) {
        if done.is_ok() && !images.contains_key(path) {
            done = Image::read(path, &options.opening).map(|image| {
                image.tell(path, watch);
                images.insert(path.to_owned(), image);
            });
        }
    }
    let done = done.and_then(|()| copy_all(&options, &sources, &target, &images, watch));
    images.into_values().fold(done, |done, image| image.close(done))
}

/// As [`copy`], with images that are open: `sources` and `target` name them by their keys.
///
/// # Errors
/// As [`copy`].
pub fn copy_open(
    sources: &[OsString],
    target: &OsStr,
    options: &Options,
    images: &BTreeMap<PathBuf, Image>,
    watch: &dyn Watch,
) -> Result<Outcome> {
    let sources: Vec<End> = sources.iter().map(|source| End::parse(source)).collect();
    copy_all(options, &sources, &End::parse(target), images, watch)
}

/// Writes the contents of files to standard output.
fn to_standard_output(sources: &[End], how: &Opening, watch: &dyn Watch) -> Result<Outcome> {
    let mut out = std::io::stdout().lock();
    for source in sources {
        let End::Image(place) = source else {
            let text = "only files of an image go to standard output; use cat(1) for others";
            return Err(ImageError::Usage(text.into()));
        };
        let image = Image::read(&place.image, how)?;
        image.tell(&place.image, watch);
        let side = image.side(0, &place.image.display().to_string());
        let done = tree::print(&side, &place.path, &mut out, watch);
        image.close(done)?;
    }
    Ok(Outcome::default())
}

/// Tells how much there is to copy.
fn measure(sources: &[(&dyn Side, &[u8])], options: &Options, watch: &dyn Watch) {
    if watch.wants_total() {
        let bytes = sources
            .iter()
            .map(|(from, path)| tree::measure(*from, trimmed(path), options.recursive, watch));
        watch.total(bytes.fold(0, u64::saturating_add));
    }
}

/// Device and inode of the images, which no copy may read as files.
fn identities(images: &BTreeMap<PathBuf, Image>) -> Vec<(u64, u64)> {
    images.keys().filter_map(|path| identity(path)).collect()
}

fn copy_all(
    options: &Options,
    sources: &[End],
    target: &End,
    images: &BTreeMap<PathBuf, Image>,
    watch: &dyn Watch,
) -> Result<Outcome> {
    // Numbers of devices on the host are small; these are not.
    let volumes: BTreeMap<&PathBuf, VolumeSide> = (0..)
        .zip(images)
        .map(|(nr, (path, image))| {
            let name = path.display().to_string();
            (path, image.side(u64::MAX - nr, &name))
        })
        .collect();
    let volume = |end: &End| -> Option<&VolumeSide> {
        let path = end.image()?;
        volumes.iter().find(|(known, _)| known.as_path() == path).map(|(_, volume)| volume)
    };
    // What was named is opened here, once.
    let host =
        |source: &End| Host::source(source.path(), !options.recursive).stopping(watch.stop_check());
    let hosts: Vec<Host> = sources.iter().map(host).collect();
    let target_host = Host::target(target.path());
    let to: &dyn Side = match volume(target) {
        Some(volume) => volume,
        None => &target_host,
    };
    let sides: Vec<&dyn Side> = sources
        .iter()
        .zip(&hosts)
        .map(|(source, host)| match volume(source) {
            Some(volume) => volume as &dyn Side,
            None => host,
        })
        .collect();
    let dir = directory(to, target, sources.len() > 1)?;
    let paths = sources.iter().map(End::path);
    measure(&sides.iter().copied().zip(paths).collect::<Vec<_>>(), options, watch);
    let into = Target { end: target, side: to, dir, skip: identities(images) };
    let mut outcome = Outcome::default();
    for (source, from) in sources.iter().zip(sides) {
        match copy_one(options, source, from, &into, &mut outcome, watch) {
            Ok(()) => {}
            Err(err @ (ImageError::Stopped | ImageError::Final(_))) => return Err(err),
            Err(err) if sources.len() == 1 => return Err(err),
            Err(err) => {
                outcome.failures += 1;
                watch.remark(&err.to_string());
                outcome.first.get_or_insert(err);
            }
        }
    }
    Ok(outcome)
}

/// The target of all sources.
struct Target<'a> {
    end: &'a End,
    side: &'a dyn Side,
    /// The directory that takes them.
    dir: Option<Vec<u8>>,
    /// Files that must not be read.
    skip: Vec<(u64, u64)>,
}

/// The target if it is a directory.
fn directory(to: &dyn Side, target: &End, several: bool) -> Result<Option<Vec<u8>>> {
    let path = target.path();
    if to.stat(path, true)?.is_none_or(not_a_dir) {
        // Who may write beside it could have put it there.
        if target.image().is_none() && crate::platform::is_dir(path) {
            let shown = String::from_utf8_lossy(path);
            let text = "a symbolic link to a directory; add a slash to copy into that directory";
            return Err(ImageError::Failed(text.into()).at(shown));
        }
        if several {
            let shown = String::from_utf8_lossy(path);
            let text = format!("{shown} is not a directory; several files need a directory");
            return Err(ImageError::Usage(text));
        }
        return Ok(None);
    }
    // A link to a directory that was named is followed here, once; later ones are not.
    let link = to.stat(path, false)?.is_none_or(not_a_dir);
    Ok(Some(if link { join(path, b".") } else { path.to_vec() }))
}

fn copy_one(
    options: &Options,
    source: &End,
    from: &dyn Side,
    target: &Target<'_>,
    outcome: &mut Outcome,
    watch: &dyn Watch,
) -> Result<()> {
    let from_image = source.image().is_some();
    // An image is trusted with what it names in an image.
    let trusted = !from_image || target.end.image().is_some();
    let mut copy = Copy {
        recursive: options.recursive,
        preserve: options.preserve,
        skip: &target.skip,
        from_image,
        devices: options.devices || trusted,
        special_bits: options.special_bits || trusted,
        ..Copy::new(from, target.side, watch)
    };
    let path = trimmed(source.path());
    if source.path() == STANDARD_INPUT && target.dir.is_some() {
        let text = "standard input has no name; give a file name as the target";
        return Err(ImageError::Usage(text.into()));
    }
    let place = match (&target.dir, last_name(path)) {
        (Some(dir), Some(name)) => join(dir, name),
        (Some(dir), None) => dir.clone(),
        (None, _) => trimmed(target.end.path()).to_vec(),
    };
    check_slashes(from, source.path(), target.end.path(), target.dir.is_some())?;
    let done = copy.run(path, &place);
    outcome.failures += copy.failures;
    if let Some(first) = copy.first {
        outcome.first.get_or_insert(first);
    }
    done
}

fn not_a_dir(meta: side::Meta) -> bool {
    meta.kind() != Kind::Dir
}

/// A slash at the end means a directory, on either side.
fn check_slashes(from: &dyn Side, source: &[u8], target: &[u8], into: bool) -> Result<()> {
    let is_dir = |path| -> Result<bool> { Ok(!from.stat(path, true)?.is_none_or(not_a_dir)) };
    let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    if !into && target.ends_with(b"/") && !(source != STANDARD_INPUT && is_dir(source)?) {
        let text = "is not a directory; make it first or leave out the slash";
        return Err(ImageError::Failed(text.into()).at(shown(target)));
    }
    if source.ends_with(b"/") && from.stat(trimmed(source), true)?.is_some_and(not_a_dir) {
        let text = "is not a directory; leave out the slash";
        return Err(ImageError::Failed(text.into()).at(shown(source)));
    }
    Ok(())
}

/// Copies what is in a directory of this system, with everything that an archive keeps, below `/`
/// of an image.
///
/// # Errors
/// No such directory, a full or failed image.
pub fn fill(image: &Image, dir: &Path, pins: Pins, watch: &dyn Watch) -> Result<Outcome> {
    fill_side(&image.side(u64::MAX, "image"), &[], dir, pins, watch)
}

/// As [`fill`], into an image that is being made.
///
/// # Errors
/// As [`fill`].
pub fn fill_new(to: &NewTree, dir: &Path, pins: Pins, watch: &dyn Watch) -> Result<Outcome> {
    fill_side(to, &to.itself, dir, pins, watch)
}

fn fill_side(
    to: &dyn Side,
    skip: &[(u64, u64)],
    dir: &Path,
    pins: Pins,
    watch: &dyn Watch,
) -> Result<Outcome> {
    let dir = bytes_of(dir.as_os_str());
    let host = Host::inside(&dir);
    let new = Copy::new(&host, to, watch);
    let mut copy = Copy { recursive: true, preserve: true, skip, pins: Some(pins), ..new };
    if watch.wants_total() {
        watch.total(tree::measure(&host, &dir, true, watch));
    }
    copy.run(&dir, b"/")?;
    Ok(Outcome { failures: copy.failures, first: copy.first })
}

/// Without slashes at the end, except where that is all there is.
pub(crate) fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
    path.get(..end).unwrap_or(path)
}

/// The name that a copy gets in a directory. `None` for `/`, `.` and `..`: what is in there is
/// copied.
pub(crate) fn last_name(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    (!name.is_empty() && name != b"." && name != b"..").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies() {
        assert_eq!(last_name(trimmed(b"a/b//")), Some(&b"b"[..]));
        assert_eq!(last_name(trimmed(b"/")), None);
        assert_eq!(last_name(trimmed(b"a/.")), None);
        assert_eq!((trimmed(b"///"), trimmed(b"")), (&b"/"[..], &b""[..]));
    }
}
