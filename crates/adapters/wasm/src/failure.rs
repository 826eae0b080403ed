//! Errors as JavaScript gets them: a code as of errno, and a sentence.

use syncline_device::DeviceError;
use syncline_fs::FsError;
use syncline_image::ImageError;
use syncline_ondisk::OndiskError;

/// Result of a call.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a call failed.
#[derive(Debug)]
pub struct Failure {
    /// Name of an errno.
    pub code: &'static str,
    /// A sentence.
    pub message: String,
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }
}

/// Names of the numbers of [`FsError::errno`].
fn name(errno: i32) -> &'static str {
    const NAMES: [(i32, &str); 22] = [
        (1, "EPERM"),
        (2, "ENOENT"),
        (5, "EIO"),
        (6, "ENXIO"),
        (7, "E2BIG"),
        (16, "EBUSY"),
        (17, "EEXIST"),
        (18, "EXDEV"),
        (20, "ENOTDIR"),
        (21, "EISDIR"),
        (22, "EINVAL"),
        (27, "EFBIG"),
        (28, "ENOSPC"),
        (30, "EROFS"),
        (31, "EMLINK"),
        (34, "ERANGE"),
        (36, "ENAMETOOLONG"),
        (39, "ENOTEMPTY"),
        (40, "ELOOP"),
        (61, "ENODATA"),
        (95, "EOPNOTSUPP"),
        (117, "EUCLEAN"),
    ];
    NAMES.iter().find(|(number, _)| *number == errno).map_or("ESTALE", |(_, name)| name)
}

impl From<FsError> for Failure {
    fn from(err: FsError) -> Failure {
        Failure::new(name(err.errno()), err.to_string())
    }
}

impl From<ImageError> for Failure {
    fn from(err: ImageError) -> Failure {
        let code = match &err {
            ImageError::Failed(_) => "EIO",
            ImageError::Final(_) => "EROFS",
            ImageError::Usage(_) => "EINVAL",
            ImageError::Corrupt(_) => "EUCLEAN",
            ImageError::Unsupported(_) => "EOPNOTSUPP",
            ImageError::Stopped => "ECANCELED",
        };
        Failure::new(code, err.to_string())
    }
}

impl From<DeviceError> for Failure {
    fn from(err: DeviceError) -> Failure {
        FsError::from(err).into()
    }
}

impl From<OndiskError> for Failure {
    fn from(err: OndiskError) -> Failure {
        FsError::from(err).into()
    }
}
