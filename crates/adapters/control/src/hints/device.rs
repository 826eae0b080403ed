//! The device: requests, the state of the log, and the files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::slice;

use parking_lot::Mutex;
use serde::Serialize;
use syncline_buffer::Buffer;
use syncline_device::{BlockDevice, DeviceError, Durability, Geometry, Kind, Op, Origin, Request};
use syncline_ondisk::Timestamp;
use syncline_ondisk::jbd2::{BlockType, HEADER_BYTES, Header};

use crate::hints::mounted::{File, Mounted, SUPERBLOCK, journal_superblock};
use crate::hints::places::{Places, without};

/// Files at once, at most.
const FILES_MAX: usize = 4096;

/// Why a file cannot be relaxed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum HintError {
    /// The file system cannot be followed.
    #[error("no file of this file system can be relaxed: {0}; use ext4 with a journal, mounted")]
    FileSystem(String),
    /// Another file system is mounted from another device.
    #[error("the file is not on the device that is served here; give the directory of its buffer")]
    Elsewhere,
    /// This file cannot be followed.
    #[error("inode {ino} cannot be relaxed: {why}; it stays strict")]
    File {
        /// Its number.
        ino: u32,
        /// Why.
        why: String,
    },
    /// The device below failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Relaxed files now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HintedStatus {
    /// Files whose writes are deferrable.
    pub relaxed_files: u64,
    /// Bytes of the device in them.
    pub relaxed_file_bytes: u64,
    /// Why all files became strict the last time, if they did.
    pub relaxed_ended: Option<String>,
}

/// State of the log, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It has transactions that were not seen.
    Unknown,
    /// It is empty: the device has all that was committed.
    Empty,
    /// The next transaction begins here.
    Follows { head: u32, sequence: u32 },
}

/// Files of one mount.
struct Followed {
    mounted: Mounted,
    phase: Phase,
    files: BTreeMap<u32, File>,
    places: Places,
    /// Inode number and time of creation of files that wait for an empty log.
    wanted: BTreeMap<u32, Timestamp>,
    /// Those that were not taken then.
    refused: BTreeMap<u32, String>,
}

#[derive(Default)]
struct State {
    followed: Option<Followed>,
    ended: Option<String>,
}

/// A buffer that knows files. See the crate's description.
pub struct Hinted {
    buffer: Buffer,
    state: Mutex<State>,
}

impl Hinted {
    /// Over a buffer, without any relaxed file.
    pub fn new(buffer: Buffer) -> Hinted {
        Hinted { buffer, state: Mutex::default() }
    }

    /// The buffer.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Relaxes a file of the mounted ext4, by its inode number and time of creation; `fsid` is the
    /// `f_fsid` of its mount. The caller has it open. False: the log has to be empty first
    /// (`EXT4_IOC_CHECKPOINT`); ask again then, the file is known.
    ///
    /// # Errors
    /// Every class of [`HintError`].
    pub fn relax(&self, fsid: u64, ino: u32, born: Timestamp) -> Result<bool, HintError> {
        let mut state = self.state.lock();
        let followed = match &mut state.followed {
            Some(followed) => followed,
            none => {
                let (mounted, empty) =
                    Mounted::open(&self.buffer).map_err(HintError::FileSystem)?;
                none.insert(Followed::new(mounted, empty))
            }
        };
        if followed.mounted.fsid() != fsid {
            return Err(HintError::Elsewhere);
        }
        if let Some(why) = followed.refused.remove(&ino) {
            return Err(HintError::File { ino, why });
        }
        if followed.files.contains_key(&ino) {
            return Ok(true);
        }
        if followed.files.len() + followed.wanted.len() >= FILES_MAX {
            let why = format!("{FILES_MAX} files are relaxed already");
            return Err(HintError::File { ino, why });
        }
        followed.wanted.insert(ino, born);
        if followed.phase != Phase::Empty {
            return Ok(false);
        }
        followed.take_wanted(&self.buffer);
        match followed.refused.remove(&ino) {
            Some(why) => Err(HintError::File { ino, why }),
            None => Ok(true),
        }
    }

