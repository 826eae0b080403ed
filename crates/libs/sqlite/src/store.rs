//! The place of the files of the VFS: a volume of this process, or of another one.

use std::sync::Arc;

use syncline_device::Clock;
use syncline_fs::{Attr, Create};

use crate::barriers::Barriers;
use crate::batch::Batch;

/// A result, or Linux's errno.
pub(crate) type Answer<T> = std::result::Result<T, i32>;

pub(crate) const ENOENT: i32 = 2;
pub(crate) const ENOTDIR: i32 = 20;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EROFS: i32 = 30;

/// Files by path.
pub(crate) trait Store: Send + Sync {
    /// The file at `path`.
    fn open(self: Arc<Self>, path: &str) -> Answer<Box<dyn OpenFile>>;
    /// A new file.
    fn create(self: Arc<Self>, path: &str, of: &Create) -> Answer<Box<dyn OpenFile>>;
    /// The directory that holds `path`, to be synced.
    fn parent(self: Arc<Self>, path: &str) -> Answer<Box<dyn OpenFile>>;
    fn stat(&self, path: &str) -> Answer<Attr>;
    /// As `stat`, for the owner of a new file beside `path`.
    fn owner(&self, path: &str) -> Option<Attr>;
    fn unlink(&self, path: &str) -> Answer<()>;
    fn clock(&self) -> &Arc<dyn Clock>;
    /// A call that needs no file begins.
    fn charge_syscall(&self);
    fn barriers(&self) -> Barriers;
    fn offers_atomic(&self) -> bool;
}

/// An open file.
pub(crate) trait OpenFile: Send {
    fn attr(&self) -> Answer<Attr>;
    fn size(&self) -> Answer<u64>;
    /// Fewer bytes than asked only at the end of the file.
    fn read(&self, offset: u64, into: &mut [u8]) -> Answer<usize>;
    /// Writes all of `from`.
    fn write(&self, offset: u64, from: &[u8]) -> Answer<()>;
    fn truncate(&self, size: u64) -> Answer<()>;
    fn fdatasync(&self) -> Answer<()>;
    fn fdatabarrier(&self) -> Answer<()>;
    /// Writes all of a batch or nothing, durable when it returns.
    fn write_batch(&self, batch: &Batch) -> Answer<()>;
}
