//! An archive as a tree of a volume.

use std::io::Read;

use super::reader::{Kind, Member, Reader};
use crate::copy::side::{Kind as FileKind, Meta, Side};
use crate::names::join;
use crate::{ImageError, Result, Watch};

/// Bytes moved at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Unit of holes in bytes: an aligned page of zeros is left out of a file.
const PAGE_BYTES: usize = 4096;
/// Mode of directories that the archive implies.
const DIR_MODE: u32 = 0o040_755;

/// Space and inodes that a tree takes on a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Bytes of data in whole blocks of 4096 bytes, holes left out.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl Estimate {
    /// Adds a file.
    pub(crate) fn add(&mut self, data_bytes: u64) {
        self.inodes += 1;
        let blocks = data_bytes.div_ceil(PAGE_BYTES as u64).saturating_mul(PAGE_BYTES as u64);
        // A block for attributes or a directory's names.
        self.bytes = self.bytes.saturating_add(blocks).saturating_add(PAGE_BYTES as u64);
    }
}

/// Measures an archive, which is read to its end.
///
/// # Errors The error of a read, or a damaged archive.
pub fn estimate(from: &mut dyn Read, watch: &dyn Watch) -> Result<Estimate> {
    let mut reader = Reader::new(from);
    let mut found = Estimate::default();
    while let Some(member) = reader.next()? {
        watch.check()?;
        found.add(member.runs.iter().fold(0, |sum, (_, len)| sum.saturating_add(*len)));
    }
    Ok(found)
}

/// The path of a member in the volume: no `..`, no slash in front. None: the root itself.
fn placed(path: &[u8]) -> Result<Option<Vec<u8>>> {
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

/// Makes the members files of `to`. Existing files are replaced, existing directories stay.
///
/// # Errors The error of a read or write, a name with `..`, or a link to a missing file.
pub(crate) fn unpack(from: &mut dyn Read, to: &dyn Side, watch: &dyn Watch) -> Result<()> {
    let mut reader = Reader::new(from);
    // Making files changes the times of their directory: they are set at the end.
    let mut dirs: Vec<(Vec<u8>, Member)> = Vec::new();
    while let Some(member) = reader.next()? {
        watch.check()?;
        if let Kind::Other(kind) = member.kind {
            let (path, kind) = (member.path.escape_ascii(), char::from(kind));
            watch.remark(&format!("{path}: left out, a member of the type `{kind}`"));
            continue;
        }
        let Some(path) = placed(&member.path)? else {
            dirs.push((b"/".to_vec(), member));
            continue;
        };
        parents(to, &path)?;
        if member.meta.kind() == FileKind::Dir && member.kind == Kind::Inode {
            match to.stat(&path, false)?.map(|there| there.kind()) {
                Some(FileKind::Dir) => {}
                Some(_) => {
                    to.unlink(&path)?;
                    to.mkdir(&path)?;
                }
                None => to.mkdir(&path)?,
            }
            dirs.push((path, member));
            continue;
        }
        match to.stat(&path, false)?.map(|there| there.kind()) {
            Some(FileKind::Dir) => {
                let path = path.escape_ascii();
                let text = format!(
                    "{path}: the archive has a file where the image has a directory; remove it \
                     first"
                );
                return Err(ImageError::Failed(text));
            }
            Some(_) => to.unlink(&path)?,
            None => {}
        }
        if member.kind == Kind::Link {
            let target = placed(&member.link)?.unwrap_or_else(|| b"/".to_vec());
            to.link(&target, &path)?;
            continue;
        }
        make(&mut reader, to, &path, &member, watch)?;
        finish(to, &path, &member, watch)?;
    }
    // The deepest first.
    for (path, member) in dirs.iter().rev() {
        finish(to, path, member, watch)?;
    }
    Ok(())
}

fn finish(to: &dyn Side, path: &[u8], member: &Member, watch: &dyn Watch) -> Result<()> {
    if let Some(remark) = to.set_meta(path, &member.meta, Some(&member.xattrs))? {
        watch.remark(&remark);
    }
    Ok(())
}

/// Makes the directories above that the archive does not name.
fn parents(to: &dyn Side, path: &[u8]) -> Result<()> {
    let slashes = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
    for (end, _) in slashes {
        let Some(dir) = path.get(..end) else { continue };
        if to.stat(dir, true)?.is_none() {
            to.mkdir(dir)?;
            let meta = Meta { mode: DIR_MODE, ..Meta::default() };
            to.set_meta(dir, &meta, None)?;
        }
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
    let mut writer = to.create(path)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    for (start, len) in &member.runs {
        let mut done = 0;
        while done < *len {
            watch.check()?;
            let want = usize::try_from(len - done).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let part = chunk.get_mut(..want).unwrap_or(&mut []);
            reader.read(part)?;
            // Pages of zeros become holes, as far as they are whole.
            for (index, page) in part.chunks(PAGE_BYTES).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    let at = start + done + (index * PAGE_BYTES) as u64;
                    writer.write(at, page)?;
                }
            }
            watch.copied(want as u64);
            done += want as u64;
        }
    }
    writer.set_len(member.meta.size)
}

/// Makes the members files of a volume, below `/`.
///
/// # Errors The error of a read or write, a name with `..`, or a link to a missing file.
pub fn import(from: &mut dyn Read, to: &crate::Image, watch: &dyn Watch) -> Result<()> {
    unpack(from, &to.side(0, "image"), watch)
}
