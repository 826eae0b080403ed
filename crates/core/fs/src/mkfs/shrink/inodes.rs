//! Inodes of groups that go: new numbers, and the new numbers in what names them.

use std::collections::{BTreeMap, BTreeSet};

use syncline_device::BlockDevice;
use syncline_ondisk::bytes::{le16, le32, put_le32};
use syncline_ondisk::dir::{self, DirFormat, Entries, rec_len_from_disk};
use syncline_ondisk::ea_inode::ValueInode;
use syncline_ondisk::group::{GroupCsum, INODE_UNINIT, init_inode_bitmap};
use syncline_ondisk::htree::{self, NodeKind};
use syncline_ondisk::inode::{I_BLOCK_OFFSET, flags};
use syncline_ondisk::xattr::{self, Place as Area};
use syncline_ondisk::{CompatFeatures, IncompatFeatures, Inode, bitmap, checksum, inline};

use super::super::builder::Builder;
use super::super::grow::{block, corrupt};
use super::Device;
use super::blocks::{seal, seed};
use super::log::Log;
use super::scan::{self, Slots};
use crate::error::{FsError, Result};

/// Byte of the inode number in the header of an attribute, before its name.
const VALUE_BEFORE_NAME: usize = 12;
/// Blocks that change with an inode besides those that name it.
const OWN_BLOCKS: usize = 6;

/// A place where an inode is named.
#[derive(Clone, Copy)]
enum Holder {
    /// The slot of this inode: an attribute, or an entry of a directory in the inode.
    Slot(u32),
    /// A block of directory entries, and the seed of its checksum.
    Leaf(u64, u32),
    /// The first block of an indexed directory.
    Root(u64, u32),
    Attributes(u64),
}

struct Name {
    ino: u32,
    holder: Holder,
    byte: usize,
}

/// Moves inodes behind `last` to free numbers below. Returns the new number of each.
pub(super) fn renumber(
    device: Device<'_>,
    of: &mut Builder,
    last: u32,
) -> Result<BTreeMap<u32, u32>> {
    let mut numbers = BTreeMap::new();
    let end = u64::from(of.geo.inodes_count) + 1;
    let leaving: Vec<u32> = of
        .inodes_used
        .within(u64::from(last) + 1, end)
        .flat_map(|(from, to)| from..to)
        .map(|ino| ino as u32)
        .collect();
    if leaving.is_empty() {
        return Ok(numbers);
    }
    let mut names = Names { of, last, names: Vec::new(), shared: BTreeSet::new() };
    names.find(&**device)?;
    let mut names = names.names;
    names.sort_by_key(|name| name.ino);
    let mut log = Log::open(device, of)?;
    let count = if log.is_journaled() { 1 } else { leaving.len() };
    for part in leaving.chunks(count) {
        let from = names.partition_point(|name| name.ino < part[0]);
        let to = names.partition_point(|name| name.ino <= part[part.len() - 1]);
        if !log.has_room(OWN_BLOCKS + to - from) {
            log.commit()?;
        }
        for ino in part {
            let new = place(of, &mut log, *ino, last)?;
            numbers.insert(*ino, new);
        }
        log.barrier()?;
        for name in &names[from..to] {
            rename(of, &mut log, name, &numbers)?;
        }
        log.barrier()?;
        for ino in part {
            clear(of, &mut log, *ino)?;
        }
    }
    log.close(of)?;
    Ok(numbers)
}

/// Copies an inode to a free slot.
fn place(of: &mut Builder, log: &mut Log, ino: u32, last: u32) -> Result<u32> {
    let first = u64::from(of.geo.first_ino);
    let Some(new) = of.inodes_used.first_free(first, u64::from(last) + 1) else {
        return Err(FsError::NoSpace);
    };
    let new = new as u32;
    let size = of.geo.inode_size;
    let (at, byte) = of.inode_place(ino);
    let mut slot = Vec::new();
    log.edit(of, at, &mut |bytes| {
        slot = bytes[byte..byte + size].to_vec();
        Ok(())
    })?;
    if of.geo.metadata_csum {
        let mut identity = [0; 8];
        put_le32(&mut identity, 0, new);
        let target = seed(of, ino, &slot);
        checksum::steer_crc32c(of.sb.csum_seed(), &mut identity, 4, target);
        put_le32(&mut slot, 0x64, le32(&identity, 4));
    }
    seal(of, new, &mut slot);
    let (at, byte) = of.inode_place(new);
    log.edit(of, at, &mut |bytes| {
        bytes[byte..byte + size].copy_from_slice(&slot);
        Ok(())
    })?;
    mark(of, log, new, Inode::decode(&slot)?.is_dir(), true)?;
    Ok(new)
}

