//! Systems without files: WebAssembly in a browser.

use std::io;

/// True for the error of a wait that was to stop: nothing waits here.
pub(crate) fn is_stop(_: &io::Error) -> bool {
    false
}

/// User and group of what is made: those of root.
pub(crate) fn user() -> (u32, u32) {
    (0, 0)
}

/// Users and groups have no numbers here.
pub(crate) fn user_of(_: &[u8]) -> Option<u32> {
    None
}

/// As [`user_of`].
pub(crate) fn group_of(_: &[u8]) -> Option<u32> {
    None
}

/// Permissions that new files in an image do not get, as umask(2) mostly is.
pub(crate) fn umask() -> u32 {
    0o022
}
