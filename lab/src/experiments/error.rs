//! The error type of this crate. Messages end with the next step.

use std::fmt::Display;
use std::path::Path;

use crate::bench::BenchError;
use syncline_device::DeviceError;
use crate::evaluate::EvaluateError;
use syncline_fs::FsError;
use syncline_image::{ImageError, sentence};
use syncline_nand::NandError;
use crate::probe::ProbeError;
use crate::replay::ReplayError;
use crate::trace::TraceError;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, StudyError>;

/// Why a command did not do what it was asked. The text is for the user.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
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

impl StudyError {
    /// Puts `what: ` before the sentence.
    #[must_use]
    pub fn at(self, what: impl Display) -> StudyError {
        let with = |text: String| format!("{what}: {text}");
        match self {
            StudyError::Failed(text) => StudyError::Failed(with(text)),
            StudyError::Final(text) => StudyError::Final(with(text)),
            StudyError::Usage(text) => StudyError::Usage(with(text)),
            StudyError::Corrupt(text) => StudyError::Corrupt(with(text)),
            StudyError::Unsupported(text) => StudyError::Unsupported(with(text)),
            StudyError::Interrupted => StudyError::Interrupted,
        }
    }

    /// A failed call of this system on `path`.
    pub fn host(path: &Path, err: &std::io::Error) -> StudyError {
        ImageError::host(path, err).into()
    }

    /// An error of the trace in `path`.
    pub(crate) fn of_trace(path: &Path, err: TraceError) -> StudyError {
        StudyError::from(err).at(path.display())
    }
}

impl From<ImageError> for StudyError {
    fn from(err: ImageError) -> StudyError {
        match err {
            ImageError::Failed(text) => StudyError::Failed(text),
            ImageError::Final(text) => StudyError::Final(text),
            ImageError::Usage(text) => StudyError::Usage(text),
            ImageError::Corrupt(text) => StudyError::Corrupt(text),
            ImageError::Unsupported(text) => StudyError::Unsupported(text),
            ImageError::Stopped => StudyError::Interrupted,
        }
    }
}

impl From<FsError> for StudyError {
    fn from(err: FsError) -> StudyError {
        ImageError::from(err).into()
    }
}

impl From<DeviceError> for StudyError {
    fn from(err: DeviceError) -> StudyError {
        ImageError::from(err).into()
    }
}

impl From<NandError> for StudyError {
    fn from(err: NandError) -> StudyError {
        StudyError::Usage(format!("{err}; list the profiles with `syncline devices`"))
    }
}

impl From<BenchError> for StudyError {
    fn from(err: BenchError) -> StudyError {
        match err {
            // Mount options whose values only a mount can judge.
            BenchError::Fs(err @ FsError::Invalid(_)) => {
                StudyError::Usage(format!("{err}; check the arguments with --help"))
            }
            BenchError::Fs(err) => err.into(),
            BenchError::Nand(err) => err.into(),
            BenchError::Usage(text) => StudyError::Usage(text),
            other => StudyError::Failed(other.to_string()),
        }
    }
}

impl From<ReplayError> for StudyError {
    fn from(err: ReplayError) -> StudyError {
        match err {
            ReplayError::Bench(err) => err.into(),
            ReplayError::Trace(err) => err.into(),
            ReplayError::FlashLite(err) => StudyError::Failed(err.to_string()),
        }
    }
}

impl From<ProbeError> for StudyError {
    fn from(err: ProbeError) -> StudyError {
        match err {
            ProbeError::Nand(err) => err.into(),
            ProbeError::Usage(text) => StudyError::Usage(text),
            ProbeError::Device(_) => StudyError::Failed(err.to_string()),
        }
    }
}

impl From<EvaluateError> for StudyError {
    fn from(err: EvaluateError) -> StudyError {
        match err {
            EvaluateError::Cache(err) => StudyError::Usage(err.to_string()),
            EvaluateError::Usage(text) => StudyError::Usage(text),
            EvaluateError::Refused(text) => StudyError::Failed(sentence(&text)),
            EvaluateError::Device(DeviceError::Open { path, reason, .. }) => {
                StudyError::Failed(format!("{path}: {}", sentence(&reason)))
            }
            EvaluateError::Device(_) => StudyError::Failed(err.to_string()),
            EvaluateError::Nand(err) => err.into(),
            EvaluateError::Trace(err) => err.into(),
        }
    }
}

impl From<TraceError> for StudyError {
    fn from(err: TraceError) -> StudyError {
        let text = err.to_string();
        match err {
            TraceError::Io { .. } => StudyError::Failed(sentence(&text)),
            TraceError::Corrupt(_) => StudyError::Corrupt(text),
            TraceError::Unsupported(_) => StudyError::Unsupported(text),
            TraceError::Usage(_) => StudyError::Usage(text),
            TraceError::Stopped => StudyError::Interrupted,
        }
    }
}
