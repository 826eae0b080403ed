//! The error type of this crate: the defect of some bytes, and its offset.
//!
//! Decoders know the offset inside the structure they look at; the caller knows which inode or
//! block the bytes came from and adds it with [`OndiskError::in_inode`] and
//! [`OndiskError::in_block`]. The types are cheap to make on the error path only: nothing is
//! allocated when bytes are fine.

use std::borrow::Cow;
use std::fmt;

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, OndiskError>;

/// Location of broken bytes in the file system, as far as known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Location {
    /// Inode number the bytes belong to.
    pub inode: Option<u32>,
    /// File system block number (journal block number in journal structures).
    pub block: Option<u64>,
    /// Byte offset inside the structure.
    pub offset: Option<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ino) = self.inode {
            write!(f, " of inode {ino}")?;
        }
        if let Some(block) = self.block {
            write!(f, " in block {block}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        Ok(())
    }
}

/// Error in bytes that were read from, or are meant for, the disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OndiskError {
    /// The bytes break a rule of the format.
    #[error("corrupt {what}{at}: {detail}")]
    Corrupt {
        /// The structure: "superblock", "group descriptor", "directory block", ...
        what: &'static str,
        /// Location, as far as known.
        at: Location,
        /// The broken rule, with the value found.
        detail: Cow<'static, str>,
    },
    /// A feature this code does not handle, by its mke2fs name.
    #[error("unsupported feature {feature}: {detail}")]
    Unsupported {
        /// The feature as `mke2fs -O` and `dumpe2fs` spell it.
        feature: String,
        /// Advice for the user.
        detail: Cow<'static, str>,
    },
    /// There is no room left in a fixed-size structure (a directory block, an extent node, ...).
    #[error("no room in {what}; use a larger structure or remove entries first")]
    Full {
        /// The structure.
        what: &'static str,
    },
    /// The caller passed something the format cannot express (a name of 300 bytes, ...).
    #[error("invalid argument for {what}: {detail}; correct the call")]
    Usage {
        /// The structure.
        what: &'static str,
        /// Description of the wrong argument.
        detail: Cow<'static, str>,
    },
}

impl OndiskError {
    /// A corruption of `what` at no particular offset.
    #[cold]
    pub fn corrupt(what: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Corrupt { what, at: Location::default(), detail: detail.into() }
    }

    /// A corruption of `what` at byte `offset` of it.
    #[cold]
    pub fn corrupt_at(
        what: &'static str,
        offset: usize,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let at = Location { offset: Some(offset), ..Location::default() };
        Self::Corrupt { what, at, detail: detail.into() }
    }

    /// An unusable argument.
    #[cold]
    pub fn usage(what: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Usage { what, detail: detail.into() }
    }

    /// An unsupported feature.
    #[cold]
    pub fn unsupported(feature: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Unsupported { feature: feature.into(), detail: detail.into() }
    }

    /// Adds the inode number, unless one is known already.
    #[must_use]
    pub fn in_inode(mut self, ino: u32) -> Self {
        if let Self::Corrupt { at, .. } = &mut self {
            at.inode.get_or_insert(ino);
        }
        self
    }

    /// Adds the block number, unless one is known already.
    #[must_use]
    pub fn in_block(mut self, block: u64) -> Self {
        if let Self::Corrupt { at, .. } = &mut self {
            at.block.get_or_insert(block);
        }
        self
    }
}
