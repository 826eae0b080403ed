//! The error type of the volume: one class per thing a caller can do about it, one exhaustive errno
//! match.
//!
//! I/O, corrupt and unsupported are different answers; corruption carries inode, block and offset.

use syncline_device::DeviceError;
use syncline_jbd2::JournalError;
use syncline_ondisk::OndiskError;

/// Result of every operation of this crate.
pub type Result<T> = std::result::Result<T, FsError>;

/// Why an operation on a volume was not done.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FsError {
    /// The device failed (EIO).
    #[error("{0}; look at the device, then run `syncline recover` on the image")]
    Io(#[from] DeviceError),
    /// The image breaks a rule of ext4 (EUCLEAN). The volume is read-only from then on, unless
    /// mounted with `errors=continue`.
    #[error(
        "corrupt image: {what}{}; run `syncline repair` on the unmounted image",
        place(*inode, *block, *offset)
    )]
    Corrupt {
        /// Inode number, where one is involved.
        inode: Option<u32>,
        /// Block number, where one is involved.
        block: Option<u64>,
        /// Byte offset inside the block.
        offset: Option<u64>,
        /// The broken rule.
        what: String,
    },
    /// A file with fs-verity does not have the contents that were sealed, or its tree is damaged
    /// (EIO). Nothing of the damaged block is read.
    #[error("verity: {what} (inode {inode}); restore the file from a copy")]
    Verity {
        /// Inode number.
        inode: u32,
        /// What differs.
        what: String,
    },
    /// A feature that this volume does not handle (EOPNOTSUPP at mount).
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// An earlier write failed or the image was found corrupt; nothing is written any more (EROFS
    /// for operations, EIO for fsync of data that was lost).
    #[error("the volume is latched read-only after: {0}; unmount it and run `syncline recover`")]
    Latched(String),
    /// Mounted read-only (EROFS).
    #[error("the volume is mounted read-only; mount it without `ro` to write")]
    ReadOnly,
    /// An argument that makes no sense (EINVAL).
    #[error("invalid argument: {0}")]
    Invalid(String),
    /// No free block or inode (ENOSPC).
    #[error("no space left on the volume; delete files or grow the image")]
    NoSpace,
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("the file exists")]
    Exists,
    /// ENOTDIR.
    #[error("not a directory")]
    NotDir,
    /// EISDIR.
    #[error("is a directory")]
    IsDir,
    /// ENOTEMPTY.
    #[error("the directory is not empty")]
    NotEmpty,
    /// ENAMETOOLONG.
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    /// EMLINK.
    #[error("too many links")]
    TooManyLinks,
    /// ENODATA.
    #[error("no such attribute")]
    NoData,
    /// ERANGE.
    #[error("the buffer is too small for the value")]
    Range,
    /// E2BIG.
    #[error("the argument is too large")]
    ArgumentTooBig,
    /// EFBIG.
    #[error("the file would be larger than the volume allows")]
    TooBig,
    /// An atomic write holds more than one record of the log can (EFBIG).
    #[error(
        "the atomic write is larger than one record of this log, about {} KiB; write without it",
        .limit_bytes / 1024
    )]
    AtomicTooBig {
        /// Most bytes of whole blocks that are sure to fit.
        limit_bytes: u64,
    },
    /// EPERM.
    #[error("the operation is not permitted on this file (immutable, append-only, verity)")]
    Perm,
    /// ENOKEY.
    #[error("the file is encrypted; mount the image with the kernel's ext4, and add the key")]
    NoKey,
    /// EBUSY.
    #[error("the resource is busy")]
    Busy,
    /// ELOOP.
    #[error("too many levels of symbolic links")]
    Loop,
    /// EXDEV.
    #[error("the two files are on different volumes")]
    CrossDevice,
    /// EOPNOTSUPP.
    #[error("operation not supported: {0}")]
    NotSupported(String),
    /// ENXIO: no data or hole behind this offset.
    #[error("no data beyond this offset")]
    NoSuchOffset,
    /// ESTALE: the inode number names nothing.
    #[error("the inode is not in use")]
    Stale,
}