fn clear(of: &mut Builder, log: &mut Log, ino: u32) -> Result<()> {
    let (at, byte) = of.inode_place(ino);
    let size = of.geo.inode_size;
    let mut is_dir = false;
    log.edit(of, at, &mut |bytes| {
        let slot = &mut bytes[byte..byte + size];
        is_dir = Inode::decode(slot)?.is_dir();
        slot.fill(0);
        Ok(())
    })?;
    mark(of, log, ino, is_dir, false)
}

/// Takes or frees a number: bitmap and descriptor.
fn mark(of: &mut Builder, log: &mut Log, ino: u32, is_dir: bool, used: bool) -> Result<()> {
    let per_group = of.geo.inodes_per_group;
    let (group, index) = ((ino - 1) / per_group, (ino - 1) % per_group);
    let mut desc = of.groups[group as usize];
    let geo = of.geo.clone();
    let csum: GroupCsum = of.csum;
    if used {
        of.inodes_used.insert(ino.into(), 1);
        desc.bg_free_inodes_count -= 1;
        desc.bg_used_dirs_count += u32::from(is_dir);
        if csum.is_on() && index >= per_group - desc.bg_itable_unused {
            desc.bg_itable_unused = per_group - index - 1;
        }
    } else {
        of.inodes_used.remove(ino.into(), 1);
        desc.bg_free_inodes_count += 1;
        desc.bg_used_dirs_count -= u32::from(is_dir);
    }
    log.edit(of, desc.bg_inode_bitmap, &mut |map| {
        if csum.is_on() && desc.has_flag(INODE_UNINIT) {
            init_inode_bitmap(map, &geo);
            desc.bg_flags &= !INODE_UNINIT;
        }
        if used {
            bitmap::set(map, index);
        } else {
            bitmap::clear(map, index);
        }
        desc.set_inode_bitmap_csum(map, &geo, &csum);
        Ok(())
    })?;
    of.groups[group as usize] = desc;
    let (nr, byte) = geo.desc_slot(group);
    log.edit(of, geo.desc_block(&of.sb, nr), &mut |table| {
        desc.encode_into(&mut table[byte..byte + geo.desc_size], group, &csum);
        Ok(())
    })
}

/// Stores the new number where the old one is.
fn rename(of: &Builder, log: &mut Log, name: &Name, numbers: &BTreeMap<u32, u32>) -> Result<()> {
    let new = numbers[&name.ino];
    let byte = name.byte;
    match name.holder {
        Holder::Slot(ino) => {
            let ino = numbers.get(&ino).copied().unwrap_or(ino);
            let (at, start) = of.inode_place(ino);
            log.edit(of, at, &mut |bytes| {
                let slot = &mut bytes[start..start + of.geo.inode_size];
                put_le32(slot, byte, new);
                seal(of, ino, slot);
                Ok(())
            })
        }
        Holder::Leaf(at, seed) => log.edit(of, at, &mut |bytes| {
            put_le32(bytes, byte, new);
            dir::set_checksum(bytes, &DirFormat::new(&of.sb), seed);
            Ok(())
        }),
        Holder::Root(at, seed) => log.edit(of, at, &mut |bytes| {
            put_le32(bytes, byte, new);
            if of.geo.metadata_csum {
                htree::set_checksum(bytes, NodeKind::Root, seed);
            }
            Ok(())
        }),
        Holder::Attributes(at) => log.edit(of, at, &mut |bytes| {
            put_le32(bytes, byte, new);
            if of.geo.metadata_csum {
                xattr::set_block_checksum(bytes, at, of.sb.csum_seed());
            }
            Ok(())
        }),
    }
}

/// The search for names.
struct Names<'a> {
    of: &'a Builder,
    last: u32,
    names: Vec<Name>,
    /// Attribute blocks that were read.
    shared: BTreeSet<u64>,
}

