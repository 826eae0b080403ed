//! Layers as one tree, by the rules of the OCI image specification.
//!
//! ```text
//!   last layer ... second layer   contents -> files without names; names, whiteouts -> Changes
//!   first layer                   contents, and names at once
//!   second layer ... last layer   Changes: whiteouts first, then entries in their order
//! ```
//!
//! The layers come from the last to the first, so that a file which a later layer replaces or
//! removes is known as such before its contents come: they are passed over. [`Hidden`] compares
//! paths as they are written. Where links in the tree make one file of two paths it may be wrong,
//! in either direction: contents that are missing in the end are read again, and those that nobody
//! names are wiped and their blocks are free.
//!
//! A link of the tree is followed in the parents of a path, as tar follows them, and nowhere else.

use std::collections::HashMap;
use std::hash::Hasher;

use super::damaged;
use super::layer::{Layer, Layers};
use super::saved::{Entry, Saved};
use crate::archive::Rules;
use crate::archive::input::{DIR_MODE, contents, placed};
use crate::archive::reader::{Kind, Member, Reader};
use crate::build::NewTree;
use crate::copy::side::{Kind as FileKind, Meta, Side};
use crate::names::join;
use crate::stream::Ahead;
use crate::{ImageError, Result, Watch};
use syncline_fs::build::NodeId;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Files of aufs itself.
const AUFS: &[u8] = b".wh..wh.";

/// Changes that a layer makes.
#[derive(Default)]
struct Changes {
    /// Names that are removed.
    removed: Vec<Vec<u8>>,
    /// Directories that lose what they had.
    emptied: Vec<Vec<u8>>,
    entries: Saved,
    /// Paths of lower layers that it hides.
    hides: Vec<(u64, u8)>,
}

/// A file whose contents were passed over: the layer, its number among the files there.
struct Passed {
    layer: usize,
    number: u64,
    file: NodeId,
}

/// Hides a file of a lower layer at the path itself, or below it.
const ITSELF: u8 = 1;
const BELOW: u8 = 2;

/// Paths that the layers read so far take from those below them, as hashes. Two paths of one hash
/// cost that contents are passed over and read again.
#[derive(Default)]
struct Hidden(HashMap<u64, u8>);

fn hash(path: &[u8]) -> u64 {
    // The same in each run, so that equal layers give equal images.
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(path);
    hasher.finish()
}

impl Hidden {
    fn add(&mut self, hides: Vec<(u64, u8)>) {
        hides.into_iter().for_each(|(path, what)| *self.0.entry(path).or_default() |= what);
    }

    fn has(&self, path: &[u8]) -> bool {
        let is = |path: &[u8], what: u8| self.0.get(&hash(path)).is_some_and(|m| m & what != 0);
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = slashes.map(|(end, _)| &path[..end.max(1)]);
        !self.0.is_empty() && (is(path, ITSELF) || above.any(|above| is(above, BELOW)))
    }
}

fn is_file(member: &Member) -> bool {
    member.kind == Kind::Inode && member.meta.file_type() == syncline_fs::bits::S_IFREG
}

/// A merge under way.
struct Merge<'a> {
    to: &'a NewTree,
    rules: &'a Rules,
    watch: &'a dyn Watch,
    hidden: Hidden,
    passed: Vec<Passed>,
    /// The directory that was there last.
    there: Vec<u8>,
}

