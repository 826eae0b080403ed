//! The end: inode numbers, directories, attributes, extents, the size, tables, superblock.

use std::collections::BTreeMap;

use syncline_device::BlockDevice;
use syncline_ondisk::device_number::device_numbers;
use syncline_ondisk::dir::{DirFormat, file_type};
use syncline_ondisk::inode::{
    EXTRA_ISIZE_FULL, GOOD_OLD_INODE_SIZE, I_BLOCK_BYTES, S_IFBLK, S_IFCHR, flags,
};
use syncline_ondisk::superblock::ROOT_INO;
use syncline_ondisk::{Inode, RoCompatFeatures, Superblock, checksum, xattr};

use super::super::builder::Builder;
use super::super::extents;
use super::super::geometry::FIRST_INO;
use super::super::write::{Writer, clear, zero};
use super::contents::Run;
use super::dirs::{Named, Shape};
use super::tree::{Content, Node};
use super::{Build, Built, NodeId, ROOT, fit};
use crate::error::{FsError, Result};
use crate::names::namei::LINKS_MAX;

/// lost+found has blocks up to this size, as in [`crate::mkfs`].
const LOST_FOUND_BYTES: usize = 16 << 10;

/// Parts of the few inodes that have more than the tree holds.
#[derive(Default)]
struct Extra {
    /// Roots of extent trees with blocks, and their number.
    roots: BTreeMap<NodeId, ([u8; I_BLOCK_BYTES], u64)>,
    /// Blocks of attributes.
    acls: BTreeMap<NodeId, u64>,
    /// Directories with an index.
    indexed: Vec<NodeId>,
}

/// The block of an inode table that is being filled.
struct Table {
    block: Vec<u8>,
    at: Option<u64>,
}

impl Table {
    /// The bytes of an inode, whose number is above those before.
    fn slot<D: BlockDevice>(
        &mut self,
        builder: &Builder,
        to: &mut Writer<D>,
        ino: u32,
    ) -> Result<&mut [u8]> {
        let (block, byte) = builder.inode_place(ino);
        if self.at != Some(block) {
            self.flush(to)?;
            self.block.fill(0);
            self.at = Some(block);
        }
        Ok(&mut self.block[byte..byte + builder.geo.inode_size])
    }

    fn flush<D: BlockDevice>(&mut self, to: &mut Writer<D>) -> Result<()> {
        match self.at.take() {
            Some(at) => to.put(at * self.block.len() as u64, &self.block),
            None => Ok(()),
        }
    }
}

fn seed_of(builder: &Builder, ino: u32) -> Option<u32> {
    builder.geo.metadata_csum.then(|| builder.inode_seed(ino))
}

impl<D: BlockDevice> Build<D> {
    /// Makes the file system. If this fails, the device holds none.
    ///
    /// # Errors
    /// NoSpace: it is larger than its size. TooManyLinks. Io: the device failed.
    pub fn finish(mut self) -> Result<Built> {
        self.close()?;
        // With the identity that is known by now.
        let sizes = fit::nominal(&self.options, self.size)?;
        let sb = sizes.sb;
        let last_ino = self.number()?;
        self.contents.fill_gaps();
        let mut extra = Extra::default();
        self.put_dirs(&sb, last_ino, &mut extra)?;
        self.put_xattrs(&sb, &mut extra)?;
        self.put_extents(&sb, &mut extra)?;
        let builder = &mut self.fit(last_ino)?;
        let block_size = self.geo.block_size as u64;
        self.contents.to.send()?;
        for (block, count) in std::mem::take(&mut builder.zeros) {
            zero(self.contents.to.device(), block * block_size, count * block_size)?;
        }
        let free_blocks = builder.sb.s_free_blocks_count;
        builder.sb.s_kbytes_written = builder.used.count() * (block_size / 1024);
        self.put_inodes(builder, &extra)?;
        self.contents.to.send()?;
        if let Err(err) = builder.write_all(self.contents.to.device()) {
            // The first error counts, and the device may be beyond help.
            let _ = clear(self.contents.to.device());
            return Err(err);
        }
        Ok(Built {
            size_bytes: builder.geo.blocks_count * block_size,
            free_blocks,
            free_inodes: builder.sb.s_free_inodes_count,
            block_bytes: block_size as u32,
        })
    }

    /// Gives every inode its number; returns the last one.
    fn number(&mut self) -> Result<u32> {
        let mut next = FIRST_INO;
        for (at, node) in self.tree.nodes.iter_mut().enumerate() {
            if node.links == 0 {
                continue;
            }
            if at == 0 {
                node.ino = ROOT_INO;
                continue;
            }
            node.ino = next;
            next = next.checked_add(1).ok_or(FsError::NoSpace)?;
        }
        Ok(next - 1)
    }

