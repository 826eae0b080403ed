//! Systems whose users and groups have no numbers: all but Unix.

/// User and group of what is made: those of root.
pub fn user() -> (u32, u32) {
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

/// False: there is no way to ask for the holes of a file here.
pub(crate) fn is_hole(_: &std::path::Path) -> bool {
    false
}
