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
//!   `sync=eager` write-back may replace an older, synced copy in the log, so only fsync is relaxed
//!   there.
//! - A file that becomes strict is strict with its next fsync: its relaxed data is flushed when it
//!   gets a strict name or another attribute, and again if a write was under way.
//! - Relaxed files can be disabled and enabled while mounted
//!   ([`crate::Volume::set_relaxed_enabled`]).
//! - syncfs and unmounting also make relaxed files durable.
//!
//! Tested in `tests/it/relaxed.rs`, with power cuts.

use std::sync::atomic::Ordering;

use syncline_device::{Durability, Kind, Origin};

use crate::data::Files;
use crate::data::durability::{ATTRIBUTE, ATTRIBUTE_BITS, NAME_RELAXED, NAME_STRICT, is_relaxed};
use crate::error::{FsError, Result};
use crate::incore::Inode;

// Bits of `Inode::durability`.

/// A file is known by this name.
pub(crate) fn note_name(files: &Files, inode: &Inode, name: &[u8]) {
    files.hot.note_name(inode, name);
    if files.relaxed.is_strict_name(name) {
        inode.durability.fetch_or(NAME_STRICT, Ordering::AcqRel);
    }
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
