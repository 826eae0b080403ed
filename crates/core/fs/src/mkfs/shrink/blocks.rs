//! Blocks that move: planned first, then copied, then switched to.

use std::collections::BTreeMap;
use std::sync::Arc;

use syncline_device::BlockDevice;
use syncline_ondisk::blockmap::DIND_BLOCK;
use syncline_ondisk::bytes::{le32, put_bytes, put_le16, put_le32};
use syncline_ondisk::extent::Extent;
use syncline_ondisk::group::BLOCK_UNINIT;
use syncline_ondisk::inode::{I_BLOCK_BYTES, I_BLOCK_OFFSET, flags};
use syncline_ondisk::superblock::{JOURNAL_INO, RESIZE_INO};
use syncline_ondisk::{IncompatFeatures, Inode, checksum, orphan_file, xattr};

use super::super::builder::Builder;
use super::super::extents;
use super::super::grow::{block, corrupt};
use super::super::space::Used;
use super::super::write::{ORIGIN, Writer};
use super::Device;
use super::quota::{self, Deltas};
use super::scan::{self, Slots};
use super::target::Target;
use crate::error::{FsError, Result};

/// Inode of the list of bad blocks.
const BAD_INO: u32 = 1;
/// Bytes that are copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// The new fields of an inode.
#[derive(Default)]
struct Change {
    map: Option<[u8; I_BLOCK_BYTES]>,
    /// Blocks of its tree, more or less.
    nodes: i64,
    attributes: Option<u64>,
}

/// Blocks of a group that move: block bitmap, inode bitmap, inode table.
struct Table {
    group: u32,
    kind: usize,
    to: u64,
}

/// Everything that moves. Nothing is written.
pub(super) struct Plan {
    device: Arc<dyn BlockDevice>,
    /// Blocks for which there is no room.
    pub(super) missing: u64,
    /// From, to, count.
    copies: Vec<(u64, u64, u64)>,
    /// Blocks at new places whose bytes change.
    new: BTreeMap<u64, Vec<u8>>,
    /// Tables of block maps, in place.
    tables: BTreeMap<u64, Vec<u8>>,
    groups: Vec<Table>,
    changes: BTreeMap<u32, Change>,
    taken: Vec<(u64, u64)>,
    /// Old nodes of trees.
    freed: Vec<u64>,
    deltas: Deltas,
}

struct Planner<'a> {
    old: &'a Builder,
    away: Used,
    free: Used,
    /// New places of attribute blocks, which inodes share.
    attributes: BTreeMap<u64, u64>,
    plan: Plan,
}

impl Plan {
    pub(super) fn new(device: Device<'_>, old: &Builder, target: &Target) -> Result<Self> {
        let away = target.away(old);
        let mut free = old.used.clone();
        for (from, to) in away.within(0, old.geo.blocks_count) {
            free.insert(from, to - from);
        }
        let plan = Plan {
            device: Arc::clone(device),
            missing: 0,
            copies: Vec::new(),
            new: BTreeMap::new(),
            tables: BTreeMap::new(),
            groups: Vec::new(),
            changes: BTreeMap::new(),
            taken: Vec::new(),
            freed: Vec::new(),
            deltas: Deltas::new(),
        };
        let mut planner = Planner { old, away, free, attributes: BTreeMap::new(), plan };
        for group in 0..target.geo.group_count {
            planner.group(group);
        }
        let mut slots = Slots::new(&**device);
        for (from, to) in old.inodes_used.within(1, u64::from(old.geo.inodes_count) + 1) {
            for ino in from..to {
                planner.inode(ino as u32, slots.get(old, ino as u32)?)?;
            }
        }
        Ok(planner.plan)
    }

