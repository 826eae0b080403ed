//! Errors of mounts: of their start, and of their end.

use std::path::PathBuf;

use syncline_fs::FsError;
use syncline_trace::TraceError;

/// Result of mounting.
pub type Result<T> = std::result::Result<T, FuseError>;

/// Error of a mount, by classes that a caller treats differently.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// A mount option that does not exist or has a bad value.
    #[error("{0}")]
    Usage(String),
    /// Error of the volume.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The kernel or fusermount3 refused; the text ends with the next step.
    #[error("{0}")]
    Mount(String),
    /// A trace of the mount could not be written; the mount is not affected.
    #[error("{}: {source}", path.display())]
    Trace {
        /// The first of its files.
        path: PathBuf,
        /// Error of the trace.
        source: TraceError,
    },
}
