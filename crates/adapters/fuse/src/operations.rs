//! Table of FUSE requests: one row each, from the kernel's structure to the answer.
//!
//! ```text
//!   request NUMBER (fields of its structure in linux/fuse.h, names, data) {
//!       let name = value                values that several of the columns below use
//!       refuse: condition => errno      answered so at once; the kernel asks no more
//!       class:  class of the request, for the parking of workers
//!       bytes:  bytes copied, if any; a call that copies much is no small one
//!       trace:  its record in a capture, or None; evaluated before the request is served
//!       serve:  function of `serve/` that does it
//!       answer: function of `answer.rs` that puts the result into the answer
//!   }
//! ```
//!
//! Fields are taken in our types, see [`Field`](crate::wire::Field): inode numbers, bytes of names,
//! flags. A row with `at_once` alone is answered without the volume. `fuse` is the [`Adapter`],
//! `serve` the mounted volume, `caller` the thread that asks, `node` the inode that the header
//! names, `out` the answer. The macro `operations` in `adapter.rs` makes a function of each row.
//!
//! So a new request is a row here and a function in `serve/`.

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::adapter::{Adapter, operations};
use crate::answer;
use crate::capture::{CallOp, Detail};
use crate::convert;
use crate::handle::Handle;
use crate::ioctl;
use crate::parking::Class;
use crate::serve::{OpenHow, WriteHow, attributes, data, names};
use crate::wire::{Data, Name, Node, Offset, Zero};

/// Flags of FSYNC and FSYNCDIR, and of an IOCTL whose argument this side would have to read.
const FSYNC_FDATASYNC: u32 = 1;
const IOCTL_UNRESTRICTED: u32 = 2;

