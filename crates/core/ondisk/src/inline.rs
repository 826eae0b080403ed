//! Data in the inode (`inline_data`): contents of small files, directories and symbolic links.
//!
//! ```text
//!  file, link: i_block[0..60] | value of the xattr system.data, in the inode
//!  directory:  i_block[0..4] parent | [4..60] chain of entries | value: a second chain
//! ```
//!
//! The xattr is there also when the data fits `i_block`; its value may be empty. Directories have
//! neither `.` nor `..` nor a checksum tail; a chain ends with its last byte. A file may be longer
//! than its inline data (a truncate that made it longer): the rest is a hole.
//!
//! A directory is changed as the begin of a block, where each entry has a fixed place:
//!
//! ```text
//!  . | .. | first chain | second chain | free to the end of the block, or nothing ("area")
//! ```
//!
//! Promises: no bytes make these functions panic or allocate more than the inode's size or a block.
//! Tested here and, on what Linux and debugfs write, in `syncline-fs`.

use crate::bytes::le32;
use crate::dir::{DirFormat, Entries, entry_bytes, file_type, init_tail, put_entry, set_rec_len};
use crate::error::{OndiskError, Result};
use crate::inode::{I_BLOCK_BYTES, I_BLOCK_OFFSET, Inode};
use crate::xattr::{self, Place};

const WHAT: &str = "inline data";
/// `e_name_index` and name of the attribute.
pub const ATTRIBUTE: (u8, &[u8]) = (7, b"data");
/// Bytes of `.` and `..` before the first chain of an area.
const DOTS_BYTES: usize = 24;
/// Bytes of the parent's number in a directory.
const PARENT_BYTES: usize = 4;

/// The inline bytes of an inode whose slot is `slot`, as many as are stored. Corrupt: there is no
/// xattr `system.data`, or it has its value elsewhere.
pub fn stored(raw: &Inode, slot: &[u8]) -> Result<Vec<u8>> {
    Ok([raw.i_block.as_slice(), value(raw, slot)?].concat())
}

fn value<'a>(raw: &Inode, slot: &'a [u8]) -> Result<&'a [u8]> {
    let area = raw.xattr_range(slot.len()).and_then(|range| slot.get(range)).unwrap_or(&[]);
    let found = xattr::get(area, Place::Inode, ATTRIBUTE.0, ATTRIBUTE.1)?;
    found.ok_or_else(|| OndiskError::corrupt(WHAT, "the inode has no attribute system.data"))
}

/// Start and end of the two chains of entries of a directory in the slot of its inode. Corrupt: as
/// [`stored`].
pub fn chains(raw: &Inode, slot: &[u8]) -> Result<[(usize, usize); 2]> {
    let first = (I_BLOCK_OFFSET + PARENT_BYTES, I_BLOCK_OFFSET + I_BLOCK_BYTES);
    let value = value(raw, slot)?;
    if value.is_empty() {
        return Ok([first, (0, 0)]);
    }
    let start = value.as_ptr() as usize - slot.as_ptr() as usize;
    Ok([first, (start, start + value.len())])
}

/// The parent of an inline directory.
#[must_use]
pub fn parent(data: &[u8]) -> u32 {
    le32(data, 0)
}

/// The inline bytes of a new directory.
#[must_use]
pub fn new_dir(parent: u32, format: &DirFormat) -> Vec<u8> {
    let mut data = parent.to_le_bytes().to_vec();
    data.resize(I_BLOCK_BYTES, 0);
    put_entry(&mut data, format, PARENT_BYTES, I_BLOCK_BYTES - PARENT_BYTES, (0, 0, b""));
    data
}

/// Gives a directory that has one chain a second one, up to `room` bytes. False: it has two
/// already, or `room` is too short (`ext4_update_inline_dir`).
pub fn grow_dir(data: &mut Vec<u8>, room: usize, format: &DirFormat) -> bool {
    let more = room.saturating_sub(I_BLOCK_BYTES);
    if data.len() != I_BLOCK_BYTES || more <= entry_bytes(1) {
        return false;
    }
    data.resize(room, 0);
    put_entry(data, format, I_BLOCK_BYTES, more, (0, 0, b""));
    true
}

