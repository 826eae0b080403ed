//! Random operations on one file, each compared with a model of the file in memory.
//!
//! Beside write, read and truncate: shared mappings, O_DIRECT, punch, zero, collapse and insert of
//! ranges, copies within the file, fsync, reopening, and what SEEK_DATA calls a hole. The shape is
//! that of fsx of Apple and of xfstests.

// Maps the file that it tests.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::{Random, fill};
use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;

/// Largest file, in bytes.
const FILE_BYTES: u64 = 256 << 10;
/// Longest piece of one operation, in bytes.
const PIECE_BYTES: u64 = 40_000;
/// Alignment of O_DIRECT, collapse and insert, in bytes: the largest usual block.
const BLOCK_BYTES: u64 = 4096;
/// Operations that the message of a failure tells.
const TOLD: usize = 12;

/// One run.
struct Run<'a> {
    path: &'a Path,
    file: File,
    /// None where the file system has no O_DIRECT.
    direct: Option<File>,
    model: Vec<u8>,
    rng: Random,
}

/// Does `operations` random operations of `seed` on the file at `path`, which is made or emptied;
/// gives the contents that it has at the end.
pub fn run(path: &Path, seed: u64, operations: u64) -> Result<Vec<u8>, String> {
    let start = || -> std::io::Result<Run<'_>> {
        File::create(path)?;
        let (file, direct) = open(path)?;
        Ok(Run { path, file, direct, model: Vec::new(), rng: Random::new(seed) })
    };
    let mut run = start().map_err(|err| format!("{}: {err}", path.display()))?;
    let mut last = VecDeque::new();
    for nr in 0..operations {
        let done =
            run.step(seed.wrapping_add(nr)).and_then(|done| run.size_agrees().map(|()| done));
        match done {
            Ok(done) => {
                last.truncate(TOLD - 1);
                last.push_front(done);
            }
            Err(said) => {
                let last = last.make_contiguous().join("; ");
                return Err(format!("seed {seed}, operation {nr}: {said}; before it: {last}"));
            }
        }
    }
    run.whole().map_err(|said| format!("seed {seed}, at the end: {said}"))?;
    Ok(run.model)
}

fn open(path: &Path) -> std::io::Result<(File, Option<File>)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = options.open(path)?;
    let direct = options.custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path);
    match direct {
        Ok(direct) => Ok((file, Some(direct))),
        Err(err) if Errno::from_io_error(&err) == Some(Errno::INVAL) => Ok((file, None)),
        Err(err) => Err(err),
    }
}

