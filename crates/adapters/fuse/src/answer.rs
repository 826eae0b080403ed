//! Answers to requests: results of the volume as fuser's replies.
//!
//! Each function sends one kind of result; `operations.rs` names it in a row.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr,
};
use syncline_fs::{Attr, StatFs};

use crate::convert;
use crate::handle::Handle;
use crate::serve::{Entry, ReadBytes};

/// The only writer of a volume is its mount: what the kernel knows stays true.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

fn generation(attr: &Attr) -> Generation {
    Generation(u64::from(attr.generation))
}

pub(crate) fn empty(reply: ReplyEmpty, (): ()) {
    reply.ok();
}

pub(crate) fn entry(reply: ReplyEntry, attr: Attr) {
    reply.entry(&TTL, &convert::entry(&attr), generation(&attr));
}

/// As [`entry`]; without one the kernel remembers that there is no such name (node 0).
pub(crate) fn found(reply: ReplyEntry, attr: Option<Attr>) {
    match attr {
        Some(attr) => entry(reply, attr),
        None => {
            let none = FileAttr { ino: INodeNo(0), ..convert::attr(&convert::NOTHING) };
            reply.entry(&TTL, &none, Generation(0));
        }
    }
}

pub(crate) fn attributes(reply: ReplyAttr, attr: Attr) {
    reply.attr(&TTL, &convert::attr(&attr));
}

/// The text of a symbolic link.
pub(crate) fn text(reply: ReplyData, text: Vec<u8>) {
    reply.data(&text);
}

pub(crate) fn data(reply: ReplyData, bytes: ReadBytes) {
    reply.data(&bytes);
}

pub(crate) fn written<N: TryInto<u32>>(reply: ReplyWrite, bytes: N) {
    // A request writes or copies less than 4 GiB.
    reply.written(bytes.try_into().unwrap_or(u32::MAX));
}

pub(crate) fn offset(reply: ReplyLseek, offset: u64) {
    reply.offset(offset as i64);
}

/// Flags for the kernel's cache of an open file. `all_reads`: every read comes here.
fn open_flags(handle: Handle, all_reads: bool) -> FopenFlags {
    if all_reads || handle.bypasses() {
        return FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
    }
    FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH
}

pub(crate) fn opened(reply: ReplyOpen, handle: Handle, all_reads: bool) {
    reply.opened(handle.number(), open_flags(handle, all_reads));
}

pub(crate) fn created(reply: ReplyCreate, (attr, handle): (Attr, Handle), all_reads: bool) {
    let flags = open_flags(handle, all_reads);
    reply.created(&TTL, &convert::entry(&attr), generation(&attr), handle.number(), flags);
}

/// An open directory; `keep`: the kernel may keep what it lists.
pub(crate) fn opened_dir(reply: ReplyOpen, keep: bool, handle: Handle) {
    // Where 32 threads change directories that they list, some of 10,000 listings that Linux 6.18
    // kept were a name behind; none that were asked for anew.
    let keeping = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
    reply.opened(handle.number(), if keep { keeping } else { FopenFlags::empty() });
}

/// Puts a name into a listing; false if there is no room for it.
pub(crate) fn add(reply: &mut ReplyDirectory, entry: &Entry<'_>) -> bool {
    let (ino, kind) = (INodeNo(u64::from(entry.ino)), convert::file_type(entry.kind));
    !reply.add(ino, entry.next, kind, OsStr::from_bytes(entry.name))
}

/// As [`add`], with attributes. `.` and `..` only need a number and a type: the kernel links
/// neither.
pub(crate) fn add_plus(reply: &mut ReplyDirectoryPlus, entry: &Entry<'_>) -> bool {
    let attr = match &entry.attr {
        Some(attr) => convert::entry(attr),
        None => FileAttr {
            ino: INodeNo(u64::from(entry.ino)),
            kind: convert::file_type(entry.kind),
            ..convert::attr(&convert::NOTHING)
        },
    };
    let generation = entry.attr.as_ref().map_or(Generation(0), generation);
    let name = OsStr::from_bytes(entry.name);
    !reply.add(attr.ino, entry.next, name, &TTL, &attr, generation)
}

pub(crate) fn listed(reply: ReplyDirectory, (): ()) {
    reply.ok();
}

pub(crate) fn listed_plus(reply: ReplyDirectoryPlus, (): ()) {
    reply.ok();
}

pub(crate) fn statfs(reply: ReplyStatfs, s: StatFs) {
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

/// The length with `slack_bytes` more if `size_bytes` is 0, the bytes if they fit, else ERANGE.
pub(crate) fn sized(reply: ReplyXattr, bytes: Vec<u8>, size_bytes: u32, slack_bytes: usize) {
    if size_bytes == 0 {
        reply.size((bytes.len() + slack_bytes) as u32);
    } else if bytes.len() <= size_bytes as usize {
        reply.data(&bytes);
    } else {
        reply.error(Errno::ERANGE);
    }
}

/// The bytes that an ioctl returns.
pub(crate) fn output(reply: ReplyIoctl, bytes: Vec<u8>) {
    reply.ioctl(0, &bytes);
}
