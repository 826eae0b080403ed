//! Expected lifetime of a file's blocks: files that are updated often, and files that do not live
//! long (hot-zones paper, section 2, Figure 1).
//!
//! | told by | lifetime |
//! |---|---|
//! | name of a database, `hot=GLOB`, SQLite's first bytes | updated |
//! | name of a database's journal or log | short |
//! | it wrote over its blocks more than [`OVERWRITES`] times each | updated |
//! | most files made with its ending were removed within [`YOUNG_S`] seconds | short |
//!
//! A file is looked at when it gets a name or is looked up, when its first bytes are written, and
//! when it is written back. It then keeps what was found while its inode is in memory; blocks that
//! it already has stay where they are until it is cut and written again, or relocated. What was
//! learned is forgotten at unmount. Nothing is done without `alloc=hot_zones` or `alloc=lifetime`,
//! unless the device has a use for lifetimes ([`syncline_device::Geometry::write_hints`]).
//! Tested here and in `tests/it/hot_zones.rs`.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use glob::Pattern;
use syncline_base::lockrank::Mutex;

use crate::error::Result;
use crate::incore::{Inode, Lifetime};
use crate::options::{Alloc, MountOptions, check_glob};
use crate::ranks;

/// Names of databases: SQLite, LevelDB and RocksDB, InnoDB (whose logs are written in a circle).
const UPDATED: &[&str] = &[
    "*.db",
    "*.sqlite",
    "*.sqlite3",
    "MANIFEST-[0-9]*",
    "*.ibd",
    "ibdata[0-9]*",
    "ib_logfile[0-9]*",
    "#ib_redo[0-9]*",
    "undo_[0-9]*",
];

/// Names of files that databases log to and remove.
const SHORT: &[&str] = &["*-journal", "*-wal", "*-shm", "[0-9][0-9][0-9][0-9][0-9][0-9].log"];

/// First bytes of a SQLite database.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// A file is updated often when it wrote over this many times as many blocks as it has; the paper's
/// Figure 1(a) counts the same.
const OVERWRITES: u64 = 4;
/// And over this many at least, so that one write of a small file says nothing.
const OVERWRITTEN_BLOCKS_MIN: u64 = 64;
/// A file removed within this time was short-lived, in seconds: two commit intervals of the longest
/// kind in use (30 s), so that it costs the device as much as can be.
const YOUNG_S: i64 = 60;
/// Removals that say something about an ending.
const DEATHS_MIN: u32 = 8;
/// Endings that are remembered, and their longest, in bytes. Bounds memory.
const ENDINGS_MAX: usize = 256;
const ENDING_BYTES_MAX: usize = 16;

/// Counts of files with one ending.
#[derive(Default)]
struct Ending {
    made: u32,
    died_young: u32,
}

/// Rules that classify files on one mount.
pub(crate) struct HotFiles {
    /// Empty where nobody asks.
    rules: Vec<(Pattern, Lifetime)>,
    endings: Mutex<BTreeMap<Vec<u8>, Ending>>,
}

/// Returns the ending of a name, from its last `.` or `-` on.
fn ending(name: &[u8]) -> Option<&[u8]> {
    let at = name.iter().rposition(|byte| matches!(byte, b'.' | b'-'))?;
    name.get(at..).filter(|ending| (2..=ENDING_BYTES_MAX).contains(&ending.len()))
}

