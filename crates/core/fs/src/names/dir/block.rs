//! One block of directory entries: look for a name and for room, pack a chosen few. The format
//! itself is [`syncline_ondisk::dir`].
//!
//! Promises: nothing is allocated per entry; a scan ends at the first broken entry. An insert never
//! moves an entry that is already there, so offsets are stable cookies in linear directories; only
//! [`pack`] (leaf splits) moves entries. Tested through `tests.rs`.

use syncline_ondisk::OndiskError;
use syncline_ondisk::bytes::le64;
use syncline_ondisk::dir::{self, DirFormat, Dirent, Entries, entry_bytes};

use crate::store::dir_format::Fold;

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
        /// True if an entry with the name would fit.
        room: bool,
    },
}

/// Looks for `name`, and for room for it, in one pass.
///
/// Blocks were checked entry by entry when they were loaded, so this pass reads each header as one
/// word and checks only what keeps it inside of the block.
pub(crate) fn scan(block: &[u8], format: &DirFormat, name: &[u8]) -> Result<Scan, OndiskError> {
    let need = entry_bytes(name.len());
    let tail = if format.tail { dir::TAIL_BYTES } else { 0 };
    let end = block.len().saturating_sub(tail);
    let last = name.last().copied();
    let mut room = false;
    let mut at = 0;
    while at < end {
        let header = le64(block, at);
        let rec_len = dir::rec_len_from_disk((header >> 32 & 0xffff) as u16, block.len());
        let name_len = (header >> 48 & 0xff) as usize;
        let used = if header as u32 == 0 { 0 } else { entry_bytes(name_len) };
        if rec_len < entry_bytes(1) || rec_len > end - at || used > rec_len {
            return Err(first_broken(block, format));
        }
        // Names of one directory often begin alike: the last byte tells most of them apart.
        if used > 0 && name_len == name.len() && block.get(at + 7 + name_len).copied() == last {
            let start = at + 8;
            if block.get(start..start + name_len) == Some(name) {
                let file_type = if format.filetype { (header >> 56) as u8 } else { 0 };
                return Ok(Scan::Found { offset: at, ino: header as u32, file_type });
            }
        }
        room = room || rec_len - used >= need;
        at += rec_len;
    }
    Ok(Scan::Absent { room })
}

/// As [`scan`] in a directory that folds case. A name that is not valid has only its own bytes, and
/// so have `.` and `..`, to which other names fold.
pub(crate) fn scan_folded(
    block: &[u8],
    format: &DirFormat,
    name: &[u8],
    fold: &Fold,
) -> Result<Scan, OndiskError> {
    let need = entry_bytes(name.len());
    let folded = fold.compared(name);
    let mut room = false;
    for entry in Entries::new(block, format) {
        let entry = entry?;
        let same = || match &folded {
            Some(folded) if !matches!(entry.name, b"." | b"..") => {
                fold.compared(entry.name).is_some_and(|other| other == *folded)
            }
            _ => false,
        };
        if entry.inode != 0 && (entry.name == name || same()) {
            let (offset, ino, file_type) = (entry.offset, entry.inode, entry.file_type);
            return Ok(Scan::Found { offset, ino, file_type });
        }
        room = room || entry.rec_len - used_bytes(&entry) >= need;
    }
    Ok(Scan::Absent { room })
}

/// The error for the first entry that breaks a rule.
fn first_broken(block: &[u8], format: &DirFormat) -> OndiskError {
    let broken = Entries::new(block, format).find_map(Result::err);
    broken.unwrap_or_else(|| OndiskError::corrupt("directory block", "an entry is broken"))
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
