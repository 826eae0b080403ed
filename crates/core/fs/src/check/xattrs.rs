//! Extended attributes: the area in the inode, blocks, which inodes may share, and inodes that hold
//! one value each, which entries may share (`ea_inode`).

use syncline_ondisk::inode::Inode;
use syncline_ondisk::xattr::{Entries, Place, Xattr, refcount, verify_block_checksum};

use super::{Checker, Step};
use crate::error::FsError;
use crate::inode::xattr::outside::{read_value, value_inode};

/// Users of one attribute block, or of one inode with a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct XattrUse {
    /// Users it says it has.
    said: u64,
    /// Users that were found.
    found: u64,
    /// Blocks that the values outside of an attribute block count in the inode that has it.
    outside_blocks: u64,
}

impl Checker<'_> {
    /// Checks the attributes of an inode; the number of blocks they count in its `i_blocks`.
    pub(super) fn check_xattrs(&mut self, ino: u32, raw: &Inode, slot: &[u8]) -> Step<u64> {
        let mut blocks = 0;
        if let Some(area) = raw.xattr_range(slot.len()).and_then(|range| slot.get(range)) {
            blocks += self.check_entries((ino, raw), None, area, Place::Inode)?;
        }
        let block = raw.i_file_acl;
        if block == 0 {
            return Ok(blocks);
        }
        if !self.vol.geo.is_valid_range(block, 1) {
            self.note(Some(ino), Some(block), "the xattr block is outside of the volume");
            return Ok(blocks);
        }
        if let Some(known) = self.xattrs.get_mut(&block) {
            known.found = known.found.saturating_add(1);
            return Ok(blocks + 1 + known.outside_blocks);
        }
        self.mark(ino, block, 1);
        let bytes = self.vol.buffers.read(block)?;
        if self.vol.geo.metadata_csum {
            if let Err(err) = verify_block_checksum(&bytes, block, self.vol.csum_seed) {
                self.note_bad(err, Some(ino), Some(block))?;
            }
        }
        let outside_blocks = self.check_entries((ino, raw), Some(block), &bytes, Place::Block)?;
        let said = refcount(&bytes).into();
        self.xattrs.insert(block, XattrUse { said, found: 1, outside_blocks });
        Ok(blocks + 1 + outside_blocks)
    }

    /// Checks the entries of an area; the blocks of values outside of it.
    fn check_entries(
        &mut self,
        (ino, raw): (u32, &Inode),
        block: Option<u64>,
        area: &[u8],
        place: Place,
    ) -> Step<u64> {
        let entries = match Entries::new(area, place) {
            Ok(entries) => entries,
            Err(err) => return self.note_bad(err, Some(ino), block).map(|()| 0),
        };
        let mut blocks = 0;
        for entry in entries {
            match entry {
                Ok(entry) => blocks += self.check_outside((ino, raw), &entry)?,
                Err(err) => return self.note_bad(err, Some(ino), block).map(|()| blocks),
            }
        }
        Ok(blocks)
    }

    /// Checks a value in an inode of its own; the blocks that it counts.
    fn check_outside(&mut self, (ino, raw): (u32, &Inode), entry: &Xattr<'_>) -> Step<u64> {
        let vol = self.vol;
        let Some(outside) = &entry.outside else { return Ok(0) };
        let found = value_inode(vol, ino, outside);
        let Some((_, said)) = self.keep(found, Some(ino), None)? else { return Ok(0) };
        let lustre = said.is_lustre(outside, ino, raw.i_generation);
        let new =
            XattrUse { said: if lustre { 1 } else { said.users }, found: 0, outside_blocks: 0 };
        let known = self.values.entry(outside.inum).or_insert(new);
        known.found = known.found.saturating_add(1);
        if known.found == 1 {
            let value = read_value(vol, (ino, raw.i_generation), entry.name, outside);
            match value {
                // As long as no call returns it; its inode is checked like any other.
                Err(FsError::ArgumentTooBig) => {}
                value => drop(self.keep(value, Some(ino), None)?),
            }
        } else if !lustre && !said.has_entry(entry.name, outside) {
            let what = "an attribute does not have the hash of its value";
            self.note(Some(ino), None, what);
        }
        let size = u64::from(outside.size);
        Ok(if lustre { 0 } else { size.div_ceil(vol.geo.block_size as u64) })
    }

    /// True if an inode holds a value that some attribute has: it has no name.
    pub(super) fn holds_value(&self, ino: u32) -> bool {
        self.values.contains_key(&ino)
    }

    /// Compares the users of each block with its count.
    pub(super) fn check_xattr_users(&mut self) {
        let wrong: Vec<(u64, XattrUse)> = self
            .xattrs
            .iter()
            .filter(|(_, known)| known.said != known.found)
            .map(|(block, known)| (*block, *known))
            .collect();
        for (block, XattrUse { said, found, .. }) in wrong {
            let what = format!("an xattr block says {said} users and has {found}");
            self.note(None, Some(block), what);
        }
        let wrong: Vec<(u32, XattrUse)> = self
            .values
            .iter()
            .filter(|(_, known)| known.said != known.found)
            .map(|(ino, known)| (*ino, *known))
            .collect();
        for (ino, XattrUse { said, found, .. }) in wrong {
            let what = format!("the value of an attribute says {said} users and has {found}");
            self.note(Some(ino), None, what);
        }
    }
}
