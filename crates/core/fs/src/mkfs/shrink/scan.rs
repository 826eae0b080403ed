//! Contents of the file system: inodes in their tables, and the blocks of an inode.

use syncline_device::BlockDevice;
use syncline_ondisk::blockmap::NDIR_BLOCKS;
use syncline_ondisk::bytes::le32;
use syncline_ondisk::extent::{Extent, Node, NodeLimits};
use syncline_ondisk::inode::flags;
use syncline_ondisk::{Geometry, Inode};

use super::super::builder::Builder;
use super::super::grow::{block, corrupt};
use super::super::write::ORIGIN;
use crate::error::Result;

/// Blocks of an inode table that are read at once.
const READ_AHEAD: u64 = 64;

/// Reads inodes in ascending order.
pub(super) struct Slots<'a> {
    device: &'a dyn BlockDevice,
    first: u64,
    bytes: Vec<u8>,
}

impl<'a> Slots<'a> {
    pub(super) fn new(device: &'a dyn BlockDevice) -> Self {
        Self { device, first: 0, bytes: Vec::new() }
    }

    /// The bytes of an inode.
    pub(super) fn get(&mut self, of: &Builder, ino: u32) -> Result<&[u8]> {
        let (at, byte) = of.inode_place(ino);
        let size = of.geo.block_size;
        let end = self.first + (self.bytes.len() / size) as u64;
        if !(self.first..end).contains(&at) {
            let group = (ino - 1) / of.geo.inodes_per_group;
            let table = of.groups[group as usize].bg_inode_table;
            let left = table + u64::from(of.geo.itable_blocks) - at;
            self.bytes = vec![0; left.min(READ_AHEAD) as usize * size];
            self.first = at;
            self.device.read(at * size as u64, &mut self.bytes, ORIGIN)?;
        }
        let byte = (at - self.first) as usize * size + byte;
        Ok(&self.bytes[byte..byte + of.geo.inode_size])
    }
}

/// True if an inode has a map of blocks.
pub(super) fn has_map(raw: &Inode, block_size: usize, ea_inode: bool) -> bool {
    let is_mapped = raw.is_file() || raw.is_dir() || raw.is_symlink();
    is_mapped && !raw.has_flag(flags::INLINE_DATA) && !raw.is_fast_symlink(block_size, ea_inode)
}

/// Pieces of an inode with extents, and the blocks of their tree.
pub(super) fn extents(
    device: &dyn BlockDevice,
    geo: &Geometry,
    raw: &Inode,
) -> Result<(Vec<Extent>, Vec<u64>)> {
    let mut out = (Vec::new(), Vec::new());
    walk(device, geo, &raw.i_block, &NodeLimits::root(geo), &mut out)?;
    Ok(out)
}

fn walk(
    device: &dyn BlockDevice,
    geo: &Geometry,
    bytes: &[u8],
    limits: &NodeLimits,
    out: &mut (Vec<Extent>, Vec<u64>),
) -> Result<()> {
    let node = Node::parse(bytes, limits)?;
    out.0.extend(node.extents());
    for (i, index) in node.indexes().enumerate() {
        out.1.push(index.leaf);
        walk(device, geo, &block(device, geo, index.leaf)?, &limits.child(&node, i), out)?;
    }
    Ok(())
}

/// Pieces of an inode that has a map, of either kind.
pub(super) fn pieces(device: &dyn BlockDevice, geo: &Geometry, raw: &Inode) -> Result<Vec<Extent>> {
    if raw.has_flag(flags::EXTENTS) {
        return Ok(extents(device, geo, raw)?.0);
    }
    let mut found = Vec::new();
    let mut at = 0;
    for slot in 0..15 {
        pointers(device, geo, le32(&raw.i_block, 4 * slot), levels(slot), &mut at, &mut found)?;
    }
    Ok(found)
}

/// Levels of tables below a slot of the inode.
pub(super) fn levels(slot: usize) -> u32 {
    (slot as u32 + 1).saturating_sub(NDIR_BLOCKS)
}

fn pointers(
    device: &dyn BlockDevice,
    geo: &Geometry,
    pointer: u32,
    levels: u32,
    at: &mut u64,
    found: &mut Vec<Extent>,
) -> Result<()> {
    let slots = geo.block_size / 4;
    if pointer == 0 {
        *at += (slots as u64).pow(levels);
        return Ok(());
    }
    check(geo, pointer)?;
    if levels > 0 {
        let table = block(device, geo, pointer.into())?;
        return (0..slots).try_for_each(|slot| {
            pointers(device, geo, le32(&table, 4 * slot), levels - 1, at, found)
        });
    }
    let Ok(block) = u32::try_from(*at) else { return corrupt("a file has 2^32 blocks".into()) };
    let new = Extent { block, len: 1, start: pointer.into(), unwritten: false };
    push(found, new);
    *at += 1;
    Ok(())
}

pub(super) fn check(geo: &Geometry, pointer: u32) -> Result<()> {
    if geo.is_valid_range(pointer.into(), 1) {
        return Ok(());
    }
    corrupt(format!("a map names block {pointer}"))
}

/// Adds a piece, to the last one if it continues that.
pub(super) fn push(to: &mut Vec<Extent>, new: Extent) {
    match to.last_mut() {
        Some(last) if last.can_merge(&new) => last.len += new.len,
        _ => to.push(new),
    }
}