/// Lays the inline bytes of directory `ino` out as an area. Corrupt: a chain of entries is broken.
pub fn dir_area(data: &[u8], ino: u32, format: &DirFormat) -> Result<Vec<u8>> {
    let format = DirFormat { tail: false, ..*format };
    let (Some(first), Some(second)) =
        (data.get(PARENT_BYTES..I_BLOCK_BYTES), data.get(I_BLOCK_BYTES..))
    else {
        return Err(OndiskError::corrupt(WHAT, format!("only {} bytes", data.len())));
    };
    for chain in [first, second] {
        Entries::new(chain, &format).try_for_each(|entry| entry.map(drop))?;
    }
    let mut area = vec![0; DOTS_BYTES];
    let dot = entry_bytes(1);
    put_entry(&mut area, &format, 0, dot, (ino, file_type::DIR, b"."));
    put_entry(&mut area, &format, dot, DOTS_BYTES - dot, (parent(data), file_type::DIR, b".."));
    Ok([&area, first, second].concat())
}

/// The inline bytes of an area that was changed as a block is. An entry that lost its neighbour
/// beyond the end of a chain does not take its place.
pub fn from_dir_area(mut area: Vec<u8>, format: &DirFormat) -> Result<Vec<u8>> {
    let format = DirFormat { tail: false, ..*format };
    let parent = le32(&area, entry_bytes(1));
    for border in [DOTS_BYTES, DOTS_BYTES + I_BLOCK_BYTES - PARENT_BYTES] {
        let mut across = None;
        for entry in Entries::new(&area, &format) {
            let entry = entry?;
            let end = entry.offset + entry.rec_len;
            if entry.offset < border && end > border {
                across = Some((entry.offset, end));
            }
        }
        if let Some((offset, end)) = across {
            set_rec_len(&mut area, offset, border - offset);
            put_entry(&mut area, &format, border, end - border, (0, 0, b""));
        }
    }
    let chains = area.get(DOTS_BYTES..).unwrap_or(&[]);
    Ok([&parent.to_le_bytes(), chains].concat())
}

