//! Slots of inodes: the fields in a fast commit, and those that are derived.

use std::sync::Arc;

use syncline_jbd2::Handle;
use syncline_ondisk::extent::NodeMut;
use syncline_ondisk::inode::{self as disk, flags};
use syncline_ondisk::superblock::ROOT_INO;
use syncline_ondisk::{bitmap, inline};

use super::{Replay, contradiction, inodes};
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::iget::{forget_inode, iget_unlinked, insert_inode};
use crate::inode::inline::{drop_inline, inline_room, is_inline, store_inline};
use crate::inode::reference::InodeRef;
use crate::inode::table::{clear_fresh, max_file_bytes, write_inode};
use crate::map::extents::search::is_hole;
use crate::space::ialloc::take_number;
use crate::store::group::{group_desc, inode_bitmap};

/// Credits of a handle that makes an inode: its slot, the inode bitmap, the descriptor.
const MAKE_CREDITS: u32 = 4;
/// Flags of inodes that this crate does not write, or that a fast commit does not carry: it has no
/// attributes, so none that are values of others.
const FOREIGN: u32 = flags::EA_INODE | flags::ENCRYPT;
/// Flags that say how `i_block` and `i_blocks` are to be read.
const OF_BLOCKS: u32 = flags::EXTENTS | flags::INDEX | flags::HUGE_FILE | flags::INLINE_DATA;

/// True if `i_block` is a map of blocks in an inode that came from Linux's memory, whose `i_blocks`
/// is not known here.
fn has_map(raw: &disk::Inode) -> bool {
    raw.is_file() || raw.is_dir() || raw.is_symlink() && raw.has_flag(flags::EXTENTS)
}