    /// Copies, then switches. Returns blocks whose use ends.
    pub(super) fn apply(self, old: &mut Builder) -> Result<Vec<u64>> {
        let device = &*self.device;
        let size = old.geo.block_size as u64;
        // Into free blocks: the file system stays as it is.
        for (from, to, count) in self.copies {
            let mut done = 0;
            while done < count * size {
                let mut bytes = vec![0; (count * size - done).min(COPY_BYTES) as usize];
                device.read(from * size + done, &mut bytes, ORIGIN)?;
                device.write(to * size + done, &bytes, ORIGIN)?;
                done += bytes.len() as u64;
            }
        }
        write_blocks(device, size, &self.new)?;
        device.flush(ORIGIN)?;
        old.write_unclean(device, false)?;
        for (start, count) in self.taken {
            old.take(start, count);
        }
        for Table { group, kind, to } in self.groups {
            let desc = &mut old.groups[group as usize];
            match kind {
                0 => desc.bg_block_bitmap = to,
                1 => desc.bg_inode_bitmap = to,
                _ => desc.bg_inode_table = to,
            }
            if desc.bg_flags & BLOCK_UNINIT == 0 {
                old.changed.insert(group);
            }
        }
        let mut to = Writer::new(device);
        old.write_bitmaps(&mut to)?;
        old.write_descriptors(&mut to)?;
        to.send()?;
        device.flush(ORIGIN)?;
        write_blocks(device, size, &self.tables)?;
        change_inodes(device, old, &self.changes)?;
        device.flush(ORIGIN)?;
        old.write_unclean(device, false)?;
        quota::change(device, old, &self.deltas)?;
        Ok(self.freed)
    }
}

fn write_blocks(
    device: &dyn BlockDevice,
    size: u64,
    blocks: &BTreeMap<u64, Vec<u8>>,
) -> Result<()> {
    let mut to = Writer::new(device);
    blocks.iter().try_for_each(|(at, bytes)| to.put(at * size, bytes))?;
    to.send()
}

fn change_inodes(
    device: &dyn BlockDevice,
    old: &mut Builder,
    changes: &BTreeMap<u32, Change>,
) -> Result<()> {
    let mut changes = changes.iter().peekable();
    while let Some((ino, _)) = changes.peek() {
        let (at, _) = old.inode_place(**ino);
        let mut bytes = block(device, &old.geo, at)?;
        while let Some((ino, change)) = changes.next_if(|(ino, _)| old.inode_place(**ino).0 == at) {
            let (_, byte) = old.inode_place(*ino);
            change_inode(old, *ino, change, &mut bytes[byte..byte + old.geo.inode_size])?;
        }
        device.write(at * old.geo.block_size as u64, &bytes, ORIGIN)?;
    }
    Ok(())
}

fn change_inode(old: &mut Builder, ino: u32, change: &Change, slot: &mut [u8]) -> Result<()> {
    let raw = Inode::decode(slot)?;
    if let Some(map) = change.map {
        put_bytes(slot, I_BLOCK_OFFSET, &map);
        if ino == JOURNAL_INO && old.sb.s_jnl_backup_type == 1 {
            for i in 0..I_BLOCK_BYTES / 4 {
                old.sb.s_jnl_blocks[i] = le32(&map, 4 * i);
            }
        }
    }
    let unit = if raw.has_flag(flags::HUGE_FILE) { 1 } else { old.geo.block_size as i64 / 512 };
    let blocks = raw.i_blocks.wrapping_add_signed(change.nodes * unit);
    put_le32(slot, 0x1c, blocks as u32);
    put_le16(slot, 0x74, (blocks >> 32) as u16);
    if let Some(at) = change.attributes {
        put_le32(slot, 0x68, at as u32);
        put_le16(slot, 0x76, (at >> 32) as u16);
    }
    seal(old, ino, slot);
    Ok(())
}

/// Stores the checksum of an inode.
pub(super) fn seal(of: &Builder, ino: u32, slot: &mut [u8]) {
    if of.geo.metadata_csum {
        Inode::set_checksum(slot, seed(of, ino, slot));
    }
}

/// The seed of what an inode has.
pub(super) fn seed(of: &Builder, ino: u32, slot: &[u8]) -> u32 {
    checksum::inode_seed(of.sb.csum_seed(), ino, le32(slot, 0x64))
}

