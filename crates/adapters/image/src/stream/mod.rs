//! Compressed bytes as what was compressed: gzip, zstd, xz, bzip2 and lz4, known by their start.
//!
//! ```text
//!   file, pipe, part of a file -> sniff -> decoder -> Ahead (a thread) -> reader of the archive
//! ```
//!
//! Promises
//! - A stream that does not verify (a wrong checksum or size, a member or frame that is cut, bytes
//!   behind the last one) fails with `InvalidData` or `UnexpectedEof`, at the latest where its end
//!   is read. Errors of the system keep their kind.
//! - Several members, streams or frames are one. Zeros behind the last gzip member, which tapes
//!   add, and padding of xz are none.
//! - No stream gets more than [`DICTIONARY_KIB`] of memory (zstd: 128 MiB).
//!
//! Tested in `cli/tests/it/archives.rs` with the programs that compress.

#[cfg(any(unix, windows))]
mod ahead;
mod gzip;
mod lz4;
#[cfg(all(feature = "ruzstd", not(feature = "zstd")))]
mod zstd;

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

#[cfg(any(unix, windows))]
pub(crate) use ahead::Ahead;

#[cfg(any(unix, windows))]
use crate::stoppable::Stoppable;
use crate::{ImageError, Result};

/// Bytes read at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes that tell a compression.
const SNIFF_BYTES: usize = 10;
/// Memory of a decoder of xz; `xz -9` needs 65 MiB.
const DICTIONARY_KIB: u32 = 256 << 10;

const GZIP: &[u8] = &[0x1F, 0x8B, 8];
const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];
const XZ: &[u8] = &[0xFD, b'7', b'z', b'X', b'Z', 0];
const LZ4: &[u8] = &[0x04, 0x22, 0x4D, 0x18];
/// bzip2 has a digit in the middle of its start.
const BZIP2: (&[u8], &[u8]) = (b"BZh", &[0x31, 0x41, 0x59, 0x26, 0x53, 0x59]);
/// A bzip2 of nothing.
const BZIP2_EMPTY: &[u8] = &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90];

/// Compressions that are named but not read: start, name, the program that unpacks it.
const OTHERS: &[(&[u8], &str, &str)] = &[
    (&[b'L', b'Z', b'I', b'P', 1], "lzip", "lzip -dc"),
    (&[0x5D, 0, 0], "lzma", "xz -dc"),
    (&[0x02, 0x21, 0x4C, 0x18], "lz4 in its old format", "lz4 -dc"),
    (&[0x89, b'L', b'Z', b'O', 0], "lzop", "lzop -dc"),
    (&[0x1F, 0x9D], "compress", "gzip -dc"),
    (&[0x1F, 0xA0], "compress", "gzip -dc"),
];

/// Bytes that another thread may read.
pub type Bytes = Box<dyn Read + Send>;

/// Opens a file as what is compressed in it; `-` is standard input. Reads end when `stopped` says
/// so.
///
/// # Errors
/// As of open(2) and read(2); a compression that is not supported.
#[cfg(any(unix, windows))]
pub fn open(path: &Path, stopped: fn() -> bool) -> Result<Box<dyn Read>> {
    let (whole, is_compressed) = decoded(raw(path, stopped)?, path)?;
    Ok(if is_compressed { Box::new(Ahead::new(whole)) } else { whole })
}

/// Size of a file that is not compressed; none of a pipe.
pub fn plain_size(path: &Path) -> Option<u64> {
    let size = std::fs::metadata(path).ok().filter(|meta| meta.is_file())?.len();
    let mut start = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(SNIFF_BYTES as u64).read_to_end(&mut start).ok()?;
    let compressed =
        is_compressed(&start) || is_skippable(&start) || unread_compression(&start).is_some();
    (!compressed).then_some(size)
}

/// Opens a file; `-` is standard input.
#[cfg(any(unix, windows))]
pub(crate) fn raw(path: &Path, stopped: fn() -> bool) -> Result<Bytes> {
    let opened = match path == Path::new("-") {
        true => Stoppable::standard_input(stopped),
        false => Stoppable::open(path, stopped),
    };
    Ok(Box::new(opened.map_err(|err| ImageError::host(path, &err))?))
}

