//! The error type of this crate. Messages end with the next step.

use crate::bench::BenchError;
use crate::trace::TraceError;
use syncline_fs::FsError;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, ReplayError>;

/// Why a replay did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The volume, its device or the directory refused or failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A log on the volume refused or failed.
    #[error(transparent)]
    FlashLite(#[from] syncline_flashlite::Error),
}

impl From<FsError> for ReplayError {
    fn from(err: FsError) -> ReplayError {
        BenchError::from(err).into()
    }
}