    /// Makes a file strict: what waits of it is durable when this returns.
    ///
    /// # Errors
    /// [`HintError::Elsewhere`], or the error of the device below; the buffer has latched then.
    pub fn harden(&self, fsid: u64, ino: u32) -> Result<(), HintError> {
        let mut state = self.state.lock();
        if let Some(followed) = &mut state.followed {
            if followed.mounted.fsid() != fsid {
                return Err(HintError::Elsewhere);
            }
            followed.wanted.remove(&ino);
            followed.drop_file(&self.buffer, ino);
        }
        self.buffer.flush(Origin::new(Kind::Other, true))?;
        Ok(())
    }

    /// Files and places now.
    pub fn status(&self) -> HintedStatus {
        let state = self.state.lock();
        let relaxed_ended = state.ended.clone();
        let Some(followed) = &state.followed else {
            return HintedStatus { relaxed_ended, ..HintedStatus::default() };
        };
        HintedStatus {
            relaxed_files: followed.files.len() as u64,
            relaxed_file_bytes: followed.places.bytes(),
            relaxed_ended,
        }
    }
}

impl BlockDevice for Hinted {
    fn geometry(&self) -> Geometry {
        self.buffer.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        if batch.iter().all(|request| matches!(request.op, Op::Read { .. } | Op::Flush)) {
            return self.buffer.submit(batch);
        }
        // Until the buffer has them: no commit comes in between.
        let mut state = self.state.lock();
        if state.followed.is_none() {
            return self.buffer.submit(batch);
        }
        for request in batch {
            self.buffer.geometry().check(request)?;
            state.look(&self.buffer, request);
            self.buffer.submit(slice::from_mut(request))?;
        }
        Ok(())
    }
}

impl State {
    /// Takes note of a request, and marks it.
    fn look(&mut self, buffer: &Buffer, request: &mut Request<'_>) {
        let Some(followed) = &mut self.followed else { return };
        match followed.look(buffer, request) {
            Ok(relaxed) if relaxed => request.origin.durability = Durability::Relaxed,
            Ok(_) => {}
            Err(why) => {
                for ino in followed.files.keys().copied().collect::<Vec<_>>() {
                    followed.drop_file(buffer, ino);
                }
                self.followed = None;
                self.ended = Some(why);
            }
        }
    }
}

/// Bytes of a request in `range` of the device, as far as it has them.
fn part(from: &[&[u8]], offset: u64, range: &Range<u64>) -> Vec<u8> {
    let mut found = Vec::new();
    let mut at = offset;
    for piece in from {
        let end = at + piece.len() as u64;
        let (first, last) = (range.start.clamp(at, end), range.end.clamp(at, end));
        // Both lie within the piece.
        found.extend_from_slice(&piece[(first - at) as usize..(last - at) as usize]);
        at = end;
    }
    found
}

