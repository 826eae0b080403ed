//! Renames: within and across directories, over something, exchange.
//!
//! ```text
//!   rename_lock (across directories only: the shape of the tree stands still)
//!     od, nd      the ancestor first, else by inode number
//!       source, target, where they are directories that move or go, by inode number
//! ```
//!
//! Promises
//! - A rename is one transaction: after a crash the old names exist or the new ones, and the
//!   replaced inode either has its name or is an orphan.
//! - A directory never becomes its own ancestor ([`FsError::Invalid`]); that check reads `..` up to
//!   the root and ends on any image.
//! - A rename between two names of one inode does nothing, as POSIX requires.
//! - A file that replaces another has its delayed data on the device when the rename commits.
//! - A whiteout is made in the same transaction (`whiteout.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use syncline_base::lockrank::WriteGuard;
use syncline_jbd2::Handle;
use syncline_ondisk::dir::file_type;
use syncline_ondisk::superblock::ROOT_INO;

use crate::data::Files;
use crate::data::flush::file::write_delayed;
use crate::data::relaxed::note_name;
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::Inodes;
use crate::inode::iget::iget;
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::inode::times::change_time;
use crate::names::Names;
use crate::names::create::{Create, NEW_INODE_CREDITS, give_up_inode};
use crate::names::dir::live::Edit;
use crate::names::dir::{self, Found, Probe};
use crate::names::namei::{
    self, INSERT_CREDITS, ORPHAN_CREDITS, REMOVE_CREDITS, add_name, check_dir_links, find_name,
    iget_entry, lookup, parent_of, probe_name, touch_dir,
};
use crate::names::unlink::{check_empty, drop_dir, drop_link, remove_name};
use crate::names::whiteout::new_whiteout;
use crate::space::retry::retry_when_full;

/// Blocks that a rename may change: a new name, a removed one, `..` of what moves, its inode, what
/// is replaced; an exchange changes less.
const RENAME_CREDITS: u32 = INSERT_CREDITS + REMOVE_CREDITS + ORPHAN_CREDITS + 5;

/// Cause of a latched volume.
const HALF_WAY: &str = "a rename failed half way";

/// Treatment of an existing target by [`crate::Volume::rename`]; bits as of Linux's renameat2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags(u32);

impl RenameFlags {
    /// Replace the target.
    pub const NONE: RenameFlags = RenameFlags(0);
    /// Fail if the target exists.
    pub const NOREPLACE: RenameFlags = RenameFlags(1);
    /// Exchange the two.
    pub const EXCHANGE: RenameFlags = RenameFlags(2);

    /// From renameat2's bits.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for unknown bits, or both at once; a whiteout has a call of its own.
    pub fn from_bits(bits: u32) -> Result<RenameFlags> {
        match bits {
            0..=2 => Ok(RenameFlags(bits)),
            _ => Err(FsError::invalid("renames take NOREPLACE or EXCHANGE, not both or others")),
        }
    }
}

/// The two ends of a rename: directory and name.
#[derive(Clone, Copy)]
struct End<'a> {
    dir: &'a InodeRef,
    name: &'a [u8],
}

/// Inodes and entries at both ends of a rename, looked up under the locks.
struct RenameInodes {
    old: Found,
    source: InodeRef,
    new: Probe,
    target: Option<InodeRef>,
}

/// Options of a rename.
#[derive(Clone, Copy)]
pub(super) struct RenameArgs<'a> {
    /// Treatment of an existing target.
    pub(super) flags: RenameFlags,
    /// Owner of the whiteout that gets the old name.
    pub(super) whiteout: Option<&'a Create>,
}

impl crate::Volume {
    /// Moves `old_name` of `old_dir` to `new_name` of `new_dir`.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::Exists`] with NOREPLACE, [`FsError::NotDir`],
    /// [`FsError::IsDir`], [`FsError::NotEmpty`], [`FsError::Invalid`] for a directory moved below
    /// itself, [`FsError::Busy`] for `.` and `..`, [`FsError::TooManyLinks`], [`FsError::NoSpace`],
    /// [`FsError::Perm`].
    pub fn rename(
        &self,
        old_dir: &InodeRef,
        old_name: &[u8],
        new_dir: &InodeRef,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        rename(&self.0, (old_dir, old_name), (new_dir, new_name), flags, None)
    }

    /// As [`Self::rename`]; the old name becomes a whiteout of overlayfs, a character device 0:0
    /// of this owner (`RENAME_WHITEOUT`), in the same transaction.
    ///
    /// # Errors
    /// As [`Self::rename`]; [`FsError::Invalid`] for an exchange.
    pub fn rename_whiteout(
        &self,
        (old_dir, old_name): (&InodeRef, &[u8]),
        (new_dir, new_name): (&InodeRef, &[u8]),
        flags: RenameFlags,
        owner: &Create,
    ) -> Result<()> {
        let (from, to) = ((old_dir, old_name), (new_dir, new_name));
        rename(&self.0, from, to, flags, Some(owner))
    }
}

