//! The ring of pages on its device: append a batch, read pages, move the tail.
//!
//! ```text
//!   tail ............ head ............ tail + pages
//!    read by recovery   |  free: may be overwritten
//! ```
//!
//! A batch is one write (two where it crosses the end of the ring). Sequences never go back: a slot
//! that is written again has a sequence `pages` higher. Exercised by `tests/it`.

use std::sync::Arc;

use syncline_device::{BlockDevice, DeviceError, Kind, Op, Origin, Plug, Request};

use crate::format::{
    Opaque, PAGE_BYTES, Range, Stamp, Superblock, decode, decode_opaque, describes_itself, encode,
    encode_header, encode_opaque,
};

/// Pages in front of the ring.
pub(crate) const SUPERBLOCKS: u64 = 2;
/// Pages of a batch at most, without its header; an eighth of a small ring.
pub(crate) const BATCH_PAGES_MAX: u64 = 128;
const PAGE: u64 = PAGE_BYTES as u64;

/// Origin of the log's own requests.
pub(crate) const LOG: Origin = Origin::new(Kind::Other, true);

/// Position of the newest copy of a logical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) sequence: u64,
    /// Description from the header, if the page does not describe itself.
    pub(crate) opaque: Option<Opaque>,
    /// Also written to its home block.
    pub(crate) clean: bool,
}

pub(crate) struct Ring {
    device: Arc<dyn BlockDevice>,
    pub(crate) superblock: Superblock,
    pub(crate) head: u64,
    /// True if pages below `head` may still be volatile.
    pub(crate) owed: bool,
}

