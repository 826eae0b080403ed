//! Errors of the library, with the next step in each message.

use std::io;

/// An error of this library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The storage below failed.
    #[error("{doing}: {source}; {}", next_step(source))]
    Io {
        /// Operation that failed.
        doing: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The storage below has no room. Nothing is lost; the same call can be made again.
    #[error("no space left for the log or its file; free some and repeat the command")]
    Full,
    /// There is no log here.
    #[error("this is not a FlashLite log; check the name of the file")]
    NotALog,
    /// Data that had been made durable is damaged.
    #[error(
        "the log is damaged at byte {position} ({what}); restore it from a copy, or download \
         again what `check` names, all of it if that fails too"
    )]
    Corrupt {
        /// Damaged part.
        what: &'static str,
        /// Byte of the log.
        position: u64,
    },
    /// A log of another version.
    #[error("unsupported: a FlashLite log of version {version}; use the release that wrote it")]
    Unsupported {
        /// As in the header.
        version: u32,
    },
    /// The call cannot be made like this.
    #[error("{0}")]
    Usage(&'static str),
    /// A write or sync failed before, so what is durable is not known.
    #[error("an earlier write or sync of this log failed; close it, check the disk, open it again")]
    Latched,
    /// The bytes have been moved to the file that the log is being rearranged to.
    #[error(
        "the first {until} bytes are only in the rearranged file by now; finish the rearranging"
    )]
    Moved {
        /// Logical bytes that are no longer in the log.
        until: u64,
    },
    /// The progress callback asked to stop; the work done so far is kept.
    #[error("stopped; call it again with the same destination to continue")]
    Stopped,
}

/// Short for results of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// Returns advice for an error of the system.
fn next_step(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "check its permissions",
        io::ErrorKind::ReadOnlyFilesystem => "choose a place that can be written",
        io::ErrorKind::AlreadyExists => "choose another name or remove it",
        io::ErrorKind::IsADirectory => "name a file",
        io::ErrorKind::ResourceBusy => "wait until that is done",
        _ => "check the disk below and try again",
    }
}

impl Error {
    /// For `map_err`: what was being done when the storage failed.
    pub(crate) fn io(doing: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full,
            _ => Error::Io { doing, source },
        }
    }

    pub(crate) fn corrupt(what: &'static str, position: u64) -> Error {
        Error::Corrupt { what, position }
    }
}
