//! A mounted volume as a side of a copy.

use std::sync::Arc;

use syncline_device::Clock;
use syncline_fs::{
    Attr, FsError, InodeRef, PATH_BYTES_MAX, SetAttr, SetTime, Timestamp, Volume, XattrFlags,
};

use super::side::{Kind, Meta, Reader, Side, Writer, Xattr};
use crate::names::owned;
use crate::{ImageError, Result};

/// Bytes moved at once.
const CHUNK_BYTES: usize = 1 << 20;

/// A volume.
pub(crate) struct VolumeSide {
    vol: Volume,
    clock: Arc<dyn Clock>,
    /// Distinguishes inode numbers of different volumes.
    id: u64,
    /// Name in messages.
    name: String,
    umask: u32,
}

impl VolumeSide {
    pub(crate) fn new(vol: Volume, clock: Arc<dyn Clock>, id: u64, name: String) -> VolumeSide {
        VolumeSide { vol, clock, id, name, umask: crate::platform::umask() }
    }

    fn failed(&self, path: &[u8]) -> impl Fn(FsError) -> ImageError {
        let shown = format!("{}:{}", self.name, String::from_utf8_lossy(path));
        move |err| ImageError::from(err).at(&shown)
    }

    fn file(&self, inode: InodeRef, shown: String) -> VolumeFile {
        let (vol, clock) = (self.vol.clone(), self.clock.clone());
        VolumeFile { vol, clock, inode, shown, lost: Lost::default() }
    }

    fn find(&self, path: &[u8]) -> Result<InodeRef> {
        self.vol.resolve_nofollow(path).map_err(self.failed(path))
    }

    /// Calls `op` with the directory and the name in it.
    fn place<T>(
        &self,
        path: &[u8],
        op: impl FnOnce(&InodeRef, &[u8]) -> syncline_fs::Result<T>,
    ) -> Result<T> {
        let done = self.vol.resolve_parent(path).and_then(|(dir, name)| op(&dir, name));
        done.map_err(self.failed(path))
    }
}

/// An attribute that has no room although the volume has. `bytes`: its own, and those of a block.
pub(crate) fn too_large(path: &[u8], name: &[u8], bytes: (usize, usize)) -> ImageError {
    ImageError::Failed(format!(
        "{}: the attribute {} of {} bytes does not fit: those of a file share its inode and one \
         block of {} bytes; shorten it or use larger blocks",
        String::from_utf8_lossy(path),
        String::from_utf8_lossy(name),
        bytes.0,
        bytes.1
    ))
}

/// A symbolic link whose target needs more than a block.
pub(crate) fn long_link(target: &[u8], block_size: usize) -> ImageError {
    ImageError::Failed(format!(
        "a link to a name of {} bytes does not fit into a block of {block_size} bytes; shorten it \
         or use larger blocks",
        target.len()
    ))
}

struct VolumeFile {
    vol: Volume,
    clock: Arc<dyn Clock>,
    inode: InodeRef,
    shown: String,
    lost: Lost,
}

/// Bytes of a file that could not be read.
#[derive(Default)]
struct Lost {
    bytes: u64,
    first: Option<u64>,
}

impl Lost {
    /// Reads as [`Volume::read`], block by block: zeros stand for a block that cannot be read.
    fn read(&mut self, vol: &Volume, inode: &InodeRef, at: u64, into: &mut [u8]) -> usize {
        let attr = vol.getattr(inode);
        let len = attr.size.saturating_sub(at).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let now = at + done as u64;
            let block = u64::from(attr.blksize);
            let step = ((block - now % block) as usize).min(len - done);
            let Some(part) = into.get_mut(done..done + step) else { break };
            if vol.read(inode, now, part) != Ok(step) {
                part.fill(0);
                self.bytes += step as u64;
                self.first.get_or_insert(now);
            }
            done += step;
        }
        len
    }

    fn tell(&self, vol: &Volume, shown: &str) {
        if let Some(first) = self.first {
            let what = "bytes could not be read and are zeros, the first at byte";
            vol.note_missing(format!("{shown}: {} {what} {first}", self.bytes));
        }
    }
}

impl Drop for VolumeFile {
    fn drop(&mut self) {
        self.lost.tell(&self.vol, &self.shown);
    }
}

