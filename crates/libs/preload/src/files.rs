//! Table of the files that a process syncs, and of the syncs skipped for them. Makes no system
//! call.
//!
//! A file is what its device, inode and birth time say: an inode that was freed and taken again is
//! another file. `names` counts renames of directories, and of what is not known; a decision from
//! before one is not used. Once many files of a device were decided on and every file is relaxed,
//! the device is *whole*: its file system is owed, and its files are told apart no more.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Files of which something is known, at most.
pub(crate) const FILES_MAX: usize = 65_536;

/// Files decided on, of one device, until it may become whole.
pub(crate) const DECISIONS_MAX: usize = 64;

/// Major and minor number.
pub(crate) type Device = (u32, u32);

/// One file, for as long as it exists.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct FileId {
    pub(crate) device: Device,
    pub(crate) inode: u64,
    /// Nanoseconds since 1970; zero where the file system does not say.
    pub(crate) born_ns: i128,
}

/// No count of renames: the decision does not hold.
const STALE: u64 = u64::MAX;

struct Known {
    relaxed: bool,
    /// A sync was skipped since the last one.
    owed: bool,
    path: PathBuf,
    names: u64,
}

/// Syncs owed to one device.
struct OfDevice {
    device: Device,
    decisions: usize,
    whole: Whole,
}

enum Whole {
    /// Not decided on.
    Open,
    /// Its file system cannot be synced as a whole.
    Never,
    /// A directory on it, and the files that were owed until then.
    Yes(PathBuf, u64),
}

/// The files of one process.
#[derive(Default)]
pub(crate) struct Files {
    by_id: HashMap<FileId, Known>,
    by_path: HashMap<PathBuf, FileId>,
    names: u64,
    devices: Vec<OfDevice>,
    /// Too many files: nothing is relaxed any more.
    full: bool,
}

impl Files {
    /// The decision on a file, if it still holds.
    pub(crate) fn decision(&self, id: &FileId) -> Option<bool> {
        let known = self.by_id.get(id)?;
        (known.names == self.names && id.born_ns != 0).then_some(known.relaxed)
    }

    /// True if syncs of this device are owed to its file system as a whole.
    pub(crate) fn is_whole(&self, device: Device) -> bool {
        let known = self.devices.iter().find(|known| known.device == device);
        known.is_some_and(|known| matches!(known.whole, Whole::Yes(..)))
    }

    /// Counts a decision on a device. Returns true, once, when there were so many that the caller
    /// should find out if the file system can be synced as a whole.
    pub(crate) fn many_on(&mut self, device: Device) -> bool {
        let Some(known) = self.devices.iter_mut().find(|known| known.device == device) else {
            self.devices.push(OfDevice { device, decisions: 1, whole: Whole::Open });
            return false;
        };
        known.decisions += 1;
        let many = known.decisions > DECISIONS_MAX && matches!(known.whole, Whole::Open);
        if many {
            known.whole = Whole::Never;
        }
        many
    }

    /// From now on the file system is owed, which has this directory.
    pub(crate) fn make_whole(&mut self, device: Device, directory: PathBuf) {
        let before = self.by_id.len();
        self.by_id.retain(|id, _| id.device != device);
        self.by_path.retain(|_, id| id.device != device);
        let files = (before - self.by_id.len()) as u64;
        if let Some(known) = self.devices.iter_mut().find(|known| known.device == device) {
            known.whole = Whole::Yes(directory, files);
        }
    }

    /// The devices that are whole, each with a directory and its files; they are open again.
    pub(crate) fn take_whole(&mut self) -> Vec<(Device, PathBuf, u64)> {
        let mut found = Vec::new();
        for known in &mut self.devices {
            if let Whole::Yes(directory, files) = std::mem::replace(&mut known.whole, Whole::Open) {
                found.push((known.device, directory, files));
            }
            known.decisions = 0;
        }
        found
    }

    /// True if a sync is owed to a single file.
    pub(crate) fn owes_files(&self) -> bool {
        self.by_id.values().any(|known| known.owed)
    }

    /// The path of a file of which something is known, and whether it is owed.
    pub(crate) fn known(&self, id: &FileId) -> Option<(PathBuf, bool)> {
        self.by_id.get(id).map(|known| (known.path.clone(), known.owed))
    }

    /// A file that is not a directory has another name: it is decided on again.
    pub(crate) fn moved(&mut self, id: &FileId, path: PathBuf) {
        let Some(known) = self.by_id.get_mut(id) else { return };
        let before = std::mem::replace(&mut known.path, path.clone());
        known.names = STALE;
        if self.by_path.get(&before) == Some(id) {
            self.by_path.remove(&before);
        }
        if let Some(other) = self.by_path.insert(path.clone(), *id).filter(|other| other != id) {
            if self.by_id.get(&other).is_some_and(|known| known.path == path) {
                self.by_id.remove(&other);
            }
        }
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
        if let Some(other) = self.by_path.insert(path.clone(), id).filter(|other| *other != id) {
            if self.by_id.get(&other).is_some_and(|known| known.path == path) {
                self.by_id.remove(&other);
            }
        }
        let known = Known { relaxed, owed, path, names: self.names };
        if let Some(before) = self.by_id.insert(id, known) {
            if self.by_id.get(&id).is_some_and(|known| known.path != before.path)
                && self.by_path.get(&before.path) == Some(&id)
            {
                self.by_path.remove(&before.path);
            }
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

    /// True if the table holds so many files that nothing is relaxed any more.
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
    fn a_moved_file_is_decided_on_again_and_others_are_not() {
        let mut files = Files::default();
        owe(&mut files, 1, "/d/a.tmp");
        owe(&mut files, 2, "/d/b");
        files.moved(&id(1), "/d/b".into());
        assert_eq!(files.decision(&id(1)), None);
        assert_eq!(files.known(&id(1)), Some(("/d/b".into(), true)));
        assert_eq!(files.owed(), [(id(1), "/d/b".into())], "the other one lost its name");
        owe(&mut files, 3, "/d/c");
        files.moved(&id(1), "/d/e".into());
        assert_eq!(files.decision(&id(3)), Some(true));
        files.moved(&id(9), "/x".into());
        assert_eq!(files.known(&id(9)), None);
    }

    #[test]
    fn a_device_with_many_files_becomes_whole_once() {
        let mut files = Files::default();
        let asked = (0..DECISIONS_MAX + 9).filter(|_| files.many_on((8, 1))).count();
        assert_eq!(asked, 1);
        owe(&mut files, 1, "/a");
        files.make_whole((8, 1), "/".into());
        assert!(files.is_whole((8, 1)) && !files.is_whole((8, 2)) && !files.owes_files());
        assert_eq!(files.take_whole(), [((8, 1), "/".into(), 1)]);
        assert!(!files.is_whole((8, 1)) && files.take_whole().is_empty());
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
