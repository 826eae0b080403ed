//! The error type of this crate. Messages end with the next step.

use syncline_device::DeviceError;
use syncline_nand::NandError;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, ProbeError>;

/// Why a probe or a fit did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The device failed.
    #[error("{0}; look at the device and run again")]
    Device(#[from] DeviceError),
    /// A profile is bad.
    #[error(transparent)]
    Nand(#[from] NandError),
    /// An argument that makes no sense, or a measurement that was stopped.
    #[error("{0}")]
    Usage(String),
}