/// The bytes, decompressed, and whether they were compressed. `path` is for messages.
pub(crate) fn decoded(from: Bytes, path: &Path) -> Result<(Bytes, bool)> {
    let failed = |err: io::Error| ImageError::host(path, &err);
    let (start, from) = sniffed(from).map_err(failed)?;
    if let Some((name, program)) = unread_compression(&start) {
        let text = format!(
            "{}: the archive is compressed by {name}, which is not supported; decompress it in a \
             pipe, as `{program} FILE | syncline import - IMAGE`",
            path.display()
        );
        return Err(ImageError::Unsupported(text));
    }
    let from = BufReader::with_capacity(BUFFER_BYTES, from);
    let decoder: Bytes = if start.starts_with(GZIP) {
        Box::new(Damaged(gzip::Gzip::new(from)))
    } else if start.starts_with(ZSTD) || is_skippable(&start) {
        of_zstd(from).map_err(failed)?
    } else if start.starts_with(XZ) {
        Box::new(Damaged(lzma_rust2::XzReader::new_mem_limit(from, true, DICTIONARY_KIB)))
    } else if start.starts_with(LZ4) {
        Box::new(Damaged(lz4::Lz4::new(from)))
    } else if is_bzip2(&start) {
        Box::new(Damaged(bzip2::bufread::MultiBzDecoder::new(from)))
    } else {
        return Ok((Box::new(from), false));
    };
    Ok((decoder, true))
}

/// Unpacks bytes that begin with a zstd frame; the rest is ignored.
pub(crate) fn unzstd(bytes: Vec<u8>, len: u64) -> io::Result<Vec<u8>> {
    let mut whole = Vec::new();
    let from: Bytes = Box::new(io::Cursor::new(bytes));
    of_zstd(BufReader::new(from))?.take(len).read_to_end(&mut whole)?;
    Ok(whole)
}

#[cfg(feature = "zstd")]
fn of_zstd(from: BufReader<Bytes>) -> io::Result<Bytes> {
    Ok(Box::new(Damaged(zstd::Decoder::with_buffer(from)?)))
}

#[cfg(all(feature = "ruzstd", not(feature = "zstd")))]
fn of_zstd(from: BufReader<Bytes>) -> io::Result<Bytes> {
    Ok(Box::new(Damaged(zstd::Zstd::new(from))))
}

#[cfg(not(any(feature = "zstd", feature = "ruzstd")))]
fn of_zstd(_: BufReader<Bytes>) -> io::Result<Bytes> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "zstd is no part of this build"))
}

/// Returns whether bytes that begin so are compressed by what is read here. A skippable frame says
/// nothing about the rest.
pub fn is_compressed(start: &[u8]) -> bool {
    let known = [GZIP, ZSTD, XZ, LZ4].iter().any(|magic| start.starts_with(magic));
    known || is_bzip2(start.get(..SNIFF_BYTES).unwrap_or(start))
}

/// The first bytes, and all bytes.
fn sniffed(mut from: Bytes) -> io::Result<(Vec<u8>, Bytes)> {
    let mut start = Vec::new();
    from.by_ref().take(SNIFF_BYTES as u64).read_to_end(&mut start)?;
    Ok((start.clone(), Box::new(io::Cursor::new(start).chain(from))))
}

fn is_bzip2(start: &[u8]) -> bool {
    let block = start.get(4..);
    start.starts_with(BZIP2.0) && (block == Some(BZIP2.1) || block == Some(BZIP2_EMPTY))
}

fn unread_compression(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let found = OTHERS.iter().find(|(magic, ..)| start.starts_with(magic));
    found.map(|(_, name, program)| (*name, *program))
}

/// Frames of zstd and lz4 that hold no data, in front of others (pzstd).
fn is_skippable(start: &[u8]) -> bool {
    matches!(start, [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..])
}

/// Fails unless nothing, or nothing but zeros, is left.
fn only_zeros(from: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.iter().any(|byte| *byte != 0) {
            let text = "bytes after the end of the compressed data";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let len = bytes.len();
        from.consume(len);
    }
}

/// A decoder whose own complaints are damage; what the system says about the file stays as it is.
struct Damaged<R>(R);

impl<R: Read> Read for Damaged<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        self.0.read(into).map_err(|err| match err.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::Interrupted => err,
            _ if err.raw_os_error().is_some() => err,
            _ => io::Error::new(io::ErrorKind::InvalidData, err),
        })
    }
}
