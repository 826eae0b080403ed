//! Files of a trace that a program keeps as FlashLite logs in place of plain files.
//!
//! ```text
//!   create, write, read, truncate, sync --> the real library's log, a file of the volume
//!   end of the trace --> rearranged to a plain file, the log removed
//! ```
//! Space that is allocated before is not: a log grows (informed-storage paper, 4.4.1).

use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::trace::{NameId, Names, Op, Record};
use glob::Pattern;
use rustc_hash::FxHashMap;
use syncline_flashlite::{Log, Options, Rearrange, Storage};
use syncline_fs::{FsError, InodeRef};
use syncline_sqlite::VolumeFs;

use crate::error::Result;
use crate::replay::contents::{Maker, PIECE_BYTES_MAX};
use crate::replay::plan::inside;

/// Bytes of a file of the volume.
struct OnVolume {
    fs: Arc<VolumeFs>,
    inode: InodeRef,
}

fn system(err: FsError) -> io::Error {
    match err {
        FsError::NoSpace => io::ErrorKind::StorageFull.into(),
        other => io::Error::other(other),
    }
}

impl Storage for OnVolume {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            match self.fs.read(&self.inode, at, &mut into[done..]).map_err(system)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => done += read,
            }
        }
        Ok(())
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            self.fs.write(&self.inode, at, part).map_err(system)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.fs.size(&self.inode))
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.fs.truncate(&self.inode, len_bytes).map_err(system)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.fs.fsync(&self.inode, true).map_err(system)
    }
}

/// The files that are logs, by the name they have by now.
pub(crate) struct Logged<'a> {
    fs: Arc<VolumeFs>,
    names: &'a Names,
    pattern: Option<&'a Pattern>,
    logs: FxHashMap<NameId, Log>,
    bytes: Vec<u8>,
}

impl<'a> Logged<'a> {
    pub(crate) fn new(fs: Arc<VolumeFs>, names: &'a Names, pattern: Option<&'a Pattern>) -> Self {
        Logged { fs, names, pattern, logs: FxHashMap::default(), bytes: vec![0; PIECE_BYTES_MAX] }
    }

    /// True if the file that a record makes is to be a log: the glob has a slash and matches the
    /// path, or none and matches the name.
    fn wanted(&self, record: &Record) -> bool {
        let Some(pattern) = self.pattern.filter(|_| record.op == Op::Create) else { return false };
        let path = inside(self.names.get(record.file));
        let name = path.rsplit('/').next().unwrap_or(&path);
        pattern.matches(if pattern.as_str().contains('/') { &path } else { name })
    }

    fn storage(&self, path: &str) -> Result<Arc<OnVolume>> {
        let inode = self.fs.create(path)?;
        Ok(Arc::new(OnVolume { fs: Arc::clone(&self.fs), inode }))
    }

    /// Makes a call on a log; false if it is of another file.
    pub(crate) fn play(&mut self, record: &Record, contents: &mut Maker) -> Result<bool> {
        if self.wanted(record) && !self.logs.contains_key(&record.file) {
            let storage = self.storage(&inside(self.names.get(record.file)))?;
            self.logs.insert(record.file, Log::create(storage, Options::default())?);
            return Ok(true);
        }
        if let Op::Rename | Op::Unlink = record.op {
            // The log's own file has the name; the caller changes that.
            if let Some(log) = self.logs.remove(&record.file)
                && record.op == Op::Rename
            {
                self.logs.insert(record.target, log);
            }
            return Ok(false);
        }
        let Some(log) = self.logs.get(&record.file) else { return Ok(false) };
        match record.op {
            op if op.is_sync() => log.sync_data()?,
            Op::Read | Op::Write => {
                let (mut at, end) = (record.offset_bytes, record.offset_bytes + record.len_bytes);
                while at < end {
                    let len = (end - at).min(PIECE_BYTES_MAX as u64);
                    if record.op == Op::Write {
                        log.write_at(contents.piece(len), at)?;
                    } else {
                        log.read_at(&mut self.bytes[..len as usize], at)?;
                    }
                    at += len;
                }
            }
            Op::Truncate => log.set_len(record.size_bytes.unwrap_or(0))?,
            _ => self.fs.charge_syscall(),
        }
        Ok(true)
    }

    /// Makes plain files of all logs.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if self.logs.is_empty() {
            return Ok(());
        }
        let mut logs: Vec<(NameId, Log)> = self.logs.drain().collect();
        logs.sort_by_key(|(name, _)| *name);
        for (name, log) in logs {
            let path = inside(self.names.get(name));
            let part = format!("{path}.part");
            let to = self.storage(&part)?;
            let mut go_on = |_| ControlFlow::Continue(());
            log.rearrange_to(&*to, Rearrange::default(), &mut go_on)?;
            drop(log);
            self.fs.rename(&part, &path)?;
        }
        Ok(self.fs.syncfs()?)
    }
}
