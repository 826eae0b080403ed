//! `RearrangeTo()` of the paper (ch. IV, 4.3): the log as a normal file, written from start to end.
//!
//! ```text
//!   repeat:  read records in the order of the file, compare checksums, write the destination
//!            every step:  sync the destination -> note in the log how far -> sync the log
//!                         -> give back the parts of the log that nothing needs any more
//! ```
//! A note is trusted only if the destination has the noted bytes: their checksum is in the note. So
//! a call that was stopped or cut goes on where the last note is, and with another destination it
//! starts again, or is refused once parts of the log have been given back.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::format::{Kind, RECORD_BYTES_MAX};
use crate::map::Piece;
use crate::tail::Tail;
use crate::{Error, Log, Result, Storage};

/// Records kept in memory because several extents may show parts of them.
const RECORDS_KEPT: usize = 8;
/// Extents looked up at once.
const PIECES_MAX: usize = 1024;
/// Written to the destination at once.
const BATCH_BYTES: usize = 1 << 20;
/// Shorter parts are written, even if they could be shared.
const SHARE_BYTES_MIN: u64 = 64 << 10;
/// A step is at least this long, and at least this part of the file.
const STEP_BYTES_MIN: u64 = 64 << 20;
const STEPS_MAX: u64 = 64;
/// Damaged parts that a report names at most.
const DAMAGE_MAX: usize = 1000;

/// Options of a rearranging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rearrange {
    /// Give the log's space back as the destination grows: at most one step of the file, 64 MiB or
    /// a 64th, is there twice. The log can then only be read as far as it is left.
    pub release: bool,
    /// Bytes of a step; 0: as said above.
    pub step_bytes: u64,
}

/// Progress of a call, for its callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the file that are done.
    pub done_bytes: u64,
    /// Length of the file.
    pub total_bytes: u64,
}

/// Results of a rearranging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rearranged {
    /// Length of the file, bytes.
    pub size_bytes: u64,
    /// Byte of the file at which it started: 0, or the end of an earlier call's work.
    pub resumed_at_bytes: u64,
    /// Bytes written to the destination; gaps are not written.
    pub written_bytes: u64,
    /// Of those, bytes that the system copied or shared.
    pub shared_bytes: u64,
    /// Bytes of the log that were given back.
    pub released_bytes: u64,
}

/// Results of [`Log::check`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Bytes of the file that were read and agree with their checksums.
    pub good_bytes: u64,
    /// Ranges of the file, offset and length in bytes, that do not; at most a thousand.
    pub damaged: Vec<(u64, u64)>,
}

/// Verified records, newest last.
struct Records<'a> {
    log: &'a Log,
    kept: VecDeque<(u64, Arc<Vec<u8>>)>,
}

impl<'a> Records<'a> {
    fn new(log: &'a Log) -> Records<'a> {
        Records { log, kept: VecDeque::new() }
    }

    /// The record of a piece, read once while others of its parts follow soon.
    fn get(&mut self, piece: &Piece) -> Result<Arc<Vec<u8>>> {
        let whole = piece.skip == 0 && piece.len == piece.unit;
        if let Some((_, record)) = self.kept.iter().find(|(at, _)| *at == piece.data_at) {
            if record.len() >= (piece.skip + piece.len) as usize {
                return Ok(Arc::clone(record));
            }
        }
        let record = Arc::new(self.log.record(piece)?);
        if !whole {
            if self.kept.len() == RECORDS_KEPT {
                self.kept.pop_front();
            }
            self.kept.push_back((piece.data_at, Arc::clone(&record)));
        }
        Ok(record)
    }
}

impl Log {
    /// Pieces of the file from `from` on, as many as are handled at once, up to `to`.
    fn some_pieces(&self, from: u64, to: u64) -> Vec<Piece> {
        self.view.read().map.pieces(from, to).take(PIECES_MAX).collect()
    }

