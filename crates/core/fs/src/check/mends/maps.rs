//! Maps of inodes: extent trees are written again from what is right in them, and pointers that are
//! wrong are cleared, as e2fsck does.

use std::collections::BTreeMap;
use std::mem;

use syncline_ondisk::IncompatFeatures;
use syncline_ondisk::blockmap::{NDIR_BLOCKS, pointer};
use syncline_ondisk::bytes::{le32, put_bytes, put_le32};
use syncline_ondisk::extent::{
    ENTRY_BYTES, Extent, ExtentIndex, NodeMut, ROOT_MAX, set_block_checksum,
};
use syncline_ondisk::inode::{I_BLOCK_BYTES, I_BLOCK_OFFSET, Inode, flags};
use syncline_ondisk::superblock::{RESIZE_INO, ROOT_INO};

use super::Mender;
use crate::check::Step;
use crate::check::blocks::{Keeps, Mapped, extent_header};
use crate::check::kinds::{self as k, Kind};
use crate::check::marks::BlockMarks;
use crate::check::special::BAD_INO;

/// Wrong pointers that clear a whole inode.
const WRONG_MAX: usize = 12;

pub(super) const OF_MAPS: [Kind; 13] = [
    k::BLOCK_MAPPED,
    k::EXTENT_HEADER,
    k::EXTENT_CSUM,
    k::EXTENT_DEPTH,
    k::EXTENT_RANGE,
    k::EXTENT_ORDER,
    k::EXTENT_EMPTY,
    k::EXTENT_INDEX,
    k::EXTENT_UNWRITTEN_DIR,
    k::BLOCK_RANGE,
    k::BLOCK_TOO_FAR,
    k::DIR_TOO_LARGE,
    k::DIR_HOLE,
];

/// A pass over the pointers of one inode.
struct Pointers {
    is_link: bool,
    is_dir: bool,
    /// Pointers that are wrong, and how many end the pass.
    wrong: usize,
    most: usize,
    /// Logical block of the next pointer to data.
    lblk: u64,
}

impl Mender<'_, '_> {
    pub(super) fn mend_maps(&mut self, turned: &[u32]) -> Step {
        for ino in self.inodes_with(&OF_MAPS) {
            if ino == RESIZE_INO || turned.contains(&ino) {
                continue;
            }
            let Some(raw) = self.raw(ino)? else { continue };
            if raw.i_links_count == 0 && ino != BAD_INO {
                continue;
            }
            let is_mapped = self.c.cluster_bits > 0 && !self.has_wrong_pointer(ino);
            if raw.has_flag(flags::EXTENTS) {
                self.mend_extents(ino, &raw)?;
            } else if is_mapped {
                self.make_tree(ino, &raw)?;
            } else {
                self.mend_pointers(ino, &raw)?;
            }
        }
        Ok(())
    }

    fn has_wrong_pointer(&self, ino: u32) -> bool {
        let wrong = [k::BLOCK_RANGE, k::BLOCK_TOO_FAR, k::DIR_TOO_LARGE];
        let of_inode = self.errors.iter().filter(|found| found.inode == Some(ino));
        of_inode.into_iter().any(|found| super::is_of(found, &wrong))
    }

    /// Makes an extent tree of pointers.
    fn make_tree(&mut self, ino: u32, raw: &Inode) -> Step {
        let mut extents: Vec<Extent> = Vec::new();
        for (block, start) in self.rewalk(ino, raw)?.runs.blocks() {
            super::grow::append(&mut extents, Extent { block, len: 1, start, unwritten: false });
        }
        if !self.c.incompat(IncompatFeatures::EXTENTS) {
            return Ok(());
        }
        self.change(ino, |slot| {
            let all = le32(slot, 0x20) | flags::EXTENTS;
            put_le32(slot, 0x20, all);
        })?;
        self.write_extents(ino, raw, &extents, Vec::new())
    }

    /// Walks the map of one inode again, as if no other had blocks. Findings are dropped.
    pub(super) fn rewalk(&mut self, ino: u32, raw: &Inode) -> Step<Mapped> {
        Ok(self.rewalk_for(ino, raw, Keeps::Map)?.0)
    }

    /// The same, with the clusters that it has.
    pub(super) fn rewalk_for(
        &mut self,
        ino: u32,
        raw: &Inode,
        keeps: Keeps,
    ) -> Step<(Mapped, BlockMarks)> {
        let c = &mut *self.c;
        let marks = mem::replace(&mut c.blocks, BlockMarks::new(&c.geo, c.cluster_bits));
        let report = mem::take(&mut c.report);
        let mapped = c.walk_blocks(ino, raw, keeps);
        c.report = report;
        let own = mem::replace(&mut c.blocks, marks);
        Ok((mapped?, own))
    }

    /// True if a block is in use by one inode alone.
    pub(super) fn is_own(&self, block: u64) -> bool {
        let c = &*self.c;
        let cluster = block >> c.cluster_bits;
        c.in_volume(block) && !c.metadata.is_marked(block) && !c.blocks.is_twice(cluster)
    }

