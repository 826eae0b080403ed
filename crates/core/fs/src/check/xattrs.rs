//! Extended attributes: the area in the inode, and blocks, which inodes may share.

use syncline_ondisk::OndiskError;
use syncline_ondisk::inode::Inode;
use syncline_ondisk::xattr::{Entries, Place, refcount, verify_block_checksum};

use super::{Checker, Step};

/// One attribute block.
#[derive(Clone, Copy, Debug)]
pub(super) struct XattrUse {
    /// Users it says it has.
    said: u32,
    /// Users that were found.
    found: u32,
}

impl Checker<'_> {
    /// Checks the attributes of an inode; the number of blocks they count in its `i_blocks`.
    pub(super) fn check_xattrs(&mut self, ino: u32, raw: &Inode, slot: &[u8]) -> Step<u64> {
        if let Some(area) = raw.xattr_range(slot.len()).and_then(|range| slot.get(range)) {
            self.check_entries(ino, None, area, Place::Inode)?;
        }
        let block = raw.i_file_acl;
        if block == 0 {
            return Ok(0);
        }
        if !self.vol.geo.is_valid_range(block, 1) {
            self.note(Some(ino), Some(block), "the xattr block is outside of the volume");
            return Ok(0);
        }
        if let Some(known) = self.xattrs.get_mut(&block) {
            known.found = known.found.saturating_add(1);
            return Ok(1);
        }
        self.mark(ino, block, 1);
        let bytes = self.vol.buffers.read(block)?;
        self.xattrs.insert(block, XattrUse { said: refcount(&bytes), found: 1 });
        if self.vol.geo.metadata_csum
            && let Err(err) = verify_block_checksum(&bytes, block, self.vol.csum_seed)
        {
            self.note_bad(err, Some(ino), Some(block))?;
        }
        self.check_entries(ino, Some(block), &bytes, Place::Block)?;
        Ok(1)
    }

    fn check_entries(&mut self, ino: u32, block: Option<u64>, area: &[u8], place: Place) -> Step {
        let first_bad = Entries::new(area, place)
            .and_then(|mut entries| entries.try_for_each(|entry| entry.map(|_| ())));
        match first_bad {
            // A value in an inode of its own: that inode is checked like any other.
            Ok(()) | Err(OndiskError::Unsupported { .. }) => Ok(()),
            Err(err) => self.note_bad(err, Some(ino), block),
        }
    }

    /// Compares the users of each block with its count.
    pub(super) fn check_xattr_users(&mut self) {
        let wrong: Vec<(u64, XattrUse)> = self
            .xattrs
            .iter()
            .filter(|(_, known)| known.said != known.found)
            .map(|(block, known)| (*block, *known))
            .collect();
        for (block, XattrUse { said, found }) in wrong {
            let what = format!("an xattr block says {said} users and has {found}");
            self.note(None, Some(block), what);
        }
    }
}
