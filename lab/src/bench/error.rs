//! The error type of this crate. Messages end with the next step.

use syncline_buffer::BufferError;
use syncline_device::DeviceError;
use syncline_fs::FsError;
use syncline_nand::NandError;
use syncline_sqlite::VfsError;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Why a workload did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The volume refused or failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The device failed.
    #[error("{0}; look at the device and run again")]
    Device(#[from] DeviceError),
    /// The write buffer refused or failed.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A profile is unknown or bad.
    #[error(transparent)]
    Nand(#[from] NandError),
    /// SQLite refused or failed.
    #[error("SQLite: {0}; if the file system reported no error this is a bug, please report it")]
    Sqlite(#[from] rusqlite::Error),
    /// The host file system failed (`--dir`, or a temporary file).
    #[error("{path}: {reason}; check the path, its permissions and the free space")]
    Host {
        /// The path.
        path: String,
        /// The system's error.
        reason: String,
        /// Linux errno, 5 (EIO) where none is known.
        errno: i32,
    },
    /// An argument that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A file system image could not be made.
    #[error("{0}")]
    Image(String),
    /// The file read back differs from what was written.
    #[error("{0}; the data is wrong, please report this with the seed")]
    Wrong(String),
}

impl From<VfsError> for BenchError {
    fn from(err: VfsError) -> BenchError {
        match err {
            VfsError::Sqlite(err) => BenchError::Sqlite(err),
            VfsError::Usage(text) => BenchError::Usage(text),
        }
    }
}

impl BenchError {
    /// From an error of `std::fs` at `path`.
    pub fn host(path: impl std::fmt::Display, err: &std::io::Error) -> BenchError {
        BenchError::Host {
            path: path.to_string(),
            reason: err.to_string(),
            errno: err.raw_os_error().unwrap_or(5),
        }
    }
}
