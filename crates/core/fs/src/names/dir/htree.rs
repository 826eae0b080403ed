//! Indexed directories: walk, look up, and grow the tree of hashes.
//!
//! ```text
//!   root (block 0) -> [node -> [node ->]] leaf        at most 3 steps, by the hash of the name
//! ```
//! Names with equal hashes may run over several leaves: the index entry of each following leaf has
//! bit 0 set ("continues"), so a lookup goes on while that is so.
//!
//! Promises
//! - A walk takes as many steps as the root says (at most 3); a block that points to one of its own
//!   path, or outside of the directory, is corrupt. A run of leaves is never longer than the
//!   directory. No image makes it loop.
//! - One insert splits at most [`SPLITS_MAX`] blocks. Every state in between is a valid tree.
//! - A split divides a leaf by bytes, as ext4's do_split does, so both halves have room.
//!
//! Source: fs/ext4/namei.c (dx_probe, ext4_htree_next_block, do_split, make_indexed_dir,
//! ext4_dx_add_entry). Tested in `tests.rs` on blocks in memory and in `tests/it/namespace*.rs`.

use std::sync::Arc;

use syncline_ondisk::OndiskError;
use syncline_ondisk::dir::{DirFormat, Entries};
use syncline_ondisk::htree::{
    self as disk, Entry, HASH_CONTINUES, HashKind, HashVersion, Node, NodeKind,
};

use crate::error::{FsError, Result};
use crate::names::dir::block::{self, Scan};
use crate::names::dir::store::{BlockKind, DirParams, DirRead, DirWrite, INNER, ROOT};
use crate::names::dir::{Found, Probe, too_many_leaves};

/// Splits that one insert may do: a new level, each level of the index, the leaf more than once.
const SPLITS_MAX: u32 = 8;

/// One index block on the way to a leaf.
#[derive(Clone, Debug)]
struct Frame {
    lblk: u32,
    kind: NodeKind,
    /// Entry that the way takes, of `count`.
    at: usize,
    count: usize,
    full: bool,
    bytes: Arc<[u8]>,
}

impl Frame {
    fn new<D: DirRead>(dir: &D, lblk: u32, kind: NodeKind) -> Result<Frame> {
        let bytes = dir.block(lblk, BlockKind::Index(kind))?;
        let node = Node::parse_header(&bytes, kind, dir.params().format.tail)
            .map_err(|err| dir.broken(lblk, err))?;
        let (count, full) = (node.len(), node.is_full());
        Ok(Frame { lblk, kind, at: 0, count, full, bytes })
    }

    fn entry(&self, tail: bool, at: usize) -> Option<Entry> {
        Node::parse_header(&self.bytes, self.kind, tail).ok()?.entry(at)
    }
}

/// Path of a hash through the index.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    frames: Vec<Frame>,
    tail: bool,
    /// Logical number of the leaf.
    pub leaf: u32,
    /// Hash of this tree.
    pub hash: HashKind,
}

/// The hash of an indexed directory and the index levels below its root.
fn root_hash<D: DirRead>(dir: &D, root: &[u8]) -> Result<(HashKind, usize)> {
    let params = dir.params();
    let info = disk::root_info(root, params.large_dir).map_err(|err| dir.broken(0, err))?;
    let version = match params.hash.version {
        version @ HashVersion::SipHash if info.hash_version == version.to_disk() => version,
        HashVersion::SipHash => {
            let detail = "the index of an encrypted directory that folds case has no SipHash";
            return Err(dir.broken(0, OndiskError::corrupt("htree root", detail)));
        }
        _ => HashVersion::from_disk(info.hash_version, params.hash_unsigned)
            .map_err(|err| dir.broken(0, err))?,
    };
    let hash = HashKind { version, seed: params.hash.seed };
    Ok((hash, usize::from(info.indirect_levels)))
}

/// Walks to the leaf for the hash that `hash` gives for this tree's hash function.
pub(crate) fn walk<D: DirRead>(dir: &D, hash: impl FnOnce(&HashKind) -> u32) -> Result<Path> {
    let tail = dir.params().format.tail;
    let root = Frame::new(dir, 0, NodeKind::Root)?;
    let (kind, levels) = root_hash(dir, &root.bytes)?;
    let hash = hash(&kind);
    let mut path = Path { frames: Vec::with_capacity(levels + 1), tail, leaf: 0, hash: kind };
    let mut frame = root;
    loop {
        frame.at = match Node::parse_header(&frame.bytes, frame.kind, tail) {
            Ok(node) => node.search(hash),
            Err(err) => return Err(dir.broken(frame.lblk, err)),
        };
        path.frames.push(frame);
        let child = path.child(dir)?;
        if path.frames.len() > levels {
            path.leaf = child;
            return Ok(path);
        }
        frame = Frame::new(dir, child, NodeKind::Inner)?;
    }
}

