//! Table of FUSE requests: one row each, from the kernel's arguments to the answer.
//!
//! ```text
//!   request(arguments of fuser's trait) -> reply {
//!       let name = value                values that several of the columns below use
//!       refuse: condition => errno      answered so at once; the kernel asks no more
//!       class:  class of the request, for the parking of workers
//!       bytes:  bytes copied, if any; a call that copies much is no small one
//!       trace:  its record in a capture, or None; evaluated before the request is served
//!       serve:  function of `serve/` that does it
//!       answer: function of `answer.rs` that sends the result; an error is sent by its number
//!   }
//! ```
//!
//! Arguments arrive in our types, see [`Argument`](crate::convert::Argument): inode numbers, bytes
//! of names, flags. A row with `at_once` alone is answered without the volume. `fuse` is the
//! [`Adapter`], `serve` the mounted volume, `caller` the thread that asks. The macro `operations`
//! in `adapter.rs` makes fuser's `Filesystem` from the rows.
//!
//! So a new request is a row here and a function in `serve/`.

use std::ffi::OsStr;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use syncline_fs::SetAttr;

use crate::adapter::{Adapter, operations};
use crate::answer;
use crate::capture::{CallOp, Detail};
use crate::convert::open_flags;
use crate::handle::Handle;
use crate::ioctl;
use crate::parking::Class;
use crate::serve::{OpenHow, WriteHow, attributes, data, names};