impl Layers {
    /// Makes the tree of all layers.
    ///
    /// # Errors
    /// A layer that is damaged or not that of the image, a name or whiteout that leads out of the
    /// tree, a hard link to a missing file; the error of a write.
    pub fn unpack(&self, to: &NewTree, rules: &Rules, watch: &dyn Watch) -> Result<()> {
        let (hidden, passed, there) = (Hidden::default(), Vec::new(), Vec::new());
        let mut merge = Merge { to, rules, watch, hidden, passed, there };
        let mut uppers = Vec::new();
        let at = |layer: &Layer| {
            let shown = layer.shown.clone();
            move |err: ImageError| err.at(shown)
        };
        let mut next = None;
        for (number, layer) in self.0.iter().enumerate().rev() {
            let mut bytes = next.take().map_or_else(|| layer.open(), Ok).map_err(at(layer))?;
            // The one below is decompressed meanwhile.
            if let Some(below) = number.checked_sub(1).and_then(|below| self.0.get(below)) {
                next = Some(below.open().map_err(at(below))?);
            }
            let mut changes = merge.read(number, &mut bytes).map_err(at(layer))?;
            merge.hidden.add(std::mem::take(&mut changes.hides));
            uppers.push((layer, changes));
        }
        merge.hidden = Hidden::default();
        for (layer, changes) in uppers.into_iter().rev() {
            merge.apply(changes).map_err(at(layer))?;
        }
        for (number, layer) in self.0.iter().enumerate() {
            merge.read_again(number, layer).map_err(at(layer))?;
        }
        to.discard_unnamed()
    }
}