impl Run<'_> {
    /// One operation; gives what was done.
    fn step(&mut self, nr: u64) -> Result<String, String> {
        let at = self.rng.below(FILE_BYTES - 1);
        let len = 1 + self.rng.below((FILE_BYTES - at).min(PIECE_BYTES));
        let kind = self.rng.below(16);
        let (what, done) = match kind {
            0..=2 => ("write", self.write(nr, at, len)),
            3 => ("read", self.read(at, len)),
            4 => ("truncate", self.truncate(at)),
            5 | 6 => ("write through a mapping", self.map(nr, at, len)),
            7 => ("punch", self.punch(at, len)),
            8 => ("zero", self.zero(at, len)),
            9 => ("collapse", self.collapse(at, len)),
            10 => ("insert", self.insert(at, len)),
            11 => ("copy", self.copy(at, len)),
            12 => ("direct write", self.direct_write(nr, at, len)),
            13 => ("direct read", self.direct_read(at, len)),
            14 => ("sync and holes", self.sync_and_holes()),
            _ => ("reopen", self.reopen()),
        };
        let what = format!("{what} at {at} length {len}");
        done.map(|()| what.clone()).map_err(|said| format!("{what}: {said}"))
    }

    fn size(&self) -> u64 {
        self.model.len() as u64
    }

    fn size_agrees(&self) -> Result<(), String> {
        let size = self.file.metadata().map_err(text)?.len();
        if size == self.size() {
            return Ok(());
        }
        Err(format!("the file has {size} bytes, it should have {}", self.size()))
    }

    /// The part of the range that is in the file.
    fn inside(&self, at: u64, len: u64) -> std::ops::Range<usize> {
        let clip = |n: u64| n.min(self.size()) as usize;
        clip(at)..clip(at + len)
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        let (at, end) = (at as usize, at as usize + data.len());
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[at..end].copy_from_slice(data);
    }

    fn write(&mut self, nr: u64, at: u64, len: u64) -> Result<(), String> {
        let mut data = vec![0; len as usize];
        fill(nr, at, &mut data);
        self.file.write_all_at(&data, at).map_err(text)?;
        self.put(at, &data);
        Ok(())
    }

    fn read(&self, at: u64, len: u64) -> Result<(), String> {
        let mut data = vec![0; len as usize];
        let got = read_all(&self.file, at, &mut data)?;
        differs(&data[..got], &self.model[self.inside(at, len)], at)
    }

    fn truncate(&mut self, at: u64) -> Result<(), String> {
        self.file.set_len(at).map_err(text)?;
        self.model.resize(at as usize, 0);
        Ok(())
    }

    fn map(&mut self, nr: u64, at: u64, len: u64) -> Result<(), String> {
        let range = self.inside(at, len);
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: nobody else changes the file, and the map is gone before the next operation
        // changes its size.
        let mut map = unsafe { MmapMut::map_mut(&self.file) }.map_err(text)?;
        differs(&map, &self.model, 0)?;
        fill(nr, at, &mut map[range.clone()]);
        self.model[range.clone()].copy_from_slice(&map[range]);
        if self.rng.one_in(2) { map.flush().map_err(text) } else { Ok(()) }
    }

    fn fallocate(&self, mode: FallocateFlags, at: u64, len: u64) -> Result<(), String> {
        rustix::fs::fallocate(&self.file, mode, at, len).map_err(text)
    }

    /// Moves a range. Returns false if the file system cannot: Linux passes these modes to no FUSE
    /// mount.
    fn moved(&self, mode: FallocateFlags, at: u64, len: u64) -> Result<bool, String> {
        match rustix::fs::fallocate(&self.file, mode, at, len) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(text(errno)),
        }
    }

    fn punch(&mut self, at: u64, len: u64) -> Result<(), String> {
        self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len)?;
        let range = self.inside(at, len);
        self.model[range].fill(0);
        Ok(())
    }

    fn zero(&mut self, at: u64, len: u64) -> Result<(), String> {
        if self.rng.one_in(2) {
            self.fallocate(FallocateFlags::ZERO_RANGE, at, len)?;
            self.put(at, &vec![0; len as usize]);
            return Ok(());
        }
        self.fallocate(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, at, len)?;
        let range = self.inside(at, len);
        self.model[range].fill(0);
        Ok(())
    }

    fn collapse(&mut self, at: u64, len: u64) -> Result<(), String> {
        let (at, len) = aligned(at, len);
        // A range that reaches the end is refused.
        if at + len >= self.size() {
            return Ok(());
        }
        if self.moved(FallocateFlags::COLLAPSE_RANGE, at, len)? {
            self.model.drain(at as usize..(at + len) as usize);
        }
        Ok(())
    }

    fn insert(&mut self, at: u64, len: u64) -> Result<(), String> {
        let (at, len) = aligned(at, len);
        if at >= self.size() || self.size() + len > FILE_BYTES {
            return Ok(());
        }
        if self.moved(FallocateFlags::INSERT_RANGE, at, len)? {
            let at = at as usize;
            self.model.splice(at..at, vec![0; len as usize]);
        }
        Ok(())
    }

    /// copy_file_range within the file; source and target do not meet.
    fn copy(&mut self, at: u64, len: u64) -> Result<(), String> {
        let range = self.inside(at, len);
        let to = self.rng.below(FILE_BYTES - range.len() as u64);
        if range.is_empty()
            || (to < range.end as u64 && to + range.len() as u64 > range.start as u64)
        {
            return Ok(());
        }
        let (mut from, mut into, mut left) = (range.start as u64, to, range.len());
        while left > 0 {
            let file = &self.file;
            let done =
                rustix::fs::copy_file_range(file, Some(&mut from), file, Some(&mut into), left);
            match done.map_err(text)? {
                0 => return Err("copy_file_range stopped early".to_owned()),
                done => left -= done,
            }
        }
        let data = self.model[range].to_vec();
        self.put(to, &data);
        Ok(())
    }

    fn direct_write(&mut self, nr: u64, at: u64, len: u64) -> Result<(), String> {
        let (at, len) = aligned(at, len);
        let Some(direct) = &self.direct else { return Ok(()) };
        let mut data = MmapMut::map_anon(len as usize).map_err(text)?;
        fill(nr, at, &mut data);
        direct.write_all_at(&data, at).map_err(text)?;
        self.put(at, &data);
        Ok(())
    }

    fn direct_read(&self, at: u64, len: u64) -> Result<(), String> {
        let (at, len) = aligned(at, len);
        let Some(direct) = &self.direct else { return Ok(()) };
        let mut data = MmapMut::map_anon(len as usize).map_err(text)?;
        let got = direct.read_at(&mut data, at).map_err(text)?;
        let wanted = &self.model[self.inside(at, len)];
        differs(&data[..got], wanted.get(..got).unwrap_or(wanted), at)?;
        if got == 0 && !wanted.is_empty() {
            return Err("nothing was read".to_owned());
        }
        Ok(())
    }

    /// Holes that lseek reports, and the range behind the last data, are zeros.
    fn sync_and_holes(&self) -> Result<(), String> {
        if self.size().is_multiple_of(2) {
            self.file.sync_all().map_err(text)?;
        } else {
            self.file.sync_data().map_err(text)?;
        }
        let mut at = 0;
        while at < self.size() {
            let data = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => self.size(),
                Err(errno) => return Err(text(errno)),
            };
            let hole = &self.model[self.inside(at, data.saturating_sub(at))];
            if let Some(more) = hole.iter().position(|byte| *byte != 0) {
                return Err(format!(
                    "SEEK_DATA says a hole where byte {} is data",
                    at + more as u64
                ));
            }
            if data >= self.size() {
                break;
            }
            at = rustix::fs::seek(&self.file, SeekFrom::Hole(data)).map_err(text)?;
            if at <= data {
                return Err(format!("SEEK_HOLE from {data} gives {at}"));
            }
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), String> {
        (self.file, self.direct) = open(self.path).map_err(text)?;
        self.whole()
    }

    fn whole(&self) -> Result<(), String> {
        let mut data = vec![0; self.model.len() + 1];
        let got = read_all(&self.file, 0, &mut data)?;
        differs(&data[..got], &self.model, 0)
    }
}

