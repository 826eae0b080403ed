//! fuser's requests as calls of [`Operations`]: numbers in, numbers out, no decisions.
//!
//! This file is long because FUSE has many requests; each is a few lines of the same form.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::OFlags;
use syncline_fs::{Attr, FallocateMode, FsError, SetAttr, XattrFlags};

use crate::caller;
use crate::capture::serve_for;
use crate::convert::{self, errno};
use crate::follow::SMALL_BYTES;
use crate::gate::{self, Caller, Gate, Kind, Turn};
use crate::kernel::keeps_right_beside_direct_writes;
use crate::ops::{Context, OpenHow, Operations, Way, WriteHow};
use crate::options::FuseOptions;

/// The only writer of a volume is its mount: what the kernel knows stays true.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Largest write and read of one request, in bytes.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests that the kernel may have under way in the background (readahead, write-back).
const BACKGROUND_MAX: u16 = 64;

/// What a caller is told about the size of an attribute whose length may change until it asks.
const XATTR_SLACK_BYTES: usize = 4096;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

const O_DSYNC: i32 = 0o10_000;
const O_SYNC: i32 = 0o4_010_000;

/// Handles of open files say what was answered to their opens: the kernel keeps the rest.
const THROUGH_CACHE: FileHandle = FileHandle(0);
const READS_PAST: FileHandle = FileHandle(1);
/// Past the cache, for writing.
const WRITES_PAST: FileHandle = FileHandle(2);

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
const XATTR_CREATE_REPLACE: i32 = 3;

thread_local! {
    /// Answers of read requests, one buffer a worker.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Hands requests to `T`.
pub(crate) struct Adapter<T> {
    ops: Arc<T>,
    gate: Arc<Gate>,
    writeback_cache: bool,
    /// Every read and write of a program comes here, past the kernel's cache.
    all_reads: bool,
    /// The kernel's cache stays right beside writes that go past it.
    may_pass: bool,
    /// Nothing changes here, so the kernel may keep what it listed.
    keeps_listings: bool,
    /// The kernel needs no answer to opendir.
    opens_dirs_itself: bool,
    /// Set when the mount is there.
    notifier: Arc<OnceLock<Notifier>>,
}

impl<T: Operations> Adapter<T> {
    pub(crate) fn new(ops: Arc<T>, gate: Arc<Gate>, options: &FuseOptions) -> Adapter<T> {
        let (writeback_cache, all_reads) = (options.writeback_cache, options.trace_reads);
        let keeps_listings = options.volume.read_only;
        let (may_pass, opens_dirs_itself) = (false, false);
        Adapter {
            ops,
            gate,
            writeback_cache,
            all_reads,
            may_pass,
            keeps_listings,
            opens_dirs_itself,
            notifier: Arc::default(),
        }
    }

    /// Where the way to tell the kernel something goes.
    pub(crate) fn notifier(&self) -> Arc<OnceLock<Notifier>> {
        Arc::clone(&self.notifier)
    }

    /// Changes flags. The kernel does not know that this moves the change time, and drops what it
    /// has of the attributes, not of the contents, which waits for nobody.
    fn set_flags(&self, node: INodeNo, ino: u32, flags: u32) -> syncline_fs::Result<()> {
        self.ops.set_flags(ino, flags)?;
        if let Some(notifier) = self.notifier.get() {
            // Without it the old time is shown until the inode leaves the kernel's memory.
            let _ = notifier.inval_inode(node, -1, 0);
        }
        Ok(())
    }

    /// A worker begins a request.
    fn turn(&self, req: &Request, kind: Kind) -> Turn<'_> {
        self.turn_of(req, kind, 0)
    }

    /// As [`Adapter::turn`] for a request with so many bytes.
    fn turn_of(&self, req: &Request, kind: Kind, bytes: usize) -> Turn<'_> {
        serve_for(req.pid());
        caller::serve(req.pid(), req.uid(), req.gid());
        self.gate.begin(kind, Caller { thread: req.pid(), small: bytes <= SMALL_BYTES })
    }

    /// What an open with these flags wants.
    fn how(&self, flags: i32) -> OpenHow {
        let flags = oflags(flags);
        OpenHow {
            read: !flags.contains(OFlags::WRONLY),
            write: flags.intersects(OFlags::WRONLY | OFlags::RDWR),
            append: flags.contains(OFlags::APPEND),
            may_pass: self.may_pass,
        }
    }

    /// What the kernel's cache does with an open file.
    fn opened(&self, way: Way) -> FopenFlags {
        if self.all_reads || way == Way::Past {
            return FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
        }
        FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH
    }
}

