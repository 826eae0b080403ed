//! This system's files with other owners and times, so that equal trees give equal images.

use super::Pins;
use super::host::Host;
use super::side::{Meta, Reader, Side, Writer, Xattr};
use crate::Result;

pub(super) struct Pinned {
    pub(super) host: Host,
    pub(super) pins: Pins,
}

impl Side for Pinned {
    fn stat(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        let found = self.host.stat(path, follow)?;
        Ok(found.map(|mut meta| {
            if let Some((uid, gid)) = self.pins.owner {
                (meta.uid, meta.gid) = (uid, gid);
            }
            if let Some(latest_s) = self.pins.latest_s {
                meta.mtime = meta.mtime.min((latest_s, 0));
                // Reading a tree changes them.
                meta.atime = meta.mtime;
            }
            meta
        }))
    }

    fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.host.list(path)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn Reader>> {
        self.host.open(path)
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.host.read_link(path)
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>> {
        let mut xattrs = self.host.xattrs(path)?;
        // The order is the file system's.
        xattrs.sort();
        Ok(xattrs)
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn Writer>> {
        self.host.create(path)
    }

    fn mkdir(&self, path: &[u8]) -> Result<()> {
        self.host.mkdir(path)
    }

    fn symlink(&self, path: &[u8], target: &[u8]) -> Result<()> {
        self.host.symlink(path, target)
    }

    fn link(&self, existing: &[u8], path: &[u8]) -> Result<()> {
        self.host.link(existing, path)
    }

    fn mknod(&self, path: &[u8], meta: &Meta) -> Result<()> {
        self.host.mknod(path, meta)
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.host.rename(from, to)
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        self.host.unlink(path)
    }

    fn rmdir(&self, path: &[u8]) -> Result<()> {
        self.host.rmdir(path)
    }

    fn set_meta(
        &self,
        path: &[u8],
        meta: &Meta,
        preserve: Option<&[Xattr]>,
    ) -> Result<Option<String>> {
        self.host.set_meta(path, meta, preserve)
    }
}
