//! Files of an image that a helper process reads (`isolate`): calls by path, as of any library.
//!
//! It has no atomic writes: SQLite commits by its journal.

use std::sync::Arc;

use syncline::{Access, At, Disk, Error, File, SetAttr};
use syncline_device::{Clock, WallClock};
use syncline_fs::{Attr, Create};

use crate::barriers::Barriers;
use crate::batch::Batch;
use crate::store::{Answer, ENOSPC, OpenFile, Store};

const EOPNOTSUPP: i32 = 95;

/// Files of a [`Disk`].
pub(crate) struct DiskFs {
    disk: Disk,
    clock: Arc<dyn Clock>,
}

impl DiskFs {
    pub(crate) fn new(disk: Disk) -> DiskFs {
        DiskFs { disk, clock: Arc::new(WallClock::new()) }
    }

    fn opened(&self, path: &str, access: Access, mode: u16) -> Answer<Box<dyn OpenFile>> {
        let file = self.disk.open_file(path.as_bytes(), access, mode).map_err(errno)?;
        Ok(Box::new(file))
    }
}

fn errno(err: Error) -> i32 {
    err.errno
}

impl Store for DiskFs {
    fn open(self: Arc<Self>, path: &str) -> Answer<Box<dyn OpenFile>> {
        let access = if self.disk.is_read_only() { Access::READ } else { Access::WRITE };
        self.opened(path, access, 0)
    }

    fn create(self: Arc<Self>, path: &str, of: &Create) -> Answer<Box<dyn OpenFile>> {
        let access = Access::CREATE.with(|access| access.exclusive = true);
        let file = self.opened(path, access, of.mode)?;
        if (of.uid, of.gid) != (0, 0) {
            let set = SetAttr { uid: Some(of.uid), gid: Some(of.gid), ..SetAttr::default() };
            self.disk.setattr(path.as_bytes(), At::Follow, &set).map_err(errno)?;
        }
        Ok(file)
    }

    fn parent(self: Arc<Self>, path: &str) -> Answer<Box<dyn OpenFile>> {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        self.opened(if dir.is_empty() { "/" } else { dir }, Access::READ, 0)
    }

    fn stat(&self, path: &str) -> Answer<Attr> {
        self.disk.stat(path.as_bytes(), At::Follow).map_err(errno)
    }

    fn owner(&self, path: &str) -> Option<Attr> {
        self.stat(path).ok()
    }

    fn unlink(&self, path: &str) -> Answer<()> {
        self.disk.unlink(path.as_bytes()).map_err(errno)
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn charge_syscall(&self) {}

    fn barriers(&self) -> Barriers {
        Barriers::None
    }

    fn offers_atomic(&self) -> bool {
        false
    }
}

impl OpenFile for File {
    fn attr(&self) -> Answer<Attr> {
        File::stat(self).map_err(errno)
    }

    fn size(&self) -> Answer<u64> {
        Ok(self.attr()?.size)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Answer<usize> {
        self.read_at(offset, into).map_err(errno)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Answer<()> {
        let done = self.write_at(offset, from).map_err(errno)?;
        if done < from.len() { Err(ENOSPC) } else { Ok(()) }
    }

    fn truncate(&self, size: u64) -> Answer<()> {
        File::truncate(self, size).map_err(errno)
    }

    fn fdatasync(&self) -> Answer<()> {
        self.sync(true).map_err(errno)
    }

    fn fdatabarrier(&self) -> Answer<()> {
        self.barrier().map_err(errno)
    }

    fn write_batch(&self, _: &Batch) -> Answer<()> {
        Err(EOPNOTSUPP)
    }
}