fn context(req: &Request) -> Context {
    Context { uid: req.uid(), gid: req.gid() }
}

fn generation(attr: &Attr) -> Generation {
    Generation(u64::from(attr.generation))
}

/// What the kernel sends is below u32 in its own encoding, which is Linux's of 64 bits.
fn device(rdev: u32) -> u64 {
    u64::from(rdev)
}

/// The result of a call, which is answered next.
fn served<R>(result: R) -> R {
    gate::ready();
    result
}

/// Sends the answer of a call: `Ok` through the given method, an error as its number.
macro_rules! answer {
    ($reply:ident, $result:expr, |$value:pat_param| $ok:expr) => {
        match served($result) {
            Ok($value) => $ok,
            Err(err) => $reply.error(errno(&err)),
        }
    };
}

/// The inode behind a node, or an answer that says that there is none.
macro_rules! ino {
    ($reply:ident, $node:expr) => {
        match convert::ino($node) {
            Ok(ino) => ino,
            Err(err) => return $reply.error(err),
        }
    };
}

impl<T: Operations> Filesystem for Adapter<T> {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Not FUSE_ATOMIC_O_TRUNC: an open with O_TRUNC would cut the file before the kernel finds
        // that it is a running program (ETXTBSY). Without it the kernel sends a SETATTR afterwards.
        // Not FUSE_ASYNC_DIO: with it an O_DIRECT write by io_submit or io_uring ends after the
        // kernel has dropped the pages of its range for the second time (`fuse_direct_io`,
        // `generic_file_direct_write`), and `fuse_aio_complete` drops none. A reader beside it can
        // have brought an old page back by then, which stays for good. Without it the call that
        // submits a write waits for it, and drops the pages afterwards. To tell the kernel to drop
        // them would be late, or wait for a page that waits for us.
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_EXPORT_SUPPORT;
        self.opens_dirs_itself = self.keeps_listings
            && config.capabilities().contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        if self.writeback_cache {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        // Shared mappings go through the kernel's cache all the same (Linux 6.6).
        let with_maps = InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        let uname = rustix::system::uname();
        self.may_pass = !self.writeback_cache
            && config.capabilities().contains(with_maps)
            && uname.release().to_str().is_ok_and(keeps_right_beside_direct_writes);
        if self.all_reads || self.may_pass {
            wanted |= with_maps;
        }
        // What the kernel does not have it does itself, or without.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        if let Err(most) = config.set_max_readahead(REQUEST_BYTES_MAX) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turn(req, Kind::Names);
        let dir = ino!(reply, parent);
        match served(self.ops.lookup(dir, name.as_bytes())) {
            Ok(attr) => reply.entry(&TTL, &convert::entry(&attr), generation(&attr)),
            // Node 0: the kernel remembers that there is no such name.
            Err(FsError::NotFound) => {
                let none = fuser::FileAttr { ino: INodeNo(0), ..convert::attr(&convert::NOTHING) };
                reply.entry(&TTL, &none, Generation(0));
            }
            Err(err) => reply.error(errno(&err)),
        }
    }

    fn forget(&self, _req: &Request, node: INodeNo, lookups: u64) {
        // Also called for each part of a batch.
        let _turn = self.gate.begin_part(Kind::Names);
        if let Ok(ino) = convert::ino(node) {
            self.ops.forget(ino, lookups);
        }
    }

    fn getattr(&self, req: &Request, node: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.turn(req, Kind::Attributes);
        let ino = ino!(reply, node);
        answer!(reply, self.ops.getattr(ino), |attr| reply.attr(&TTL, &convert::attr(&attr)));
    }

