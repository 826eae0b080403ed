//! New inodes: files, directories, device files, symbolic links, files without a name.
//!
//! Promises: inode, name and first block appear in one transaction or not at all. A creation that
//! fails half way (no block for the directory) leaves an orphan in the same transaction, which is
//! freed at once. A file without a name is an orphan from its transaction on. New entries of a
//! set-group-id directory get its group, and new directories its bit. Tested in
//! `tests/it/namespace.rs` and `tests/it/nameless.rs`.

use syncline_jbd2::Handle;
use syncline_ondisk::device_number::device_numbers;
use syncline_ondisk::dir as disk_dir;
use syncline_ondisk::inode::{
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, S_ISGID, flags,
};

use crate::data::Files;
use crate::data::durability::{
    ATTRIBUTE, ATTRIBUTE_RELAXED, ATTRIBUTE_STRICT, RELAXED, STRICT, durability_bits,
};
use crate::data::relaxed::note_name;
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState, Lifetime};
use crate::inode::Inodes;
use crate::inode::create::new_inode;
use crate::inode::orphan::orphan_add;
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::inode::xattr::XattrFlags;
use crate::map::extents::volume::bmap_create;
use crate::names::Names;
use crate::names::dcache::Known;
use crate::names::dir::Probe;
use crate::names::dir::live::{dir_params, new_inline};
use crate::names::dir::store::{self, BlockKind};
use crate::names::namei::{
    self, INSERT_CREDITS, ORPHAN_CREDITS, add_name, check_dir_links, probe_name,
};
use crate::names::symlink::{check_target, fill_symlink};
use crate::names::xattr::setxattr;
use crate::space::Space;
use crate::space::ialloc::NewInode;
use crate::space::retry::retry_when_full;

/// Blocks that a new inode may change: inode bitmap, group descriptor, inode table, and a first
/// block with its bitmap and descriptor.
pub(super) const NEW_INODE_CREDITS: u32 = 6;

/// Permissions and owner of something new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Create {
    /// Permission bits, umask applied; type bits are ignored.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group; a set-group-id directory overrides it.
    pub gid: u32,
}

impl crate::Volume {
    /// Creates an empty regular file.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NoSpace`], [`FsError::NotFound`] if `dir` was removed.
    pub fn create(&self, dir: &InodeRef, name: &[u8], create: &Create) -> Result<InodeRef> {
        make(&self.0, dir, name, S_IFREG, create, |_, _, _, _| Ok(()))
    }