impl Path {
    /// The block that the last frame points to.
    fn child<D: DirRead>(&self, dir: &D) -> Result<u32> {
        let frame = &self.frames[self.frames.len() - 1];
        let child = frame.entry(self.tail, frame.at).map_or(0, |entry| entry.block);
        let detail = if child >= dir.blocks() {
            "an entry points outside of the directory"
        } else if self.frames.iter().any(|above| above.lblk == child) {
            "an entry points back to its own path"
        } else {
            return Ok(child);
        };
        Err(dir.broken(frame.lblk, OndiskError::corrupt("htree node", detail)))
    }

    /// Hash of the index entry of the next leaf, if there is one.
    pub(crate) fn next_hash(&self) -> Option<u32> {
        let frame = self.frames.iter().rev().find(|frame| frame.at + 1 < frame.count)?;
        frame.entry(self.tail, frame.at + 1).map(|entry| entry.hash)
    }

    /// Moves to the next leaf in hash order; false at the end.
    pub(crate) fn advance<D: DirRead>(&mut self, dir: &D) -> Result<bool> {
        let depth = self.frames.len();
        let Some(up) = self.frames.iter().rposition(|frame| frame.at + 1 < frame.count) else {
            return Ok(false);
        };
        self.frames.truncate(up + 1);
        self.frames[up].at += 1;
        loop {
            let child = self.child(dir)?;
            if self.frames.len() == depth {
                self.leaf = child;
                return Ok(true);
            }
            self.frames.push(Frame::new(dir, child, NodeKind::Inner)?);
        }
    }
}

/// Looks `name` up; if it is not there, says whether the leaf where it belongs has room.
pub(crate) fn lookup<D: DirRead>(dir: &D, name: &[u8]) -> Result<Probe> {
    let mut hash = 0;
    let mut path = walk(dir, |kind| {
        hash = dir.params().hash_of(kind, name).major;
        hash
    })?;
    let first = path.leaf;
    let mut place = None;
    for _ in 0..dir.blocks() {
        let lblk = path.leaf;
        let bytes = dir.block(lblk, BlockKind::Leaf)?;
        let scan = dir.params().scan(&bytes, name);
        match scan.map_err(|err| dir.broken(lblk, err))? {
            Scan::Found { offset, ino, file_type } => {
                return Ok(Probe::Found(Found { lblk, offset, ino, file_type }));
            }
            Scan::Absent { room } if room && lblk == first => place = Some(lblk),
            Scan::Absent { .. } => {}
        }
        // Only a leaf that continues exactly this hash can still hold the name.
        if path.next_hash() != Some(hash | HASH_CONTINUES) || !path.advance(dir)? {
            return Ok(Probe::Absent(place));
        }
    }
    Err(too_many_leaves(dir))
}

/// Adds `entry` to an indexed directory that does not have the name, splitting what is full.
///
/// # Errors
/// [`FsError::NoSpace`] if the tree is at its greatest depth and full.
pub(crate) fn insert<D: DirWrite>(dir: &mut D, entry: (&[u8], u32, u8)) -> Result<()> {
    for _ in 0..SPLITS_MAX {
        let path = walk(dir, |kind| dir.params().hash_of(kind, entry.0).major)?;
        let leaf = path.leaf;
        let bytes = dir.block(leaf, BlockKind::Leaf)?;
        let scan = dir.params().scan(&bytes, entry.0).map_err(|err| dir.broken(leaf, err))?;
        match scan {
            Scan::Absent { room: true } => {
                drop(bytes);
                return super::put(dir, leaf, entry);
            }
            Scan::Absent { room: false } => {}
            Scan::Found { .. } => return Err(FsError::Exists),
        }
        if path.frames.iter().all(|frame| frame.full) {
            deepen(dir, &path)?;
        } else if path.frames.last().is_some_and(|frame| frame.full) {
            split_node(dir, &path)?;
        } else {
            split_leaf(dir, &path, &bytes)?;
        }
    }
    Err(FsError::NoSpace)
}

/// Puts a node between a full root and what it points to.
fn deepen<D: DirWrite>(dir: &mut D, path: &Path) -> Result<()> {
    let params = *dir.params();
    let most = if params.large_dir {
        disk::MAX_INDIRECT_LEVELS_LARGEDIR
    } else {
        disk::MAX_INDIRECT_LEVELS
    };
    if path.frames.len() > usize::from(most) {
        return Err(FsError::NoSpace);
    }
    let mut root = path.frames[0].bytes.to_vec();
    let mut child = vec![0; root.len()];
    let child_block = dir.blocks();
    disk::push_down_root(&mut root, &params.format, &mut child, child_block)
        .map_err(|err| dir.broken(0, err))?;
    dir.append(INNER, &child)?;
    dir.edit(0, ROOT, |block| {
        block.copy_from_slice(&root);
        Ok(())
    })
}

