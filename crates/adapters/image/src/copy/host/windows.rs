//! Windows: contents, names, sizes and times of change. Owners, extended attributes, holes and
//! special files have no place there; links are made where the system allows them.

use std::fs::{File, FileTimes, Metadata};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{HostFile, Stream, failed, fill};
use crate::Result;
use crate::copy::arguments::STANDARD_INPUT;
use crate::copy::side::{Kind, Meta, Reader, Side, Writer, Xattr};
use crate::platform::{self, is_windows_name, path_of};
use crate::stoppable::Stoppable;

const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_644;
const SYMLINK: u32 = 0o120_777;
const FIFO: u32 = 0o010_600;
/// Parts of a file that are looked at for zeros, and most of them in a range of data.
const PART_BYTES: usize = 64 << 10;
const RANGE_BYTES: u64 = 16 << 20;
/// Write permissions of a mode.
const WRITABLE: u32 = 0o222;

/// The host.
pub(crate) struct Host;

impl Host {
    /// Files in a directory.
    pub(crate) fn inside(_: &[u8]) -> Host {
        Host
    }

    /// A file or directory that is read.
    pub(crate) fn source(_: &[u8], _: bool) -> Host {
        Host
    }

    /// Reads cannot be stopped here.
    pub(crate) fn stopping(self, _: fn() -> bool) -> Host {
        self
    }

    /// A directory that is written into, or what is to be made.
    pub(crate) fn target(_: &[u8]) -> Host {
        Host
    }
}

/// Names in a directory, sorted.
fn list(path: &[u8]) -> Result<Vec<Vec<u8>>> {
    let entries = std::fs::read_dir(platform::path_of(path)).map_err(failed(path))?;
    let name = |entry: io::Result<std::fs::DirEntry>| {
        Ok(platform::bytes_of(&entry?.file_name()).into_owned())
    };
    let names: io::Result<Vec<Vec<u8>>> = entries.map(name).collect();
    let mut names = names.map_err(failed(path))?;
    names.sort();
    Ok(names)
}

/// Opens for reading: in turn what is no regular file.
fn open(path: &[u8]) -> Result<Box<dyn Reader>> {
    if path == STANDARD_INPUT {
        let file = Stoppable::standard_input(|| false).map_err(failed(path))?;
        return Ok(Box::new(Stream { file, path: path.to_vec() }));
    }
    let file = File::open(platform::path_of(path)).map_err(failed(path))?;
    let meta = file.metadata().map_err(failed(path))?;
    if !meta.is_file() {
        let file = Stoppable::new(file, || false);
        return Ok(Box::new(Stream { file, path: path.to_vec() }));
    }
    Ok(Box::new(HostFile { file, path: path.to_vec(), size: meta.len() }))
}

/// The next range with data from there on: start and end; none behind the last. A part of
/// [`PART_BYTES`] that is zero is a hole, since no safe call tells where those of the file are.
pub(super) fn data(file: &HostFile, from: u64) -> Result<Option<(u64, u64)>> {
    let mut part = vec![0; PART_BYTES];
    let mut is_zero = |at: u64| -> Result<bool> {
        let read = |rest: &mut [u8], done| platform::read_at(&file.file, rest, at + done as u64);
        let len = fill(&mut part, read).map_err(failed(&file.path))?;
        Ok(part.iter().take(len).all(|byte| *byte == 0))
    };
    let mut start = from;
    while start < file.size && is_zero(start)? {
        start += PART_BYTES as u64;
    }
    let mut end = start;
    while end < file.size && end - start < RANGE_BYTES && (end == start || !is_zero(end)?) {
        end += PART_BYTES as u64;
    }
    Ok((start < file.size).then_some((start, end.min(file.size))))
}

/// Seconds and nanoseconds since 1970.
fn time_of(time: std::io::Result<SystemTime>) -> (i64, u32) {
    let Ok(time) = time else { return (0, 0) };
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
        Err(before) => (-(before.duration().as_secs() as i64), 0),
    }
}

