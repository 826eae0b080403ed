//! Members of an archive, one after the other: headers, extended headers, long names, sparse maps.

use std::io::Read;
use std::path::Path;

use tar::Header;

use super::pax::{self, Records, bad, number};
use super::{BLOCK_BYTES, EXTENDED_BYTES_MAX};
use crate::copy::side::{Meta, Xattr};
use crate::{ImageError, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Prefix of the keys of attributes.
pub(super) const XATTR: &[u8] = b"SCHILY.xattr.";

/// Types of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file, a directory, a symbolic link, a pipe or device: the mode has the type.
    Inode,
    /// A hard link to an earlier member.
    Link,
    /// Of another kind, which is left out.
    Other(u8),
}

/// A member without its data.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) kind: Kind,
    /// Type and permissions, owner, size, times.
    pub(super) meta: Meta,
    pub(super) xattrs: Vec<Xattr>,
    /// Start and length of each run of data; one of the whole size where the file is not sparse.
    pub(super) runs: Vec<(u64, u64)>,
}

/// An archive that is read once.
pub(super) struct Reader<'a> {
    from: &'a mut dyn Read,
    /// Bytes of the member's data that were not read, with the padding.
    left: u64,
    padding: u64,
    global: Records,
}

/// Bytes behind data of this size; a size that no archive has ends early in any case.
fn padding(size: u64) -> u64 {
    size.checked_next_multiple_of(BLOCK).map_or(0, |end| end - size)
}

