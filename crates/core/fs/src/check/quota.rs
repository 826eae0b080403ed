//! Quotas: the usage that their files say against what was found (feature `quota`).
//!
//! ```text
//!  file   [magic u32, version u32, info] in block 0; the root of a tree in block 1
//!  tree   4 levels of 256 block numbers, one for each byte of the id
//!  leaf   header of 16 bytes, then entries of 72: id, limits, inodes, limits, bytes
//! ```
//!
//! A block of such a file has 1024 bytes, whatever the block size is.

use std::collections::{BTreeMap, BTreeSet};

use syncline_ondisk::bytes::{le32, le64};
use syncline_ondisk::inode::flags;
use syncline_ondisk::superblock::ROOT_INO;
use syncline_ondisk::{RoCompatFeatures, Superblock};

use super::inodes::Slot;
use super::marks::Runs;
use super::report::At;
use super::{Checker, Step, kinds};

/// Bytes of a block of a quota file.
pub(crate) const BLOCK: usize = 1024;
pub(super) const MAGIC: [u32; 3] = [0xd9c0_1f11, 0xd9c0_1927, 0xd9c0_3f14];
const NAMES: [&str; 3] = ["user", "group", "project"];
pub(crate) const LEAF_HEADER: usize = 16;
pub(crate) const ENTRY: usize = 72;
pub(crate) const LEVELS: u32 = 4;
/// Largest quota file of e2fsprogs.
pub(super) const SIZE_MAX: u64 = 1 << 31;
/// Wrong ids that are noted for each quota.
const NOTED: usize = 8;

/// Bytes and inodes of one id.
type Used = (u64, u64);

/// Usage that was found, for users, groups and projects.
///
/// e2fsck does not count links whose target is in the inode with `inline_data`, and Linux does: a
/// quota with them is right, and one without.
pub(super) struct Usage {
    found: [Option<BTreeMap<u32, Used>>; 3],
    /// Usage that only Linux counts.
    inline_links: [BTreeMap<u32, Used>; 3],
    /// A repair has changed something: the quota is to be as e2fsck counts.
    pub(super) is_strict: bool,
    first_ino: u32,
    orphan_file: u32,
    project_quota: u32,
}

impl Usage {
    pub(super) fn new(sb: &Superblock) -> Self {
        let on = sb.s_feature_ro_compat.contains(RoCompatFeatures::QUOTA);
        let inodes = [sb.s_usr_quota_inum, sb.s_grp_quota_inum, sb.s_prj_quota_inum];
        Self {
            found: inodes.map(|ino| (on && ino != 0).then(BTreeMap::new)),
            inline_links: Default::default(),
            is_strict: false,
            first_ino: sb.first_ino(),
            orphan_file: sb.s_orphan_file_inum,
            project_quota: sb.s_prj_quota_inum,
        }
    }

    /// Usage of users, groups or projects; `None` without a quota.
    pub(super) fn of(&self, kind: usize) -> Option<&BTreeMap<u32, Used>> {
        self.found.get(kind).and_then(Option::as_ref)
    }

    /// Counts an inode, with the inodes of its attributes.
    pub(super) fn add(&mut self, slot: &Slot<'_>, bytes: u64, inodes: u64) {
        let (ino, raw) = (slot.ino, &slot.raw);
        let counted = ino == ROOT_INO || ino >= self.first_ino;
        if !counted
            || ino == self.orphan_file
            || ino == self.project_quota
            || raw.has_flag(flags::EA_INODE)
        {
            return;
        }
        let has_project = slot.bytes.len() > 128;
        let ids = [Some(raw.i_uid), Some(raw.i_gid), has_project.then_some(raw.i_projid)];
        let is_link = raw.is_symlink() && raw.has_flag(flags::INLINE_DATA);
        for ((found, links), id) in self.found.iter_mut().zip(&mut self.inline_links).zip(ids) {
            if let (Some(found), Some(id)) = (found, id) {
                let used = if is_link { links } else { found }.entry(id).or_default();
                used.0 = used.0.saturating_add(bytes);
                used.1 = used.1.saturating_add(inodes + 1);
            }
        }
    }
}

