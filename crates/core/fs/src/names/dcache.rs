//! Names that were looked up before, so that the next lookup reads no directory block.
//!
//! ```text
//!   hash of (directory, name) --> Shard { young, old } --> Entry { directory, name, inode? }
//!         young is full:  old is forgotten, young becomes old        a hit in old moves to young
//! ```
//!
//! Promises
//! - An entry equals the directory on disk, also for an absent name: names are entered under the
//!   directory's `rwsem` (shared is enough), and an operation that changes a name, which takes it
//!   exclusively, forgets the entry before and enters the new state only after it worked.
//! - Exact: an entry counts only if directory and name are equal, never by the hash alone.
//! - Bounded: [`Dcache::new`] says by how many bytes. What was not used for a whole generation
//!   goes first; no order depends on a random hash, so runs reproduce.
//!
//! An inode number that is used again brings no false names along: a directory goes only when it is
//! empty, so all that can be left of it is names that are not there, and a new directory has none.
//! Directories that fold case have no names here (`Names::know`). A directory begins or ends to
//! fold case while it is empty, and what is left of it are names that are not there.
//! `.` and `..` are never entered. Tested below and by `tests/it/namespace*.rs`.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};
use syncline_base::lockrank::Mutex;

use crate::ranks;

/// Independent parts.
const SHARDS: usize = 16;
/// Bytes of a name kept inside of an entry.
const INLINE_BYTES: usize = 27;
/// Memory of one entry in a map at 7/8 load, without a long name, in bytes.
const ENTRY_BYTES: usize = 72;

/// Cached answer for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It means this inode.
    Inode(u32),
    /// The directory does not have it.
    Absent,
}

enum Name {
    Inline([u8; INLINE_BYTES]),
    Boxed(Box<[u8]>),
}

struct Entry {
    dir: u32,
    /// 0: the name is not there.
    ino: u32,
    len: u8,
    name: Name,
}

impl Entry {
    fn new(dir: u32, name: &[u8], known: Known) -> Entry {
        let ino = match known {
            Known::Inode(ino) => ino,
            Known::Absent => 0,
        };
        let mut inline = [0; INLINE_BYTES];
        let stored = match inline.get_mut(..name.len()) {
            Some(place) => {
                place.copy_from_slice(name);
                Name::Inline(inline)
            }
            None => Name::Boxed(name.into()),
        };
        // Names have at most 255 bytes; a longer one would never be found again.
        Entry { dir, ino, len: name.len() as u8, name: stored }
    }

    fn is(&self, dir: u32, name: &[u8]) -> bool {
        let stored: &[u8] = match &self.name {
            Name::Inline(bytes) => bytes.get(..usize::from(self.len)).unwrap_or(&[]),
            Name::Boxed(bytes) => bytes,
        };
        self.dir == dir && stored == name
    }

    fn known(&self) -> Known {
        if self.ino == 0 { Known::Absent } else { Known::Inode(self.ino) }
    }

    fn bytes(&self) -> usize {
        match &self.name {
            Name::Inline(_) => ENTRY_BYTES,
            Name::Boxed(name) => ENTRY_BYTES + 16 + name.len(),
        }
    }
}

#[derive(Default)]
struct Shard {
    young: FxHashMap<u64, Entry>,
    old: FxHashMap<u64, Entry>,
    young_bytes: usize,
}

impl Shard {
    fn remove(&mut self, hash: u64) -> Option<Entry> {
        match self.young.remove(&hash) {
            Some(entry) => {
                self.young_bytes -= entry.bytes();
                Some(entry)
            }
            None => self.old.remove(&hash),
        }
    }

    fn insert(&mut self, hash: u64, entry: Entry, generation_bytes: usize) {
        if self.young_bytes + entry.bytes() > generation_bytes {
            // A name is in one of the two maps only.
            self.young.remove(&hash);
            // The map that is forgotten keeps its room for the next generation.
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
            self.young_bytes = 0;
        }
        self.young_bytes += entry.bytes();
        if let Some(replaced) = self.young.insert(hash, entry) {
            self.young_bytes -= replaced.bytes();
        }
    }
}

/// The names of one volume.
pub(crate) struct Dcache {
    shards: [Mutex<Shard>; SHARDS],
    generation_bytes: usize,
}

