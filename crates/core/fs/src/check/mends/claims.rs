//! Which of the owners of a block keeps it.
//!
//! e2fsck goes through the files with such blocks by inode, and gives each a copy of what another
//! still has. So the last file keeps a block. Of two places in one file the last one keeps it; a
//! third place is for the next round. Reserved inodes keep theirs. Who keeps a block matters where
//! there is no room for all copies.
//!
//! Memory: as many blocks as one round copies, and the marks of shared blocks.

use std::collections::{BTreeMap, BTreeSet};

use syncline_ondisk::inode::{Inode, flags};
use syncline_ondisk::superblock::{RESIZE_INO, ROOT_INO};

use super::Mender;
use crate::check::blocks::Keeps;
use crate::check::inodes::decode;
use crate::check::marks::BlockMarks;
use crate::check::special::BAD_INO;
use crate::check::{Checker, Step};

/// Clusters that an inode has to give up.
#[derive(Default)]
pub(super) struct Claim {
    given: BTreeSet<u64>,
    /// Those that it has in several places, and gives up in the first.
    once: BTreeSet<u64>,
}

impl Claim {
    fn len(&self) -> u64 {
        (self.given.len() + self.once.len()) as u64
    }
}

/// Shared clusters that some inode keeps: with data or maps, and with attributes, which several
/// inodes may have.
struct Kept {
    data: BlockMarks,
    attributes: BTreeSet<u64>,
}

impl Mender<'_, '_> {
    /// Clusters that each inode has to give up: those of the lowest inodes, about `most`.
    pub(super) fn claims(&mut self, most: u64) -> Step<BTreeMap<u32, Claim>> {
        let mut kept = Kept {
            data: BlockMarks::new(&self.c.geo, self.c.cluster_bits),
            attributes: BTreeSet::new(),
        };
        let (first_ino, mut claims, mut count) = (self.c.geo.first_ino, BTreeMap::new(), 0);
        let reserved = 1..first_ino.min(self.c.geo.inodes_count);
        let per_group = self.c.geo.inodes_per_group;
        let scanned = self.c.scanned.clone();
        let plain = (0..self.c.geo.group_count).rev().flat_map(|group| {
            let count = scanned.get(group as usize).copied().unwrap_or(0);
            (1..=count).rev().map(move |nr| group * per_group + nr)
        });
        for ino in reserved.chain(plain.filter(|ino| *ino >= first_ino)) {
            let Some(claim) = self.claim(ino, &mut kept, most)? else { continue };
            count += claim.len();
            claims.insert(ino, claim);
            while let Some(last) =
                claims.last_entry().filter(|last| count > most && *last.key() != ino)
            {
                count -= last.remove().len();
            }
        }
        Ok(claims)
    }

    fn claim(&mut self, ino: u32, kept: &mut Kept, most: u64) -> Step<Option<Claim>> {
        let c = &mut *self.c;
        if !c.inodes.get(&c.geo, ino).used || ino == BAD_INO {
            return Ok(None);
        }
        let Some(raw) = c.read_slot(ino)?.map(|slot| decode(&slot).0) else { return Ok(None) };
        if raw.i_links_count == 0 && ino >= c.geo.first_ino {
            return Ok(None);
        }
        let mut claim = Claim::default();
        let attributes = raw.i_file_acl >> c.cluster_bits;
        if raw.i_file_acl > 0 && c.blocks.is_twice(attributes) {
            if kept.data.is_marked(attributes) {
                claim.given.insert(attributes);
            } else {
                kept.attributes.insert(attributes);
            }
        }
        if has_map(&raw) {
            let (_, own) = self.rewalk_for(ino, &raw, Keeps::Nothing)?;
            for cluster in own.twice_in(&self.c.blocks) {
                if kept.data.mark(cluster, 1).is_some() || kept.attributes.contains(&cluster) {
                    if claim.len() < most {
                        claim.given.insert(cluster);
                    }
                } else if own.is_twice(cluster) {
                    claim.once.insert(cluster);
                }
            }
        }
        Ok(Some(claim).filter(|claim| claim.len() > 0))
    }

    /// True if a block at this place of an inode has to be another one.
    pub(super) fn gives(&self, claim: &mut Claim, block: u64) -> bool {
        if !self.c.in_volume(block) {
            return false;
        }
        let cluster = block >> self.c.cluster_bits;
        let is_foreign = self.c.metadata.is_marked(block) || self.c.bad.is_marked(block);
        is_foreign || claim.given.contains(&cluster) || claim.once.remove(&cluster)
    }

    /// True if an inode can get copies.
    pub(super) fn takes_copies(&self, ino: u32) -> bool {
        let is_plain = ino >= self.c.geo.first_ino || ino == ROOT_INO || self.c.keeps_file(ino);
        is_plain && ino != BAD_INO && ino != RESIZE_INO
    }
}

/// True if an inode has a map of blocks.
pub(super) fn has_map(raw: &Inode) -> bool {
    !raw.has_flag(flags::INLINE_DATA) && Checker::has_map(raw)
}
