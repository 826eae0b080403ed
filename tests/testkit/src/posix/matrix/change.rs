//! The ways to change a file.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::{Random, fill};
use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::queue::{Aio, Queue, Uring};
use super::{Cell, FILE_BYTES, KEPT_BYTES, PAGE_BYTES, PIECE_BYTES, Seen};

/// A way to change a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// pwrite.
    Write,
    /// Stores through a shared mapping.
    Map,
    /// pwrite with O_DIRECT.
    Direct,
    /// The same by io_submit, several at once.
    Aio,
    /// The same by io_uring.
    Uring,
    /// copy_file_range from another file.
    Copy,
    /// fallocate, FALLOC_FL_PUNCH_HOLE.
    Punch,
    /// fallocate, FALLOC_FL_ZERO_RANGE.
    Zero,
    /// ftruncate, shorter and back.
    Truncate,
}

impl Change {
    /// All of them.
    pub const ALL: [Change; 9] = [
        Change::Write,
        Change::Map,
        Change::Direct,
        Change::Aio,
        Change::Uring,
        Change::Copy,
        Change::Punch,
        Change::Zero,
        Change::Truncate,
    ];

    /// In a message.
    pub fn name(self) -> &'static str {
        match self {
            Change::Write => "write",
            Change::Map => "store through a mapping",
            Change::Direct => "O_DIRECT write",
            Change::Aio => "O_DIRECT write by io_submit",
            Change::Uring => "O_DIRECT write by io_uring",
            Change::Copy => "copy_file_range",
            Change::Punch => "punch",
            Change::Zero => "zero range",
            Change::Truncate => "truncate",
        }
    }
}

/// Why something was not done.
pub(super) enum Refused {
    /// There is no such call here.
    Unknown(Errno),
    /// It failed.
    Failed(String),
}

impl From<std::io::Error> for Refused {
    fn from(err: std::io::Error) -> Refused {
        match Errno::from_io_error(&err) {
            Some(errno @ (Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM)) => {
                Refused::Unknown(errno)
            }
            _ => Refused::Failed(err.to_string()),
        }
    }
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        std::io::Error::from(errno).into()
    }
}

impl Refused {
    pub(super) fn seen(self) -> Result<Seen, String> {
        match self {
            Refused::Unknown(errno) => Ok(Seen::Refused(errno.to_string())),
            Refused::Failed(text) => Err(text),
        }
    }
}

/// Means by which changes are made.
enum Means {
    Plain,
    Map(MmapMut),
    /// From this file.
    Copy(File),
    Queue(Box<dyn Queue>),
}

/// The file, open for changes.
pub(super) struct Writer {
    file: File,
    change: Change,
    means: Means,
    /// Pages that O_DIRECT takes.
    piece: MmapMut,
}

impl Writer {
    /// Makes the file with `contents`.
    pub(super) fn open(path: &Path, cell: Cell, contents: &[u8]) -> Result<Writer, Refused> {
        let change = cell.change;
        let mut options = OpenOptions::new();
        options.write(true).read(change == Change::Map);
        let direct = matches!(change, Change::Direct | Change::Aio | Change::Uring);
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        options.custom_flags(flags.bits().cast_signed());
        let mut piece = MmapMut::map_anon(FILE_BYTES)?;
        piece.copy_from_slice(contents);
        if !cell.made {
            std::fs::write(path, contents)?;
        }
        let file = options.create_new(cell.made).open(path)?;
        if cell.made {
            file.write_all_at(&piece, 0)?;
        }
        let means = match change {
            // SAFETY: the file keeps its length while it is mapped here, and Rust reads nothing
            // through the map.
            Change::Map => Means::Map(unsafe { MmapMut::map_mut(&file) }?),
            Change::Copy => {
                let dir = path.parent().unwrap_or(Path::new("."));
                Means::Copy(tempfile::tempfile_in(dir)?)
            }
            Change::Aio => Means::Queue(Box::new(Aio::new()?)),
            Change::Uring => Means::Queue(Box::new(Uring::new()?)),
            _ => Means::Plain,
        };
        Ok(Writer { file, change, means, piece })
    }

    /// Changes a part of the file and of its model.
    pub(super) fn change(
        &mut self,
        model: &mut [u8],
        round: u64,
        rng: &mut Random,
    ) -> Result<(), Refused> {
        let (pages, page) = ((FILE_BYTES / PAGE_BYTES) as u64, PAGE_BYTES as u64);
        let first = rng.below(pages);
        let count = 1 + rng.below((pages - first).min(PIECE_BYTES / page));
        let (mut at, mut len) = ((first * page) as usize, (count * page) as usize);
        if matches!(self.change, Change::Write | Change::Map | Change::Copy) {
            // Not whole pages.
            (at, len) = (at + rng.below(page) as usize, len - PAGE_BYTES + 1);
        }
        let takes_away = matches!(self.change, Change::Punch | Change::Zero | Change::Truncate);
        let piece = &mut self.piece[..len];
        fill(round, at as u64, piece);
        if takes_away && round.is_multiple_of(2) {
            self.file.write_all_at(piece, at as u64)?;
            model[at..at + len].copy_from_slice(piece);
            return Ok(());
        }
        let (offset, bytes) = (at as u64, len as u64);
        match (self.change, &mut self.means) {
            (Change::Punch, _) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.file, flags, offset, bytes)?;
                piece.fill(0);
            }
            (Change::Zero, _) => {
                rustix::fs::fallocate(&self.file, FallocateFlags::ZERO_RANGE, offset, bytes)?;
                piece.fill(0);
            }
            (Change::Truncate, _) => {
                let keep = KEPT_BYTES - rng.below(page) as usize + at / 8;
                self.file.set_len(keep as u64)?;
                self.file.set_len(FILE_BYTES as u64)?;
                model[keep..].fill(0);
                return Ok(());
            }
            (_, Means::Plain) => self.file.write_all_at(piece, offset)?,
            (_, Means::Map(map)) => map[at..at + len].copy_from_slice(piece),
            (_, Means::Copy(from)) => {
                from.write_all_at(piece, 0)?;
                copy(from, &self.file, offset, len)?;
            }
            (_, Means::Queue(queue)) => queue.write(&self.file, piece, offset)?,
        }
        model[at..at + len].copy_from_slice(piece);
        Ok(())
    }
}

fn copy(from: &File, to: &File, mut offset: u64, mut len: usize) -> Result<(), Refused> {
    let mut source = 0;
    while len > 0 {
        let (mine, theirs) = (Some(&mut source), Some(&mut offset));
        let done = rustix::fs::copy_file_range(from, mine, to, theirs, len)?;
        if done == 0 {
            return Err(Refused::Failed("nothing was copied".to_owned()));
        }
        len -= done;
    }
    Ok(())
}
