//! The copy itself: a tree from one side to the other.
//!
//! Promises
//! - A file appears under its name when it is complete, or not at all: it is written under a
//!   temporary name, gets its attributes there and is renamed.
//! - Names come from images that nobody vouches for: one with a slash is refused, and nothing is
//!   written through a symbolic link that the copy itself could have made.
//! - Holes stay holes; hard links within one copy stay hard links.
//! - One file's failure does not end a recursive copy, a full or failed target does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use super::Pins;
use super::side::{Kind, Meta, Side, Xattr};
use crate::names::join;
use crate::{ImageError, Result, Watch};

/// Bytes moved at once.
const CHUNK_BYTES: usize = 1 << 20;

/// A directory whose contents are being copied.
struct Level {
    source: Vec<u8>,
    target: Vec<u8>,
    meta: Meta,
    /// Names still to copy, the next one last.
    names: Vec<Vec<u8>>,
}

/// A copy under way.
pub(crate) struct Copy<'a> {
    pub(crate) from: &'a dyn Side,
    pub(crate) to: &'a dyn Side,
    pub(crate) recursive: bool,
    pub(crate) preserve: bool,
    /// Files that must not be copied: the images themselves.
    pub(crate) skip: &'a [(u64, u64)],
    pub(crate) watch: &'a dyn Watch,
    /// Target path of each inode with several links.
    pub(crate) links: BTreeMap<(u64, u64), Vec<u8>>,
    /// True if the source is an image: its directories may have several names, or go round.
    pub(crate) from_image: bool,
    /// Device files are made as such.
    pub(crate) devices: bool,
    /// Set-user-ID and set-group-ID bits are kept.
    pub(crate) special_bits: bool,
    /// Changes to owners and times.
    pub(crate) pins: Option<Pins>,
    /// Directories of the source that were entered.
    pub(crate) entered: BTreeSet<(u64, u64)>,
    /// Directories that this copy made or entered on the target's side.
    pub(crate) targets: BTreeSet<(u64, u64)>,
    /// Buffer for contents.
    pub(crate) chunk: Vec<u8>,
    /// Distinguishes temporary names.
    pub(crate) serial: u64,
    /// Files that could not be copied.
    pub(crate) failures: u64,
    /// The first reason, for the exit code.
    pub(crate) first: Option<ImageError>,
}

/// Calls `take` with everything in a tree. What cannot be read is left out: the copy says so.
pub(crate) fn each(
    from: &dyn Side,
    source: &[u8],
    recursive: bool,
    watch: &dyn Watch,
    take: &mut dyn FnMut(&Meta),
) {
    let mut entered = BTreeSet::new();
    let mut paths = vec![source.to_vec()];
    while let Some(path) = paths.pop().filter(|_| !watch.stopped()) {
        let Ok(Some(meta)) = from.stat(&path, !recursive) else { continue };
        take(&meta);
        if meta.kind() == Kind::Dir && recursive && entered.insert(meta.id) {
            let names = from.list(&path).unwrap_or_default();
            paths.extend(names.iter().map(|name| join(&path, name)));
        }
    }
}

/// Bytes of the files in a tree, for the progress.
pub(crate) fn measure(from: &dyn Side, source: &[u8], recursive: bool, watch: &dyn Watch) -> u64 {
    let mut bytes = 0u64;
    each(from, source, recursive, watch, &mut |meta| {
        if meta.kind() == Kind::File {
            bytes = bytes.saturating_add(meta.size);
        }
    });
    bytes
}

/// Writes the contents of a file to `out`, holes as zeros.
pub(crate) fn print(
    from: &dyn Side,
    source: &[u8],
    out: &mut dyn Write,
    watch: &dyn Watch,
) -> Result<()> {
    let shown = String::from_utf8_lossy(source);
    let meta = from.stat(source, true)?.ok_or_else(|| no_such(source))?;
    if meta.kind() != Kind::File {
        let text = format!("{shown} is not a file; only files can go to standard output");
        return Err(ImageError::Usage(text));
    }
    let mut reader = from.open(source)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        watch.check()?;
        let len = reader.read(at, &mut chunk)?;
        let Some(read) = chunk.get(..len).filter(|read| !read.is_empty()) else { return Ok(()) };
        out.write_all(read).map_err(|err| match err.kind() {
            // Who reads it has enough.
            std::io::ErrorKind::BrokenPipe => ImageError::Stopped,
            _ => ImageError::host(Path::new("standard output"), &err),
        })?;
        watch.copied(len as u64);
        at += len as u64;
    }
}