    /// Creates an empty regular file without a name, as open(2) with O_TMPFILE. It has the group
    /// and attributes of a file in `dir`, and goes with its last reference or in a crash, unless
    /// [`Self::link`] gives it a name, which needs `may_get_name`.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], [`FsError::NotDir`], [`FsError::Perm`] if `dir` is immutable,
    /// [`FsError::NotFound`] if it was removed.
    pub fn tmpfile(&self, dir: &InodeRef, create: &Create, may_get_name: bool) -> Result<InodeRef> {
        let names: &Names = &self.0;
        names.before_change()?;
        let inode = retry_when_full(names, || nameless_once(names, dir, create, may_get_name))?;
        inherit_attribute(names, dir, &inode);
        Ok(inode)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As [`Self::create`], and [`FsError::TooManyLinks`].
    pub fn mkdir(&self, dir: &InodeRef, name: &[u8], create: &Create) -> Result<InodeRef> {
        let parent = dir.ino;
        make(&self.0, dir, name, S_IFDIR, create, |space, h, inode, st| {
            fill_new_dir(space, h, inode, st, parent)
        })
    }

    /// Creates a device file, pipe, socket or regular file, by the type bits of `mode`. `rdev` is
    /// Linux's 64-bit device number.
    ///
    /// # Errors
    /// As [`Self::create`]; [`FsError::Perm`] for a directory, [`FsError::Invalid`] for other
    /// types.
    pub fn mknod(
        &self,
        dir: &InodeRef,
        name: &[u8],
        create: &Create,
        rdev: u64,
    ) -> Result<InodeRef> {
        let kind = create.mode & S_IFMT;
        match kind {
            0 => make(&self.0, dir, name, S_IFREG, create, |_, _, _, _| Ok(())),
            S_IFREG | S_IFIFO | S_IFSOCK => {
                make(&self.0, dir, name, kind, create, |_, _, _, _| Ok(()))
            }
            S_IFCHR | S_IFBLK => make(&self.0, dir, name, kind, create, |_, _, _, st| {
                let (major, minor) = device_numbers(rdev);
                if major >= 1 << 12 || minor >= 1 << 20 {
                    return Err(FsError::invalid("ext4 cannot hold this device number"));
                }
                st.raw.set_device_number(major, minor);
                Ok(())
            }),
            S_IFDIR => Err(FsError::Perm),
            _ => Err(FsError::invalid("mknod makes files, pipes, sockets and devices")),
        }
    }

    /// Creates a symbolic link to `target`.
    ///
    /// # Errors
    /// As [`Self::create`]; [`FsError::NotFound`] for an empty target, [`FsError::NameTooLong`]
    /// for one that does not fit a block.
    pub fn symlink(
        &self,
        dir: &InodeRef,
        name: &[u8],
        target: &[u8],
        create: &Create,
    ) -> Result<InodeRef> {
        let names: &Names = &self.0;
        check_target(names, target)?;
        let create = Create { mode: 0o777, ..*create };
        make(names, dir, name, S_IFLNK, &create, |space, h, inode, st| {
            fill_symlink(space, h, inode, st, target)
        })
    }
}
fn make(
    names: &Names,
    dir: &InodeRef,
    name: &[u8],
    kind: u16,
    create: &Create,
    fill: impl Fn(&Space, &mut Handle, &Inode, &mut InodeState) -> Result<()>,
) -> Result<InodeRef> {
    namei::check_name(name)?;
    names.before_change()?;
    let inode = retry_when_full(names, || make_once(names, dir, name, kind, create, &fill))?;
    inherit_durability(names, dir, &inode, name);
    Ok(inode)
}

fn make_once(
    names: &Names,
    dir: &InodeRef,
    name: &[u8],
    kind: u16,
    create: &Create,
    fill: &impl Fn(&Space, &mut Handle, &Inode, &mut InodeState) -> Result<()>,
) -> Result<InodeRef> {
    let _rwsem = dir.rwsem.write();
    let place = match probe_name(names, dir, name)? {
        Probe::Found(_) => return Err(FsError::Exists),
        Probe::Absent(place) => place,
    };
    namei::check_may_add(dir)?;
    if kind == S_IFDIR {
        check_dir_links(names, dir)?;
    }
    let regular = kind == S_IFREG;
    let life = if regular { names.hot.life_by_name(name) } else { Lifetime::Long };
    let new = owned_by(&dir.state.read(), (kind, life), create);
    names.dcache.forget(dir.ino, name);
    let (inode, done) = {
        let mut h = names.start(INSERT_CREDITS + NEW_INODE_CREDITS + ORPHAN_CREDITS)?;
        if kind == S_IFLNK {
            // It may name what a rename has put there.
            h.follow_names();
        }
        let inode = new_inode(names, &mut h, dir, &new)?;
        let mut done = fill_and_name(names, &mut h, (dir, name, place), &inode, fill);
        if let Err(err) = &done {
            let undone = give_up_inode(names, &mut h, &inode);
            let undone = names.all_or_nothing(&h, undone, "a new file was not taken back");
            done = Err(undone.err().unwrap_or_else(|| err.clone()));
        }
        (inode, done)
    };
    // The handle is closed: only now may the failed inode's last reference go.
    done.map(|()| {
        names.know(dir, name, Known::Inode(inode.ino));
        if regular {
            names.hot.note_made(name);
        }
        inode
    })
}

fn nameless_once(
    names: &Names,
    dir: &InodeRef,
    create: &Create,
    may_get_name: bool,
) -> Result<InodeRef> {
    let _rwsem = dir.rwsem.write();
    namei::check_may_add(dir)?;
    let new = owned_by(&dir.state.read(), (S_IFREG, Lifetime::Long), create);
    let (inode, done) = {
        let mut h = names.start(NEW_INODE_CREDITS + ORPHAN_CREDITS)?;
        let inode = new_inode(names, &mut h, dir, &new)?;
        inode.state.write().may_get_name = may_get_name;
        let done = give_up_inode(names, &mut h, &inode);
        let done = names.all_or_nothing(&h, done, "a file without a name failed half way");
        (inode, done)
    };
    // As in `make_once`.
    done.map(|()| inode)
}

/// Mode and owner of a new inode in `parent`.
pub(super) fn owned_by(
    parent: &InodeState,
    (kind, life): (u16, Lifetime),
    create: &Create,
) -> NewInode {
    let mut mode = kind | create.mode & !S_IFMT;
    let mut gid = create.gid;
    if parent.raw.i_mode & S_ISGID != 0 {
        gid = parent.raw.i_gid;
        if kind == S_IFDIR {
            mode |= S_ISGID;
        }
    }
    NewInode { mode, uid: create.uid, gid, life }
}

fn fill_and_name(
    inodes: &Inodes,
    h: &mut Handle,
    (dir, name, place): (&Inode, &[u8], Option<u32>),
    inode: &Inode,
    fill: &impl Fn(&Space, &mut Handle, &Inode, &mut InodeState) -> Result<()>,
) -> Result<()> {
    let file_type = {
        let mut st = inode.state.write();
        fill(inodes, h, inode, &mut st)?;
        write_inode(inodes, h, inode, &mut st, Dirty::Data)?;
        disk_dir::file_type::from_mode(st.raw.i_mode)
    };
    let mut st = dir.state.write();
    if file_type == disk_dir::file_type::DIR {
        namei::inc_links_of_dir(&mut st);
    }
    let added = add_name(inodes, h, dir, &mut st, (name, inode.ino, file_type), place);
    if added.is_err() && file_type == disk_dir::file_type::DIR {
        namei::dec_links_of_dir(&mut st);
        write_inode(inodes, h, dir, &mut st, Dirty::Data)?;
    }
    added
}

/// An inode without a name: no links, an orphan until its last reference goes.
pub(super) fn give_up_inode(inodes: &Inodes, h: &mut Handle, inode: &Inode) -> Result<()> {
    let mut st = inode.state.write();
    st.raw.i_links_count = 0;
    orphan_add(inodes, h, inode, &mut st)
}

/// Makes a new directory an inline one if it may be, or gives it its first block, with the entries
/// for itself and its parent.
///
/// # Errors
/// As `bmap_create`.
pub(crate) fn fill_new_dir(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    parent: u32,
) -> Result<()> {
    let params = dir_params(space, inode, st)?;
    st.raw.i_flags &= !flags::INDEX;
    if space.inline_data && new_inline(space, h, inode, st, (parent, &params))? {
        return Ok(());
    }
    let pblk = bmap_create(space, h, inode, st, 0)?;
    h.create(pblk, |block| {
        disk_dir::init_dots(block, &params.format, inode.ino, parent);
        store::seal(block, BlockKind::Leaf, &params);
    })?;
    st.size = space.block_size() as u64;
    st.raw.i_size = st.size;
    Ok(())
}

/// A new file gets the attribute of its directory; without it, that of its name counts.
fn inherit_durability(files: &Files, dir: &InodeRef, inode: &InodeRef, name: &[u8]) {
    note_name(files, inode, name);
    inherit_attribute(files, dir, inode);
}

fn inherit_attribute(files: &Files, dir: &InodeRef, inode: &InodeRef) {
    let bits = durability_bits(dir);
    let value = match bits & (ATTRIBUTE_RELAXED | ATTRIBUTE_STRICT) {
        ATTRIBUTE_RELAXED => RELAXED,
        ATTRIBUTE_STRICT => STRICT,
        _ => return,
    };
    if inode.is_dir() || inode.state.read().raw.is_file() {
        // Without room for it the file is strict, which promises more.
        let _ = setxattr(files, inode, ATTRIBUTE, value, XattrFlags::Any);
    }
}
