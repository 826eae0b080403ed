//! An archive as bytes: a file or standard input, unpacked if gzip or zstd compressed it.
//!
//! Promises: a stream that does not verify (gzip's CRC and size, zstd's checksum, a member or frame
//! that is cut, bytes behind the last one) fails with `InvalidData` or `UnexpectedEof`, at the
//! latest where its end is read; several gzip members or zstd frames are one archive; zeros behind
//! the last gzip member, which tapes add, are none. Errors of the system keep their kind.
//! Tested in `tests/it/archives.rs`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;

use crate::error::{Failure, Result};

/// Bytes read at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes that tell a compression.
const SNIFF_BYTES: usize = 10;
const GZIP: &[u8] = &[0x1F, 0x8B, 8];
const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];

/// Compressions that are named but not read: start, name, the program that unpacks it.
const OTHERS: &[(&[u8], &str, &str)] = &[
    (&[0xFD, b'7', b'z', b'X', b'Z', 0], "xz", "xz -dc"),
    (&[b'L', b'Z', b'I', b'P', 1], "lzip", "lzip -dc"),
    (&[0x5D, 0, 0], "lzma", "xz -dc"),
    (&[0x04, 0x22, 0x4D, 0x18], "lz4", "lz4 -dc"),
    (&[0x02, 0x21, 0x4C, 0x18], "lz4", "lz4 -dc"),
    (&[0x89, b'L', b'Z', b'O', 0], "lzop", "lzop -dc"),
    (&[0x1F, 0x9D], "compress", "gzip -dc"),
    (&[0x1F, 0xA0], "compress", "gzip -dc"),
];
/// bzip2 has a digit in the middle of its start.
const BZIP2: (&[u8], &[u8]) = (b"BZh", &[0x31, 0x41, 0x59, 0x26, 0x53, 0x59]);

/// Opens an archive; `-` is standard input.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let failed = |err: io::Error| Failure::host(path, &err);
    let mut file: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).map_err(failed)?),
    };
    let mut start = Vec::new();
    file.by_ref().take(SNIFF_BYTES as u64).read_to_end(&mut start).map_err(failed)?;
    let unread = unread_compression(&start);
    if let Some((name, program)) = unread {
        let text = format!(
            "{}: the archive is compressed by {name}, which is not supported; decompress it in a \
             pipe, as `{program} FILE | syncline import - IMAGE`",
            path.display()
        );
        return Err(Failure::Unsupported(text));
    }
    let whole = Cursor::new(start.clone()).chain(file);
    Ok(decoded(&start, BufReader::with_capacity(BUFFER_BYTES, Box::new(whole))))
}

fn unread_compression(start: &[u8]) -> Option<(&'static str, &'static str)> {
    if start.starts_with(BZIP2.0) && start.get(4..) == Some(BZIP2.1) {
        return Some(("bzip2", "bzip2 -dc"));
    }
    let found = OTHERS.iter().find(|(magic, ..)| start.starts_with(magic));
    found.map(|(_, name, program)| (*name, *program))
}

/// Frames of zstd that hold no data, in front of others (pzstd).
fn is_skippable(start: &[u8]) -> bool {
    matches!(start, [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..])
}

fn decoded(start: &[u8], from: BufReader<Box<dyn Read>>) -> Box<dyn Read> {
    if start.starts_with(GZIP) {
        return Box::new(Gzip { member: Some(GzDecoder::new(from)) });
    }
    if start.starts_with(ZSTD) || is_skippable(start) {
        return match zstd::Decoder::with_buffer(from) {
            Ok(decoder) => Box::new(Zstd(decoder)),
            Err(err) => Box::new(Broken(Some(err))),
        };
    }
    Box::new(from)
}

/// A decoder's own complaints as damage; what the system says about the file stays as it is.
fn damaged(err: io::Error) -> io::Error {
    match err.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::Interrupted => err,
        _ if err.raw_os_error().is_some() => err,
        _ => io::Error::new(io::ErrorKind::InvalidData, err),
    }
}

/// Members of gzip, one after the other.
struct Gzip<R: BufRead> {
    /// None behind the last.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    /// The next member, behind any zeros; none at the end.
    fn next(mut from: R) -> io::Result<Option<GzDecoder<R>>> {
        let mut padded = false;
        loop {
            let bytes = from.fill_buf()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            match bytes.get(zeros) {
                Some(_) if padded || zeros > 0 => {
                    let text = "bytes after the end of the compressed data";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                Some(_) => return Ok(Some(GzDecoder::new(from))),
                None if bytes.is_empty() => return Ok(None),
                None => {
                    padded = true;
                    from.consume(zeros);
                }
            }
        }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        while let Some(member) = &mut self.member {
            // The trailer is checked by the read that finds the end.
            match member.read(into).map_err(damaged)? {
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

struct Zstd<'a, R: BufRead>(zstd::Decoder<'a, R>);

impl<R: BufRead> Read for Zstd<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(damaged)
    }
}

/// A decoder that could not be made: its error comes with the first read.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
