//! New inodes with a name: files, directories, device files, symbolic links.
//!
//! Promises: inode, name and first block appear in one transaction or not at all. A creation that
//! fails half way (no block for the directory) leaves an orphan in the same transaction, which is
//! freed at once. A set-group-id directory gives its group to what is made in it, and the bit to
//! directories. Tested in `tests/namespace.rs`.

use syncline_jbd2::Handle;
use syncline_ondisk::dir as disk_dir;
use syncline_ondisk::inode::{
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, flags,
};

use crate::balloc::Lifetime;
use crate::dcache::Known;
use crate::dir::Probe;
use crate::dir::store::{self, BlockKind};
use crate::error::{FsError, Result};
use crate::ialloc::NewInode;
use crate::inode::{Dirty, Inode, InodeRef, InodeState};
use crate::namei::{self, INSERT_CREDITS, ORPHAN_CREDITS};
use crate::volume::{Inner, Volume};

/// `S_ISGID`.
const SET_GID: u16 = 0o2000;

/// Blocks that a new inode may change: inode bitmap, group descriptor, inode table, and a first
/// block with its bitmap and descriptor.
const NEW_INODE_CREDITS: u32 = 6;

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

impl Volume {
    /// Makes an empty regular file.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NoSpace`], [`FsError::NotFound`] if `dir` was removed.
    pub fn create(&self, dir: &InodeRef, name: &[u8], create: &Create) -> Result<InodeRef> {
        self.make(dir, name, S_IFREG, create, |_, _, _, _| Ok(()))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Volume::create`], and [`FsError::TooManyLinks`].
    pub fn mkdir(&self, dir: &InodeRef, name: &[u8], create: &Create) -> Result<InodeRef> {
        let parent = dir.ino;
        self.make(dir, name, S_IFDIR, create, |vol, h, inode, st| {
            vol.fill_new_dir(h, inode, st, parent)
        })
    }

    /// Makes a device file, pipe, socket or regular file, by the type bits of `mode`; `rdev` is
    /// Linux's 64-bit device number.
    ///
    /// # Errors
    /// As [`Volume::create`]; [`FsError::Perm`] for a directory, [`FsError::Invalid`] for other
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
            0 => self.create(dir, name, create),
            S_IFREG | S_IFIFO | S_IFSOCK => self.make(dir, name, kind, create, |_, _, _, _| Ok(())),
            S_IFCHR | S_IFBLK => self.make(dir, name, kind, create, |_, _, _, st| {
                let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & !0xfff);
                let minor = (rdev & 0xff) | (rdev >> 12 & !0xff);
                match (u32::try_from(major), u32::try_from(minor & 0xffff_ffff)) {
                    (Ok(major), Ok(minor)) if major < 1 << 12 && minor < 1 << 20 => {
                        st.raw.set_device_number(major, minor);
                        Ok(())
                    }
                    _ => Err(FsError::invalid("ext4 cannot hold this device number")),
                }
            }),
            S_IFDIR => Err(FsError::Perm),
            _ => Err(FsError::invalid("mknod makes files, pipes, sockets and devices")),
        }
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// As [`Volume::create`]; [`FsError::NotFound`] for an empty target, [`FsError::NameTooLong`]
    /// for one that does not fit a block.
    pub fn symlink(
        &self,
        dir: &InodeRef,
        name: &[u8],
        target: &[u8],
        create: &Create,
    ) -> Result<InodeRef> {
        self.0.check_target(target)?;
        let create = Create { mode: 0o777, ..*create };
        self.make(dir, name, S_IFLNK, &create, |vol, h, inode, st| {
            vol.fill_symlink(h, inode, st, target)
        })
    }

    fn make(
        &self,
        dir: &InodeRef,
        name: &[u8],
        kind: u16,
        create: &Create,
        fill: impl Fn(&Inner, &mut Handle, &Inode, &mut InodeState) -> Result<()>,
    ) -> Result<InodeRef> {
        namei::check_name(name)?;
        self.0.check_writable()?;
        let inode = self.0.retry_when_full(|| self.make_once(dir, name, kind, create, &fill))?;
        self.inherit_durability(dir, &inode, name);
        Ok(inode)
    }

    fn make_once(
        &self,
        dir: &InodeRef,
        name: &[u8],
        kind: u16,
        create: &Create,
        fill: &impl Fn(&Inner, &mut Handle, &Inode, &mut InodeState) -> Result<()>,
    ) -> Result<InodeRef> {
        let vol = &self.0;
        let _rwsem = dir.rwsem.write();
        let place = match vol.probe(dir, name)? {
            Probe::Found(_) => return Err(FsError::Exists),
            Probe::Absent(place) => place,
        };
        namei::check_may_add(dir)?;
        if kind == S_IFDIR {
            vol.check_dir_links(dir)?;
        }
        let regular = kind == S_IFREG;
        let life = if regular { vol.hot.life_by_name(name) } else { Lifetime::Long };
        let new = new_inode(&dir.state.read(), (kind, life), create);
        vol.dcache.forget(dir.ino, name);
        let (inode, done) = {
            let mut h = vol.start(INSERT_CREDITS + NEW_INODE_CREDITS + ORPHAN_CREDITS)?;
            let inode = vol.new_inode(&mut h, dir, &new)?;
            let mut done = vol.fill_and_name(&mut h, (dir, name, place), &inode, fill);
            if let Err(err) = &done {
                let undone = vol.give_up_inode(&mut h, &inode);
                done = Err(undone.err().unwrap_or_else(|| err.clone()));
            }
            (inode, done)
        };
        // The handle is closed: only now may the failed inode's last reference go.
        done.map(|()| {
            vol.dcache.put(dir.ino, name, Known::Inode(inode.ino));
            if regular {
                vol.hot.note_made(name);
            }
            inode
        })
    }
}

/// Mode and owner of a new inode in `parent`.
fn new_inode(parent: &InodeState, (kind, life): (u16, Lifetime), create: &Create) -> NewInode {
    let mut mode = kind | create.mode & !S_IFMT;
    let mut gid = create.gid;
    if parent.raw.i_mode & SET_GID != 0 {
        gid = parent.raw.i_gid;
        if kind == S_IFDIR {
            mode |= SET_GID;
        }
    }
    NewInode { mode, uid: create.uid, gid, life }
}

impl Inner {
    fn fill_and_name(
        &self,
        h: &mut Handle,
        (dir, name, place): (&Inode, &[u8], Option<u32>),
        inode: &Inode,
        fill: &impl Fn(&Inner, &mut Handle, &Inode, &mut InodeState) -> Result<()>,
    ) -> Result<()> {
        let file_type = {
            let mut st = inode.state.write();
            fill(self, h, inode, &mut st)?;
            self.write_inode(h, inode, &mut st, Dirty::Data)?;
            disk_dir::file_type::from_mode(st.raw.i_mode)
        };
        let mut st = dir.state.write();
        if file_type == disk_dir::file_type::DIR {
            namei::inc_links_of_dir(&mut st);
        }
        let added = self.add_name(h, dir, &mut st, (name, inode.ino, file_type), place);
        if added.is_err() && file_type == disk_dir::file_type::DIR {
            namei::dec_links_of_dir(&mut st);
            self.write_inode(h, dir, &mut st, Dirty::Data)?;
        }
        added
    }

    /// An inode that could not be finished: no links, an orphan until its last reference goes.
    fn give_up_inode(&self, h: &mut Handle, inode: &Inode) -> Result<()> {
        let mut st = inode.state.write();
        st.raw.i_links_count = 0;
        self.orphan_add(h, inode, &mut st)
    }

    fn fill_new_dir(
        &self,
        h: &mut Handle,
        inode: &Inode,
        st: &mut InodeState,
        parent: u32,
    ) -> Result<()> {
        let params = self.dir_params(inode, st)?;
        let pblk = self.bmap_create(h, inode, st, 0)?;
        h.create(pblk, |block| {
            disk_dir::init_dots(block, &params.format, inode.ino, parent);
            store::seal(block, BlockKind::Leaf, &params);
        })?;
        st.size = self.block_size() as u64;
        st.raw.i_size = st.size;
        st.raw.i_flags &= !flags::INDEX;
        Ok(())
    }
}
