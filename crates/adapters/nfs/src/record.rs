//! Records (RFC 5531, section 11), and memory for them that is kept.

use std::io::{self, Read};

use crate::files::TRANSFER_BYTES_MAX;

/// Most bytes of a record: a WRITE of the largest size, with room for its header.
pub const RECORD_BYTES_MAX: usize = TRANSFER_BYTES_MAX as usize + 4096;

/// Mark of the last fragment of a record.
pub(crate) const LAST_FRAGMENT: u32 = 1 << 31;

/// Bytes before the contents that a READ returns: mark, header of the reply, attributes. A page, so
/// that the contents lie as a device wants them.
const HEAD_BYTES: usize = 4096;

/// Reads the next record to the front of `record`, which keeps its length; returns how long the
/// record is. `None`: the peer has closed the connection.
///
/// # Errors
/// As of reading; `InvalidData` beyond the limit, and for fragments without bytes, which would keep
/// a thread busy for nothing.
pub(crate) fn read_record(from: &mut impl Read, record: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let mut bytes = 0;
    loop {
        let mut mark = [0; 4];
        let got = if bytes == 0 { first_bytes(from, &mut mark)? } else { 0 };
        if bytes == 0 && got == 0 {
            return Ok(None);
        }
        from.read_exact(&mut mark[got..])?;
        let mark = u32::from_be_bytes(mark);
        let (last, len) = (mark & LAST_FRAGMENT != 0, (mark & !LAST_FRAGMENT) as usize);
        if len > RECORD_BYTES_MAX - bytes || len == 0 && !last {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if record.len() < bytes + len {
            record.resize(bytes + len, 0);
        }
        from.read_exact(&mut record[bytes..bytes + len])?;
        bytes += len;
        if last {
            return Ok(Some(bytes));
        }
    }
}

/// Waits for a record to begin, however long a peer is silent. Returns how many bytes came; none:
/// it has closed the connection.
fn first_bytes(from: &mut impl Read, mark: &mut [u8; 4]) -> io::Result<usize> {
    loop {
        match from.read(mark) {
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Memory for the reply to a READ. Contents are read to where they are sent from.
#[derive(Default)]
pub(crate) struct Room(Vec<u8>);

impl Room {
    /// Room for `len` bytes, with anything in it.
    pub(crate) fn contents(&mut self, len: usize) -> &mut [u8] {
        let end = HEAD_BYTES + len.next_multiple_of(4);
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        &mut self.0[HEAD_BYTES..HEAD_BYTES + len]
    }

    /// Bytes to send: `head`, of which there is at most a page, then the first `len` bytes of the
    /// contents, padded to four.
    pub(crate) fn behind(&mut self, head: &[u8], len: usize) -> &[u8] {
        let (end, padded) = (HEAD_BYTES + len, HEAD_BYTES + len.next_multiple_of(4));
        self.0[end..padded].fill(0);
        let start = HEAD_BYTES - head.len();
        self.0[start..HEAD_BYTES].copy_from_slice(head);
        &self.0[start..padded]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_sent_with_their_head_and_zeros_behind() {
        let mut room = Room::default();
        room.contents(8).fill(9);
        room.contents(5).copy_from_slice(b"hello");
        assert_eq!(room.behind(b"head", 5), b"headhello\0\0\0");
        assert_eq!(room.behind(b"h", 2), b"hhe\0\0");
    }

    #[test]
    fn records_come_from_fragments_into_the_same_memory() {
        let bytes = [&[0, 0, 0, 2, 7, 8][..], &[0x80, 0, 0, 1, 9], &[0x80, 0, 0, 0], &[0x80, 0]];
        let bytes = bytes.concat();
        let (mut from, mut record) = (&bytes[..], Vec::new());
        assert_eq!(read_record(&mut from, &mut record).unwrap(), Some(3));
        assert_eq!(record, [7, 8, 9]);
        assert_eq!(read_record(&mut from, &mut record).unwrap(), Some(0));
        let cut = read_record(&mut from, &mut record).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read_record(&mut from, &mut record).unwrap(), None);
    }
}
