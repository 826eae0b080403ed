//! The FUSE requests: a root directory, the device's file, the controls.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, TimeOrNow, WriteFlags,
};
use syncline_device::SECTOR_BYTES;

use crate::Export;
use crate::bytes::{ByteError, Bytes};

const ROOT: u64 = 1;
const DEVICE: u64 = 2;
const FIRST_CONTROL: u64 = 3;
/// Nothing changes behind the kernel's back but the sizes of controls, which are read unbuffered.
const TTL: Duration = Duration::from_secs(60);
/// Largest request that the kernel's FUSE forms, in bytes.
const MAX_WRITE_BYTES: u32 = 1 << 20;
/// Size that a control claims, as files in sysfs do.
const CONTROL_BYTES: u64 = 4096;

/// `O_SYNC` contains it.
const O_DSYNC: i32 = 0o10_000;
const FALLOC_FL_KEEP_SIZE: i32 = 1;
const FALLOC_FL_PUNCH_HOLE: i32 = 2;
const FALLOC_FL_ZERO_RANGE: i32 = 16;

pub(crate) struct Files {
    export: Export,
    bytes: Bytes,
    uid: u32,
    gid: u32,
}

impl From<ByteError> for Errno {
    fn from(error: ByteError) -> Errno {
        match error {
            ByteError::TooBig => Errno::EFBIG,
            ByteError::BehindEnd => Errno::ENOSPC,
            ByteError::Device => Errno::EIO,
        }
    }
}

impl Files {
    /// Files of this user and group.
    pub(crate) fn new(export: Export, (uid, gid): (u32, u32)) -> Self {
        let bytes = Bytes::new(Arc::clone(&export.device));
        Files { export, bytes, uid, gid }
    }

    fn name(&self, ino: u64) -> Option<&'static str> {
        match ino {
            DEVICE => Some(self.export.name),
            _ => self.control(ino).map(|c| c.name),
        }
    }

    fn control(&self, ino: u64) -> Option<&crate::Control> {
        self.export.controls.get(ino.checked_sub(FIRST_CONTROL)? as usize)
    }

    fn inodes(&self) -> impl Iterator<Item = u64> + use<> {
        DEVICE..FIRST_CONTROL + self.export.controls.len() as u64
    }

    fn attr(&self, ino: u64) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            ROOT => (FileType::Directory, 0o755, 0),
            DEVICE => (FileType::RegularFile, 0o600, self.export.device.geometry().size_bytes),
            _ => {
                let perm = if self.control(ino)?.write.is_some() { 0o644 } else { 0o444 };
                (FileType::RegularFile, perm, CONTROL_BYTES)
            }
        };
        Some(FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: size / SECTOR_BYTES,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: if ino == ROOT { 2 } else { 1 },
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn fallocate_device(&self, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        let discards = self.export.device.geometry().discard;
        match mode & !FALLOC_FL_KEEP_SIZE {
            // A device has all its blocks.
            0 if mode == FALLOC_FL_KEEP_SIZE => Ok(()),
            FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE if discards => {
                Ok(self.bytes.discard(offset, length)?)
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

fn answer(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Files {
    fn init(&mut self, _req: &fuser::Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // What the kernel cannot do it leaves out; only the largest request matters.
        let _ = config.set_max_write(MAX_WRITE_BYTES);
        let _ = config.add_capabilities(InitFlags::FUSE_MAX_PAGES);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.inodes().find(|ino| self.name(*ino).is_some_and(|known| name == known));
        match found.filter(|_| parent.0 == ROOT).and_then(|ino| self.attr(ino)) {
            Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _req: &fuser::Request,
        ino: INodeNo,
        _fh: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.attr(ino.0) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Accepts what `open(O_TRUNC)` and `touch` ask: sizes and times of devices do not change.
    fn setattr(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        self.getattr(req, ino, fh, reply);
    }

    fn open(&self, _req: &fuser::Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _req: &fuser::Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino.0 == DEVICE {
            return match self.bytes.read(offset, size) {
                Ok(bytes) => reply.data(&bytes),
                Err(error) => reply.error(error.into()),
            };
        }
        match self.control(ino.0) {
            Some(control) => {
                let text = (control.read)().into_bytes();
                let from = text.len().min(offset as usize);
                let to = text.len().min(from + size as usize);
                reply.data(&text[from..to]);
            }
            None => reply.error(Errno::EISDIR),
        }
    }

    fn write(
        &self,
        _req: &fuser::Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The kernel leaves O_DSYNC and RWF_DSYNC of direct writes to the server.
        let sync = flags.0 & O_DSYNC != 0;
        let result = match self.control(ino.0).map(|control| &control.write) {
            None => self
                .bytes
                .write(offset, data, sync)
                .map(|()| data.len() as u32)
                .map_err(Errno::from),
            Some(None) => Err(Errno::EACCES),
            Some(Some(write)) => match std::str::from_utf8(data).map(|text| write(text.trim())) {
                Ok(Ok(())) => Ok(data.len() as u32),
                Ok(Err(_)) | Err(_) => Err(Errno::EINVAL),
            },
        };
        match result {
            Ok(n) => reply.written(n),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        _req: &fuser::Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Called on close: a disk does not flush then.
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &fuser::Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let result = if ino.0 == DEVICE { self.bytes.flush() } else { Ok(()) };
        answer(reply, result.map_err(Errno::from));
    }

    fn fallocate(
        &self,
        _req: &fuser::Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let result = match ino.0 {
            DEVICE => self.fallocate_device(offset, length, mode),
            _ => Err(Errno::EOPNOTSUPP),
        };
        answer(reply, result);
    }

    fn readdir(
        &self,
        _req: &fuser::Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let dots = [(ROOT, FileType::Directory, "."), (ROOT, FileType::Directory, "..")];
        let files =
            self.inodes().filter_map(|ino| Some((ino, FileType::RegularFile, self.name(ino)?)));
        for (n, (ino, kind, name)) in
            dots.into_iter().chain(files).enumerate().skip(offset as usize)
        {
            if reply.add(INodeNo(ino), n as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
