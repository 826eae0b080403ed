//! Quota files, written again from the usage that was found and the limits that they have.

use std::collections::{BTreeMap, BTreeSet};

use syncline_ondisk::bytes::{le32, put_bytes, put_le16, put_le32, put_le64};

use syncline_ondisk::IncompatFeatures;
use syncline_ondisk::extent::Extent;
use syncline_ondisk::inode::{I_BLOCK_BYTES, I_BLOCK_OFFSET, flags};

use super::Mender;
use crate::check::Step;
use crate::check::kinds as k;
use crate::check::marks::Runs;
use crate::check::quota::{BLOCK, ENTRY, LEAF_HEADER, LEVELS, MAGIC, SIZE_MAX};

/// Entries of a leaf.
const PER_LEAF: usize = (BLOCK - LEAF_HEADER) / ENTRY;
/// Times of grace in a new file.
const GRACE_SECONDS: u32 = 7 * 86_400;

type Entry = [u8; ENTRY];

impl Mender<'_, '_> {
    pub(super) fn mend_quotas(&mut self) -> Step {
        let wrong = self.inodes_with(&[k::QUOTA, k::QUOTA_FILE]);
        for (kind, ino) in self.c.quota_inodes().into_iter().enumerate() {
            if !wrong.contains(&ino) {
                continue;
            }
            let Some((_, runs)) = self.c.files.get(&ino).cloned() else { continue };
            let mut entries = self.limits(&runs)?;
            let found = self.c.usage.of(kind).cloned().unwrap_or_default();
            for entry in entries.values_mut() {
                put_le64(entry, 24, 0);
                put_le64(entry, 48, 0);
            }
            for (id, (bytes, inodes)) in found {
                let entry = entries.entry(id).or_insert([0; ENTRY]);
                put_le32(entry, 0, id);
                put_le64(entry, 24, inodes);
                put_le64(entry, 48, bytes);
            }
            self.write_quota((kind, ino), &runs, &entries)?;
        }
        Ok(())
    }

    /// The entries of a quota file, as far as it can be read.
    fn limits(&mut self, runs: &Runs) -> Step<BTreeMap<u32, Entry>> {
        let mut entries = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut next = vec![(1, 0)];
        while let Some((nr, level)) = next.pop() {
            if !seen.insert((nr, level)) {
                continue;
            }
            let Some(block) = self.c.quota_block(runs, nr)? else { continue };
            if level < LEVELS {
                let children = (0..BLOCK / 4).map(|at| le32(&block, at * 4));
                next.extend(children.filter(|nr| *nr != 0).map(|nr| (nr, level + 1)));
                continue;
            }
            for bytes in block[LEAF_HEADER..].chunks_exact(ENTRY) {
                let mut entry = [0; ENTRY];
                entry.copy_from_slice(bytes);
                if entry != [0; ENTRY] {
                    entries.insert(le32(bytes, 0), entry);
                }
            }
        }
        Ok(entries)
    }

    /// Writes the file, or gives it the blocks that it needs.
    fn write_quota(
        &mut self,
        (kind, ino): (usize, u32),
        runs: &Runs,
        entries: &BTreeMap<u32, Entry>,
    ) -> Step {
        let grace = match self.c.quota_block(runs, 0)? {
            Some(head) if le32(&head, 0) == MAGIC[kind] => [le32(&head, 8), le32(&head, 12)],
            _ => [GRACE_SECONDS; 2],
        };
        let mut file: Vec<Vec<u8>> = vec![vec![0; BLOCK]; 2];
        let mut leaf = 0;
        for (nth, (id, entry)) in entries.iter().enumerate() {
            if nth % PER_LEAF == 0 {
                leaf = file.len();
                file.push(vec![0; BLOCK]);
            }
            let count = nth % PER_LEAF;
            put_bytes(&mut file[leaf], LEAF_HEADER + count * ENTRY, entry);
            put_le16(&mut file[leaf], 8, count as u16 + 1);
            let mut node = 1;
            for level in 0..LEVELS {
                let at = 4 * (id >> (24 - 8 * level) & 0xff) as usize;
                let known = le32(&file[node], at) as usize;
                if level + 1 == LEVELS {
                    put_le32(&mut file[node], at, leaf as u32);
                } else if known == 0 {
                    let new = file.len();
                    put_le32(&mut file[node], at, new as u32);
                    node = new;
                    file.push(vec![0; BLOCK]);
                } else {
                    node = known;
                }
            }
        }
        let spare = if entries.len() % PER_LEAF == 0 { 0 } else { leaf as u32 };
        let count = file.len() as u32;
        let head = [MAGIC[kind], 1, grace[0], grace[1], 0, count, 0, spare];
        for (i, word) in head.into_iter().enumerate() {
            put_le32(&mut file[0], 4 * i, word);
        }
        if self.raw(ino)?.is_some_and(|raw| raw.i_size > SIZE_MAX) {
            return self.move_quota(ino, count);
        }
        let mut places = Vec::new();
        for nr in 0..count {
            let at = u64::from(nr) * BLOCK as u64;
            let block = runs.map((at >> self.c.geo.block_bits) as u32);
            let Some(block) = block.filter(|block| self.is_own(*block)) else {
                return self.move_quota(ino, count);
            };
            places.push((block, (at % self.c.geo.block_size as u64) as usize));
        }
        for ((block, at), bytes) in places.into_iter().zip(file) {
            self.patch(block, at, &bytes)?;
        }
        Ok(())
    }

    /// Gives a quota new blocks, which the next round fills.
    fn move_quota(&mut self, ino: u32, count: u32) -> Step {
        let size = self.c.geo.block_size;
        let blocks = (count as usize * BLOCK).div_ceil(size) as u32;
        let clusters = blocks.div_ceil(1 << self.c.cluster_bits);
        let Some(start) = self.take_clusters(clusters)? else { return Ok(()) };
        let is_tree = self.c.incompat(IncompatFeatures::EXTENTS);
        self.change(ino, |slot| {
            slot[I_BLOCK_OFFSET..I_BLOCK_OFFSET + I_BLOCK_BYTES].fill(0);
            put_le32(slot, 0x20, if is_tree { flags::EXTENTS } else { 0 });
        })?;
        self.set_size(ino, u64::from(blocks) * size as u64)?;
        for nr in 0..blocks {
            self.put(start + u64::from(nr), vec![0; size]);
            if !is_tree && !self.set_pointer(ino, nr, start + u64::from(nr))? {
                return Ok(());
            }
        }
        let Some(raw) = self.raw(ino)?.filter(|_| is_tree) else { return Ok(()) };
        let extent = Extent { block: 0, len: blocks, start, unwritten: false };
        self.write_extents(ino, &raw, &[extent], Vec::new())
    }
}
