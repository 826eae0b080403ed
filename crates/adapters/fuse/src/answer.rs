//! Answers to requests: results of the volume as structures of linux/fuse.h.
//!
//! Each function puts one kind of result into the answer; `operations.rs` names it in a row. It
//! fails where the answer has no room for the result.

use rustix::io::Errno;
use syncline_fs::{Attr, StatFs};

use crate::convert;
use crate::handle::Handle;
use crate::serve::Entry;
use crate::wire::Out;

/// The only writer of a volume is its mount: what the kernel knows stays true for a day. Names that
/// fold case do not: the kernel does not know their other spellings.
const TTL_SECONDS: u64 = 24 * 60 * 60;

/// Flags for the kernel's cache of an open file (`FOPEN_*`).
const DIRECT_IO: u32 = 1;
const KEEP_CACHE: u32 = 1 << 1;
const CACHE_DIR: u32 = 1 << 3;
const NOFLUSH: u32 = 1 << 5;

fn put(out: &mut Out<'_>, parts: &[&[u8]]) -> Result<(), Errno> {
    if out.put(parts) { Ok(()) } else { Err(Errno::RANGE) }
}

fn put_words(out: &mut Out<'_>, words: &[u32]) -> Result<(), Errno> {
    words.iter().try_for_each(|word| put(out, &[&word.to_ne_bytes()]))
}

fn put_longs(out: &mut Out<'_>, longs: &[u64]) -> Result<(), Errno> {
    longs.iter().try_for_each(|long| put(out, &[&long.to_ne_bytes()]))
}

pub(crate) fn empty(_: &mut Out<'_>, (): ()) -> Result<(), Errno> {
    Ok(())
}

/// Bytes of `struct fuse_entry_out`.
const ENTRY_BYTES: usize = 40 + convert::ATTR_BYTES;

/// Meaning of a name; `node` 0: the kernel learns no inode. `stays`: the kernel may remember it.
fn entry_out(node: u64, attr: &Attr, stays: bool) -> [u8; ENTRY_BYTES] {
    let name_seconds = if stays { TTL_SECONDS } else { 0 };
    let head = [node, u64::from(attr.generation), name_seconds, TTL_SECONDS, 0];
    let mut bytes = [0; ENTRY_BYTES];
    for (to, from) in bytes.chunks_exact_mut(8).zip(head) {
        to.copy_from_slice(&from.to_ne_bytes());
    }
    bytes[40..].copy_from_slice(&convert::attr(attr));
    bytes
}

pub(crate) fn entry(out: &mut Out<'_>, attr: Attr, stays: bool) -> Result<(), Errno> {
    put(out, &[&entry_out(convert::node(attr.ino), &attr, stays)])
}

/// As [`entry`]; without one the kernel remembers, if `absence_stays`, that there is no such name
/// (node 0).
pub(crate) fn found(
    out: &mut Out<'_>,
    attr: Option<Attr>,
    stays: bool,
    absence_stays: bool,
) -> Result<(), Errno> {
    match attr {
        Some(attr) => entry(out, attr, stays),
        None => put(out, &[&entry_out(0, &convert::NOTHING, absence_stays)]),
    }
}

pub(crate) fn attributes(out: &mut Out<'_>, attr: Attr) -> Result<(), Errno> {
    put_longs(out, &[TTL_SECONDS, 0])?;
    put(out, &[&convert::attr(&attr)])
}

/// `struct fuse_statx_out`.
pub(crate) fn statx(out: &mut Out<'_>, attr: Attr) -> Result<(), Errno> {
    put_longs(out, &[TTL_SECONDS, 0, 0, 0])?;
    put(out, &[&convert::statx(&attr)])
}

/// The text of a symbolic link.
pub(crate) fn text(out: &mut Out<'_>, text: Vec<u8>) -> Result<(), Errno> {
    put(out, &[&text])
}

/// So many bytes, which are in the answer already.
pub(crate) fn filled(out: &mut Out<'_>, bytes: usize) -> Result<(), Errno> {
    out.fill(bytes);
    Ok(())
}

