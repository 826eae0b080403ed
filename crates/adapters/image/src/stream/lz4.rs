//! lz4: frames, one after the other.
//!
//! The crate's decoder takes the end of its input for the end of a frame, so a frame that is cut
//! would pass. [`Part`] tells both apart.

use std::io::{self, BufRead, Cursor, Read};

use lz4_flex::frame::FrameDecoder;

use super::{LZ4, is_skippable};

/// All frames of a file.
pub(super) enum Lz4<R: Read> {
    /// In front of a frame.
    Between(R),
    /// In a frame.
    Frame(Box<FrameDecoder<Part<R>>>),
    /// Behind the last, or after an error.
    Done,
}

/// A frame and what follows it.
pub(super) struct Part<R> {
    /// Its mark, which was read to find it.
    mark: Cursor<Vec<u8>>,
    from: R,
    ended: bool,
}

impl<R: Read> Read for Part<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = match self.mark.read(into)? {
            0 => self.from.read(into)?,
            read => read,
        };
        self.ended |= read == 0 && !into.is_empty();
        Ok(read)
    }
}

impl<R: BufRead> Lz4<R> {
    pub(super) fn new(from: R) -> Lz4<R> {
        Lz4::Between(from)
    }

    /// The next frame with data.
    fn next(mut from: R) -> io::Result<Lz4<R>> {
        loop {
            let mut mark = Vec::new();
            from.by_ref().take(LZ4.len() as u64).read_to_end(&mut mark)?;
            if mark.is_empty() {
                return Ok(Lz4::Done);
            }
            if mark == LZ4 {
                let part = Part { mark: Cursor::new(mark), from, ended: false };
                return Ok(Lz4::Frame(Box::new(FrameDecoder::new(part))));
            }
            if !is_skippable(&mark) {
                let text = "bytes after the end of the compressed data";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            let mut len = [0; 4];
            from.read_exact(&mut len)?;
            let len = u64::from(u32::from_le_bytes(len));
            if io::copy(&mut from.by_ref().take(len), &mut io::sink())? < len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl<R: BufRead> Read for Lz4<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            *self = match std::mem::replace(self, Lz4::Done) {
                Lz4::Between(from) => Lz4::next(from)?,
                Lz4::Frame(mut frame) => match frame.read(into)? {
                    0 => {
                        let part = frame.into_inner();
                        if part.ended {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        Lz4::Between(part.from)
                    }
                    read => {
                        *self = Lz4::Frame(frame);
                        return Ok(read);
                    }
                },
                Lz4::Done => return Ok(0),
            };
        }
    }
}
