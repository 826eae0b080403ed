//! Why a recording could not be made or read.

/// Result of this crate.
pub type Result<T> = std::result::Result<T, RecorderError>;

/// Each message ends with the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecorderError {
    /// A configuration or call that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The file system did not do what it was asked.
    #[error("{what}: {reason}; check the free space and the device, then trigger a new event")]
    Io {
        /// The call and the file.
        what: String,
        /// Error of the system.
        reason: String,
    },
    /// A file that cannot be read.
    #[error("{what}: {reason}; check the path and its permissions")]
    Read {
        /// The file.
        what: String,
        /// Error of the system.
        reason: String,
    },
}

impl RecorderError {
    /// A call of the system that failed.
    pub fn io(what: impl Into<String>, error: &dyn std::fmt::Display) -> RecorderError {
        RecorderError::Io { what: what.into(), reason: error.to_string() }
    }

    /// A read that failed.
    pub fn read(what: impl Into<String>, error: &dyn std::fmt::Display) -> RecorderError {
        RecorderError::Read { what: what.into(), reason: error.to_string() }
    }
}
