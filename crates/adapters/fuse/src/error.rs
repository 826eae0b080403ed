//! Errors of mounts: of their start, and of their end.

use std::path::PathBuf;

use syncline_fs::FsError;

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
    /// The events of `trace=` could not be written; the mount is not affected.
    #[error("{}: {source}; check the file, its permissions and the free space", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}
