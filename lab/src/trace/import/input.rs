//! Bytes of an input: decompressed, looked at, cut into lines.
//!
//! A compressed stream that ends early or is damaged ends there: what came before is used, and
//! [`Input::damage`] says what happened.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use super::Sample;
use crate::error::{LabError, Result};

/// Bytes that are looked at to tell the format.
const SAMPLE_BYTES: usize = 64 << 10;
/// Longest line that is taken.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;

pub(super) struct Input<'r> {
    bytes: Box<dyn BufRead + 'r>,
    damage: Rc<RefCell<Option<String>>>,
    sample: Vec<u8>,
    /// Bytes of the sample that were read.
    used: usize,
}

/// A decompressor whose failures are the end of the input.
struct Tolerant<R> {
    inner: R,
    damage: Rc<RefCell<Option<String>>>,
}

impl<R: Read> Read for Tolerant<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.damage.borrow().is_some() {
            return Ok(0);
        }
        match self.inner.read(into) {
            Err(err) if err.kind() == io::ErrorKind::Interrupted => Err(err),
            Err(err) => {
                *self.damage.borrow_mut() = Some(format!("the compressed data ends early ({err})"));
                Ok(0)
            }
            done => done,
        }
    }
}

impl<'r> Input<'r> {
    pub(super) fn open(mut raw: Box<dyn BufRead + 'r>) -> Result<Input<'r>> {
        let damage = Rc::new(RefCell::new(None));
        let start = raw.fill_buf().map_err(LabError::io("reading the trace"))?;
        let (gzip, zstd) =
            (start.starts_with(&[0x1f, 0x8b]), start.starts_with(b"\x28\xb5\x2f\xfd"));
        let bytes: Box<dyn BufRead + 'r> = if gzip {
            let inner = flate2::bufread::MultiGzDecoder::new(raw);
            Box::new(BufReader::new(Tolerant { inner, damage: Rc::clone(&damage) }))
        } else if zstd {
            let inner = zstd::stream::read::Decoder::with_buffer(raw)
                .map_err(LabError::io("starting zstd"))?;
            Box::new(BufReader::new(Tolerant { inner, damage: Rc::clone(&damage) }))
        } else {
            raw
        };
        Ok(Input { bytes, damage, sample: Vec::new(), used: 0 })
    }

    /// The start of the input; it is read again afterwards.
    pub(super) fn sample(&mut self) -> Result<Sample<'_>> {
        let mut start = (&mut self.bytes).take(SAMPLE_BYTES as u64);
        start.read_to_end(&mut self.sample).map_err(LabError::io("reading the trace"))?;
        let whole = match self.sample.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => &self.sample[..end],
            None => &self.sample[..],
        };
        let lines = whole
            .split(|byte| *byte == b'\n')
            .filter_map(|line| std::str::from_utf8(line).ok())
            .map(|line| line.trim_end_matches('\r'))
            .filter(|line| !line.trim().is_empty())
            .take(64);
        Ok(Sample { bytes: &self.sample, lines: lines.collect() })
    }

    /// Error that ended the input early.
    pub(super) fn damage(&self) -> Option<String> {
        self.damage.borrow().clone()
    }

    /// The next line into `line`; none at the end. False: it has no line end.
    ///
    /// Of a line that is too long a byte more than [`LINE_BYTES_MAX`] is kept.
    pub(super) fn line(&mut self, line: &mut Vec<u8>) -> Result<Option<bool>> {
        line.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = self.take(limit).read_until(b'\n', line);
        let mut n = read.map_err(LabError::io("reading the trace"))? as u64;
        if n == 0 {
            return Ok(None);
        }
        let mut whole = line.last() == Some(&b'\n');
        // The rest of a line that is too long goes by in pieces.
        let mut rest = Vec::new();
        while !whole && n == limit {
            rest.clear();
            let read = self.take(limit).read_until(b'\n', &mut rest);
            n = read.map_err(LabError::io("reading the trace"))? as u64;
            whole = rest.last() == Some(&b'\n');
        }
        Ok(Some(whole))
    }
}

impl Read for Input<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(into)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Input<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used < self.sample.len() {
            return Ok(&self.sample[self.used..]);
        }
        self.bytes.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        if self.used < self.sample.len() {
            self.used += n;
        } else {
            self.bytes.consume(n);
        }
    }
}