    /// Reads everything the file consists of and compares it with its checksums.
    ///
    /// # Errors
    /// `Io`; `Stopped` if the callback says so. Damage is no error but in the answer.
    pub fn check(&self, progress: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Checked> {
        let mut checked = Checked::default();
        let mut records = Records::new(self);
        let total_bytes = self.len();
        let mut from = self.view.read().released;
        loop {
            let pieces = self.some_pieces(from, total_bytes);
            let Some(last) = pieces.last() else { return Ok(checked) };
            from = last.logical + u64::from(last.len);
            for piece in &pieces {
                match records.get(piece) {
                    Ok(_) => checked.good_bytes += u64::from(piece.len),
                    Err(Error::Corrupt { .. }) => damage(&mut checked.damaged, piece),
                    Err(error) => return Err(error),
                }
            }
            if progress(Progress { done_bytes: from, total_bytes }).is_break() {
                return Err(Error::Stopped);
            }
        }
    }

    /// Writes the file to `to`, from its start to its end, and makes it durable. Every record is
    /// compared with its checksum before. Progress is told after each mebibyte or so. A call that
    /// was stopped, failed or was cut off by a crash goes on where it was if it is made again with
    /// the same destination. Nobody may write the log meanwhile.
    ///
    /// # Errors
    /// `Corrupt` at the first damaged record, `Full`, `Io`, `Stopped`; `Usage` if the log has been
    /// partly released to another file, or if it is to be released and is read-only.
    pub fn rearrange_to(
        &self,
        to: &dyn Storage,
        options: Rearrange,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Rearranged> {
        if options.release && !self.writable {
            return Err(Error::Usage("a log opened for reading keeps its space; open it to write"));
        }
        let size = self.len();
        let (start, crc) = self.resume_point(to)?;
        let step = match options.step_bytes {
            0 => STEP_BYTES_MIN.max(size / STEPS_MAX),
            bytes => bytes,
        };
        let mut run = Run {
            log: self,
            to,
            options,
            records: Records::new(self),
            at: start,
            crc,
            batch: Vec::new(),
            batch_at: start,
            done: Rearranged { size_bytes: size, resumed_at_bytes: start, ..Rearranged::default() },
        };
        to.set_len(start).map_err(Error::io("preparing the destination"))?;
        if options.release {
            self.seal()?;
        }
        let mut next = start.saturating_add(step);
        while let Some(until) = run.some(size.min(next))? {
            if until >= next {
                run.note()?;
                next = until.saturating_add(step);
            }
            if progress(Progress { done_bytes: until, total_bytes: size }).is_break() {
                run.note()?;
                return Err(Error::Stopped);
            }
        }
        run.flush()?;
        run.at = size;
        run.note()?;
        Ok(run.done)
    }

    /// Gives every record an index and makes all of it durable. A mark before the first note says
    /// so: after a crash no record is looked at whose tag or data has been released.
    fn seal(&self) -> Result<()> {
        let mut tail = self.tail.lock();
        if tail.entries.iter().any(|entry| matches!(entry.kind, Kind::Data | Kind::SetLen)) {
            tail.finish_segment(&*self.storage)?;
        }
        tail.sync(&*self.storage)
    }

    /// Returns the byte at which to continue, and the checksum of the bytes before it.
    fn resume_point(&self, to: &dyn Storage) -> Result<(u64, u32)> {
        let (moved, released) = {
            let view = self.view.read();
            (view.moved, view.released)
        };
        if let Some((until, crc)) = moved {
            if until > 0 && self.checksum(to, until)? == Some(crc) {
                return Ok((until, crc));
            }
        }
        if released > 0 {
            return Err(Error::Usage(
                "parts of the log are only in the file that the rearranging writes, and this is \
                 another file or it was changed; give the same file again",
            ));
        }
        Ok((0, 0))
    }

    /// Checksum of what the file has below `until`, gaps left out, as `to` has it; nothing if that
    /// is shorter.
    fn checksum(&self, to: &dyn Storage, until: u64) -> Result<Option<u32>> {
        let failed = Error::io("reading the destination");
        if to.len().map_err(&failed)? < until {
            return Ok(None);
        }
        let mut bytes = vec![0; RECORD_BYTES_MAX as usize];
        let (mut from, mut crc) = (0, 0);
        loop {
            let pieces = self.some_pieces(from, until);
            let Some(last) = pieces.last() else { return Ok(Some(crc)) };
            from = last.logical + u64::from(last.len);
            for piece in &pieces {
                let part = &mut bytes[..piece.len as usize];
                to.read_at(part, piece.logical).map_err(&failed)?;
                crc = syncline_base::crc32c_append(crc, part);
            }
        }
    }
}

/// Adds a damaged piece, to the range before if it continues that.
fn damage(damaged: &mut Vec<(u64, u64)>, piece: &Piece) {
    let room = damaged.len() < DAMAGE_MAX;
    match damaged.last_mut() {
        Some((from, len)) if *from + *len == piece.logical => *len += u64::from(piece.len),
        _ if room => damaged.push((piece.logical, u64::from(piece.len))),
        _ => {}
    }
}

/// One rearranging.
struct Run<'a> {
    log: &'a Log,
    to: &'a dyn Storage,
    options: Rearrange,
    records: Records<'a>,
    /// Bytes of the file that are written or in the batch.
    at: u64,
    /// Of those, gaps left out.
    crc: u32,
    batch: Vec<u8>,
    batch_at: u64,
    done: Rearranged,
}

impl Run<'_> {
    /// Writes what comes next, up to `to`; how far that is, nothing if there is no more.
    fn some(&mut self, to: u64) -> Result<Option<u64>> {
        if self.at >= self.done.size_bytes {
            return Ok(None);
        }
        let before = self.done.written_bytes;
        loop {
            let pieces = self.log.some_pieces(self.at, to);
            for piece in &pieces {
                self.piece(piece)?;
                self.at = piece.logical + u64::from(piece.len);
                if self.done.written_bytes > before {
                    return Ok(Some(self.at));
                }
            }
            if pieces.len() < PIECES_MAX {
                self.at = to;
                return Ok(Some(to));
            }
        }
    }

