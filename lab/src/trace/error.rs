//! The error type of this crate. Messages end with the next step.

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, TraceError>;

/// Why a trace was not read, written or understood.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The bytes below could not be read or written.
    #[error("{what}: {source}; check the file, its permissions and the free space")]
    Io {
        /// The step that failed.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The bytes break a rule of their format.
    #[error("{0}")]
    Corrupt(String),
    /// A format or a version that is not read.
    #[error("{0}")]
    Unsupported(String),
    /// An argument that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The consumer of the records asked to stop.
    #[error("stopped; run the command again")]
    Stopped,
}

impl TraceError {
    /// A failed read or write.
    pub fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> TraceError {
        move |source| TraceError::Io { what, source }
    }
}