fn no_such(source: &[u8]) -> ImageError {
    let shown = String::from_utf8_lossy(source);
    ImageError::Failed(format!("{shown}: no such file; check the path"))
}

impl<'a> Copy<'a> {
    /// A copy of single files that keeps nothing but contents and permissions.
    pub(crate) fn new(from: &'a dyn Side, to: &'a dyn Side, watch: &'a dyn Watch) -> Copy<'a> {
        Copy {
            from,
            to,
            recursive: false,
            preserve: false,
            skip: &[],
            watch,
            links: BTreeMap::new(),
            from_image: false,
            devices: true,
            special_bits: true,
            pins: None,
            entered: BTreeSet::new(),
            targets: BTreeSet::new(),
            chunk: Vec::new(),
            serial: 0,
            failures: 0,
            first: None,
        }
    }
}

impl Copy<'_> {
    /// Copies `source` to exactly `target`.
    pub(crate) fn run(&mut self, source: &[u8], target: &[u8]) -> Result<()> {
        // `cp link x` copies the file behind it, `cp -r link x` the link.
        let meta = self.from.stat(source, !self.recursive)?.ok_or_else(|| no_such(source))?;
        if meta.kind() == Kind::Dir && !self.recursive {
            let shown = String::from_utf8_lossy(source);
            return Err(ImageError::Usage(format!("{shown} is a directory; give -r to copy it")));
        }
        if meta.kind() == Kind::Dir {
            return self.tree(source, target, meta);
        }
        self.leaf(source, target, &meta)?;
        self.keep_missing()
    }

    /// A directory with what is below it. Without recursion: depth is the source's choice.
    fn tree(&mut self, source: &[u8], target: &[u8], meta: Meta) -> Result<()> {
        let mut levels = vec![self.enter(source, target, meta)?];
        while let Some(top) = levels.last_mut() {
            let Some(name) = top.names.pop() else {
                let Some(done) = levels.pop() else { break };
                if let Err(failure) = self.set_meta(&done.source, &done.target, &done.meta) {
                    self.keep(failure)?;
                }
                continue;
            };
            let (source, target) = (join(&top.source, &name), join(&top.target, &name));
            match self.child(&source, &target, &name) {
                Ok(below) => levels.extend(below),
                Err(failure) => self.keep(failure)?,
            }
            self.keep_missing()?;
        }
        Ok(())
    }

    /// Copies something in a directory; of a directory only itself, the rest is returned.
    fn child(&mut self, source: &[u8], target: &[u8], name: &[u8]) -> Result<Option<Level>> {
        let bad = name.is_empty() || name == b"." || name == b"..";
        if bad || name.contains(&b'/') || name.contains(&0) {
            let text = format!(
                "{}: an invalid file name; run `syncline check` on the image",
                source.escape_ascii()
            );
            return Err(ImageError::Corrupt(text));
        }
        if !self.to.takes(name) {
            let text = format!("{}: the name is not valid on this system", source.escape_ascii());
            return Err(ImageError::Failed(text));
        }
        let meta = self.from.stat(source, false)?.ok_or_else(|| {
            let shown = String::from_utf8_lossy(source);
            ImageError::Failed(format!("{shown}: is gone; copy it again"))
        })?;
        if meta.kind() == Kind::Dir {
            return self.enter(source, target, meta).map(Some);
        }
        self.leaf(source, target, &meta).map(|()| None)
    }

