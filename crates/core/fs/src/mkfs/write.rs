//! The new file system goes to the device: few, large requests, the superblock last.

use syncline_device::{BlockDevice, Kind, Op, Origin, Request};
use syncline_ondisk::bytes::put_bytes;
use syncline_ondisk::group::{BLOCK_UNINIT, INODE_UNINIT};
use syncline_ondisk::superblock::{STATE_VALID, SUPERBLOCK_OFFSET};
use syncline_ondisk::{Superblock, bitmap};

use super::builder::Builder;
use crate::error::Result;

/// Bytes at the start that are cleared first, so that an old file system is not found.
const START_BYTES: usize = 4096;
/// Bytes of one request.
const REQUEST_BYTES: usize = 1 << 20;
/// Pieces of memory of one request.
const PARTS_MAX: usize = 512;
/// Bytes of one discard.
const DISCARD_BYTES: u64 = 2 << 30;
/// Bytes at the end of the device where other formats have their marks.
const END_BYTES: u64 = 64 << 10;

/// Collects writes that follow each other.
pub(super) struct Writer<D: BlockDevice> {
    device: D,
    at: u64,
    bytes: Vec<u8>,
}

pub(super) const ORIGIN: Origin = Origin::new(Kind::Metadata, true);

impl<D: BlockDevice> Writer<D> {
    pub(super) fn new(device: D) -> Self {
        Self { device, at: 0, bytes: Vec::with_capacity(2 * REQUEST_BYTES) }
    }

    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        if self.at + self.bytes.len() as u64 != at || self.bytes.len() >= REQUEST_BYTES {
            self.send()?;
            self.at = at;
        }
        if self.bytes.is_empty() && bytes.len() >= REQUEST_BYTES {
            self.device.write(at, bytes, ORIGIN)?;
            self.at = at + bytes.len() as u64;
            return Ok(());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes what was collected.
    pub(super) fn send(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            self.device.write(self.at, &self.bytes, ORIGIN)?;
            self.at += self.bytes.len() as u64;
            self.bytes.clear();
        }
        Ok(())
    }

    pub(super) fn device(&self) -> &D {
        &self.device
    }
}

/// Writes zeros.
pub(super) fn zero(device: &(impl BlockDevice + ?Sized), at: u64, bytes: u64) -> Result<()> {
    let zeros = vec![0; REQUEST_BYTES.min(usize::try_from(bytes).unwrap_or(REQUEST_BYTES))];
    let mut left = bytes;
    while left > 0 {
        let part = &zeros[..zeros.len().min(usize::try_from(left).unwrap_or(REQUEST_BYTES))];
        device.write(at + bytes - left, part, ORIGIN)?;
        left -= part.len() as u64;
    }
    Ok(())
}

fn send(device: &(impl BlockDevice + ?Sized), at: u64, from: Vec<&[u8]>) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    let op = Op::Write { from, fua: false };
    Ok(device.submit(&mut [Request { offset_bytes: at, op, origin: ORIGIN }])?)
}

/// Clears the superblock, so that no file system is found.
pub(super) fn clear(device: &(impl BlockDevice + ?Sized)) -> Result<()> {
    device.write(0, &[0; START_BYTES], ORIGIN)?;
    Ok(device.flush(ORIGIN)?)
}

/// Says that the old bytes are not needed. A device that refuses keeps them, which is allowed.
fn discard(device: &(impl BlockDevice + ?Sized), bytes: u64) {
    let mut at = 0;
    while at < bytes && device.discard(at, DISCARD_BYTES.min(bytes - at), ORIGIN).is_ok() {
        at += DISCARD_BYTES;
    }
}

impl Builder {
    /// Zeroes the places that need it. They are not overwritten by [`Builder::write`] where they
    /// hold zeros in the end.
    pub(super) fn write(&mut self, device: &(impl BlockDevice + ?Sized)) -> Result<()> {
        let block_bytes = self.geo.block_size as u64;
        clear(device)?;
        if self.options.discard && !self.options.zeroed && device.geometry().discard {
            discard(device, self.geo.blocks_count * block_bytes);
        }
        if !self.options.zeroed {
            let end = self.geo.blocks_count * block_bytes;
            let start = (end & !(END_BYTES - 1)).saturating_sub(END_BYTES).max(START_BYTES as u64);
            zero(device, start, end.saturating_sub(start))?;
            for (block, count) in std::mem::take(&mut self.zeros) {
                zero(device, block * block_bytes, count * block_bytes)?;
            }
        }
        self.put_inodes()?;
        self.write_all(device)
    }

    /// Writes all that is there: the superblock of group 0 last, after a flush.
    pub(super) fn write_all(&mut self, device: &(impl BlockDevice + ?Sized)) -> Result<()> {
        let mut to = Writer::new(device);
        self.write_blocks(device)?;
        self.write_bitmaps(&mut to)?;
        self.write_descriptors(&mut to)?;
        to.send()?;
        device.flush(ORIGIN)?;
        let sb = self.superblock_bytes(0, STATE_VALID)?;
        device.write(SUPERBLOCK_OFFSET, &sb, ORIGIN)?;
        Ok(device.flush(ORIGIN)?)
    }

