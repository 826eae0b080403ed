//! The host's files as a side of a copy. No call follows a symbolic link in the last component,
//! except `stat` when asked.

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

use super::side::{Reader, Writer};
use crate::{ImageError, Result, platform};

fn failed(path: &[u8]) -> impl Fn(io::Error) -> ImageError + '_ {
    move |err| ImageError::host(&platform::path_of(path), &err)
}

struct HostFile {
    file: File,
    path: Vec<u8>,
    size: u64,
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
}

/// A pipe or device: it is read in turn, and has no known end.
struct Stream {
    file: File,
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
    let file = File::open(platform::path_of(path)).map_err(failed(path))?;
    let meta = file.metadata().map_err(failed(path))?;
    if !meta.is_file() {
        return Ok(Box::new(Stream { file, path: path.to_vec() }));
    }
    Ok(Box::new(HostFile { file, path: path.to_vec(), size: meta.len() }))
}