/// Calls `sink` with the contents of a file; where [`Volume::is_rescued`], with zeros for what
/// cannot be read, which [`Volume::take_missing`] tells.
///
/// # Errors
/// Those of reading, and of `sink`.
pub fn contents<E: From<FsError>>(
    vol: &Volume,
    inode: &InodeRef,
    shown: &str,
    sink: &mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let (mut chunk, mut at, mut lost) = (vec![0; CHUNK_BYTES], 0, Lost::default());
    loop {
        let len = match vol.read(inode, at, &mut chunk) {
            Err(_) if vol.is_rescued() => lost.read(vol, inode, at, &mut chunk),
            read => read?,
        };
        let Some(read) = chunk.get(..len).filter(|read| !read.is_empty()) else { break };
        sink(read)?;
        at += len as u64;
    }
    lost.tell(vol, shown);
    Ok(())
}

impl VolumeFile {
    fn failed(&self) -> impl Fn(FsError) -> ImageError + '_ {
        |err| ImageError::from(err).at(&self.shown)
    }
}

impl Reader for VolumeFile {
    fn data(&mut self, from: u64) -> Result<Option<(u64, u64)>> {
        let run = self
            .vol
            .seek_data(&self.inode, from)
            .and_then(|start| Ok((start, self.vol.seek_hole(&self.inode, start)?)));
        match run {
            Ok(run) => Ok(Some(run)),
            Err(FsError::NoSuchOffset) => Ok(None),
            // Without the map all of the rest is tried.
            Err(_) if self.vol.is_rescued() => {
                let end = self.vol.getattr(&self.inode).size;
                Ok((from < end).then_some((from, end)))
            }
            Err(err) => Err(self.failed()(err)),
        }
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let now = at + done as u64;
            let len = match self.vol.read(&self.inode, now, rest) {
                Err(_) if self.vol.is_rescued() => {
                    self.lost.read(&self.vol, &self.inode, now, rest)
                }
                read => read.map_err(self.failed())?,
            };
            if len == 0 {
                break;
            }
            done += len;
        }
        Ok(done)
    }
}

impl Writer for VolumeFile {
    fn write(&mut self, at: u64, from: &[u8]) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = from.get(done..).filter(|rest| !rest.is_empty()) {
            done += self.vol.write(&self.inode, at + done as u64, rest).map_err(self.failed())?;
        }
        // Write-back goes on as it would on a running system.
        let now_ns = self.clock.now_ns();
        self.vol.tick(now_ns).map_err(self.failed())
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        self.vol.truncate(&self.inode, len).map_err(self.failed())
    }
}

fn meta_of(attr: &Attr, id: u64) -> Meta {
    let time = |time: Timestamp| (time.seconds, time.nanoseconds);
    Meta {
        mode: attr.mode.into(),
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        nlink: attr.nlink.into(),
        id: (id, attr.ino.into()),
        rdev: attr.rdev,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
    }
}

impl Side for VolumeSide {
    fn stat(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        let found = if follow { self.vol.resolve(path) } else { self.vol.resolve_nofollow(path) };
        match found {
            Ok(inode) => Ok(Some(meta_of(&self.vol.getattr(&inode), self.id))),
            Err(FsError::NotFound) => Ok(None),
            Err(err) => Err(self.failed(path)(err)),
        }
    }

    fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let dir = self.vol.resolve(path).map_err(self.failed(path))?;
        let mut names = Vec::new();
        let read = self.vol.readdir(&dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            true
        });
        read.map_err(self.failed(path))?;
        names.sort();
        Ok(names)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn Reader>> {
        let inode = self.vol.resolve(path).map_err(self.failed(path))?;
        let shown = format!("{}:{}", self.name, String::from_utf8_lossy(path));
        Ok(Box::new(self.file(inode, shown)))
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        let inode = self.find(path)?;
        self.vol.readlink(&inode).map_err(self.failed(path))
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>> {
        let inode = self.find(path)?;
        let mut found = Vec::new();
        let read = self.vol.listxattr(&inode).and_then(|names| {
            for name in names {
                let value = self.vol.getxattr(&inode, &name)?;
                found.push((name, value));
            }
            Ok(())
        });
        match read.map_err(self.failed(path)) {
            Err(err) if self.is_rescued() => self.vol.note_missing(format!("attributes: {err}")),
            read => read?,
        }
        Ok(found)
    }

    fn missing(&self) -> Vec<String> {
        self.vol.take_missing()
    }

    fn is_rescued(&self) -> bool {
        self.vol.is_rescued()
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn Writer>> {
        let made = self.place(path, |dir, name| self.vol.create(dir, name, &owned(0o600)))?;
        let shown = format!("{}:{}", self.name, String::from_utf8_lossy(path));
        Ok(Box::new(self.file(made, shown)))
    }

    fn mkdir(&self, path: &[u8]) -> Result<()> {
        self.place(path, |dir, name| self.vol.mkdir(dir, name, &owned(0o700)).map(drop))
    }

    fn symlink(&self, path: &[u8], target: &[u8]) -> Result<()> {
        let create = owned(0o777);
        let block_size = self.vol.statfs().block_size;
        // Linux keeps a zero at its end.
        if target.len() >= (block_size as usize).min(PATH_BYTES_MAX) {
            let shown = format!("{}:{}", self.name, String::from_utf8_lossy(path));
            return Err(long_link(target, block_size as usize).at(shown));
        }
        self.place(path, |dir, name| self.vol.symlink(dir, name, target, &create).map(drop))
    }

    fn link(&self, existing: &[u8], path: &[u8]) -> Result<()> {
        let inode = self.find(existing)?;
        self.place(path, |dir, name| self.vol.link(&inode, dir, name))
    }

    fn mknod(&self, path: &[u8], meta: &Meta) -> Result<()> {
        let create = owned(meta.file_type() | 0o600);
        self.place(path, |dir, name| self.vol.mknod(dir, name, &create, meta.rdev).map(drop))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.place(from, |old_dir, old_name| {
            let (new_dir, new_name) = self.vol.resolve_parent(to)?;
            let flags = syncline_fs::RenameFlags::NONE;
            self.vol.rename(old_dir, old_name, &new_dir, new_name, flags)
        })
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        self.place(path, |dir, name| self.vol.unlink(dir, name))
    }

    fn rmdir(&self, path: &[u8]) -> Result<()> {
        self.place(path, |dir, name| self.vol.rmdir(dir, name))
    }

    fn set_meta(
        &self,
        path: &[u8],
        meta: &Meta,
        preserve: Option<&[Xattr]>,
    ) -> Result<Option<String>> {
        let inode = self.find(path)?;
        let bits = meta.mode & 0o7777;
        let mut set = SetAttr::default();
        let bits = if preserve.is_some() { bits } else { bits & 0o777 & !self.umask };
        if meta.kind() != Kind::Symlink {
            set.mode = u16::try_from(bits).ok();
        }
        if preserve.is_some() {
            let time = |(seconds, nanoseconds): (i64, u32)| {
                Some(SetTime::At(Timestamp { seconds, nanoseconds }))
            };
            (set.uid, set.gid) = (Some(meta.uid), Some(meta.gid));
            (set.atime, set.mtime) = (time(meta.atime), time(meta.mtime));
        }
        let mut remark = None;
        for (name, value) in preserve.unwrap_or(&[]) {
            match self.vol.setxattr(&inode, name, value, XattrFlags::Any) {
                Ok(()) => {}
                Err(FsError::NoSpace) if self.vol.statfs().blocks_free > 0 => {
                    let bytes = (value.len(), self.vol.statfs().block_size as usize);
                    let shown = format!("{}:{}", self.name, String::from_utf8_lossy(path));
                    return Err(too_large(shown.as_bytes(), name, bytes));
                }
                Err(err @ (FsError::NotSupported(_) | FsError::Perm | FsError::Invalid(_))) => {
                    let (shown, name) =
                        (String::from_utf8_lossy(path), String::from_utf8_lossy(name));
                    remark = Some(format!("{shown}: attribute {name} not kept: {err}"));
                }
                Err(err) => return Err(self.failed(path)(err)),
            }
        }
        if set != SetAttr::default() {
            self.vol.setattr(&inode, &set).map_err(self.failed(path))?;
        }
        Ok(remark)
    }
}