/// Renames; `whiteout` is the owner of the whiteout that takes the old name, if there is to be one.
pub(crate) fn rename(
    names: &Names,
    (old_dir, old_name): (&InodeRef, &[u8]),
    (new_dir, new_name): (&InodeRef, &[u8]),
    flags: RenameFlags,
    whiteout: Option<&Create>,
) -> Result<()> {
    namei::check_name(old_name)?;
    namei::check_name(new_name)?;
    if namei::is_dot(old_name) || namei::is_dot(new_name) {
        return Err(FsError::Busy);
    }
    if flags == RenameFlags::EXCHANGE && whiteout.is_some() {
        return Err(FsError::invalid("an exchange leaves no name for a whiteout"));
    }
    names.before_change()?;
    let from = End { dir: old_dir, name: old_name };
    let to = End { dir: new_dir, name: new_name };
    if flags == RenameFlags::NONE {
        write_before_replace(names, from, to);
    }
    retry_when_full(names, || rename_once(names, from, to, RenameArgs { flags, whiteout }))
}

/// A program that replaces a file by a new one expects the old contents or the new ones after a
/// crash, also if it did not sync. So delayed data goes to its place before the rename that
/// shows it can commit (`ext4_rename`). Errors of the lookups are left to the rename itself.
fn write_before_replace(names: &Names, from: End<'_>, to: End<'_>) {
    if !names.options.auto_da_alloc || lookup(names, to.dir, to.name).is_err() {
        return;
    }
    if let Ok(source) = lookup(names, from.dir, from.name) {
        // A failed write has latched the volume, which the rename reports. Without room for index
        // blocks the data stays delayed.
        let _ = write_delayed(names, &source);
    }
}

fn rename_once(names: &Names, from: End<'_>, to: End<'_>, args: RenameArgs<'_>) -> Result<()> {
    let ends = {
        let across = (from.dir.ino != to.dir.ino).then(|| names.rename_lock.lock());
        let lines = match &across {
            Some(_) => Some((ancestors(names, from.dir)?, ancestors(names, to.dir)?)),
            None => None,
        };
        let _locks = lock_both(from, to, lines.as_ref());
        let ends = look_up_both(names, from, to)?;
        // Both names mean something else afterwards, or the same as before.
        names.dcache.forget(from.dir.ino, from.name);
        names.dcache.forget(to.dir.ino, to.name);
        rename_locked(names, from, to, &ends, lines.as_ref(), args)?;
        ends
    };
    // Locks and handle are released: this may free what was replaced.
    drop(ends);
    Ok(())
}

/// Inode numbers from a directory to the root, both included.
type Line = BTreeSet<u32>;

fn lock_both<'a>(
    from: End<'a>,
    to: End<'a>,
    lines: Option<&(Line, Line)>,
) -> (WriteGuard<'a, ()>, Option<WriteGuard<'a, ()>>) {
    let Some((from_line, to_line)) = lines else {
        return (from.dir.rwsem.write(), None);
    };
    let (a, b) = (from.dir, to.dir);
    let a_first = if to_line.contains(&a.ino) {
        true
    } else if from_line.contains(&b.ino) {
        false
    } else {
        a.ino < b.ino
    };
    let (first, second) = if a_first { (a, b) } else { (b, a) };
    (first.rwsem.write(), Some(second.rwsem.write()))
}

/// Returns the path from `dir` to the root. The caller holds the rename lock: no directory moves.
fn ancestors(inodes: &Arc<Inodes>, dir: &InodeRef) -> Result<Line> {
    namei::check_may_add(dir)?;
    let mut line = Line::from([dir.ino]);
    let mut here = dir.clone();
    while here.ino != ROOT_INO {
        let parent = parent_of(inodes, &here)?;
        if !line.insert(parent) {
            let what = "a directory is its own ancestor";
            return Err(inodes.corrupt(Some(here.ino), None, None, what));
        }
        here = match iget(inodes, parent) {
            // `dir` and its parent were removed after the check above.
            Err(FsError::Stale) => return Err(FsError::NotFound),
            other => other?,
        };
        if !here.is_dir() {
            return Err(FsError::NotFound);
        }
    }
    Ok(line)
}

