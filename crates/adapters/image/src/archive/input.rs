//! An archive as a tree of a volume.

use std::collections::BTreeMap;
use std::io::Read;

use super::reader::{Kind, Member, Reader};
use super::rules::Rules;
use syncline_ondisk::bytes::is_zero;

use crate::copy::side::{Kind as FileKind, Meta, Side, Writer};
use crate::names::join;
use crate::{ImageError, Result, Watch};

/// Bytes moved at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Unit of holes in bytes: an aligned page of zeros is left out of a file.
const PAGE_BYTES: usize = 4096;
/// Mode of directories that the archive implies.
pub(crate) const DIR_MODE: u32 = 0o040_755;

/// The path of a member in the volume: no `..`, no slash in front. None: the root itself.
pub(crate) fn placed(path: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut placed = b"/".to_vec();
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." || part.contains(&0) {
            let shown = path.escape_ascii();
            let text = format!("{shown}: the archive has a name with `..` or a zero; repack it");
            return Err(ImageError::Corrupt(text));
        }
        placed = join(&placed, part);
    }
    Ok((placed != b"/").then_some(placed))
}

/// Directories in the order of the archive. Making files changes their times: they get their
/// attributes at the end, those of the last member that names them.
#[derive(Default)]
struct Dirs {
    members: Vec<Option<(Vec<u8>, Member)>>,
    places: BTreeMap<Vec<u8>, usize>,
    /// The directory that was there last: members come directory by directory.
    there: Vec<u8>,
}

impl Dirs {
    fn add(&mut self, path: Vec<u8>, member: Member) {
        self.forget(&path);
        self.places.insert(path.clone(), self.members.len());
        self.members.push(Some((path, member)));
    }

    /// Something else has this name now.
    fn forget(&mut self, path: &[u8]) {
        self.there.clear();
        if let Some(member) = self.places.remove(path).and_then(|at| self.members.get_mut(at)) {
            *member = None;
        }
    }

    /// Makes the directories above that the archive does not name.
    fn parents(&mut self, to: &dyn Side, path: &[u8]) -> Result<()> {
        let slashes = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        let ends: Vec<usize> = slashes.map(|(end, _)| end).collect();
        let above = ends.last().map_or(&b""[..], |end| &path[..*end]);
        if above == self.there {
            return Ok(());
        }
        for end in &ends {
            let dir = &path[..*end];
            if to.stat(dir, true)?.is_none() {
                to.mkdir(dir)?;
                let meta = Meta { mode: DIR_MODE, ..Meta::default() };
                to.set_meta(dir, &meta, None)?;
            }
        }
        self.there = above.to_vec();
        Ok(())
    }
}

/// Makes the members files of `to`. Existing files and empty directories are replaced, directories
/// stay directories.
///
/// # Errors
/// The error of a read or write, a name with `..`, or a link to a missing file.
pub(crate) fn unpack(
    mut reader: Reader<'_>,
    to: &dyn Side,
    rules: &Rules,
    watch: &dyn Watch,
) -> Result<()> {
    let mut dirs = Dirs::default();
    while let Some(mut member) = reader.next()? {
        watch.check()?;
        if !rules.take(&mut member, watch)? {
            continue;
        }
        let is_dir = member.meta.kind() == FileKind::Dir && member.kind == Kind::Inode;
        let Some(path) = placed(&member.path)? else {
            if !is_dir {
                let text = "the archive has a file without a name; repack it";
                return Err(ImageError::Corrupt(text.into()));
            }
            dirs.add(b"/".to_vec(), member);
            continue;
        };
        dirs.parents(to, &path)?;
        let there = to.stat(&path, false)?;
        if is_dir {
            let is_link = there.is_some_and(|there| there.kind() == FileKind::Symlink);
            if is_link && rules.keeps_link(to, &path)? {
                continue;
            }
            if there.is_none_or(|there| there.kind() != FileKind::Dir) {
                if there.is_some() {
                    to.unlink(&path)?;
                }
                to.mkdir(&path)?;
            }
            dirs.add(path, member);
            continue;
        }
        if member.kind == Kind::Link {
            link(to, &path, &member, there, &mut dirs)?;
            continue;
        }
        clear(to, &path, there, &mut dirs)?;
        make(&mut reader, to, &path, &member, watch)?;
        finish(to, &path, &member, watch)?;
    }
    reader.finish(watch)?;
    // In the order of the archive: one may be there under two names, through a link.
    for (path, member) in dirs.members.iter().flatten() {
        finish(to, path, member, watch)?;
    }
    Ok(())
}

fn shown(path: &[u8]) -> impl std::fmt::Display + '_ {
    path.escape_ascii()
}

