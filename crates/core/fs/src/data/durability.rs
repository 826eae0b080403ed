//! What tells relaxed files from others.

use std::sync::atomic::{AtomicBool, Ordering};

use glob::Pattern;
use syncline_device::Durability;

use crate::data::Files;
use crate::data::flush::writeback::Segment;
use crate::error::Result;
use crate::incore::Inode;
use crate::options::{MountOptions, SyncMode};
use crate::space::hot::check_glob;

pub(crate) const NAME_RELAXED: u8 = 1;
pub(crate) const NAME_STRICT: u8 = 2;
pub(crate) const ATTRIBUTE_KNOWN: u8 = 4;
pub(crate) const ATTRIBUTE_RELAXED: u8 = 8;
pub(crate) const ATTRIBUTE_STRICT: u8 = 16;
pub(crate) const ATTRIBUTE_BITS: u8 = ATTRIBUTE_KNOWN | ATTRIBUTE_RELAXED | ATTRIBUTE_STRICT;
/// Data went down relaxed.
pub(crate) const WROTE: u8 = 32;

/// What tells relaxed files from others on one mount.
pub(crate) struct RelaxedFiles {
    pub(crate) patterns: Vec<Pattern>,
    /// Whether relaxed data was ever written, and may wait below.
    pub(crate) wrote: AtomicBool,
    /// Switched off, every file is strict.
    pub(crate) off: AtomicBool,
}

impl RelaxedFiles {
    /// # Errors
    /// [`FsError::Invalid`] for a rule that is no glob.
    pub(crate) fn new(options: &MountOptions) -> Result<RelaxedFiles> {
        let rules = options.relaxed.iter().map(|rule| check_glob("relaxed", rule));
        let patterns = rules.collect::<Result<_>>()?;
        Ok(RelaxedFiles { patterns, wrote: AtomicBool::new(false), off: AtomicBool::new(false) })
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.off.load(Ordering::Acquire)
    }

    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name);
        self.patterns.iter().any(|rule| rule.matches(&name))
    }
}

/// How durable data of a segment has to be.
pub(crate) fn durability_of(files: &Files, inode: &Inode, segment: &Segment) -> Durability {
    let relaxed = files.options.sync == SyncMode::Ordered
        && files.relaxed.is_on()
        && segment.is_plain()
        && is_relaxed(inode.durability.load(Ordering::Acquire));
    if !relaxed {
        return Durability::Strict;
    }
    inode.durability.fetch_or(WROTE, Ordering::AcqRel);
    files.relaxed.wrote.store(true, Ordering::Release);
    Durability::Relaxed
}

pub(crate) fn is_relaxed(bits: u8) -> bool {
    match bits & (ATTRIBUTE_RELAXED | ATTRIBUTE_STRICT) {
        0 => bits & (NAME_RELAXED | NAME_STRICT) == NAME_RELAXED,
        attribute => attribute == ATTRIBUTE_RELAXED,
    }
}