impl Dcache {
    /// A cache of about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Dcache {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let generation_bytes = (bytes_max / SHARDS / 2).max(4 * ENTRY_BYTES);
        let shard = |_| Mutex::new(ranks::NAME_CACHE, Shard::default());
        Dcache { shards: std::array::from_fn(shard), generation_bytes }
    }

    /// Memory of the cached names, but for the long ones of the old generation.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.young_bytes + shard.old.len() * ENTRY_BYTES
        };
        self.shards.iter().map(bytes).sum()
    }

    fn place(&self, dir: u32, name: &[u8]) -> (u64, &Mutex<Shard>) {
        let mut hasher = FxHasher::default();
        hasher.write(name);
        hasher.write_u32(dir);
        let hash = hasher.finish();
        // The map uses the low and the top bits.
        (hash, &self.shards[(hash >> 32) as usize % SHARDS])
    }

    /// Returns the cached answer for a name of a directory. The caller holds the directory's
    /// `rwsem`.
    pub(crate) fn get(&self, dir: u32, name: &[u8]) -> Option<Known> {
        let (hash, shard) = self.place(dir, name);
        let mut shard = shard.lock();
        if let Some(entry) = shard.young.get(&hash) {
            return entry.is(dir, name).then(|| entry.known());
        }
        if !shard.old.get(&hash)?.is(dir, name) {
            return None;
        }
        let entry = shard.old.remove(&hash)?;
        let known = entry.known();
        shard.insert(hash, entry, self.generation_bytes);
        Some(known)
    }

    /// Enters what a directory says, its `rwsem` being held.
    pub(crate) fn put(&self, dir: u32, name: &[u8], known: Known) {
        let (hash, shard) = self.place(dir, name);
        let mut shard = shard.lock();
        shard.old.remove(&hash);
        shard.insert(hash, Entry::new(dir, name, known), self.generation_bytes);
    }

    /// Forgets a name that is about to change.
    pub(crate) fn forget(&self, dir: u32, name: &[u8]) {
        let (hash, shard) = self.place(dir, name);
        shard.lock().remove(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Dcache {
        fn len(&self) -> usize {
            self.shards.iter().map(|s| s.lock()).map(|s| s.young.len() + s.old.len()).sum()
        }
    }

    #[test]
    fn the_last_word_counts() {
        let cache = Dcache::new(1 << 20);
        let long = [b'x'; 255];
        for name in [&b"a"[..], &long[..27], &long[..28], &long] {
            assert_eq!(cache.get(5, name), None);
            cache.put(5, name, Known::Absent);
            assert_eq!(cache.get(5, name), Some(Known::Absent));
            cache.put(5, name, Known::Inode(77));
            assert_eq!(cache.get(5, name), Some(Known::Inode(77)));
            assert_eq!(cache.get(6, name), None, "of another directory");
            assert_eq!(cache.get(5, &name[1..]), None, "another name");
            cache.forget(5, name);
            assert_eq!(cache.get(5, name), None);
        }
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn it_is_bounded_and_what_is_used_stays() {
        const BYTES: usize = 1 << 18;
        let cache = Dcache::new(BYTES as u64);
        cache.put(2, b"used", Known::Inode(3));
        for n in 0..100_000u32 {
            cache.put(2, format!("{n:0>60}").as_bytes(), Known::Inode(n + 11));
            cache.put(3, n.to_string().as_bytes(), Known::Absent);
            assert_eq!(cache.get(2, b"used"), Some(Known::Inode(3)));
        }
        assert!(cache.len() * ENTRY_BYTES <= BYTES, "{}", cache.len());
        assert!(cache.len() * (ENTRY_BYTES + 80) >= BYTES / 3, "{}", cache.len());
        assert!(std::mem::size_of::<(u64, Entry)>() * 8 / 7 < ENTRY_BYTES);
    }

    #[test]
    fn an_old_entry_never_comes_back_over_a_new_one() {
        let cache = Dcache::new(0);
        for round in 0..200u32 {
            cache.put(2, b"name", Known::Inode(round + 1));
            for n in 0..round % 150 {
                cache.put(9, &n.to_le_bytes(), Known::Absent);
            }
            let got = cache.get(2, b"name");
            assert!(got.is_none() || got == Some(Known::Inode(round + 1)), "{round}: {got:?}");
        }
    }
}
