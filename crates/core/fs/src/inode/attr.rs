//! Attributes of inodes and of the volume: getattr, setattr, statfs, info.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use syncline_ondisk::device_number::makedev;
use syncline_ondisk::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, flags};
use syncline_ondisk::nokey;

use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::Inodes;
use crate::inode::inline::is_inline;
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::inode::times::change_time;
use crate::space::Space;
use crate::time::Timestamp;

/// Attributes of an inode, as from `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: u32,
    /// Type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space used in 512-byte units, delayed allocation included.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
    /// Device number of a device file, Linux's 64-bit encoding.
    pub rdev: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, where the inode has room for it.
    pub crtime: Timestamp,
    /// `FS_*_FL` flags as `lsattr` shows them.
    pub flags: u32,
    /// Generation number.
    pub generation: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The volume's clock.
    Now,
    /// Exactly this.
    At(Timestamp),
}

/// Attributes to change; `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (the type stays).
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time; set by the system unless given (image copies).
    pub ctime: Option<SetTime>,
    /// `FS_*_FL` flags that users may set.
    pub flags: Option<u32>,
}

/// Statistics of the file system, as from `statfs`, in blocks of `block_size` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatFs {
    /// Block size in bytes.
    pub block_size: u32,
    /// Blocks without the file system's own.
    pub blocks: u64,
    /// Free blocks, delayed allocation taken off.
    pub blocks_free: u64,
    /// Free blocks for users without privileges.
    pub blocks_available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_len: u32,
}

/// Flags that `chattr` may change (`EXT4_FL_USER_MODIFIABLE` without flags that change the format);
/// `CASEFOLD` of empty directories only.
pub const USER_FLAGS: u32 = 0x4001_00fb;

impl crate::Volume {
    /// Returns the attributes of an inode. With `mtime_update=seen` its next change gets a time of
    /// its own, which fsync keeps.
    pub fn getattr(&self, inode: &InodeRef) -> Attr {
        let st = inode.state.read();
        if !inode.shown.load(Ordering::Relaxed) {
            inode.shown.store(true, Ordering::Relaxed);
        }
        self.attributes(inode, &st)
    }

    /// As [`Self::getattr`], for a caller that shows the times to nobody.
    pub fn getattr_unseen(&self, inode: &InodeRef) -> Attr {
        self.attributes(inode, &inode.state.read())
    }

    fn attributes(&self, inode: &Inode, st: &InodeState) -> Attr {
        let raw = &st.raw;
        let (mtime, ctime) = st.times();
        let block_size = self.0.geo.block_size;
        // As `ext4_file_getattr`: what takes no blocks is taken for a hole by programs that copy.
        let inline = if raw.is_file() && is_inline(st) { st.size.div_ceil(512) } else { 0 };
        // As `fscrypt_symlink_getattr`: the length of the target as it is shown.
        let size = match raw.is_symlink() && raw.has_flag(flags::ENCRYPT) {
            true => nokey::shown_len(st.size.saturating_sub(2)),
            false => st.size,
        };
        let delayed = st.reserved_blocks * (self.0.geo.cluster_bytes() as u64 / 512);
        Attr {
            ino: inode.ino,
            mode: raw.i_mode,
            uid: raw.i_uid,
            gid: raw.i_gid,
            nlink: u32::from(raw.i_links_count),
            size,
            blocks: raw.sectors(block_size).saturating_add(delayed).saturating_add(inline),
            blksize: block_size as u32,
            rdev: match raw.i_mode & S_IFMT {
                S_IFBLK | S_IFCHR => {
                    let (major, minor) = raw.device_number();
                    makedev(major, minor)
                }
                _ => 0,
            },
            atime: raw.i_atime,
            mtime,
            ctime,
            crtime: raw.i_crtime,
            flags: raw.i_flags,
            generation: raw.i_generation,
        }
    }

    /// Returns the space and inodes of the volume.
    pub fn statfs(&self) -> StatFs {
        let space: &Space = &self.0;
        let total = {
            let sb = space.sb.lock();
            let overhead = u64::from(sb.s_overhead_clusters) << space.geo.cluster_bits;
            sb.s_blocks_count.saturating_sub(overhead)
        };
        let free_space = space.balloc.counts();
        StatFs {
            block_size: space.geo.block_size as u32,
            blocks: total,
            blocks_free: free_space.free << space.geo.cluster_bits,
            blocks_available: free_space.available << space.geo.cluster_bits,
            files: u64::from(space.geo.inodes_count),
            files_free: space.ialloc.free_inodes(),
            name_len: 255,
        }
    }
}
pub(crate) fn setattr_locked(inodes: &Arc<Inodes>, inode: &InodeRef, set: &SetAttr) -> Result<()> {
    let mut h = inodes.start(2)?;
    let mut st = inode.state.write();
    let immutable = st.raw.has_flag(syncline_ondisk::inode::flags::IMMUTABLE);
    if immutable && set.flags.is_none() {
        return Err(FsError::Perm);
    }
    let now = change_time(inodes, inode, &mut st);
    let time = |t: SetTime| match t {
        SetTime::Now => now,
        SetTime::At(at) => at,
    };
    // The caller knows them.
    inode.shown.store(true, Ordering::Relaxed);
    let raw = &mut st.raw;
    if let Some(mode) = set.mode {
        raw.i_mode = raw.i_mode & S_IFMT | mode & !S_IFMT;
    }
    raw.i_uid = set.uid.unwrap_or(raw.i_uid);
    raw.i_gid = set.gid.unwrap_or(raw.i_gid);
    raw.i_atime = set.atime.map_or(raw.i_atime, time);
    raw.i_mtime = set.mtime.map_or(raw.i_mtime, time);
    raw.i_ctime = set.ctime.map_or(now, time);
    if let Some(flags) = set.flags {
        raw.i_flags = raw.i_flags & !USER_FLAGS | flags & USER_FLAGS;
    }
    let times_only =
        set.mode.is_none() && set.uid.is_none() && set.gid.is_none() && set.flags.is_none();
    let dirty = if times_only { Dirty::Times } else { Dirty::Data };
    write_inode(inodes, &mut h, inode, &mut st, dirty)
}

/// The letter `ls -l` shows for a mode's type.
pub fn type_letter(mode: u16) -> char {
    match mode & S_IFMT {
        S_IFREG => '-',
        S_IFDIR => 'd',
        S_IFLNK => 'l',
        S_IFBLK => 'b',
        S_IFCHR => 'c',
        0x1000 => 'p',
        0xc000 => 's',
        _ => '?',
    }
}
