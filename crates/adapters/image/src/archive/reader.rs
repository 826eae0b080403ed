//! Members of an archive, one after the other: headers, extended headers, long names.
//!
//! Only regular files have data behind the header: the size of a link, directory or device says
//! nothing about the archive, as GNU tar and bsdtar have it.

use std::io::Read;
use std::path::Path;

use tar::Header;

use super::pax::{self, Records, bad, number};
use super::{BLOCK_BYTES, EXTENDED_BYTES_MAX, attributes, fields, sparse, volumes};
use syncline_ondisk::bytes::is_zero;

use crate::copy::side::{Meta, Xattr};
use crate::{ImageError, Result, Watch};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Bytes read at once of what is left out.
const CHUNK_BYTES: u64 = 1 << 20;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;

/// Types of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file, a directory, a symbolic link, a pipe or device: the mode has the type.
    Inode,
    /// A hard link to an earlier member.
    Link,
}

/// The last value of a key, if it is not empty.
pub(crate) type Of<'a> = dyn Fn(&[u8]) -> Option<Vec<u8>> + 'a;

/// A member without its data.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) kind: Kind,
    /// Names of owner and group.
    pub(crate) owner: (Vec<u8>, Vec<u8>),
    /// Type and permissions, owner, size, times.
    pub(crate) meta: Meta,
    pub(crate) xattrs: Vec<Xattr>,
    /// Start and length of each run of data; one of the whole size where the file is not sparse.
    pub(crate) runs: sparse::Runs,
    /// Remarks on what could not be kept.
    pub(crate) remarks: Vec<String>,
}

/// An archive that is read once.
pub(crate) struct Reader<'a> {
    from: &'a mut dyn Read,
    /// Volumes of a multi-volume archive that come after it, the next one last.
    volumes: Vec<&'a mut dyn Read>,
    /// The first block of a volume, where it is a header of the archive.
    block: Option<[u8; BLOCK_BYTES]>,
    /// Bytes of the member's data that were not read, with the padding.
    left: u64,
    padding: u64,
    global: Records,
}

/// Bytes behind data of this size; a size that no archive has ends early in any case.
fn padding(size: u64) -> u64 {
    size.checked_next_multiple_of(BLOCK).map_or(0, |end| end - size)
}

pub(super) fn failed(err: &std::io::Error) -> ImageError {
    match err.kind() {
        std::io::ErrorKind::UnexpectedEof => bad("it ends early"),
        // A checksum of its compression, or what it is made of.
        std::io::ErrorKind::InvalidData => bad(&crate::plain(err)),
        _ => ImageError::host(Path::new("the archive"), err),
    }
}

/// A header whose sum is right.
pub(super) fn checked(block: &[u8; BLOCK_BYTES]) -> Result<Header> {
    let header = Header::from_byte_slice(block).clone();
    let summed = || block[..148].iter().chain(&[b' '; 8]).chain(&block[156..]);
    let unsigned: i64 = summed().map(|byte| i64::from(*byte)).sum();
    // Some systems took bytes for signed.
    let signed: i64 = summed().map(|byte| i64::from(*byte as i8)).sum();
    let stored = fields::signed(&header.as_old().cksum).ok();
    if stored != Some(unsigned) && stored != Some(signed) {
        return Err(bad("a header with a wrong checksum, or this is not a tar archive"));
    }
    Ok(header)
}

impl<'a> Reader<'a> {
    pub(crate) fn new(from: &'a mut dyn Read) -> Reader<'a> {
        let (volumes, global) = (Vec::new(), Records::new());
        Reader { from, volumes, block: None, left: 0, padding: 0, global }
    }

    /// All volumes of an archive, in order.
    pub(crate) fn of_volumes(mut volumes: Vec<&'a mut dyn Read>) -> Option<Reader<'a>> {
        volumes.reverse();
        let from = volumes.pop()?;
        Some(Reader { volumes, ..Reader::new(from) })
    }

    /// Reads until the buffer is full or the last volume ends; the bytes read. `behind`: bytes of
    /// data that follow in the member.
    fn fill(&mut self, into: &mut [u8], behind: Option<u64>) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            if let Some(block) = self.block.take() {
                // Only whole blocks are read where a header may be.
                rest.copy_from_slice(&block);
                return Ok(done + BLOCK_BYTES);
            }
            let rest_bytes = rest.len() as u64;
            match self.from.read(rest) {
                Ok(0) => match self.volumes.pop() {
                    Some(next) => {
                        self.from = next;
                        let left = behind.map(|behind| behind.saturating_add(rest_bytes));
                        self.block = volumes::start(self.from, left)?;
                    }
                    None => break,
                },
                Ok(n) => done += n,
                Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
                Err(err) => return Err(failed(&err)),
            }
        }
        Ok(done)
    }

