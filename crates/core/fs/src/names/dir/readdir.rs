//! Reading directories with cookies that survive changes.
//!
//! ```text
//!   hash order (indexed, or one block on a dir_index volume)      offset order (all others)
//!   position = hash >> 1 (31 bits) | minor hash (32 bits)         position = block * size + offset
//!   "." is at 0, ".." at 1, names from 2 on                       "." is at 0, ".." at 12
//! ```
//! A cookie is the smallest position not yet returned. In hash order a position depends on the name
//! only, so inserts, deletes, leaf splits and the conversion from one block to an index neither
//! repeat nor skip a name that is there all the time (that is why one-block directories use hash
//! order already, as ext4 does). In offset order entries never move.
//!
//! Legacy hashes have no minor hash; there the crc32c of the name takes its place. Names that agree
//! in all 63 bits are returned together; a reader that stops between two such names skips the rest
//! of them (ext4 keeps them in the open file, which a cookie cannot).
//!
//! Memory: the entries of one leaf, or of one run of leaves with the same hash. Tested in
//! `tests.rs` and `tests/it/namespace*.rs`.

use std::sync::Arc;

use syncline_ondisk::OndiskError;
use syncline_ondisk::checksum::crc32c;
use syncline_ondisk::dir::{DirFormat, Dirent, Entries, file_type};
use syncline_ondisk::htree::{HASH_CONTINUES, HashKind, HashVersion};
use syncline_ondisk::{inode, nokey};

use crate::error::Result;
use crate::names::dir::htree::{self, Path};
use crate::names::dir::store::{BlockKind, DirParams, DirRead};
use crate::names::dir::{dots, too_many_leaves};

/// File type in a directory entry (EXT4_FT_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// Not stored; look at the inode.
    Unknown,
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A symbolic link.
    Symlink,
}

impl FileKind {
    /// From the stored file type; anything unknown is [`FileKind::Unknown`].
    pub(crate) fn from_file_type(stored: u8) -> FileKind {
        match stored {
            file_type::REG_FILE => FileKind::Regular,
            file_type::DIR => FileKind::Directory,
            file_type::CHRDEV => FileKind::CharDevice,
            file_type::BLKDEV => FileKind::BlockDevice,
            file_type::FIFO => FileKind::Fifo,
            file_type::SOCK => FileKind::Socket,
            file_type::SYMLINK => FileKind::Symlink,
            _ => FileKind::Unknown,
        }
    }

    /// Type bits of a mode; 0 for [`FileKind::Unknown`].
    pub fn type_bits(self) -> u16 {
        match self {
            FileKind::Unknown => 0,
            FileKind::Regular => inode::S_IFREG,
            FileKind::Directory => inode::S_IFDIR,
            FileKind::CharDevice => inode::S_IFCHR,
            FileKind::BlockDevice => inode::S_IFBLK,
            FileKind::Fifo => inode::S_IFIFO,
            FileKind::Socket => inode::S_IFSOCK,
            FileKind::Symlink => inode::S_IFLNK,
        }
    }
}

/// One entry as [`crate::Volume::readdir`] gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub ino: u32,
    /// File type, as far as the entry has it.
    pub kind: FileKind,
    /// The name, 1 to 255 bytes.
    pub name: &'a [u8],
    /// Cookie at which reading continues after this entry.
    pub next_cookie: u64,
}

struct Item {
    position: u64,
    /// Hashes that an encrypted name is shown with.
    hash: [u32; 2],
    block: usize,
    offset: usize,
}

/// Some entries in cookie order, detached from the directory.
pub(crate) struct Batch {
    blocks: Vec<Arc<[u8]>>,
    items: Vec<Item>,
    dots: Vec<(u64, u32)>,
    format: DirFormat,
    encrypted: bool,
    /// Cookie behind this batch; `None` at the end of the directory.
    pub next: Option<u64>,
}

impl Batch {
    /// Inode number and file type of the entry whose name `is_it`.
    pub(crate) fn find(&self, is_it: impl Fn(&[u8]) -> bool) -> Option<(u32, u8)> {
        self.items.iter().find_map(|item| {
            let block = self.blocks.get(item.block)?;
            let entry = Entries::from_offset(block, &self.format, item.offset).next()?.ok()?;
            is_it(entry.name).then_some((entry.inode, entry.file_type))
        })
    }

