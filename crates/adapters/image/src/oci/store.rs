//! Where the files of an image are: a directory, or the members of a tar archive.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use super::{DOCUMENT_BYTES_MAX, damaged};
use crate::archive::input::placed;
use crate::archive::reader::{Kind, Reader};
use crate::copy::side::Kind as FileKind;
use crate::{ImageError, Result, Watch, platform, stream};

/// Bytes copied at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// Links in an archive that are followed.
const LINKS_MAX: usize = 8;

/// Files by name.
pub(super) enum Store {
    Directory(PathBuf),
    Archive { file: Arc<File>, members: BTreeMap<Vec<u8>, Found> },
}

/// A member of an archive.
pub(super) enum Found {
    /// First byte and length.
    Data(u64, u64),
    /// Another member: old Docker stores equal layers once.
    Link(Vec<u8>),
}

/// Bytes of a file.
#[derive(Clone, Debug)]
pub(super) struct Section {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Section {
    /// All of a file.
    pub(super) fn whole(path: &Path) -> io::Result<Section> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        match meta.is_file() {
            true => Ok(Section { file: Arc::new(file), at: 0, end: meta.len() }),
            false => Err(io::Error::other("not a regular file")),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.end - self.at
    }
}

impl Read for Section {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX).min(into.len());
        let into = into.get_mut(..len).unwrap_or_default();
        let read = platform::read_at(&self.file, into, self.at)?;
        if read == 0 && len > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += read as u64;
        Ok(read)
    }
}

/// A reader of a file whose place can be set.
struct Placed {
    file: Arc<File>,
    at: Rc<Cell<u64>>,
}

impl Read for Placed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = platform::read_at(&self.file, into, self.at.get())?;
        self.at.set(self.at.get() + read as u64);
        Ok(read)
    }
}

impl Store {
    pub(super) fn directory(path: &Path) -> Result<Store> {
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => Ok(Store::Directory(path.to_owned())),
            Ok(_) => {
                let text = "is no directory; write oci-archive: in front of an archive";
                Err(ImageError::Usage(text.into()))
            }
            Err(err) => Err(unnamed(&err)),
        }
    }

    /// The members of an archive. One that is compressed or comes through a pipe is copied first.
    pub(super) fn archive(path: &Path, scratch: &Path, watch: &dyn Watch) -> Result<Store> {
        if path.is_dir() {
            let text = "is a directory; write oci: in front of a layout";
            return Err(ImageError::Usage(text.into()));
        }
        let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
        let (mut bytes, is_compressed) =
            stream::decoded(stream::raw(path, watch.stop_check())?, path)?;
        let file = if is_file && !is_compressed {
            File::open(path).map_err(|err| unnamed(&err))?
        } else {
            copied(&mut *bytes, scratch, watch)?
        };
        drop(bytes);
        Store::indexed(file, watch)
    }

    fn indexed(file: File, watch: &dyn Watch) -> Result<Store> {
        let len = file.metadata().map_err(|err| unnamed(&err))?.len();
        let (file, at) = (Arc::new(file), Rc::new(Cell::new(0)));
        let mut from = Placed { file: Arc::clone(&file), at: Rc::clone(&at) };
        let mut reader = Reader::new(&mut from);
        let mut members = BTreeMap::new();
        while let Some(member) = reader.next()? {
            watch.check()?;
            let (start, size) = (at.get(), member.meta.size);
            let behind = start.saturating_add(reader.pass());
            at.set(behind);
            let Some(path) = placed(&member.path)? else { continue };
            let found = match (member.kind, member.meta.kind()) {
                (Kind::Link, _) => placed(&member.link)?.map(Found::Link),
                (_, FileKind::File) if member.runs.iter().eq([(0, size)].iter()) => {
                    if behind > len {
                        return Err(damaged("its archive ends early"));
                    }
                    Some(Found::Data(start, size))
                }
                (_, FileKind::Symlink) => target(&path, &member.link).map(Found::Link),
                _ => None,
            };
            members.extend(found.map(|found| (path, found)));
        }
        Ok(Store::Archive { file, members })
    }

    /// The bytes of a file; none if there is no such file.
    pub(super) fn open(&self, name: &[u8]) -> Result<Option<Section>> {
        let path = placed(name)?.ok_or_else(|| damaged("it has an empty path"))?;
        match self {
            Store::Directory(dir) => {
                let path = dir.join(platform::path_of(path.get(1..).unwrap_or_default()));
                match Section::whole(&path) {
                    Ok(section) => Ok(Some(section)),
                    Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(err) => Err(ImageError::host(&path, &err)),
                }
            }
            Store::Archive { file, members } => {
                let mut path = &path;
                for _ in 0..LINKS_MAX {
                    match members.get(path) {
                        Some(Found::Data(at, len)) => {
                            let (at, end) = (*at, at + len);
                            return Ok(Some(Section { file: Arc::clone(file), at, end }));
                        }
                        Some(Found::Link(to)) => path = to,
                        None => return Ok(None),
                    }
                }
                Err(damaged("it has links in a circle"))
            }
        }
    }

    /// A document; none if there is no such file.
    pub(super) fn document(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(mut section) = self.open(name)? else { return Ok(None) };
        let shown = name.escape_ascii();
        if section.len() > DOCUMENT_BYTES_MAX {
            return Err(damaged(format!("{shown} has more than 8 MiB")));
        }
        let mut bytes = Vec::new();
        let read = section.read_to_end(&mut bytes);
        read.map_err(|err| damaged(format!("{shown}: {}", crate::plain(&err))))?;
        Ok(Some(bytes))
    }
}

/// A failed call of this system on the image, whose path the caller puts in front.
fn unnamed(err: &io::Error) -> ImageError {
    ImageError::Failed(format!("{}; check the path", crate::plain(err)))
}

/// The path of a symbolic link's target.
fn target(path: &[u8], link: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    parts.pop();
    for part in link.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    placed(&parts.join(&b'/')).ok().flatten()
}

/// A copy of these bytes in a file without a name.
fn copied(from: &mut dyn Read, scratch: &Path, watch: &dyn Watch) -> Result<File> {
    let failed = |err: io::Error| ImageError::host(scratch, &err);
    let mut file = tempfile::tempfile_in(scratch).map_err(failed)?;
    let mut chunk = vec![0; CHUNK_BYTES as usize];
    loop {
        let read = from.read(&mut chunk);
        // Ctrl-C also ends the program that writes into the pipe.
        watch.check()?;
        match read {
            Ok(0) => return Ok(file),
            Ok(read) => file.write_all(chunk.get(..read).unwrap_or_default()).map_err(failed)?,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => {
                return Err(damaged(format!("its archive cannot be read: {}", crate::plain(&err))));
            }
        }
    }
}