fn look_up_both(inodes: &Arc<Inodes>, from: End<'_>, to: End<'_>) -> Result<RenameInodes> {
    namei::check_may_remove(from.dir)?;
    namei::check_may_add(to.dir)?;
    let old = find_name(inodes, from.dir, from.name)?;
    let source = iget_entry(inodes, from.dir, &old)?;
    let new = probe_name(inodes, to.dir, to.name)?;
    let target = match &new {
        Probe::Found(found) => Some(iget_entry(inodes, to.dir, found)?),
        Probe::Absent(_) => None,
    };
    Ok(RenameInodes { old, source, new, target })
}

fn rename_locked(
    files: &Files,
    from: End<'_>,
    to: End<'_>,
    ends: &RenameInodes,
    lines: Option<&(Line, Line)>,
    args: RenameArgs<'_>,
) -> Result<()> {
    let exchange = args.flags == RenameFlags::EXCHANGE;
    if args.flags == RenameFlags::NOREPLACE && ends.target.is_some() {
        return Err(FsError::Exists);
    }
    if exchange && ends.target.is_none() {
        return Err(FsError::NotFound);
    }
    let source = &ends.source;
    if ends.target.as_ref().is_some_and(|target| target.ino == source.ino) {
        return Ok(());
    }
    check_shape(ends, lines, exchange)?;
    check_permitted(to, ends, exchange)?;
    let across = lines.is_some();
    let target_dir = ends.target.as_ref().filter(|target| target.is_dir());
    let source_dir = Some(source).filter(|source| source.is_dir());
    let locked_source = source_dir.filter(|_| across);
    let locked_target = target_dir.filter(|_| across || !exchange);
    let _locks = lock_children(locked_source, locked_target);
    if let (Some(target), false) = (target_dir, exchange) {
        check_empty(files, target)?;
    }
    if across && source_dir.is_some() && target_dir.is_none() {
        check_dir_links(files, to.dir)?;
    }
    if across && exchange && target_dir.is_some() && source_dir.is_none() {
        check_dir_links(files, from.dir)?;
    }
    // Its last reference must go after the handle.
    let whiteout;
    let more = if args.whiteout.is_some() { NEW_INODE_CREDITS } else { 0 };
    let mut h = files.start(RENAME_CREDITS + more)?;
    h.keep_order();
    if let (Some(target), Probe::Found(new), true) = (&ends.target, &ends.new, exchange) {
        let (from, to) = ((from, &ends.old, source), (to, new, target));
        let done = exchange_entries(files, &mut h, from, to, across);
        return files.all_or_nothing(&h, done, HALF_WAY);
    }
    let Some(owner) = args.whiteout else {
        let done = replace_entry(files, &mut h, from, to, (ends, across, None));
        return files.all_or_nothing(&h, done, HALF_WAY);
    };
    whiteout = new_whiteout(files, &mut h, from.dir, owner)?;
    let done = replace_entry(files, &mut h, from, to, (ends, across, Some(&whiteout)));
    let done = files.all_or_nothing(&h, done, HALF_WAY);
    done.map_err(|err| give_up_inode(files, &mut h, &whiteout).err().unwrap_or(err))
}

/// Moves the source over the target or to a new name. The old name goes, or gets the whiteout.
fn replace_entry(
    files: &Files,
    h: &mut Handle,
    from: End<'_>,
    to: End<'_>,
    (ends, across, whiteout): (&RenameInodes, bool, Option<&InodeRef>),
) -> Result<()> {
    note_name(files, &ends.source, to.name);
    let moves_dir = ends.source.is_dir();
    let replaces = ends.target.is_some();
    put_new_entry(files, h, to, ends, moves_dir && across && !replaces)?;
    write_moved(files, h, &ends.source, (moves_dir && across).then_some(to.dir.ino))?;
    // The new name may have split the block of the old one.
    let old = find_name(files, from.dir, from.name)?;
    {
        let mut st = from.dir.state.write();
        if moves_dir && (across || replaces) {
            namei::dec_links_of_dir(&mut st);
        }
        match whiteout {
            None => remove_name(files, h, from.dir, &mut st, &old)?,
            Some(whiteout) => {
                let entry = (&old, whiteout.ino, file_type::CHRDEV);
                set_entry(files, h, from.dir, &mut st, entry)?;
            }
        }
    }
    match &ends.target {
        Some(target) if moves_dir => drop_dir(files, h, target),
        Some(target) => drop_link(files, h, target),
        None => Ok(()),
    }
}

/// Points the new name to the source: its entry, or a new one. `gains_dir`: the directory gets one
/// subdirectory more.
fn put_new_entry(
    inodes: &Inodes,
    h: &mut Handle,
    to: End<'_>,
    ends: &RenameInodes,
    gains_dir: bool,
) -> Result<()> {
    let (ino, kind) = (ends.source.ino, type_of(&ends.source));
    let mut st = to.dir.state.write();
    let place = match &ends.new {
        Probe::Found(found) => return set_entry(inodes, h, to.dir, &mut st, (found, ino, kind)),
        Probe::Absent(place) => *place,
    };
    let links = st.raw.i_links_count;
    if gains_dir {
        namei::inc_links_of_dir(&mut st);
    }
    let added = add_name(inodes, h, to.dir, &mut st, (to.name, ino, kind), place);
    if added.is_err() && st.raw.i_links_count != links {
        st.raw.i_links_count = links;
        write_inode(inodes, h, to.dir, &mut st, Dirty::Data)?;
    }
    added
}

