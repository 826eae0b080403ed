//! Errors of calls by path: Linux's number and a sentence with the next step.

use std::fmt;

use syncline_device::DeviceError;
use syncline_fs::FsError;

/// Result of every call by path.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::{Access, Disk};
///
/// fn note(disk: &Disk, text: &[u8]) -> syncline::Result<()> {
///     let file = disk.open_file(b"/note", Access::CREATE, 0o644)?;
///     file.write(text)?;
///     file.sync(false)
/// }
/// note(&disk, b"done")?;
/// # Ok::<(), syncline::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) const EIO: i32 = 5;
pub(crate) const EBADF: i32 = 9;
const EAGAIN: i32 = 11;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const EINVAL: i32 = 22;
#[cfg(feature = "images")]
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EROFS: i32 = 30;
pub(crate) const EOPNOTSUPP: i32 = 95;
#[cfg(feature = "images")]
pub(crate) const EUCLEAN: i32 = 117;

/// Why an operation was not done.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::{Access, Disk};
///
/// let err = disk.open_file(b"/no/such", Access::READ, 0).unwrap_err();
/// assert_eq!(err.errno, 2); // ENOENT
/// assert_eq!(err.to_string(), "/no/such: no such file or directory");
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// Linux's errno, above 0.
    pub errno: i32,
    /// One sentence that ends with the next step.
    pub text: String,
}

impl Error {
    /// An error with this number and sentence.
    pub fn new(errno: i32, text: impl Into<String>) -> Error {
        Error { errno, text: text.into() }
    }

    /// EINVAL.
    pub fn invalid(text: impl Into<String>) -> Error {
        Error::new(EINVAL, text)
    }

    /// Puts `what: ` before the sentence.
    #[must_use]
    pub fn at(self, what: impl fmt::Display) -> Error {
        Error { errno: self.errno, text: format!("{what}: {}", self.text) }
    }

    pub(crate) fn host(what: impl fmt::Display, err: &std::io::Error) -> Error {
        let said = without_number(&err.to_string());
        let text = format!("{what}: {said}; check the path and its permissions");
        Error::new(err.raw_os_error().unwrap_or(EIO), text)
    }
}

/// A sentence without Rust's "(os error 2)": the number is in the error beside it.
fn without_number(said: &str) -> String {
    let Some((before, rest)) = said.split_once(" (os error ") else { return said.to_owned() };
    format!("{before}{}", rest.split_once(')').map_or("", |(_, after)| after))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl From<FsError> for Error {
    fn from(err: FsError) -> Error {
        Error::new(err.errno(), without_number(&err.to_string()))
    }
}

impl From<DeviceError> for Error {
    fn from(err: DeviceError) -> Error {
        let errno = match &err {
            // An image that is locked: callers know it as the busy one.
            DeviceError::Open { errno: EAGAIN, .. } => EBUSY,
            DeviceError::Open { errno, .. } | DeviceError::Io { errno, .. } => *errno,
            DeviceError::OutOfRange { .. } => EINVAL,
            DeviceError::ReadOnly => EROFS,
            _ => EIO,
        };
        Error::new(errno, without_number(&err.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Disk, OpenOptions};

    #[test]
    fn a_sentence_has_no_number_of_rust() {
        let err = Disk::open("/none/a.img".as_ref(), &OpenOptions::default()).unwrap_err();
        let said = "/none/a.img: No such file or directory; check the path and its permissions";
        assert_eq!((err.errno, err.text.as_str()), (2, said));
    }
}
