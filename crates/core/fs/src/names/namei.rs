//! Operations on names: lookup, readdir here; create, link, unlink, rename in their files.
//!
//! ```text
//!   Volume::op(dir, name, ..)
//!     dir.rwsem - probe - start handle - dir::insert, remove under dir.state - write_inode
//! ```
//!
//! Promises
//! - Each operation is one handle, so it is atomic after a crash. Unlinking the last name makes the
//!   inode an orphan in the same handle; its blocks are freed when the last reference goes.
//! - Times, link counts, `dir_nlink`, inherited flags and error numbers are Linux's.
//! - Names are 1 to 255 bytes without `/` and NUL. `.` and `..` are real entries.
//!
//! Not here: permission and sticky-bit checks, and default ACLs, which belong to the caller (the
//! kernel behind FUSE, or a library's user). Immutable and append-only files are refused here.
//!
//! Locks: `rename_lock`, then `rwsem` of directories, parents before children, then the handle,
//! then one inode's `state` at a time. Tested in `tests/it/namespace*.rs`.

use std::sync::Arc;

use syncline_jbd2::Handle;
use syncline_ondisk::inode::flags;
use syncline_ondisk::superblock::ROOT_INO;

use crate::data::read::touch_atime;
use crate::data::relaxed::note_name;
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::Inodes;
use crate::inode::iget::iget;
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::inode::times::{Stamp, keep_newer, stamp};
use crate::names::Names;
use crate::names::dcache::Known;
use crate::names::dir::live::{Edit, View, make_room};
use crate::names::dir::nokey::probe_shown;
use crate::names::dir::store::DirRead;
use crate::names::dir::{self, DirEntry, Found, Probe};
use crate::options::MtimeUpdate;
use crate::space::ialloc::has_dir_nlink;
use crate::store::Store;

/// Longest name in bytes (EXT4_NAME_LEN).
pub const NAME_BYTES_MAX: usize = 255;

/// Most hard links (EXT4_LINK_MAX).
pub(crate) const LINKS_MAX: u16 = 65000;

/// Blocks that adding a name may change: five new blocks (leaf twice, two levels, a new level) with
/// bitmap and descriptor each, the leaf and index blocks they touch, the extent tree's path and a
/// split of it, and the directory's inode.
pub(crate) const INSERT_CREDITS: u32 = 15 + 6 + 12 + 1;

/// Blocks that removing or changing a name may change: the leaf and the directory's inode.
pub(crate) const REMOVE_CREDITS: u32 = 2;

/// Blocks that making an inode an orphan may change: superblock or orphan file, and its inode.
pub(crate) const ORPHAN_CREDITS: u32 = 2;

impl crate::Volume {
    /// Returns the inode that `name` has in `dir`.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDir`], [`FsError::NameTooLong`].
    pub fn lookup(&self, dir: &InodeRef, name: &[u8]) -> Result<InodeRef> {
        lookup(&self.0, dir, name)
    }

    /// Calls `sink` for each entry from `cookie` on (0 is the start; then
    /// [`DirEntry::next_cookie`]), `.` and `..` included, until it returns false or the end. No
    /// lock is held while `sink` runs, so it may look entries up. A reader that continues with the
    /// cookies sees each name exactly once, if the name exists from its first call to its last.
    ///
    /// # Errors
    /// [`FsError::NotDir`], or the error of reading the directory. Entries before the error were
    /// delivered.
    pub fn readdir(
        &self,
        dir: &InodeRef,
        cookie: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        readdir(&self.0, dir, cookie, sink, true)
    }

    /// As [`Self::readdir`], without an update of the access time (`O_NOATIME`).
    ///
    /// # Errors
    /// As [`Self::readdir`].
    pub fn readdir_unseen(
        &self,
        dir: &InodeRef,
        cookie: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        readdir(&self.0, dir, cookie, sink, false)
    }
}

