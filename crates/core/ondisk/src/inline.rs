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
//! Promises: no bytes make these functions panic or allocate more than the inode's size. Read only.
//! Tested here and, on what Linux and debugfs write, in `syncline-fs`.

use crate::bytes::le32;
use crate::dir::{self, DirFormat, Entries, entry_bytes, put_entry};
use crate::error::{OndiskError, Result};
use crate::inode::{I_BLOCK_BYTES, I_BLOCK_OFFSET, Inode};
use crate::xattr::{self, Place};

const WHAT: &str = "inline data";
/// `e_name_index` of `system.`.
const INDEX_SYSTEM: u8 = 7;
/// Bytes of the parent's number in a directory.
const PARENT_BYTES: usize = 4;

/// The inline bytes of an inode whose slot is `slot`, as many as are stored. Corrupt: there is no
/// xattr `system.data`, or it has its value elsewhere.
pub fn stored(raw: &Inode, slot: &[u8]) -> Result<Vec<u8>> {
    Ok([raw.i_block.as_slice(), value(raw, slot)?].concat())
}

fn value<'a>(raw: &Inode, slot: &'a [u8]) -> Result<&'a [u8]> {
    let area = raw.xattr_range(slot.len()).and_then(|range| slot.get(range)).unwrap_or(&[]);
    let found = xattr::get(area, Place::Inode, INDEX_SYSTEM, b"data")?;
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

/// Makes of the inline bytes of directory `ino` what they are in a block: `.`, `..` and the
/// entries, without a checksum tail. Corrupt: a chain of entries is broken, or does not fit.
pub fn dir_block(data: &[u8], ino: u32, format: &DirFormat, block_size: usize) -> Result<Vec<u8>> {
    let format = DirFormat { tail: false, ..*format };
    let mut block = vec![0; block_size];
    dir::init_dots(&mut block, &format, ino, parent(data));
    let mut last = (entry_bytes(1), entry_bytes(2));
    let (Some(first), Some(second)) =
        (data.get(PARENT_BYTES..I_BLOCK_BYTES), data.get(I_BLOCK_BYTES..))
    else {
        return Err(OndiskError::corrupt(WHAT, format!("only {} bytes", data.len())));
    };
    for entry in Entries::new(first, &format).chain(Entries::new(second, &format)) {
        let entry = entry?;
        if entry.inode == 0 {
            continue;
        }
        let at = last.0 + last.1;
        let rest = block_size.saturating_sub(at);
        if entry_bytes(entry.name.len()) > rest {
            return Err(OndiskError::corrupt(WHAT, "more entries than a block holds"));
        }
        dir::set_rec_len(&mut block, last.0, last.1);
        put_entry(&mut block, &format, at, rest, (entry.inode, entry.file_type, entry.name));
        last = (at, entry_bytes(entry.name.len()));
    }
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::{put_bytes, put_le32};
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
        let format = DirFormat { tail: false, ..FORMAT };
        Entries::new(&block, &format).map(|e| e.map(|e| (e.name.to_vec(), e.inode))).collect()
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
    fn data_is_in_the_block_field_and_in_the_attribute() {
        let mut raw = Inode::new(S_IFDIR, 32);
        put_bytes(&mut raw.i_block, 0, &[1; 60]);
        let mut slot = vec![0; 256];
        raw.encode_into(&mut slot, None).unwrap();
        assert!(stored(&raw, &slot).is_err(), "no attribute");
        assert!(stored(&raw, &slot[..128]).is_err(), "no room for one");
        let mut set = XattrSet::default();
        set.set(INDEX_SYSTEM, b"data", &[2; 40]).unwrap();
        set.encode_inode(&mut slot[160..]).unwrap();
        assert_eq!(stored(&raw, &slot).unwrap(), [[1; 60].as_slice(), &[2; 40]].concat());
    }
}
