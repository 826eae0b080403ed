//! Failure of a command: a sentence that ends with the next step, and an exit code.
//!
//! ```text
//!   0 done   1 failed   2 usage   3 corrupt   4 unsupported feature   130 interrupted
//! ```

use std::fmt::Display;
use std::path::Path;

use syncline_device::DeviceError;
#[cfg(target_os = "linux")]
use syncline_flashlite::Error as FlashliteError;
use syncline_fs::FsError;
#[cfg(target_os = "linux")]
use syncline_fuse::FuseError;
use syncline_image::ImageError;
pub use syncline_image::{plain, sentence};
use syncline_ondisk::OndiskError;
#[cfg(target_os = "linux")]
use syncline_recorder::RecorderError;

/// Result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The operation failed.
    Failed(String),
    /// As that, and what was written to is at its end: full, latched, read-only.
    Final(String),
    /// Arguments that make no sense.
    Usage(String),
    /// The image is corrupt.
    Corrupt(String),
    /// An unsupported feature.
    Unsupported(String),
    /// Ctrl-C; what had to be said has been said.
    Interrupted,
    /// The reader of standard output has gone: no failure, but no use to go on.
    PipeClosed,
    /// Everything was said already.
    Said(u8),
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::PipeClosed => 0,
            Failure::Failed(_) | Failure::Final(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Corrupt(_) => 3,
            Failure::Unsupported(_) => 4,
            Failure::Interrupted => 130,
            Failure::Said(code) => *code,
        }
    }

    /// The sentence for standard error.
    pub fn message(&self) -> Option<&str> {
        match self {
            Failure::Failed(text)
            | Failure::Final(text)
            | Failure::Usage(text)
            | Failure::Corrupt(text)
            | Failure::Unsupported(text) => Some(text),
            Failure::Interrupted => Some("interrupted; run the command again"),
            Failure::PipeClosed | Failure::Said(_) => None,
        }
    }

    /// Puts `what: ` before the sentence.
    pub fn at(self, what: impl Display) -> Failure {
        let with = |text: String| format!("{what}: {text}");
        match self {
            Failure::Failed(text) => Failure::Failed(with(text)),
            Failure::Final(text) => Failure::Final(with(text)),
            Failure::Usage(text) => Failure::Usage(with(text)),
            Failure::Corrupt(text) => Failure::Corrupt(with(text)),
            Failure::Unsupported(text) => Failure::Unsupported(with(text)),
            other => other,
        }
    }

    /// A failed call of this system.
    pub fn host(path: &Path, err: &std::io::Error) -> Failure {
        ImageError::host(path, err).into()
    }
}

impl From<ImageError> for Failure {
    fn from(err: ImageError) -> Failure {
        match err {
            ImageError::Failed(text) => Failure::Failed(text),
            ImageError::Final(text) => Failure::Final(text),
            ImageError::Usage(text) => Failure::Usage(text),
            ImageError::Corrupt(text) => Failure::Corrupt(text),
            ImageError::Unsupported(text) => Failure::Unsupported(text),
            ImageError::Stopped => Failure::Interrupted,
        }
    }
}

impl From<FsError> for Failure {
    fn from(err: FsError) -> Failure {
        ImageError::from(err).into()
    }
}

#[cfg(target_os = "linux")]
impl From<FuseError> for Failure {
    fn from(err: FuseError) -> Failure {
        match err {
            FuseError::Usage(text) => Failure::Usage(text),
            FuseError::Fs(err) => err.into(),
            FuseError::Mount(text) => Failure::Failed(text),
            err @ FuseError::Trace { .. } => Failure::Failed(sentence(&err.to_string())),
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(err: DeviceError) -> Failure {
        ImageError::from(err).into()
    }
}

impl From<OndiskError> for Failure {
    fn from(err: OndiskError) -> Failure {
        FsError::from(err).into()
    }
}

#[cfg(target_os = "linux")]
impl From<FlashliteError> for Failure {
    fn from(err: FlashliteError) -> Failure {
        let text = err.to_string();
        match err {
            FlashliteError::Stopped => Failure::Interrupted,
            FlashliteError::Usage(_) => Failure::Usage(text),
            FlashliteError::NotALog | FlashliteError::Corrupt { .. } => Failure::Corrupt(text),
            FlashliteError::Unsupported { .. } => Failure::Unsupported(text),
            FlashliteError::Full | FlashliteError::Latched => Failure::Final(text),
            FlashliteError::Io { .. } => Failure::Failed(sentence(&text)),
            _ => Failure::Failed(text),
        }
    }
}

#[cfg(target_os = "linux")]
impl From<RecorderError> for Failure {
    fn from(err: RecorderError) -> Failure {
        match &err {
            RecorderError::Usage(text) => Failure::Usage(text.clone()),
            _ => Failure::Failed(sentence(&err.to_string())),
        }
    }
}