pub(crate) fn written<N: TryInto<u32>>(out: &mut Out<'_>, bytes: N) -> Result<(), Errno> {
    // A request writes or copies less than 4 GiB.
    put_words(out, &[bytes.try_into().unwrap_or(u32::MAX), 0])
}

pub(crate) fn offset(out: &mut Out<'_>, offset: u64) -> Result<(), Errno> {
    put_longs(out, &[offset])
}

/// `struct fuse_open_out`.
fn open_out(handle: Handle, flags: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&handle.number().to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

/// Flags of an open file. `all_reads`: every read comes here.
fn open_flags(handle: Handle, all_reads: bool) -> u32 {
    NOFLUSH | if all_reads || handle.bypasses() { DIRECT_IO } else { KEEP_CACHE }
}

pub(crate) fn opened(out: &mut Out<'_>, handle: Handle, all_reads: bool) -> Result<(), Errno> {
    put(out, &[&open_out(handle, open_flags(handle, all_reads))])
}

pub(crate) fn created(
    out: &mut Out<'_>,
    (attr, handle): (Attr, Handle),
    all_reads: bool,
    stays: bool,
) -> Result<(), Errno> {
    entry(out, attr, stays)?;
    opened(out, handle, all_reads)
}

/// An open directory; `keep`: the kernel may keep what it lists.
pub(crate) fn opened_dir(out: &mut Out<'_>, keep: bool, handle: Handle) -> Result<(), Errno> {
    // Where 32 threads change directories that they list, some of 10,000 listings that Linux 6.18
    // kept were a name behind; none that were asked for anew.
    put(out, &[&open_out(handle, if keep { KEEP_CACHE | CACHE_DIR } else { 0 })])
}

/// Puts a name into a listing; false if there is no room for it.
pub(crate) fn add(out: &mut Out<'_>, entry: &Entry<'_>) -> bool {
    add_behind(out, &[], entry)
}

/// As [`add`], with attributes. The kernel links neither `.` nor `..`.
pub(crate) fn add_plus(out: &mut Out<'_>, entry: &Entry<'_>, stays: bool) -> bool {
    let known = match &entry.attr {
        Some(attr) => entry_out(convert::node(attr.ino), attr, stays),
        None => entry_out(0, &convert::NOTHING, stays),
    };
    add_behind(out, &known, entry)
}

/// Puts `struct fuse_dirent` behind what comes before it.
fn add_behind(out: &mut Out<'_>, before: &[u8], entry: &Entry<'_>) -> bool {
    let name = entry.name;
    let (ino, next) = (u64::from(entry.ino).to_ne_bytes(), entry.next.to_ne_bytes());
    let (len, kind) = ((name.len() as u32).to_ne_bytes(), convert::file_type(entry.kind));
    let pad = &[0; 7][..name.len().next_multiple_of(8) - name.len()];
    out.put(&[before, &ino, &next, &len, &kind.to_ne_bytes(), name, pad])
}

pub(crate) fn statfs(out: &mut Out<'_>, s: StatFs) -> Result<(), Errno> {
    put_longs(out, &[s.blocks, s.blocks_free, s.blocks_available, s.files, s.files_free])?;
    put_words(out, &[s.block_size, s.name_len, s.block_size, 0, 0, 0, 0, 0, 0, 0])
}

/// The length with `slack_bytes` more if `size_bytes` is 0, the bytes if they fit, else ERANGE.
pub(crate) fn sized(
    out: &mut Out<'_>,
    bytes: Vec<u8>,
    size_bytes: u32,
    slack_bytes: usize,
) -> Result<(), Errno> {
    if size_bytes == 0 {
        return put_words(out, &[(bytes.len() + slack_bytes) as u32, 0]);
    }
    out.limit(size_bytes);
    put(out, &[&bytes])
}

/// The bytes that an ioctl returns.
pub(crate) fn output(out: &mut Out<'_>, bytes: Vec<u8>) -> Result<(), Errno> {
    put_words(out, &[0; 4])?;
    put(out, &[&bytes])
}