/// Makes room for a member that is not a directory.
fn clear(to: &dyn Side, path: &[u8], there: Option<Meta>, dirs: &mut Dirs) -> Result<()> {
    match there.map(|there| there.kind()) {
        None => Ok(()),
        Some(FileKind::Dir) => {
            // e2fsck wants lost+found.
            if path == b"/lost+found" || !to.list(path)?.is_empty() {
                let text =
                    "the archive has a file where the image has a directory; remove it first";
                return Err(ImageError::Failed(text.into()).at(shown(path)));
            }
            dirs.forget(path);
            to.rmdir(path)
        }
        Some(_) => to.unlink(path),
    }
}

/// A hard link. The target is there before the old file goes; what is linked already stays.
fn link(
    to: &dyn Side,
    path: &[u8],
    member: &Member,
    there: Option<Meta>,
    dirs: &mut Dirs,
) -> Result<()> {
    let target = placed(&member.link)?.unwrap_or_else(|| b"/".to_vec());
    let failed = |text: String| Err(ImageError::Failed(text).at(shown(path)));
    let Some(file) = to.stat(&target, false)? else {
        let target = shown(&target);
        return failed(format!(
            "a hard link to {target}, which is missing; repack the archive with it"
        ));
    };
    if there.is_some_and(|there| there.id == file.id) {
        return Ok(());
    }
    if file.kind() == FileKind::Dir {
        let target = shown(&target);
        return failed(format!(
            "a hard link to the directory {target}; repack it as a symbolic link"
        ));
    }
    clear(to, path, there, dirs)?;
    to.link(&target, path)
}

fn finish(to: &dyn Side, path: &[u8], member: &Member, watch: &dyn Watch) -> Result<()> {
    if let Some(remark) = to.set_meta(path, &member.meta, Some(&member.xattrs))? {
        watch.remark(&remark);
    }
    Ok(())
}

fn make(
    reader: &mut Reader<'_>,
    to: &dyn Side,
    path: &[u8],
    member: &Member,
    watch: &dyn Watch,
) -> Result<()> {
    match member.meta.kind() {
        FileKind::Symlink => return to.symlink(path, &member.link),
        FileKind::Special => return to.mknod(path, &member.meta),
        FileKind::File | FileKind::Dir => {}
    }
    contents(reader, &mut *to.create(path)?, member, watch)
}

/// Writes the data of a member, without pages of zeros.
pub(crate) fn contents(
    reader: &mut Reader<'_>,
    writer: &mut dyn Writer,
    member: &Member,
    watch: &dyn Watch,
) -> Result<()> {
    let largest = member.runs.iter().map(|(_, len)| *len).max().unwrap_or(0);
    let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(largest).unwrap_or(CHUNK_BYTES))];
    for (start, len) in &member.runs {
        let mut done = 0;
        while done < *len {
            watch.check()?;
            let want = usize::try_from(len - done).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let part = chunk.get_mut(..want).unwrap_or(&mut []);
            reader.read(part)?;
            for (at, data) in without_zeros(part) {
                writer.write(start + done + at, data)?;
            }
            watch.copied(want as u64);
            done += want as u64;
        }
    }
    writer.set_len(member.meta.size)
}

/// The runs of pages with something else than zeros, and where they begin: pages of zeros become
/// holes, as far as they are whole.
pub(crate) fn without_zeros(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let zero = |at: &usize| is_zero(&bytes[*at..(at + PAGE_BYTES).min(bytes.len())]);
    let mut next = 0;
    std::iter::from_fn(move || {
        let mut pages = (next..bytes.len()).step_by(PAGE_BYTES);
        let start = pages.find(|at| !zero(at))?;
        let end = pages.find(zero).unwrap_or(bytes.len());
        next = end;
        Some((start as u64, &bytes[start..end]))
    })
}

/// Volumes of an archive; one that is not cut is one volume.
pub type Volumes = [Box<dyn Read>];

fn reader(volumes: &mut Volumes) -> Result<Reader<'_>> {
    let volumes = volumes.iter_mut().map(|volume| &mut **volume as &mut dyn Read).collect();
    Reader::of_volumes(volumes).ok_or_else(|| ImageError::Usage("no archive; name one".into()))
}

/// Makes the members files of an image that is being made.
///
/// # Errors
/// As [`import`].
#[cfg(any(unix, windows))]
pub fn import_new(
    from: &mut Volumes,
    to: &crate::build::NewTree,
    rules: &Rules,
    watch: &dyn Watch,
) -> Result<()> {
    unpack(reader(from)?, to, rules, watch)
}

/// Makes the members files of a volume, below `/`.
///
/// # Errors
/// The error of a read or write, a name with `..`, or a link to a missing file.
pub fn import(
    from: &mut Volumes,
    to: &crate::Image,
    rules: &Rules,
    watch: &dyn Watch,
) -> Result<()> {
    unpack(reader(from)?, &to.side(0, "image"), rules, watch)
}
