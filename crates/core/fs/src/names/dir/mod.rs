//! Directories: names to inode numbers.
//!
//! ```text
//!   namei (operations on inodes, journal handles)
//!     |
//!   dir::{probe, insert, remove, set_ino, read_batch}   one directory, locked by the caller
//!     |-- linear   every block in order
//!     |-- htree    by hash
//!     |-- readdir  cookies
//!     |-- nokey    encrypted names
//!     |-- block    one block's bytes
//!     `-- store    DirRead / DirWrite: where blocks come from
//! ```
//!
//! Promises
//! - A name occurs once: the caller probes before it inserts, under the directory's write lock.
//! - Every error names inode, block and offset; no image makes an operation loop or panic.
//! - An insert or remove in an indexed directory changes one block, unless a leaf is full.
//!
//! Tested in each file, in `tests.rs` against a model, and in `tests/it/namespace*.rs` with e2fsck.

pub(crate) mod block;
pub(crate) mod htree;
pub(crate) mod linear;
pub(crate) mod live;
pub(crate) mod nokey;
pub(crate) mod readdir;
pub(crate) mod store;
#[cfg(test)]
mod tests;

use syncline_ondisk::OndiskError;
use syncline_ondisk::dir::{self as disk, Entries};

use crate::error::{FsError, Result};
use crate::names::dir::store::{BlockKind, DirRead, DirWrite, ROOT};

pub use readdir::{DirEntry, FileKind};

/// An entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Logical block of the directory.
    pub lblk: u32,
    /// Offset of the entry in it.
    pub offset: usize,
    /// Inode number.
    pub ino: u32,
    /// Stored file type.
    pub file_type: u8,
}

/// The answer to [`probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// The name is there.
    Found(Found),
    /// It is not; it may go into this logical block. Valid while the directory stays locked.
    Absent(Option<u32>),
}

/// Looks `name` up.
pub(crate) fn probe<D: DirRead>(dir: &D, name: &[u8]) -> Result<Probe> {
    if name == b"." || name == b".." {
        let [dot, dotdot] = dots(dir)?;
        return Ok(Probe::Found(if name == b"." { dot } else { dotdot }));
    }
    if dir.indexed() { htree::lookup(dir, name) } else { linear::lookup(dir, name) }
}

/// The entries `.` and `..`, which are the first two of block 0.
pub(crate) fn dots<D: DirRead>(dir: &D) -> Result<[Found; 2]> {
    let bytes = dir.block(0, first_kind(dir))?;
    let format = dir.params().first_format(dir.indexed());
    let mut entries = Entries::new(&bytes, &format);
    let mut next = |name: &[u8]| match entries.next() {
        Some(Ok(entry)) if entry.name == name && entry.inode != 0 => {
            let (offset, ino, file_type) = (entry.offset, entry.inode, entry.file_type);
            Ok(Found { lblk: 0, offset, ino, file_type })
        }
        Some(Err(err)) => Err(dir.broken(0, err)),
        _ => {
            let detail = "a directory does not begin with . and ..";
            Err(dir.broken(0, OndiskError::corrupt("directory block", detail)))
        }
    };
    Ok([next(b".")?, next(b"..")?])
}

/// Adds `name`, which [`probe`] did not find; `place` is the result of [`probe`].
pub(crate) fn insert<D: DirWrite>(
    dir: &mut D,
    entry: (&[u8], u32, u8),
    place: Option<u32>,
) -> Result<()> {
    if let Some(lblk) = place {
        return put(dir, lblk, entry);
    }
    if !dir.indexed() {
        if dir.blocks() != 1 || !dir.params().dir_index {
            return linear::append(dir, entry);
        }
        htree::convert(dir)?;
    }
    htree::insert(dir, entry)
}

/// Adds an entry to a block that has room for it.
fn put<D: DirWrite>(dir: &mut D, lblk: u32, entry: (&[u8], u32, u8)) -> Result<()> {
    let format = dir.params().format;
    dir.edit(lblk, BlockKind::Leaf, |bytes| {
        disk::insert(bytes, &format, entry.0, entry.1, entry.2).map(|_| ())
    })
}

/// Removes an entry that [`probe`] found, the directory having been locked since.
pub(crate) fn remove<D: DirWrite>(dir: &mut D, found: &Found) -> Result<()> {
    let format = dir.params().format;
    dir.edit(found.lblk, BlockKind::Leaf, |bytes| disk::remove(bytes, &format, found.offset))
}

/// Points an entry that [`probe`] or [`dots`] found to another inode.
pub(crate) fn set_ino<D: DirWrite>(
    dir: &mut D,
    found: &Found,
    ino: u32,
    file_type: u8,
) -> Result<()> {
    let first = found.lblk == 0;
    let kind = if first { first_kind(dir) } else { BlockKind::Leaf };
    let format = dir.params().first_format(first && dir.indexed());
    dir.edit(found.lblk, kind, |bytes| {
        disk::set_inode(bytes, &format, found.offset, ino, file_type)
    })
}

fn first_kind<D: DirRead>(dir: &D) -> BlockKind {
    if dir.indexed() { ROOT } else { BlockKind::Leaf }
}

/// True if only `.` and `..` are left.
pub(crate) fn is_empty<D: DirRead>(dir: &D) -> Result<bool> {
    if dir.blocks() == 0 {
        return Ok(true);
    }
    dots(dir)?;
    if !dir.indexed() {
        for lblk in 0..dir.blocks() {
            if !leaf_is_empty(dir, lblk)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let mut path = htree::walk(dir, |_| 0)?;
    for _ in 0..dir.blocks() {
        if !leaf_is_empty(dir, path.leaf)? {
            return Ok(false);
        }
        if !path.advance(dir)? {
            return Ok(true);
        }
    }
    Err(too_many_leaves(dir))
}

fn leaf_is_empty<D: DirRead>(dir: &D, lblk: u32) -> Result<bool> {
    let bytes = dir.block(lblk, BlockKind::Leaf)?;
    for (nth, entry) in Entries::new(&bytes, &dir.params().format).enumerate() {
        let entry = entry.map_err(|err| dir.broken(lblk, err))?;
        if entry.inode != 0 && !(lblk == 0 && nth < 2) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The error for an index that names more leaves than the directory has blocks.
pub(crate) fn too_many_leaves<D: DirRead>(dir: &D) -> FsError {
    let detail = "the index names more leaves than the directory has blocks";
    dir.broken(0, OndiskError::corrupt("htree node", detail))
}
