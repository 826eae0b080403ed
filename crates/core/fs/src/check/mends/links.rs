//! Names for what has none: lost+found, `..`, and inodes without a link.

use syncline_ondisk::IncompatFeatures;
use syncline_ondisk::bytes::{le16, le32, put_bytes, put_le16, put_le32};
use syncline_ondisk::dir::{self, Entries, file_type, rec_len_from_disk};
use syncline_ondisk::extent::{Extent, NodeMut};
use syncline_ondisk::inode::{GOOD_OLD_INODE_SIZE, I_BLOCK_OFFSET, Inode, S_IFDIR, flags};
use syncline_ondisk::superblock::ROOT_INO;
use syncline_ondisk::xattr::XATTR_MAGIC;

use super::Mender;
use super::dirs::{OF_DIRS, OF_ENTRIES};
use crate::check::Step;
use crate::check::kinds::{self as k, Kind};

const NAME: &[u8] = b"lost+found";
const LOST: [Kind; 3] = [k::DIR_UNCONNECTED, k::DIR_LOOP, k::UNATTACHED];
/// Findings that hide names.
const HIDES_NAMES: [Kind; 6] = [
    k::DIR_HOLE,
    k::ENTRY_UNINIT,
    k::EXTENT_HEADER,
    k::EXTENT_RANGE,
    k::INODE_TABLE_PLACE,
    k::UNREADABLE,
];

impl Mender<'_, '_> {
    pub(super) fn mend_links(&mut self) -> Step {
        let hidden =
            self.lingers(&HIDES_NAMES) || self.lingers(&OF_DIRS) || self.lingers(&OF_ENTRIES);
        if hidden || !self.c.dirs.contains_key(&ROOT_INO) {
            return Ok(());
        }
        for ino in self.inodes_with(&[k::DIR_PARENT]) {
            self.set_dotdot(ino)?;
        }
        let mut lost = Vec::new();
        for ino in self.inodes_with(&LOST) {
            if ino == self.c.sb.s_journal_inum {
                self.hide_journal(ino)?;
            } else if self.has_nothing(ino)? {
                self.clear_inode(ino)?;
            } else {
                lost.push(ino);
            }
        }
        self.slots.retain(|ino, _| !lost.contains(ino));
        if lost.is_empty() { Ok(()) } else { self.connect(lost) }
    }

    /// True for a file or directory without blocks and attributes: there is nothing to be kept.
    fn has_nothing(&mut self, ino: u32) -> Step<bool> {
        let Some(raw) = self.raw(ino)? else { return Ok(false) };
        let len = self.c.geo.inode_size;
        let Some(slot) = self.slot(ino)? else { return Ok(false) };
        let area = raw.xattr_range(len).and_then(|range| slot.get(range));
        let has_xattrs = area.is_some_and(|area| le32(area, 0) == XATTR_MAGIC);
        Ok(raw.i_blocks == 0 && !has_xattrs && (raw.is_file() || raw.is_dir()))
    }

    /// Sets `..` to the directory that has the name.
    fn set_dotdot(&mut self, ino: u32) -> Step {
        let parent = self.parent_of(ino);
        let Some(raw) = self.raw(ino)? else { return Ok(()) };
        if raw.has_flag(flags::INLINE_DATA) {
            return self.change(ino, |slot| put_le32(slot, I_BLOCK_OFFSET, parent));
        }
        let runs = self.rewalk(ino, &raw)?.runs;
        let Some(block) = runs.map(0).filter(|block| self.is_own(*block)) else { return Ok(()) };
        let Some(mut bytes) = self.view(block)? else { return Ok(()) };
        let at = rec_len_from_disk(le16(&bytes, 4), bytes.len());
        put_le32(&mut bytes, at, parent);
        if raw.has_flag(flags::INDEX) {
            if let Some(seed) = self.seed(ino, raw.i_generation) {
                let root = syncline_ondisk::htree::NodeKind::Root;
                syncline_ondisk::htree::set_checksum(&mut bytes, root, seed);
            }
            self.put(block, bytes);
        } else {
            self.put_dir_block(ino, &raw, block, bytes);
        }
        Ok(())
    }

    /// Gives inodes a name in lost+found.
    fn connect(&mut self, lost: Vec<u32>) -> Step {
        let place = match self.find(ROOT_INO, NAME)? {
            Some(place) => place,
            None if self.make_lost_found()? => return Ok(()),
            // No room for it.
            None => ROOT_INO,
        };
        let is_dir = self.c.dirs.contains_key(&place);
        let Some(raw) = self.raw(place)? else { return Ok(()) };
        let wrong = flags::INLINE_DATA | flags::ENCRYPT;
        if !is_dir || raw.i_flags & wrong != 0 {
            return self.unlink(ROOT_INO, NAME);
        }
        let mut names = Vec::new();
        for ino in lost.into_iter().filter(|ino| *ino != place) {
            names.push((format!("#{ino}"), ino, self.c.inodes.get(&self.c.geo, ino).file_type));
        }
        self.add_names(place, names)
    }

