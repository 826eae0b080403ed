//! Bytes and syncs by file, for `top`.
//!
//! Bounded: the half with the least traffic is forgotten when 4096 files are known, and names when
//! 8192 are. A file that was opened before its name was forgotten shows its inode number.

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use syncline_base::lockrank::Mutex;

use crate::ranks;

/// Files with traffic that are known.
const FILES_MAX: usize = 4096;
/// Names that are known.
const NAMES_MAX: usize = 8192;
/// Files that are shown.
const SHOWN: usize = 16;

#[derive(Clone, Copy, Default)]
struct File {
    read_bytes: u64,
    written_bytes: u64,
    syncs: u64,
}

impl File {
    fn weight(&self) -> u64 {
        // A sync costs a page of the log, or more.
        let syncs = self.syncs.saturating_mul(4096);
        self.read_bytes.saturating_add(self.written_bytes).saturating_add(syncs)
    }
}

/// The table; see the module.
pub struct Traffic {
    files: Mutex<FxHashMap<u32, File>>,
    names: Mutex<FxHashMap<u32, Box<[u8]>>>,
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic {
            files: Mutex::new(ranks::TRAFFIC, FxHashMap::default()),
            names: Mutex::new(ranks::TRAFFIC_NAMES, FxHashMap::default()),
        }
    }
}

impl Traffic {
    /// A name of a file, the last one that was looked up.
    pub fn named(&self, ino: u32, name: &[u8]) {
        let mut names = self.names.lock();
        if names.get(&ino).is_some_and(|known| **known == *name) {
            return;
        }
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(ino, name.into());
    }

    /// Counts a read.
    pub fn read(&self, ino: u32, bytes: usize) {
        self.change(ino, |file| file.read_bytes += bytes as u64);
    }

    /// Counts a write.
    pub fn written(&self, ino: u32, bytes: usize) {
        self.change(ino, |file| file.written_bytes += bytes as u64);
    }

    /// Counts a sync.
    pub fn synced(&self, ino: u32) {
        self.change(ino, |file| file.syncs += 1);
    }

    fn change(&self, ino: u32, change: impl FnOnce(&mut File)) {
        let mut files = self.files.lock();
        if files.len() >= FILES_MAX && !files.contains_key(&ino) {
            let mut weights: Vec<u64> = files.values().map(File::weight).collect();
            let (_, median, _) = weights.select_nth_unstable(FILES_MAX / 2);
            let median = *median;
            files.retain(|_, file| file.weight() > median);
        }
        change(files.entry(ino).or_default());
    }

    /// The files with the most traffic, as in the status document.
    pub(crate) fn document(&self) -> Value {
        let mut files: Vec<(u32, File)> =
            self.files.lock().iter().map(|(ino, file)| (*ino, *file)).collect();
        files.sort_by_key(|(ino, file)| (std::cmp::Reverse(file.weight()), *ino));
        files.truncate(SHOWN);
        let names = self.names.lock();
        let entry = |(ino, file): &(u32, File)| {
            json!({
                "inode": ino,
                "name": names.get(ino).map(|name| String::from_utf8_lossy(name).into_owned()),
                "read_bytes": file.read_bytes,
                "written_bytes": file.written_bytes,
                "syncs": file.syncs,
            })
        };
        files.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_the_most_traffic_come_first_by_their_last_name() {
        let traffic = Traffic::default();
        traffic.named(12, b"old");
        traffic.named(12, b"new");
        traffic.written(12, 5000);
        traffic.read(13, 9000);
        traffic.synced(14);
        traffic.synced(14);
        let document = traffic.document();
        let inodes: Vec<u64> =
            document.as_array().unwrap().iter().map(|f| f["inode"].as_u64().unwrap()).collect();
        assert_eq!(inodes, [13, 14, 12]);
        assert_eq!((&document[2]["name"], &document[0]["name"]), (&"new".into(), &Value::Null));
        assert_eq!(
            (&document[1]["syncs"], &document[2]["written_bytes"]),
            (&2.into(), &5000.into())
        );
    }

    #[test]
    fn the_table_stays_bounded_and_keeps_the_large_ones() {
        let traffic = Traffic::default();
        for ino in 0..100_000_u32 {
            traffic.named(ino, b"x");
            traffic.written(ino, if ino == 7 { 1 << 20 } else { (ino % 100) as usize });
        }
        assert!(traffic.files.lock().len() <= FILES_MAX && traffic.names.lock().len() <= NAMES_MAX);
        assert_eq!(traffic.document()[0]["inode"], 7);
        assert_eq!(traffic.document().as_array().unwrap().len(), SHOWN);
    }
}