    fn mend_extents(&mut self, ino: u32, raw: &Inode) -> Step {
        if extent_header(&raw.i_block).is_err() {
            return self.clear_inode(ino);
        }
        let (Mapped { mut extents, nodes, .. }, _) =
            self.rewalk_for(ino, raw, Keeps::Disordered)?;
        // In a cluster each block has its place.
        if raw.is_dir() && self.c.cluster_bits == 0 {
            without_gaps(&mut extents);
        }
        let blocks = raw.i_size.div_ceil(self.c.geo.block_size as u64);
        let mut extents = in_order(extents, blocks, self.c.cluster_bits);
        if raw.is_dir() {
            extents.iter_mut().for_each(|extent| extent.unwritten = false);
            if !self.close_holes(ino, raw, &mut extents)? {
                return Ok(());
            }
        }
        self.write_extents(ino, raw, &extents, nodes)
    }

    /// Writes an extent tree, into blocks of the old one as far as they are the inode's alone.
    pub(super) fn write_extents(
        &mut self,
        ino: u32,
        raw: &Inode,
        extents: &[Extent],
        nodes: Vec<u64>,
    ) -> Step {
        let mut old = nodes;
        old.retain(|block| self.is_own(*block));
        old.reverse();
        let seed = self.seed(ino, raw.i_generation);
        let size = self.c.geo.block_size;
        let per_node = size.saturating_sub(ENTRY_BYTES + 4) / ENTRY_BYTES;
        let mut root = [0; I_BLOCK_BYTES];
        let mut depth = 0;
        let mut level: Vec<ExtentIndex> = Vec::new();
        if extents.len() <= usize::from(ROOT_MAX) {
            fill(&mut NodeMut::init(&mut root, 0), extents, &[]);
        }
        let mut written = Vec::new();
        while depth == 0 && extents.len() > usize::from(ROOT_MAX)
            || level.len() > usize::from(ROOT_MAX)
        {
            let count = if depth == 0 { extents.len() } else { level.len() };
            let mut above = Vec::new();
            for start in (0..count).step_by(per_node.max(1)) {
                let range = start..(start + per_node).min(count);
                let next = match old.pop() {
                    Some(block) => Some(block),
                    None => self.take_block()?,
                };
                let Some(leaf) = next else { return Ok(()) };
                let mut bytes = vec![0; size];
                let mut node = NodeMut::init(&mut bytes, depth);
                let block = if depth == 0 {
                    fill(&mut node, &extents[range.clone()], &[]);
                    extents[range.start].block
                } else {
                    fill(&mut node, &[], &level[range.clone()]);
                    level[range.start].block
                };
                if let Some(seed) = seed {
                    set_block_checksum(&mut bytes, seed);
                }
                written.push((leaf, bytes));
                above.push(ExtentIndex { block, leaf });
            }
            level = above;
            depth += 1;
        }
        if depth > 0 {
            fill(&mut NodeMut::init(&mut root, depth), &[], &level);
        }
        written.into_iter().for_each(|(block, bytes)| self.put(block, bytes));
        self.change(ino, |slot| put_bytes(slot, I_BLOCK_OFFSET, &root))
    }

    fn mend_pointers(&mut self, ino: u32, raw: &Inode) -> Step {
        let is_plain = ino >= self.c.geo.first_ino || ino == ROOT_INO;
        let most = if is_plain { WRONG_MAX } else { usize::MAX };
        let (is_link, is_dir) = (raw.is_symlink(), raw.is_dir());
        let mut pass = Pointers { is_link, is_dir, wrong: 0, most, lblk: 0 };
        let mut root = raw.i_block;
        let mut tables = Vec::new();
        for slot in 0..15 {
            let levels = slot.max(NDIR_BLOCKS - 1) - (NDIR_BLOCKS - 1);
            self.mend_pointer(&mut pass, raw, &mut root, (slot, levels), &mut tables)?;
        }
        if pass.wrong >= most {
            return self.clear_inode(ino);
        }
        tables.into_iter().for_each(|(block, bytes)| self.put(block, bytes));
        self.change(ino, |slot| put_bytes(slot, I_BLOCK_OFFSET, &root))?;
        if pass.wrong == 0 && self.has_hole(ino) {
            return self.fill_pointer_holes(ino);
        }
        Ok(())
    }

    fn has_hole(&self, ino: u32) -> bool {
        let is_hole = |found: &&crate::check::Finding| super::is_of(found, &[k::DIR_HOLE]);
        self.errors.iter().filter(is_hole).any(|found| found.inode == Some(ino))
    }

