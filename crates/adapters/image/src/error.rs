//! The error type of this crate. Each message is one sentence that ends with the next step.

use std::fmt::Display;
use std::path::Path;

use syncline_device::DeviceError;
use syncline_fs::FsError;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, ImageError>;

/// Why something was not done.
#[derive(Debug)]
pub enum ImageError {
    /// The operation failed.
    Failed(String),
    /// The target takes nothing more: it is full, read-only, or latched after a failed write.
    Final(String),
    /// Arguments that make no sense.
    Usage(String),
    /// The image is corrupt.
    Corrupt(String),
    /// An unsupported feature.
    Unsupported(String),
    /// [`crate::Watch::stopped`] said so.
    Stopped,
}

impl std::error::Error for ImageError {}

impl Display for ImageError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ImageError::Failed(text)
            | ImageError::Final(text)
            | ImageError::Usage(text)
            | ImageError::Corrupt(text)
            | ImageError::Unsupported(text) => out.write_str(text),
            ImageError::Stopped => out.write_str("interrupted; run the command again"),
        }
    }
}

impl ImageError {
    /// Puts `what: ` before the sentence.
    #[must_use]
    pub fn at(self, what: impl Display) -> ImageError {
        self.map(|text| format!("{what}: {text}"))
    }

    fn map(self, with: impl FnOnce(String) -> String) -> ImageError {
        match self {
            ImageError::Failed(text) => ImageError::Failed(with(text)),
            ImageError::Final(text) => ImageError::Final(with(text)),
            ImageError::Usage(text) => ImageError::Usage(with(text)),
            ImageError::Corrupt(text) => ImageError::Corrupt(with(text)),
            ImageError::Unsupported(text) => ImageError::Unsupported(with(text)),
            ImageError::Stopped => ImageError::Stopped,
        }
    }

    /// Names `shown` where the sentence has `hidden`: a temporary name means nothing to the user.
    #[must_use]
    pub(crate) fn naming(self, hidden: &str, shown: &str) -> ImageError {
        self.map(|text| text.replace(hidden, shown))
    }

    /// A failed call of this system on `path`.
    pub fn host(path: &Path, err: &std::io::Error) -> ImageError {
        if crate::platform::is_stop(err) {
            return ImageError::Stopped;
        }
        // A call on a path has no other connection than that of a FUSE mount to its server.
        if err.kind() == std::io::ErrorKind::NotConnected {
            let dir = dead_mount(path).display();
            let text = format!(
                "{}: the server of this mount died; detach it with `syncline umount {dir}`",
                path.display()
            );
            return ImageError::Failed(text);
        }
        let next = match err.kind() {
            std::io::ErrorKind::NotFound => "check the path",
            std::io::ErrorKind::PermissionDenied => "check its permissions",
            std::io::ErrorKind::StorageFull => "make room and run the command again",
            std::io::ErrorKind::AlreadyExists => "choose another name or remove it",
            _ => "check the path, its permissions and the free space",
        };
        let text = format!("{}: {}; {next}", path.display(), plain(err));
        match err.kind() {
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::ReadOnlyFilesystem => ImageError::Final(text),
            _ => ImageError::Failed(text),
        }
    }
}

/// The directory of the mount that has no server: the first part of a path which gives that error.
fn dead_mount(path: &Path) -> &Path {
    let is_dead = |dir: &&Path| {
        std::fs::symlink_metadata(dir)
            .is_err_and(|err| err.kind() == std::io::ErrorKind::NotConnected)
    };
    path.ancestors().filter(is_dead).last().unwrap_or(path)
}

/// Text of a system error as part of a sentence: without Rust's "(os error 2)", the name of a
/// temporary file, and its capital letter.
pub fn plain(err: &std::io::Error) -> String {
    sentence(&err.to_string())
}

/// A message of Rust's as part of a sentence.
pub fn sentence(text: &str) -> String {
    let (before, after) = match text.split_once(" (os error ") {
        Some((before, rest)) => (before, rest.split_once(')').map_or("", |(_, after)| after)),
        None => (text, ""),
    };
    let after = if after.starts_with(" at path ") { "" } else { after };
    // A message of Windows ends with a full stop.
    let mut letters = before.trim_end_matches('.').chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).chain(after.chars()).collect()
}

/// The next step for errors whose text does not name one.
fn next_step(err: &FsError) -> &'static str {
    match err {
        FsError::NotFound => "; list its directory with `syncline ls`",
        FsError::Exists => "; choose another name or remove it first",
        FsError::NotDir => "; a part of the path is a file, check it with `syncline ls`",
        FsError::IsDir => "; name a file in it",
        FsError::NotEmpty => "; remove what is in it first",
        FsError::NameTooLong => "; choose a shorter name",
        FsError::TooManyLinks => "; put it into another directory",
        FsError::Loop => "; look at the links with `syncline stat`",
        FsError::TooBig => "; use a volume with larger blocks",
        FsError::Perm => "; clear the attribute first (chattr on a mounted volume)",
        FsError::CrossDevice => "; copy it with `syncline cp` instead",
        FsError::NotSupported(_) => "; use the kernel's ext4 for this",
        FsError::Invalid(_) => "; check the arguments with --help",
        FsError::Busy => "; close what uses it",
        FsError::Stale => "; run `syncline check` on the image",
        FsError::NoData | FsError::Range | FsError::ArgumentTooBig | FsError::NoSuchOffset => {
            "; run `syncline check` on the image"
        }
        // The others name it themselves.
        _ => "",
    }
}

impl From<FsError> for ImageError {
    fn from(err: FsError) -> ImageError {
        let text = format!("{}{}", sentence(&err.to_string()), next_step(&err));
        match err {
            FsError::Corrupt { .. } => ImageError::Corrupt(text),
            FsError::Unsupported(_) if text.contains("; ") => ImageError::Unsupported(text),
            FsError::Unsupported(_) => {
                ImageError::Unsupported(format!("{text}; use the kernel's ext4 for this image"))
            }
            FsError::NotSupported(_) => ImageError::Unsupported(text),
            FsError::Latched(_) | FsError::NoSpace | FsError::ReadOnly => ImageError::Final(text),
            _ => ImageError::Failed(text),
        }
    }
}

impl From<DeviceError> for ImageError {
    fn from(err: DeviceError) -> ImageError {
        match &err {
            DeviceError::Open { path, reason, .. } => {
                ImageError::Failed(format!("{path}: {}", sentence(reason)))
            }
            _ => FsError::Io(err).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_name_is_not_shown() {
        let err = ImageError::Final("img:/a/.syncline-7-1.tmp: full; make room".into());
        assert_eq!(
            err.naming("/a/.syncline-7-1.tmp", "/a/b").to_string(),
            "img:/a/b: full; make room"
        );
    }

    #[test]
    fn a_mount_without_a_server_is_named() {
        let err = std::io::Error::from(std::io::ErrorKind::NotConnected);
        let text = ImageError::host(Path::new("/mnt/card"), &err).to_string();
        assert_eq!(
            text,
            "/mnt/card: the server of this mount died; detach it with `syncline umount /mnt/card`"
        );
    }

    #[test]
    fn errors_of_the_system_read_as_sentences() {
        let text = sentence("No such file (os error 2) at path \"/tmp/.x-8fq\"");
        assert_eq!(text, "no such file");
        let text = sentence("No such file (os error 2); check the path");
        assert_eq!(text, "no such file; check the path");
        assert_eq!(sentence("Invalid handle. (os error 6)"), "invalid handle");
        assert_eq!(sentence("Broken"), "broken");
        assert_eq!(sentence(""), "");
    }
}