fn place(inode: Option<u32>, block: Option<u64>, offset: Option<u64>) -> String {
    let mut text = String::new();
    if let Some(ino) = inode {
        text += &format!(" (inode {ino})");
    }
    if let Some(block) = block {
        text += &format!(" (block {block})");
    }
    if let Some(offset) = offset {
        text += &format!(" (byte {offset})");
    }
    text
}

impl FsError {
    /// Linux's errno for this error.
    pub fn errno(&self) -> i32 {
        match self {
            FsError::Io(_) | FsError::Verity { .. } => 5,
            FsError::Corrupt { .. } => 117,
            FsError::Unsupported(_) | FsError::NotSupported(_) => 95,
            FsError::Latched(_) => 5,
            FsError::ReadOnly => 30,
            FsError::Invalid(_) => 22,
            FsError::NoSpace => 28,
            FsError::NotFound => 2,
            FsError::Exists => 17,
            FsError::NotDir => 20,
            FsError::IsDir => 21,
            FsError::NotEmpty => 39,
            FsError::NameTooLong => 36,
            FsError::TooManyLinks => 31,
            FsError::NoData => 61,
            FsError::Range => 34,
            FsError::ArgumentTooBig => 7,
            FsError::TooBig | FsError::AtomicTooBig { .. } => 27,
            FsError::Perm => 1,
            FsError::NoKey => 126,
            FsError::Busy => 16,
            FsError::Loop => 40,
            FsError::CrossDevice => 18,
            FsError::NoSuchOffset => 6,
            FsError::Stale => 116,
        }
    }

    /// The error that a latch keeps: its text without the next step, which is the latch's own.
    pub(crate) fn latched(&self) -> FsError {
        FsError::Latched(match self {
            FsError::Latched(cause) => cause.clone(),
            FsError::Io(device) => device.to_string(),
            FsError::Corrupt { inode, block, offset, what } => {
                format!("corrupt image: {what}{}", place(*inode, *block, *offset))
            }
            other => other.to_string(),
        })
    }

    /// An [`FsError::Invalid`] with this text.
    pub fn invalid(text: impl Into<String>) -> FsError {
        FsError::Invalid(text.into())
    }
}

impl From<JournalError> for FsError {
    fn from(err: JournalError) -> FsError {
        match err {
            JournalError::Io(device) => FsError::Io(device),
            JournalError::Corrupt { log_block, detail } => FsError::Corrupt {
                inode: None,
                block: Some(u64::from(log_block)),
                offset: None,
                what: format!("journal: {detail}"),
            },
            JournalError::Unsupported { .. } => FsError::Unsupported(err.to_string()),
            JournalError::Aborted { .. } | JournalError::ShutDown => {
                FsError::Latched(err.root().to_string())
            }
            JournalError::NeedsRecovery
            | JournalError::Usage(_)
            | JournalError::TooLarge { .. } => FsError::Invalid(err.to_string()),
        }
    }
}

impl From<OndiskError> for FsError {
    fn from(err: OndiskError) -> FsError {
        match err {
            OndiskError::Corrupt { what, at, detail } => FsError::Corrupt {
                inode: at.inode,
                block: at.block,
                offset: at.offset.map(|o| o as u64),
                what: format!("{what}: {detail}"),
            },
            OndiskError::Unsupported { feature, detail } => {
                FsError::Unsupported(format!("{feature}: {detail}"))
            }
            OndiskError::Full { .. } => FsError::NoSpace,
            OndiskError::Usage { what, detail } => FsError::Invalid(format!("{what}: {detail}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latch_advises_once() {
        let io = FsError::Io(DeviceError::ReadOnly);
        for text in [io.latched().to_string(), io.latched().latched().to_string()] {
            assert_eq!(text.matches("syncline recover").count(), 1, "{text}");
        }
        let corrupt = FsError::Corrupt { inode: None, block: None, offset: None, what: "x".into() };
        assert!(!corrupt.latched().to_string().contains("e2fsck"), "{corrupt}");
    }

    #[test]
    fn corruption_names_its_place() {
        let err =
            FsError::Corrupt { inode: Some(12), block: Some(9), offset: None, what: "x".into() };
        assert_eq!(err.errno(), 117);
        assert!(err.to_string().contains("(inode 12) (block 9)"), "{err}");
    }
}