/// Returns the inode of a name in a directory. The caller does not hold `rwsem` of `dir`.
///
/// # Errors
/// [`FsError::NotFound`], [`FsError::NotDir`], [`FsError::NameTooLong`].
pub(crate) fn lookup(names: &Names, dir: &InodeRef, name: &[u8]) -> Result<InodeRef> {
    check_name(name)?;
    let _rwsem = dir.rwsem.read();
    let folds = {
        let st = dir.state.read();
        if !st.raw.is_dir() {
            return Err(FsError::NotDir);
        }
        st.raw.has_flag(flags::CASEFOLD)
    };
    match names.dcache.get(dir.ino, name).filter(|_| !folds) {
        Some(Known::Absent) => return Err(FsError::NotFound),
        Some(Known::Inode(ino)) => {
            // Should that fail, the entry on disk says what is wrong.
            if let Ok(inode) = iget(names, ino) {
                note_name(names, &inode, name);
                return Ok(inode);
            }
        }
        None => {}
    }
    match probe_name(names, dir, name)? {
        Probe::Found(found) => {
            let inode = iget_entry(names, dir, &found)?;
            note_name(names, &inode, name);
            if !is_dot(name) {
                names.know(dir, name, Known::Inode(found.ino));
            }
            Ok(inode)
        }
        Probe::Absent(_) => {
            names.know(dir, name, Known::Absent);
            Err(FsError::NotFound)
        }
    }
}

/// Calls `sink` for the entries of a directory from `cookie` on; `touch` moves the access time.
pub(crate) fn readdir(
    inodes: &Inodes,
    dir: &InodeRef,
    cookie: u64,
    sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    touch: bool,
) -> Result<()> {
    let mut cookie = cookie;
    loop {
        let batch = {
            let _rwsem = dir.rwsem.read();
            let st = dir.state.read();
            dir::readdir::read_batch(&View::new(inodes, dir, &st)?, cookie)?
        };
        let goes_on = batch.deliver(sink);
        match batch.next.filter(|_| goes_on) {
            Some(next) => cookie = next,
            None => break,
        }
    }
    if touch && !inodes.options.nodiratime {
        touch_atime(inodes, dir);
    }
    Ok(())
}

impl Inode {
    /// True if it is a directory.
    pub fn is_dir(&self) -> bool {
        self.state.read().raw.is_dir()
    }

    /// True if it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.state.read().raw.is_symlink()
    }
}

/// Refuses names that no entry can have.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(FsError::NotFound);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.iter().any(|byte| *byte == b'/' || *byte == 0) {
        return Err(FsError::invalid("a name cannot contain `/` or NUL"));
    }
    Ok(())
}

/// True if the name is `.` or `..`.
pub(crate) fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// Looks a name up in a directory whose `rwsem` the caller holds.
pub(crate) fn probe_name(store: &Store, dir: &Inode, name: &[u8]) -> Result<Probe> {
    let st = dir.state.read();
    let view = View::new(store, dir, &st)?;
    if view.params().encrypted && !is_dot(name) {
        return probe_shown(&view, name);
    }
    if view.params().fold.is_some_and(|fold| fold.refused_at(name).is_some()) {
        return Err(FsError::invalid("a name in a directory that folds case is no UTF-8"));
    }
    dir::probe(&view, name)
}

/// As [`probe_name`], for a name that must be there.
pub(crate) fn find_name(store: &Store, dir: &Inode, name: &[u8]) -> Result<Found> {
    match probe_name(store, dir, name)? {
        Probe::Found(found) => Ok(found),
        Probe::Absent(_) => Err(FsError::NotFound),
    }
}

/// The inode of an entry, the directory's `rwsem` being held.
pub(crate) fn iget_entry(inodes: &Arc<Inodes>, dir: &Inode, found: &Found) -> Result<InodeRef> {
    let ino = found.ino;
    let offset = Some(found.offset as u64);
    if ino != ROOT_INO && ino < inodes.geo.first_ino || ino > inodes.geo.inodes_count {
        let what = format!("an entry names inode {ino}, which no file can have");
        return Err(inodes.corrupt(Some(dir.ino), None, offset, what));
    }
    match iget(inodes, ino) {
        Err(FsError::Stale) => {
            let what = format!("an entry names inode {ino}, which is not in use");
            Err(inodes.corrupt(Some(dir.ino), None, offset, what))
        }
        Ok(inode) if inode.state.read().raw.has_flag(flags::EA_INODE) => {
            let what = format!("an entry names inode {ino}, which holds the value of an attribute");
            Err(inodes.corrupt(Some(dir.ino), None, offset, what))
        }
        other => other,
    }
}

