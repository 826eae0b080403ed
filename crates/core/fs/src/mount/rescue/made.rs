//! The directory `/.rescue` of a view: links to what has no name.
//!
//! ```text
//!   lost-#123               an inode in use that no directory names
//!   deleted-#124-notes.txt  a deleted file
//!   extents-#9001           a file without an inode, by the nodes of its extent tree
//! ```
//!
//! Its blocks, and those of a root directory that is made anew, are blocks of the journal: the view
//! needs none of them. Its inode is the last that is unused.

use std::collections::BTreeSet;
use std::sync::Arc;

use syncline_ondisk::bitmap;
use syncline_ondisk::dir::{DirFormat, Filler, file_type};
use syncline_ondisk::extent::{Extent, NodeMut, ROOT_MAX};
use syncline_ondisk::group::INODE_UNINIT;
use syncline_ondisk::inode::{Inode, S_IFDIR, flags};
use syncline_ondisk::superblock::ROOT_INO;

use super::{View, deleted, pieces};
use crate::error::{FsError, Result};
use crate::incore;
use crate::inode::table::read_inode;
use crate::mount::log_map;
use crate::names::dir::live::View as Dir;
use crate::names::dir::readdir::read_batch;
use crate::store::Store;
use crate::store::group::group_desc;

const NAME: &[u8] = b".rescue";
const NAME_MAX: usize = 255;

/// A name, its inode and its file type.
type Entry = (Vec<u8>, u32, u8);

/// Blocks of the journal that the view may use, in order.
pub(super) struct Room {
    runs: Vec<(u64, u32)>,
}

impl Room {
    /// Takes `count` blocks in at most four runs.
    pub(super) fn take(&mut self, count: u32) -> Option<Vec<(u64, u32)>> {
        let (mut taken, mut left) = (Vec::new(), count);
        while left > 0 && taken.len() < usize::from(ROOT_MAX) {
            let (start, len) = self.runs.first_mut()?;
            let now = left.min(*len).min(1 << 15);
            taken.push((*start, now));
            (*start, *len, left) = (*start + u64::from(now), *len - now, left - now);
            if *len == 0 {
                self.runs.remove(0);
            }
        }
        (left == 0).then_some(taken)
    }
}

/// Adds the directory.
///
/// # Errors
/// A journal that is missing or too small for it; I/O.
pub(super) fn make(view: &mut View) -> Result<()> {
    let store = view.store()?;
    let mut room = Room { runs: log_map(&store)?.extents };
    let root = read_inode(&store, ROOT_INO).ok().filter(|root| root.is_dir() && root.i_size > 0);
    if root.is_none() {
        view.missing.push("the root directory".into());
    }
    let (mut named, used) = lost(&store, view)?;
    let (files, overwritten) = deleted::find(view, &store)?;
    if overwritten > 0 {
        let what = format!("{overwritten} deleted files, whose blocks are in use again");
        view.missing.push(what);
    }
    for file in files {
        let mut name = format!("deleted-#{}", file.ino).into_bytes();
        if let Some(known) = file.name {
            name.push(b'-');
            name.extend(known);
            name.truncate(NAME_MAX);
        }
        named.push((name, file.ino, file_type::REG_FILE));
        view.put_inode(&store, file.ino, &file.inode)?;
    }
    // Numbers of inodes that are in no use, the last ones first.
    let taken: BTreeSet<u32> = named.iter().map(|(_, ino, _)| *ino).collect();
    let (first_ino, last) = (view.geo.first_ino, view.geo.inodes_count);
    let mut free =
        (first_ino..=last).rev().filter(|ino| !bitmap::test(&used, *ino) && !taken.contains(ino));
    let made = free.next().ok_or(FsError::NoSpace)?;
    for (piece, ino) in pieces::find(view, &store, &used, &mut room)?.into_iter().zip(&mut free) {
        let name = format!("extents-#{}", piece.block).into_bytes();
        named.push((name, ino, file_type::REG_FILE));
        view.put_inode(&store, ino, &piece.inode)?;
    }
    let mut entries = match &root {
        Some(root) => names_of(&store, ROOT_INO, root.clone()),
        None => Vec::new(),
    };
    let mut name = NAME.to_vec();
    while entries.iter().any(|(known, _, _)| *known == name) {
        name.push(b'_');
    }
    entries.push((name, made, file_type::DIR));
    // The root last: where there is no room for both, nothing names the other.
    let fresh = view.own_inode(S_IFDIR | 0o700, 0);
    put_dir(view, &store, (made, fresh), &named, &mut room)?;
    let fresh = view.own_inode(S_IFDIR | 0o755, 0);
    put_dir(view, &store, (ROOT_INO, root.unwrap_or(fresh)), &entries, &mut room)
}

