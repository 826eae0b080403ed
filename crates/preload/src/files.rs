//! What is known of the files that a process syncs. Makes no system call.
//!
//! A file is what its device, inode and birth time say: an inode that was freed and taken again is
//! another file. `names` counts renames; a decision from before one is not used.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Files of which something is known, at most.
pub(crate) const FILES_MAX: usize = 65_536;

/// One file, for as long as it exists.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct FileId {
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    /// Nanoseconds since 1970; zero where the file system does not say.
    pub(crate) born_ns: i128,
}

struct Known {
    relaxed: bool,
    /// A sync was skipped since the last one.
    owed: bool,
    path: PathBuf,
    names: u64,
}

/// The files of one process.
#[derive(Default)]
pub(crate) struct Files {
    by_id: HashMap<FileId, Known>,
    by_path: HashMap<PathBuf, FileId>,
    names: u64,
    /// Too many files: nothing is relaxed any more.
    full: bool,
}

impl Files {
    /// The decision on a file, if it still holds.
    pub(crate) fn decision(&self, id: &FileId) -> Option<bool> {
        let known = self.by_id.get(id)?;
        (known.names == self.names && id.born_ns != 0).then_some(known.relaxed)
    }

    /// A decision was made; false if there is no room for it, and the file has to be strict.
    pub(crate) fn decided(&mut self, id: FileId, path: PathBuf, relaxed: bool) -> bool {
        if self.by_id.len() >= FILES_MAX && !self.by_id.contains_key(&id) {
            self.make_room();
        }
        if self.full {
            return false;
        }
        let owed = self.by_id.get(&id).is_some_and(|known| known.owed);
        // The name belonged to a file that was removed, or has another name by now.
        if let Some(other) = self.by_path.insert(path.clone(), id).filter(|other| *other != id)
            && self.by_id.get(&other).is_some_and(|known| known.path == path)
        {
            self.by_id.remove(&other);
        }
        let known = Known { relaxed, owed, path, names: self.names };
        if let Some(before) = self.by_id.insert(id, known)
            && self.by_id.get(&id).is_some_and(|known| known.path != before.path)
            && self.by_path.get(&before.path) == Some(&id)
        {
            self.by_path.remove(&before.path);
        }
        true
    }

    /// Strict files are forgotten: they are decided anew when they come again.
    fn make_room(&mut self) {
        self.by_id.retain(|_, known| known.owed);
        let by_id = &self.by_id;
        self.by_path.retain(|_, id| by_id.contains_key(id));
        self.full = self.by_id.len() >= FILES_MAX;
    }

    /// A sync of a relaxed file was skipped.
    pub(crate) fn owe(&mut self, id: &FileId) {
        if let Some(known) = self.by_id.get_mut(id) {
            known.owed = true;
        }
    }

    /// A file was synced.
    pub(crate) fn synced(&mut self, id: &FileId) {
        if let Some(known) = self.by_id.get_mut(id) {
            known.owed = false;
        }
    }

    /// Owed files at `path`, and below it if that is a directory.
    pub(crate) fn owed_at(&self, path: &Path, directory: bool) -> Vec<(FileId, PathBuf)> {
        if directory {
            return self.owed_where(|known| known.path.starts_with(path));
        }
        let known = self.by_path.get(path).and_then(|id| Some((*id, self.by_id.get(id)?)));
        let owed = known.filter(|(_, known)| known.owed);
        owed.map(|(id, known)| (id, known.path.clone())).into_iter().collect()
    }

    /// All that is owed.
    pub(crate) fn owed(&self) -> Vec<(FileId, PathBuf)> {
        self.owed_where(|_| true)
    }

    fn owed_where(&self, is: impl Fn(&Known) -> bool) -> Vec<(FileId, PathBuf)> {
        let owed = self.by_id.iter().filter(|(_, known)| known.owed && is(known));
        owed.map(|(id, known)| (*id, known.path.clone())).collect()
    }

    /// A name changed: every decision is made anew, and what lay at `old` lies at `new`.
    pub(crate) fn renamed(&mut self, old: &Path, new: &Path, directory: bool) {
        self.names += 1;
        for (id, path) in self.owed_at(old, directory) {
            let Ok(rest) = path.strip_prefix(old) else { continue };
            let moved = if rest.as_os_str().is_empty() { new.into() } else { new.join(rest) };
            self.by_path.remove(&path);
            if let Some(known) = self.by_id.get_mut(&id) {
                known.path.clone_from(&moved);
            }
            self.by_path.insert(moved, id);
        }
    }

    /// Whether it holds so many files that nothing is relaxed any more.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(inode: u64) -> FileId {
        FileId { device: (8, 1), inode, born_ns: 1 }
    }

    fn owe(files: &mut Files, inode: u64, path: &str) {
        assert!(files.decided(id(inode), path.into(), true));
        files.owe(&id(inode));
    }

    #[test]
    fn a_decision_holds_until_a_name_changes() {
        let mut files = Files::default();
        assert_eq!(files.decision(&id(1)), None);
        files.decided(id(1), "/a".into(), true);
        assert_eq!(files.decision(&id(1)), Some(true));
        assert_eq!(files.decision(&FileId { born_ns: 2, ..id(1) }), None);
        files.renamed(Path::new("/x"), Path::new("/y"), false);
        assert_eq!(files.decision(&id(1)), None);
        let unknown = FileId { born_ns: 0, ..id(2) };
        files.decided(unknown, "/b".into(), true);
        assert_eq!(files.decision(&unknown), None);
    }

    #[test]
    fn what_is_owed_follows_renames() {
        let mut files = Files::default();
        owe(&mut files, 1, "/d/a");
        owe(&mut files, 2, "/d/b");
        owe(&mut files, 3, "/dd/c");
        assert_eq!(files.owed_at(Path::new("/d"), true).len(), 2);
        files.renamed(Path::new("/d"), Path::new("/e"), true);
        files.renamed(Path::new("/e/a"), Path::new("/dd/a"), false);
        files.synced(&id(2));
        let mut paths: Vec<_> = files.owed().into_iter().map(|(_, path)| path).collect();
        paths.sort();
        assert_eq!(paths, [Path::new("/dd/a"), Path::new("/dd/c")]);
    }

    #[test]
    fn a_name_that_is_used_again_is_one_file() {
        let mut files = Files::default();
        for inode in 1..100 {
            owe(&mut files, inode, "/a-journal");
        }
        assert_eq!(files.owed(), [(id(99), "/a-journal".into())]);
    }

    #[test]
    fn too_many_files_make_everything_strict() {
        let mut files = Files::default();
        for inode in 0..FILES_MAX as u64 {
            assert!(files.decided(id(inode), format!("/{inode}").into(), false));
        }
        // Strict ones give way.
        owe(&mut files, 1 << 40, "/x");
        for inode in 0..FILES_MAX as u64 - 1 {
            owe(&mut files, inode, &format!("/{inode}"));
        }
        assert!(!files.decided(id(1 << 41), "/y".into(), true) && files.is_full());
        assert_eq!(files.owed().len(), FILES_MAX);
    }
}
