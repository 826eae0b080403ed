//! Makes the calls of a trace on a volume.

use std::sync::Arc;

use crate::bench::{Target, VolumeTarget};
use crate::latency::Timer;
use crate::trace::{Flags, NameId, Names, Op, Record};
use glob::Pattern;
use rustc_hash::FxHashMap;
use syncline_fs::{Create, FallocateMode, FsError, InodeRef, RenameFlags};
use syncline_sqlite::VolumeFs;

use crate::error::Result;
use crate::replay::contents::{Contents, Maker, PIECE_BYTES_MAX};
use crate::replay::logged::Logged;
use crate::replay::plan::inside;

/// Open files that are kept; a phone's log has no close.
const OPEN_MAX: usize = 512;
/// Longest single call.
const CALL_BYTES_MAX: u64 = 64 << 20;
/// Times that the background is called in one gap, at most.
const TICKS_MAX: usize = 10_000;

/// True if an error says that the trace does not show how things came to be, as against a failure
/// of the volume.
pub(crate) fn of_the_trace(err: &FsError) -> bool {
    use FsError::{
        Exists, Invalid, IsDir, Loop, NameTooLong, NotDir, NotEmpty, NotFound, NotSupported, Stale,
        TooBig,
    };
    matches!(
        err,
        Exists
            | Invalid(_)
            | IsDir
            | Loop
            | NameTooLong
            | NotDir
            | NotEmpty
            | NotFound
            | NotSupported(_)
            | Stale
            | TooBig
    )
}

pub(crate) struct Player<'a> {
    fs: Arc<VolumeFs>,
    names: &'a Names,
    gap_max_ns: u64,
    open: FxHashMap<NameId, InodeRef>,
    /// End of the last call in the time of the trace.
    last_ns: Option<u64>,
    contents: Maker,
    logged: Logged<'a>,
    buffer: Vec<u8>,
    played: u64,
    skipped: u64,
}

