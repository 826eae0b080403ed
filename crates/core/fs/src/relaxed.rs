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

use std::sync::atomic::{AtomicBool, Ordering};

use glob::Pattern;
use syncline_device::{Durability, Kind, Origin};

use crate::error::{FsError, Result};
use crate::hot::check_glob;
use crate::inode::{Inode, InodeRef};
use crate::options::{MountOptions, SyncMode};
use crate::volume::{Inner, Volume};
use crate::writeback::Segment;
use crate::xattr::XattrFlags;

/// The attribute that says how durable a file is.
const ATTRIBUTE: &[u8] = b"user.syncline.durability";
const RELAXED: &[u8] = b"relaxed";
const STRICT: &[u8] = b"strict";

// Bits of `Inode::durability`.
const NAME_RELAXED: u8 = 1;
const NAME_STRICT: u8 = 2;
const ATTRIBUTE_KNOWN: u8 = 4;
const ATTRIBUTE_RELAXED: u8 = 8;
const ATTRIBUTE_STRICT: u8 = 16;
const ATTRIBUTE_BITS: u8 = ATTRIBUTE_KNOWN | ATTRIBUTE_RELAXED | ATTRIBUTE_STRICT;
/// Data went down relaxed.
const WROTE: u8 = 32;

fn is_relaxed(bits: u8) -> bool {
    match bits & (ATTRIBUTE_RELAXED | ATTRIBUTE_STRICT) {
        0 => bits & (NAME_RELAXED | NAME_STRICT) == NAME_RELAXED,
        attribute => attribute == ATTRIBUTE_RELAXED,
    }
}

/// What tells relaxed files from others on one mount.
pub(crate) struct RelaxedFiles {
    patterns: Vec<Pattern>,
    /// Whether relaxed data was ever written, and may wait below.
    wrote: AtomicBool,
    /// Switched off, every file is strict.
    off: AtomicBool,
}

impl RelaxedFiles {
    /// # Errors
    /// [`FsError::Invalid`] for a rule that is no glob.
    pub(crate) fn new(options: &MountOptions) -> Result<RelaxedFiles> {
        let rules = options.relaxed.iter().map(|rule| check_glob("relaxed", rule));
        let patterns = rules.collect::<Result<_>>()?;
        Ok(RelaxedFiles { patterns, wrote: AtomicBool::new(false), off: AtomicBool::new(false) })
    }

    fn is_on(&self) -> bool {
        !self.off.load(Ordering::Acquire)
    }

    fn matches(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name);
        self.patterns.iter().any(|rule| rule.matches(&name))
    }
}

/// Refuses what the attribute cannot be.
pub(crate) fn check_durability(name: &[u8], value: &[u8]) -> Result<()> {
    if name != ATTRIBUTE || value == RELAXED || value == STRICT {
        return Ok(());
    }
    Err(FsError::invalid("user.syncline.durability is `relaxed` or `strict`; set one of these"))
}

impl Inner {
    /// A file is known by this name.
    pub(crate) fn note_name(&self, inode: &Inode, name: &[u8]) {
        self.hot.note_name(inode, name);
        if self.relaxed.patterns.is_empty() || !inode.state.read().raw.is_file() {
            return;
        }
        let bit = if self.relaxed.matches(name) { NAME_RELAXED } else { NAME_STRICT };
        let before = inode.durability.fetch_or(bit, Ordering::AcqRel);
        if is_relaxed(before) && !is_relaxed(before | bit) {
            // A failure latches the volume, so that the fsync that counts on it fails.
            let _ = self.flush_relaxed();
        }
    }

    /// An attribute was changed, or was to be.
    pub(crate) fn note_attribute(&self, inode: &Inode, name: &[u8]) {
        if name == ATTRIBUTE {
            inode.durability.fetch_and(!ATTRIBUTE_BITS, Ordering::AcqRel);
            // As in `note_name`.
            let _ = self.flush_relaxed();
        }
    }

