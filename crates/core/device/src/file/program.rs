//! Programs of the system that are run with the rights of their caller.
//!
//! Promises: as root no program is run that somebody else could have put there or could exchange:
//! it and every directory above it belong to root, and nobody else may write to it. As another user
//! `PATH` decides. Tested below.

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

/// True if nobody but root can change what `file` is.
fn is_roots(file: &Path) -> bool {
    let Ok(file) = std::fs::canonicalize(file) else { return false };
    file.ancestors().enumerate().all(|(above, path)| {
        std::fs::metadata(path).is_ok_and(|meta| {
            let kept = above > 0 && meta.mode() & STICKY != 0;
            meta.uid() == 0 && (kept || meta.mode() & OTHERS_WRITE == 0)
        })
    })
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
    }
}