operations! {
    |fuse, serve, caller, reply|

    // Names.

    lookup(parent: INodeNo, name: &OsStr) -> ReplyEntry {
        class: Class::Names,
        trace: Detail::name(CallOp::Stat, (parent, name)),
        serve: names::lookup(serve, parent, name),
        answer: found,
    }

    mknod(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32) -> ReplyEntry {
        class: Class::Names,
        trace: Detail::mknod((parent, name), mode),
        serve: names::mknod(serve, caller, (parent, name), (mode, umask), rdev),
        answer: entry,
    }

    mkdir(parent: INodeNo, name: &OsStr, mode: u32, umask: u32) -> ReplyEntry {
        class: Class::Names,
        trace: Detail::name(CallOp::Mkdir, (parent, name)),
        serve: names::mkdir(serve, caller, (parent, name), (mode, umask)),
        answer: entry,
    }

    symlink(parent: INodeNo, name: &OsStr, target: &Path) -> ReplyEntry {
        class: Class::Names,
        trace: Detail::names(CallOp::Symlink, (parent, name), (0, target)),
        serve: names::symlink(serve, caller, (parent, name), target),
        answer: entry,
    }

    link(node: INodeNo, newparent: INodeNo, newname: &OsStr) -> ReplyEntry {
        class: Class::Names,
        // The other way round than a rename: the inode is known, the name is new.
        trace: Detail::names(CallOp::Link, (node, b""), (newparent, newname)),
        serve: names::link(serve, node, (newparent, newname)),
        answer: entry,
    }

    unlink(parent: INodeNo, name: &OsStr) -> ReplyEmpty {
        class: Class::Names,
        trace: Detail::name(CallOp::Unlink, (parent, name)),
        serve: names::unlink(serve, parent, name),
        answer: empty,
    }

    rmdir(parent: INodeNo, name: &OsStr) -> ReplyEmpty {
        class: Class::Names,
        trace: Detail::name(CallOp::Rmdir, (parent, name)),
        serve: names::rmdir(serve, parent, name),
        answer: empty,
    }

    rename(
        parent: INodeNo, name: &OsStr, newparent: INodeNo, newname: &OsStr, flags: RenameFlags
    ) -> ReplyEmpty {
        let from = (parent, name),
        let to = (newparent, newname),
        class: Class::Names,
        trace: Detail::rename(from, to, flags, |name| names::peek(serve, name)),
        serve: names::rename(serve, caller, from, to, flags),
        answer: empty,
    }

    create(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32) -> ReplyCreate {
        let how = OpenHow::new(open_flags(flags), fuse.may_bypass),
        class: Class::Names,
        trace: Detail::name(CallOp::Create, (parent, name)),
        serve: names::create(serve, caller, (parent, name), (mode, umask), how),
        answer: created(fuse.all_reads),
    }

    readlink(node: INodeNo) -> ReplyData {
        class: Class::Attributes,
        trace: None,
        serve: names::readlink(serve, node),
        answer: text,
    }

    // Directories.

    opendir(_node: INodeNo, flags: OpenFlags) -> ReplyOpen {
        // Nothing changes in a volume that is read-only. Not ENOSYS, after which the kernel would
        // keep what it lists of one that was made writable, too.
        at_once: {
            let unseen = flags.contains(OFlags::NOATIME);
            answer::opened_dir(reply, fuse.serve.is_read_only(), Handle::of_directory(unseen));
        },
    }

    readdir(node: INodeNo, fh: FileHandle, offset: u64) -> ReplyDirectory {
        class: Class::Names,
        trace: None,
        serve: names::readdir(serve, (node, offset), fh, false, &mut |entry| {
            answer::add(&mut reply, entry)
        }),
        answer: listed,
    }

    readdirplus(node: INodeNo, fh: FileHandle, offset: u64) -> ReplyDirectoryPlus {
        class: Class::Names,
        trace: None,
        serve: names::readdir(serve, (node, offset), fh, true, &mut |entry| {
            let taken = answer::add_plus(&mut reply, entry);
            fuse.listed(node, entry, taken);
            taken
        }),
        answer: listed_plus,
    }

    fsyncdir(node: INodeNo, _fh: FileHandle, datasync: bool) -> ReplyEmpty {
        class: Class::Sync,
        trace: Detail::sync(node, datasync),
        serve: data::fsync(serve, node, datasync),
        answer: empty,
    }

    // Attributes.

    getattr(node: INodeNo, _fh: Option<FileHandle>) -> ReplyAttr {
        class: Class::Attributes,
        trace: Detail::inode(CallOp::Stat, node),
        serve: attributes::getattr(serve, node),
        answer: attributes,
    }

    setattr(
        node: INodeNo, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>,
        atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>, ctime: Option<SystemTime>,
        _fh: Option<FileHandle>, _crtime: Option<SystemTime>, _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>, _flags: Option<BsdFileFlags>
    ) -> ReplyAttr {
        let mode = mode.map(|mode| (mode & 0o7777) as u16),
        class: if size.is_some() { Class::Write } else { Class::Attributes },
        trace: size.map(|size_bytes| Detail::Truncate { ino: node, size_bytes }),
        serve: attributes::setattr(
            serve, caller, node, SetAttr { mode, uid, gid, size, atime, mtime, ctime, flags: None }
        ),
        answer: attributes,
    }

    statfs(_node: INodeNo) -> ReplyStatfs {
        class: Class::Attributes,
        trace: None,
        serve: Ok(attributes::statfs(serve)),
        answer: statfs,
    }

    setxattr(
        node: INodeNo, name: &OsStr, value: &[u8], flags: i32, _position: u32
    ) -> ReplyEmpty {
        class: Class::Attributes,
        trace: None,
        serve: attributes::setxattr(serve, caller, node, (name, value), flags),
        answer: empty,
    }

    getxattr(node: INodeNo, name: &OsStr, size: u32) -> ReplyXattr {
        class: Class::Attributes,
        trace: None,
        serve: attributes::getxattr(serve, caller, node, name),
        answer: sized(size, attributes::xattr_slack_bytes(name)),
    }

    listxattr(node: INodeNo, size: u32) -> ReplyXattr {
        class: Class::Attributes,
        trace: None,
        serve: attributes::listxattr(serve, caller, node),
        answer: sized(size, 0),
    }

    removexattr(node: INodeNo, name: &OsStr) -> ReplyEmpty {
        class: Class::Attributes,
        trace: None,
        serve: attributes::removexattr(serve, node, name),
        answer: empty,
    }

    ioctl(
        node: INodeNo, fh: FileHandle, _flags: IoctlFlags, cmd: u32, input: &[u8], _out_size: u32
    ) -> ReplyIoctl {
        let row = ioctl::row(cmd),
        refuse: row.is_none() => Errno::ENOTTY,
        class: row.map_or(Class::Attributes, |row| row.class),
        trace: row.and_then(|row| (row.trace)(node, input)),
        serve: ioctl::serve(row, serve, (caller, node, fh), input, |what| fuse.changed(node, what)),
        answer: output,
    }

    // Data.

    open(node: INodeNo, flags: OpenFlags) -> ReplyOpen {
        class: Class::Attributes,
        trace: Detail::inode(CallOp::Open, node),
        serve: data::open(serve, node, OpenHow::new(flags, fuse.may_bypass)),
        answer: opened(fuse.all_reads),
    }

    read(
        node: INodeNo, fh: FileHandle, offset: u64, size: u32, flags: OpenFlags,
        _lock_owner: Option<LockOwner>
    ) -> ReplyData {
        class: Class::Read,
        bytes: size as usize,
        trace: Detail::read(node, offset, size),
        serve: data::read(serve, (node, offset), (fh, flags), size),
        answer: data,
    }

    write(
        node: INodeNo, fh: FileHandle, offset: u64, data: &[u8], write_flags: WriteFlags,
        flags: OpenFlags, _lock_owner: Option<LockOwner>
    ) -> ReplyWrite {
        let how = WriteHow::new(flags, write_flags, fuse.all_reads || fh.bypasses()),
        class: if how.direct { Class::Sync } else { Class::Write },
        bytes: data.len(),
        trace: Detail::write(node, offset, data.len(), how),
        serve: data::write(serve, caller, (node, offset), (fh, data), how),
        answer: written,
    }

    flush(_node: INodeNo, _fh: FileHandle, _lock_owner: LockOwner) -> ReplyEmpty {
        // A close writes nothing. The kernel does not ask again.
        at_once: reply.error(Errno::ENOSYS),
    }

    release(
        node: INodeNo, fh: FileHandle, _flags: OpenFlags, _lock_owner: Option<LockOwner>,
        _flush: bool
    ) -> ReplyEmpty {
        class: Class::Write,
        trace: Detail::inode(CallOp::Close, node),
        serve: data::release(serve, node, fh, || fuse.contents_changed(node)),
        answer: empty,
    }

    fsync(node: INodeNo, _fh: FileHandle, datasync: bool) -> ReplyEmpty {
        class: Class::Sync,
        trace: Detail::sync(node, datasync),
        serve: data::fsync(serve, node, datasync),
        answer: empty,
    }

    fallocate(
        node: INodeNo, _fh: FileHandle, offset: u64, length: u64, mode: i32
    ) -> ReplyEmpty {
        class: Class::Write,
        trace: Detail::fallocate(node, mode, offset, length),
        serve: data::fallocate(serve, node, mode, offset, length),
        answer: empty,
    }

    lseek(node: INodeNo, _fh: FileHandle, offset: i64, whence: i32) -> ReplyLseek {
        // What the kernel has not sent yet lies in holes here. It then calls everything data.
        refuse: fuse.writeback_cache => Errno::ENOSYS,
        class: Class::Attributes,
        trace: None,
        serve: data::seek(serve, node, offset, whence),
        answer: offset,
    }

    copy_file_range(
        node_in: INodeNo, _fh_in: FileHandle, offset_in: u64, node_out: INodeNo,
        _fh_out: FileHandle, offset_out: u64, len: u64, _flags: CopyFileRangeFlags
    ) -> ReplyWrite {
        let from = (node_in, offset_in),
        let to = (node_out, offset_out),
        class: Class::Write,
        trace: Detail::copy(from, to, len),
        serve: data::copy(serve, from, to, len),
        answer: written,
    }
}
