//! A log and the calls on it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::format::{Entry, Header, Kind, SIZE_BYTES_MAX};
use crate::map::{Map, Piece};
use crate::recover::{self, Opened, Recovered};
use crate::sums::Sum;
use crate::tail::Tail;
use crate::{Error, FileStorage, Result, Storage};

/// Pieces that a read looks up at once, so that the map is not held while the storage works.
const PIECES_MAX: usize = 64;

/// Options for making and writing a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a segment, a power of two. Each ends with an index of its records, so opening reads
    /// one block a segment. Of an existing log its own value holds.
    pub segment_bytes: u32,
    /// Syncs fill up a page of this size, so that no later write touches it again; a power of two.
    /// Of an existing log its own value holds. For cards that map units of 16 KiB choose 16 KiB: a
    /// sync then costs up to 16 KiB more (`docs/measuring/flashlite.md`).
    pub page_bytes: u32,
    /// Writes at least this long start at a page in the log whatever their length is, so that
    /// rearranging can share their blocks instead of copying them. 0: none. Shorter ones do if
    /// their length is one of pages and little is wasted.
    pub align_from_bytes: u32,
    /// A sync by itself when a segment is full and this much is not durable, bytes; it bounds what
    /// opening reads after a crash. 0: never.
    pub sync_every_bytes: u64,
    /// Tags of so many records of more than 512 bytes are written together, which saves a call
    /// each; until then they are in memory alone. A process that is killed loses those records:
    /// the last ones, fewer than this, none of them synced. [`Log::flush`], a sync, the end of the
    /// log's use and shorter records write them sooner. 1: each write writes its own.
    pub tags_at_once: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 16 << 20,
            page_bytes: 4 << 10,
            align_from_bytes: 256 << 10,
            sync_every_bytes: 64 << 20,
            tags_at_once: 1,
        }
    }
}

/// State of the file that the records describe.
#[derive(Debug)]
pub(crate) struct View {
    pub map: Map,
    pub size: u64,
    /// Progress of a rearranging: bytes written, and their checksum.
    pub moved: Option<(u64, u32)>,
    /// Bytes of the file that may no longer be in the log.
    pub released: u64,
}

impl View {
    /// Of an empty log.
    pub(crate) fn new(header: Header) -> View {
        View { map: Map::new(header.gap_bytes()), size: 0, moved: None, released: 0 }
    }

    /// Takes in a record whose data starts at `data_at`.
    pub(crate) fn apply(&mut self, entry: &Entry, data_at: u64) {
        match entry.kind {
            Kind::Data => {
                self.moved = None;
                self.map.insert(entry.logical, data_at, entry.length);
                self.size = self.size.max(entry.logical + u64::from(entry.length));
            }
            Kind::SetLen => {
                self.moved = None;
                self.map.remove(entry.logical, self.size);
                self.size = entry.logical;
            }
            Kind::Moved => self.moved = Some((entry.logical, entry.data_crc)),
            Kind::Released => {
                self.moved = Some((entry.logical, entry.data_crc));
                self.released = self.released.max(entry.logical);
            }
            Kind::Pad | Kind::Mark | Kind::Footer | Kind::Group | Kind::Next => {}
        }
    }
}

/// Figures of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Length of the file, bytes.
    pub size_bytes: u64,
    /// Length of the log, bytes; released parts count.
    pub log_bytes: u64,
    /// Data in its records, bytes; the rest of the log is tags, indexes and padding.
    pub data_bytes: u64,
    /// Records that change the file.
    pub records: u64,
    /// Extents of the map in memory.
    pub extents: u64,
    /// Bytes of the log that are known to be durable.
    pub durable_bytes: u64,
    /// Bytes of the file that a rearranging has written.
    pub moved_bytes: u64,
    /// Bytes of the file that may be only in the rearranged file.
    pub released_bytes: u64,
    /// As in [`Options`].
    pub segment_bytes: u32,
    /// As in [`Options`].
    pub page_bytes: u32,
    /// Of the format: 2, or 1 in a log that an earlier release has made.
    pub version: u32,
}

