//! Deleted files, by the copies that the journal has of their inodes.
//!
//! An ext4 clears the map of an inode when it deletes the file. The journal keeps older copies of
//! the inode's table block until their place in the ring is needed. Such a copy counts if its
//! checksum is right, the inode is unused now, and all its blocks are. Names come from copies of
//! directory blocks.

use std::collections::BTreeMap;

use syncline_jbd2::{LogMap, tid_gt};
use syncline_ondisk::dir::{DirFormat, Entries};
use syncline_ondisk::extent::Node;
use syncline_ondisk::inode::{Inode, flags};
use syncline_ondisk::jbd2::{
    BlockType, Header, JournalChecksum, JournalSuperblock, Layout, Tags, unescape,
};
use syncline_ondisk::{bitmap, checksum};

use super::View;
use crate::error::Result;
use crate::incore;
use crate::inode::table::read_inode;
use crate::map::extents::Mapping;
use crate::map::extents::search::map_blocks;
use crate::mount::log_map;
use crate::store::Store;
use crate::store::group::{block_bitmap, group_desc};

/// A copy of a block in the log.
#[derive(Clone, Copy)]
struct LogCopy {
    block: u64,
    sequence: u32,
    log_block: u32,
    escaped: bool,
}

/// A deleted file that is whole.
pub(super) struct Deleted {
    pub(super) ino: u32,
    pub(super) inode: Inode,
    /// Its last name in a directory, if the journal has that.
    pub(super) name: Option<Vec<u8>>,
}

/// The journal as a store of old blocks.
struct Copies<'a> {
    view: &'a View,
    log: LogMap,
    /// By block, the newest first.
    all: Vec<LogCopy>,
}