impl Names<'_> {
    fn find(&mut self, device: &dyn BlockDevice) -> Result<()> {
        let of = self.of;
        let has_values = of.sb.s_feature_incompat.contains(IncompatFeatures::EA_INODE);
        let mut slots = Slots::new(device);
        for (from, to) in of.inodes_used.within(1, u64::from(of.geo.inodes_count) + 1) {
            for ino in from..to {
                let ino = ino as u32;
                let slot = slots.get(of, ino)?;
                let raw = Inode::decode(slot)?;
                if raw.is_dir() {
                    if raw.has_flag(flags::INLINE_DATA) {
                        self.inline_dir(ino, &raw, slot)?;
                    } else {
                        self.dir(device, seed(of, ino, slot), &raw)?;
                    }
                }
                if has_values {
                    self.values(device, ino, &raw, slot)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, ino: u32, holder: Holder, byte: usize) {
        if ino > self.last {
            self.names.push(Name { ino, holder, byte });
        }
    }

    fn dir(&mut self, device: &dyn BlockDevice, seed: u32, raw: &Inode) -> Result<()> {
        let (of, format) = (self.of, DirFormat::new(&self.of.sb));
        let has_index = of.sb.s_feature_compat.contains(CompatFeatures::DIR_INDEX)
            && raw.has_flag(flags::INDEX);
        for piece in scan::pieces(device, &of.geo, raw)? {
            for (lblk, at) in (piece.block..).zip(piece.start..piece.start + u64::from(piece.len)) {
                let bytes = block(device, &of.geo, at)?;
                if has_index && lblk == 0 {
                    for byte in [0, 12] {
                        self.add(le32(&bytes, byte), Holder::Root(at, seed), byte);
                    }
                    continue;
                }
                // An inner node of an index looks like a free entry of the whole block.
                let len = rec_len_from_disk(le16(&bytes, 4), bytes.len());
                if le32(&bytes, 0) == 0 && len == bytes.len() {
                    continue;
                }
                for entry in Entries::new(&bytes, &format) {
                    let entry = entry?;
                    self.add(entry.inode, Holder::Leaf(at, seed), entry.offset);
                }
            }
        }
        Ok(())
    }

    fn inline_dir(&mut self, ino: u32, raw: &Inode, slot: &[u8]) -> Result<()> {
        self.add(le32(slot, I_BLOCK_OFFSET), Holder::Slot(ino), I_BLOCK_OFFSET);
        let format = DirFormat { tail: false, ..DirFormat::new(&self.of.sb) };
        for (start, end) in inline::chains(raw, slot)? {
            for entry in Entries::new(&slot[start..end], &format) {
                let entry = entry?;
                self.add(entry.inode, Holder::Slot(ino), start + entry.offset);
            }
        }
        Ok(())
    }

    /// Values of attributes in inodes of their own.
    fn values(
        &mut self,
        device: &dyn BlockDevice,
        ino: u32,
        raw: &Inode,
        slot: &[u8],
    ) -> Result<()> {
        if let Some(range) = raw.xattr_range(slot.len()) {
            let holder = Holder::Slot(ino);
            self.area(device, (ino, raw), &slot[range.clone()], Area::Inode, holder, range.start)?;
        }
        let at = raw.i_file_acl;
        if at != 0 && self.shared.insert(at) {
            let bytes = block(device, &self.of.geo, at)?;
            self.area(device, (ino, raw), &bytes, Area::Block, Holder::Attributes(at), 0)?;
        }
        Ok(())
    }

    fn area(
        &mut self,
        device: &dyn BlockDevice,
        (ino, raw): (u32, &Inode),
        area: &[u8],
        place: Area,
        holder: Holder,
        start: usize,
    ) -> Result<()> {
        for entry in xattr::Entries::new(area, place)? {
            let entry = entry?;
            let Some(outside) = entry.outside else { continue };
            if outside.inum == 0 || outside.inum > self.of.geo.inodes_count {
                return corrupt(format!("an attribute of inode {ino} names {}", outside.inum));
            }
            if ino.max(outside.inum) > self.last {
                let value = Inode::decode(Slots::new(device).get(self.of, outside.inum)?)?;
                if ValueInode::new(&value).is_lustre(&outside, ino, raw.i_generation) {
                    let what = "shrinking with attributes as old Lustre stored them";
                    return Err(FsError::Unsupported(what.into()));
                }
            }
            let name = entry.name.as_ptr() as usize - area.as_ptr() as usize;
            self.add(outside.inum, holder, start + name - VALUE_BEFORE_NAME);
        }
        Ok(())
    }
}
