//! Renames and links: what is owed of a file is synced before it gets a strict name, and records
//! follow their files.
//!
//! A file that keeps its directory costs one look at its identity; directories, exchanges and what
//! goes elsewhere are resolved.

use std::ffi::{CStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::files::FileId;
use crate::library::{FILES, LIBRARY, Library, OWED, Outcome, absolute, sync_file};
use crate::system;

/// Change that a rename is about to make.
pub(crate) enum Naming {
    /// Nothing that is known, or nothing that matters.
    Nothing,
    /// One file gets this path.
    File(FileId, PathBuf),
    /// From, to, and whether that is a directory.
    Paths(PathBuf, PathBuf, bool),
    /// It cannot be told.
    Unknown,
}

/// A name of the caller: directory and path.
pub(crate) type Named<'a> = (c_int, &'a CStr);

/// Prepares a rename. If the new name is strict, the syncs owed to the file are done first. Returns
/// the change, for [`named`].
pub(crate) fn naming(old: Named<'_>, new: Named<'_>, exchange: bool) -> Naming {
    let Some(library) = LIBRARY.get().filter(|library| !library.nothing) else {
        return Naming::Nothing;
    };
    if !OWED.load(Ordering::Relaxed) {
        // Where every file is relaxed no decision changes.
        return if library.everything { Naming::Nothing } else { Naming::Unknown };
    }
    system::keeping_errno(|| {
        match system::identity_of_link(old.0, old.1) {
            Some(file) if !file.directory && !exchange => naming_file(library, &file.id, old, new),
            _ => naming_paths(library, old, new),
        }
        .unwrap_or(Naming::Unknown)
    })
}

fn naming_file(library: &Library, id: &FileId, old: Named<'_>, new: Named<'_>) -> Option<Naming> {
    let Some((path, owed)) = FILES.with(|files| files.known(id))? else {
        return Some(Naming::Nothing);
    };
    let moved = beside(&path, old, new).or_else(|| absolute(new.0, new.1))?;
    if owed && !library.rules.is_relaxed(&moved) && sync_file(id, &path) == Outcome::Done {
        FILES.with(|files| files.synced(id));
    }
    Some(Naming::File(*id, moved))
}

/// The new path of the file at `path`, where both names are in one directory.
fn beside(path: &Path, old: Named<'_>, new: Named<'_>) -> Option<PathBuf> {
    let split = |name: &CStr| {
        let bytes = name.to_bytes();
        let at = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        (bytes[..at].to_owned(), bytes[at..].to_owned())
    };
    let ((from, name), (to, moved)) = (split(old.1), split(new.1));
    let plain = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
    let same = old.0 == new.0 && from == to && plain(&name) && plain(&moved);
    // Another name than the known one: it is a hard link, or was renamed by somebody else.
    let known = path.file_name().is_some_and(|known| known.as_bytes() == name);
    (same && known).then(|| path.with_file_name(std::ffi::OsStr::from_bytes(&moved)))
}

fn naming_paths(library: &Library, old: Named<'_>, new: Named<'_>) -> Option<Naming> {
    let (from, to) = (absolute(old.0, old.1)?, absolute(new.0, new.1)?);
    let directory = from.is_dir();
    let owed = FILES.with(|files| files.owed_at(&from, directory))?;
    for (id, path) in owed {
        let Ok(rest) = path.strip_prefix(&from) else { continue };
        let moved = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
        if !library.rules.is_relaxed(&moved) && sync_file(&id, &path) == Outcome::Done {
            FILES.with(|files| files.synced(&id));
        }
    }
    Some(Naming::Paths(from, to, directory))
}

/// A file got another name, or two changed theirs.
pub(crate) fn named(naming: Naming, exchanged: bool) {
    system::keeping_errno(|| {
        FILES.with(|files| match naming {
            Naming::Nothing => {}
            Naming::File(id, path) => files.moved(&id, path),
            Naming::Paths(old, new, directory) if !exchanged => {
                files.renamed(&old, &new, directory);
            }
            Naming::Paths(old, new, _) => {
                let between = old.join("\0");
                files.renamed(&old, &between, true);
                files.renamed(&new, &old, true);
                files.renamed(&between, &new, true);
            }
            Naming::Unknown => files.renamed(Path::new(""), Path::new(""), false),
        })
    });
}