/// Adds a name in the handle's transaction and writes the directory's inode, also when the name
/// could not be added: the directory is valid at that point.
pub(crate) fn add_name(
    inodes: &Inodes,
    h: &mut Handle,
    dir: &Inode,
    st: &mut InodeState,
    entry: (&[u8], u32, u8),
    place: Option<u32>,
) -> Result<()> {
    let place = make_room(inodes, h, dir, st, (entry.0, place))?;
    let added = dir::insert(&mut Edit::new(inodes, h, dir, st)?, entry, place);
    if added.is_ok() {
        touch_dir(inodes, dir, st);
    }
    write_inode(inodes, h, dir, st, Dirty::Data)?;
    added
}

/// A directory's names changed. Its version moves with the times of its slot: with `mtime_update`
/// that is not every time.
pub(crate) fn touch_dir(inodes: &Inodes, dir: &Inode, st: &mut InodeState) {
    match stamp(inodes, dir, st) {
        Stamp::Same if inodes.options.mtime_update == MtimeUpdate::Tick => {}
        Stamp::Same => return,
        Stamp::Memory(ns) => return keep_newer(inodes, dir, st, ns),
        Stamp::Slot(mtime, ctime) => st.set_times(dir, mtime, ctime),
    }
    let (low, carry) = st.raw.i_version_lo.overflowing_add(1);
    st.raw.i_version_lo = low;
    st.raw.i_version_hi = st.raw.i_version_hi.wrapping_add(u32::from(carry));
}

/// The number of the directory that `..` of `dir` names. The caller holds the rename lock or
/// the directory's `rwsem`.
pub(crate) fn parent_of(store: &Store, dir: &Inode) -> Result<u32> {
    let st = dir.state.read();
    Ok(dir::dots(&View::new(store, dir, &st)?)?[1].ino)
}

/// A directory in which names may be added: it is one, exists, and is not immutable.
pub(crate) fn check_may_add(dir: &Inode) -> Result<()> {
    let st = dir.state.read();
    if !st.raw.is_dir() {
        return Err(FsError::NotDir);
    }
    if st.raw.i_links_count == 0 {
        return Err(FsError::NotFound);
    }
    if st.raw.has_flag(flags::IMMUTABLE) { Err(FsError::Perm) } else { Ok(()) }
}

/// A directory from which names may be taken: also not append-only.
pub(crate) fn check_may_remove(dir: &Inode) -> Result<()> {
    check_may_add(dir)?;
    if dir.state.read().raw.has_flag(flags::APPEND) { Err(FsError::Perm) } else { Ok(()) }
}

/// A file whose names may be taken or changed: not immutable, not append-only.
pub(crate) fn check_may_lose_name(inode: &Inode) -> Result<()> {
    let fixed = inode.state.read().raw.i_flags & (flags::IMMUTABLE | flags::APPEND);
    if fixed != 0 { Err(FsError::Perm) } else { Ok(()) }
}

/// One subdirectory more. Above [`LINKS_MAX`] the count of an indexed directory becomes 1, which
/// means "not known" (`dir_nlink`).
pub(crate) fn inc_links_of_dir(st: &mut InodeState) {
    st.raw.i_links_count = st.raw.i_links_count.saturating_add(1);
    let links = st.raw.i_links_count;
    if st.raw.has_flag(flags::INDEX) && (links > LINKS_MAX || links == 2) {
        st.raw.i_links_count = 1;
    }
}

/// One subdirectory less; a count of 1 stays.
pub(crate) fn dec_links_of_dir(st: &mut InodeState) {
    if st.raw.i_links_count > 2 {
        st.raw.i_links_count -= 1;
    }
}

/// Refuses one more subdirectory where the link count cannot express it.
pub(crate) fn check_dir_links(store: &Store, dir: &Inode) -> Result<()> {
    let st = dir.state.read();
    let uncounted = st.raw.has_flag(flags::INDEX) && has_dir_nlink(store);
    if st.raw.i_links_count >= LINKS_MAX && !uncounted {
        return Err(FsError::TooManyLinks);
    }
    Ok(())
}
