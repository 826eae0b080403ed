//! Files of the mounted volume, read.

use syncline_fs::{FileKind, InodeRef, bits, type_letter};

use crate::failure::{Failure, Result};
use crate::json::Json;
use crate::session::Session;

/// Names that one call lists at most.
const NAMES_MAX: usize = 1000;

/// Seconds with nanoseconds of a time.
fn seconds(time: syncline_fs::Timestamp) -> f64 {
    time.seconds as f64 + f64::from(time.nanoseconds) / 1e9
}

fn kind_of(mode: u16) -> &'static str {
    match mode & bits::S_IFMT {
        bits::S_IFREG => "file",
        bits::S_IFDIR => "directory",
        bits::S_IFLNK => "symlink",
        bits::S_IFCHR => "character",
        bits::S_IFBLK => "block",
        bits::S_IFIFO => "fifo",
        _ => "socket",
    }
}

/// The kind that an entry has, where its inode cannot be read.
fn kind_of_entry(kind: FileKind) -> &'static str {
    match kind.type_bits() {
        0 => "unknown",
        mode => kind_of(mode),
    }
}

impl Session {
    pub(crate) fn find(&self, path: &[u8]) -> Result<InodeRef> {
        Ok(self.vol()?.resolve_nofollow(path)?)
    }

    fn attributes(&self, json: &mut Json, inode: &InodeRef) -> Result<()> {
        let vol = self.vol()?;
        let attr = vol.getattr(inode);
        json.number("inode", attr.ino);
        json.text("type", kind_of(attr.mode));
        json.number("mode", attr.mode & 0o7777);
        let letters: String =
            [type_letter(attr.mode)].into_iter().chain(rights(attr.mode)).collect();
        json.text("modeText", &letters);
        json.number("uid", attr.uid);
        json.number("gid", attr.gid);
        json.number("links", attr.nlink);
        json.number("size", attr.size);
        json.number("blocks", attr.blocks);
        json.number("device", attr.rdev);
        json.number("mtime", seconds(attr.mtime));
        json.number("atime", seconds(attr.atime));
        json.number("ctime", seconds(attr.ctime));
        json.number("crtime", seconds(attr.crtime));
        json.number("flags", attr.flags);
        if inode.is_symlink() {
            json.bytes("target", &vol.readlink(inode)?);
        }
        Ok(())
    }

    /// Names of a directory from `cookie` on, each with its attributes; where to go on.
    ///
    /// # Errors
    /// No directory; I/O; a damaged directory.
    pub fn list(&self, path: &[u8], cookie: u64) -> Result<String> {
        let vol = self.vol()?;
        let dir = vol.resolve(path)?;
        let (mut entries, mut next) = (Vec::new(), None);
        vol.readdir_unseen(&dir, cookie, &mut |entry| {
            if entries.len() == NAMES_MAX {
                return false;
            }
            next = Some(entry.next_cookie);
            if entry.name != b"." && entry.name != b".." {
                entries.push((entry.name.to_vec(), entry.ino, entry.kind));
            }
            true
        })?;
        let is_full = entries.len() == NAMES_MAX;
        let json = Json::object(|json| {
            json.list("entries", |json| {
                for (name, ino, kind) in &entries {
                    json.member(None, |json| {
                        json.bytes("name", name);
                        let mut attributes = Json::default();
                        let read = vol.iget(*ino).map_err(Failure::from);
                        match read.and_then(|inode| self.attributes(&mut attributes, &inode)) {
                            Ok(()) => json.joined(&attributes),
                            // Others are listed all the same.
                            Err(failure) => {
                                json.number("inode", *ino);
                                json.text("type", kind_of_entry(*kind));
                                json.text("error", &failure.message);
                            }
                        }
                    });
                }
            });
            if let Some(next) = next.filter(|_| is_full) {
                json.text("next", &next.to_string());
            }
        });
        Ok(json.0)
    }

    /// Attributes of a file.
    ///
    /// # Errors
    /// No such file; I/O.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<String> {
        let inode = if follow { self.vol()?.resolve(path)? } else { self.find(path)? };
        let mut done = Ok(());
        let json = Json::object(|json| done = self.attributes(json, &inode));
        done.map(|()| json.0)
    }

    /// Extended attributes of a file: names, and values in hexadecimal.
    ///
    /// # Errors
    /// No such file; I/O.
    pub fn xattrs(&self, path: &[u8]) -> Result<String> {
        let (vol, inode) = (self.vol()?, self.find(path)?);
        let names = vol.listxattr(&inode)?;
        let values = names.iter().map(|name| vol.getxattr(&inode, name));
        let values = values.collect::<std::result::Result<Vec<_>, _>>()?;
        let json = Json::object(|json| {
            json.list("xattrs", |json| {
                for (name, value) in names.iter().zip(&values) {
                    json.member(None, |json| {
                        json.bytes("name", name);
                        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                        json.text("value", &hex);
                    });
                }
            });
        });
        Ok(json.0)
    }

    /// Reads at most `len` bytes of a file at `at`; fewer only at its end. `into` grows to hold
    /// them.
    ///
    /// # Errors
    /// No such file; a directory; I/O.
    pub fn read(&self, path: &[u8], at: u64, len: u32, into: &mut Vec<u8>) -> Result<usize> {
        let (vol, mut done) = (self.vol()?, 0);
        let inode = vol.resolve(path)?;
        let left = vol.getattr(&inode).size.saturating_sub(at);
        let len = left.min(len.into()) as usize;
        if into.len() < len {
            into.resize(len, 0);
        }
        let into = into.get_mut(..len).unwrap_or_default();
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match vol.read_unseen(&inode, at + done as u64, rest)? {
                0 => break,
                len => done += len,
            }
        }
        Ok(done)
    }

    /// Where the contents of a file are: triples of place in the file, place on the part, length.
    /// They are not plain if they are in the inode or wait to be written.
    ///
    /// # Errors
    /// As of [`Volume::fiemap`](syncline_fs::Volume::fiemap).
    pub fn extents(&self, path: &[u8]) -> Result<String> {
        let vol = self.vol()?;
        let inode = vol.resolve(path)?;
        let size = vol.getattr(&inode).size;
        let extents = vol.fiemap(&inode, 0, size)?;
        let is_plain = extents.iter().all(|extent| !extent.inline && !extent.delalloc);
        let json = Json::object(|json| {
            json.number("size", size);
            json.flag("plain", is_plain);
            json.list("extents", |json| {
                for extent in extents.iter().filter(|extent| is_plain && !extent.unwritten) {
                    for number in [extent.logical, extent.physical, extent.len] {
                        json.element(number);
                    }
                }
            });
        });
        Ok(json.0)
    }
}

/// Permissions as ls(1) shows them.
fn rights(mode: u16) -> impl Iterator<Item = char> {
    let special = [(11, 's', 'S'), (10, 's', 'S'), (9, 't', 'T')];
    special.into_iter().enumerate().flat_map(move |(nr, (bit, with, without))| {
        let three = mode >> (6 - 3 * nr);
        let letter = |bit: u16, letter: char| if three & bit != 0 { letter } else { '-' };
        let runs = match (mode >> bit & 1 != 0, three & 1 != 0) {
            (true, true) => with,
            (true, false) => without,
            (false, _) => letter(1, 'x'),
        };
        [letter(4, 'r'), letter(2, 'w'), runs]
    })
}
