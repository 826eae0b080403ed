//! The error type of this crate. Messages end with the next step.

use crate::trace::TraceError;
use syncline_cache::CacheError;
use syncline_device::DeviceError;
use syncline_nand::NandError;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, EvaluateError>;

/// Why a trace was not evaluated.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// No policy of that name.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The device failed.
    #[error("{0}; look at the device and run again")]
    Device(#[from] DeviceError),
    /// A profile or a size that cannot be built.
    #[error(transparent)]
    Nand(#[from] NandError),
    /// The trace could not be read, or the trace after the cache not written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Something would have been overwritten, or is out of reach.
    #[error("{0}")]
    Refused(String),
    /// An argument that makes no sense.
    #[error("{0}")]
    Usage(String),
}
