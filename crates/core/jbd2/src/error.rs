//! Errors below the file system: one enum, classes as in the rest of the stack.

use crate::Tid;
use syncline_device::DeviceError;

/// An error of the journal. `Clone`, because an abort is reported again to every later caller.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum JournalError {
    /// The device failed.
    #[error("journal I/O: {0}")]
    Io(#[from] DeviceError),
    /// The log has contents that no jbd2 writes. The file system was not written to.
    #[error(
        "the journal is corrupt at log block {log_block}: {detail}; \
         run `syncline repair` on the image"
    )]
    Corrupt {
        /// Block number inside the log; 0 is the journal superblock.
        log_block: u32,
        /// Detail of the damage.
        detail: String,
    },
    /// A feature of the log that this code does not replay or write.
    #[error("the journal uses {feature}, which is not supported; {next_step}")]
    Unsupported {
        /// The feature by its Linux name.
        feature: String,
        /// Next step for the user.
        next_step: &'static str,
    },
    /// The log must be recovered before it is opened for writing.
    #[error("the journal holds transactions that are not replayed; recover it first")]
    NeedsRecovery,
    /// A caller's mistake.
    #[error("journal usage: {0}")]
    Usage(&'static str),
    /// More blocks in one handle than a transaction of this log may hold.
    #[error(
        "an operation needs {credits} journal blocks, this journal allows {limit}; \
         make a larger one with tune2fs -J size="
    )]
    TooLarge {
        /// Blocks asked for.
        credits: u32,
        /// Blocks that a transaction may hold.
        limit: u32,
    },
    /// The volume was shut down, as if it had crashed; no error of the log.
    #[error("the volume was shut down as if by a crash")]
    ShutDown,
    /// An earlier failure latched the journal; nothing is written any more.
    #[error(
        "the journal was aborted in transaction {tid} ({cause}); unmount, check the device, \
         and let recovery replay what was committed"
    )]
    Aborted {
        /// Transaction that was running or committing.
        tid: Tid,
        /// The first error.
        cause: Box<JournalError>,
    },
}

impl JournalError {
    pub(crate) fn corrupt(log_block: u32, detail: impl Into<String>) -> Self {
        JournalError::Corrupt { log_block, detail: detail.into() }
    }

    /// The first error behind an [`JournalError::Aborted`], or the error itself.
    pub fn root(&self) -> &JournalError {
        match self {
            JournalError::Aborted { cause, .. } => cause.root(),
            other => other,
        }
    }

    /// True if the journal is latched.
    pub fn is_latched(&self) -> bool {
        matches!(self, JournalError::Aborted { .. })
    }
}
