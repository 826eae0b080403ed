//! zstd in Rust: frames, one after the other, whose checksums are verified.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::{ZSTD, is_skippable};

/// All frames of a file.
pub(super) struct Zstd<R> {
    from: R,
    decoder: Box<FrameDecoder>,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// In front of a frame.
    Between,
    Frame,
    /// Behind the last.
    Done,
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn failed(err: &FrameDecoderError) -> io::Error {
    invalid(err.to_string())
}

impl<R: BufRead> Zstd<R> {
    pub(super) fn new(from: R) -> Zstd<R> {
        Zstd { from, decoder: Box::new(FrameDecoder::new()), state: State::Between }
    }

    /// Goes to the next frame with data.
    fn next(&mut self) -> io::Result<State> {
        if self.from.fill_buf()?.is_empty() {
            return Ok(State::Done);
        }
        let mut mark = [0; 4];
        self.from.read_exact(&mut mark)?;
        if mark == ZSTD {
            let frame = mark.chain(&mut self.from);
            self.decoder.init(frame).map_err(|err| failed(&err))?;
            return Ok(State::Frame);
        }
        if !is_skippable(&mark) {
            return Err(invalid("bytes after the end of the compressed data".to_owned()));
        }
        let mut len = [0; 4];
        self.from.read_exact(&mut len)?;
        let len = u64::from(u32::from_le_bytes(len));
        if io::copy(&mut self.from.by_ref().take(len), &mut io::sink())? < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(State::Between)
    }

    /// Reads from a frame; nothing at its end.
    fn read_frame(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let decoder = &mut *self.decoder;
        while decoder.can_collect() < into.len() && !decoder.is_finished() {
            let wanted = BlockDecodingStrategy::UptoBytes(into.len());
            decoder.decode_blocks(&mut self.from, wanted).map_err(|err| failed(&err))?;
        }
        let read = decoder.read(into)?;
        let stored = decoder.get_checksum_from_data();
        if read == 0 && stored.is_some() && stored != decoder.get_calculated_checksum() {
            return Err(invalid("a checksum is wrong".to_owned()));
        }
        Ok(read)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            // After an error nothing is read.
            self.state = match std::mem::replace(&mut self.state, State::Done) {
                State::Between => self.next()?,
                State::Frame => match self.read_frame(into)? {
                    0 => State::Between,
                    read => {
                        self.state = State::Frame;
                        return Ok(read);
                    }
                },
                State::Done => return Ok(0),
            };
        }
    }
}