    fn seed(sb: &Superblock, ino: u32) -> u32 {
        checksum::inode_seed(sb.csum_seed(), ino, 0)
    }

    fn put_dirs(&mut self, sb: &Superblock, last_ino: u32, extra: &mut Extra) -> Result<()> {
        let format = DirFormat { inodes_count: last_ino, ..DirFormat::new(sb) };
        let hash = sb.hash_kind()?;
        let shape = Shape { format, hash, fold: None, block_size: self.geo.block_size };
        for at in 0..self.tree.dirs.len() {
            let dir = &self.tree.dirs[at];
            let (id, ino) = (dir.node, self.tree.node(dir.node).ino);
            if self.tree.node(id).links == 0 {
                continue;
            }
            let seed = Self::seed(sb, ino);
            let entries: Vec<Named<'_>> = dir
                .entries
                .iter()
                .map(|(name, id)| {
                    let node = self.tree.node(*id);
                    (&name[..], node.ino, file_type::from_mode(node.meta.mode))
                })
                .collect();
            let parent = self.tree.node(dir.parent).ino;
            let mut encoded = shape.encode((ino, parent), &entries, seed)?;
            if ino == FIRST_INO && !encoded.indexed {
                let blocks = (LOST_FOUND_BYTES / shape.block_size).clamp(2, 12);
                (1..blocks).for_each(|_| encoded.bytes.extend(shape.empty(seed)));
            }
            if encoded.indexed {
                extra.indexed.push(id);
            }
            let from = self.contents.runs.len() as u32;
            self.contents.blocks(from, 0, &encoded.bytes)?;
            let node = self.tree.node_mut(id);
            node.size = encoded.bytes.len() as u64;
            node.runs = (from, self.contents.runs.len() as u32 - from);
        }
        Ok(())
    }

    fn put_xattrs(&mut self, sb: &Superblock, extra: &mut Extra) -> Result<()> {
        let with = |node: &&Node| node.links > 0 && node.xattrs > 0;
        for node in self.tree.nodes.iter().filter(with) {
            self.sets.sets[node.xattrs as usize - 1].users += 1;
        }
        let contents = &mut self.contents;
        let mut bytes = vec![0; self.geo.block_size];
        for (at, node) in self.tree.nodes.iter().enumerate().filter(|(_, node)| with(node)) {
            let set = &mut self.sets.sets[node.xattrs as usize - 1];
            if set.block.is_empty() {
                continue;
            }
            let block = set.block_of_next(|set, users| {
                let (block, _) = contents.take(1)?;
                set.block.encode_block(&mut bytes, users)?;
                if sb.has_metadata_csum() {
                    xattr::set_block_checksum(&mut bytes, block, sb.csum_seed());
                }
                contents.put(block, &bytes)?;
                Ok(block)
            })?;
            extra.acls.insert(NodeId(at as u32), block);
        }
        Ok(())
    }

    fn put_extents(&mut self, sb: &Superblock, extra: &mut Extra) -> Result<()> {
        for (at, node) in self.tree.nodes.iter().enumerate() {
            let (from, count) = node.runs;
            if node.links == 0 || count <= syncline_ondisk::extent::ROOT_MAX.into() {
                continue;
            }
            let runs: Vec<Run> =
                self.contents.runs[from as usize..(from + count) as usize].to_vec();
            let seed = sb.has_metadata_csum().then(|| Self::seed(sb, node.ino));
            let contents = &mut self.contents;
            let mut put = |bytes: &[u8]| {
                let (block, _) = contents.take(1)?;
                contents.put(block, bytes)?;
                Ok(block)
            };
            let extent = |i: usize| runs[i].extent();
            let root = extents::encode(runs.len(), &extent, self.geo.block_size, seed, &mut put)?;
            extra.roots.insert(NodeId(at as u32), root);
        }
        Ok(())
    }