/// A file of any size that is written in any order, kept as a log.
///
/// All calls may be made from several threads. A read sees each write whole or not at all per
/// record; a write that has returned is seen by every later read. What was written is durable after
/// [`Log::sync_data`]; it survives the end of the process without it, unless
/// [`Options::tags_at_once`] has tags wait.
///
/// ```
/// use std::sync::Arc;
/// use syncline_flashlite::{Log, MemoryStorage, Options};
///
/// let log = Log::create(Arc::new(MemoryStorage::default()), Options::default())?;
/// log.write_at(b"second", 6)?;
/// log.write_at(b"first ", 0)?;
/// let mut text = [0; 12];
/// assert_eq!(log.read_at(&mut text, 0)?, 12);
/// assert_eq!(&text, b"first second");
/// # Ok::<(), syncline_flashlite::Error>(())
/// ```
pub struct Log {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) view: RwLock<View>,
    /// Taken before `view` where both are.
    pub(crate) tail: Mutex<Tail>,
    pub(crate) header: Header,
    pub(crate) writable: bool,
    verified: bool,
    sync_every_bytes: u64,
    opened: Opened,
    /// Of segments that were compared with their checksums.
    pub(crate) sums: Mutex<BTreeMap<u64, Arc<[Sum]>>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("info", &self.info()).finish_non_exhaustive()
    }
}

impl Log {
    /// Makes an empty log; what was in the storage is lost. It is durable on return.
    ///
    /// # Errors
    /// `Usage` for sizes that cannot be, `Full`, `Io`.
    pub fn create(storage: Arc<dyn Storage>, options: Options) -> Result<Log> {
        let header = Header::new(options.segment_bytes, options.page_bytes)?;
        let failed = Error::io("making the log");
        storage.set_len(0).map_err(&failed)?;
        storage.write_at(&[std::io::IoSlice::new(&header.encode())], 0).map_err(&failed)?;
        storage.sync_data().map_err(&failed)?;
        let tail = Tail::new(header, options.align_from_bytes);
        let view = View::new(header);
        let (opened, repairs, sums) = <(Opened, Vec<(u64, Vec<u8>)>, BTreeMap<_, _>)>::default();
        let new = Recovered { view, tail, opened, repairs, sums };
        Ok(Log::with(storage, new, Some(options)))
    }

    /// Opens a log for reading and writing. What a crash tore at its end is cut off, durably,
    /// before anything else is done; [`Log::opened`] says what that was.
    ///
    /// # Errors
    /// `NotALog`, `Corrupt`, `Unsupported`, `Io`.
    pub fn open(storage: Arc<dyn Storage>, options: Options) -> Result<Log> {
        let failed = Error::io("opening the log");
        let len = storage.len().map_err(&failed)?;
        let header = recover::header(&*storage, len)?;
        let mut found = recover::recover(&*storage, header, len, options.align_from_bytes)?;
        for (at, index) in &found.repairs {
            storage.write_at(&[std::io::IoSlice::new(index)], *at).map_err(&failed)?;
        }
        let dropped = found.opened.dropped.is_some();
        if dropped {
            storage.set_len(found.tail.end).map_err(&failed)?;
            if found.tail.group.is_some() {
                // Tags behind the end of a head are no longer looked at.
                found.tail.end_group(&*storage)?;
            }
        }
        if dropped || !found.repairs.is_empty() {
            // Durable before the next write: else a crash could join new records with old ones.
            storage.sync_data().map_err(&failed)?;
        }
        Ok(Log::with(storage, found, Some(options)))
    }

