//! The error type of this crate. Messages end with the next step.

/// Result of everything in this crate but the calls of [`crate::VolumeFs`].
pub type Result<T> = std::result::Result<T, VfsError>;

/// Why a VFS or a database on it could not be had.
#[derive(Debug, thiserror::Error)]
pub enum VfsError {
    /// SQLite refused or failed.
    #[error("SQLite: {0}; if the file system reported no error this is a bug, please report it")]
    Sqlite(#[from] rusqlite::Error),
    /// An argument that makes no sense.
    #[error("{0}")]
    Usage(String),
}
