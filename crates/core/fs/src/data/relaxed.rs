//! Files that need not survive a power cut: fsync of them returns at once (informed-storage paper,
//! 6.6.3 to 6.6.5).
//!
//! A file is relaxed by its attribute `user.syncline.durability` (`relaxed` or `strict`; new files
//! and directories get that of their directory), without one by its name (`relaxed=GLOB`). A file
//! that is known by any other name too is strict.
//!
//! Promises
//! - Metadata is never relaxed, and neither is the first write to a block: only data that
//!   overwrites blocks of the file on disk goes down with `Durability::Relaxed`, with
//!   `sync=ordered`. So a crash shows old or new bytes of the file itself, or zeros. With
//!   `sync=eager` the write-back may end what the log owes for an older, synced copy: there only
//!   fsync is relaxed.
//! - A file that becomes strict is strict with its next fsync: what was written relaxed is flushed
//!   when it gets a strict name or another attribute, and again if a write was under way.
//! - They can be switched off and on while mounted ([`Volume::set_relaxes`]).
//! - syncfs and unmounting make relaxed files durable as well.
//!
//! Tested in `tests/relaxed.rs`, with power cuts.

use std::sync::atomic::Ordering;

use syncline_device::{Durability, Kind, Origin};

use crate::data::Files;
use crate::data::durability::{
    ATTRIBUTE_BITS, ATTRIBUTE_KNOWN, ATTRIBUTE_RELAXED, ATTRIBUTE_STRICT, NAME_RELAXED,
    NAME_STRICT, WROTE, is_relaxed,
};
use crate::data::sync::{fsync_range, syncfs};
use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::reference::InodeRef;
use crate::inode::xattr::{XattrFlags, getxattr, setxattr};

/// The attribute that says how durable a file is.
const ATTRIBUTE: &[u8] = b"user.syncline.durability";
const RELAXED: &[u8] = b"relaxed";
const STRICT: &[u8] = b"strict";

// Bits of `Inode::durability`.

/// Refuses what the attribute cannot be.
pub(crate) fn check_durability(name: &[u8], value: &[u8]) -> Result<()> {
    if name != ATTRIBUTE || value == RELAXED || value == STRICT {
        return Ok(());
    }
    Err(FsError::invalid("user.syncline.durability is `relaxed` or `strict`; set one of these"))
}

/// A file is known by this name.
pub(crate) fn note_name(files: &Files, inode: &Inode, name: &[u8]) {
    files.hot.note_name(inode, name);
    if files.relaxed.patterns.is_empty() || !inode.state.read().raw.is_file() {
        return;
    }
    let bit = if files.relaxed.matches(name) { NAME_RELAXED } else { NAME_STRICT };
    let before = inode.durability.fetch_or(bit, Ordering::AcqRel);
    if is_relaxed(before) && !is_relaxed(before | bit) {
        // A failure latches the volume, so that the fsync that counts on it fails.
        let _ = flush_relaxed(files);
    }
}

/// An attribute was changed, or was to be.
pub(crate) fn note_attribute(files: &Files, inode: &Inode, name: &[u8]) {
    if name == ATTRIBUTE {
        inode.durability.fetch_and(!ATTRIBUTE_BITS, Ordering::AcqRel);
        // As in `note_name`.
        let _ = flush_relaxed(files);
    }
}

/// Everything that went down relaxed becomes durable.
pub(crate) fn flush_relaxed(files: &Files) -> Result<()> {
    if !files.relaxed.wrote.load(Ordering::Acquire) {
        return Ok(());
    }
    let origin = Origin { durability: Durability::Relaxed, ..Origin::new(Kind::Other, true) };
    files.dev.flush(origin).map_err(|err| files.fail(FsError::Io(err)))
}

/// fsync of a part of a file: nothing, if the file is relaxed.
pub(crate) fn fsync_file(
    files: &Files,
    inode: &InodeRef,
    offset: u64,
    len: u64,
    datasync: bool,
) -> Result<()> {
    let relaxed = files.relaxed.is_on() && inode.state.read().raw.is_file();
    if relaxed && is_relaxed(durability_bits(inode)) {
        return files.latch.check();
    }
    fsync_range(files, inode, offset, len, datasync)?;
    let wrote = {
        // No write of this file is under way.
        let _io = inode.io.lock();
        inode.durability.fetch_and(!WROTE, Ordering::AcqRel) & WROTE != 0
    };
    if wrote { flush_relaxed(files) } else { Ok(()) }
}

/// The bits with those of the attribute, which is read once.
fn durability_bits(inode: &InodeRef) -> u8 {
    let bits = inode.durability.load(Ordering::Acquire);
    if bits & ATTRIBUTE_KNOWN != 0 {
        return bits;
    }
    // What cannot be read makes nothing relaxed.
    let value = getxattr(inode.inodes(), inode, ATTRIBUTE);
    let attribute = match value.as_deref() {
        Ok(RELAXED) => ATTRIBUTE_RELAXED,
        Ok(_) => ATTRIBUTE_STRICT,
        Err(FsError::NoData) => 0,
        Err(_) => ATTRIBUTE_STRICT,
    };
    let new = attribute | ATTRIBUTE_KNOWN;
    inode.durability.fetch_or(new, Ordering::AcqRel) | new
}

/// Whether relaxed files are relaxed; they are on every new mount.
pub(crate) fn relaxes(files: &Files) -> bool {
    files.relaxed.is_on()
}

/// Switches that on, or off: then every file is strict, and what relaxed files had waiting is
/// durable when this returns.
///
/// # Errors
/// As [`Volume::syncfs`]; it is off all the same.
pub(crate) fn set_relaxes(files: &Files, on: bool) -> Result<()> {
    let was_off = files.relaxed.off.swap(!on, Ordering::AcqRel);
    if on || was_off { Ok(()) } else { syncfs(files) }
}

/// A new file gets the attribute of its directory; without it, that of its name counts.
pub(crate) fn inherit_durability(files: &Files, dir: &InodeRef, inode: &InodeRef, name: &[u8]) {
    note_name(files, inode, name);
    let bits = durability_bits(dir);
    let value = match bits & (ATTRIBUTE_RELAXED | ATTRIBUTE_STRICT) {
        ATTRIBUTE_RELAXED => RELAXED,
        ATTRIBUTE_STRICT => STRICT,
        _ => return,
    };
    if inode.is_dir() || inode.state.read().raw.is_file() {
        // Without room for it the file is strict, which promises more.
        let _ = setxattr(files, inode, ATTRIBUTE, value, XattrFlags::Any);
    }
}
