//! Either side of a copy: the host's files, or a volume.
//!
//! Paths are bytes, on a volume with a leading slash. Errors name the path where they are raised.

use syncline_fs::bits;

use crate::Result;

/// Attributes of an inode that a copy carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Type and permissions.
    pub(crate) mode: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Hard links.
    pub(crate) nlink: u64,
    /// Device (0: the volume) and inode number.
    pub(crate) id: (u64, u64),
    /// Device number of a device file, Linux's 64-bit encoding.
    pub(crate) rdev: u64,
    /// Seconds and nanoseconds of the last access.
    pub(crate) atime: (i64, u32),
    /// Seconds and nanoseconds of the last change.
    pub(crate) mtime: (i64, u32),
}

/// Kinds of files, as far as copying them differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Dir,
    Symlink,
    /// Pipe, socket or device.
    Special,
}

impl Meta {
    /// Type bits of the mode.
    pub(crate) fn file_type(&self) -> u16 {
        self.mode as u16 & bits::S_IFMT
    }

    /// Reports whether it is a character or block device.
    pub(crate) fn is_device(&self) -> bool {
        matches!(self.file_type(), bits::S_IFCHR | bits::S_IFBLK)
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.file_type() {
            bits::S_IFREG => Kind::File,
            bits::S_IFDIR => Kind::Dir,
            bits::S_IFLNK => Kind::Symlink,
            _ => Kind::Special,
        }
    }
}

/// An extended attribute: name and value.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// A file that is read.
pub(crate) trait Reader {
    /// The next run of data at or behind `from`: start and end.
    fn data(&mut self, from: u64) -> Result<Option<(u64, u64)>>;
    /// Reads; less than asked only at the end.
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<usize>;
    /// Its extended attributes. `None`: [`Side::xattrs`] reads them.
    fn xattrs(&mut self) -> Result<Option<Vec<Xattr>>> {
        Ok(None)
    }
}

/// A new file that is written.
pub(crate) trait Writer {
    fn write(&mut self, at: u64, from: &[u8]) -> Result<()>;
    fn set_len(&mut self, len: u64) -> Result<()>;
}

/// One side of a copy.
pub(crate) trait Side {
    /// Follows symbolic links if `follow`. `None`: there is no such file.
    fn stat(&self, path: &[u8], follow: bool) -> Result<Option<Meta>>;
    /// Returns whether pipes and devices can be read.
    fn streams(&self) -> bool {
        false
    }
    /// Returns whether a file can have this name, which may come from an image.
    fn takes(&self, name: &[u8]) -> bool {
        let _ = name;
        true
    }
    /// Returns whether others may see a file before it is complete.
    fn stages(&self) -> bool {
        true
    }
    /// Names in a directory, sorted, without `.` and `..`.
    fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>>;
    fn open(&self, path: &[u8]) -> Result<Box<dyn Reader>>;
    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>>;
    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>>;
    /// Notes of the damage that reads went past since the last call.
    fn missing(&self) -> Vec<String> {
        Vec::new()
    }
    /// Returns whether reads go past damage.
    fn is_rescued(&self) -> bool {
        false
    }

    /// A file that must not exist, for its owner only until [`Side::set_meta`].
    fn create(&self, path: &[u8]) -> Result<Box<dyn Writer>>;
    /// A directory, for its owner only until [`Side::set_meta`].
    fn mkdir(&self, path: &[u8]) -> Result<()>;
    fn symlink(&self, path: &[u8], target: &[u8]) -> Result<()>;
    fn link(&self, existing: &[u8], path: &[u8]) -> Result<()>;
    /// A pipe, socket or device.
    fn mknod(&self, path: &[u8], meta: &Meta) -> Result<()>;
    /// Replaces what is at `to`.
    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()>;
    fn unlink(&self, path: &[u8]) -> Result<()>;
    /// Removes an empty directory.
    fn rmdir(&self, path: &[u8]) -> Result<()>;
    /// Sets permissions and, if `preserve`, owner, times and attributes. What the side cannot keep
    /// (owner and attributes without privileges) is returned as a remark.
    fn set_meta(
        &self,
        path: &[u8],
        meta: &Meta,
        preserve: Option<&[Xattr]>,
    ) -> Result<Option<String>>;
}
