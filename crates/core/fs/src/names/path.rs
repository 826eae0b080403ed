//! Path walking: from a byte path to an inode, for callers that have no dentry cache of their own
//! (the CLI, the SQLite VFS, tests). FUSE looks names up one by one and does not come here.
//!
//! Promises: POSIX path resolution inside the volume: `/` and an empty component mean the current
//! directory, `..` of the root is the root, absolute symbolic links start again at the root of the
//! volume and never leave it. At most [`SYMLINKS_MAX`] links are followed, paths are at most
//! [`PATH_BYTES_MAX`] bytes; both bound the walk on any image. Tested in `tests/it/namespace.rs`.

use crate::error::{FsError, Result};
use crate::inode::reference::InodeRef;
use crate::names::Names;
use crate::names::namei::lookup;
use crate::names::symlink::readlink;

/// Symbolic links that one resolution follows (Linux's MAXSYMLINKS).
pub const SYMLINKS_MAX: u32 = 40;

/// Longest path in bytes (Linux's PATH_MAX without its NUL).
pub const PATH_BYTES_MAX: usize = 4095;

impl crate::Volume {
    /// Returns the inode of `path`, and follows every symbolic link. Relative paths start at the
    /// root.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDir`], [`FsError::Loop`], [`FsError::NameTooLong`], and
    /// errors of reading directories.
    pub fn resolve(&self, path: impl AsRef<[u8]>) -> Result<InodeRef> {
        walk(&self.0, self.root()?, path.as_ref(), true)
    }

    /// As [`Self::resolve`], but does not follow a symbolic link in the last component.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_nofollow(&self, path: impl AsRef<[u8]>) -> Result<InodeRef> {
        walk(&self.0, self.root()?, path.as_ref(), false)
    }

    /// Returns the directory that holds the last component of `path`, and that component, for
    /// create, unlink and rename. Trailing slashes are ignored.
    ///
    /// # Errors
    /// As [`Self::resolve`]; [`FsError::Invalid`] if there is no last component or it is `.` or
    /// `..`.
    pub fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(InodeRef, &'p [u8])> {
        let trimmed = trim_end_slashes(path);
        let (parent, name) = match trimmed.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&trimmed[..slash], &trimmed[slash + 1..]),
            None => (&trimmed[..0], trimmed),
        };
        if name.is_empty() || name == b"." || name == b".." {
            return Err(FsError::invalid("the path has no last component that could be changed"));
        }
        Ok((walk(&self.0, self.root()?, parent, true)?, name))
    }
}
pub(crate) fn walk(
    names: &Names,
    start: InodeRef,
    path: &[u8],
    follow_last: bool,
) -> Result<InodeRef> {
    if path.len() > PATH_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    let root_ino = start.ino;
    let root = start.clone();
    let mut here = start;
    let mut links = 0;
    // What is left to walk. A link's target goes in front of it, so its length is bounded by
    // the number of links times the longest target.
    let mut rest: Vec<u8> = path.to_vec();
    let mut at = 0;
    while let Some((from, to)) = component(&rest, at) {
        let name = &rest[from..to];
        let tail = &rest[to..];
        if name == b"." && here.is_dir() || name == b".." && here.ino == root_ino {
            at = to;
            continue;
        }
        let next = lookup(names, &here, name)?;
        let last = tail.iter().all(|byte| *byte == b'/');
        if next.is_symlink() && (!last || follow_last || !tail.is_empty()) {
            links += 1;
            if links > SYMLINKS_MAX {
                return Err(FsError::Loop);
            }
            let mut joined = readlink(names, &next)?;
            if joined.first() == Some(&b'/') {
                here = root.clone();
            }
            joined.extend_from_slice(tail);
            rest = joined;
            at = 0;
            continue;
        }
        if !tail.is_empty() && !next.is_dir() {
            return Err(FsError::NotDir);
        }
        here = next;
        at = to;
    }
    Ok(here)
}

/// Returns start and end of the first component at or behind `at`; `None` when only slashes are
/// left.
fn component(path: &[u8], at: usize) -> Option<(usize, usize)> {
    let from = at + path.get(at..)?.iter().position(|byte| *byte != b'/')?;
    let len = path[from..].iter().position(|byte| *byte == b'/').unwrap_or(path.len() - from);
    Some((from, from + len))
}

fn trim_end_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_split_at_runs_of_slashes() {
        assert_eq!(component(b"//a//b/", 0), Some((2, 3)));
        assert_eq!(component(b"//a//b/", 3), Some((5, 6)));
        assert_eq!(component(b"//a//b/", 6), None);
        assert_eq!(component(b"", 0), None);
        assert_eq!(trim_end_slashes(b"a/b//"), b"a/b");
        assert_eq!(trim_end_slashes(b"//"), b"");
    }
}