fn exchange_entries(
    inodes: &Inodes,
    h: &mut Handle,
    (from, old, source): (End<'_>, &Found, &InodeRef),
    (to, new, target): (End<'_>, &Found, &InodeRef),
    across: bool,
) -> Result<()> {
    let (source_type, target_type) = (type_of(source), type_of(target));
    let dirs = (source_type == file_type::DIR, target_type == file_type::DIR);
    for (end, found, inode, kind, change) in [
        (from, old, target, target_type, (dirs.1, dirs.0)),
        (to, new, source, source_type, (dirs.0, dirs.1)),
    ] {
        let mut st = end.dir.state.write();
        match change {
            (true, false) if across => namei::inc_links_of_dir(&mut st),
            (false, true) if across => namei::dec_links_of_dir(&mut st),
            _ => {}
        }
        set_entry(inodes, h, end.dir, &mut st, (found, inode.ino, kind))?;
    }
    write_moved(inodes, h, source, (across && dirs.0).then_some(to.dir.ino))?;
    write_moved(inodes, h, target, (across && dirs.1).then_some(from.dir.ino))
}

/// Points an entry to another inode and writes the directory's inode.
fn set_entry(
    inodes: &Inodes,
    h: &mut Handle,
    dir: &Inode,
    st: &mut InodeState,
    (found, ino, kind): (&Found, u32, u8),
) -> Result<()> {
    dir::set_ino(&mut Edit::new(inodes, h, dir, st)?, found, ino, kind)?;
    touch_dir(inodes, dir, st);
    write_inode(inodes, h, dir, st, Dirty::Data)
}

/// An inode got another name, and if it is a directory that changed its place, another `..`.
fn write_moved(inodes: &Inodes, h: &mut Handle, inode: &Inode, parent: Option<u32>) -> Result<()> {
    let mut st = inode.state.write();
    if let Some(parent) = parent {
        let mut edit = Edit::new(inodes, h, inode, &mut st)?;
        let dotdot = dir::dots(&edit)?[1];
        dir::set_ino(&mut edit, &dotdot, parent, file_type::DIR)?;
    }
    st.raw.i_ctime = change_time(inodes, inode, &mut st);
    write_inode(inodes, h, inode, &mut st, Dirty::Times)
}

fn type_of(inode: &Inode) -> u8 {
    file_type::from_mode(inode.state.read().raw.i_mode)
}

/// Kinds fit each other, and no directory moves below itself.
fn check_shape(ends: &RenameInodes, lines: Option<&(Line, Line)>, exchange: bool) -> Result<()> {
    let source_is_dir = ends.source.is_dir();
    if let Some((from_line, to_line)) = lines {
        if to_line.contains(&ends.source.ino) {
            return Err(FsError::invalid("a directory cannot be moved below itself"));
        }
        if ends.target.as_ref().is_some_and(|target| from_line.contains(&target.ino)) {
            return Err(if exchange {
                FsError::invalid("a directory cannot be exchanged with what is below it")
            } else {
                FsError::NotEmpty
            });
        }
    }
    match &ends.target {
        Some(target) if !exchange => match (source_is_dir, target.is_dir()) {
            (true, false) => Err(FsError::NotDir),
            (false, true) => Err(FsError::IsDir),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_permitted(to: End<'_>, ends: &RenameInodes, exchange: bool) -> Result<()> {
    namei::check_may_lose_name(&ends.source)?;
    let Some(target) = &ends.target else { return Ok(()) };
    namei::check_may_remove(to.dir)?;
    namei::check_may_lose_name(target)?;
    if target.ino == ROOT_INO && !exchange { Err(FsError::Busy) } else { Ok(()) }
}

fn lock_children<'a>(
    source: Option<&'a InodeRef>,
    target: Option<&'a InodeRef>,
) -> (Option<WriteGuard<'a, ()>>, Option<WriteGuard<'a, ()>>) {
    let lock = |inode: &'a InodeRef| inode.rwsem.write();
    match (source, target) {
        (Some(source), Some(target)) if target.ino < source.ino => {
            let first = lock(target);
            (Some(lock(source)), Some(first))
        }
        (source, target) => {
            let first = source.map(lock);
            (first, target.map(lock))
        }
    }
}
