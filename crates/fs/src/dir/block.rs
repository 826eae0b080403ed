//! One block of directory entries: look for a name and for room, pack a chosen few. The format
//! itself is [`syncline_ondisk::dir`].
//!
//! Promises: nothing is allocated per entry; a scan ends at the first broken entry. An insert never
//! moves an entry that is already there, so offsets are stable cookies in linear directories; only
//! [`pack`] (leaf splits) moves entries. Tested through `tests.rs`.

use syncline_ondisk::OndiskError;
use syncline_ondisk::dir::{self, DirFormat, Dirent, Entries, entry_bytes};

/// The result of looking for a name in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// It is here.
    Found {
        /// Offset of the entry.
        offset: usize,
        /// Its inode number.
        ino: u32,
        /// Its stored file type.
        file_type: u8,
    },
    /// It is not, and whether there is room for it.
    Absent {
        /// Whether an entry with the name would fit.
        room: bool,
    },
}

/// Looks for `name`, and for room for it, in one pass.
pub(crate) fn scan(block: &[u8], format: &DirFormat, name: &[u8]) -> Result<Scan, OndiskError> {
    let need = entry_bytes(name.len());
    let mut room = false;
    for entry in Entries::new(block, format) {
        let entry = entry?;
        // Names of one directory often begin alike: the last byte tells most of them apart.
        let alike = entry.name.len() == name.len() && entry.name.last() == name.last();
        if alike && entry.inode != 0 && entry.name == name {
            let (offset, ino, file_type) = (entry.offset, entry.inode, entry.file_type);
            return Ok(Scan::Found { offset, ino, file_type });
        }
        room = room || entry.rec_len - used_bytes(&entry) >= need;
    }
    Ok(Scan::Absent { room })
}

/// Bytes of an entry that its name needs, 0 for a free one.
pub(crate) fn used_bytes(entry: &Dirent<'_>) -> usize {
    if entry.inode == 0 { 0 } else { entry_bytes(entry.name.len()) }
}

/// Makes `to` a block with the entries of `from` at the offsets `chosen`, in that order.
pub(crate) fn pack(
    from: &[u8],
    to: &mut [u8],
    format: &DirFormat,
    chosen: impl Iterator<Item = usize>,
) -> Result<(), OndiskError> {
    use syncline_ondisk::bytes::{put_bytes, put_le16};
    dir::init_empty(to, format);
    let usable = if format.tail { to.len().saturating_sub(dir::TAIL_BYTES) } else { to.len() };
    let mut at = 0;
    let mut last = None;
    for offset in chosen {
        let entry = match Entries::from_offset(from, format, offset).next() {
            Some(entry) => entry?,
            None => return Err(OndiskError::usage("directory block", "no entry to move")),
        };
        let size = entry_bytes(entry.name.len());
        if size > usable - at {
            return Err(OndiskError::Full { what: "directory block" });
        }
        // Header and name as they are, then the length this place gives.
        put_bytes(to, at, from.get(offset..offset + 8 + entry.name.len()).unwrap_or(&[]));
        put_le16(to, at + 4, dir::rec_len_to_disk(size, to.len()));
        last = Some(at);
        at += size;
    }
    if let Some(last) = last {
        put_le16(to, last + 4, dir::rec_len_to_disk(usable - last, to.len()));
    }
    Ok(())
}