    fn leaf(&mut self, source: &[u8], target: &[u8], meta: &Meta) -> Result<()> {
        self.watch.check()?;
        if self.skip.contains(&meta.id) {
            let shown = String::from_utf8_lossy(source);
            let text = format!("{shown} is the image itself; copy it with cp(1)");
            return Err(ImageError::Failed(text));
        }
        if let Some(made) = self.links.get(&meta.id) {
            let made = made.clone();
            return self.replace(target, |to, temporary| to.link(&made, temporary).map(|()| None));
        }
        match meta.kind() {
            Kind::File => self.file(source, target, meta)?,
            // Without -r the contents of a pipe or device are copied, as cp(1) does.
            Kind::Special if !self.recursive && self.from.streams() => {
                let meta = Meta { mode: 0o100_666, size: 0, rdev: 0, ..*meta };
                self.file(source, target, &meta)?;
            }
            Kind::Symlink => {
                let link = self.from.read_link(source)?;
                let make = |to: &dyn Side, temporary: &[u8]| to.symlink(temporary, &link);
                self.made(source, target, (meta, None), make)?;
            }
            _ if !self.devices && meta.is_device() => {
                let text = "a device file, left out; give -a or --devices to make it";
                return Err(ImageError::Failed(text.into()).at(source.escape_ascii()));
            }
            _ => self.made(source, target, (meta, None), |to, path| to.mknod(path, meta))?,
        }
        if meta.nlink > 1 && self.recursive {
            self.links.insert(meta.id, target.to_vec());
        }
        Ok(())
    }

    /// Makes a directory and lists what goes into it.
    fn enter(&mut self, source: &[u8], target: &[u8], meta: Meta) -> Result<Level> {
        self.watch.check()?;
        let shown = String::from_utf8_lossy(source);
        if self.targets.contains(&meta.id) {
            let text = format!("{shown} is part of the target; choose a target outside of it");
            return Err(ImageError::Failed(text));
        }
        if self.from_image && !self.entered.insert(meta.id) {
            let text =
                format!("{shown}: a directory with two names; run `syncline check` on the image");
            return Err(ImageError::Corrupt(text));
        }
        // A link to a directory is not followed, as by cp(1): it may lead anywhere.
        match self.to.stat(target, false)? {
            Some(there) if there.kind() == Kind::Dir => {}
            Some(_) => {
                let shown = String::from_utf8_lossy(target);
                let text = format!("{shown} exists and is not a directory; remove it first");
                return Err(ImageError::Failed(text));
            }
            None => self.to.mkdir(target)?,
        }
        if let Some(there) = self.to.stat(target, false)? {
            self.targets.insert(there.id);
        }
        let mut names = self.from.list(source)?;
        names.reverse();
        Ok(Level { source: source.to_vec(), target: target.to_vec(), meta, names })
    }

    /// Goes on after the failure of one file, if that makes sense.
    fn keep(&mut self, failure: ImageError) -> Result<()> {
        if matches!(failure, ImageError::Stopped | ImageError::Final(_)) {
            return Err(failure);
        }
        self.failures += 1;
        self.watch.remark(&failure.to_string());
        self.first.get_or_insert(failure);
        Ok(())
    }

    /// Damage of the source is a failure of the file that it hit.
    fn keep_missing(&mut self) -> Result<()> {
        self.from.missing().into_iter().try_for_each(|what| self.keep(ImageError::Corrupt(what)))
    }