impl Followed {
    fn new(mounted: Mounted, empty: bool) -> Followed {
        Followed {
            mounted,
            phase: if empty { Phase::Empty } else { Phase::Unknown },
            files: BTreeMap::new(),
            places: Places::default(),
            wanted: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Returns true if the request is relaxed. An error ends the following of files.
    fn look(&mut self, buffer: &Buffer, request: &Request<'_>) -> Result<bool, String> {
        let bytes = request.offset_bytes..request.offset_bytes + request.len_bytes();
        let on_superblock = bytes.start < SUPERBLOCK.end && bytes.end > SUPERBLOCK.start;
        let log = self.mounted.log.touched(&bytes);
        let from = match &request.op {
            Op::Write { from, .. } => from,
            Op::Discard { .. } if on_superblock || !log.is_empty() => {
                return Err("the file system was discarded".to_owned());
            }
            _ => return Ok(false),
        };
        if on_superblock && !self.mounted.is_same(&part(from, bytes.start, &SUPERBLOCK)) {
            return Err("the file system was unmounted, frozen or mounted anew".to_owned());
        }
        for &(block, at) in &log {
            let end = at + self.mounted.geometry.block_size as u64;
            if at < bytes.start || end > bytes.end {
                return Err("a part of a block of the journal was written".to_owned());
            }
            let raw = part(from, bytes.start, &(at..end));
            self.logged(buffer, block, &raw, log.len() == 1)?;
        }
        Ok(self.places.covers(&bytes))
    }

    /// A block of the log is about to be written, alone or beside others.
    fn logged(
        &mut self,
        buffer: &Buffer,
        block: u32,
        raw: &[u8],
        alone: bool,
    ) -> Result<(), String> {
        if block == 0 {
            return self.log_superblock(buffer, raw);
        }
        let header = raw.get(..HEADER_BYTES).and_then(Header::decode);
        match header.filter(|header| header.block_type == BlockType::Commit) {
            None => Ok(()),
            Some(header) => match self.phase {
                Phase::Unknown => Ok(()),
                Phase::Follows { head, sequence } if alone && header.sequence == sequence => {
                    self.committed(buffer, head, sequence, block)
                }
                _ => Err("the journal continues at an unexpected block".to_owned()),
            },
        }
    }

    fn log_superblock(&mut self, buffer: &Buffer, raw: &[u8]) -> Result<(), String> {
        let superblock = journal_superblock(raw)?;
        if !self.mounted.log.is_same(&superblock) {
            return Err("the journal was changed".to_owned());
        }
        let (head, sequence) = (superblock.s_start, superblock.s_sequence);
        match self.phase {
            _ if head == 0 => {
                self.phase = Phase::Empty;
                self.take_wanted(buffer);
            }
            Phase::Empty => self.phase = Phase::Follows { head, sequence },
            Phase::Unknown | Phase::Follows { .. } => {}
        }
        Ok(())
    }

    /// A transaction is complete but for its commit block, which is at `commit`.
    fn committed(
        &mut self,
        buffer: &Buffer,
        head: u32,
        sequence: u32,
        commit: u32,
    ) -> Result<(), String> {
        let size = self.mounted.geometry.block_size;
        let read = |at| {
            let mut raw = vec![0; size];
            let done = buffer.read(at, &mut raw, Origin::new(Kind::Journal, true));
            done.map(|()| raw).map_err(|err| err.to_string())
        };
        let copies = self.mounted.log.copies(head, sequence, commit, &read)?;
        let mut changed = Vec::new();
        for (ino, file) in &self.files {
            match self.mounted.after(buffer, file, &copies) {
                Ok(None) => {}
                Ok(Some(now)) => changed.push((*ino, Some(now))),
                Err(_) => changed.push((*ino, None)),
            }
        }
        // Blocks may go from one file to another.
        let mut gone = Vec::new();
        for (ino, now) in &changed {
            let Some(file) = self.files.get(ino) else { continue };
            let left = now.as_ref().map_or(&[][..], |now| &now.written);
            gone.extend(without(&file.written, left));
            file.written.iter().for_each(|range| self.places.remove(range));
        }
        for range in gone {
            buffer.harden(range);
        }
        for (ino, now) in changed {
            match now {
                Some(file) => self.add(ino, file)?,
                None => drop(self.files.remove(&ino)),
            }
        }
        let next = self.mounted.log.next(commit);
        self.phase = Phase::Follows { head: next, sequence: sequence.wrapping_add(1) };
        Ok(())
    }

    fn add(&mut self, ino: u32, file: File) -> Result<(), String> {
        let free = file.written.iter().all(|range| self.places.insert(range));
        self.files.insert(ino, file);
        if free { Ok(()) } else { Err("two files have the same block; run e2fsck".to_owned()) }
    }

    /// The log is empty: takes the files that waited for that.
    fn take_wanted(&mut self, buffer: &Buffer) {
        for (ino, born) in std::mem::take(&mut self.wanted) {
            let taken = self.mounted.file(buffer, ino, born);
            if let Err(why) = taken.and_then(|file| self.add(ino, file)) {
                self.drop_file(buffer, ino);
                self.refused.insert(ino, why);
            }
        }
    }

    /// A file is strict from now on, with what waits of it.
    fn drop_file(&mut self, buffer: &Buffer, ino: u32) {
        for range in self.files.remove(&ino).into_iter().flat_map(|file| file.written) {
            self.places.remove(&range);
            buffer.harden(range);
        }
    }
}