/// As [`dir_area`], up to the end of a block, with a checksum tail where the format has one.
/// Corrupt also: it does not fit.
pub fn dir_block(data: &[u8], ino: u32, format: &DirFormat, block_size: usize) -> Result<Vec<u8>> {
    let mut block = dir_area(data, ino, format)?;
    let at = block.len();
    block.resize(block_size.max(at), 0);
    let rest = format.usable(&block).saturating_sub(at);
    if rest < entry_bytes(1) {
        return Err(OndiskError::corrupt(WHAT, "more entries than a block holds"));
    }
    put_entry(&mut block, format, at, rest, (0, 0, b""));
    init_tail(&mut block, format);
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::{put_bytes, put_le32};
    use crate::dir;
    use crate::inode::S_IFDIR;
    use crate::xattr::XattrSet;

    const FORMAT: DirFormat = DirFormat { tail: true, filetype: true, inodes_count: 100 };

    fn chain(bytes: &mut [u8], names: &[(&[u8], u32)]) {
        let format = DirFormat { tail: false, ..FORMAT };
        dir::init_empty(bytes, &format);
        for (name, ino) in names {
            dir::insert(bytes, &format, name, *ino, dir::file_type::REG_FILE).unwrap();
        }
    }

    fn names(data: &[u8]) -> Result<Vec<(Vec<u8>, u32)>> {
        let block = dir_block(data, 12, &FORMAT, 1024)?;
        let entries = Entries::new(&block, &FORMAT).filter(|e| !matches!(e, Ok(e) if e.inode == 0));
        entries.map(|e| e.map(|e| (e.name.to_vec(), e.inode))).collect()
    }

    #[test]
    fn both_chains_and_the_dots_become_one_block() {
        let mut data = vec![0; 60 + 36];
        put_le32(&mut data, 0, 7);
        chain(&mut data[4..60], &[(b"a", 13), (b"second", 14)]);
        chain(&mut data[60..], &[(b"third", 15)]);
        let all = names(&data).unwrap();
        let expected: [(&[u8], u32); 5] =
            [(b".", 12), (b"..", 7), (b"a", 13), (b"second", 14), (b"third", 15)];
        assert!(all.iter().map(|(n, i)| (n.as_slice(), *i)).eq(expected), "{all:?}");
        chain(&mut data[4..60], &[]);
        assert_eq!(names(&data).unwrap().len(), 3);
        assert_eq!(names(&data[..60]).unwrap().len(), 2);
        assert!(names(&data[..40]).is_err(), "the first chain is cut off");
        put_le32(&mut data, 4, 101);
        assert!(names(&data).is_err(), "an inode number out of range");
    }

    #[test]
    fn changes_keep_to_their_chains() {
        let mut data = vec![0; 60 + 36];
        put_le32(&mut data, 0, 7);
        chain(&mut data[4..60], &[(b"a", 13), (b"second", 14)]);
        chain(&mut data[60..], &[(b"third", 15), (b"b", 16)]);
        let format = DirFormat { tail: false, ..FORMAT };
        let change = |data: &[u8], f: &dyn Fn(&mut [u8])| {
            let mut area = dir_area(data, 12, &FORMAT).unwrap();
            f(&mut area);
            let changed = from_dir_area(area, &FORMAT).unwrap();
            assert_eq!(changed.len(), data.len());
            changed
        };
        assert_eq!(change(&data, &|_| {}), data);
        let remove = |data: &[u8], name: &[u8]| {
            change(data, &|area| {
                let found = Entries::new(area, &format).flatten().find(|e| e.name == name);
                let offset = found.unwrap().offset;
                dir::remove(area, &format, offset).unwrap();
            })
        };
        // The first of each chain: the entry before it is in another one.
        let less = remove(&remove(&data, b"third"), b"a");
        let left = names(&less).unwrap();
        let left: Vec<&[u8]> = left.iter().map(|(name, _)| name.as_slice()).collect();
        assert_eq!(left, [&b"."[..], b"..", b"second", b"b"]);
        let more = change(&less, &|area| {
            dir::insert(area, &format, b"x", 17, dir::file_type::REG_FILE).unwrap();
            dir::set_inode(area, &format, 12, 99, dir::file_type::DIR).unwrap();
        });
        assert_eq!(parent(&more), 99);
        assert_eq!(names(&more).unwrap()[2], (b"x".to_vec(), 17));
        let mut area = dir_area(&more, 12, &FORMAT).unwrap();
        let long = [b'n'; 40];
        let full = dir::insert(&mut area, &format, &long, 18, dir::file_type::REG_FILE);
        assert!(matches!(full, Err(OndiskError::Full { .. })));
    }

    #[test]
    fn data_is_in_the_block_field_and_in_the_attribute() {
        let mut raw = Inode::new(S_IFDIR, 32);
        put_bytes(&mut raw.i_block, 0, &[1; 60]);
        let mut slot = vec![0; 256];
        raw.encode_into(&mut slot, None).unwrap();
        assert!(stored(&raw, &slot).is_err(), "no attribute");
        assert!(stored(&raw, &slot[..128]).is_err(), "no room for one");
        let mut set = XattrSet::default();
        set.set(ATTRIBUTE.0, ATTRIBUTE.1, &[2; 40]).unwrap();
        set.encode_inode(&mut slot[160..]).unwrap();
        assert_eq!(stored(&raw, &slot).unwrap(), [[1; 60].as_slice(), &[2; 40]].concat());
    }
}