impl<'a> Copies<'a> {
    fn new(view: &'a View, store: &Store) -> Result<Copies<'a>> {
        let log = log_map(store)?;
        let mut copies = Copies { view, log, all: Vec::new() };
        let superblock =
            copies.log_block(0).and_then(|bytes| JournalSuperblock::decode(&bytes).ok());
        let layout = superblock.as_ref().and_then(|superblock| Layout::new(superblock).ok());
        let (Some(superblock), Some(layout)) = (superblock, layout) else { return Ok(copies) };
        let end = superblock.log_end().unwrap_or(superblock.s_maxlen).min(copies.log.len_blocks());
        let first = superblock.s_first.max(1);
        let next = |at: u32| if at + 1 < end { at + 1 } else { first };
        let mut found = Vec::new();
        for at in first..end {
            let Some(block) = copies.log_block(at) else { continue };
            let Some(Header { block_type: BlockType::Descriptor, sequence }) =
                Header::decode(&block)
            else {
                continue;
            };
            // The superblock says how the log is written now, which is not how it was.
            let of_layout = layouts(&layout).find_map(|layout| {
                let (mut log_block, mut tagged) = (at, Vec::new());
                for tag in Tags::new(&block, &layout) {
                    log_block = next(log_block);
                    let (block, escaped) = (tag.blocknr, tag.escaped);
                    tagged.push(LogCopy { block, sequence, log_block, escaped });
                }
                // A control block of the same transaction follows the copies.
                let behind = copies.log_block(next(log_block));
                let behind = behind.and_then(|block| Header::decode(&block));
                behind.is_some_and(|header| header.sequence == sequence).then_some(tagged)
            });
            found.extend(of_layout.unwrap_or_default());
            // More than one copy a log block: what is left of descriptors is not believed.
            if found.len() > end as usize {
                break;
            }
        }
        found.sort_by(|a, b| {
            let newer = if a.sequence == b.sequence {
                std::cmp::Ordering::Equal
            } else if tid_gt(a.sequence, b.sequence) {
                std::cmp::Ordering::Less
            } else {
                std::cmp::Ordering::Greater
            };
            a.block.cmp(&b.block).then(newer)
        });
        copies.all = found;
        Ok(copies)
    }

    fn log_block(&self, at: u32) -> Option<Vec<u8>> {
        self.view.block(self.log.physical(at)?).ok()
    }

    fn bytes(&self, copy: &LogCopy) -> Option<Vec<u8>> {
        let mut bytes = self.log_block(copy.log_block)?;
        if copy.escaped {
            unescape(&mut bytes);
        }
        Some(bytes)
    }

    /// Copies of a run of blocks.
    fn of(&self, start: u64, len: u64) -> &[LogCopy] {
        let from = self.all.partition_point(|copy| copy.block < start);
        let to = self.all.partition_point(|copy| copy.block < start + len);
        self.all.get(from..to).unwrap_or(&[])
    }
}

/// The layouts that a log may have had, the given one first.
fn layouts(now: &Layout) -> impl Iterator<Item = Layout> + use<> {
    use JournalChecksum::{None, V1, V2, V3};
    let now = *now;
    let all = [(now.checksum, now.is_64bit)].into_iter().chain(
        [V3, V1, V2, None].into_iter().flat_map(|checksum| [(checksum, true), (checksum, false)]),
    );
    all.map(move |(checksum, is_64bit)| Layout { checksum, is_64bit, ..now })
}

/// Deleted files that are whole, and how many are not. Their maps are put into the view.
pub(super) fn find(view: &View, store: &Store) -> Result<(Vec<Deleted>, u32)> {
    let copies = Copies::new(view, store)?;
    let mut newest: BTreeMap<u32, Inode> = BTreeMap::new();
    for group in 0..view.geo.group_count {
        let table = group_desc(store, group)?.bg_inode_table;
        for copy in copies.of(table, view.geo.itable_blocks.into()) {
            let Some(bytes) = copies.bytes(copy) else { continue };
            let first = group * view.geo.inodes_per_group
                + (copy.block - table) as u32 * view.geo.inodes_per_block
                + 1;
            for (ino, slot) in (first..).zip(bytes.chunks_exact(view.geo.inode_size)) {
                if !newest.contains_key(&ino) && ino >= view.geo.first_ino {
                    if let Some(inode) = deleted(view, store, ino, slot) {
                        newest.insert(ino, inode);
                    }
                }
            }
        }
    }
    let (mut whole, mut overwritten) = (Vec::new(), 0);
    for (ino, inode) in newest {
        if is_whole(&copies, store, ino, &inode)? {
            whole.push(Deleted { ino, inode, name: None });
        } else {
            overwritten += 1;
        }
    }
    put_names(&copies, &mut whole);
    Ok((whole, overwritten))
}

/// The inode in a slot of a copy, if it is a file that is unused now.
fn deleted(view: &View, store: &Store, ino: u32, slot: &[u8]) -> Option<Inode> {
    let inode = Inode::decode(slot).ok()?;
    let is_file = inode.is_file() && inode.i_links_count > 0 && inode.i_size > 0;
    if !is_file || inode.has_flag(flags::EA_INODE) {
        return None;
    }
    if view.sb.has_metadata_csum() {
        let seed = checksum::inode_seed(view.sb.csum_seed(), ino, inode.i_generation);
        inode.verify_checksum(slot, seed).ok()?;
    }
    let now = read_inode(store, ino);
    now.map_or(true, |now| now.i_links_count == 0).then_some(inode)
}

/// True if every block of a file is unused. Nodes of its map that were cleared since come out of
/// the journal.
fn is_whole(copies: &Copies<'_>, store: &Store, ino: u32, raw: &Inode) -> Result<bool> {
    if raw.has_flag(flags::INLINE_DATA) {
        return Ok(true);
    }
    let mut nodes = Vec::new();
    if raw.has_flag(flags::EXTENTS) {
        let Ok(root) = Node::parse_header(&raw.i_block) else { return Ok(false) };
        if !restore(copies, &root, &mut nodes)? {
            return Ok(false);
        }
    }
    let inode = incore::Inode::new(ino, raw.clone(), 0);
    let Ok(end) = u32::try_from(raw.i_size.div_ceil(store.block_size() as u64)) else {
        return Ok(false);
    };
    let (mut at, mut mapped) = (0, 0u64);
    while at < end {
        let Ok(mapping) = map_blocks(store, &inode, &inode.state.read(), at, end - at) else {
            return Ok(false);
        };
        if let Mapping::Mapped { pblk, len, .. } = mapping {
            if !are_unused(store, pblk, len.into())? {
                return Ok(false);
            }
            mapped += u64::from(len);
        }
        at = at.saturating_add(mapping.len());
    }
    for node in nodes {
        if !are_unused(store, node, 1)? {
            return Ok(false);
        }
    }
    Ok(mapped > 0)
}

/// Puts the nodes below `node` into the view as they were. False if one is lost.
fn restore(copies: &Copies<'_>, node: &Node<'_>, nodes: &mut Vec<u64>) -> Result<bool> {
    if node.depth() == 0 {
        return Ok(!node.is_empty());
    }
    for index in node.indexes() {
        let block = index.leaf;
        let fits = |bytes: &[u8]| {
            Node::parse_header(bytes)
                .is_ok_and(|child| child.depth() + 1 == node.depth() && !child.is_empty())
        };
        let now = copies.view.block(block).ok().filter(|bytes| fits(bytes));
        let old = || {
            copies
                .of(block, 1)
                .iter()
                .find_map(|copy| copies.bytes(copy).filter(|bytes| fits(bytes)))
        };
        let Some(bytes) = now.or_else(old) else { return Ok(false) };
        copies.view.put(block << copies.view.geo.block_bits, &bytes)?;
        nodes.push(block);
        let Ok(child) = Node::parse_header(&bytes) else { return Ok(false) };
        // Each block is a node of this file once, so that no map goes round.
        if nodes.len() > copies.view.geo.blocks_per_group as usize
            || !restore(copies, &child, nodes)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn are_unused(store: &Store, start: u64, len: u64) -> Result<bool> {
    for block in start..start.saturating_add(len) {
        let Some((group, bit)) = store.geo.block_bit(block) else { return Ok(false) };
        let desc = group_desc(store, group)?;
        if bitmap::test(&block_bitmap(store, group, &desc)?, bit) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The newest name of each file in the copies of directory blocks.
fn put_names(copies: &Copies<'_>, files: &mut [Deleted]) {
    let format = DirFormat::new(&copies.view.sb);
    let mut newest: BTreeMap<u32, (u32, Vec<u8>)> = BTreeMap::new();
    for copy in &copies.all {
        let Some(bytes) = copies.bytes(copy) else { continue };
        let entries: Option<Vec<_>> =
            Entries::new(&bytes, &format).map(std::result::Result::ok).collect();
        for entry in entries.unwrap_or_default() {
            let known = files.binary_search_by_key(&entry.inode, |file| file.ino).is_ok();
            let is_name = known && entry.has_valid_name();
            let older = newest
                .get(&entry.inode)
                .is_some_and(|(sequence, _)| tid_gt(*sequence, copy.sequence));
            if is_name && !older {
                newest.insert(entry.inode, (copy.sequence, entry.name.to_vec()));
            }
        }
    }
    for file in files {
        file.name = newest.remove(&file.ino).map(|(_, name)| name);
    }
}