/// Writes a directory with these entries.
fn put_dir(
    view: &View,
    store: &Store,
    (ino, mut inode): (u32, Inode),
    entries: &[Entry],
    room: &mut Room,
) -> Result<()> {
    let format = DirFormat { tail: false, ..DirFormat::new(&view.sb) };
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let mut left = entries.iter().peekable();
    while blocks.is_empty() || left.peek().is_some() {
        let mut block = vec![0; view.geo.block_size];
        let mut filler = match blocks.is_empty() {
            true => Filler::with_dots(&mut block, &format, ino, ROOT_INO),
            false => Filler::new(&mut block, &format),
        };
        while left.next_if(|(name, ino, kind)| filler.push(name, *ino, *kind)).is_some() {}
        blocks.push(block);
    }
    let count = blocks.len() as u32;
    let runs = room.take(count).ok_or_else(|| {
        FsError::Invalid("the journal has no room for the list of what has no name".into())
    })?;
    let mut node = NodeMut::init(&mut inode.i_block, 0);
    let (mut at, mut bytes) = (0, blocks.iter());
    for (nth, (start, len)) in runs.into_iter().enumerate() {
        let extent = Extent { block: at, start, len, unwritten: false };
        node.insert_extent(nth, &extent)?;
        for (block, bytes) in (start..start + u64::from(len)).zip(&mut bytes) {
            view.put(block << view.geo.block_bits, bytes)?;
        }
        at += len;
    }
    inode.i_flags = inode.i_flags & !(flags::INDEX | flags::INLINE_DATA) | flags::EXTENTS;
    inode.i_size = u64::from(count) << view.geo.block_bits;
    inode.i_links_count = 2;
    view.put_inode(store, ino, &inode)
}

/// Entries of a directory but `.` and `..`, as far as they can be read.
fn names_of(store: &Store, ino: u32, raw: Inode) -> Vec<Entry> {
    let inode = incore::Inode::new(ino, raw, 0);
    let st = inode.state.read();
    let mut entries = Vec::new();
    let Ok(dir) = Dir::new(store, &inode, &st) else { return entries };
    let mut cookie = Some(0);
    while let Some(from) = cookie {
        let Ok(batch) = read_batch(&dir, from) else { break };
        batch.deliver(&mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                let kind = file_type::from_mode(entry.kind.type_bits());
                entries.push((entry.name.to_vec(), entry.ino, kind));
            }
            true
        });
        cookie = batch.next;
    }
    entries
}

/// Inodes in use that no directory names, and a bitmap of those in use.
fn lost(store: &Store, view: &View) -> Result<(Vec<Entry>, Vec<u8>)> {
    let geo = &view.geo;
    let bytes = geo.inodes_count as usize / 8 + 1;
    let (mut used, mut named) = (vec![0u8; bytes], vec![0u8; bytes]);
    let mut dirs = Vec::new();
    for group in 0..geo.group_count {
        let desc = group_desc(store, group)?;
        if desc.has_flag(INODE_UNINIT) {
            continue;
        }
        let most = geo.inodes_per_group - desc.bg_itable_unused;
        let mut table: Option<Arc<[u8]>> = None;
        for index in 0..most {
            let (block, offset) = geo.inode_slot(index);
            if offset == 0 {
                table = store.buffers.read(desc.bg_inode_table + u64::from(block)).ok();
            }
            let Some(slot) =
                table.as_ref().and_then(|table| table.get(offset..offset + geo.inode_size))
            else {
                continue;
            };
            let ino = group * geo.inodes_per_group + index + 1;
            let Ok(inode) = Inode::decode(slot) else { continue };
            let kind = file_type::from_mode(inode.i_mode);
            let is_own = ino < geo.first_ino && ino != ROOT_INO;
            if kind == file_type::UNKNOWN || inode.i_links_count == 0 || is_own {
                continue;
            }
            if inode.is_dir() {
                dirs.push(ino);
            }
            bitmap::set(&mut used, ino);
            if inode.has_flag(flags::EA_INODE) {
                bitmap::set(&mut named, ino);
            }
        }
    }
    for ino in dirs {
        let Ok(raw) = read_inode(store, ino) else { continue };
        for (_, below, _) in names_of(store, ino, raw) {
            bitmap::set(&mut named, below);
        }
    }
    let orphan_file = view.sb.s_orphan_file_inum;
    let mut entries = Vec::new();
    for ino in (geo.first_ino..=geo.inodes_count).filter(|ino| *ino != orphan_file) {
        if bitmap::test(&used, ino) && !bitmap::test(&named, ino) {
            let kind = read_inode(store, ino).map_or(0, |raw| file_type::from_mode(raw.i_mode));
            entries.push((format!("lost-#{ino}").into_bytes(), ino, kind));
        }
    }
    Ok((entries, used))
}