impl<'a> Player<'a> {
    pub(crate) fn new(
        fs: Arc<VolumeFs>,
        names: &'a Names,
        gap_max_ns: u64,
        (contents, seed): (Contents, u64),
        flashlite: Option<&'a Pattern>,
    ) -> Player<'a> {
        Player {
            logged: Logged::new(Arc::clone(&fs), names, flashlite),
            fs,
            names,
            gap_max_ns,
            open: FxHashMap::default(),
            last_ns: None,
            contents: Maker::new(contents, seed),
            buffer: vec![0; PIECE_BYTES_MAX],
            played: 0,
            skipped: 0,
        }
    }

    pub(crate) fn played(&self) -> u64 {
        self.played
    }

    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Makes one call, after its gap.
    pub(crate) fn play(
        &mut self,
        target: &VolumeTarget,
        record: &Record,
        timer: &mut Timer,
    ) -> Result<()> {
        if record.failed() || record.op == Op::Present {
            return Ok(());
        }
        let gap_ns = self.last_ns.map_or(0, |last| record.time_ns.saturating_sub(last));
        self.last_ns = Some(record.time_ns.saturating_add(record.latency_ns.unwrap_or(0)));
        self.idle(gap_ns.min(self.gap_max_ns));
        let start_ns = target.now_ns();
        let done = match record.op {
            _ if self.logged.play(record, &mut self.contents)? => Ok(()),
            op if op.is_sync() => self.sync(record),
            Op::Read | Op::Write => self.transfer(record),
            _ => self.name(record),
        };
        if record.op.is_sync() {
            timer.add_ns(target.now_ns().saturating_sub(start_ns));
        }
        match done {
            Ok(()) => self.played += 1,
            Err(err) if of_the_trace(&err) => self.skipped += 1,
            Err(err) => return Err(err.into()),
        }
        Ok(())
    }

    /// Makes plain files of those that were logs.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.logged.finish()
    }

    /// The inode of a file that is open.
    pub(crate) fn inode(&self, file: NameId) -> Option<u64> {
        self.open.get(&file).map(|inode| u64::from(inode.ino))
    }

    /// Time passes, and the background does what is due.
    fn idle(&self, gap_ns: u64) {
        let (clock, volume) = (self.fs.clock(), self.fs.volume());
        let until_ns = clock.now_ns().saturating_add(gap_ns);
        for _ in 0..TICKS_MAX {
            let due_ns = volume.next_deadline_ns().filter(|due_ns| *due_ns < until_ns);
            let Some(due_ns) = due_ns else { break };
            clock.sleep_until(due_ns.max(clock.now_ns()));
            // A failure here has latched the volume: the next call that writes reports it.
            let _ = volume.tick(clock.now_ns());
            if clock.now_ns() >= until_ns {
                return;
            }
        }
        clock.sleep_until(until_ns);
    }

    fn path(&self, name: NameId) -> String {
        inside(self.names.get(name))
    }

    /// The file of a record: open, or opened without a call of its own.
    fn file(&mut self, name: NameId) -> std::result::Result<InodeRef, FsError> {
        if let Some(inode) = self.open.get(&name) {
            return Ok(inode.clone());
        }
        let inode = self.fs.volume().resolve(self.path(name))?;
        self.keep(name, inode.clone());
        Ok(inode)
    }

    fn keep(&mut self, name: NameId, inode: InodeRef) {
        if self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(name, inode);
    }

    fn sync(&mut self, record: &Record) -> std::result::Result<(), FsError> {
        match record.op {
            Op::Fsync => self.file(record.file).and_then(|inode| self.fs.fsync(&inode, false)),
            Op::Fdatasync => self.file(record.file).and_then(|inode| self.fs.fsync(&inode, true)),
            Op::Sync => self.fs.syncfs(),
            // Starts write-back on Linux and promises nothing.
            _ => {
                self.fs.charge_syscall();
                Ok(())
            }
        }
    }

    fn transfer(&mut self, record: &Record) -> std::result::Result<(), FsError> {
        let inode = self.file(record.file)?;
        let mut at = record.offset_bytes;
        let mut left = record.len_bytes.min(CALL_BYTES_MAX);
        while left > 0 {
            let len = left.min(PIECE_BYTES_MAX as u64);
            if record.op == Op::Write {
                self.fs.write(&inode, at, self.contents.piece(len))?;
            } else if self.fs.read(&inode, at, &mut self.buffer[..len as usize])? == 0 {
                break;
            }
            at += len;
            left -= len;
        }
        if record.op == Op::Write && record.flags.has(Flags::SYNC) {
            self.fs.volume().fsync(&inode, true)?;
        }
        Ok(())
    }

    fn name(&mut self, record: &Record) -> std::result::Result<(), FsError> {
        let path = self.path(record.file);
        let volume = self.fs.volume();
        match record.op {
            Op::Create => {
                let inode = match self.fs.create(&path) {
                    // The trace did not see it being removed.
                    Err(FsError::Exists) => self.fs.open(&path)?,
                    made => made?,
                };
                self.keep(record.file, inode);
            }
            Op::Open | Op::Stat => {
                let inode = self.fs.open(&path)?;
                if record.op == Op::Open {
                    self.keep(record.file, inode);
                } else {
                    // A look: with `mtime_update=seen` the next change has a time of its own.
                    volume.getattr(&inode);
                }
            }
            Op::Close => {
                self.fs.charge_syscall();
                self.open.remove(&record.file);
            }
            Op::Truncate => {
                let inode = self.file(record.file)?;
                self.fs.truncate(&inode, record.size_bytes.unwrap_or(0))?;
            }
            Op::Fallocate => {
                let inode = self.file(record.file)?;
                self.fs.charge_syscall();
                let (offset, len) = (record.offset_bytes, record.len_bytes);
                self.fs.volume().fallocate(&inode, FallocateMode::KeepSize, offset, len)?;
            }
            Op::Unlink => {
                self.open.remove(&record.file);
                self.fs.unlink(&path)?;
            }
            Op::Mkdir => self.fs.mkdir(&path)?,
            Op::Rmdir => {
                self.fs.charge_syscall();
                let (dir, name) = volume.resolve_parent(path.as_bytes())?;
                volume.rmdir(&dir, name)?;
            }
            Op::Rename => {
                self.fs.charge_syscall();
                let to = self.path(record.target);
                let (from_dir, from) = volume.resolve_parent(path.as_bytes())?;
                let (to_dir, to) = volume.resolve_parent(to.as_bytes())?;
                volume.rename(&from_dir, from, &to_dir, to, RenameFlags::NONE)?;
                match self.open.remove(&record.file) {
                    Some(inode) => self.keep(record.target, inode),
                    None => drop(self.open.remove(&record.target)),
                }
            }
            Op::Link => {
                self.fs.charge_syscall();
                let to = self.path(record.target);
                let (dir, name) = volume.resolve_parent(to.as_bytes())?;
                volume.link(&volume.resolve(&path)?, &dir, name)?;
            }
            Op::Symlink => {
                self.fs.charge_syscall();
                let (dir, name) = volume.resolve_parent(path.as_bytes())?;
                let create = Create { mode: 0o777, uid: 0, gid: 0 };
                let text = self.names.get(record.target).as_bytes();
                volume.symlink(&dir, name, text, &create)?;
            }
            _ => {}
        }
        Ok(())
    }
}
