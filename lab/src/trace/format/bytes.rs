//! Bytes of a trace file, read by ranges: those of a file, of memory, or of another program.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::reader::{ChunkReader, Length};
use syncline_image::ReadAt;

/// Bytes that are read at any place.
#[derive(Clone)]
pub struct TraceBytes {
    from: Arc<dyn ReadAt>,
    len: u64,
}

impl TraceBytes {
    /// The first `len` bytes of `from`.
    pub fn new(from: Arc<dyn ReadAt>, len: u64) -> TraceBytes {
        TraceBytes { from, len }
    }

    /// True if they begin so.
    pub fn starts_with(&self, magic: &[u8; 4]) -> bool {
        let mut start = [0; 4];
        self.from.read_exact_at(&mut start, 0).is_ok() && start == *magic
    }

    /// Reads on from `at` to the end.
    pub fn stream(&self, at: u64) -> TraceStream {
        TraceStream { bytes: self.clone(), at }
    }
}

impl From<Vec<u8>> for TraceBytes {
    fn from(bytes: Vec<u8>) -> TraceBytes {
        let len = bytes.len() as u64;
        TraceBytes::new(Arc::new(Memory(bytes)), len)
    }
}

struct Memory(Vec<u8>);

impl ReadAt for Memory {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let start = usize::try_from(at).ok();
        let end = start.and_then(|start| start.checked_add(into.len()));
        let part = start.zip(end).and_then(|(start, end)| self.0.get(start..end));
        into.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Length for TraceBytes {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for TraceBytes {
    type T = BufReader<TraceStream>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(BufReader::new(self.stream(start)))
    }

    fn get_bytes(&self, start: u64, len: usize) -> parquet::errors::Result<Bytes> {
        // A length of a damaged footer is no reason to take so much memory.
        if start.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut bytes = vec![0; len];
        self.from.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// Bytes from a place on.
pub struct TraceStream {
    bytes: TraceBytes,
    at: u64,
}

impl Read for TraceStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.bytes.len.saturating_sub(self.at);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let part = into.get_mut(..len).unwrap_or_default();
        if len > 0 {
            self.bytes.from.read_exact_at(part, self.at)?;
        }
        self.at += len as u64;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_those_beyond_the_end_are_refused() {
        let bytes = TraceBytes::from(b"PAR1 and more".to_vec());
        assert!(
            bytes.starts_with(b"PAR1") && !TraceBytes::from(b"PAR".to_vec()).starts_with(b"PAR1")
        );
        assert_eq!(bytes.get_bytes(5, 3).unwrap(), "and");
        let mut rest = String::new();
        bytes.get_read(9).unwrap().read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "more");
        for (start, len) in [(12, 2), (14, 0), (u64::MAX, 1), (0, usize::MAX)] {
            assert!(bytes.get_bytes(start, len).is_err(), "{start} {len}");
        }
        assert_eq!(bytes.stream(20).read(&mut [0; 4]).unwrap(), 0);
    }
}