fn aligned(at: u64, len: u64) -> (u64, u64) {
    let at = at - at % BLOCK_BYTES;
    (at, (len - len % BLOCK_BYTES).clamp(BLOCK_BYTES, (FILE_BYTES - at).max(BLOCK_BYTES)))
}

fn text(err: impl std::fmt::Display) -> String {
    err.to_string()
}

fn read_all(file: &File, at: u64, into: &mut [u8]) -> Result<usize, String> {
    let mut got = 0;
    while got < into.len() {
        match file.read_at(&mut into[got..], at + got as u64).map_err(text)? {
            0 => break,
            n => got += n,
        }
    }
    Ok(got)
}

fn differs(got: &[u8], wanted: &[u8], at: u64) -> Result<(), String> {
    if got.len() != wanted.len() {
        return Err(format!("{} bytes at {at}, {} are there", got.len(), wanted.len()));
    }
    match got.iter().zip(wanted).position(|(got, wanted)| got != wanted) {
        None => Ok(()),
        Some(byte) => {
            Err(format!("byte {} is {}, not {}", at + byte as u64, got[byte], wanted[byte]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ImageSpec, KernelMount, Need, mkfs, require};

    #[test]
    fn the_kernel_agrees_with_the_model() {
        let name = "the_kernel_agrees_with_the_model";
        if !require(name, &[Need::E2fsck, Need::Root, Need::Loop]) {
            return;
        }
        let image = mkfs(&ImageSpec::with_size(16 << 20));
        let mount = KernelMount::new(image.path(), "").unwrap();
        let path = mount.path().join("f");
        let wanted = run(&path, 1, 1000).unwrap();
        assert!(std::fs::read(&path).unwrap() == wanted);
        mount.unmount().unwrap();
    }

    #[test]
    fn differences_are_found() {
        assert!(differs(b"abc", b"abc", 0).is_ok());
        assert_eq!(differs(b"abd", b"abc", 7).unwrap_err(), "byte 9 is 100, not 99");
        assert_eq!(differs(b"ab", b"abc", 7).unwrap_err(), "2 bytes at 7, 3 are there");
    }
}