impl Planner<'_> {
    fn is_away(&self, start: u64, count: u64) -> bool {
        self.away.within(start, start + count).next().is_some()
    }

    /// Takes at most `count` blocks together. Where there are none they are missing.
    fn take(&mut self, count: u64) -> (u64, u64) {
        let Some((start, got)) = self.free.fit(count) else {
            self.plan.missing += count;
            return (0, count);
        };
        self.claim(start, got);
        (start, got)
    }

    fn claim(&mut self, start: u64, count: u64) {
        self.free.insert(start, count);
        match self.plan.taken.last_mut() {
            Some((last, len)) if *last + *len == start => *len += count,
            _ => self.plan.taken.push((start, count)),
        }
    }

    fn copy(&mut self, from: u64, to: u64, count: u64) {
        match self.plan.copies.last_mut() {
            Some((a, b, len)) if *a + *len == from && *b + *len == to => *len += count,
            _ => self.plan.copies.push((from, to, count)),
        }
    }

    /// Bitmaps and inode table of a group that stays.
    fn group(&mut self, group: u32) {
        let (old, desc) = (self.old, &self.old.groups[group as usize]);
        let table = u64::from(old.geo.itable_blocks);
        let places =
            [(desc.bg_block_bitmap, 1), (desc.bg_inode_bitmap, 1), (desc.bg_inode_table, table)];
        let first = old.geo.group_first_block(group);
        let (start, finish) = match old.geo.flex_bg {
            true => (0, 0),
            false => (first, old.last_block(group)),
        };
        for (kind, (from, count)) in places.into_iter().enumerate() {
            if !self.is_away(from, count) {
                continue;
            }
            let Some(to) = self.free.find(start, finish, count) else {
                self.plan.missing += count;
                continue;
            };
            self.claim(to, count);
            self.copy(from, to, count);
            self.plan.groups.push(Table { group, kind, to });
        }
    }

    fn inode(&mut self, ino: u32, slot: &[u8]) -> Result<()> {
        let raw = Inode::decode(slot)?;
        let ea_inode = self.old.sb.s_feature_incompat.contains(IncompatFeatures::EA_INODE);
        let mut change = Change::default();
        let at = raw.i_file_acl;
        if at != 0 && self.is_away(at, 1) {
            change.attributes = Some(self.attributes(at)?);
        }
        if ino == BAD_INO && raw.i_blocks != 0 {
            return Err(FsError::Unsupported("shrinking with a list of bad blocks".into()));
        }
        if ino == RESIZE_INO {
            let top = le32(&raw.i_block, 4 * DIND_BLOCK as usize);
            if top != 0 && self.is_away(top.into(), 1) {
                let (to, _) = self.take(1);
                self.copy(top.into(), to, 1);
                let mut map = raw.i_block;
                put_le32(&mut map, 4 * DIND_BLOCK as usize, to as u32);
                change.map = Some(map);
            }
        } else if scan::has_map(&raw, self.old.geo.block_size, ea_inode) {
            if raw.has_flag(flags::EXTENTS) {
                self.extents(ino, &raw, slot, &mut change)?;
            } else {
                self.pointers(&raw, &mut change)?;
            }
        }
        if change.nodes != 0 {
            self.plan.deltas.add(&self.old.sb, ino, &raw, change.nodes);
        }
        if change.map.is_some() || change.attributes.is_some() {
            self.plan.changes.insert(ino, change);
        }
        Ok(())
    }

    /// A new place for an attribute block, whose checksum has the place.
    fn attributes(&mut self, at: u64) -> Result<u64> {
        if let Some(to) = self.attributes.get(&at) {
            return Ok(*to);
        }
        let (to, _) = self.take(1);
        let mut bytes = block(&*self.plan.device, &self.old.geo, at)?;
        if self.old.geo.metadata_csum {
            xattr::set_block_checksum(&mut bytes, to, self.old.sb.csum_seed());
        }
        self.plan.new.insert(to, bytes);
        self.attributes.insert(at, to);
        Ok(to)
    }

    fn extents(&mut self, ino: u32, raw: &Inode, slot: &[u8], change: &mut Change) -> Result<()> {
        let geo = &self.old.geo;
        let (pieces, nodes) = scan::extents(&*self.plan.device, geo, raw)?;
        let moves = nodes.iter().any(|at| self.is_away(*at, 1))
            || pieces.iter().any(|piece| self.is_away(piece.start, piece.len.into()));
        if !moves {
            return Ok(());
        }
        let seed = geo.metadata_csum.then(|| seed(self.old, ino, slot));
        let mut all = Vec::with_capacity(pieces.len());
        for piece in pieces {
            self.move_piece(ino, seed, piece, &mut all)?;
        }
        let size = geo.block_size;
        let mut made = Vec::new();
        let (map, count) = extents::encode(all.len(), &|i| all[i], size, seed, &mut |bytes| {
            let (to, _) = self.take(1);
            made.push((to, bytes.to_vec()));
            Ok(to)
        })?;
        self.plan.new.extend(made);
        change.map = Some(map);
        change.nodes = count as i64 - nodes.len() as i64;
        self.plan.freed.extend(nodes);
        Ok(())
    }

    /// Adds a piece to the new map, in parts where parts of it move.
    fn move_piece(
        &mut self,
        ino: u32,
        seed: Option<u32>,
        piece: Extent,
        all: &mut Vec<Extent>,
    ) -> Result<()> {
        let (mut at, end) = (piece.start, piece.start + u64::from(piece.len));
        while at < end {
            let next = self.away.within(at, end).next().unwrap_or((end, end));
            let (start, len) = if next.0 > at {
                (at, next.0 - at)
            } else {
                let (to, len) = self.take(next.1 - at);
                if ino == self.old.sb.s_orphan_file_inum && self.plan.missing == 0 {
                    self.orphans((at, to, len), seed)?;
                } else if !piece.unwritten {
                    self.copy(at, to, len);
                }
                (to, len)
            };
            let block = piece.block + (at - piece.start) as u32;
            scan::push(all, Extent { block, len: len as u32, start, ..piece });
            at += len;
        }
        Ok(())
    }

    /// Blocks of the orphan file, whose checksums have their places.
    fn orphans(&mut self, (from, to, len): (u64, u64, u64), seed: Option<u32>) -> Result<()> {
        for at in 0..len {
            let mut bytes = block(&*self.plan.device, &self.old.geo, from + at)?;
            if let Some(seed) = seed {
                orphan_file::set_checksum(&mut bytes, to + at, seed);
            }
            self.plan.new.insert(to + at, bytes);
        }
        Ok(())
    }

    fn pointers(&mut self, raw: &Inode, change: &mut Change) -> Result<()> {
        let mut map = raw.i_block;
        for slot in 0..15 {
            let to = self.pointer(le32(&map, 4 * slot), scan::levels(slot))?;
            put_le32(&mut map, 4 * slot, to);
        }
        change.map = (map != raw.i_block).then_some(map);
        Ok(())
    }

    /// Returns the new place of a block, with all below it.
    fn pointer(&mut self, at: u32, levels: u32) -> Result<u32> {
        if at == 0 {
            return Ok(0);
        }
        scan::check(&self.old.geo, at)?;
        let moves = self.is_away(at.into(), 1);
        let to = if moves { self.take(1).0 } else { at.into() };
        if levels > 0 {
            let mut table = block(&*self.plan.device, &self.old.geo, at.into())?;
            let mut changed = false;
            for slot in 0..self.old.geo.block_size / 4 {
                let below = le32(&table, 4 * slot);
                let new = self.pointer(below, levels - 1)?;
                changed |= new != below;
                put_le32(&mut table, 4 * slot, new);
            }
            if moves {
                self.plan.new.insert(to, table);
            } else if changed {
                self.plan.tables.insert(to, table);
            }
        } else if moves {
            self.copy(at.into(), to, 1);
        }
        let Ok(to) = u32::try_from(to) else { return corrupt(format!("block {to} in a map")) };
        Ok(to)
    }
}
