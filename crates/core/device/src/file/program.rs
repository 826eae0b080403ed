//! Programs of the system that are run with the rights of their caller.
//!
//! Promises: as root no program is run that somebody else could have put there or could exchange:
//! it, every directory above it and every link on the way belong to root, and nobody else may write
//! to it. As another user `PATH` decides. Tested below.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Bits with which others could change a file or directory, and the bit that keeps them from
/// removing each other's names.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Directories for administrators, which are often not on the `PATH` of others.
pub const SBIN: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The first program of this name on the `PATH`, or in the directories `more`.
pub fn find_program(name: &str, more: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = more.iter().map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(more).map(|dir| dir.join(name));
    found.filter(|file| file.is_file()).find(|file| may_run(file))
}

/// True if this process may run the program `file`: as root, if nobody but root can change it.
pub fn may_run(file: &Path) -> bool {
    !geteuid().is_root() || is_roots(file)
}

/// Symbolic links on the way to a program, as in Linux.
const LINKS_MAX: usize = 40;

/// True if nobody but root can change what `file` is: neither a directory on the way, nor a link.
fn is_roots(file: &Path) -> bool {
    let Ok(mut rest) = std::path::absolute(file) else { return false };
    for _ in 0..=LINKS_MAX {
        match first_link(&rest) {
            Ok(Some(target)) => rest = target,
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
    false
}

/// Follows the first symbolic link in a path: what the path is then, and `None` without a link. An
/// error if somebody else could change a name on the way.
fn first_link(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut at = PathBuf::new();
    let mut parts = path.components();
    while let Some(part) = parts.next() {
        let dir = at.clone();
        at.push(part);
        let meta = std::fs::symlink_metadata(&at)?;
        let kept = meta.is_dir() && meta.mode() & STICKY != 0;
        if meta.uid() != 0 || !(meta.is_symlink() || kept || meta.mode() & OTHERS_WRITE == 0) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if meta.is_symlink() {
            return Ok(Some(dir.join(std::fs::read_link(&at)?).join(parts.as_path())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_that_others_can_change_is_not_roots() {
        assert!(is_roots(Path::new("/bin/sh")) && !is_roots(Path::new("/no such program")));
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, "").unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&program, 0o777);
        assert!(!is_roots(&program), "anybody may write to it");
        set(&program, 0o755);
        set(dir.path(), 0o777);
        assert!(!is_roots(&program), "anybody may put another one there");
        set(dir.path(), 0o755);
        assert_eq!(is_roots(&program), geteuid().is_root());

        // A user who may exchange a link, of a file or of a directory, chooses the program.
        let (link, dirs) = (dir.path().join("link"), dir.path().join("dirs"));
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        std::os::unix::fs::symlink("/bin/", &dirs).unwrap();
        set(dir.path(), 0o777);
        for at in [link, dirs.join("sh")] {
            assert!(!is_roots(&at), "{}", at.display());
        }
        set(dir.path(), 0o755);
        assert_eq!(is_roots(&dirs.join("sh")), geteuid().is_root());
        let own = dir.path().join("own");
        std::os::unix::fs::symlink("own", &own).unwrap();
        assert!(!is_roots(&own), "a loop");
    }
}
