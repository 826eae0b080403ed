//! The write buffer under a volume (informed-storage paper, 6.5 and 6.6.6): a log of its own, and
//! an image that says that it needs it.
//!
//! ```text
//!   attach   log opened or made ── superblock on the image marked with the log's id, flush
//!   Volume ── Buffer ─┬── Marked ── image          reads show the superblock without the mark
//!                     └── log
//!   detach   drained: all in its place, log empty ── mark off, flush: a plain ext4 again
//! ```
//!
//! Promises
//! - An image is marked from before the first write to the log until everything is in its place. A
//!   marked image is used with its log only: every other program, and a mount without the log,
//!   refuses it (`ondisk::write_log`).
//! - A log that holds data is used with its image only, in the state it was left in: a copy that
//!   lacks the mark, or has that of another log, is refused.
//! - The next attach recovers after a crash. Mark and removal are one sector each.
//!
//! Assumes that no other program writes image or log. Tested in `tests/it/relaxed.rs`, with power
//! cuts.

use std::sync::Arc;

use syncline_buffer::{Buffer, BufferError, BufferOptions, LogArea, LogId};
use syncline_device::{BlockDevice, Clock, DeviceError, Geometry, Kind, Op, Origin, Request};
use syncline_ondisk::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use syncline_ondisk::write_log::{set_write_log, write_log_of};

use crate::error::{FsError, Result};

const OWN: Origin = Origin::new(Kind::Metadata, true);
const END: u64 = SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64;

type Sb = [u8; SUPERBLOCK_BYTES];

/// An image with a write buffer over it: the device for [`crate::Volume::mount`].
pub struct Buffered {
    image: Arc<dyn BlockDevice>,
    buffer: Arc<Buffer>,
    recovered: bool,
}

impl Buffered {
    /// Puts a buffer with the log in `log` over `image`. An area without a log gets one, with
    /// `new_id`, which must be random; its first 8 KiB have to be zero. `clock` measures what the
    /// device takes, for [`Buffer::open_measured`].
    ///
    /// # Errors
    /// [`FsError::Invalid`] if log and image do not belong together, and what opening a log
    /// reports. The image was not changed then.
    pub fn attach(
        image: Arc<dyn BlockDevice>,
        log: LogArea,
        new_id: LogId,
        options: BufferOptions,
        clock: Option<Arc<dyn Clock>>,
    ) -> Result<Buffered> {
        let mark = write_log_of(&read_raw(&*image)?);
        let id = match (Buffer::log_id(&log), mark) {
            (Ok(id), None) => id,
            (Ok(id), Some(mark)) if id == mark => id,
            (Ok(_), Some(_)) => {
                return Err(FsError::invalid(
                    "the newest data of the image is in another log; give the log that it was \
                     mounted with last",
                ));
            }
            (Err(BufferError::NoLog), None) => {
                let size = image.geometry().size_bytes;
                Buffer::create_log(&log, size, new_id, false).map_err(refused)?;
                new_id
            }
            (Err(BufferError::NoLog), Some(_)) => {
                return Err(FsError::invalid(
                    "the newest data of the image is in a write log, and there is none in this \
                     area; give the log that it was mounted with last",
                ));
            }
            (Err(err), _) => return Err(refused(err)),
        };
        let marked = Arc::new(Marked { image: Arc::clone(&image), id });
        let buffer = Buffer::open_measured(marked, Some(log), options, clock).map_err(refused)?;
        let recovered = buffer.status().recovered_pages > 0;
        if mark.is_none() {
            if recovered {
                return Err(FsError::invalid(
                    "the log holds data of an image that was left mounted, and this one was not; \
                     give the image that belongs to it, or a new log",
                ));
            }
            write_raw(&*image, &with_mark(read_raw(&*image)?, Some(id))?)?;
        }
        Ok(Buffered { image, buffer: Arc::new(buffer), recovered })
    }

    /// The device for the volume.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// True if the log held data from before.
    pub fn recovered(&self) -> bool {
        self.recovered
    }

    /// Writes everything to its place and takes the mark away. The volume has been unmounted.
    ///
    /// # Errors
    /// The error below; the image stays marked then and must be attached again.
    pub fn detach(self) -> Result<()> {
        self.buffer.drain()?;
        write_raw(&*self.image, &with_mark(read_raw(&*self.image)?, None)?)
    }
}