    /// Opens a log for reading; nothing is written, also if its end is torn.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open_read_only(storage: Arc<dyn Storage>) -> Result<Log> {
        let len = storage.len().map_err(Error::io("opening the log"))?;
        let header = recover::header(&*storage, len)?;
        let found = recover::recover(&*storage, header, len, 0)?;
        Ok(Log::with(storage, found, None))
    }

    /// [`Log::create`] in a new file; if that fails there is none.
    ///
    /// # Errors
    /// As there, and `Io` if there is a file of this name.
    pub fn create_file(path: &Path, options: Options) -> Result<Log> {
        Header::new(options.segment_bytes, options.page_bytes)?;
        let storage = FileStorage::create_new(path).map_err(Error::io("making the log"))?;
        Log::create(Arc::new(storage), options).inspect_err(|_| FileStorage::remove(path))
    }

    /// [`Log::open`] of a file.
    ///
    /// # Errors
    /// As there.
    pub fn open_file(path: &Path, options: Options) -> Result<Log> {
        let storage = FileStorage::open(path).map_err(Error::io("opening the log"))?;
        Log::open(Arc::new(storage), options)
    }

    /// [`Log::open_read_only`] of a file.
    ///
    /// # Errors
    /// As there.
    pub fn open_file_read_only(path: &Path) -> Result<Log> {
        let storage = FileStorage::open_read_only(path).map_err(Error::io("opening the log"))?;
        Log::open_read_only(Arc::new(storage))
    }

    fn with(storage: Arc<dyn Storage>, found: Recovered, options: Option<Options>) -> Log {
        let Recovered { view, mut tail, opened, sums, .. } = found;
        tail.tags_at_once = options.map_or(1, |options| options.tags_at_once);
        Log {
            sums: Mutex::new(sums),
            storage,
            view: RwLock::new(view),
            header: tail.header,
            tail: Mutex::new(tail),
            writable: options.is_some(),
            verified: false,
            sync_every_bytes: options.map_or(0, |options| options.sync_every_bytes),
            opened,
        }
    }

    /// From now on reads compare what they return with its checksum: a damaged record is an error
    /// instead of its bytes. Each read then reads whole records, of which it may need a part.
    #[must_use]
    pub fn verified(mut self) -> Log {
        self.verified = true;
        self
    }

    /// Returns the results of the opening.
    #[must_use]
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Length of the file, bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.view.read().size
    }

    /// True if the file has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Figures of the log.
    #[must_use]
    pub fn info(&self) -> Info {
        let tail = self.tail.lock();
        let view = self.view.read();
        Info {
            size_bytes: view.size,
            log_bytes: tail.end,
            data_bytes: tail.data_bytes,
            records: tail.sequence,
            extents: view.map.extents() as u64,
            durable_bytes: tail.durable,
            moved_bytes: view.moved.map_or(0, |(until, _)| until),
            released_bytes: view.released,
            segment_bytes: self.header.segment_bytes,
            page_bytes: self.header.page_bytes,
            version: self.header.version,
        }
    }

    /// Reads from byte `offset` of the file; how many bytes there were, fewer than asked for only
    /// at the end. Bytes never written are zeros. Data is compared with its checksum only where
    /// [`Log::verified`] asked for it; [`Log::check`] and [`Log::rearrange_to`] always do.
    ///
    /// # Errors
    /// `Io`, `Moved`; `Corrupt` if it is compared.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        let mut pieces: Vec<Piece> = Vec::new();
        loop {
            let from = offset.saturating_add(done as u64);
            let (until, last) = {
                let view = self.view.read();
                let wanted = offset.saturating_add(into.len() as u64).min(view.size);
                if from >= wanted {
                    return Ok(done);
                }
                if from < view.released {
                    return Err(Error::Moved { until: view.released });
                }
                if let Some(piece) = view.map.piece(from, wanted) {
                    drop(view);
                    // It is within what was asked for.
                    let part = &mut into[done..done + piece.len as usize];
                    self.read_piece(&piece, part)?;
                    return Ok(done + part.len());
                }
                pieces.clear();
                let mut found = view.map.pieces(from, wanted);
                pieces.extend(found.by_ref().take(PIECES_MAX));
                // Up to the next piece, so that what is between is zeros here.
                let next = found.next().map(|next| next.logical);
                (next.unwrap_or(wanted), next.is_none())
            };
            let part = &mut into[done..done + usize::try_from(until - from).unwrap_or(0)];
            self.read_pieces(&pieces, part, from)?;
            done += part.len();
            if last {
                return Ok(done);
            }
        }
    }

    fn read_pieces(&self, pieces: &[Piece], part: &mut [u8], from: u64) -> Result<()> {
        let mut zero_from = 0;
        for piece in pieces {
            // Both fit: the piece is within the part.
            let start = usize::try_from(piece.logical - from).unwrap_or(0);
            let end = start + piece.len as usize;
            part[zero_from..start].fill(0);
            self.read_piece(piece, &mut part[start..end])?;
            zero_from = end;
        }
        part[zero_from..].fill(0);
        Ok(())
    }

    fn read_piece(&self, piece: &Piece, into: &mut [u8]) -> Result<()> {
        if self.verified {
            let skip = piece.skip as usize;
            let record = self.record(piece)?;
            into.copy_from_slice(&record[skip..skip + piece.len as usize]);
            return Ok(());
        }
        self.storage.read_at(into, piece.position()).map_err(Error::io("reading the log"))
    }

    /// Writes all of `data` at byte `offset` of the file, which grows if need be.
    ///
    /// # Errors
    /// `Full` (the part before is written, the call can be made again), `Io`, `Latched`, and
    /// `Usage` for a log that is read-only or being released, or an offset beyond what a file can
    /// have.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= SIZE_BYTES_MAX);
        if end.is_none() {
            return Err(Error::Usage("no file is that long; choose a smaller offset"));
        }
        let mut tail = self.tail.lock();
        self.may_change()?;
        let (mut at, mut left) = (offset, data);
        while !left.is_empty() {
            let segment = tail.indexes.len();
            let (length, data_at) = tail.data(&*self.storage, at, left)?;
            {
                let mut view = self.view.write();
                view.moved = None;
                view.map.insert(at, data_at, length);
                at += u64::from(length);
                view.size = view.size.max(at);
            }
            left = &left[length as usize..];
            if tail.indexes.len() > segment {
                self.sync_now_and_then(&mut tail)?;
            }
        }
        Ok(())
    }

    fn sync_now_and_then(&self, tail: &mut Tail) -> Result<()> {
        if self.sync_every_bytes > 0 && tail.written_since_sync() >= self.sync_every_bytes {
            tail.sync(&*self.storage)?;
        }
        Ok(())
    }

    fn may_change(&self) -> Result<()> {
        if !self.writable {
            return Err(Error::Usage("the log was opened for reading; open it for writing"));
        }
        if self.view.read().released > 0 {
            return Err(Error::Usage(
                "the log is being moved into another file; finish the rearranging and write there",
            ));
        }
        Ok(())
    }

    /// Sets the length of the file, bytes; what is cut off reads as zeros when it grows again.
    ///
    /// # Errors
    /// As [`Log::write_at`].
    pub fn set_len(&self, size_bytes: u64) -> Result<()> {
        if size_bytes > SIZE_BYTES_MAX {
            return Err(Error::Usage("no file is that long; choose a smaller length"));
        }
        let mut tail = self.tail.lock();
        self.may_change()?;
        tail.note(&*self.storage, Kind::SetLen, size_bytes, 0)?;
        let mut view = self.view.write();
        let old = view.size;
        view.moved = None;
        view.map.remove(size_bytes, old);
        view.size = size_bytes;
        Ok(())
    }

    /// Makes every write and length that was set before durable. Other threads may write meanwhile.
    ///
    /// # Errors
    /// `Full`, `Io`, `Latched`. After `Io` no later call succeeds.
    pub fn sync_data(&self) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        let Some(end) = self.tail.lock().fill_page(&*self.storage)? else { return Ok(()) };
        let done = self.storage.sync_data();
        self.tail.lock().synced(end, done)
    }

    /// Syncs, and notes in the log that it is whole, so that the next opening reads no data.
    ///
    /// # Errors
    /// As [`Log::sync_data`].
    pub fn close(self) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        let mut tail = self.tail.lock();
        tail.sync(&*self.storage)?;
        tail.write_mark(&*self.storage)
    }

    /// First byte of the log after the last finished segment.
    pub(crate) fn open_segment_start(tail: &Tail) -> u64 {
        tail.header.segment_start(tail.header.segment(tail.position)).min(tail.position)
    }

    /// Returns the parts of the log that hold no records of finished segments: header, indexes, and
    /// the segment being filled.
    pub(crate) fn kept_parts(tail: &Tail) -> Vec<(u64, u64)> {
        let mut kept = vec![(0, u64::from(tail.header.page_bytes))];
        for (segment, index_at) in (0_u64..).zip(&tail.indexes) {
            let end = tail.header.segment_end(segment);
            let base = end - u64::from(tail.header.segment_bytes);
            kept.push((base + u64::from(*index_at), end));
        }
        kept.push((Log::open_segment_start(tail), u64::MAX));
        kept
    }
}
