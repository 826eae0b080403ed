//! From the connection to the first request.

use std::io::{self, Read, Write};

use syncline_device::Geometry;

use super::protocol::*;

/// Options of one handshake, at most.
const OPTIONS_MAX: usize = 256;
/// Zeros behind the answer to the oldest option.
const ZEROES: usize = 124;
/// Preferred block size, in bytes.
const PREFERRED_BYTES: u32 = 4096;
/// Minimum block size, in bytes. The server serves parts of a sector, too, as a read and a write.
const MINIMUM_BYTES: u32 = 512;

/// Options agreed on with the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Agreed {
    pub(crate) structured: bool,
}

fn broken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Returns the flags that tell clients which requests the device takes.
pub(crate) fn transmission_flags(geometry: Geometry, structured: bool) -> u16 {
    let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_WRITE_ZEROES | CAN_MULTI_CONN;
    if geometry.discard {
        flags |= SEND_TRIM;
    }
    if geometry.read_only {
        flags |= READ_ONLY;
    }
    if structured {
        flags |= SEND_DF;
    }
    flags
}

/// The handshake; `None` if the client did not want to go on.
///
/// # Errors
/// The connection ended, or what came is not the protocol.
pub(crate) fn handshake(
    mut stream: impl Read + Write,
    name: &str,
    geometry: Geometry,
) -> io::Result<Option<Agreed>> {
    let mut hello = Vec::new();
    hello.extend(MAGIC.to_be_bytes());
    hello.extend(OPTION_MAGIC.to_be_bytes());
    hello.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    stream.write_all(&hello)?;
    let flags = u32_of(&mut stream)?;
    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(broken("unknown flags of the client"));
    }
    let no_zeroes = flags & u32::from(NO_ZEROES) != 0;
    let mut agreed = Agreed { structured: false };
    for _ in 0..OPTIONS_MAX {
        if u64_of(&mut stream)? != OPTION_MAGIC {
            return Err(broken("an option was expected"));
        }
        let (option, length) = (u32_of(&mut stream)?, u32_of(&mut stream)?);
        if length > OPTION_BYTES_MAX {
            option_reply(&mut stream, option, REP_ERR_TOO_BIG, b"too long")?;
            return Ok(None);
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        let known = |asked: &[u8]| asked.is_empty() || asked == name.as_bytes();
        match option {
            OPT_EXPORT_NAME => {
                if !known(&data) {
                    return Ok(None);
                }
                stream.write_all(&export_answer(geometry, agreed.structured, no_zeroes))?;
                return Ok(Some(agreed));
            }
            OPT_ABORT => {
                option_reply(&mut stream, option, REP_ACK, &[])?;
                return Ok(None);
            }
            OPT_STRUCTURED_REPLY if data.is_empty() => {
                agreed.structured = true;
                option_reply(&mut stream, option, REP_ACK, &[])?;
            }
            OPT_LIST if data.is_empty() => {
                let entry = [&(name.len() as u32).to_be_bytes(), name.as_bytes()].concat();
                option_reply(&mut stream, option, REP_SERVER, &entry)?;
                option_reply(&mut stream, option, REP_ACK, &[])?;
            }
            OPT_LIST | OPT_STRUCTURED_REPLY => {
                option_reply(&mut stream, option, REP_ERR_INVALID, b"it takes no data")?;
            }
            OPT_INFO | OPT_GO => match asked(&data) {
                None => option_reply(&mut stream, option, REP_ERR_INVALID, b"bad lengths")?,
                Some((asked, _)) if !known(asked) => {
                    let why = format!("the only export is `{name}`");
                    option_reply(&mut stream, option, REP_ERR_UNKNOWN, why.as_bytes())?;
                }
                Some((_, kinds)) => {
                    inform(&mut stream, option, &kinds, name, geometry, agreed.structured)?;
                    if option == OPT_GO {
                        return Ok(Some(agreed));
                    }
                }
            },
            _ => option_reply(&mut stream, option, REP_ERR_UNSUP, b"not supported")?,
        }
    }
    Err(broken("too many options"))
}

fn export_answer(geometry: Geometry, structured: bool, no_zeroes: bool) -> Vec<u8> {
    let mut answer = Vec::new();
    answer.extend(geometry.size_bytes.to_be_bytes());
    answer.extend(transmission_flags(geometry, structured).to_be_bytes());
    if !no_zeroes {
        answer.extend([0; ZEROES]);
    }
    answer
}

/// Name and wanted informations of `INFO` and `GO`.
fn asked(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (count, rest) = rest.split_first_chunk::<2>()?;
    let whole = rest.len() == 2 * usize::from(u16::from_be_bytes(*count));
    let kinds = rest.chunks_exact(2).map(|kind| u16::from_be_bytes([kind[0], kind[1]]));
    whole.then(|| (name, kinds.collect()))
}

fn inform(
    stream: &mut impl Write,
    option: u32,
    kinds: &[u16],
    name: &str,
    geometry: Geometry,
    structured: bool,
) -> io::Result<()> {
    let mut export = INFO_EXPORT.to_be_bytes().to_vec();
    export.extend(export_answer(geometry, structured, true));
    option_reply(stream, option, REP_INFO, &export)?;
    if kinds.contains(&INFO_NAME) {
        let named = [&INFO_NAME.to_be_bytes(), name.as_bytes()].concat();
        option_reply(stream, option, REP_INFO, &named)?;
    }
    if kinds.contains(&INFO_BLOCK_SIZE) {
        let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
        for bytes in [MINIMUM_BYTES, PREFERRED_BYTES, PAYLOAD_BYTES_MAX] {
            sizes.extend(bytes.to_be_bytes());
        }
        option_reply(stream, option, REP_INFO, &sizes)?;
    }
    option_reply(stream, option, REP_ACK, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_info_have_to_fit() {
        let good = [0, 0, 0, 1, b'x', 0, 2, 0, 0, 0, 3];
        assert_eq!(asked(&good), Some((b"x".as_slice(), vec![INFO_EXPORT, INFO_BLOCK_SIZE])));
        for end in 0..good.len() {
            assert_eq!(asked(&good[..end]), None, "{end}");
        }
        assert_eq!(asked(&[0xff; 11]), None);
    }
}