    fn setattr(
        &self,
        req: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let kind = if size.is_some() { Kind::Write } else { Kind::Attributes };
        let _turn = self.turn(req, kind);
        let ino = ino!(reply, node);
        let set = SetAttr {
            mode: mode.map(|mode| (mode & 0o7777) as u16),
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
            ctime: ctime.map(|at| convert::set_time(TimeOrNow::SpecificTime(at))),
            flags: None,
        };
        answer!(reply, self.ops.setattr(ino, set), |attr| {
            reply.attr(&TTL, &convert::attr(&attr))
        });
    }

    fn readlink(&self, req: &Request, node: INodeNo, reply: ReplyData) {
        let _turn = self.turn(req, Kind::Attributes);
        let ino = ino!(reply, node);
        answer!(reply, self.ops.readlink(ino), |target| reply.data(&target));
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn(req, Kind::Names);
        let dir = ino!(reply, parent);
        let made = self.ops.mknod(context(req), dir, name.as_bytes(), mode, umask, device(rdev));
        answer!(reply, made, |attr| {
            reply.entry(&TTL, &convert::entry(&attr), generation(&attr))
        });
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn(req, Kind::Names);
        let dir = ino!(reply, parent);
        let made = self.ops.mkdir(context(req), dir, name.as_bytes(), mode, umask);
        answer!(reply, made, |attr| {
            reply.entry(&TTL, &convert::entry(&attr), generation(&attr))
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn(req, Kind::Names);
        let dir = ino!(reply, parent);
        answer!(reply, self.ops.unlink(dir, name.as_bytes()), |()| reply.ok());
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn(req, Kind::Names);
        let dir = ino!(reply, parent);
        answer!(reply, self.ops.rmdir(dir, name.as_bytes()), |()| reply.ok());
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn(req, Kind::Names);
        let dir = ino!(reply, parent);
        let target = target.as_os_str().as_bytes();
        let made = self.ops.symlink(context(req), dir, name.as_bytes(), target);
        answer!(reply, made, |attr| {
            reply.entry(&TTL, &convert::entry(&attr), generation(&attr))
        });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(req, Kind::Names);
        let from = (ino!(reply, parent), name.as_bytes());
        let to = (ino!(reply, newparent), newname.as_bytes());
        answer!(reply, self.ops.rename(from, to, flags.bits()), |()| reply.ok());
    }

    fn link(
        &self,
        req: &Request,
        node: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn(req, Kind::Names);
        let (ino, dir) = (ino!(reply, node), ino!(reply, newparent));
        answer!(reply, self.ops.link(ino, dir, newname.as_bytes()), |attr| {
            reply.entry(&TTL, &convert::entry(&attr), generation(&attr))
        });
    }

    fn open(&self, req: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turn(req, Kind::Attributes);
        let ino = ino!(reply, node);
        let how = self.how(flags.0);
        answer!(reply, self.ops.open(ino, how), |way| {
            reply.opened(handle(way, how), self.opened(way))
        });
    }

    fn read(
        &self,
        req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _turn = self.turn_of(req, Kind::Read, size as usize);
        let ino = ino!(reply, node);
        READ_BUFFER.with_borrow_mut(|buffer| {
            let len = size.min(REQUEST_BYTES_MAX) as usize;
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            answer!(reply, self.ops.read(ino, offset, &mut buffer[..len]), |n| {
                reply.data(&buffer[..n])
            });
        });
    }

    fn write(
        &self,
        req: &Request,
        node: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let direct = oflags(flags.0).contains(OFlags::DIRECT);
        let kind = if direct { Kind::Sync } else { Kind::Write };
        let _turn = self.turn_of(req, kind, data.len());
        let ino = ino!(reply, node);
        // After a synchronous write through its cache the kernel sends an fsync by itself; after a
        // direct one it may not, if nobody waits for the write (io_uring).
        let uncached = direct || self.all_reads || fh != THROUGH_CACHE;
        let how = WriteHow {
            dsync: uncached && flags.0 & O_DSYNC == O_DSYNC,
            sync: uncached && flags.0 & O_SYNC == O_SYNC,
            direct,
            uncached,
            append: oflags(flags.0).contains(OFlags::APPEND),
            drop_set_id: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        answer!(reply, self.ops.write(ino, offset, data, how), |n| reply.written(n as u32));
    }

    fn flush(
        &self,
        _req: &Request,
        _node: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // A close writes nothing. The kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        req: &Request,
        node: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(req, Kind::Write);
        let ino = ino!(reply, node);
        self.ops.release(ino, fh == WRITES_PAST);
        reply.ok();
    }

    fn fsync(
        &self,
        req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(req, Kind::Sync);
        let ino = ino!(reply, node);
        answer!(reply, self.ops.fsync(ino, datasync), |()| reply.ok());
    }

    fn opendir(&self, _req: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.opens_dirs_itself {
            // The kernel asks no more, neither for this nor for the release, and caches what it
            // reads as if this had said so.
            return reply.error(Errno::ENOSYS);
        }
        // Where 32 threads change directories that they list, some of 10,000 listings that Linux
        // 6.18 kept were a name behind; none that were asked for anew.
        let keep = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        let flags = if self.keeps_listings { keep } else { FopenFlags::empty() };
        reply.opened(FileHandle(0), flags);
    }

    fn readdir(
        &self,
        req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let _turn = self.turn(req, Kind::Names);
        let ino = ino!(reply, node);
        let done = self.ops.readdir(ino, offset, false, &mut |entry| {
            let (ino, kind) = (INodeNo(u64::from(entry.ino)), convert::file_type(entry.kind));
            !reply.add(ino, entry.next, kind, OsStr::from_bytes(entry.name))
        });
        answer!(reply, done, |()| reply.ok());
    }

    fn readdirplus(
        &self,
        req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.turn(req, Kind::Names);
        let ino = ino!(reply, node);
        let done = self.ops.readdir(ino, offset, true, &mut |entry| {
            // `.` and `..` only need a number and a type: the kernel links neither.
            let attr = match &entry.attr {
                Some(attr) => convert::entry(attr),
                None => fuser::FileAttr {
                    ino: INodeNo(u64::from(entry.ino)),
                    kind: convert::file_type(entry.kind),
                    ..convert::attr(&convert::NOTHING)
                },
            };
            let generation = entry.attr.as_ref().map_or(Generation(0), generation);
            let name = OsStr::from_bytes(entry.name);
            !reply.add(attr.ino, entry.next, name, &TTL, &attr, generation)
        });
        answer!(reply, done, |()| reply.ok());
    }

    fn fsyncdir(
        &self,
        req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(req, Kind::Sync);
        let ino = ino!(reply, node);
        answer!(reply, self.ops.fsync(ino, datasync), |()| reply.ok());
    }

    fn statfs(&self, req: &Request, _node: INodeNo, reply: ReplyStatfs) {
        let _turn = self.turn(req, Kind::Attributes);
        let s = self.ops.statfs();
        let size = s.block_size;
        reply.statfs(
            s.blocks,
            s.blocks_free,
            s.blocks_available,
            s.files,
            s.files_free,
            size,
            s.name_len,
            size,
        );
    }

    fn setxattr(
        &self,
        req: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(req, Kind::Attributes);
        let ino = ino!(reply, node);
        let flags = match flags {
            0 => XattrFlags::Any,
            XATTR_CREATE => XattrFlags::Create,
            XATTR_REPLACE => XattrFlags::Replace,
            XATTR_CREATE_REPLACE => XattrFlags::CreateReplace,
            _ => return reply.error(Errno::EINVAL),
        };
        answer!(reply, self.ops.setxattr(ino, name.as_bytes(), value, flags), |()| reply.ok());
    }

    fn getxattr(&self, req: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _turn = self.turn(req, Kind::Attributes);
        let ino = ino!(reply, node);
        let changes = name.as_bytes() == crate::STATUS_XATTR.as_bytes();
        let slack = if changes { XATTR_SLACK_BYTES } else { 0 };
        answer!(reply, self.ops.getxattr(ino, name.as_bytes()), |value| {
            send_sized(reply, size, &value, slack)
        });
    }

    fn listxattr(&self, req: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.turn(req, Kind::Attributes);
        let ino = ino!(reply, node);
        let names = self.ops.listxattr(ino);
        answer!(reply, names, |names| send_sized(reply, size, &names, 0));
    }

    fn removexattr(&self, req: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn(req, Kind::Attributes);
        let ino = ino!(reply, node);
        answer!(reply, self.ops.removexattr(ino, name.as_bytes()), |()| reply.ok());
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _turn = self.turn(req, Kind::Names);
        let dir = ino!(reply, parent);
        let how = self.how(flags);
        let made = self.ops.create(context(req), dir, name.as_bytes(), (mode, umask), how);
        answer!(reply, made, |(attr, way)| {
            let (entry, fh) = (convert::entry(&attr), handle(way, how));
            reply.created(&TTL, &entry, generation(&attr), fh, self.opened(way))
        });
    }

    fn ioctl(
        &self,
        req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let _turn = self.turn(req, Kind::Attributes);
        let ino = ino!(reply, node);
        match cmd {
            FS_IOC_GETFLAGS => answer!(reply, self.ops.getattr(ino), |attr| {
                reply.ioctl(0, &attr.flags.to_ne_bytes())
            }),
            FS_IOC_GETVERSION => answer!(reply, self.ops.getattr(ino), |attr| {
                reply.ioctl(0, &attr.generation.to_ne_bytes())
            }),
            // The kernel asks for it before it changes flags.
            FS_IOC_FSGETXATTR => answer!(reply, self.ops.getattr(ino), |attr| {
                reply.ioctl(0, &convert::fsxattr(attr.flags))
            }),
            FS_IOC_SETFLAGS => {
                let Some(flags) = in_data.first_chunk() else {
                    return reply.error(Errno::EINVAL);
                };
                let set = self.set_flags(node, ino, u32::from_ne_bytes(*flags));
                answer!(reply, set, |()| reply.ioctl(0, &[]));
            }
            FS_IOC_FSSETXATTR => {
                let flags = self.ops.getattr(ino).map(|attr| convert::flags(attr.flags, in_data));
                answer!(reply, flags, |flags| {
                    let Some(flags) = flags else { return reply.error(Errno::EOPNOTSUPP) };
                    answer!(reply, self.set_flags(node, ino, flags), |()| reply.ioctl(0, &[]));
                });
            }
            _ => reply.error(Errno::ENOTTY),
        }
    }

    fn fallocate(
        &self,
        req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(req, Kind::Write);
        let ino = ino!(reply, node);
        let mode = match mode {
            0x00 => FallocateMode::Allocate,
            0x01 => FallocateMode::KeepSize,
            0x03 => FallocateMode::PunchHole,
            0x10 => FallocateMode::ZeroRange,
            0x11 => FallocateMode::ZeroRangeKeepSize,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        answer!(reply, self.ops.fallocate(ino, mode, offset, length), |()| reply.ok());
    }

    fn lseek(
        &self,
        req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.turn(req, Kind::Attributes);
        if self.writeback_cache {
            // What the kernel has not sent yet lies in holes as far as we know. It asks no more,
            // and calls everything data.
            return reply.error(Errno::ENOSYS);
        }
        let ino = ino!(reply, node);
        let (Ok(offset), SEEK_DATA | SEEK_HOLE) = (u64::try_from(offset), whence) else {
            let err = if offset < 0 { Errno::ENXIO } else { Errno::EINVAL };
            return reply.error(err);
        };
        answer!(reply, self.ops.seek(ino, offset, whence == SEEK_DATA), |at| {
            reply.offset(at as i64)
        });
    }

    fn copy_file_range(
        &self,
        req: &Request,
        node_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        node_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _turn = self.turn(req, Kind::Write);
        let from = (ino!(reply, node_in), offset_in);
        let to = (ino!(reply, node_out), offset_out);
        answer!(reply, self.ops.copy(from, to, len), |n| reply.written(n as u32));
    }
}

fn handle(way: Way, how: OpenHow) -> FileHandle {
    match (way, how.write) {
        (Way::Cached, _) => THROUGH_CACHE,
        (Way::Past, false) => READS_PAST,
        (Way::Past, true) => WRITES_PAST,
    }
}

fn oflags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32)
}

/// The length if `size` is 0, the bytes if they fit, else ERANGE.
fn send_sized(reply: ReplyXattr, size: u32, bytes: &[u8], slack: usize) {
    if size == 0 {
        reply.size((bytes.len() + slack) as u32);
    } else if bytes.len() <= size as usize {
        reply.data(bytes);
    } else {
        reply.error(Errno::ERANGE);
    }
}
