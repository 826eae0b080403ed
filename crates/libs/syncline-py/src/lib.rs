//! The native part of the Python package `syncline`; `python/syncline` is what programs import.
//!
//! Paths are bytes, errors are `OSError` with errno, and no call holds the interpreter's lock while
//! it reads, writes or waits. Objects may be dropped in any order, by any thread and in a forked
//! process: `syncline` says why. Tested by the pytest suite in `tests/`.

#![forbid(unsafe_code)]

mod build;
mod build_from;
mod device;
mod observed;
mod study;
mod trace;

use std::path::PathBuf;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use syncline as library;
use syncline::{
    Access, At, Attr, FallocateMode, Make, RenameFlags, SetAttr, SetTime, Timestamp, XattrFlags,
};

const ENAMETOOLONG: i32 = 36;
/// Part of a long read or write that is done between two looks for Ctrl-C.
const PART_BYTES: usize = 8 << 20;

fn raised(err: library::Error) -> PyErr {
    PyOSError::new_err((err.errno, err.text))
}

/// Runs without the interpreter's lock.
fn free<T: Send>(py: Python<'_>, call: impl FnOnce() -> library::Result<T> + Send) -> PyResult<T> {
    py.detach(call).map_err(raised)
}

fn at(follow: bool) -> At {
    if follow { At::Follow } else { At::Link }
}

fn permissions(mode: u32) -> PyResult<u16> {
    let known = u16::try_from(mode).ok().filter(|mode| *mode <= 0o7777);
    known.ok_or_else(|| raised(library::Error::invalid("a mode has other bits than 0o7777")))
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

fn timestamp(nanoseconds: i128) -> PyResult<SetTime> {
    let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000));
    let seconds = seconds.map_err(|_| raised(library::Error::invalid("a time is out of range")))?;
    let nanoseconds = nanoseconds.rem_euclid(1_000_000_000) as u32;
    Ok(SetTime::At(Timestamp { seconds, nanoseconds }))
}

/// `(mode, ino, nlink, uid, gid, size, blocks, blksize, rdev, atime, mtime, ctime, crtime)`, times
/// in nanoseconds.
type Stat = [i128; 13];

fn stat(attr: Attr) -> Stat {
    [
        attr.mode.into(),
        attr.ino.into(),
        attr.nlink.into(),
        attr.uid.into(),
        attr.gid.into(),
        attr.size.into(),
        attr.blocks.into(),
        attr.blksize.into(),
        attr.rdev.into(),
        nanoseconds(attr.atime),
        nanoseconds(attr.mtime),
        nanoseconds(attr.ctime),
        nanoseconds(attr.crtime),
    ]
}

/// An opened image. It is closed when it is dropped: Python drops it after the finalizers of all
/// files of it.
#[pyclass(frozen)]
struct Disk(library::Disk);

impl Drop for Disk {
    fn drop(&mut self) {
        // Without a clean end the next open recovers, as after a power cut.
        let _ = Python::attach(|py| free(py, || self.0.close()));
    }
}

#[pymethods]
impl Disk {
    #[new]
    #[pyo3(signature = (path, options, backing=Vec::new()))]
    fn new(py: Python<'_>, path: PathBuf, options: &str, backing: Vec<PathBuf>) -> PyResult<Disk> {
        free(py, || {
            let mut options = library::OpenOptions::parse(options)?;
            options.backing.extend(backing);
            library::Disk::open(&path, &options)
        })
        .map(Disk)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        free(py, || self.0.close())
    }

    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    /// `(transactions, blocks, orphans, in memory)`.
    fn recovered(&self) -> (u32, u32, u32, bool) {
        let opened = self.0.opened();
        let in_memory = self.0.is_replayed_in_memory();
        (opened.transactions_replayed, opened.blocks_replayed, opened.orphans, in_memory)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        free(py, || self.0.sync())
    }

    fn tick(&self, py: Python<'_>) -> PyResult<u64> {
        free(py, || self.0.tick())
    }

    /// `(block size, blocks, free, available, files, files free, longest name)`.
    fn statfs(&self, py: Python<'_>) -> PyResult<(u32, u64, u64, u64, u64, u64, u32)> {
        let s = free(py, || self.0.statfs())?;
        let (blocks, free_blocks, available) = (s.blocks, s.blocks_free, s.blocks_available);
        Ok((s.block_size, blocks, free_blocks, available, s.files, s.files_free, s.name_len))
    }