    fn piece(&mut self, piece: &Piece) -> Result<()> {
        let record = self.records.get(piece)?;
        let data = &record[piece.skip as usize..][..piece.len as usize];
        self.crc = syncline_base::crc32c_append(self.crc, data);
        if self.batch_at + self.batch.len() as u64 != piece.logical {
            self.flush()?;
        }
        let shared = self.share(piece)?;
        let rest = &data[shared..];
        if self.batch.is_empty() {
            self.batch_at = piece.logical + shared as u64;
        }
        self.batch.extend_from_slice(rest);
        if self.batch.len() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Lets the system copy a piece that stands at pages on both sides; how many bytes it did.
    fn share(&mut self, piece: &Piece) -> Result<usize> {
        let page = u64::from(self.log.header.page_bytes);
        let len = u64::from(piece.len) / page * page;
        let aligned = piece.position() % page == 0 && piece.logical % page == 0;
        if !aligned || len < SHARE_BYTES_MIN {
            return Ok(0);
        }
        self.flush()?;
        let mut done = 0;
        while done < len {
            let (from, to) = (piece.position() + done, piece.logical + done);
            let copied = self
                .log
                .storage
                .copy_range(from, self.to, to, len - done)
                .map_err(Error::io("writing the destination"))?;
            if copied == 0 {
                break;
            }
            done += copied.min(len - done);
        }
        self.done.written_bytes += done;
        self.done.shared_bytes += done;
        Ok(usize::try_from(done).unwrap_or(0))
    }

    /// Writes the batch.
    fn flush(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.to
                .write_at(&[IoSlice::new(&self.batch)], self.batch_at)
                .map_err(Error::io("writing the destination"))?;
            self.done.written_bytes += self.batch.len() as u64;
            self.batch.clear();
        }
        Ok(())
    }

    /// Makes the destination durable, notes that in the log, and releases what is not needed.
    fn note(&mut self) -> Result<()> {
        self.flush()?;
        let failed = Error::io("extending the destination");
        if self.to.len().map_err(&failed)? < self.at {
            self.to.set_len(self.at).map_err(&failed)?;
        }
        self.to.sync_data().map_err(Error::io("syncing the destination"))?;
        if !self.log.writable {
            return Ok(());
        }
        let kind = if self.options.release { Kind::Released } else { Kind::Moved };
        let mut tail = self.log.tail.lock();
        tail.note(&*self.log.storage, kind, self.at, self.crc)?;
        {
            let mut view = self.log.view.write();
            view.moved = Some((self.at, self.crc));
            if self.options.release {
                view.released = self.at;
            }
        }
        tail.sync(&*self.log.storage)?;
        if self.options.release {
            self.release(&tail)?;
        }
        Ok(())
    }

    /// Gives back whole pages of the log that neither its structure nor the rest of the file needs.
    fn release(&mut self, tail: &Tail) -> Result<()> {
        let page = u64::from(self.log.header.page_bytes);
        let mut needed = Log::kept_parts(tail);
        needed.extend(self.log.view.read().map.records_from(self.at));
        needed.sort_unstable();
        let mut free = 0_u64;
        let mut released = 0;
        for (start, end) in needed {
            let (from, to) = (free.next_multiple_of(page), start / page * page);
            if to > from {
                let done = self.log.storage.punch(from, to - from);
                if !done.map_err(Error::io("releasing the log"))? {
                    break;
                }
                released += to - from;
            }
            free = free.max(end);
        }
        // Each call counts all that is free by now.
        self.done.released_bytes = released;
        Ok(())
    }
}
