//! System calls of a process on a processor whose calls the filter does not know, as 32-bit ARM:
//! the other layers hold.

use std::io::{Error, ErrorKind};

fn none() -> Error {
    Error::new(ErrorKind::Unsupported, "no filter of system calls on this processor")
}

/// Fails, so that the layer is not among those that hold.
pub(super) fn install(_: bool, _: bool) -> Result<(), Error> {
    Err(none())
}

/// Fails, as [`install`].
pub(super) fn install_for_command(_: bool) -> Result<(), Error> {
    Err(none())
}