impl Ring {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, superblock: Superblock, head: u64) -> Self {
        Ring { device, superblock, head, owed: false }
    }

    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    pub(crate) fn pages(&self) -> u64 {
        self.superblock.ring_pages
    }

    pub(crate) fn used(&self) -> u64 {
        self.head - self.superblock.tail
    }

    pub(crate) fn free(&self) -> u64 {
        self.pages() - self.used()
    }

    /// Pages of a batch, without its header.
    pub(crate) fn batch_pages(&self) -> u64 {
        BATCH_PAGES_MAX.min(self.pages() / 8)
    }

    fn offset(&self, sequence: u64) -> u64 {
        (SUPERBLOCKS + sequence % self.pages()) * PAGE
    }

    /// Pages that [`Ring::append`] takes for these.
    pub(crate) fn cost(pages: &[(u64, &[u8])], dropped: &[Range]) -> u64 {
        let header = !dropped.is_empty() || pages.iter().any(|(_, page)| !describes_itself(page));
        pages.len() as u64 + u64::from(header)
    }

    /// Writes a batch behind the head: a header if one is needed, the opaque pages, the others.
    /// Returns where each page is. The caller has made room, and keeps to [`Ring::batch_pages`].
    pub(crate) fn append(
        &mut self,
        pages: &[(u64, &[u8])],
        dropped: &[Range],
        fua: bool,
    ) -> Result<Vec<(u64, Mapped)>, DeviceError> {
        let (plain, opaque): (Vec<_>, Vec<_>) =
            pages.iter().partition(|(_, page)| describes_itself(page));
        let header = !opaque.is_empty() || !dropped.is_empty();
        let total = pages.len() + usize::from(header);
        let mut bytes = vec![0; total * PAGE_BYTES];
        let mut mapped = Vec::with_capacity(pages.len());
        let mut stamp = Stamp {
            id: self.superblock.id,
            epoch: self.superblock.epoch,
            sequence: self.head,
            settled: !self.owed,
        };
        let (head, rest) = bytes.split_at_mut(PAGE_BYTES * usize::from(header));
        let header_stamp = stamp;
        stamp.sequence += u64::from(header);
        stamp.settled &= !header;
        let mut items = Vec::with_capacity(opaque.len());
        for ((logical, content), page) in
            opaque.iter().chain(&plain).zip(rest.chunks_exact_mut(PAGE_BYTES))
        {
            page.copy_from_slice(content);
            let mut opaque = None;
            if !encode(page, *logical, &stamp) {
                let item = encode_opaque(page, &stamp);
                items.push((*logical, item));
                opaque = Some(item);
            }
            let sequence = stamp.sequence;
            mapped.push((*logical, Mapped { sequence, opaque, clean: false }));
            stamp.sequence += 1;
            stamp.settled = false;
        }
        if header {
            encode_header(head, &header_stamp, &items, dropped);
        }
        self.write(&bytes, fua)?;
        self.head = stamp.sequence;
        self.owed |= !fua;
        Ok(mapped)
    }

    fn write(&self, bytes: &[u8], fua: bool) -> Result<(), DeviceError> {
        let to_end = (self.pages() - self.head % self.pages()) * PAGE;
        let first = usize::try_from(to_end).unwrap_or(usize::MAX).min(bytes.len());
        let (before, after) = bytes.split_at(first);
        let mut batch = Vec::new();
        let largest = usize::try_from(self.device.geometry().max_request_bytes);
        let largest = (largest.unwrap_or(usize::MAX) / PAGE_BYTES).max(1) * PAGE_BYTES;
        for (start, part) in [(self.offset(self.head), before), (SUPERBLOCKS * PAGE, after)] {
            for (index, piece) in part.chunks(largest).enumerate() {
                let offset_bytes = start + (index * largest) as u64;
                let op = Op::Write { from: vec![piece], fua };
                batch.push(Request { offset_bytes, op, origin: LOG });
            }
        }
        self.device.submit(&mut batch)
    }

    /// Reads pages into consecutive pieces of `into` and checks them.
    pub(crate) fn read(&self, pages: &[(u64, Mapped)], into: &mut [u8]) -> Result<(), DeviceError> {
        let mut plug = Plug::new();
        for ((_, mapped), page) in pages.iter().zip(into.chunks_exact_mut(PAGE_BYTES)) {
            plug.read(self.offset(mapped.sequence), page, LOG);
        }
        plug.submit(&*self.device)?;
        let id = &self.superblock.id;
        for ((logical, mapped), page) in pages.iter().zip(into.chunks_exact_mut(PAGE_BYTES)) {
            let good = match mapped.opaque {
                None => decode(page, *logical, id, mapped.sequence),
                Some(opaque) => decode_opaque(page, opaque, id, mapped.sequence),
            };
            if !good {
                return Err(DeviceError::Io {
                    op: "read",
                    offset_bytes: self.offset(mapped.sequence),
                    len_bytes: PAGE,
                    reason: "this page of the write log fails its checksum; restore the data of \
                             this range from a backup"
                        .to_owned(),
                    errno: 5,
                });
            }
        }
        Ok(())
    }

    /// Raw pages of the ring, for recovery.
    pub(crate) fn read_raw(&self, sequence: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let to_end = (self.pages() - sequence % self.pages()) * PAGE;
        let first = usize::try_from(to_end).unwrap_or(usize::MAX).min(into.len());
        let (before, after) = into.split_at_mut(first);
        let mut plug = Plug::new();
        plug.read(self.offset(sequence), before, LOG);
        plug.read(SUPERBLOCKS * PAGE, after, LOG);
        plug.submit(&*self.device)
    }

    /// Everything below `tail` is in its place, durably: recovery starts there from now on.
    pub(crate) fn move_tail(&mut self, tail: u64) -> Result<(), DeviceError> {
        let next = Superblock { tail, tail_epoch: self.superblock.epoch, ..self.superblock };
        self.write_superblock(next)
    }

    /// Stores the next generation durably.
    pub(crate) fn write_superblock(&mut self, mut next: Superblock) -> Result<(), DeviceError> {
        next.generation += 1;
        let at = next.generation % SUPERBLOCKS * PAGE;
        self.device.write_durable(at, &next.encode(), LOG)?;
        self.superblock = next;
        Ok(())
    }
}