fn failed(err: &std::io::Error) -> ImageError {
    match err.kind() {
        std::io::ErrorKind::UnexpectedEof => bad("it ends early"),
        _ => ImageError::host(Path::new("the archive"), err),
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(from: &'a mut dyn Read) -> Reader<'a> {
        Reader { from, left: 0, padding: 0, global: Records::new() }
    }

    /// The next member; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Member>> {
        let mut records = self.global.clone();
        let (mut path, mut link) = (None, None);
        loop {
            self.skip()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let size = header.entry_size().map_err(|_| bad("a size that is no number"))?;
            self.left = size;
            self.padding = padding(size);
            match header.as_bytes()[156] {
                b'x' => records.extend(pax::decode(&self.extended()?)?),
                b'g' => {
                    let more = pax::decode(&self.extended()?)?;
                    records.extend(more.iter().cloned());
                    self.global.extend(more);
                }
                b'L' => path = Some(name(self.extended()?)),
                b'K' => link = Some(name(self.extended()?)),
                _ => return self.member(&header, &records, path, link).map(Some),
            }
        }
    }

    /// The next block that is a header; none where the archive ends.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut block = [0; BLOCK_BYTES];
        let mut done = 0;
        while let Some(rest) = block.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.from.read(rest) {
                // Without the two empty blocks: cut between two members, or written so.
                Ok(0) if done == 0 => return Ok(None),
                Ok(0) => return Err(bad("it ends early")),
                Ok(n) => done += n,
                Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
                Err(err) => return Err(failed(&err)),
            }
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        let expected = sum(&block[..148]) + sum(&block[156..]) + 8 * u32::from(b' ');
        if header.cksum().ok() != Some(expected) {
            return Err(bad("a header with a wrong checksum, or this is no tar archive"));
        }
        Ok(Some(header))
    }

    /// All data of a small member.
    fn extended(&mut self) -> Result<Vec<u8>> {
        if self.left > EXTENDED_BYTES_MAX {
            return Err(bad("an extended header of more than 8 MiB"));
        }
        let mut bytes = vec![0; usize::try_from(self.left).unwrap_or(0)];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads data of the member.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<()> {
        let left = self.left.checked_sub(into.len() as u64);
        self.left = left.ok_or_else(|| bad("a sparse map with more data than there is"))?;
        self.from.read_exact(into).map_err(|err| failed(&err))
    }

    /// Goes to the end of the member's data.
    fn skip(&mut self) -> Result<()> {
        let left = std::mem::take(&mut self.left).saturating_add(std::mem::take(&mut self.padding));
        let skipped = std::io::copy(&mut self.from.take(left), &mut std::io::sink());
        if skipped.map_err(|err| failed(&err))? < left {
            return Err(bad("it ends early"));
        }
        Ok(())
    }

    fn member(
        &mut self,
        header: &Header,
        records: &Records,
        path: Option<Vec<u8>>,
        link: Option<Vec<u8>>,
    ) -> Result<Member> {
        // The last of several counts.
        let of = |key: &[u8]| records.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.clone());
        let number_of = |key: &[u8]| of(key).and_then(|value| number(&value));
        let fields = header.as_old();
        let value = |field: &[u8], read: std::io::Result<u64>| match read {
            // Some writers leave fields empty.
            _ if field.iter().all(|byte| matches!(byte, 0 | b' ')) => Ok(0),
            read => read.map_err(|_| bad("a field is no number")),
        };
        let narrow = |n: u64| u32::try_from(n).map_err(|_| bad("an owner of more than 32 bits"));
        if let Some(size) = number_of(b"size") {
            self.left = size;
            self.padding = padding(size);
        }
        let kind = header.as_bytes()[156];
        let file_type = type_of(kind);
        let path = of(b"GNU.sparse.name").or_else(|| of(b"path")).or(path);
        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        // Archives before POSIX: a file whose name ends in a slash is a directory.
        let old_dir = file_type == 0o100_000 && kind != b'1' && path.ends_with(b"/");
        let file_type = if old_dir { 0o040_000 } else { file_type };
        let mode = value(&fields.mode, header.mode().map(u64::from))?;
        let permissions = u32::try_from(mode & 0o7777).unwrap_or(0);
        let seconds = i64::try_from(value(&fields.mtime, header.mtime())?).unwrap_or(i64::MAX);
        let mtime = of(b"mtime").and_then(|text| pax::time(&text)).unwrap_or((seconds, 0));
        let (mut size, runs) = self.runs(header, kind, &of)?;
        if file_type != 0o100_000 {
            size = 0;
        }
        let meta = Meta {
            mode: file_type | permissions,
            uid: narrow(number_of(b"uid").map_or_else(|| value(&fields.uid, header.uid()), Ok)?)?,
            gid: narrow(number_of(b"gid").map_or_else(|| value(&fields.gid, header.gid()), Ok)?)?,
            size,
            nlink: 1,
            id: (0, 0),
            rdev: device(header, kind),
            atime: of(b"atime").and_then(|text| pax::time(&text)).unwrap_or(mtime),
            mtime,
        };
        let xattr = |(key, value): &(Vec<u8>, Vec<u8>)| {
            key.strip_prefix(XATTR).map(|name| (name.to_vec(), value.clone()))
        };
        Ok(Member {
            path,
            link: of(b"linkpath")
                .or(link)
                .unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned()),
            kind: match kind {
                b'1' => Kind::Link,
                _ if file_type == 0 => Kind::Other(kind),
                _ => Kind::Inode,
            },
            meta,
            xattrs: records.iter().filter_map(xattr).collect(),
            runs,
        })
    }

    /// Size and runs of data of a file.
    fn runs(
        &mut self,
        header: &Header,
        kind: u8,
        of: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<(u64, Vec<(u64, u64)>)> {
        let (size, runs) = if kind == b'S' {
            self.old_sparse(header)?
        } else if of(b"GNU.sparse.major").as_deref() == Some(b"1") {
            let size = of(b"GNU.sparse.realsize").and_then(|text| number(&text));
            (size.ok_or_else(|| bad("a sparse file without a size"))?, self.sparse_map()?)
        } else if of(b"GNU.sparse.size").is_some() || of(b"GNU.sparse.map").is_some() {
            let text = "the archive has sparse files of format 0.x; make it with `tar \
                        --sparse-version=1.0`";
            return Err(ImageError::Unsupported(text.into()));
        } else {
            return Ok((self.left, vec![(0, self.left)]));
        };
        let mut end = 0;
        for (start, len) in &runs {
            let stop = start.checked_add(*len).filter(|stop| *start >= end && *stop <= size);
            end = stop.ok_or_else(|| bad("a sparse map that is out of order"))?;
        }
        Ok((size, runs))
    }

    /// GNU's old format: four runs in the header, more in blocks behind it.
    fn old_sparse(&mut self, header: &Header) -> Result<(u64, Vec<(u64, u64)>)> {
        let gnu = header.as_gnu().ok_or_else(|| bad("a sparse file without a GNU header"))?;
        let size = gnu.real_size().map_err(|_| bad("a sparse file without a size"))?;
        let mut runs = Vec::new();
        let mut add = |run: &tar::GnuSparseHeader| -> Result<()> {
            if !run.is_empty() {
                let number = |field: std::io::Result<u64>| field.map_err(|_| bad("a sparse map"));
                runs.push((number(run.offset())?, number(run.length())?));
            }
            Ok(())
        };
        gnu.sparse.iter().try_for_each(&mut add)?;
        let mut extended = gnu.is_extended();
        let mut blocks = 0;
        while extended {
            let mut more = tar::GnuExtSparseHeader::new();
            self.from.read_exact(more.as_mut_bytes()).map_err(|err| failed(&err))?;
            more.sparse().iter().try_for_each(&mut add)?;
            extended = more.is_extended();
            blocks += 1;
            if blocks * BLOCK > EXTENDED_BYTES_MAX {
                return Err(bad("a sparse map of more than 8 MiB"));
            }
        }
        Ok((size, runs))
    }

    /// PAX sparse 1.0: decimal lines in front of the data, in whole blocks.
    fn sparse_map(&mut self) -> Result<Vec<(u64, u64)>> {
        let (mut text, mut block) = (Vec::new(), [0; BLOCK_BYTES]);
        let mut numbers: Vec<u64> = Vec::new();
        loop {
            self.read(&mut block)?;
            text.extend_from_slice(&block);
            let mut rest = &text[..];
            numbers.clear();
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                numbers.push(number(&rest[..end]).ok_or_else(|| bad("a sparse map"))?);
                rest = &rest[end + 1..];
                let wanted = numbers.first().map_or(1, |count| count.saturating_mul(2) + 1);
                if numbers.len() as u64 == wanted {
                    let runs = numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1]));
                    return Ok(runs.collect());
                }
            }
            if text.len() as u64 > EXTENDED_BYTES_MAX {
                return Err(bad("a sparse map of more than 8 MiB"));
            }
        }
    }
}

/// The type of a file in its mode; 0 for members that are none.
fn type_of(kind: u8) -> u32 {
    match kind {
        0 | b'0' | b'1' | b'7' | b'S' => 0o100_000,
        b'2' => 0o120_000,
        b'3' => 0o020_000,
        b'4' => 0o060_000,
        b'5' => 0o040_000,
        b'6' => 0o010_000,
        _ => 0,
    }
}

/// The number of a device file, as Linux encodes it.
fn device(header: &Header, kind: u8) -> u64 {
    let number = |field: std::io::Result<Option<u32>>| field.ok().flatten().unwrap_or(0);
    match kind {
        b'3' | b'4' => {
            let (major, minor) = (header.device_major(), header.device_minor());
            crate::platform::makedev(number(major), number(minor))
        }
        _ => 0,
    }
}

/// Without the zero at its end.
fn name(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}
