//! Which files are updated often: databases and their journals (hot-zones paper, section 2, Figure
//! 1), by name, by what they start with, and by the rules of the mount.
//!
//! A file is looked at when it gets a name or is looked up, and when its first bytes are written.
//! It then stays hot while its inode is in memory; blocks that it already has stay where they are.
//! Nothing is done without `hot_zones=`. Tested here and in `tests/hot_zones.rs`.

use crate::error::{FsError, Result};
use crate::inode::Inode;
use crate::options::MountOptions;
use glob::Pattern;

/// Names of databases and of what they log to: SQLite, LevelDB and RocksDB, InnoDB.
const KNOWN: &[&str] = &[
    "*.db",
    "*.sqlite",
    "*.sqlite3",
    "*-journal",
    "*-wal",
    "*-shm",
    "[0-9][0-9][0-9][0-9][0-9][0-9].log",
    "MANIFEST-[0-9]*",
    "*.ibd",
    "ibdata[0-9]*",
    "ib_logfile[0-9]*",
    "#ib_redo[0-9]*",
    "undo_[0-9]*",
];

/// How a SQLite database begins.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// What tells hot files from others on one mount.
pub(crate) struct HotFiles {
    /// Empty without zones.
    patterns: Vec<Pattern>,
}

impl HotFiles {
    /// # Errors
    /// [`FsError::Invalid`] for a rule that is no glob.
    pub(crate) fn new(options: &MountOptions) -> Result<HotFiles> {
        if options.hot_zones == 0 {
            return Ok(HotFiles { patterns: Vec::new() });
        }
        let rules = KNOWN.iter().copied().chain(options.hot.iter().map(String::as_str));
        Ok(HotFiles { patterns: rules.map(|rule| check_glob("hot", rule)).collect::<Result<_>>()? })
    }

    /// Whether a file of this name is hot.
    pub(crate) fn is_hot_name(&self, name: &[u8]) -> bool {
        let name = || String::from_utf8_lossy(name);
        !self.patterns.is_empty() && self.patterns.iter().any(|rule| rule.matches(&name()))
    }

    /// A regular file is known by this name.
    pub(crate) fn note_name(&self, inode: &Inode, name: &[u8]) {
        if self.patterns.is_empty() || inode.is_hot() || !self.is_hot_name(name) {
            return;
        }
        if inode.state.read().raw.is_file() {
            inode.set_hot();
        }
    }

    /// A regular file is about to begin with these bytes.
    pub(crate) fn note_contents(&self, inode: &Inode, start: &[u8]) {
        if !self.patterns.is_empty() && start.starts_with(SQLITE_MAGIC) {
            inode.set_hot();
        }
    }
}

/// Reads a rule of the mount option `option`: `*`, `?` and `[...]`, matched with the last part of a
/// path.
///
/// # Errors
/// [`FsError::Invalid`] for what is no glob or has a `/`.
pub(crate) fn check_glob(option: &str, rule: &str) -> Result<Pattern> {
    let bad = |why: &str| FsError::invalid(format!("mount option `{option}={rule}`: {why}"));
    if rule.contains('/') {
        return Err(bad("a rule is for file names, not for paths; leave out the `/`"));
    }
    Pattern::new(rule).map_err(|err| bad(&format!("{}; give a glob as `*.db`", err.msg)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_hot_by_name() {
        let list = "hot_zones=4,hot=*.cache,hot=today-?";
        let hot = HotFiles::new(&MountOptions::parse(list).unwrap()).unwrap();
        for name in ["a.db", "a.db-wal", "a.sqlite-journal", "000012.log", "ib_logfile0", "x.cache"]
        {
            assert!(hot.is_hot_name(name.as_bytes()), "{name}");
        }
        for name in ["photo.jpg", "server.log", "db", "today-12", "MANIFEST-x"] {
            assert!(!hot.is_hot_name(name.as_bytes()), "{name}");
        }
        let off = HotFiles::new(&MountOptions::default()).unwrap();
        assert!(!off.is_hot_name(b"a.db"), "nothing is hot without zones");
    }

    #[test]
    fn bad_rules_are_refused() {
        for bad in ["hot=[a", "hot=a/b", "hot=***"] {
            let err = MountOptions::parse(bad).unwrap_err();
            assert!(matches!(err, FsError::Invalid(_)), "{bad}: {err}");
        }
    }
}
