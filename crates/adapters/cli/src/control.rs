//! The control socket of a directory, with errors in sentences.

use std::path::Path;

use syncline_control::socket::{self, AskError};
pub use syncline_control::socket::{Bound, ControlSocket, Handler};

use crate::error::{Failure, Result, plain};

/// Answers for `dir`, an absolute path without links.
///
/// # Errors
/// Somebody answers for it already, or no thread can be made.
pub fn answer(dir: &Path, handler: Handler) -> Result<ControlSocket> {
    ControlSocket::answer(dir, handler).map_err(|err| taken(dir, &err))
}

/// Binds the socket of `dir`, an absolute path without links.
///
/// # Errors
/// Somebody answers for it already.
pub fn bind(dir: &Path) -> Result<Bound> {
    Bound::new(dir).map_err(|err| taken(dir, &err))
}

fn taken(dir: &Path, err: &std::io::Error) -> Failure {
    Failure::Failed(format!(
        "{}: no control socket, so `ctl` and remount do not reach it: {}; end the process that \
             serves this directory",
        dir.display(),
        plain(err)
    ))
}

/// Asks the process that serves `dir`. `None`: nobody does.
///
/// # Errors
/// The error that it answered, or the lack of an answer.
pub fn ask(dir: &Path, line: &str) -> Result<Option<String>> {
    let dir = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    socket::ask(&dir, line).map_err(|err| {
        let why = match err {
            AskError::Refused(why) => why,
            AskError::Denied(user) => {
                format!("user {user} serves it; ask as that user or root")
            }
            AskError::Stranger(user) => {
                format!("user {user} answers for it but does not serve it; end that process")
            }
            AskError::Broken(err) => {
                format!("the process that serves it does not answer: {}; try again", plain(&err))
            }
        };
        Failure::Failed(format!("{}: {why}", dir.display()))
    })
}
