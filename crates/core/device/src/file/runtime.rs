//! A user's directory for what must not outlive the boot and must not be anybody else's: locks and
//! control sockets.
//!
//! ```text
//!   root     /run/syncline
//!   others   /run/user/UID/syncline, without that /tmp/syncline-UID
//! ```
//!
//! Promises: the directory belongs to the user, and nobody else may change what is in it. One that
//! somebody else has made in its place is refused by name. Tested below.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Bits with which others could change a directory.
const OTHERS_WRITE: u32 = 0o022;

/// The runtime directory of the user `uid`; that of the calling user is made.
///
/// # Errors
/// It is not there, or somebody else's.
pub fn runtime_dir(uid: u32) -> io::Result<PathBuf> {
    let own = uid == geteuid().as_raw();
    let session = PathBuf::from(format!("/run/user/{uid}"));
    let (dir, mode) = match uid {
        0 => (PathBuf::from("/run/syncline"), 0o755),
        _ if is_owned(&session, uid).is_ok() => (session.join("syncline"), 0o700),
        _ => (PathBuf::from(format!("/tmp/syncline-{uid}")), 0o700),
    };
    if own && !dir.exists() {
        match make(&dir, mode) {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
            _ => {}
        }
    }
    is_owned(&dir, uid)?;
    Ok(dir)
}

/// Others look for root's lock files. So the mode is this one whatever the umask is; units of
/// systemd set one of 0077.
fn make(dir: &Path, mode: u32) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(mode).create(dir)?;
    std::fs::set_permissions(dir, Permissions::from_mode(mode))
}

/// Fails unless `dir` is a directory of this user alone.
fn is_owned(dir: &Path, uid: u32) -> io::Result<()> {
    let meta = std::fs::symlink_metadata(dir)?;
    if meta.is_dir() && meta.uid() == uid && meta.mode() & OTHERS_WRITE == 0 {
        return Ok(());
    }
    let text = format!("{} is not a directory of user {uid} alone; remove it", dir.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_not_the_umasks() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("dir");
        // More than any usual umask leaves.
        make(&dir, 0o777).unwrap();
        assert_eq!(dir.metadata().unwrap().mode() & 0o777, 0o777);
    }

    #[test]
    fn the_directory_is_the_users_own() {
        let uid = geteuid().as_raw();
        let dir = runtime_dir(uid).unwrap();
        assert!(is_owned(&dir, uid).is_ok() && is_owned(&dir, uid + 1).is_err());
        let scratch = tempfile::tempdir().unwrap();
        let open = scratch.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        assert!(is_owned(&open, uid).is_err(), "others may write");
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(is_owned(&link, uid).is_err(), "a link");
        assert!(runtime_dir(4_000_000).is_err(), "nobody has made it");
    }
}