    /// The inode that a name of a directory has.
    fn find(&mut self, ino: u32, name: &[u8]) -> Step<Option<u32>> {
        let Some(raw) = self.raw(ino)? else { return Ok(None) };
        let runs = self.rewalk(ino, &raw)?.runs;
        let format = self.c.format;
        for (_, block) in runs.blocks() {
            let Some(bytes) = self.view(block)? else { continue };
            let mut entries = Entries::new(&bytes, &format).flatten();
            if let Some(entry) = entries.find(|entry| entry.inode != 0 && entry.name == name) {
                return Ok(Some(entry.inode));
            }
        }
        Ok(None)
    }

    fn unlink(&mut self, ino: u32, name: &[u8]) -> Step {
        let Some(raw) = self.raw(ino)? else { return Ok(()) };
        if raw.has_flag(flags::INDEX) {
            return self.drop_index(ino);
        }
        let runs = self.rewalk(ino, &raw)?.runs;
        let format = self.c.format;
        for (_, block) in runs.blocks() {
            let Some(mut bytes) = self.view(block)? else { continue };
            let found = Entries::new(&bytes, &format).flatten();
            let at = found.filter(|entry| entry.name == name).map(|entry| entry.offset).next();
            if let Some(at) = at {
                if dir::remove(&mut bytes, &format, at).is_ok() {
                    self.put_dir_block(ino, &raw, block, bytes);
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Adds names to a directory; for those without room, blocks, which the next round fills.
    fn add_names(&mut self, ino: u32, mut names: Vec<(String, u32, u8)>) -> Step {
        let Some(raw) = self.raw(ino)? else { return Ok(()) };
        if raw.has_flag(flags::INDEX) {
            return self.drop_index(ino);
        }
        let runs = self.rewalk(ino, &raw)?.runs;
        let format = self.c.format;
        names.reverse();
        for (_, block) in runs.blocks() {
            if !self.is_own(block) || names.is_empty() {
                continue;
            }
            let Some(mut bytes) = self.view(block)? else { continue };
            while let Some((name, target, kind)) = names.last() {
                let kind = if format.filetype { *kind } else { file_type::UNKNOWN };
                if dir::insert(&mut bytes, &format, name.as_bytes(), *target, kind).is_err() {
                    break;
                }
                names.pop();
            }
            self.put_dir_block(ino, &raw, block, bytes);
        }
        let bytes: usize = names.iter().map(|(name, ..)| dir::entry_bytes(name.len())).sum();
        if bytes > 0 {
            let per_block = self.c.geo.block_size / 2;
            return self.grow_dir(ino, bytes.div_ceil(per_block) as u32);
        }
        Ok(())
    }

    /// False: there is no room.
    fn make_lost_found(&mut self) -> Step<bool> {
        let Some(ino) = self.take_inode()? else { return Ok(false) };
        if !self.new_dir(ino, 0o700)? {
            self.slots.remove(&ino);
            return Ok(false);
        }
        let name = String::from_utf8_lossy(NAME).into_owned();
        self.add_names(ROOT_INO, vec![(name, ino, file_type::DIR)])?;
        Ok(true)
    }

    /// Writes a new directory with one block. False: there is no room.
    pub(super) fn new_dir(&mut self, ino: u32, mode: u16) -> Step<bool> {
        let Some(block) = self.take_block()? else { return Ok(false) };
        if self.slot(ino)?.is_none() {
            return Ok(false);
        }
        let size = self.c.geo.block_size;
        let most = self.c.geo.inode_size.saturating_sub(GOOD_OLD_INODE_SIZE) as u16;
        let extra = self.c.sb.s_want_extra_isize.min(most) & !3;
        let mut raw = Inode::new(S_IFDIR | mode, extra);
        raw.i_links_count = 2;
        raw.i_size = size as u64;
        raw.i_blocks = (size as u64 / 512) << self.c.cluster_bits;
        let now = i64::try_from(self.c.sb.s_wtime).unwrap_or(0);
        for time in [&mut raw.i_atime, &mut raw.i_ctime, &mut raw.i_mtime] {
            time.seconds = now;
        }
        if self.c.incompat(IncompatFeatures::EXTENTS) {
            raw.i_flags = flags::EXTENTS;
            let extent = Extent { block: 0, len: 1, start: block, unwritten: false };
            let _ = NodeMut::init(&mut raw.i_block, 0).insert_extent(0, &extent);
        } else {
            put_bytes(&mut raw.i_block, 0, &(block as u32).to_le_bytes());
        }
        self.change(ino, |slot| {
            slot.fill(0);
            let _ = raw.encode_into(slot, None);
        })?;
        let mut bytes = vec![0; size];
        dir::init_dots(&mut bytes, &self.c.format, ino, ROOT_INO);
        if !self.c.format.filetype {
            put_le16(&mut bytes, 6, 1);
            put_le16(&mut bytes, 18, 2);
        }
        self.put_dir_block(ino, &raw, block, bytes);
        Ok(true)
    }
}