    /// Calls `sink` for each entry; false if it wanted no more.
    pub(crate) fn deliver(&self, sink: &mut dyn FnMut(DirEntry<'_>) -> bool) -> bool {
        for (position, ino) in &self.dots {
            let name: &[u8] = if *position == 0 { b"." } else { b".." };
            let next_cookie = position + 1;
            if !sink(DirEntry { ino: *ino, kind: FileKind::Directory, name, next_cookie }) {
                return false;
            }
        }
        for item in &self.items {
            let Some(block) = self.blocks.get(item.block) else { continue };
            let mut entries = Entries::from_offset(block, &self.format, item.offset);
            let Some(Ok(entry)) = entries.next() else { continue };
            let kind = FileKind::from_file_type(entry.file_type);
            let next_cookie = item.position + 1;
            let is_cipher = self.encrypted && !matches!(entry.name, b"." | b"..");
            let shown = is_cipher.then(|| nokey::encode(item.hash, entry.name));
            let name = shown.as_deref().unwrap_or(entry.name);
            if !sink(DirEntry { ino: entry.inode, kind, name, next_cookie }) {
                return false;
            }
        }
        true
    }
}

/// The entries at `cookie` and behind, as many as one leaf has.
pub(crate) fn read_batch<D: DirRead>(dir: &D, cookie: u64) -> Result<Batch> {
    let (format, encrypted) = (dir.params().format, dir.params().encrypted);
    let (blocks, items, dots) = (Vec::new(), Vec::new(), Vec::new());
    let mut batch = Batch { blocks, items, dots, format, encrypted, next: None };
    if dir.blocks() == 0 {
        return Ok(batch);
    }
    if dir.params().dir_index && (dir.indexed() || dir.blocks() == 1) {
        read_hashed(dir, cookie, &mut batch)?;
    } else {
        read_linear(dir, cookie, &mut batch)?;
    }
    Ok(batch)
}

fn read_linear<D: DirRead>(dir: &D, cookie: u64, batch: &mut Batch) -> Result<()> {
    let block_size = dir.block_size() as u64;
    let first = u32::try_from(cookie / block_size).unwrap_or(u32::MAX);
    if first >= dir.blocks() {
        return Ok(());
    }
    let bytes = dir.block(first, BlockKind::Leaf)?;
    let base = u64::from(first) * block_size;
    for entry in Entries::new(&bytes, &batch.format) {
        let entry = entry.map_err(|err| dir.broken(first, err))?;
        let position = base + entry.offset as u64;
        if entry.inode != 0 && position >= cookie {
            batch.items.push(Item { position, hash: [0; 2], block: 0, offset: entry.offset });
        }
    }
    batch.blocks.push(bytes);
    batch.next = (first + 1 < dir.blocks()).then_some(base + block_size);
    Ok(())
}

/// Position of an entry, and its hashes.
fn position(
    params: &DirParams,
    hash: &HashKind,
    block: &[u8],
    entry: &Dirent<'_>,
) -> (u64, [u32; 2]) {
    let [major, minor] = match hash.version {
        HashVersion::SipHash => entry.stored_hash(block),
        _ => {
            let hash = params.hash_of(hash, entry.name);
            [hash.major, hash.minor]
        }
    };
    let low = match hash.version {
        HashVersion::Legacy | HashVersion::LegacyUnsigned => crc32c(!0, entry.name),
        _ => minor,
    };
    ((u64::from(major >> 1) << 32 | u64::from(low)).max(2), [major, minor])
}

fn collect<D: DirRead>(
    dir: &D,
    lblk: u32,
    hash: &HashKind,
    cookie: u64,
    batch: &mut Batch,
) -> Result<()> {
    let bytes = dir.block(lblk, BlockKind::Leaf)?;
    let block = batch.blocks.len();
    for (nth, entry) in Entries::new(&bytes, &batch.format).enumerate() {
        let entry = entry.map_err(|err| dir.broken(lblk, err))?;
        if entry.inode == 0 || lblk == 0 && nth < 2 {
            continue;
        }
        let (position, hash) = position(dir.params(), hash, &bytes, &entry);
        if position >= cookie {
            batch.items.push(Item { position, hash, block, offset: entry.offset });
        }
    }
    batch.blocks.push(bytes);
    Ok(())
}

fn read_hashed<D: DirRead>(dir: &D, cookie: u64, batch: &mut Batch) -> Result<()> {
    if cookie < 2 {
        for (nth, dot) in (0..).zip(dots(dir)?) {
            if nth >= cookie {
                batch.dots.push((nth, dot.ino));
            }
        }
    }
    if dir.indexed() {
        let hash = u32::try_from(cookie >> 32 << 1).unwrap_or(u32::MAX);
        let path = htree::walk(dir, |_| hash)?;
        read_run(dir, path, cookie, batch)?;
    } else {
        collect(dir, 0, &dir.params().hash.clone(), cookie, batch)?;
    }
    batch.items.sort_by_key(|item| item.position);
    Ok(())
}

/// The leaf of `path` and those that continue its last hash.
fn read_run<D: DirRead>(dir: &D, mut path: Path, cookie: u64, batch: &mut Batch) -> Result<()> {
    let hash = path.hash;
    for _ in 0..dir.blocks() {
        collect(dir, path.leaf, &hash, cookie, batch)?;
        let Some(next) = path.next_hash() else { return Ok(()) };
        if next & HASH_CONTINUES == 0 {
            let behind = u64::from(next >> 1) << 32;
            if behind <= cookie {
                let err = OndiskError::corrupt("htree node", "hashes do not ascend");
                return Err(dir.broken(0, err));
            }
            // Names before this hash are all in the batch.
            batch.next = Some(behind);
            return Ok(());
        }
        path.advance(dir)?;
    }
    Err(too_many_leaves(dir))
}