    fn file(&mut self, source: &[u8], target: &[u8], meta: &Meta) -> Result<()> {
        let mut reader = self.from.open(source)?;
        let xattrs = if self.preserve { reader.xattrs()? } else { None };
        let watch = self.watch;
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize(CHUNK_BYTES, 0);
        let made = self.made(source, target, (meta, xattrs), |to, temporary| {
            let mut writer = to.create(temporary)?;
            let (mut at, mut end) = (0, 0);
            while let Some((start, stop)) = reader.data(at)? {
                at = start;
                while at < stop {
                    watch.check()?;
                    let want = usize::try_from(stop - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
                    let len = reader.read(at, chunk.get_mut(..want).unwrap_or(&mut []))?;
                    let Some(read) = chunk.get(..len).filter(|read| !read.is_empty()) else {
                        break;
                    };
                    writer.write(at, read)?;
                    watch.copied(len as u64);
                    at += len as u64;
                    end = at;
                }
                if at < stop {
                    // It shrank while it was read.
                    break;
                }
            }
            writer.set_len(meta.size.max(end))
        });
        self.chunk = chunk;
        made
    }

    /// Makes something under a temporary name, gives it its attributes, and puts it in its place.
    fn made(
        &mut self,
        source: &[u8],
        target: &[u8],
        (meta, xattrs): (&Meta, Option<Vec<Xattr>>),
        make: impl FnOnce(&dyn Side, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let xattrs = self.xattrs(source, xattrs)?;
        let meta = self.allowed(meta);
        self.replace(target, |to, temporary| {
            make(to, temporary)?;
            to.set_meta(temporary, &meta, xattrs.as_deref())
        })
    }

    /// The attributes that the target may get.
    fn allowed(&self, meta: &Meta) -> Meta {
        let bits = if self.special_bits { 0 } else { 0o6000 };
        let mut meta = Meta { mode: meta.mode & !bits, ..*meta };
        let Some(pins) = self.pins else { return meta };
        (meta.uid, meta.gid) = pins.owner.unwrap_or((meta.uid, meta.gid));
        if let Some(latest_s) = pins.latest_s {
            meta.mtime = meta.mtime.min((latest_s, 0));
            // Reading a tree changes access times.
            meta.atime = meta.mtime;
        }
        meta
    }

    /// The attributes that the target gets. With pins they are sorted, since their order is the
    /// file system's.
    fn xattrs(&self, source: &[u8], known: Option<Vec<Xattr>>) -> Result<Option<Vec<Xattr>>> {
        if !self.preserve {
            return Ok(None);
        }
        let mut xattrs = known.map_or_else(|| self.from.xattrs(source), Ok)?;
        if self.pins.is_some() {
            xattrs.sort();
        }
        Ok(Some(xattrs))
    }

    /// Puts what `make` makes under a temporary name in the place of `target`. `make` returns a
    /// remark, which is given when that is done.
    fn replace(
        &mut self,
        target: &[u8],
        make: impl FnOnce(&dyn Side, &[u8]) -> Result<Option<String>>,
    ) -> Result<()> {
        if self.to.stages()
            && self.to.stat(target, false)?.is_some_and(|there| there.kind() == Kind::Dir)
        {
            let shown = String::from_utf8_lossy(target);
            return Err(ImageError::Failed(format!("{shown} is a directory; remove it first")));
        }
        if !self.to.stages() {
            let remark = make(self.to, target)?;
            self.remark(remark);
            return Ok(());
        }
        self.serial += 1;
        let temporary = temporary(target, self.serial);
        let (hidden, shown) =
            (String::from_utf8_lossy(&temporary), String::from_utf8_lossy(target));
        let done = make(self.to, &temporary).and_then(|remark| {
            self.to.rename(&temporary, target)?;
            self.remark(remark.map(|text| text.replace(&*hidden, &shown)));
            Ok(())
        });
        let done = done.map_err(|err| err.naming(&hidden, &shown));
        if done.is_err() && matches!(self.to.stat(&temporary, false), Ok(Some(_))) {
            // The first failure counts, not that of tidying up.
            let _ = self.to.unlink(&temporary);
        }
        done
    }

    fn set_meta(&mut self, source: &[u8], target: &[u8], meta: &Meta) -> Result<()> {
        let xattrs = self.xattrs(source, None)?;
        let remark = self.to.set_meta(target, &self.allowed(meta), xattrs.as_deref())?;
        self.remark(remark);
        Ok(())
    }

    fn remark(&self, remark: Option<String>) {
        if let Some(text) = remark {
            self.watch.remark(&text);
        }
    }
}

/// A name beside `target` that nobody else uses.
fn temporary(target: &[u8], serial: u64) -> Vec<u8> {
    let slash = target.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let mut path = target.get(..slash).unwrap_or(&[]).to_vec();
    let process = std::process::id();
    path.extend_from_slice(format!(".syncline-{process}-{serial}.tmp").as_bytes());
    path
}