    /// Everything that went down relaxed becomes durable.
    pub(crate) fn flush_relaxed(&self) -> Result<()> {
        if !self.relaxed.wrote.load(Ordering::Acquire) {
            return Ok(());
        }
        let origin = Origin { durability: Durability::Relaxed, ..Origin::new(Kind::Other, true) };
        self.dev.flush(origin).map_err(|err| self.fail(FsError::Io(err)))
    }

    /// How durable data of a segment has to be.
    pub(crate) fn durability_of(&self, inode: &Inode, segment: &Segment) -> Durability {
        let relaxed = self.options.sync == SyncMode::Ordered
            && self.relaxed.is_on()
            && segment.is_plain()
            && is_relaxed(inode.durability.load(Ordering::Acquire));
        if !relaxed {
            return Durability::Strict;
        }
        inode.durability.fetch_or(WROTE, Ordering::AcqRel);
        self.relaxed.wrote.store(true, Ordering::Release);
        Durability::Relaxed
    }

    /// fsync of a part of a file: nothing, if the file is relaxed.
    pub(crate) fn fsync_file(
        &self,
        inode: &InodeRef,
        offset: u64,
        len: u64,
        datasync: bool,
    ) -> Result<()> {
        let relaxed = self.relaxed.is_on() && inode.state.read().raw.is_file();
        if relaxed && is_relaxed(self.durability_bits(inode)) {
            return self.latch.check();
        }
        self.fsync_range(inode, offset, len, datasync)?;
        let wrote = {
            // No write of this file is under way.
            let _io = inode.io.lock();
            inode.durability.fetch_and(!WROTE, Ordering::AcqRel) & WROTE != 0
        };
        if wrote { self.flush_relaxed() } else { Ok(()) }
    }

    /// The bits with those of the attribute, which is read once.
    fn durability_bits(&self, inode: &InodeRef) -> u8 {
        let bits = inode.durability.load(Ordering::Acquire);
        if bits & ATTRIBUTE_KNOWN != 0 {
            return bits;
        }
        // What cannot be read makes nothing relaxed.
        let value = Volume(std::sync::Arc::clone(inode.volume())).getxattr(inode, ATTRIBUTE);
        let attribute = match value.as_deref() {
            Ok(RELAXED) => ATTRIBUTE_RELAXED,
            Ok(_) => ATTRIBUTE_STRICT,
            Err(FsError::NoData) => 0,
            Err(_) => ATTRIBUTE_STRICT,
        };
        let new = attribute | ATTRIBUTE_KNOWN;
        inode.durability.fetch_or(new, Ordering::AcqRel) | new
    }
}

impl Volume {
    /// Whether relaxed files are relaxed; they are on every new mount.
    pub fn relaxes(&self) -> bool {
        self.0.relaxed.is_on()
    }

    /// Switches that on, or off: then every file is strict, and what relaxed files had waiting is
    /// durable when this returns.
    ///
    /// # Errors
    /// As [`Volume::syncfs`]; it is off all the same.
    pub fn set_relaxes(&self, on: bool) -> Result<()> {
        let was_off = self.0.relaxed.off.swap(!on, Ordering::AcqRel);
        if on || was_off { Ok(()) } else { self.syncfs() }
    }

    /// A new file gets the attribute of its directory; without it, that of its name counts.
    pub(crate) fn inherit_durability(&self, dir: &InodeRef, inode: &InodeRef, name: &[u8]) {
        self.0.note_name(inode, name);
        let bits = self.0.durability_bits(dir);
        let value = match bits & (ATTRIBUTE_RELAXED | ATTRIBUTE_STRICT) {
            ATTRIBUTE_RELAXED => RELAXED,
            ATTRIBUTE_STRICT => STRICT,
            _ => return,
        };
        if inode.is_dir() || inode.state.read().raw.is_file() {
            // Without room for it the file is strict, which promises more.
            let _ = self.setxattr(inode, ATTRIBUTE, value, XattrFlags::Any);
        }
    }
}
