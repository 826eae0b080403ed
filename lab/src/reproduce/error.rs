//! The error type of this crate. Messages end with the next step.

use crate::bench::BenchError;
use crate::error::LabError;
use crate::evaluate::EvaluateError;
use crate::replay::ReplayError;
use crate::trace::TraceError;
use syncline_cli::error::Failure;
use syncline_fs::FsError;
use syncline_nand::NandError;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, ReproduceError>;

/// Why a row was not reproduced.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// A workload refused or failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A replay refused or failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A cache could not be evaluated.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// A command in real time failed.
    #[error("{command}: {reason}")]
    Command {
        /// As a reader would type it.
        command: String,
        /// The end of what it said.
        reason: String,
    },
    /// A name that the catalogue does not have, or a catalogue that contradicts itself.
    #[error("{0}")]
    Usage(String),
    /// The watch stopped the run.
    #[error("stopped; run it again")]
    Stopped,
}

impl From<NandError> for ReproduceError {
    fn from(err: NandError) -> ReproduceError {
        BenchError::from(err).into()
    }
}

impl From<TraceError> for ReproduceError {
    fn from(err: TraceError) -> ReproduceError {
        ReplayError::from(err).into()
    }
}

impl From<FsError> for ReproduceError {
    fn from(err: FsError) -> ReproduceError {
        BenchError::from(err).into()
    }
}

impl From<ReproduceError> for Failure {
    fn from(err: ReproduceError) -> Failure {
        match err {
            ReproduceError::Bench(err) => err.into(),
            ReproduceError::Replay(err) => LabError::from(err).into(),
            ReproduceError::Evaluate(err) => LabError::from(err).into(),
            ReproduceError::Usage(text) => Failure::Usage(text),
            ReproduceError::Stopped => Failure::Interrupted,
            err @ ReproduceError::Command { .. } => Failure::Failed(err.to_string()),
        }
    }
}