fn refused(err: BufferError) -> FsError {
    match err {
        BufferError::Device(err) => FsError::Io(err),
        BufferError::Corrupt { .. } => {
            FsError::Corrupt { inode: None, block: None, offset: None, what: err.to_string() }
        }
        BufferError::Unsupported { .. } => FsError::Unsupported(err.to_string()),
        other => FsError::Invalid(other.to_string()),
    }
}

fn read_raw(image: &dyn BlockDevice) -> Result<Sb> {
    let mut sb = [0; SUPERBLOCK_BYTES];
    image.read(SUPERBLOCK_OFFSET, &mut sb, OWN)?;
    Ok(sb)
}

fn write_raw(image: &dyn BlockDevice, sb: &Sb) -> Result<()> {
    image.write(SUPERBLOCK_OFFSET, sb, OWN)?;
    Ok(image.flush(OWN)?)
}

fn with_mark(mut sb: Sb, id: Option<LogId>) -> Result<Sb> {
    if set_write_log(&mut sb, id) {
        return Ok(sb);
    }
    Err(FsError::Unsupported(
        "the superblock's snapshot fields are in use; mount without `buffer_log`".into(),
    ))
}

/// The image below the buffer: the superblock has the mark on it and is shown without.
struct Marked {
    image: Arc<dyn BlockDevice>,
    id: LogId,
}

/// The part of the superblock in a range of the device, as ranges of each.
fn overlap(at: u64, len: u64) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let (from, to) = (at.max(SUPERBLOCK_OFFSET), (at + len).min(END));
    (from < to).then(|| {
        let within = |start: u64| (from - start) as usize..(to - start) as usize;
        (within(at), within(SUPERBLOCK_OFFSET))
    })
}

impl Marked {
    /// The superblock as the volume knows it.
    fn shown(&self) -> std::result::Result<Sb, DeviceError> {
        let mut sb = [0; SUPERBLOCK_BYTES];
        self.image.read(SUPERBLOCK_OFFSET, &mut sb, OWN)?;
        if write_log_of(&sb).is_some() {
            set_write_log(&mut sb, None);
        }
        Ok(sb)
    }

    /// A write that touches the superblock: as one buffer, the superblock in it marked.
    fn write(
        &self,
        request: &Request<'_>,
        from: &[&[u8]],
        fua: bool,
    ) -> std::result::Result<(), DeviceError> {
        let mut bytes: Vec<u8> = from.concat();
        let Some((there, part)) = overlap(request.offset_bytes, bytes.len() as u64) else {
            return Ok(());
        };
        let mut sb =
            if part.len() < SUPERBLOCK_BYTES { self.shown()? } else { [0; SUPERBLOCK_BYTES] };
        sb[part.clone()].copy_from_slice(&bytes[there.clone()]);
        set_write_log(&mut sb, Some(self.id));
        bytes[there].copy_from_slice(&sb[part.clone()]);
        let (offset_bytes, origin) = (request.offset_bytes, request.origin);
        if part.len() < SUPERBLOCK_BYTES {
            // The mark's sector changes with either.
            let op = Op::Write { from: vec![&sb[..]], fua };
            self.image.submit(&mut [Request { offset_bytes: SUPERBLOCK_OFFSET, op, origin }])?;
        }
        let op = Op::Write { from: vec![&bytes[..]], fua };
        self.image.submit(&mut [Request { offset_bytes, op, origin }])
    }
}

impl BlockDevice for Marked {
    fn geometry(&self) -> Geometry {
        self.image.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> std::result::Result<(), DeviceError> {
        let touches = |r: &Request<'_>| overlap(r.offset_bytes, r.len_bytes()).is_some();
        if !batch.iter().any(touches) {
            return self.image.submit(batch);
        }
        for request in batch {
            match &mut request.op {
                Op::Write { from, fua } if overlap_of(request.offset_bytes, from) => {
                    let (from, fua) = (from.clone(), *fua);
                    self.write(request, &from, fua)?;
                }
                _ => self.image.submit(std::slice::from_mut(request))?,
            }
            if let Op::Read { into } = &mut request.op {
                let sb = self.shown()?;
                let mut at = request.offset_bytes;
                for piece in into.iter_mut() {
                    if let Some((there, part)) = overlap(at, piece.len() as u64) {
                        piece[there].copy_from_slice(&sb[part]);
                    }
                    at += piece.len() as u64;
                }
            }
        }
        Ok(())
    }
}

fn overlap_of(at: u64, from: &[&[u8]]) -> bool {
    overlap(at, from.iter().map(|piece| piece.len() as u64).sum()).is_some()
}
