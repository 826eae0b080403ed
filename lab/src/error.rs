//! The error type of this crate. Messages end with the next step.

use std::fmt::Display;
use std::path::Path;

use crate::bench::BenchError;
use crate::evaluate::EvaluateError;
use crate::probe::ProbeError;
use crate::replay::ReplayError;
use crate::trace::TraceError;
use syncline_cli::error::Failure;
use syncline_device::DeviceError;
use syncline_fs::FsError;
use syncline_image::{ImageError, sentence};
use syncline_nand::NandError;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, LabError>;

/// Why a command did not do what it was asked. The text is for the user.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The operation failed.
    #[error("{0}")]
    Failed(String),
    /// As that, and what was written to is at its end: full, latched, read-only.
    #[error("{0}")]
    Final(String),
    /// Arguments that make no sense.
    #[error("{0}")]
    Usage(String),
    /// A trace or an image is corrupt.
    #[error("{0}")]
    Corrupt(String),
    /// An unsupported feature.
    #[error("{0}")]
    Unsupported(String),
    /// The observer asked to stop.
    #[error("interrupted; run the command again")]
    Interrupted,
}

impl LabError {
    /// Puts `what: ` before the sentence.
    #[must_use]
    pub fn at(self, what: impl Display) -> LabError {
        let with = |text: String| format!("{what}: {text}");
        match self {
            LabError::Failed(text) => LabError::Failed(with(text)),
            LabError::Final(text) => LabError::Final(with(text)),
            LabError::Usage(text) => LabError::Usage(with(text)),
            LabError::Corrupt(text) => LabError::Corrupt(with(text)),
            LabError::Unsupported(text) => LabError::Unsupported(with(text)),
            LabError::Interrupted => LabError::Interrupted,
        }
    }

    /// A failed call of this system on `path`.
    pub fn host(path: &Path, err: &std::io::Error) -> LabError {
        ImageError::host(path, err).into()
    }

    /// An error of the trace in `path`.
    pub(crate) fn of_trace(path: &Path, err: TraceError) -> LabError {
        LabError::from(err).at(path.display())
    }
}

impl From<ImageError> for LabError {
    fn from(err: ImageError) -> LabError {
        match err {
            ImageError::Failed(text) => LabError::Failed(text),
            ImageError::Final(text) => LabError::Final(text),
            ImageError::Usage(text) => LabError::Usage(text),
            ImageError::Corrupt(text) => LabError::Corrupt(text),
            ImageError::Unsupported(text) => LabError::Unsupported(text),
            ImageError::Stopped => LabError::Interrupted,
        }
    }
}

impl From<FsError> for LabError {
    fn from(err: FsError) -> LabError {
        ImageError::from(err).into()
    }
}

impl From<DeviceError> for LabError {
    fn from(err: DeviceError) -> LabError {
        ImageError::from(err).into()
    }
}

impl From<NandError> for LabError {
    fn from(err: NandError) -> LabError {
        LabError::Usage(format!("{err}; list the profiles with `syncline-lab devices`"))
    }
}

impl From<BenchError> for LabError {
    fn from(err: BenchError) -> LabError {
        match err {
            // Mount options whose values only a mount can judge.
            BenchError::Fs(err @ FsError::Invalid(_)) => {
                LabError::Usage(format!("{err}; check the arguments with --help"))
            }
            BenchError::Fs(err) => err.into(),
            BenchError::Nand(err) => err.into(),
            BenchError::Usage(text) => LabError::Usage(text),
            other => LabError::Failed(other.to_string()),
        }
    }
}

impl From<ReplayError> for LabError {
    fn from(err: ReplayError) -> LabError {
        match err {
            ReplayError::Bench(err) => err.into(),
            ReplayError::Trace(err) => err.into(),
            ReplayError::FlashLite(err) => LabError::Failed(err.to_string()),
        }
    }
}

impl From<ProbeError> for LabError {
    fn from(err: ProbeError) -> LabError {
        match err {
            ProbeError::Nand(err) => err.into(),
            ProbeError::Usage(text) => LabError::Usage(text),
            ProbeError::Device(_) => LabError::Failed(err.to_string()),
        }
    }
}

impl From<EvaluateError> for LabError {
    fn from(err: EvaluateError) -> LabError {
        match err {
            EvaluateError::Cache(err) => LabError::Usage(err.to_string()),
            EvaluateError::Usage(text) => LabError::Usage(text),
            EvaluateError::Refused(text) => LabError::Failed(sentence(&text)),
            EvaluateError::Device(DeviceError::Open { path, reason, .. }) => {
                LabError::Failed(format!("{path}: {}", sentence(&reason)))
            }
            EvaluateError::Device(_) => LabError::Failed(err.to_string()),
            EvaluateError::Nand(err) => err.into(),
            EvaluateError::Trace(err) => err.into(),
        }
    }
}

impl From<TraceError> for LabError {
    fn from(err: TraceError) -> LabError {
        let text = err.to_string();
        match err {
            TraceError::Io { .. } => LabError::Failed(sentence(&text)),
            TraceError::Corrupt(_) => LabError::Corrupt(text),
            TraceError::Unsupported(_) => LabError::Unsupported(text),
            TraceError::Usage(_) => LabError::Usage(text),
            TraceError::Stopped => LabError::Interrupted,
        }
    }
}

impl From<LabError> for Failure {
    fn from(err: LabError) -> Failure {
        match err {
            LabError::Failed(text) => Failure::Failed(text),
            LabError::Final(text) => Failure::Final(text),
            LabError::Usage(text) => Failure::Usage(text),
            LabError::Corrupt(text) => Failure::Corrupt(text),
            LabError::Unsupported(text) => Failure::Unsupported(text),
            LabError::Interrupted => Failure::Interrupted,
        }
    }
}

impl From<BenchError> for Failure {
    fn from(err: BenchError) -> Failure {
        LabError::from(err).into()
    }
}

impl From<TraceError> for Failure {
    fn from(err: TraceError) -> Failure {
        LabError::from(err).into()
    }
}
