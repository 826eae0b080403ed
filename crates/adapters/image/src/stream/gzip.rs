//! gzip: members, one after the other.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// All members of a file.
pub(super) struct Gzip<R: BufRead> {
    /// None behind the last.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    pub(super) fn new(from: R) -> Gzip<R> {
        Gzip { member: Some(GzDecoder::new(from)) }
    }

    /// The next member; none at the end, or where only zeros are left.
    fn next(mut from: R) -> io::Result<Option<GzDecoder<R>>> {
        match from.fill_buf()?.first() {
            Some(0) => super::only_zeros(&mut from).map(|()| None),
            Some(_) => Ok(Some(GzDecoder::new(from))),
            None => Ok(None),
        }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            // The trailer is checked by the read that finds the end.
            match member.read(into)? {
                0 => {
                    self.member =
                        self.member.take().map_or(Ok(None), |m| Gzip::next(m.into_inner()))?
                }
                n => return Ok(n),
            }
        }
        Ok(0)
    }
}