impl HotFiles {
    /// `write_hints`: the device has a use for lifetimes.
    ///
    /// # Errors
    /// [`crate::FsError::Invalid`] for a rule that is no glob.
    pub(crate) fn new(options: &MountOptions, write_hints: bool) -> Result<HotFiles> {
        let endings = Mutex::new(ranks::ENDINGS, BTreeMap::new());
        if options.alloc == Alloc::Default && !write_hints {
            return Ok(HotFiles { rules: Vec::new(), endings });
        }
        let given = options.hot.iter().map(|rule| (rule.as_str(), Lifetime::Updated));
        let known =
            |list: &'static [&'static str], life| list.iter().map(move |rule| (*rule, life));
        let all =
            given.chain(known(UPDATED, Lifetime::Updated)).chain(known(SHORT, Lifetime::Short));
        let rules = all.map(|(rule, life)| Ok((check_glob("hot", rule)?, life)));
        Ok(HotFiles { rules: rules.collect::<Result<_>>()?, endings })
    }

    fn is_off(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the expected lifetime for a file of this name.
    pub(crate) fn life_by_name(&self, name: &[u8]) -> Lifetime {
        if self.is_off() {
            return Lifetime::Long;
        }
        let text = String::from_utf8_lossy(name);
        let rule = self.rules.iter().find(|(rule, _)| rule.matches(&text));
        rule.map_or_else(|| self.life_by_ending(name), |(_, life)| *life)
    }

    fn life_by_ending(&self, name: &[u8]) -> Lifetime {
        let endings = self.endings.lock();
        let seen = ending(name).and_then(|ending| endings.get(ending));
        let short = seen.is_some_and(|seen| {
            seen.died_young >= DEATHS_MIN
                && u64::from(seen.died_young) * 4 >= u64::from(seen.made) * 3
        });
        if short { Lifetime::Short } else { Lifetime::Long }
    }

    /// A regular file was made with this name.
    pub(crate) fn note_made(&self, name: &[u8]) {
        self.learn(name, |seen| seen.made = seen.made.saturating_add(1));
    }

    /// A regular file lost this name, its last, at `now_s`.
    pub(crate) fn note_removed(&self, inode: &Inode, name: &[u8], now_s: i64) {
        let made_s = inode.state.read().raw.i_crtime.seconds;
        if (0..=YOUNG_S).contains(&now_s.saturating_sub(made_s)) {
            self.learn(name, |seen| seen.died_young = seen.died_young.saturating_add(1));
        }
    }

    fn learn(&self, name: &[u8], change: impl FnOnce(&mut Ending)) {
        let Some(ending) = ending(name).filter(|_| !self.is_off()) else { return };
        let mut endings = self.endings.lock();
        if let Some(seen) = endings.get_mut(ending) {
            change(seen);
        } else if endings.len() < ENDINGS_MAX {
            change(endings.entry(ending.to_vec()).or_default());
        }
    }

    /// A regular file is known by this name.
    pub(crate) fn note_name(&self, inode: &Inode, name: &[u8]) {
        if self.is_off() || inode.life().is_hot() {
            return;
        }
        let life = self.life_by_name(name);
        if life.is_hot() && inode.state.read().raw.is_file() {
            inode.set_life(life);
        }
    }

    /// A regular file is about to begin with these bytes.
    pub(crate) fn note_contents(&self, inode: &Inode, start: &[u8]) {
        if !self.is_off() && start.starts_with(SQLITE_MAGIC) {
            inode.set_life(Lifetime::Updated);
        }
    }

    /// `blocks` blocks of a file that has `file_blocks` are written over in their place.
    pub(crate) fn note_overwritten(
        &self,
        inode: &Inode,
        blocks: u32,
        file_blocks: impl FnOnce() -> u64,
    ) {
        if self.is_off() || blocks == 0 || inode.life().is_hot() {
            return;
        }
        let before = inode.overwritten.fetch_add(blocks, Ordering::Relaxed);
        let all = u64::from(before) + u64::from(blocks);
        if all >= OVERWRITTEN_BLOCKS_MIN && all >= OVERWRITES.saturating_mul(file_blocks()) {
            inode.set_life(Lifetime::Updated);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FsError;

    fn files(list: &str) -> HotFiles {
        HotFiles::new(&MountOptions::parse(list).unwrap(), false).unwrap()
    }

    #[test]
    fn databases_are_hot_by_name() {
        let hot = files("hot_zones=4,hot=*.cache,hot=today-?");
        for name in ["a.db", "ib_logfile0", "x.cache", "today-1"] {
            assert_eq!(hot.life_by_name(name.as_bytes()), Lifetime::Updated, "{name}");
        }
        for name in ["a.db-wal", "a.sqlite-journal", "000012.log"] {
            assert_eq!(hot.life_by_name(name.as_bytes()), Lifetime::Short, "{name}");
        }
        for name in ["photo.jpg", "server.log", "db", "today-12", "MANIFEST-x"] {
            assert_eq!(hot.life_by_name(name.as_bytes()), Lifetime::Long, "{name}");
        }
        assert_eq!(files("").life_by_name(b"a.db"), Lifetime::Long, "nothing is hot without zones");
    }

    fn inode(crtime_s: i64) -> Inode {
        let mut raw = syncline_ondisk::inode::Inode::new(0o100_644, 32);
        raw.i_crtime.seconds = crtime_s;
        Inode::new(12, raw, Default::default())
    }

    #[test]
    fn an_ending_is_short_when_most_of_its_files_died_young() {
        let hot = files("alloc=lifetime");
        let (young, old) = (inode(1000), inode(0));
        for n in 0..DEATHS_MIN {
            assert_eq!(hot.life_by_name(b"next.part"), Lifetime::Long, "after {n}");
            let name = format!("{n}.part");
            hot.note_made(name.as_bytes());
            hot.note_removed(&young, name.as_bytes(), 1000 + YOUNG_S);
            hot.note_made(b"a.jpg");
            hot.note_removed(&old, b"a.jpg", 1000);
            hot.note_made(b"noending");
            hot.note_removed(&young, b"noending", 1000);
        }
        assert_eq!(hot.life_by_name(b"next.part"), Lifetime::Short);
        assert_eq!(hot.life_by_name(b"b.jpg"), Lifetime::Long);
        assert_eq!(hot.life_by_name(b"noending"), Lifetime::Long);
        for _ in 0..DEATHS_MIN {
            hot.note_made(b"stays.part");
        }
        assert_eq!(hot.life_by_name(b"next.part"), Lifetime::Long, "half of them stayed");
        let off = files("");
        off.note_made(b"a.part");
        assert!(off.endings.lock().is_empty());
    }

    #[test]
    fn endings_are_bounded() {
        let hot = files("alloc=lifetime");
        for n in 0..2 * ENDINGS_MAX {
            hot.note_made(format!("x.{n}").as_bytes());
        }
        hot.note_made(b"x.an-ending-of-seventeen");
        assert_eq!(hot.endings.lock().len(), ENDINGS_MAX);
        assert_eq!(ending(b"a.db-journal"), Some(&b"-journal"[..]));
        assert_eq!((ending(b"a."), ending(b"abc"), ending(b"")), (None, None, None));
    }

    #[test]
    fn a_file_that_writes_over_itself_becomes_hot() {
        let hot = files("hot_zones=4");
        let small = inode(0);
        hot.note_overwritten(&small, 63, || 2);
        assert_eq!(small.life(), Lifetime::Long);
        hot.note_overwritten(&small, 1, || 2);
        assert_eq!(small.life(), Lifetime::Updated);
        let big = inode(0);
        hot.note_overwritten(&big, 399, || 100);
        assert_eq!(big.life(), Lifetime::Long);
        hot.note_overwritten(&big, 1, || 100);
        assert_eq!(big.life(), Lifetime::Updated);
    }

    #[test]
    fn bad_rules_are_refused() {
        for bad in ["hot=[a", "hot=a/b", "hot=***"] {
            let err = MountOptions::parse(bad).unwrap_err();
            assert!(matches!(err, FsError::Invalid(_)), "{bad}: {err}");
        }
    }
}