    /// `how` has letters: r, w, a (append), c (create), x (exclusive), t (truncate), s (sync), n
    /// (no links).
    fn open(&self, py: Python<'_>, path: &[u8], how: &str, mode: u32) -> PyResult<File> {
        let has = |letter: char| how.contains(letter);
        let access = Access::default().with(|access| {
            access.read = has('r');
            access.write = has('w');
            access.append = has('a');
            access.sync = has('s');
            access.create = has('c');
            access.exclusive = has('x');
            access.truncate = has('t');
            access.nofollow = has('n');
        });
        let mode = permissions(mode)?;
        free(py, || self.0.open_file(path, access, mode)).map(File)
    }

    /// `(name, inode number, type bits)` of each entry.
    fn list(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<(Py<PyBytes>, u32, u32)>> {
        let entries = free(py, || {
            let mut directory = self.0.open_directory(path)?;
            let mut entries = Vec::new();
            while let Some(entry) = directory.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        })?;
        let shown = |entry: library::Entry| {
            let name = PyBytes::new(py, &entry.name).unbind();
            (name, entry.ino, entry.kind.type_bits().into())
        };
        Ok(entries.into_iter().map(shown).collect())
    }

    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Stat> {
        free(py, || self.0.stat(path, at(follow))).map(stat)
    }

    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        let mode = permissions(mode)?;
        free(py, || self.0.mkdir(path, mode))
    }

    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        free(py, || self.0.rmdir(path))
    }

    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        free(py, || self.0.unlink(path))
    }

    fn rename(&self, py: Python<'_>, from: &[u8], to: &[u8], flags: u32) -> PyResult<()> {
        free(py, || self.0.rename(from, to, RenameFlags::from_bits(flags)?))
    }

    fn link(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<()> {
        free(py, || self.0.link(from, to))
    }

    fn symlink(&self, py: Python<'_>, target: &[u8], path: &[u8]) -> PyResult<()> {
        free(py, || self.0.symlink(target, path))
    }

    fn readlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<Py<PyBytes>> {
        let target = free(py, || self.0.readlink(path))?;
        Ok(PyBytes::new(py, &target).unbind())
    }

    fn chmod(&self, py: Python<'_>, path: &[u8], follow: bool, mode: u32) -> PyResult<()> {
        let set = SetAttr { mode: Some(permissions(mode)?), ..SetAttr::default() };
        free(py, || self.0.setattr(path, at(follow), &set))
    }

    fn chown(
        &self,
        py: Python<'_>,
        path: &[u8],
        follow: bool,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> PyResult<()> {
        free(py, || self.0.setattr(path, at(follow), &SetAttr { uid, gid, ..SetAttr::default() }))
    }

    /// Times in nanoseconds; both `None`: now.
    fn utime(
        &self,
        py: Python<'_>,
        path: &[u8],
        follow: bool,
        times: Option<(i128, i128)>,
    ) -> PyResult<()> {
        let (atime, mtime) = match times {
            Some((atime, mtime)) => (timestamp(atime)?, timestamp(mtime)?),
            None => (SetTime::Now, SetTime::Now),
        };
        let set = SetAttr { atime: Some(atime), mtime: Some(mtime), ..SetAttr::default() };
        free(py, || self.0.setattr(path, at(follow), &set))
    }

    fn getxattr(
        &self,
        py: Python<'_>,
        path: &[u8],
        follow: bool,
        name: &[u8],
    ) -> PyResult<Py<PyBytes>> {
        let value = free(py, || self.0.getxattr(path, at(follow), name))?;
        Ok(PyBytes::new(py, &value).unbind())
    }

    fn setxattr(
        &self,
        py: Python<'_>,
        path: &[u8],
        follow: bool,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> PyResult<()> {
        let flags = match flags {
            0 => XattrFlags::Any,
            1 => XattrFlags::Create,
            2 => XattrFlags::Replace,
            _ => return Err(raised(library::Error::invalid("flags are XATTR_CREATE or _REPLACE"))),
        };
        free(py, || self.0.setxattr(path, at(follow), (name, value), flags))
    }

    fn listxattr(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Vec<Py<PyBytes>>> {
        let names = free(py, || self.0.listxattr(path, at(follow)))?;
        Ok(names.iter().map(|name| PyBytes::new(py, name).unbind()).collect())
    }

    fn removexattr(&self, py: Python<'_>, path: &[u8], follow: bool, name: &[u8]) -> PyResult<()> {
        free(py, || self.0.removexattr(path, at(follow), name))
    }
}

/// An open file.
#[pyclass(frozen)]
struct File(library::File);

#[pymethods]
impl File {
    /// At most `size` bytes.
    fn pread<'py>(&self, py: Python<'py>, offset: u64, size: u64) -> PyResult<Bound<'py, PyBytes>> {
        // What is not there takes no memory. A file that grows meanwhile is read up to here.
        let known = free(py, || self.0.stat())?.size;
        let size = size.min(known.saturating_sub(offset)) as usize;
        let mut done = 0;
        let bytes = PyBytes::new_with(py, size, |into| {
            // Once for an empty range, too: its offset is looked at.
            loop {
                let end = into.len().min(done + PART_BYTES);
                let part = &mut into[done..end];
                let wanted = part.len();
                let count = free(py, || self.0.read_at(offset + done as u64, part))?;
                done += count;
                if count < wanted || done == into.len() {
                    return Ok(());
                }
                py.check_signals()?;
            }
        })?;
        // A file that was cut meanwhile.
        Ok(if done < size { PyBytes::new(py, &bytes.as_bytes()[..done]) } else { bytes })
    }

    /// Returns the bytes written; fewer than given only where a part failed that was not the first.
    fn pwrite(&self, py: Python<'_>, offset: u64, data: &[u8]) -> PyResult<usize> {
        let mut done = 0;
        loop {
            let part = &data[done..data.len().min(done + PART_BYTES)];
            let count = match free(py, || self.0.write_at(offset + done as u64, part)) {
                Err(_) if done > 0 => return Ok(done),
                count => count?,
            };
            done += count;
            if count < part.len() || done == data.len() {
                return Ok(done);
            }
            py.check_signals()?;
        }
    }

    /// Appends `data`. Returns the position at which it was written, and the number of bytes
    /// written.
    fn append(&self, py: Python<'_>, data: &[u8]) -> PyResult<(u64, usize)> {
        free(py, || {
            let done = self.0.write(data)?;
            Ok((self.0.position()? - done as u64, done))
        })
    }

    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        free(py, || self.0.truncate(size))
    }

    /// `mode` as of fallocate(2).
    fn allocate(&self, py: Python<'_>, mode: u32, offset: u64, len: u64) -> PyResult<()> {
        let mode = match mode {
            0x00 => FallocateMode::Allocate,
            0x01 => FallocateMode::KeepSize,
            0x03 => FallocateMode::PunchHole,
            0x10 => FallocateMode::ZeroRange,
            0x11 => FallocateMode::ZeroRangeKeepSize,
            _ => return Err(raised(library::Error::invalid("mode is none of fallocate's"))),
        };
        free(py, || self.0.allocate(mode, offset, len))
    }

    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        free(py, || self.0.sync(data_only))
    }

    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(free(py, || self.0.stat())?.size)
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        free(py, || self.0.stat()).map(stat)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        free(py, || self.0.close())
    }
}

