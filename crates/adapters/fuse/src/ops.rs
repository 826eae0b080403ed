//! What a mounted volume answers: our own seam between FUSE's wire format and the volume.
//!
//! Inodes are ext4's numbers (the root is 2). One method a request, in the words of the system
//! call; errors are the volume's, and become numbers in one place (`convert.rs`).

use syncline_fs::{Attr, FallocateMode, FileKind, Result, SetAttr, StatFs, XattrFlags};

/// Who asks, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    /// File system uid.
    pub uid: u32,
    /// File system gid.
    pub gid: u32,
}

/// What an open file wants of a write besides the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteHow {
    /// Durable before it returns: O_DSYNC.
    pub dsync: bool,
    /// With all of the inode: O_SYNC.
    pub sync: bool,
    /// On the device before it returns, durable or not: O_DIRECT.
    pub direct: bool,
    /// Not through the kernel's cache, which takes capabilities away itself.
    pub uncached: bool,
    /// O_APPEND.
    pub append: bool,
    /// Set-id bits go, because somebody without privileges writes.
    pub drop_set_id: bool,
}

/// What an open wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenHow {
    /// O_RDONLY or O_RDWR.
    pub read: bool,
    /// O_WRONLY or O_RDWR.
    pub write: bool,
    /// O_APPEND.
    pub append: bool,
    /// The kernel's cache stays right beside writes that go past it.
    pub may_pass: bool,
}

/// Where the reads and writes of an open file go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through the kernel's cache.
    Cached,
    /// Past it.
    Past,
}

/// One name of a directory.
pub(crate) struct Entry<'a> {
    /// Inode number.
    pub ino: u32,
    /// What it is, as far as the directory says.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
    /// Where to go on behind it.
    pub next: u64,
    /// With readdirplus, and not for `.` and `..`.
    pub attr: Option<Attr>,
}

/// The requests. Every method that returns the attributes of a name counts one lookup of it, which
/// [`Operations::forget`] takes back.
pub(crate) trait Operations: Send + Sync + 'static {
    fn lookup(&self, dir: u32, name: &[u8]) -> Result<Attr>;
    fn forget(&self, ino: u32, lookups: u64);
    fn getattr(&self, ino: u32) -> Result<Attr>;
    fn setattr(&self, ino: u32, set: SetAttr) -> Result<Attr>;
    fn readlink(&self, ino: u32) -> Result<Vec<u8>>;
    fn mknod(
        &self,
        ctx: Context,
        dir: u32,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u64,
    ) -> Result<Attr>;
    fn mkdir(&self, ctx: Context, dir: u32, name: &[u8], mode: u32, umask: u32) -> Result<Attr>;
    fn symlink(&self, ctx: Context, dir: u32, name: &[u8], target: &[u8]) -> Result<Attr>;
    fn unlink(&self, dir: u32, name: &[u8]) -> Result<()>;
    fn rmdir(&self, dir: u32, name: &[u8]) -> Result<()>;
    fn rename(&self, from: (u32, &[u8]), to: (u32, &[u8]), flags: u32) -> Result<()>;
    fn link(&self, ino: u32, dir: u32, name: &[u8]) -> Result<Attr>;
    /// Makes and opens a file with a mode and a umask.
    fn create(
        &self,
        ctx: Context,
        dir: u32,
        name: &[u8],
        mode: (u32, u32),
        how: OpenHow,
    ) -> Result<(Attr, Way)>;
    /// Opens a file or directory.
    fn open(&self, ino: u32, how: OpenHow) -> Result<Way>;
    /// The counterpart of each open and create. `past`: of one that writes past the cache.
    fn release(&self, ino: u32, past: bool);
    fn read(&self, ino: u32, offset: u64, into: &mut [u8]) -> Result<usize>;
    fn write(&self, ino: u32, offset: u64, data: &[u8], how: WriteHow) -> Result<usize>;
    fn fsync(&self, ino: u32, datasync: bool) -> Result<()>;
    /// Names from `cookie` on, until `sink` has no room for one.
    fn readdir(
        &self,
        dir: u32,
        cookie: u64,
        plus: bool,
        sink: &mut dyn FnMut(&Entry<'_>) -> bool,
    ) -> Result<()>;
    fn statfs(&self) -> StatFs;
    fn setxattr(&self, ino: u32, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()>;
    fn getxattr(&self, ino: u32, name: &[u8]) -> Result<Vec<u8>>;
    /// Names, each with a NUL behind it.
    fn listxattr(&self, ino: u32) -> Result<Vec<u8>>;
    fn removexattr(&self, ino: u32, name: &[u8]) -> Result<()>;
    fn fallocate(&self, ino: u32, mode: FallocateMode, offset: u64, len: u64) -> Result<()>;
    fn seek(&self, ino: u32, offset: u64, data: bool) -> Result<u64>;
    fn copy(&self, from: (u32, u64), to: (u32, u64), len: u64) -> Result<u64>;
    /// FS_IOC_SETFLAGS.
    fn set_flags(&self, ino: u32, flags: u32) -> Result<()>;
}
