//! The host's files as a side of a copy. Links are followed in the path that the user named and
//! nowhere else: directories of others may change while they are copied.

#[cfg(unix)]
mod attributes;
#[cfg(all(test, target_os = "linux"))]
mod tests;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::Host;
#[cfg(windows)]
pub(crate) use windows::Host;

#[cfg(unix)]
use unix::data;
#[cfg(windows)]
use windows::data;

use std::fs::File;
use std::io::{self, Read};

#[cfg(unix)]
use super::side::Xattr;
use super::side::{Reader, Writer};
use crate::stoppable::Stoppable;
use crate::{ImageError, Result, platform};

fn failed(path: &[u8]) -> impl Fn(io::Error) -> ImageError + '_ {
    move |err| ImageError::host(&platform::path_of(path), &err)
}

struct HostFile {
    file: File,
    path: Vec<u8>,
    size: u64,
    /// True if it has no holes.
    #[cfg(unix)]
    dense: bool,
}

/// Calls `read` with what is left of a buffer and the bytes that are done, until it is full or
/// nothing comes.
fn fill(
    into: &mut [u8],
    mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match read(rest, done) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(done)
}

impl Reader for HostFile {
    fn data(&mut self, from: u64) -> Result<Option<(u64, u64)>> {
        data(self, from)
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<usize> {
        let read = |rest: &mut [u8], done| platform::read_at(&self.file, rest, at + done as u64);
        fill(into, read).map_err(failed(&self.path))
    }

    #[cfg(unix)]
    fn xattrs(&mut self) -> Result<Option<Vec<Xattr>>> {
        let found = attributes::of_file(&self.file).map_err(|err| failed(&self.path)(err.into()));
        found.map(Some)
    }
}

/// A pipe or device: it is read in turn, and has no known end.
struct Stream {
    file: Stoppable,
    path: Vec<u8>,
}

impl Reader for Stream {
    fn data(&mut self, from: u64) -> Result<Option<(u64, u64)>> {
        Ok(Some((from, u64::MAX)))
    }

    fn read(&mut self, _: u64, into: &mut [u8]) -> Result<usize> {
        fill(into, |rest, _| self.file.read(rest)).map_err(failed(&self.path))
    }
}

impl Writer for HostFile {
    fn write(&mut self, at: u64, from: &[u8]) -> Result<()> {
        platform::write_all_at(&self.file, from, at).map_err(failed(&self.path))
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(failed(&self.path))
    }
}
