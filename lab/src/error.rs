//! The error type of this crate: a class, which decides the exit code, and a sentence for the user
//! that ends with the next step.

use std::fmt::Display;
use std::path::Path;

use syncline_buffer::BufferError;
use syncline_cache::CacheError;
#[cfg(not(target_family = "wasm"))]
use syncline_cli::error::Failure;
use syncline_device::DeviceError;
use syncline_fs::FsError;
use syncline_image::{ImageError, sentence};
use syncline_nand::NandError;
use syncline_sqlite::VfsError;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, LabError>;

/// Why something was not measured, read or written.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The operation failed.
    #[error("{0}")]
    Failed(String),
    /// The volume has no space left.
    #[error("{0}")]
    NoSpace(String),
    /// The target accepts no more writes: it is latched or read-only.
    #[error("{0}")]
    Final(String),
    /// Invalid arguments.
    #[error("{0}")]
    Usage(String),
    /// A trace or an image is corrupt.
    #[error("{0}")]
    Corrupt(String),
    /// An unsupported format, version or feature.
    #[error("{0}")]
    Unsupported(String),
    /// The observer, or the consumer of records, asked to stop.
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
            LabError::NoSpace(text) => LabError::NoSpace(with(text)),
            LabError::Final(text) => LabError::Final(with(text)),
            LabError::Usage(text) => LabError::Usage(with(text)),
            LabError::Corrupt(text) => LabError::Corrupt(with(text)),
            LabError::Unsupported(text) => LabError::Unsupported(with(text)),
            LabError::Interrupted => LabError::Interrupted,
        }
    }

    /// A failed system call on `path`.
    pub fn host(path: impl AsRef<Path>, err: &std::io::Error) -> LabError {
        ImageError::host(path.as_ref(), err).into()
    }

    /// A failed read or write of a stream that has no path here; `what` names the step.
    pub fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> LabError {
        move |err| match ImageError::host(Path::new(what), &err) {
            ImageError::Stopped => LabError::Interrupted,
            _ => {
                let next = "check the file, its permissions and the free space";
                LabError::Failed(sentence(&format!("{what}: {err}; {next}")))
            }
        }
    }

    /// Data that differs from what was written.
    pub(crate) fn wrong_data(what: impl Display) -> LabError {
        let next = "the data is wrong, please report this with the seed";
        LabError::Failed(format!("{what}; {next}"))
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
        match err {
            FsError::NoSpace => LabError::NoSpace(ImageError::from(err).to_string()),
            // Mount options whose values only a mount can judge.
            FsError::Invalid(_) => LabError::Usage(ImageError::from(err).to_string()),
            _ => ImageError::from(err).into(),
        }
    }
}

impl From<DeviceError> for LabError {
    fn from(err: DeviceError) -> LabError {
        match err {
            DeviceError::Open { path, reason, .. } => {
                LabError::Failed(format!("{path}: {}", sentence(&reason)))
            }
            _ => LabError::Failed(format!("{err}; look at the device and run again")),
        }
    }
}

impl From<NandError> for LabError {
    fn from(err: NandError) -> LabError {
        LabError::Usage(match &err {
            NandError::UnknownProfile { .. } => err.to_string(),
            _ => format!("{err}; list the profiles with `syncline-lab devices`"),
        })
    }
}

impl From<CacheError> for LabError {
    fn from(err: CacheError) -> LabError {
        LabError::Usage(err.to_string())
    }
}

impl From<BufferError> for LabError {
    fn from(err: BufferError) -> LabError {
        LabError::Failed(err.to_string())
    }
}

#[cfg(not(target_family = "wasm"))]
impl From<syncline_flashlite::Error> for LabError {
    fn from(err: syncline_flashlite::Error) -> LabError {
        LabError::Failed(err.to_string())
    }
}

impl From<rusqlite::Error> for LabError {
    fn from(err: rusqlite::Error) -> LabError {
        let next = "if the file system reported no error this is a bug, please report it";
        LabError::Failed(format!("SQLite: {err}; {next}"))
    }
}

impl From<VfsError> for LabError {
    fn from(err: VfsError) -> LabError {
        match err {
            VfsError::Sqlite(err) => err.into(),
            VfsError::Usage(text) => LabError::Usage(text),
        }
    }
}

#[cfg(not(target_family = "wasm"))]
impl From<LabError> for Failure {
    fn from(err: LabError) -> Failure {
        match err {
            LabError::Failed(text) => Failure::Failed(text),
            LabError::NoSpace(text) | LabError::Final(text) => Failure::Final(text),
            LabError::Usage(text) => Failure::Usage(text),
            LabError::Corrupt(text) => Failure::Corrupt(text),
            LabError::Unsupported(text) => Failure::Unsupported(text),
            LabError::Interrupted => Failure::Interrupted,
        }
    }
}