fn system_time((seconds, nanos): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let nanos = Duration::from_nanos(nanos.into());
    base.and_then(|base| base.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

fn mode_of(meta: &Metadata) -> u32 {
    let kind = meta.file_type();
    let mode = if kind.is_symlink() {
        return SYMLINK;
    } else if kind.is_dir() {
        DIRECTORY
    } else {
        REGULAR
    };
    if meta.permissions().readonly() { mode & !WRITABLE } else { mode }
}

impl Side for Host {
    fn stat(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        if path == STANDARD_INPUT {
            let mode = FIFO;
            let (uid, gid) = platform::user();
            return Ok(Some(Meta { mode, uid, gid, nlink: 1, ..Meta::default() }));
        }
        let host = path_of(path);
        let found =
            if follow { std::fs::metadata(&host) } else { std::fs::symlink_metadata(&host) };
        let meta = match found {
            Ok(meta) => meta,
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(failed(path)(err)),
        };
        let (uid, gid) = platform::user();
        Ok(Some(Meta {
            mode: mode_of(&meta),
            uid,
            gid,
            size: meta.len(),
            nlink: 1,
            id: platform::identity(&host).unwrap_or((0, 0)),
            rdev: 0,
            atime: time_of(meta.accessed()),
            mtime: time_of(meta.modified()),
        }))
    }

    fn streams(&self) -> bool {
        true
    }

    fn takes(&self, name: &[u8]) -> bool {
        is_windows_name(name)
    }

    fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        list(path)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn Reader>> {
        open(path)
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        let target = std::fs::read_link(path_of(path)).map_err(failed(path))?;
        Ok(platform::bytes_of(target.as_os_str()).into_owned())
    }

    fn xattrs(&self, _: &[u8]) -> Result<Vec<Xattr>> {
        Ok(Vec::new())
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn Writer>> {
        let file = File::options().write(true).create_new(true).open(path_of(path));
        let file = file.map_err(failed(path))?;
        Ok(Box::new(HostFile { file, path: path.to_vec(), size: 0 }))
    }

    fn mkdir(&self, path: &[u8]) -> Result<()> {
        std::fs::create_dir(path_of(path)).map_err(failed(path))
    }

    fn symlink(&self, path: &[u8], target: &[u8]) -> Result<()> {
        std::os::windows::fs::symlink_file(path_of(target), path_of(path)).map_err(failed(path))
    }

    fn link(&self, existing: &[u8], path: &[u8]) -> Result<()> {
        std::fs::hard_link(path_of(existing), path_of(path)).map_err(failed(path))
    }

    fn mknod(&self, path: &[u8], _: &Meta) -> Result<()> {
        Err(failed(path)(std::io::ErrorKind::Unsupported.into()))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        std::fs::rename(path_of(from), path_of(to)).map_err(failed(to))
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        std::fs::remove_file(path_of(path)).map_err(failed(path))
    }

    fn rmdir(&self, path: &[u8]) -> Result<()> {
        std::fs::remove_dir(path_of(path)).map_err(failed(path))
    }

    fn set_meta(
        &self,
        path: &[u8],
        meta: &Meta,
        preserve: Option<&[Xattr]>,
    ) -> Result<Option<String>> {
        if meta.kind() != Kind::File {
            return Ok(None);
        }
        let host = path_of(path);
        if preserve.is_some() {
            let times = FileTimes::new()
                .set_accessed(system_time(meta.atime))
                .set_modified(system_time(meta.mtime));
            let file = File::options().write(true).open(&host).map_err(failed(path))?;
            file.set_times(times).map_err(failed(path))?;
        }
        if meta.mode & WRITABLE == 0 {
            let mut permissions = std::fs::metadata(&host).map_err(failed(path))?.permissions();
            permissions.set_readonly(true);
            std::fs::set_permissions(&host, permissions).map_err(failed(path))?;
        }
        let lost = preserve.is_some_and(|xattrs| !xattrs.is_empty());
        Ok(lost.then(|| format!("{}: attributes not kept: Windows has none", host.display())))
    }
}