    /// Writes the inode tables as far as inodes are used.
    fn put_inodes(&mut self, builder: &mut Builder, extra: &Extra) -> Result<()> {
        let bytes = builder.geo.inode_size;
        let mut areas = Vec::with_capacity(self.sets.sets.len());
        for set in &self.sets.sets {
            let mut area = vec![0; fit::xattr_bytes(bytes)];
            set.inode.encode_inode(&mut area)?;
            areas.push(area);
        }
        let system = std::mem::take(&mut builder.inodes);
        let mut table = Table { block: vec![0; builder.geo.block_size], at: None };
        for (ino, inode) in system.range(..FIRST_INO).filter(|(ino, _)| **ino != ROOT_INO) {
            let slot = table.slot(builder, &mut self.contents.to, *ino)?;
            inode.encode_into(slot, seed_of(builder, *ino))?;
            if *ino == ROOT_INO - 1 {
                self.put_node(builder, &mut table, (ROOT, &areas), extra)?;
            }
        }
        for at in 1..self.tree.nodes.len() {
            if self.tree.nodes[at].links > 0 {
                self.put_node(builder, &mut table, (NodeId(at as u32), &areas), extra)?;
            }
        }
        // The orphan file, behind all others.
        for (ino, inode) in system.range(FIRST_INO..) {
            let slot = table.slot(builder, &mut self.contents.to, *ino)?;
            inode.encode_into(slot, seed_of(builder, *ino))?;
        }
        table.flush(&mut self.contents.to)
    }

    fn put_node(
        &mut self,
        builder: &Builder,
        table: &mut Table,
        (id, areas): (NodeId, &[Vec<u8>]),
        extra: &Extra,
    ) -> Result<()> {
        let node = &self.tree.nodes[id.0 as usize];
        let inode = self.inode(builder, id, node, extra)?;
        let slot = table.slot(builder, &mut self.contents.to, node.ino)?;
        if node.xattrs > 0 && inode.i_extra_isize > 0 {
            let start = GOOD_OLD_INODE_SIZE + usize::from(inode.i_extra_isize);
            slot[start..].copy_from_slice(&areas[node.xattrs as usize - 1]);
        }
        Ok(inode.encode_into(slot, seed_of(builder, node.ino))?)
    }

    fn inode(&self, builder: &Builder, id: NodeId, node: &Node, extra: &Extra) -> Result<Inode> {
        let large = builder.geo.inode_size > GOOD_OLD_INODE_SIZE;
        let mut inode = Inode::new(node.meta.mode, if large { EXTRA_ISIZE_FULL } else { 0 });
        (inode.i_uid, inode.i_gid) = (node.meta.uid, node.meta.gid);
        (inode.i_atime, inode.i_mtime) = (node.meta.atime, node.meta.mtime);
        let time = fit::time(&self.options);
        (inode.i_ctime, inode.i_crtime) = (time, time);
        inode.i_size = node.size;
        let mut links = node.links;
        let mut own = 0;
        let (from, count) = node.runs;
        let runs = &self.contents.runs[from as usize..(from + count) as usize];
        match node.content {
            Content::Special(rdev) => {
                if matches!(node.file_type(), S_IFBLK | S_IFCHR) {
                    let (major, minor) = device_numbers(rdev);
                    inode.set_device_number(major, minor);
                }
            }
            Content::Symlink(target) if runs.is_empty() => {
                let target = &self.tree.targets[target as usize];
                inode.i_block[..target.len()].copy_from_slice(target);
            }
            content => {
                inode.i_flags |= flags::EXTENTS;
                (inode.i_block, own) = match extra.roots.get(&id) {
                    Some(root) => *root,
                    None => {
                        let extent = |i: usize| runs[i].extent();
                        extents::encode(
                            runs.len(),
                            &extent,
                            self.geo.block_size,
                            None,
                            &mut |_| Err(FsError::invalid("four extents need no block")),
                        )?
                    }
                };
                if let Content::Dir(at) = content {
                    links = 2 + self.tree.dirs[at as usize].subdirs;
                    if extra.indexed.binary_search(&id).is_ok() {
                        inode.i_flags |= flags::INDEX;
                    }
                }
            }
        }
        let dir_nlink = builder.sb.s_feature_ro_compat.contains(RoCompatFeatures::DIR_NLINK);
        inode.i_links_count = match u16::try_from(links).ok().filter(|links| *links <= LINKS_MAX) {
            Some(links) => links,
            // Linux's mark for more than it counts.
            None if dir_nlink => 1,
            None => return Err(FsError::TooManyLinks),
        };
        if let Some(block) = extra.acls.get(&id) {
            inode.i_file_acl = *block;
            own += 1;
        }
        let blocks = own + runs.iter().map(|run| u64::from(run.len)).sum::<u64>();
        let huge = builder.sb.s_feature_ro_compat.contains(RoCompatFeatures::HUGE_FILE);
        inode.set_sectors(builder.sectors(blocks), self.geo.block_size, huge)?;
        Ok(inode)
    }
}
