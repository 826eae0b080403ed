//! Decoder for arguments (XDR, RFC 4506). It takes slices of the record and allocates nothing.

use nfs3_types::nfs3::nfstime3;
use syncline_fs::{SetAttr, SetTime, Timestamp};

/// The record is shorter than it says, or a value has no meaning.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbage;

pub(crate) type Decoded<T> = Result<T, Garbage>;

/// Rest of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a>(pub(crate) &'a [u8]);

/// A directory and a name in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) dir: &'a [u8],
    pub(crate) name: &'a [u8],
}

impl<'a> Arguments<'a> {
    fn take(&mut self, len: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Garbage)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Garbage)
    }

    pub(crate) fn u32(&mut self) -> Decoded<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Decoded<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn verifier(&mut self) -> Decoded<[u8; 8]> {
        self.array()
    }

    /// Bytes with a length before them, padded to four.
    pub(crate) fn opaque(&mut self) -> Decoded<&'a [u8]> {
        let len = self.u32()? as usize;
        let bytes = self.take(len)?;
        self.take(len.next_multiple_of(4) - len)?;
        Ok(bytes)
    }

    pub(crate) fn entry(&mut self) -> Decoded<Entry<'a>> {
        Ok(Entry { dir: self.opaque()?, name: self.opaque()? })
    }

    fn option<T>(&mut self, value: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<Option<T>> {
        match self.u32()? {
            0 => Ok(None),
            1 => value(self).map(Some),
            _ => Err(Garbage),
        }
    }

    pub(crate) fn time(&mut self) -> Decoded<nfstime3> {
        Ok(nfstime3 { seconds: self.u32()?, nseconds: self.u32()? })
    }

    fn set_time(&mut self) -> Decoded<Option<SetTime>> {
        match self.u32()? {
            0 => Ok(None),
            1 => Ok(Some(SetTime::Now)),
            2 => {
                let time = self.time()?;
                let seconds = i64::from(time.seconds);
                let nanoseconds = time.nseconds.min(999_999_999);
                Ok(Some(SetTime::At(Timestamp { seconds, nanoseconds })))
            }
            _ => Err(Garbage),
        }
    }

    /// `sattr3`.
    pub(crate) fn attributes(&mut self) -> Decoded<SetAttr> {
        let mode = self.option(Self::u32)?.map(|mode| (mode & 0o7777) as u16);
        Ok(SetAttr {
            mode,
            uid: self.option(Self::u32)?,
            gid: self.option(Self::u32)?,
            size: self.option(Self::u64)?,
            atime: self.set_time()?,
            mtime: self.set_time()?,
            ..SetAttr::default()
        })
    }

    /// `sattrguard3`: the change time that the file must have.
    pub(crate) fn guard(&mut self) -> Decoded<Option<nfstime3>> {
        self.option(Self::time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_looked_at_before_anything_is_taken() {
        let mut short = Arguments(&[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]);
        assert_eq!(short.opaque(), Err(Garbage));
        let mut padded = Arguments(&[0, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!((padded.opaque(), padded.u32()), (Ok(&[7][..]), Ok(2)));
        let mut unpadded = Arguments(&[0, 0, 0, 1, 7]);
        assert_eq!(unpadded.opaque(), Err(Garbage));
        assert_eq!(Arguments(&[0, 0, 0, 2]).guard(), Err(Garbage));
    }
}
