//! Numbers and forms of the protocol. Everything is big endian.

use std::io::{self, Read, Write};

pub(crate) const MAGIC: u64 = 0x4e42_444d_4147_4943;
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

// Flags of the handshake, the same for both sides.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
pub(crate) const NO_ZEROES: u16 = 2;

// Options.
pub(crate) const OPT_EXPORT_NAME: u32 = 1;
pub(crate) const OPT_ABORT: u32 = 2;
pub(crate) const OPT_LIST: u32 = 3;
pub(crate) const OPT_INFO: u32 = 6;
pub(crate) const OPT_GO: u32 = 7;
pub(crate) const OPT_STRUCTURED_REPLY: u32 = 8;

// Replies to options.
pub(crate) const REP_ACK: u32 = 1;
pub(crate) const REP_SERVER: u32 = 2;
pub(crate) const REP_INFO: u32 = 3;
pub(crate) const REP_ERR_UNSUP: u32 = 1 << 31 | 1;
pub(crate) const REP_ERR_INVALID: u32 = 1 << 31 | 3;
pub(crate) const REP_ERR_UNKNOWN: u32 = 1 << 31 | 6;
pub(crate) const REP_ERR_TOO_BIG: u32 = 1 << 31 | 9;

// Informations.
pub(crate) const INFO_EXPORT: u16 = 0;
pub(crate) const INFO_NAME: u16 = 1;
pub(crate) const INFO_BLOCK_SIZE: u16 = 3;

// Transmission flags.
pub(crate) const HAS_FLAGS: u16 = 1;
pub(crate) const READ_ONLY: u16 = 1 << 1;
pub(crate) const SEND_FLUSH: u16 = 1 << 2;
pub(crate) const SEND_FUA: u16 = 1 << 3;
pub(crate) const SEND_TRIM: u16 = 1 << 5;
pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
pub(crate) const SEND_DF: u16 = 1 << 7;
pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;

// Requests and their flags.
pub(crate) const CMD_READ: u16 = 0;
pub(crate) const CMD_WRITE: u16 = 1;
pub(crate) const CMD_DISC: u16 = 2;
pub(crate) const CMD_FLUSH: u16 = 3;
pub(crate) const CMD_TRIM: u16 = 4;
pub(crate) const CMD_WRITE_ZEROES: u16 = 6;
pub(crate) const FLAG_FUA: u16 = 1;
pub(crate) const FLAG_NO_HOLE: u16 = 1 << 1;
pub(crate) const FLAG_DF: u16 = 1 << 2;

// Chunks of structured replies.
pub(crate) const REPLY_DONE: u16 = 1;
pub(crate) const CHUNK_NONE: u16 = 0;
pub(crate) const CHUNK_DATA: u16 = 1;
pub(crate) const CHUNK_ERROR: u16 = 1 << 15 | 1;

// Errors.
pub(crate) const EPERM: u32 = 1;
pub(crate) const EIO: u32 = 5;
pub(crate) const EINVAL: u32 = 22;
pub(crate) const ENOSPC: u32 = 28;

/// Longest data of one read or write, in bytes.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Longest data of one option: names have 4096 bytes at most.
pub(crate) const OPTION_BYTES_MAX: u32 = 8192;

/// One request, without the data of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Request {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

pub(crate) const REQUEST_BYTES: usize = 28;

impl Request {
    /// `None` if it does not begin with the magic.
    pub(crate) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Request> {
        let mut rest: &[u8] = bytes;
        // Reading from these bytes cannot fail: they are as long as all fields.
        let mut fields = || -> io::Result<(u32, Request)> {
            let magic = u32_of(&mut rest)?;
            let request = Request {
                flags: u16_of(&mut rest)?,
                command: u16_of(&mut rest)?,
                cookie: u64_of(&mut rest)?,
                offset: u64_of(&mut rest)?,
                length: u32_of(&mut rest)?,
            };
            Ok((magic, request))
        };
        fields().ok().filter(|(magic, _)| *magic == REQUEST_MAGIC).map(|(_, request)| request)
    }
}

pub(crate) fn u16_of(from: &mut impl Read) -> io::Result<u16> {
    let mut bytes = [0; 2];
    from.read_exact(&mut bytes)?;
    Ok(u16::from_be_bytes(bytes))
}

pub(crate) fn u32_of(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

pub(crate) fn u64_of(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}

/// The reply to an option.
pub(crate) fn option_reply(
    to: &mut impl Write,
    option: u32,
    kind: u32,
    data: &[u8],
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(20 + data.len());
    bytes.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    to.write_all(&bytes)
}

/// The head of a reply without chunks; data of a read follows it.
pub(crate) fn simple_reply(error: u32, cookie: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    bytes.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes.extend(error.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes
}

/// The head of the only chunk of a reply, with what comes before the data of its `length` bytes.
pub(crate) fn chunk(kind: u16, cookie: u64, head: &[u8], data_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(20 + head.len());
    bytes.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes.extend(REPLY_DONE.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(((head.len() + data_bytes) as u32).to_be_bytes());
    bytes.extend(head);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_by_their_bytes() {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&[0x25, 0x60, 0x95, 0x13]);
        bytes[5] = 1;
        bytes[7] = 3;
        bytes[15] = 9;
        bytes[22] = 2;
        bytes[27] = 7;
        let request = Request { flags: 1, command: 3, cookie: 9, offset: 512, length: 7 };
        assert_eq!(Request::decode(&bytes), Some(request));
        bytes[0] = 0;
        assert_eq!(Request::decode(&bytes), None);
    }

    #[test]
    fn replies_by_their_bytes() {
        let simple = simple_reply(EIO, 2);
        assert_eq!(simple, [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 2]);
        let data = chunk(CHUNK_DATA, 2, &[0; 8], 16);
        assert_eq!(data[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1]);
        assert_eq!(data[16..20], [0, 0, 0, 24]);
        assert_eq!(data.len(), 28);
    }
}