impl Merge<'_> {
    /// Reads a layer: contents that are seen go to the image. The changes of the lowest are made at
    /// once.
    fn read(&mut self, layer: usize, bytes: &mut Ahead) -> Result<Changes> {
        let mut reader = Reader::new(bytes);
        let mut changes = Changes::default();
        let mut files = 0;
        while let Some(mut member) = reader.next()? {
            self.watch.check()?;
            if !self.rules.take(&mut member, self.watch)? {
                continue;
            }
            let path = placed(&member.path)?.unwrap_or_else(|| b"/".to_vec());
            if self.whiteout(&path, layer, &mut changes)? {
                continue;
            }
            let mut file = None;
            if is_file(&member) {
                let new = self.to.unnamed()?;
                file = Some(new);
                if self.hidden.has(&path) {
                    self.passed.push(Passed { layer, number: files, file: new });
                } else {
                    self.fill(&mut reader, new, &path, &member)?;
                }
                files += 1;
            }
            let entry = Entry::new(path, member, file);
            if layer == 0 {
                self.enter(entry)?;
                continue;
            }
            // A directory stays one; all else ends what was below.
            let what = if entry.is_dir() { ITSELF } else { ITSELF | BELOW };
            changes.hides.push((hash(&entry.path), what));
            changes.entries.push(entry);
        }
        reader.finish(self.watch)?;
        Ok(changes)
    }

    fn fill(
        &mut self,
        reader: &mut Reader<'_>,
        file: NodeId,
        path: &[u8],
        member: &Member,
    ) -> Result<()> {
        let mut writer = self.to.filling(file, path)?;
        contents(reader, &mut *writer, member, self.watch)
    }

    /// Notes a whiteout; false: it is none. In the lowest layer there is nothing to remove.
    fn whiteout(&self, path: &[u8], layer: usize, changes: &mut Changes) -> Result<bool> {
        let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let (dir, name) = (&path[..slash.max(1)], &path[slash + 1..]);
        let Some(hidden) = name.strip_prefix(WHITEOUT) else { return Ok(false) };
        if name.starts_with(AUFS) {
            if name == OPAQUE && layer > 0 {
                changes.hides.push((hash(dir), BELOW));
                changes.emptied.push(dir.to_vec());
            }
            return Ok(true);
        }
        if matches!(hidden, b"" | b"." | b"..") {
            let shown = path.escape_ascii();
            return Err(damaged(format!("{shown} is a whiteout of no name in its directory")));
        }
        if layer > 0 {
            let path = join(dir, hidden);
            changes.hides.push((hash(&path), ITSELF | BELOW));
            changes.removed.push(path);
        }
        Ok(true)
    }

    /// Makes the changes of a layer.
    fn apply(&mut self, changes: Changes) -> Result<()> {
        self.there.clear();
        // Whiteouts are for what lower layers have, wherever they are in the archive.
        for dir in &changes.emptied {
            self.watch.check()?;
            if self.to.kind_at(dir)? == Some(FileKind::Dir) {
                self.to.remove_below(dir)?;
            }
        }
        for path in &changes.removed {
            self.watch.check()?;
            if self.to.kind_at(path)?.is_some() {
                self.to.remove_tree(path)?;
            }
        }
        changes.entries.entries().try_for_each(|entry| {
            self.watch.check()?;
            self.enter(entry)
        })
    }

    /// Makes a name. What was there before goes, except a directory where one comes.
    fn enter(&mut self, entry: Entry) -> Result<()> {
        let path = &entry.path;
        self.parents(path)?;
        let there = self.to.kind_at(path)?;
        let is_dir = entry.is_dir();
        if path == b"/" || path == b"/lost+found" {
            if !is_dir {
                let text = format!("{} is no directory; repack the layer", path.escape_ascii());
                return Err(ImageError::Failed(text));
            }
        } else if is_dir
            && there == Some(FileKind::Symlink)
            && self.rules.keeps_link(self.to, path)?
        {
            return Ok(());
        } else if entry.kind == Kind::Link {
            return self.link(path, &entry.link, there);
        } else if there.is_some() && !(is_dir && there == Some(FileKind::Dir)) {
            self.remove(path)?;
        }
        match (entry.file, entry.meta.kind()) {
            (Some(file), _) => self.to.name(file, path)?,
            (None, FileKind::Dir) if there == Some(FileKind::Dir) => {}
            (None, FileKind::Dir) => self.to.mkdir(path)?,
            (None, FileKind::Symlink) => self.to.symlink(path, &entry.link)?,
            (None, _) => self.to.mknod(path, &entry.meta)?,
        }
        let remark = self.to.set_meta(path, &entry.meta, Some(&entry.xattrs))?;
        remark.iter().for_each(|remark| self.watch.remark(remark));
        Ok(())
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        self.there.clear();
        self.to.remove_tree(path)
    }

    /// A hard link, to a file of this layer or of a lower one.
    fn link(&mut self, path: &[u8], target: &[u8], there: Option<FileKind>) -> Result<()> {
        let target = placed(target)?.unwrap_or_else(|| b"/".to_vec());
        let shown = target.escape_ascii();
        let failed = |text: String| Err(ImageError::Failed(text).at(path.escape_ascii()));
        match self.to.kind_at(&target)? {
            None => {
                return failed(format!(
                    "a hard link to {shown}, which is missing; rebuild the image"
                ));
            }
            Some(FileKind::Dir) => {
                return failed(format!("a hard link to the directory {shown}; rebuild the image"));
            }
            Some(_) => {}
        }
        if there.is_some() {
            let id = |path: &[u8]| self.to.stat(path, false).map(|meta| meta.map(|meta| meta.id));
            if id(path)? == id(&target)? {
                return Ok(());
            }
            self.remove(path)?;
        }
        self.to.link(&target, path)
    }

    /// Makes the directories above that no layer names.
    fn parents(&mut self, path: &[u8]) -> Result<()> {
        let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let above = &path[..slash];
        if above == self.there {
            return Ok(());
        }
        let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        for (end, _) in ends {
            let dir = &path[..end];
            if self.to.stat(dir, true)?.is_none() {
                self.to.mkdir(dir)?;
                let meta = Meta { mode: DIR_MODE, ..Meta::default() };
                self.to.set_meta(dir, &meta, None)?;
            }
        }
        self.there = above.to_vec();
        Ok(())
    }

    /// Reads the contents that were passed over and are needed.
    fn read_again(&mut self, layer: usize, from: &Layer) -> Result<()> {
        let wanted = |passed: &&Passed| passed.layer == layer && self.to.is_named(passed.file);
        let wanted: HashMap<u64, NodeId> =
            self.passed.iter().filter(wanted).map(|p| (p.number, p.file)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut bytes = from.open()?;
        let mut reader = Reader::new(&mut bytes);
        let mut files = 0;
        while let Some(mut member) = reader.next()? {
            self.watch.check()?;
            let path = placed(&member.path)?.unwrap_or_else(|| b"/".to_vec());
            if !self.rules.take(&mut member, &())? || !is_file(&member) {
                continue;
            }
            if self.whiteout(&path, 0, &mut Changes::default())? {
                continue;
            }
            if let Some(file) = wanted.get(&files) {
                self.fill(&mut reader, *file, &path, &member)?;
            }
            files += 1;
        }
        reader.finish(self.watch)
    }
}