impl Replay<'_> {
    /// The inode of a number that is in use. It stays in memory until the end.
    pub(super) fn get(&mut self, ino: u32) -> Result<Option<InodeRef>> {
        if let Some(inode) = self.held.get(&ino) {
            return Ok(Some(inode.clone()));
        }
        self.check_number(ino)?;
        let Some((group, index)) = self.names.geo.inode_group(ino) else { return Ok(None) };
        let map = inode_bitmap(self.names, group, &group_desc(self.names, group)?)?;
        if !bitmap::test(&map, index) {
            return Ok(None);
        }
        let inode = match iget_unlinked(inodes(self.names), ino) {
            Err(FsError::Stale) => {
                return Err(contradiction(self.names, ino, "a number that is taken by nothing"));
            }
            other => other?,
        };
        self.held.insert(ino, inode.clone());
        Ok(Some(inode))
    }

    /// Refuses numbers that no file can have.
    fn check_number(&self, ino: u32) -> Result<()> {
        let (journal, orphans) = {
            let sb = self.names.sb.lock();
            (sb.s_journal_inum, sb.s_orphan_file_inum)
        };
        let geo = &self.names.geo;
        let is_own = ino < geo.first_ino && ino != ROOT_INO || ino == journal || ino == orphans;
        if is_own || ino > geo.inodes_count {
            return Err(contradiction(self.names, ino, "an inode that is no file"));
        }
        Ok(())
    }

    /// The slot of an inode, new or not.
    pub(super) fn inode(&mut self, ino: u32, slot: &[u8]) -> Result<()> {
        let mut padded = slot.to_vec();
        padded.resize(self.names.geo.inode_size, 0);
        let said = disk::Inode::decode(&padded).map_err(|error| error.in_inode(ino))?;
        self.check(ino, &said)?;
        let data = self.inline_data(ino, &said, &padded)?;
        match self.get(ino)? {
            Some(inode) if is_same(&inode, &said) => self.update(&inode, said, data),
            Some(inode) => {
                if inode.state.read().raw.i_links_count > 0 {
                    return Err(contradiction(self.names, ino, "a new file in a slot with a name"));
                }
                drop(inode);
                self.evict(ino)?;
                self.make(ino, said, data)
            }
            None => self.make(ino, said, data),
        }
    }

    /// The data of a file or link that is in its inode: then Linux logs the whole slot. Entries of
    /// directories come as names.
    fn inline_data(&self, ino: u32, said: &disk::Inode, slot: &[u8]) -> Result<Option<Vec<u8>>> {
        if !said.has_flag(flags::INLINE_DATA) {
            return Ok(None);
        }
        if !self.names.inline_data || !has_map(said) && !said.is_symlink() {
            return Err(contradiction(self.names, ino, "data in an inode that cannot hold it"));
        }
        let data = inline::stored(said, slot).map_err(|error| error.in_inode(ino))?;
        Ok((!said.is_dir()).then_some(data))
    }

    /// Puts the data of a file into its inode, or takes it out. The caller writes the inode.
    fn set_inline(
        &self,
        h: &mut Handle,
        inode: &Inode,
        st: &mut InodeState,
        data: Option<&[u8]>,
    ) -> Result<()> {
        let names = self.names;
        let Some(data) = data else {
            return if is_inline(st) { drop_inline(names, h, inode, st) } else { Ok(()) };
        };
        if !is_inline(st) && !is_hole(names, inode, st, 0, u32::MAX)? {
            return Err(contradiction(names, inode.ino, "data in an inode that has blocks"));
        }
        clear_fresh(names, h, inode, st)?;
        if data.len() > inline_room(names, inode, st)? {
            return Err(contradiction(names, inode.ino, "more data than its inode holds"));
        }
        store_inline(names, h, inode, st, data)
    }

    fn check(&self, ino: u32, said: &disk::Inode) -> Result<()> {
        self.check_number(ino)?;
        let bad = |what| Err(contradiction(self.names, ino, what));
        let types = [
            disk::S_IFSOCK,
            disk::S_IFLNK,
            disk::S_IFREG,
            disk::S_IFBLK,
            disk::S_IFDIR,
            disk::S_IFCHR,
            disk::S_IFIFO,
        ];
        if !types.contains(&said.file_type()) {
            return bad("an inode of no type");
        }
        if said.i_size > max_file_bytes(self.names) {
            return bad("a file size out of range");
        }
        if said.i_flags & FOREIGN != 0 || said.has_flag(flags::EXTENTS) && !has_map(said) {
            return bad("flags that such a file does not have");
        }
        if said.is_symlink() && !has_map(said) && said.i_size >= disk::I_BLOCK_BYTES as u64 {
            return bad("a symbolic link without room for its target");
        }
        Ok(())
    }

    /// Changes an inode as far as a fast commit can: not its extended attributes, not its names.
    fn update(&mut self, inode: &Inode, said: disk::Inode, data: Option<Vec<u8>>) -> Result<()> {
        let mut h = self.names.start(MAKE_CREDITS)?;
        let mut st = inode.state.write();
        if !said.is_dir() {
            self.set_inline(&mut h, inode, &mut st, data.as_deref())?;
        }
        let is = &st.raw;
        let in_inode = (said.i_flags | is.i_flags) & flags::INLINE_DATA != 0;
        if !in_inode && (said.i_flags ^ is.i_flags) & flags::EXTENTS != 0 {
            return Err(contradiction(self.names, inode.ino, "another kind of block map"));
        }
        let new = disk::Inode {
            i_flags: said.i_flags & !OF_BLOCKS | is.i_flags & OF_BLOCKS,
            i_block: if has_map(is) { is.i_block } else { said.i_block },
            i_size: if is.is_dir() { is.i_size } else { said.i_size },
            i_blocks: is.i_blocks,
            i_links_count: is.i_links_count,
            i_dtime: is.i_dtime,
            i_file_acl: is.i_file_acl,
            i_extra_isize: is.i_extra_isize,
            ..said
        };
        (st.size, st.raw) = (new.i_size, new);
        write_inode(self.names, &mut h, inode, &mut st, Dirty::Data)
    }

    /// A new inode without names and blocks.
    fn make(&mut self, ino: u32, said: disk::Inode, data: Option<Vec<u8>>) -> Result<()> {
        let in_inode = said.has_flag(flags::INLINE_DATA);
        let map = if in_inode && self.names.extents { flags::EXTENTS } else { said.i_flags };
        let mut new = disk::Inode {
            i_flags: said.i_flags & !OF_BLOCKS | map & flags::EXTENTS,
            i_size: if said.is_dir() { 0 } else { said.i_size },
            i_blocks: 0,
            i_links_count: 0,
            i_dtime: 0,
            i_file_acl: 0,
            ..said
        };
        if has_map(&new) || in_inode {
            new.i_block.fill(0);
        }
        if new.has_flag(flags::EXTENTS) {
            NodeMut::init(&mut new.i_block, 0);
        }
        let is_dir = new.is_dir();
        let mut h = self.names.start(MAKE_CREDITS)?;
        take_number(self.names, &mut h, ino, is_dir)?;
        let mut fresh = Inode::new(ino, new, h.tid());
        fresh.state.get_mut().fresh = true;
        forget_inode(self.names, ino);
        let inode = insert_inode(inodes(self.names), Arc::new(fresh));
        let written = {
            let mut st = inode.state.write();
            let filled = match &data {
                Some(data) => self.set_inline(&mut h, &inode, &mut st, Some(data)),
                None => Ok(()),
            };
            filled.and_then(|()| write_inode(self.names, &mut h, &inode, &mut st, Dirty::Data))
        };
        drop(h);
        self.held.insert(ino, inode);
        if is_dir {
            self.unmade.insert(ino);
        }
        written
    }

    /// Frees an inode without names. Its blocks become unowned.
    pub(super) fn evict(&mut self, ino: u32) -> Result<()> {
        let Some(inode) = self.held.get(&ino).cloned() else { return Ok(()) };
        let has_extents = {
            let st = inode.state.read();
            has_map(&st.raw) && st.raw.has_flag(flags::EXTENTS)
        };
        if has_extents {
            self.detach(ino, 0, u32::MAX)?;
        }
        self.unmade.remove(&ino);
        self.held.remove(&ino);
        // The last reference: no handle is open.
        drop(inode);
        self.names.latch.check()
    }
}

/// True if a slot says something of an inode that is there, not of one after it.
fn is_same(inode: &Inode, said: &disk::Inode) -> bool {
    let st = inode.state.read();
    st.raw.i_generation == said.i_generation && st.raw.file_type() == said.file_type()
}