    fn fill_all(&mut self, into: &mut [u8], behind: Option<u64>) -> Result<()> {
        match self.fill(into, behind)? == into.len() {
            true => Ok(()),
            false => Err(bad("it ends early")),
        }
    }

    /// The next member; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Member>> {
        let mut records = self.global.clone();
        let (mut path, mut link) = (None, None);
        loop {
            self.skip()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let kind = header.as_bytes()[156];
            if has_data(kind) {
                self.begin(fields::unsigned(&header.as_old().size)?);
            }
            match kind {
                // Solaris writes them as X.
                b'x' | b'X' => records.extend(pax::decode(&self.extended()?)?),
                b'g' => {
                    let more = pax::decode(&self.extended()?)?;
                    records.extend(more.iter().cloned());
                    // Those that are given again are not kept twice: a header may be repeated.
                    self.global.retain(|(known, _)| more.iter().all(|(key, _)| key != known));
                    self.global.extend(more);
                    bounded(&self.global)?;
                }
                b'L' => path = Some(name(self.extended()?)),
                b'K' => link = Some(name(self.extended()?)),
                // The label of a volume.
                b'V' => {}
                b'M' | b'N' => return Err(refused(&header, kind)),
                _ => return self.member(&header, &records, path, link).map(Some),
            }
            bounded(&records)?;
        }
    }

    /// The next block that is a header; none where the archive ends.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut block = [0; BLOCK_BYTES];
        match self.fill(&mut block, None)? {
            // Without the two empty blocks: cut between two members, or written so.
            0 => return Ok(None),
            BLOCK_BYTES => {}
            _ => return Err(bad("it ends early")),
        }
        if is_zero(&block) {
            return Ok(None);
        }
        checked(&block).map(Some)
    }

    /// Reads what is behind the last member: compressed data verifies where it ends, and a program
    /// that writes into a pipe must not lose its reader.
    pub(crate) fn finish(&mut self, watch: &dyn Watch) -> Result<()> {
        loop {
            watch.check()?;
            let mut part = (&mut *self.from).take(CHUNK_BYTES);
            let read =
                std::io::copy(&mut part, &mut std::io::sink()).map_err(|err| failed(&err))?;
            if read == 0 {
                let Some(next) = self.volumes.pop() else { return Ok(()) };
                self.from = next;
            }
        }
    }

    /// Returns the bytes up to the next header, which the caller passes over in place of this.
    pub(crate) fn pass(&mut self) -> u64 {
        std::mem::take(&mut self.left).saturating_add(std::mem::take(&mut self.padding))
    }

    /// The next member has so many bytes of data.
    fn begin(&mut self, size: u64) {
        (self.left, self.padding) = (size, padding(size));
    }

    /// A block that is no part of the member's data.
    pub(super) fn read_block(&mut self, into: &mut [u8]) -> Result<()> {
        self.fill_all(into, None)
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
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<()> {
        let left = self.left.checked_sub(into.len() as u64);
        self.left = left.ok_or_else(|| bad("a sparse map with more data than there is"))?;
        self.fill_all(into, Some(self.left))
    }

    /// Goes to the end of the member's data.
    fn skip(&mut self) -> Result<()> {
        let (data, mut left) = (self.left, self.pass());
        let padding = left - data;
        loop {
            let skipped = std::io::copy(&mut self.from.take(left), &mut std::io::sink());
            left -= skipped.map_err(|err| failed(&err))?;
            if left == 0 {
                return Ok(());
            }
            self.from = self.volumes.pop().ok_or_else(|| bad("it ends early"))?;
            volumes::start(self.from, Some(left.saturating_sub(padding)))?;
        }
    }

    fn member(
        &mut self,
        header: &Header,
        records: &Records,
        path: Option<Vec<u8>>,
        link: Option<Vec<u8>>,
    ) -> Result<Member> {
        // The last of several counts; an empty one takes earlier ones back.
        let of = |key: &[u8]| {
            let last = records.iter().rev().find(|(known, _)| known == key);
            last.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
        };
        let owner = |key: &[u8], field: &[u8]| match of(key).and_then(|value| number(&value)) {
            Some(id) => u32::try_from(id).map_err(|_| bad("an owner of more than 32 bits")),
            None => fields::narrow(field),
        };
        let old = header.as_old();
        let kind = header.as_bytes()[156];
        let path = of(b"GNU.sparse.name").or_else(|| of(b"path")).or(path);
        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        // Archives before POSIX: a file whose name ends in a slash is a directory.
        let old_dir = type_of(kind) == REGULAR && kind != b'1' && path.ends_with(b"/");
        let file_type = if old_dir { DIRECTORY } else { type_of(kind) };
        let (size, runs) = match (file_type, kind) {
            (REGULAR, kind) if kind != b'1' => self.data(header, records, &of)?,
            // Names in a directory, which are left out.
            (_, b'D') => (0, Vec::new()),
            _ => {
                self.begin(0);
                (0, Vec::new())
            }
        };
        let mtime = match of(b"mtime").and_then(|text| pax::time(&text)) {
            Some(time) => time,
            None => (fields::signed(&old.mtime)?, 0),
        };
        let permissions = u32::try_from(fields::unsigned(&old.mode)? & 0o7777).unwrap_or(0);
        let mut found = attributes::read(records, permissions);
        found.xattrs.retain(|(name, _)| has_attribute(file_type, name));
        if !is_known(kind) {
            let shown = char::from(kind).escape_default();
            found
                .remarks
                .push(format!("a member of the unknown type `{shown}`, read as a regular file"));
        }
        let meta = Meta {
            mode: file_type | found.mode.unwrap_or(permissions),
            uid: owner(b"uid", &old.uid)?,
            gid: owner(b"gid", &old.gid)?,
            size,
            nlink: 1,
            id: (0, 0),
            rdev: device(header, kind)?,
            atime: of(b"atime").and_then(|text| pax::time(&text)).unwrap_or(mtime),
            mtime,
        };
        Ok(Member {
            path,
            link: of(b"linkpath")
                .or(link)
                .unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned()),
            kind: if kind == b'1' { Kind::Link } else { Kind::Inode },
            owner: (
                of(b"uname").unwrap_or_else(|| owner_name(header.username_bytes())),
                of(b"gname").unwrap_or_else(|| owner_name(header.groupname_bytes())),
            ),
            meta,
            xattrs: found.xattrs,
            runs,
            remarks: found.remarks,
        })
    }
}