    /// Blocks that follow each other go out in one request, without a copy.
    fn write_blocks(&self, device: &(impl BlockDevice + ?Sized)) -> Result<()> {
        let block_bytes = self.geo.block_size;
        let zeros = vec![0; block_bytes];
        let (mut start, mut end) = (0, 0);
        let mut from: Vec<&[u8]> = Vec::new();
        for (block, bytes) in &self.blocks {
            if *block != end || from.len() >= PARTS_MAX {
                send(device, start * block_bytes as u64, std::mem::take(&mut from))?;
                start = *block;
            }
            end = block + 1;
            from.push(bytes);
            if bytes.len() < block_bytes {
                from.push(&zeros[bytes.len()..]);
            }
        }
        send(device, start * block_bytes as u64, from)
    }

    /// Blocks of the inode tables that hold inodes.
    fn put_inodes(&mut self) -> Result<()> {
        for (ino, inode) in std::mem::take(&mut self.inodes) {
            let (at, byte) = self.inode_place(ino);
            let seed = self.geo.metadata_csum.then(|| self.inode_seed(ino));
            let (block_bytes, bytes) = (self.geo.block_size, self.geo.inode_size);
            let block = self.blocks.entry(at).or_insert_with(|| vec![0; block_bytes]);
            inode.encode_into(&mut block[byte..byte + bytes], seed)?;
        }
        Ok(())
    }

    pub(super) fn write_bitmaps(&mut self, to: &mut Writer<impl BlockDevice>) -> Result<()> {
        let block_bytes = self.geo.block_size as u64;
        for group in 0..self.geo.group_count {
            let mut desc = self.groups[group as usize];
            let changed = group >= self.old_groups || self.changed.contains(&group);
            if changed && desc.bg_flags & BLOCK_UNINIT == 0 {
                let map = self.block_bitmap(group);
                desc.bg_block_bitmap_csum = self.csum.of_bitmap(&map, self.geo.blocks_per_group);
                to.put(desc.bg_block_bitmap * block_bytes, &map)?;
                self.groups[group as usize] = desc;
            }
        }
        for group in self.old_groups..self.geo.group_count {
            let mut desc = self.groups[group as usize];
            if desc.bg_flags & INODE_UNINIT == 0 {
                let map = self.inode_bitmap(group);
                desc.bg_inode_bitmap_csum = self.csum.of_bitmap(&map, self.geo.inodes_per_group);
                to.put(desc.bg_inode_bitmap * block_bytes, &map)?;
                self.groups[group as usize] = desc;
            }
        }
        Ok(())
    }

    /// Used blocks; all after the last block of the group are used.
    fn block_bitmap(&self, group: u32) -> Vec<u8> {
        let mut map = vec![0; self.geo.block_size];
        let first = self.geo.group_first_block(group);
        let count = self.geo.group_blocks(group);
        for (start, end) in self.used.within(first, first + u64::from(count)) {
            let _ = bitmap::set_range(&mut map, (start - first) as u32, (end - start) as u32);
        }
        let _ = bitmap::set_range(&mut map, count, 8 * self.geo.block_size as u32 - count);
        map
    }

    fn inode_bitmap(&self, group: u32) -> Vec<u8> {
        let mut map = vec![0; self.geo.block_size];
        let count = self.geo.inodes_per_group;
        let first = 1 + u64::from(group) * u64::from(count);
        for (start, end) in self.inodes_used.within(first, first + u64::from(count)) {
            let _ = bitmap::set_range(&mut map, (start - first) as u32, (end - start) as u32);
        }
        let _ = bitmap::set_range(&mut map, count, 8 * self.geo.block_size as u32 - count);
        map
    }

    /// Descriptors and superblocks: first those of group 0, then the backups.
    pub(super) fn write_descriptors(&self, to: &mut Writer<impl BlockDevice>) -> Result<()> {
        let block_bytes = self.geo.block_size;
        let mut table = vec![0; self.geo.gdt_blocks as usize * block_bytes];
        for (group, desc) in (0_u32..).zip(&self.groups) {
            let (block, byte) = self.geo.desc_slot(group);
            let at = block as usize * block_bytes + byte;
            desc.encode_into(&mut table[at..at + self.geo.desc_size], group, &self.csum);
        }
        for group in 0..self.geo.group_count {
            let first = self.geo.group_first_block(group) * block_bytes as u64;
            let has_super = self.sb.group_has_super(group);
            if has_super && group > 0 {
                let mut block = vec![0; block_bytes];
                put_bytes(&mut block, 0, &self.superblock_bytes(group, 0)?);
                to.put(first, &block)?;
            }
            let at = first + if has_super { block_bytes as u64 } else { 0 };
            let meta = group / self.geo.desc_per_block;
            if meta >= self.geo.first_meta_bg {
                if self.geo.group_gdt_blocks(&self.sb, group) > 0 {
                    let start = meta as usize * block_bytes;
                    to.put(at, &table[start..start + block_bytes])?;
                }
            } else if has_super {
                let blocks = self.geo.gdt_blocks.min(self.geo.first_meta_bg) as usize;
                to.put(at, &table[..blocks * block_bytes])?;
            }
        }
        Ok(())
    }

    /// The superblock of a group. Backups are not marked as clean.
    pub(super) fn superblock_bytes(&self, group: u32, state: u16) -> Result<Vec<u8>> {
        let group_nr = u16::try_from(group).unwrap_or(u16::MAX);
        let sb = Superblock { s_block_group_nr: group_nr, s_state: state, ..self.sb.clone() };
        let mut bytes = self.raw.clone();
        sb.encode_into(&mut bytes)?;
        Ok(bytes)
    }
}