/// Makes an image.
#[pyfunction]
fn mkfs(
    py: Python<'_>,
    path: PathBuf,
    size_bytes: Option<u64>,
    label: Option<String>,
    force: bool,
) -> PyResult<()> {
    if path.as_os_str().len() > 4095 {
        return Err(raised(library::Error::new(ENAMETOOLONG, "the path is too long; shorten it")));
    }
    let make = Make::default().with(|make| {
        make.size_bytes = size_bytes;
        make.label = label;
        make.force = force;
    });
    free(py, || make.image(&path))
}

/// `(findings, how many more)`. Ctrl-C ends it.
#[pyfunction]
fn check(py: Python<'_>, path: PathBuf) -> PyResult<(Vec<String>, u64)> {
    let mut interrupted = None;
    let report = free(py, || {
        library::check(&path, &mut |_| {
            interrupted = Python::attach(|py| py.check_signals()).err();
            interrupted.is_none()
        })
    });
    if let Some(interrupt) = interrupted {
        return Err(interrupt);
    }
    let report = report?;
    let errors = report.findings.iter().filter(|finding| finding.is_error);
    let errors: Vec<String> = errors.map(ToString::to_string).collect();
    let more = report.errors.saturating_sub(errors.len() as u64);
    Ok((errors, more))
}

/// `(transactions, blocks, orphans)`.
#[pyfunction]
fn recover(py: Python<'_>, path: PathBuf) -> PyResult<(u32, u32, u32)> {
    let done = free(py, || library::Disk::recover(&path))?;
    Ok((done.transactions_replayed, done.blocks_replayed, done.orphans))
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{Disk, File, check, mkfs, recover};
    #[pymodule_export]
    use crate::build::Builder;
    #[pymodule_export]
    use crate::build_from::build_from;
    #[pymodule_export]
    use crate::device::Device;
    #[pymodule_export]
    use crate::study::study;
    #[pymodule_export]
    use crate::trace::{trace_header, trace_stream};
}