impl Reader<'_> {
    /// Size and runs of the data of a file, which begins next.
    fn data(
        &mut self,
        header: &Header,
        records: &Records,
        of: &Of<'_>,
    ) -> Result<(u64, sparse::Runs)> {
        if let Some(size) = of(b"size").and_then(|value| number(&value)) {
            self.begin(size);
        }
        let mapped = sparse::map(self, header, records, of)?;
        Ok(mapped.unwrap_or_else(|| (self.left, vec![(0, self.left)])))
    }
}

/// Reports whether a size in the header means data behind it.
fn has_data(kind: u8) -> bool {
    !matches!(kind, b'1'..=b'6')
}

/// Extended headers are kept in memory.
fn bounded(records: &Records) -> Result<()> {
    let bytes = records.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
    match bytes > EXTENDED_BYTES_MAX {
        true => Err(bad("extended headers of more than 8 MiB")),
        false => Ok(()),
    }
}

fn refused(header: &Header, kind: u8) -> ImageError {
    let path = header.path_bytes();
    let text = match kind {
        b'M' => {
            "goes on from another volume of a multi-volume archive; give -M and all volumes, the \
             first one first"
        }
        _ => "a member of GNU tar's old type `N` (long names); repack it with a newer tar",
    };
    ImageError::Unsupported(format!("{}: {text}", path.escape_ascii()))
}

/// The type of a file in its mode. POSIX has files of unknown types be regular ones.
fn type_of(kind: u8) -> u32 {
    match kind {
        b'2' => SYMLINK,
        b'3' => 0o020_000,
        b'4' => 0o060_000,
        // D: a directory of `tar -g`, with the names in it as data.
        b'5' | b'D' => DIRECTORY,
        b'6' => 0o010_000,
        _ => REGULAR,
    }
}

/// Reports whether files of a type have the attribute: ACLs are not for links, and default ones for
/// directories only.
fn has_attribute(file_type: u32, name: &[u8]) -> bool {
    match file_type {
        DIRECTORY => true,
        SYMLINK => name != syncline_fs::acl::DEFAULT && name != syncline_fs::acl::ACCESS,
        _ => name != syncline_fs::acl::DEFAULT,
    }
}

fn is_known(kind: u8) -> bool {
    matches!(kind, 0 | b'0'..=b'7' | b'S' | b'D')
}

/// The number of a device file, as Linux encodes it.
fn device(header: &Header, kind: u8) -> Result<u64> {
    // GNU's headers have the numbers where POSIX has them.
    let bytes = header.as_bytes();
    match kind {
        b'3' | b'4' if &bytes[257..262] == b"ustar" => {
            let (major, minor) =
                (fields::narrow(&bytes[329..337])?, fields::narrow(&bytes[337..345])?);
            Ok(syncline_fs::makedev(major, minor))
        }
        _ => Ok(0),
    }
}

/// A name of an owner; headers before POSIX have none.
fn owner_name(field: Option<&[u8]>) -> Vec<u8> {
    name(field.unwrap_or_default().to_vec())
}

/// Without the zero at its end.
fn name(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}
