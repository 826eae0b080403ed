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

/// Keeps at most so many buffers of the largest request; larger ones are not kept.
#[derive(Debug)]
pub(super) struct Pool {
    free: Mutex<Vec<AlignedBuffer>>,
    keep: usize,
}

impl Pool {
    /// An empty pool.
    pub(super) fn new(keep: usize) -> Self {
        Pool { free: Mutex::default(), keep }
    }

    /// A buffer of this length; what it holds is left over from before.
    pub(super) fn take(&self, len: usize) -> AlignedBuffer {
        if len > MAX_REQUEST_BYTES as usize {
            return AlignedBuffer::new(len);
        }
        let free = self.free.lock().pop();
        let mut buffer = free.unwrap_or_else(|| AlignedBuffer::new(MAX_REQUEST_BYTES as usize));
        buffer.len = len;
        buffer
    }

    /// Gives one back.
    pub(super) fn give(&self, buffer: AlignedBuffer) {
        let mut free = self.free.lock();
        if free.len() < self.keep && buffer.store.len() == MAX_REQUEST_BYTES as usize + ALIGN {
            free.push(buffer);
        }
    }
}