operations! {
    |fuse, serve, caller, node, out|

    // Names.

    lookup 1 (name: Name) {
        class: Class::Names,
        trace: Detail::name(CallOp::Stat, (node, name)),
        serve: names::lookup(serve, node, name),
        answer: found(serve.names_stay(node), serve.absence_stays()),
    }

    mknod 8 (mode: u32, rdev: u32, umask: u32, _pad: Zero, name: Name) {
        class: Class::Names,
        trace: Detail::mknod((node, name), mode),
        serve: names::mknod(serve, caller, (node, name), (mode, umask), rdev),
        answer: entry(serve.names_stay(node)),
    }

    mkdir 9 (mode: u32, umask: u32, name: Name) {
        class: Class::Names,
        trace: Detail::name(CallOp::Mkdir, (node, name)),
        serve: names::mkdir(serve, caller, (node, name), (mode, umask)),
        answer: entry(serve.names_stay(node)),
    }

    symlink 6 (name: Name, target: Name) {
        class: Class::Names,
        trace: Detail::names(CallOp::Symlink, (node, name), (0, target)),
        serve: names::symlink(serve, caller, (node, name), target),
        answer: entry(serve.names_stay(node)),
    }

    link 13 (old: Node, name: Name) {
        class: Class::Names,
        // The other way round than a rename: the inode is known, the name is new.
        trace: Detail::names(CallOp::Link, (old, b""), (node, name)),
        serve: names::link(serve, old, (node, name)),
        answer: entry(serve.names_stay(node)),
    }

    unlink 10 (name: Name) {
        class: Class::Names,
        trace: Detail::name(CallOp::Unlink, (node, name)),
        serve: names::unlink(serve, node, name),
        answer: empty,
    }

    rmdir 11 (name: Name) {
        class: Class::Names,
        trace: Detail::name(CallOp::Rmdir, (node, name)),
        serve: names::rmdir(serve, node, name),
        answer: empty,
    }

    rename 12 (to_dir: Node, name: Name, to_name: Name) {
        let from = (node, name),
        let to = (to_dir, to_name),
        class: Class::Names,
        trace: Detail::rename(from, to, 0, |name| names::peek(serve, name)),
        serve: names::rename(serve, caller, from, to, 0),
        answer: empty,
    }

    rename2 45 (to_dir: Node, flags: u32, _pad: Zero, name: Name, to_name: Name) {
        let from = (node, name),
        let to = (to_dir, to_name),
        class: Class::Names,
        trace: Detail::rename(from, to, flags, |name| names::peek(serve, name)),
        serve: names::rename(serve, caller, from, to, flags),
        answer: empty,
    }

    create 35 (flags: OFlags, mode: u32, umask: u32, _open_flags: u32, name: Name) {
        let how = OpenHow::new(flags, fuse.may_bypass),
        class: Class::Names,
        trace: Detail::name(CallOp::Create, (node, name)),
        serve: names::create(serve, caller, (node, name), (mode, umask), how),
        answer: created(fuse.all_reads, serve.names_stay(node)),
    }

    tmpfile 51 (flags: OFlags, mode: u32, umask: u32, _open_flags: u32, _name: Name) {
        let how = OpenHow::new(flags, fuse.may_bypass),
        class: Class::Names,
        trace: None,
        serve: names::tmpfile(serve, caller, node, (mode, umask), how),
        answer: created(fuse.all_reads, serve.names_stay(node)),
    }

    readlink 5 () {
        class: Class::Attributes,
        trace: None,
        serve: names::readlink(serve, node),
        answer: text,
    }

    // Directories.

    opendir 27 (flags: OFlags) {
        // Nothing changes in a volume that is read-only. Not ENOSYS, after which the kernel would
        // keep what it lists of one that was made writable, too.
        at_once: {
            let unseen = flags.contains(OFlags::NOATIME);
            answer::opened_dir(out, fuse.serve.is_read_only(), Handle::of_directory(unseen))
        },
    }

    readdir 28 (fh: Handle, offset: u64, size: u32) {
        class: Class::Names,
        trace: None,
        serve: {
            out.limit(size);
            names::readdir(serve, (node, offset), fh, false, &mut |entry| answer::add(out, entry))
        },
        answer: empty,
    }

    readdirplus 44 (fh: Handle, offset: u64, size: u32) {
        class: Class::Names,
        trace: None,
        serve: {
            out.limit(size);
            let stay = serve.names_stay(node);
            names::readdir(serve, (node, offset), fh, true, &mut |entry| {
                let taken = answer::add_plus(out, entry, stay);
                fuse.listed(node, entry, taken);
                taken
            })
        },
        answer: empty,
    }

    releasedir 29 () {
        at_once: Ok(()),
    }

    fsyncdir 30 (_fh: Handle, flags: u32) {
        let datasync = flags & FSYNC_FDATASYNC != 0,
        class: Class::Sync,
        trace: Detail::sync(node, datasync),
        serve: data::fsync(serve, node, datasync),
        answer: empty,
    }

    // Attributes.

    getattr 3 () {
        class: Class::Attributes,
        trace: Detail::inode(CallOp::Stat, node),
        serve: attributes::getattr(serve, node),
        answer: attributes,
    }

    statx 52 () {
        class: Class::Attributes,
        trace: Detail::inode(CallOp::Stat, node),
        serve: attributes::getattr(serve, node),
        answer: statx,
    }

    setattr 4 (
        valid: u32, _pad: Zero, _fh: u64, size: u64, _lock_owner: u64, atime: i64, mtime: i64,
        ctime: i64, atime_ns: u32, mtime_ns: u32, ctime_ns: u32, mode: u32, _unused: Zero,
        uid: u32, gid: u32
    ) {
        let times = [(atime, atime_ns), (mtime, mtime_ns), (ctime, ctime_ns)],
        let set = convert::set_attr(valid, size, (mode, uid, gid), times),
        class: if set.size.is_some() { Class::Write } else { Class::Attributes },
        trace: set.size.map(|size_bytes| Detail::Truncate { ino: node, size_bytes }),
        serve: attributes::setattr(serve, caller, node, set),
        answer: attributes,
    }

    statfs 17 () {
        class: Class::Attributes,
        trace: None,
        serve: Ok(attributes::statfs(serve)),
        answer: statfs,
    }

    setxattr 21 (size: u32, flags: i32, name: Name, value: Data) {
        refuse: value.len() != size as usize => Errno::INVAL,
        class: Class::Attributes,
        trace: None,
        serve: attributes::setxattr(serve, caller, node, (name, value), flags),
        answer: empty,
    }

    getxattr 22 (size: u32, _pad: Zero, name: Name) {
        class: Class::Attributes,
        trace: None,
        serve: attributes::getxattr(serve, caller, node, name),
        answer: sized(size, attributes::xattr_slack_bytes(name)),
    }

    listxattr 23 (size: u32) {
        class: Class::Attributes,
        trace: None,
        serve: attributes::listxattr(serve, caller, node),
        answer: sized(size, 0),
    }

    removexattr 24 (name: Name) {
        class: Class::Attributes,
        trace: None,
        serve: attributes::removexattr(serve, node, name),
        answer: empty,
    }

    ioctl 39 (
        fh: Handle, flags: u32, cmd: u32, _arg: u64, _in_size: u32, _out_size: u32, input: Data
    ) {
        let row = ioctl::row(cmd),
        refuse: row.is_none() || flags & IOCTL_UNRESTRICTED != 0 => Errno::NOTTY,
        class: row.map_or(Class::Attributes, |row| row.class),
        trace: row.and_then(|row| (row.trace)(node, input)),
        serve: ioctl::serve(row, serve, (caller, node, fh), input, |what| fuse.changed(node, what)),
        answer: output,
    }

    // Data.

    open 14 (flags: OFlags) {
        class: Class::Attributes,
        trace: Detail::inode(CallOp::Open, node),
        serve: data::open(serve, node, OpenHow::new(flags, fuse.may_bypass)),
        answer: opened(fuse.all_reads),
    }

    read 15 (
        fh: Handle, offset: Offset, size: u32, _read_flags: u32, _lock_owner: u64, flags: OFlags
    ) {
        class: Class::Read,
        bytes: size as usize,
        trace: Detail::read(node, offset, size),
        serve: data::read(serve, (node, offset), (fh, flags), out.room(size)),
        answer: filled,
    }

    write 16 (
        fh: Handle, offset: Offset, size: u32, write_flags: u32, _lock_owner: u64, flags: OFlags,
        _pad: Zero, data: Data
    ) {
        let how = WriteHow::new(flags, write_flags, fuse.all_reads || fh.bypasses()),
        refuse: data.len() != size as usize => Errno::INVAL,
        class: if how.direct { Class::Sync } else { Class::Write },
        bytes: data.len(),
        trace: Detail::write(node, offset, data.len(), how),
        serve: data::write(serve, caller, (node, offset), (fh, data), how),
        answer: written,
    }

    flush 25 () {
        // A close writes nothing. The kernel does not ask again.
        at_once: Err(Errno::NOSYS),
    }

    release 18 (fh: Handle) {
        class: Class::Write,
        trace: Detail::inode(CallOp::Close, node),
        serve: data::release(serve, node, fh, || fuse.contents_changed(node)),
        answer: empty,
    }

    fsync 20 (_fh: Handle, flags: u32) {
        let datasync = flags & FSYNC_FDATASYNC != 0,
        class: Class::Sync,
        trace: Detail::sync(node, datasync),
        serve: data::fsync(serve, node, datasync),
        answer: empty,
    }

    fallocate 43 (_fh: Handle, offset: Offset, length: Offset, mode: i32) {
        class: Class::Write,
        trace: Detail::fallocate(node, mode, offset, length),
        serve: data::fallocate(serve, node, mode, offset, length),
        answer: empty,
    }

    lseek 46 (_fh: Handle, offset: i64, whence: i32) {
        // What the kernel has not sent yet lies in holes here. It then calls everything data.
        refuse: fuse.writeback_cache => Errno::NOSYS,
        class: Class::Attributes,
        trace: None,
        serve: data::seek(serve, node, offset, whence),
        answer: offset,
    }

    copy_file_range 47 (
        _fh_in: Handle, offset_in: Offset, node_out: Node, _fh_out: Handle, offset_out: Offset,
        len: u64
    ) {
        let from = (node, offset_in),
        let to = (node_out, offset_out),
        class: Class::Write,
        trace: Detail::copy(from, to, len),
        serve: data::copy(serve, from, to, len),
        answer: written,
    }
}
