//! Extended attributes: an area that is broken loses all, as with e2fsck. Users are counted.

use syncline_ondisk::bytes::{le16, le32, put_bytes, put_le16, put_le32, u8_at};
use syncline_ondisk::extent::Extent;
use syncline_ondisk::inode::{I_BLOCK_BYTES, I_BLOCK_OFFSET, flags};
use syncline_ondisk::xattr::{Place, XATTR_MAGIC, XattrSet, set_block_checksum, set_refcount};
use syncline_ondisk::{CompatFeatures, IncompatFeatures, inline};

use super::Mender;
use crate::check::Step;
use crate::check::inodes::decode;
use crate::check::kinds as k;

/// Clears the places of empty values that are outside of an area. Its entries begin at `at`, and
/// places count from `base`.
fn clear_empty_places(area: &mut [u8], mut at: usize, base: usize) {
    while at + 16 <= area.len() && le32(area, at) != 0 {
        let is_empty = le32(area, at + 4) == 0 && le32(area, at + 8) == 0;
        if is_empty && base + usize::from(le16(area, at + 2)) > area.len() {
            put_le16(area, at + 2, 0);
        }
        at += 16 + ((usize::from(u8_at(area, at)) + 3) & !3);
    }
}

impl Mender<'_, '_> {
    pub(super) fn mend_xattrs(&mut self) -> Step {
        let broken = [k::XATTR_BLOCK, k::XATTR_ENTRY, k::XATTR_HASH, k::XATTR_VALUE];
        for finding in self.found(&broken) {
            let Some(ino) = finding.inode else { continue };
            let is_feature = !self.c.incompat(IncompatFeatures::EA_INODE);
            if is_feature && finding.name == k::XATTR_VALUE.name {
                self.set_incompat(IncompatFeatures::EA_INODE)?;
                continue;
            }
            let Some(raw) = self.raw(ino)? else { continue };
            if finding.block.is_some_and(|block| block == raw.i_file_acl) {
                self.change(ino, |slot| {
                    put_le32(slot, 0x68, 0);
                    put_le16(slot, 0x76, 0);
                })?;
            } else if let Some(range) = raw.xattr_range(self.c.geo.inode_size) {
                self.change(ino, |slot| {
                    if let Some(area) = slot.get_mut(range) {
                        put_le32(area, 0, 0);
                    }
                })?;
            }
        }
        for finding in self.found(&[k::XATTR_CSUM, k::XATTR_PLACE]) {
            let block = finding.block.filter(|block| self.is_own(*block));
            let range = match finding.inode.filter(|_| finding.block.is_none()) {
                Some(ino) => self.raw(ino)?.and_then(|raw| raw.xattr_range(self.c.geo.inode_size)),
                None => None,
            };
            if let Some(block) = block {
                self.write_xattr_block(block, None)?;
            } else if let Some((ino, range)) = finding.inode.zip(range) {
                self.change(ino, |slot| {
                    if let Some(area) = slot.get_mut(range) {
                        clear_empty_places(area, 4, 4);
                    }
                })?;
            }
        }
        if self.has(&broken) || !self.c.compat(CompatFeatures::EXT_ATTR) {
            return Ok(());
        }
        for finding in self.found(&[k::XATTR_USERS]) {
            let Some((block, right)) = finding.block.zip(finding.right) else { continue };
            if let Some(link) = finding.inode {
                if self.move_target(link)? {
                    continue;
                }
            }
            self.write_xattr_block(block, Some(right as u32))?;
        }
        for finding in self.found(&[k::XATTR_VALUE_USERS]) {
            let Some((ino, right)) = finding.inode.zip(finding.right) else { continue };
            self.change(ino, |slot| {
                put_le32(slot, 0x0c, (right >> 32) as u32);
                put_le32(slot, 0x24, (right & 0xffff_ffff) as u32);
            })?;
        }
        Ok(())
    }

    /// Moves the target of a symbolic link out of its inode, into a block. e2fsck does not look at
    /// attributes of such a link before: it finds one user less than Linux and Syncline do, and
    /// takes the block for free. False: there is no room.
    fn move_target(&mut self, ino: u32) -> Step<bool> {
        let Some(mut slot) = self.slot(ino)?.cloned() else { return Ok(false) };
        let raw = decode(&slot).0;
        let Ok(mut target) = inline::stored(&raw, &slot) else { return Ok(false) };
        let area = raw.xattr_range(slot.len()).and_then(|range| slot.get_mut(range));
        let Some((area, Ok(mut set))) = area.map(|area| {
            let set = XattrSet::decode(area, Place::Inode);
            (area, set)
        }) else {
            return Ok(false);
        };
        let (index, name) = inline::ATTRIBUTE;
        if !set.remove(index, name) || set.encode_inode(area).is_err() {
            return Ok(false);
        }
        let Some(start) = self.take_block()? else { return Ok(false) };
        target.truncate(usize::try_from(raw.i_size).unwrap_or(0));
        target.resize(self.c.geo.block_size, 0);
        self.put(start, target);
        let is_tree = self.c.incompat(IncompatFeatures::EXTENTS);
        let kept = raw.i_flags & !flags::INLINE_DATA;
        put_le32(&mut slot, 0x20, kept | if is_tree { flags::EXTENTS } else { 0 });
        put_bytes(&mut slot, I_BLOCK_OFFSET, &[0; I_BLOCK_BYTES]);
        self.slots.insert(ino, slot);
        if !is_tree {
            return self.set_pointer(ino, 0, start);
        }
        let extents = [Extent { block: 0, len: 1, start, unwritten: false }];
        self.write_extents(ino, &raw, &extents, Vec::new())?;
        Ok(true)
    }

    /// Writes a block of attributes with a number of users and its checksum.
    fn write_xattr_block(&mut self, block: u64, users: Option<u32>) -> Step {
        let Some(mut bytes) = self.view(block)? else { return Ok(()) };
        if le32(&bytes, 0) != XATTR_MAGIC {
            return Ok(());
        }
        if let Some(users) = users {
            set_refcount(&mut bytes, users);
        }
        clear_empty_places(&mut bytes, 32, 0);
        if self.c.geo.metadata_csum {
            set_block_checksum(&mut bytes, block, self.c.sb.csum_seed());
        }
        self.put(block, bytes);
        Ok(())
    }
}