impl Checker<'_> {
    pub(super) fn check_quota(&mut self) -> Step {
        if !self.ro_compat(RoCompatFeatures::QUOTA) {
            self.quota_inodes().into_iter().for_each(|ino| self.check_stray(ino, "quota"));
        }
        for (kind, ino) in (0..).zip(self.quota_inodes()) {
            let Some(found) = self.usage.of(kind).cloned() else { continue };
            let said = match self.files.get(&ino).cloned() {
                Some((raw, runs)) => self.read_quota(kind, raw.i_size, &runs)?,
                None => Err("the quota is not in use".into()),
            };
            let at = At::ino(ino);
            match said {
                Err(what) => self.note(kinds::QUOTA_FILE, at, what),
                Ok(said) => self.compare_quota(kind, at, &found, &said),
            }
        }
        Ok(())
    }

    fn compare_quota(
        &mut self,
        kind: usize,
        at: At,
        found: &BTreeMap<u32, Used>,
        said: &BTreeMap<u32, Used>,
    ) {
        let ids: BTreeSet<u32> = found.keys().chain(said.keys()).copied().collect();
        let wrong = ids.into_iter().filter_map(|id| {
            let (said, found) = (*said.get(&id)?, found.get(&id).copied().unwrap_or_default());
            let links = self.usage.inline_links[kind].get(&id).copied().unwrap_or_default();
            let with_links = (found.0.saturating_add(links.0), found.1.saturating_add(links.1));
            let is_right = said == found || said == with_links && !self.usage.is_strict;
            (!is_right).then_some((id, found, Some(said)))
        });
        let missing = found.keys().filter(|id| !said.contains_key(id));
        let missing = missing.map(|id| (*id, found[id], None));
        let name = NAMES[kind];
        for (id, (bytes, inodes), said) in wrong.chain(missing).take(NOTED).collect::<Vec<_>>() {
            let said = match said {
                Some((bytes, inodes)) => format!("says {bytes} bytes and {inodes} inodes"),
                None => "does not have it".into(),
            };
            let what =
                format!("{name} {id} has {bytes} bytes and {inodes} inodes, the quota {said}");
            self.note(kinds::QUOTA, at, what);
        }
    }

    /// Usage in a quota file.
    fn read_quota(
        &mut self,
        kind: usize,
        size_bytes: u64,
        runs: &Runs,
    ) -> Step<std::result::Result<BTreeMap<u32, Used>, String>> {
        let Some(head) = self.quota_block(runs, 0)? else {
            return Ok(Err("the quota does not have its first block".into()));
        };
        if le32(&head, 0) != MAGIC[kind] || le32(&head, 4) != 1 {
            return Ok(Err("the quota does not have its magic".into()));
        }
        // Blocks, the first free one, the first with a free entry.
        let [blocks, free, spare] = [20, 24, 28].map(|at| le32(&head, at));
        let room = size_bytes.div_ceil(BLOCK as u64);
        if size_bytes > SIZE_MAX || u64::from(blocks) > room || free.max(spare) >= blocks {
            let what = format!("a quota of {size_bytes} bytes with {blocks} blocks");
            return Ok(Err(what));
        }
        let mut said = BTreeMap::new();
        // A block that was seen on a level is not walked into again.
        let mut seen = BTreeSet::new();
        let mut next = vec![(1, 0)];
        while let Some((nr, level)) = next.pop() {
            if !seen.insert((nr, level)) {
                continue;
            }
            let block = if nr < blocks { self.quota_block(runs, nr)? } else { None };
            let Some(block) = block else {
                return Ok(Err(format!("the quota does not have its block {nr}")));
            };
            if level < LEVELS {
                let children = (0..BLOCK / 4).map(|at| le32(&block, at * 4));
                next.extend(children.filter(|nr| *nr != 0).map(|nr| (nr, level + 1)));
                continue;
            }
            for entry in block[LEAF_HEADER..].chunks_exact(ENTRY) {
                if entry.iter().any(|byte| *byte != 0) {
                    let used = (le64(entry, 48), le64(entry, 24));
                    if said.insert(le32(entry, 0), used).is_some() {
                        return Ok(Err(format!("the quota has id {} twice", le32(entry, 0))));
                    }
                }
            }
        }
        Ok(Ok(said))
    }

    pub(super) fn quota_block(&mut self, runs: &Runs, nr: u32) -> Step<Option<Vec<u8>>> {
        let at = u64::from(nr) * BLOCK as u64;
        let Ok(lblk) = u32::try_from(at >> self.geo.block_bits) else { return Ok(None) };
        let Some(block) = runs.map(lblk) else { return Ok(None) };
        let Some(bytes) = self.read(block)? else { return Ok(None) };
        let offset = (at % self.geo.block_size as u64) as usize;
        Ok(bytes.get(offset..offset + BLOCK).map(<[u8]>::to_vec))
    }
}
