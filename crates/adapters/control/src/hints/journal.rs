//! The log of a mounted ext4: its blocks, and the contents of its transactions.

use std::collections::BTreeMap;
use std::ops::Range;

use syncline_ondisk::Geometry;
use syncline_ondisk::extent::Extent;
use syncline_ondisk::jbd2::{BlockType, Header, JournalIncompat, JournalSuperblock, Layout, Tags};

/// Copies of a transaction: by their block, the block of the log that holds them, and whether their
/// first word has to be restored.
pub(crate) type Copies = BTreeMap<u64, (u32, bool)>;

/// A log. Its blocks are numbered as in the journal's file; block 0 is its superblock.
#[derive(Debug)]
pub(crate) struct Log {
    extents: Vec<Extent>,
    block_bytes: u64,
    first: u32,
    end: u32,
    features: JournalIncompat,
    pub(crate) layout: Layout,
}

/// The features that stay as they are while it is mounted: the first revocation adds one.
fn without_revoke(superblock: &JournalSuperblock) -> JournalIncompat {
    superblock.s_feature_incompat.without(JournalIncompat::REVOKE)
}

/// Reads a block of the log.
pub(crate) type Read<'a> = &'a dyn Fn(u64) -> Result<Vec<u8>, String>;

impl Log {
    /// The log in these extents, as its superblock describes it.
    pub(crate) fn new(
        extents: Vec<Extent>,
        superblock: &JournalSuperblock,
        geometry: &Geometry,
    ) -> Result<Log, String> {
        let blocks = extents.iter().map(|extent| u64::from(extent.len)).sum();
        superblock.validate(geometry.block_size, blocks).map_err(|err| err.to_string())?;
        let features = without_revoke(superblock);
        for feature in [
            JournalIncompat::ASYNC_COMMIT,
            JournalIncompat::FAST_COMMIT,
            JournalIncompat::PACKED_LOG,
        ] {
            if features.contains(feature) {
                let names: Vec<String> = feature.names().collect();
                return Err(format!("its journal has {}", names.join(", ")));
            }
        }
        Ok(Log {
            extents,
            block_bytes: geometry.block_size as u64,
            first: superblock.s_first,
            end: superblock.s_maxlen,
            features,
            layout: Layout::new(superblock).map_err(|err| err.to_string())?,
        })
    }

    /// True if a later superblock describes the same log.
    pub(crate) fn is_same(&self, superblock: &JournalSuperblock) -> bool {
        let now = (superblock.s_first, superblock.s_maxlen, without_revoke(superblock));
        now == (self.first, self.end, self.features) && superblock.s_uuid == self.layout.uuid
    }

    /// Byte of the device at which a block of the log begins.
    pub(crate) fn place(&self, block: u32) -> Option<u64> {
        self.extents.iter().find_map(|extent| extent.map(block)).map(|at| at * self.block_bytes)
    }

    /// Blocks of the log that a range of bytes touches, each with the byte where it begins.
    pub(crate) fn touched(&self, bytes: &Range<u64>) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        for extent in &self.extents {
            let from = (bytes.start / self.block_bytes).max(extent.start);
            let until = bytes.end.div_ceil(self.block_bytes);
            let until = until.min(extent.start + u64::from(extent.len));
            found.extend((from..until).map(|at| {
                // Both are within the extent.
                (extent.block + (at - extent.start) as u32, at * self.block_bytes)
            }));
        }
        found
    }

    /// The block after one, at the end the first.
    pub(crate) fn next(&self, block: u32) -> u32 {
        if block + 1 >= self.end { self.first } else { block + 1 }
    }

    /// The copies of transaction `sequence`, which begins at `head` and whose commit block is at
    /// `commit`. Everything before that block has been written.
    pub(crate) fn copies(
        &self,
        head: u32,
        sequence: u32,
        commit: u32,
        read: Read<'_>,
    ) -> Result<Copies, String> {
        let strange = || "its journal has a block that does not belong there".to_owned();
        let mut copies = Copies::new();
        let mut at = head;
        let mut left = self.end;
        while at != commit {
            let block = read(self.place(at).ok_or_else(strange)?)?;
            let header = Header::decode(&block).filter(|header| header.sequence == sequence);
            let kind = header.map(|header| header.block_type);
            self.layout.verify_tail_csum(&block).map_err(|err| err.to_string())?;
            match kind {
                Some(BlockType::Revoke) => {}
                Some(BlockType::Descriptor) => {
                    for tag in Tags::new(&block, &self.layout) {
                        at = self.next(at);
                        left = left.checked_sub(1).filter(|_| at != commit).ok_or_else(strange)?;
                        copies.insert(tag.blocknr, (at, tag.escaped));
                    }
                }
                _ => return Err(strange()),
            }
            at = self.next(at);
            left = left.checked_sub(1).ok_or_else(strange)?;
        }
        Ok(copies)
    }
}