/// Splits the deepest full node whose parent has room.
fn split_node<D: DirWrite>(dir: &mut D, path: &Path) -> Result<()> {
    let format = dir.params().format;
    // The last frame is full and some frame is not: a full one below one with room exists.
    let Some(at) =
        (1..path.frames.len()).rev().find(|at| path.frames[*at].full && !path.frames[*at - 1].full)
    else {
        return Err(FsError::NoSpace);
    };
    let (node, parent) = (&path.frames[at], &path.frames[at - 1]);
    let mut lower = node.bytes.to_vec();
    let mut upper = vec![0; lower.len()];
    let hash = disk::split_node(&mut lower, node.kind, &format, node.count / 2, &mut upper)
        .map_err(|err| dir.broken(node.lblk, err))?;
    let new = dir.append(INNER, &upper)?;
    dir.edit(node.lblk, BlockKind::Index(node.kind), |block| {
        block.copy_from_slice(&lower);
        Ok(())
    })?;
    link(dir, parent, Entry { hash, block: new }, &format)
}

/// Puts `entry` behind the entry of `parent` that the way takes.
fn link<D: DirWrite>(dir: &mut D, parent: &Frame, entry: Entry, format: &DirFormat) -> Result<()> {
    dir.edit(parent.lblk, BlockKind::Index(parent.kind), |block| {
        disk::insert_entry(block, parent.kind, format.tail, parent.at, entry)
    })
}

/// One entry of a leaf that is to be split.
#[derive(Clone, Copy)]
struct Item {
    hash: u32,
    offset: usize,
    bytes: usize,
}

fn items<D: DirRead>(dir: &D, leaf: u32, bytes: &[u8], hash: &HashKind) -> Result<Vec<Item>> {
    let mut items = Vec::with_capacity(bytes.len() / 16);
    for entry in Entries::new(bytes, &dir.params().format) {
        let entry = entry.map_err(|err| dir.broken(leaf, err))?;
        if entry.inode != 0 {
            let hash = dir.params().hash_of(hash, entry.name).major;
            let (offset, bytes) = (entry.offset, block::used_bytes(&entry));
            items.push(Item { hash, offset, bytes });
        }
    }
    Ok(items)
}

/// Returns the position at which items sorted by hash are split: the upper part gets about half of
/// the bytes of a block.
fn cut(items: &[Item], block_size: usize) -> usize {
    let mut size = 0;
    let mut moved = 0;
    for item in items.iter().rev() {
        if size + item.bytes / 2 > block_size / 2 {
            break;
        }
        size += item.bytes;
        moved += 1;
    }
    if moved < items.len() { items.len() - moved } else { items.len() / 2 }
}

fn split_leaf<D: DirWrite>(dir: &mut D, path: &Path, bytes: &[u8]) -> Result<()> {
    let format = dir.params().format;
    let leaf = path.leaf;
    let mut items = items(dir, leaf, bytes, &path.hash)?;
    // Stable: names of one hash keep their order.
    items.sort_by_key(|item| item.hash);
    let at = cut(&items, bytes.len());
    if at == 0 || at >= items.len() {
        // No room for a name of 255 bytes beside one entry at most: impossible in a sound block.
        let err = OndiskError::corrupt("directory block", "a full leaf has fewer than two entries");
        return Err(dir.broken(leaf, err));
    }
    let hash = items[at].hash;
    let continues = if hash == items[at - 1].hash { HASH_CONTINUES } else { 0 };
    let mut packed = vec![0; bytes.len()];
    let pack = |dir: &D, items: &[Item], packed: &mut [u8]| {
        block::pack(bytes, packed, &format, items.iter().map(|item| item.offset))
            .map_err(|err| dir.broken(leaf, err))
    };
    pack(dir, &items[at..], &mut packed)?;
    let new = dir.append(BlockKind::Leaf, &packed)?;
    pack(dir, &items[..at], &mut packed)?;
    dir.edit(leaf, BlockKind::Leaf, |block| {
        block.copy_from_slice(&packed);
        Ok(())
    })?;
    let Some(parent) = path.frames.last() else { return Err(FsError::NoSpace) };
    link(dir, parent, Entry { hash: hash | continues, block: new }, &format)
}

/// Turns a full directory of one block into an indexed one: its entries move to block 1, block 0
/// becomes the root.
pub(crate) fn convert<D: DirWrite>(dir: &mut D) -> Result<()> {
    let params: DirParams = *dir.params();
    let dots = super::dots(dir)?;
    let bytes = dir.block(0, BlockKind::Leaf)?;
    let mut offsets = Vec::with_capacity(bytes.len() / 16);
    for entry in Entries::new(&bytes, &params.format).skip(2) {
        let entry = entry.map_err(|err| dir.broken(0, err))?;
        if entry.inode != 0 {
            offsets.push(entry.offset);
        }
    }
    let mut packed = vec![0; bytes.len()];
    block::pack(&bytes, &mut packed, &params.format, offsets.iter().copied())
        .map_err(|err| dir.broken(0, err))?;
    drop(bytes);
    let leaf = dir.append(BlockKind::Leaf, &packed)?;
    let parent = dots[1].ino;
    dir.edit(0, ROOT, |block| {
        block.fill(0);
        disk::init_root(block, &params.format, params.ino, parent, params.hash.version, leaf);
        Ok(())
    })?;
    dir.set_indexed();
    Ok(())
}
