//! The file system on the device: the parts that are read once, and its inodes.

use std::ops::Range;

use syncline_buffer::Buffer;
use syncline_device::{BlockDevice, Kind, Origin};
use syncline_ondisk::bytes::put_be32;
use syncline_ondisk::inode::{Timestamp, flags};
use syncline_ondisk::jbd2::{JBD2_MAGIC, JOURNAL_SUPERBLOCK_BYTES, JournalSuperblock};
use syncline_ondisk::superblock::{JOURNAL_INO, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use syncline_ondisk::{Geometry, GroupDesc, Inode, Superblock, checksum};

use crate::hints::journal::{Copies, Log};
use crate::hints::tree::Tree;

const READ: Origin = Origin::new(Kind::Metadata, true);
/// Bytes of the superblock.
pub(crate) const SUPERBLOCK: Range<u64> =
    SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64;

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Mounted {
    superblock: Superblock,
    pub(crate) geometry: Geometry,
    pub(crate) log: Log,
    /// Seed of checksums, if there are any.
    seed: Option<u32>,
}

/// A file: its inode, and the blocks of its data.
#[derive(Debug)]
pub(crate) struct File {
    ino: u32,
    generation: u32,
    born: Timestamp,
    /// Block and offset of the inode.
    place: (u64, usize),
    tree: Tree,
    /// Bytes of the device that hold written data, in order.
    pub(crate) written: Vec<Range<u64>>,
}

fn text(err: impl std::fmt::Display) -> String {
    err.to_string()
}

fn read(buffer: &Buffer, offset: u64, len: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; len];
    buffer.read(offset, &mut bytes, READ).map_err(text)?;
    Ok(bytes)
}

impl Mounted {
    /// Reads the parts that do not change while it is mounted; true if the log is empty.
    pub(crate) fn open(buffer: &Buffer) -> Result<(Mounted, bool), String> {
        let size = buffer.geometry().size_bytes;
        let raw = read(buffer, SUPERBLOCK.start, SUPERBLOCK_BYTES)?;
        let superblock = Superblock::decode(&raw).map_err(text)?;
        superblock.verify_checksum(&raw).map_err(text)?;
        superblock.check_features().map_err(text)?;
        if !superblock.has_journal() {
            return Err("it has no journal".to_owned());
        }
        if !superblock.needs_recovery() {
            return Err("it is not mounted for writing".to_owned());
        }
        let geometry = Geometry::new(&superblock, size).map_err(text)?;
        let seed = superblock.has_metadata_csum().then(|| superblock.csum_seed());
        let place = inode_place(buffer, &superblock, &geometry, JOURNAL_INO)?;
        let block = |nr| block(buffer, &geometry, nr);
        let inode = inode(&block(place.0)?, place.1, &geometry)?;
        let tree = load(&inode, JOURNAL_INO, &geometry, seed, &mut |nr| block(nr))?;
        let first = tree.extents.first().filter(|extent| extent.block == 0);
        let raw = block(first.ok_or("its journal has no blocks")?.start)?;
        let journal = journal_superblock(&raw)?;
        let log = Log::new(tree.extents, &journal, &geometry)?;
        Ok((Mounted { superblock, geometry, log, seed }, journal.s_start == 0))
    }

    /// `f_fsid` of the mounted file system, from its UUID as the kernel does.
    pub(crate) fn fsid(&self) -> u64 {
        // The exclusive or of the two halves.
        let uuid = u128::from_le_bytes(self.superblock.s_uuid);
        (uuid ^ uuid >> 64) as u64
    }

    /// True if the superblock, as it is written now, is still of the same mount.
    pub(crate) fn is_same(&self, raw: &[u8]) -> bool {
        let key = |sb: &Superblock| {
            let features = (
                sb.s_feature_compat.bits(),
                sb.s_feature_incompat.bits(),
                sb.s_feature_ro_compat.bits(),
            );
            (sb.s_uuid, features, sb.s_mtime, sb.s_mnt_count, sb.s_inodes_per_group)
        };
        Superblock::decode(raw).is_ok_and(|now| key(&now) == key(&self.superblock))
    }

    /// The file with this inode number and time of creation, as the device has it.
    pub(crate) fn file(&self, buffer: &Buffer, ino: u32, born: Timestamp) -> Result<File, String> {
        let place = inode_place(buffer, &self.superblock, &self.geometry, ino)?;
        let block = |nr| block(buffer, &self.geometry, nr);
        let inode = inode(&block(place.0)?, place.1, &self.geometry)?;
        if !inode.is_file() || inode.i_crtime != born {
            return Err("it is not a regular file, or not on this device".to_owned());
        }
        let tree = load(&inode, ino, &self.geometry, self.seed, &mut |nr| block(nr))?;
        let written = tree.written(&self.geometry);
        Ok(File { ino, generation: inode.i_generation, born, place, tree, written })
    }

