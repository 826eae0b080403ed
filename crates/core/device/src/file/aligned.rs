//! Buffers at page-aligned addresses for `O_DIRECT`, and a bounded pool of them.

use parking_lot::Mutex;

use crate::MAX_REQUEST_BYTES;

const ALIGN: usize = 4096;

/// A buffer whose first byte lies at a multiple of 4096.
#[derive(Debug)]
pub(super) struct AlignedBuffer {
    store: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// A buffer of zeroes.
    pub(super) fn new(len: usize) -> Self {
        let store = vec![0; len + ALIGN];
        let address = store.as_ptr().addr();
        let start = address.next_multiple_of(ALIGN) - address;
        AlignedBuffer { store, start, len }
    }

    /// The content.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.store[self.start..self.start + self.len]
    }

    /// The content.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.store[self.start..self.start + self.len]
    }

    /// Fills it from the parts, whose lengths add up to its own.
    pub(super) fn gather(&mut self, parts: &[&[u8]]) {
        let mut rest = self.bytes_mut();
        for part in parts {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
    }

    /// Fills the parts from it, whose lengths add up to its own.
    pub(super) fn scatter(&self, parts: &mut [&mut [u8]]) {
        let mut rest = self.bytes();
        for part in parts {
            let (head, tail) = rest.split_at(part.len());
            part.copy_from_slice(head);
            rest = tail;
        }
    }
}

/// log2 of the size of the smallest and of the largest buffers that are kept.
const SMALLEST: u32 = 14;
const LARGEST: u32 = MAX_REQUEST_BYTES.ilog2();

/// Keeps buffers of sizes that are powers of two, up to the largest request.
#[derive(Debug)]
pub(super) struct Pool {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    free: [Vec<AlignedBuffer>; (LARGEST - SMALLEST + 1) as usize],
    bytes: usize,
}

impl Pool {
    /// An empty pool, which keeps at most so many bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Pool { kept: Mutex::default(), bytes_max }
    }

    /// log2 of the size of a buffer for `len` bytes, from [`SMALLEST`] on.
    fn class(len: usize) -> usize {
        (len.max(1).next_power_of_two().ilog2().max(SMALLEST) - SMALLEST) as usize
    }

    /// A buffer of this length; what it holds is left over from before.
    pub(super) fn take(&self, len: usize) -> AlignedBuffer {
        if len > MAX_REQUEST_BYTES as usize {
            return AlignedBuffer::new(len);
        }
        let class = Self::class(len);
        let size = 1 << (class as u32 + SMALLEST);
        let mut kept = self.kept.lock();
        let free = kept.free.get_mut(class).and_then(Vec::pop);
        kept.bytes -= free.as_ref().map_or(0, |_| size);
        drop(kept);
        let mut buffer = free.unwrap_or_else(|| AlignedBuffer::new(size));
        buffer.len = len;
        buffer
    }

    /// Gives one back.
    pub(super) fn give(&self, buffer: AlignedBuffer) {
        let size = buffer.store.len() - ALIGN;
        let mut kept = self.kept.lock();
        if size > MAX_REQUEST_BYTES as usize || kept.bytes + size > self.bytes_max {
            return;
        }
        if let Some(free) = kept.free.get_mut(Self::class(size)) {
            free.push(buffer);
            kept.bytes += size;
        }
    }
}
