//! Durability of a file, strict or relaxed, by its name, its attribute and the mount's switch.
//!
//! Bits of [`Inode::durability`]: the rules of its names and its attribute, and whether relaxed
//! data was written since its last sync. `relaxed.rs` has the promises.

use std::sync::atomic::{AtomicBool, Ordering};

use glob::Pattern;
use syncline_device::Durability;

use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::reference::InodeRef;
use crate::inode::xattr::getxattr;
use crate::options::{MountOptions, check_glob};

pub(crate) const NAME_RELAXED: u8 = 1;
pub(crate) const NAME_STRICT: u8 = 2;
const ATTRIBUTE_KNOWN: u8 = 4;
pub(crate) const ATTRIBUTE_RELAXED: u8 = 8;
pub(crate) const ATTRIBUTE_STRICT: u8 = 16;
pub(crate) const ATTRIBUTE_BITS: u8 = ATTRIBUTE_KNOWN | ATTRIBUTE_RELAXED | ATTRIBUTE_STRICT;
/// Data went down relaxed.
pub(crate) const WROTE: u8 = 32;

/// Rules that tell relaxed files from others on one mount.
pub(crate) struct RelaxedFiles {
    pub(crate) patterns: Vec<Pattern>,
    /// `strict=`, with `sync=periodic`.
    strict: Vec<Pattern>,
    /// `sync=ordered`: in eager mode write-back may replace an older, synced copy in the log.
    sends_relaxed: bool,
    /// True once relaxed data was written; some may still wait in a buffer below.
    pub(crate) wrote: AtomicBool,
    /// True once an fsync of a relaxed file was deferred.
    pub(crate) deferred: AtomicBool,
    /// Switched off, every file is strict.
    pub(crate) off: AtomicBool,
}

impl RelaxedFiles {
    /// # Errors
    /// [`FsError::Invalid`] for a rule that is no glob.
    pub(crate) fn new(options: &MountOptions, sends_relaxed: bool) -> Result<RelaxedFiles> {
        let rules = options.relaxed.iter().map(|rule| check_glob("relaxed", rule));
        let patterns = rules.collect::<Result<_>>()?;
        let rules = options.strict.iter().map(|rule| check_glob("strict", rule));
        let strict = rules.collect::<Result<_>>()?;
        Ok(RelaxedFiles {
            patterns,
            strict,
            sends_relaxed,
            wrote: AtomicBool::new(false),
            deferred: AtomicBool::new(false),
            off: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.off.load(Ordering::Acquire)
    }

    /// Returns the durability for data of `inode` that is written to its home blocks. `overwrites`:
    /// the blocks are part of the file on disk already.
    pub(crate) fn durability_of(&self, inode: &Inode, overwrites: bool) -> Durability {
        let relaxed = self.sends_relaxed
            && self.is_on()
            && overwrites
            && is_relaxed(inode.durability.load(Ordering::Acquire));
        if !relaxed {
            return Durability::Strict;
        }
        inode.durability.fetch_or(WROTE, Ordering::AcqRel);
        self.wrote.store(true, Ordering::Release);
        Durability::Relaxed
    }

    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name);
        self.patterns.iter().any(|rule| rule.matches(&name))
    }

    /// True if fsync of this inode is deferred: a file with the attribute `relaxed`, or without the
    /// attribute one whose names all match `relaxed=`. Nothing is relaxed while that is disabled.
    pub(crate) fn is_relaxed(&self, inode: &InodeRef) -> bool {
        let relaxed =
            self.is_on() && inode.state.read().raw.is_file() && is_relaxed(durability_bits(inode));
        if relaxed {
            self.deferred.store(true, Ordering::Relaxed);
        }
        relaxed
    }

    /// With `sync=periodic`: true if fsync of this inode forces a sync point. Its attribute
    /// decides, without one whether any of its names is one of `strict=`; everything is strict
    /// while relaxed files are switched off.
    pub(crate) fn is_strict(&self, inode: &InodeRef) -> bool {
        if !self.is_on() {
            return true;
        }
        let bits = durability_bits(inode);
        match bits & (ATTRIBUTE_RELAXED | ATTRIBUTE_STRICT) {
            0 => bits & NAME_STRICT != 0,
            attribute => attribute == ATTRIBUTE_STRICT,
        }
    }

    /// True if a rule of `strict=` has this name.
    pub(crate) fn is_strict_name(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name);
        self.strict.iter().any(|rule| rule.matches(&name))
    }
}

pub(crate) fn is_relaxed(bits: u8) -> bool {
    match bits & (ATTRIBUTE_RELAXED | ATTRIBUTE_STRICT) {
        0 => bits & (NAME_RELAXED | NAME_STRICT) == NAME_RELAXED,
        attribute => attribute == ATTRIBUTE_RELAXED,
    }
}

/// Refuses values that the attribute cannot have.
pub(crate) fn check_durability(name: &[u8], value: &[u8]) -> Result<()> {
    if name != ATTRIBUTE || value == RELAXED || value == STRICT {
        return Ok(());
    }
    Err(FsError::invalid("user.syncline.durability is `relaxed` or `strict`; set one of these"))
}

/// The bits with those of the attribute, which is read once.
pub(crate) fn durability_bits(inode: &InodeRef) -> u8 {
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

/// The attribute that says how durable a file is.
pub(crate) const ATTRIBUTE: &[u8] = b"user.syncline.durability";
pub(crate) const RELAXED: &[u8] = b"relaxed";
pub(crate) const STRICT: &[u8] = b"strict";