    /// Clears one pointer of `table` if it is wrong, and those below it.
    fn mend_pointer(
        &mut self,
        pass: &mut Pointers,
        raw: &Inode,
        table: &mut [u8],
        (slot, levels): (u32, u32),
        tables: &mut Vec<(u64, Vec<u8>)>,
    ) -> Step {
        let per = self.c.geo.block_size as u64 / 4;
        let (here, block) = (pass.lblk, u64::from(pointer(table, slot).unwrap_or(0)));
        pass.lblk = here.saturating_add(per.saturating_pow(levels));
        if block == 0 {
            return Ok(());
        }
        let is_far = levels == 0
            && (pass.is_link && here > 0 || pass.is_dir && self.c.is_too_large(raw, here));
        if !self.c.in_volume(block) || is_far {
            pass.wrong += 1;
            put_le32(table, 4 * slot as usize, 0);
            return Ok(());
        }
        // A table that something else has, too, is copied first.
        if levels == 0 || !self.is_own(block) || pass.wrong >= pass.most {
            return Ok(());
        }
        let Some(mut below) = self.view(block)? else { return Ok(()) };
        let (end, before) = (pass.lblk, pass.wrong);
        pass.lblk = here;
        for slot in 0..per as u32 {
            self.mend_pointer(pass, raw, &mut below, (slot, levels - 1), tables)?;
        }
        pass.lblk = end;
        if pass.wrong > before {
            tables.push((block, below));
        }
        Ok(())
    }
}

/// The extents of a directory, which has no holes: one that just fills the gap between its
/// neighbours is put there.
fn without_gaps(extents: &mut [Extent]) {
    let mut expected = 0;
    for at in 0..extents.len() {
        let next = extents.get(at + 1).map(|next| u64::from(next.block));
        let Some(extent) = extents.get_mut(at) else { break };
        let len = u64::from(extent.len);
        if let (Ok(place), true) = (u32::try_from(expected), next == Some(expected + len)) {
            extent.block = place;
        }
        expected = u64::from(extent.block) + len;
    }
}

/// Extents that go up and do not overlap: the longest chain of them that is in order, and of the
/// others those that fit between and begin below `blocks`, the blocks of the file. Of chains of
/// one length it takes the one with more extents in the file, and then, as e2fsck does, the first
/// of those that overlap. One between others of its cluster lies where they do, or it is not the
/// file's there.
fn in_order(extents: Vec<Extent>, blocks: u64, cluster_bits: u32) -> Vec<Extent> {
    let end = |extent: &Extent| u64::from(extent.block) + u64::from(extent.len);
    if extents.is_sorted_by(|one, next| end(one) <= next.block.into()) {
        return extents;
    }
    // By its end, the best chain: its extents, those within the file, and the last of it.
    let mut chains: BTreeMap<u64, ((usize, usize), usize)> = BTreeMap::new();
    let mut before: Vec<Option<usize>> = Vec::new();
    for (at, extent) in extents.iter().enumerate() {
        let chain = chains.range(..=u64::from(extent.block)).next_back();
        let ((count, within), link) =
            chain.map_or(((0, 0), None), |(_, (length, at))| (*length, Some(*at)));
        before.push(link);
        let length = (count + 1, within + usize::from(u64::from(extent.block) < blocks));
        if chains.range(..=end(extent)).next_back().is_some_and(|(_, (best, _))| *best >= length) {
            continue;
        }
        while let Some((&worse, _)) =
            chains.range(end(extent)..).next().filter(|(_, (best, _))| *best < length)
        {
            chains.remove(&worse);
        }
        chains.insert(end(extent), (length, at));
    }
    let mut next = chains.last_key_value().map(|(_, (_, at))| *at);
    let mut kept = BTreeMap::new();
    while let Some(at) = next {
        kept.extend(extents.get(at).map(|extent| (extent.block, *extent)));
        next = before.get(at).copied().flatten();
    }
    let cluster = |block: u64| block >> cluster_bits;
    let shift = |extent: &Extent| extent.start.wrapping_sub(extent.block.into());
    for extent in extents {
        let below = kept.range(..=extent.block).next_back().map(|(_, one)| one);
        let above = kept.range(extent.block..).next().map(|(_, one)| one);
        let (from, to) = (u64::from(extent.block), end(&extent));
        let is_behind = below.is_none_or(|one| {
            let is_apart = cluster(end(one).saturating_sub(1)) < cluster(from);
            end(one) <= from && (is_apart || shift(one) == shift(&extent))
        });
        let is_before = above.is_none_or(|one| {
            let is_apart = cluster(to.saturating_sub(1)) < cluster(one.block.into());
            to <= one.block.into() && (is_apart || shift(one) == shift(&extent))
        });
        if is_behind && is_before && from < blocks {
            kept.insert(extent.block, extent);
        }
    }
    kept.into_values().collect()
}

/// Fills an empty node.
fn fill(node: &mut NodeMut<'_>, extents: &[Extent], indexes: &[ExtentIndex]) {
    for (i, extent) in extents.iter().enumerate() {
        let _ = node.insert_extent(i, extent);
    }
    for (i, index) in indexes.iter().enumerate() {
        let _ = node.insert_index(i, index);
    }
}