    /// The content of a copy.
    fn copy(&self, buffer: &Buffer, (at, escaped): (u32, bool)) -> Result<Vec<u8>, String> {
        let place = self.log.place(at).ok_or("its journal ends early")?;
        let mut bytes = read(buffer, place, self.geometry.block_size)?;
        if escaped {
            put_be32(&mut bytes, 0, JBD2_MAGIC);
        }
        Ok(bytes)
    }

    /// The file after a transaction; `None` if that left it as it is, an error if it is gone or
    /// cannot be followed.
    pub(crate) fn after(
        &self,
        buffer: &Buffer,
        file: &File,
        copies: &Copies,
    ) -> Result<Option<File>, String> {
        let touched = |block: &u64| copies.contains_key(block);
        if !touched(&file.place.0) && !file.tree.nodes.keys().any(touched) {
            return Ok(None);
        }
        let (mut root, mut links) = (file.tree.root, 1);
        if let Some(copy) = copies.get(&file.place.0) {
            let inode = inode(&self.copy(buffer, *copy)?, file.place.1, &self.geometry)?;
            let who = (inode.i_generation, inode.i_crtime);
            if who != (file.generation, file.born) || !inode.is_file() {
                return Err("it was deleted".to_owned());
            }
            (root, links) = (extents_of(&inode)?, inode.i_links_count);
        }
        let seed = self.seed.map(|fs| checksum::inode_seed(fs, file.ino, file.generation));
        let mut fetch = |nr| match copies.get(&nr) {
            Some(copy) => self.copy(buffer, *copy),
            None => {
                let known = file.tree.nodes.get(&nr).cloned();
                known.ok_or_else(|| "a part of its extent tree is not known".to_owned())
            }
        };
        let tree = Tree::load(&root, &self.geometry, seed, &mut fetch)?;
        if links == 0 && tree.extents.is_empty() {
            return Err("it was deleted".to_owned());
        }
        let written = tree.written(&self.geometry);
        Ok(Some(File { tree, written, ..*file }))
    }
}

/// Reads a superblock of a journal.
pub(crate) fn journal_superblock(raw: &[u8]) -> Result<JournalSuperblock, String> {
    let raw = raw.get(..JOURNAL_SUPERBLOCK_BYTES).ok_or("its journal's superblock is cut off")?;
    let journal = JournalSuperblock::decode(raw).map_err(text)?;
    journal.verify_checksum(raw).map_err(text)?;
    Ok(journal)
}

fn block(buffer: &Buffer, geometry: &Geometry, nr: u64) -> Result<Vec<u8>, String> {
    if nr >= geometry.blocks_count {
        return Err(format!("block {nr} is outside the file system"));
    }
    read(buffer, nr * geometry.block_size as u64, geometry.block_size)
}

/// Block and offset of an inode.
fn inode_place(
    buffer: &Buffer,
    superblock: &Superblock,
    geometry: &Geometry,
    ino: u32,
) -> Result<(u64, usize), String> {
    let (group, index) =
        geometry.inode_group(ino).ok_or_else(|| format!("there is no inode {ino}"))?;
    let (nr, at) = geometry.desc_slot(group);
    let raw = block(buffer, geometry, geometry.desc_block(superblock, nr))?;
    let desc = raw.get(at..at + geometry.desc_size).ok_or("a group has no descriptor")?;
    let desc = GroupDesc::decode(desc).map_err(text)?;
    desc.validate(group, geometry).map_err(text)?;
    let (nr, at) = geometry.inode_slot(index);
    Ok((desc.bg_inode_table + u64::from(nr), at))
}

fn inode(block: &[u8], at: usize, geometry: &Geometry) -> Result<Inode, String> {
    let raw = block.get(at..at + geometry.inode_size).ok_or("an inode is cut off")?;
    Inode::decode(raw).map_err(text)
}

/// The root of the extent tree of an inode that has one.
fn extents_of(inode: &Inode) -> Result<[u8; syncline_ondisk::inode::I_BLOCK_BYTES], String> {
    if !inode.has_flag(flags::EXTENTS) || inode.has_flag(flags::INLINE_DATA) {
        return Err("it has no extents".to_owned());
    }
    Ok(inode.i_block)
}

fn load(
    inode: &Inode,
    ino: u32,
    geometry: &Geometry,
    seed: Option<u32>,
    fetch: &mut dyn FnMut(u64) -> Result<Vec<u8>, String>,
) -> Result<Tree, String> {
    let seed = seed.map(|fs| checksum::inode_seed(fs, ino, inode.i_generation));
    Tree::load(&extents_of(inode)?, geometry, seed, fetch)
}
