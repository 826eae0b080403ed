//! History of a workload, its operations and acknowledgements, and the check that a recovered tree
//! is a legal outcome of it.
//!
//! ```text
//!   sector of data   "SYNCSECT" | file id | sector number | sequence | filler of these three
//! ```
//!
//! Every sector that a workload writes says whose it is, where it belongs and when it was written.
//! So a recovered file shows by itself whether it has another file's bytes, bytes of another place,
//! or bytes from before the last acknowledged sync.
//!
//! Rules
//! - Names are those after some of the name operations, which ones is the mode's (`names`).
//! - A sector is what it was at the file's last acknowledged sync, or anything written after that.
//! - A size lies between the sizes that the file had since then; an attribute has one of its
//!   values.
//! - Where anything is that was written after a barrier of a file, that barrier is as a sync.
//! - A file that was renamed over another is under that name with what was written before.
//!
//! With `sync=periodic` there is one rule instead: the tree, contents included, is what the volume
//! showed after one of the operations, none before the last sync point that is known to be durable.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use syncline_model::{TreeSource, fill};

use crate::crash::names::{Acked, Choice, Order, Outcomes};
pub use crate::crash::names::{Name, Names};

pub const SECTOR: u64 = 512;
const MAGIC: &[u8; 8] = b"SYNCSECT";

/// Expected content of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Zero,
    /// Written at this point of the workload.
    Written(u64),
}

/// Content of a recovered sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Signed {
        file: u32,
        sector: u64,
        seq: u64,
    },
    /// No sector that anybody ever wrote.
    Garbage,
}

pub fn signed_sector(file: u32, sector: u64, seq: u64) -> [u8; SECTOR as usize] {
    let mut bytes = [0; SECTOR as usize];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&file.to_le_bytes());
    bytes[16..24].copy_from_slice(&sector.to_le_bytes());
    bytes[24..32].copy_from_slice(&seq.to_le_bytes());
    fill(u64::from(file) << 40 ^ sector << 20 ^ seq, 0, &mut bytes[32..]);
    bytes
}

/// Value of an attribute; empty where it was removed.
pub fn signed_value(seq: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(seq, 0, &mut bytes);
    bytes
}

/// `None` for zeros.
fn decode(bytes: &[u8]) -> Option<Found> {
    if bytes.iter().all(|b| *b == 0) {
        return None;
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (file, sector, seq) = (word(8) as u32, word(16), word(24));
    let signed = signed_sector(file, sector, seq) == bytes;
    Some(if signed { Found::Signed { file, sector, seq } } else { Found::Garbage })
}

/// One name of a recovered tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub ino: u32,
    pub mode: u32,
    pub nlink: u64,
    pub size: u64,
    /// Sectors that are not zero.
    pub sectors: BTreeMap<u64, Found>,
    /// Hash of all bytes.
    pub sum: u64,
    pub target: Vec<u8>,
    /// Names and values, sorted.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Seen {
    pub fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

/// A recovered tree: every path but `lost+found`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered(pub BTreeMap<String, Seen>);

impl Recovered {
    pub fn read<S: TreeSource>(source: &mut S) -> Result<Recovered, String> {
        let mut tree = BTreeMap::new();
        let mut todo = vec![String::new()];
        while let Some(dir) = todo.pop() {
            for name in source.list(dir.as_bytes()).map_err(|e| format!("list /{dir}: {e}"))? {
                let name = String::from_utf8_lossy(&name).into_owned();
                let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
                if path == "lost+found" {
                    continue;
                }
                let seen = read_one(source, &path).map_err(|e| format!("/{path}: {e}"))?;
                if seen.is_dir() {
                    todo.push(path.clone());
                }
                if tree.insert(path.clone(), seen).is_some() {
                    return Err(format!("/{path} is listed twice"));
                }
            }
        }
        Ok(Recovered(tree))
    }

    /// Reads what leads to one inode again.
    pub fn read_again<S: TreeSource>(&mut self, ino: u32, source: &mut S) -> Result<(), String> {
        for (path, seen) in self.0.iter_mut().filter(|(_, seen)| seen.ino == ino) {
            *seen = read_one(source, path).map_err(|e| format!("/{path}: {e}"))?;
        }
        Ok(())
    }

    /// The first difference to another reading of the same image.
    pub fn difference(&self, other: &Recovered) -> Option<String> {
        for (path, seen) in &self.0 {
            match other.0.get(path) {
                None => return Some(format!("/{path}: only in the first")),
                Some(found) if found != seen => {
                    return Some(format!("/{path}: {seen:?} and {found:?}"));
                }
                Some(_) => {}
            }
        }
        let more = other.0.keys().find(|path| !self.0.contains_key(*path));
        more.map(|path| format!("/{path}: only in the second"))
    }
}

fn read_one<S: TreeSource>(source: &mut S, path: &str) -> Result<Seen, String> {
    let stat = source.stat(path.as_bytes()).map_err(|e| e.to_string())?;
    let mut seen = Seen {
        ino: stat.ino as u32,
        mode: stat.mode,
        nlink: stat.nlink,
        size: stat.size,
        xattrs: source.xattrs(path.as_bytes()).map_err(|e| e.to_string())?,
        ..Seen::default()
    };
    seen.xattrs.sort();
    match stat.mode & 0o170_000 {
        0o040_000 => seen.size = 0,
        0o120_000 => seen.target = source.read_link(path.as_bytes()).map_err(|e| e.to_string())?,
        0o100_000 => {
            let mut bytes = vec![0; stat.size.next_multiple_of(SECTOR) as usize];
            let mut at = 0;
            while at < stat.size as usize {
                let end = stat.size as usize;
                let n = source
                    .read(path.as_bytes(), at as u64, &mut bytes[at..end])
                    .map_err(|e| e.to_string())?;
                if n == 0 {
                    return Err(format!("ends at {at} of {}", stat.size));
                }
                at += n;
            }
            let mut hash = DefaultHasher::new();
            bytes.hash(&mut hash);
            seen.sum = hash.finish();
            for (sector, bytes) in bytes.chunks(SECTOR as usize).enumerate() {
                if let Some(found) = decode(bytes) {
                    seen.sectors.insert(sector as u64, found);
                }
            }
        }
        _ => {}
    }
    Ok(seen)
}

#[derive(Default)]
struct FileHistory {
    /// When and what.
    sizes: Vec<(u64, u64)>,
    sectors: BTreeMap<u64, Vec<(u64, Content)>>,
    /// By name of the attribute; an empty value is none.
    values: BTreeMap<Vec<u8>, Vec<(u64, Vec<u8>)>>,
}

/// Coverage of one acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
struct Ack {
    /// A file up to a point.
    file: Option<(u32, u64)>,
    /// All files up to a point.
    all: Option<u64>,
    /// The name operation up to which names are covered, counted from 1; 0 for none.
    names: usize,
    /// Holds only if anything written later is there.
    is_barrier: bool,
    /// `sync=periodic`: the sync point that is durable at least.
    sync_point: usize,
}

impl Ack {
    /// True if the tree owes what this acknowledgement covers.
    fn is_due(&self, tree: &Recovered) -> bool {
        let upto = self.file.map(|(_, seq)| seq);
        let later = |found: &Found| matches!(found, Found::Signed { seq, .. } if Some(*seq) > upto);
        !self.is_barrier || tree.0.values().flat_map(|seen| seen.sectors.values()).any(later)
    }
}

/// The volume after an operation.
struct SyncPoint {
    tree: Recovered,
    /// Name operations until then.
    names: usize,
}

/// Everything a workload did.
#[derive(Default)]
pub struct History {
    order: Order,
    files: Vec<FileHistory>,
    /// The tree before the first name operation and after each.
    names: Vec<Names>,
    acks: BTreeMap<u64, Ack>,
    /// Sequence number that the content of a file has at least, wherever it is found under a name.
    settled: BTreeMap<(String, u32), u64>,
    /// `sync=periodic`: what the volume showed after each operation.
    sync_points: Vec<SyncPoint>,
    seq: u64,
}

impl History {
    pub fn new(order: Order) -> Self {
        History { order, names: vec![Names::new()], ..History::default() }
    }

    /// The history of what follows after a crash that left `tree`, in the same or another mode.
    /// Files keep their numbers, since their sectors have them.
    pub fn after(&self, tree: &Recovered, marks: &[u64], order: Order) -> Result<Self, String> {
        let names = self.resolve(tree, marks)?;
        let mut next =
            History { order, names: vec![Names::new()], seq: self.seq, ..History::default() };
        next.files.resize_with(self.files.len(), FileHistory::default);
        for (path, name) in &names {
            let Some(file) = name.file else { continue };
            let (seen, history) = (&tree.0[path], &mut next.files[file as usize]);
            let sectors = seen.sectors.iter().filter_map(|(sector, found)| match found {
                Found::Signed { seq, .. } => Some((*sector, vec![(0, Content::Written(*seq))])),
                Found::Garbage => None,
            });
            history.sizes = vec![(0, seen.size)];
            let value =
                |(name, value): &(Vec<u8>, Vec<u8>)| (name.clone(), vec![(0, value.clone())]);
            history.values = seen.xattrs.iter().map(value).collect();
            history.sectors = sectors.collect();
        }
        next.names = vec![names];
        Ok(next)
    }

    pub fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    pub fn new_file(&mut self) -> u32 {
        let seq = self.next_seq();
        self.files.push(FileHistory { sizes: vec![(seq, 0)], ..FileHistory::default() });
        (self.files.len() - 1) as u32
    }

    pub fn size(&self, file: u32) -> u64 {
        self.files[file as usize].sizes.last().unwrap().1
    }

    pub fn names(&self) -> &Names {
        self.names.last().unwrap()
    }

    /// Name operations so far.
    pub fn name_ops(&self) -> usize {
        self.names.len() - 1
    }

    pub fn push_names(&mut self, change: impl FnOnce(&mut Names)) {
        let mut names = self.names().clone();
        change(&mut names);
        self.names.push(names);
    }

    /// Sectors `from..to` get this content; the size moves if given.
    pub fn record(&mut self, file: u32, seq: u64, from: u64, to: u64, content: Content) {
        let history = &mut self.files[file as usize];
        for sector in from..to {
            history.sectors.entry(sector).or_default().push((seq, content));
        }
    }

    pub fn record_value(&mut self, file: u32, seq: u64, name: &str, value: Vec<u8>) {
        let values = &mut self.files[file as usize].values;
        values.entry(name.as_bytes().to_vec()).or_default().push((seq, value));
    }

    pub fn record_size(&mut self, file: u32, seq: u64, size: u64) {
        let history = &mut self.files[file as usize];
        let cut = size.div_ceil(SECTOR);
        for (_, events) in history.sectors.range_mut(cut..) {
            events.push((seq, Content::Zero));
        }
        history.sizes.push((seq, size));
    }

    /// Wherever this name leads to this file, it holds what was written to it until now.
    pub fn settle(&mut self, path: &str, file: u32) {
        self.settled.insert((path.to_owned(), file), self.seq);
    }

    /// The volume shows this tree, before the first operation and after each. Returns the number of
    /// the sync point.
    pub fn push_sync_point(&mut self, tree: Recovered) -> usize {
        let names = self.name_ops();
        self.sync_points.push(SyncPoint { tree, names });
        self.sync_points.len() - 1
    }

    /// The volume as it was seen last.
    pub fn last_sync_point(&self) -> &Recovered {
        &self.sync_points.last().expect("a recorder sees the volume at once").tree
    }

    /// This sync point is durable, or a later one.
    pub fn ack_sync_point(&mut self, sync_point: usize) -> u64 {
        self.ack(Ack { sync_point, ..Ack::default() })
    }

    pub fn ack_last_sync_point(&mut self) -> u64 {
        self.ack_sync_point(self.sync_points.len() - 1)
    }

    fn ack(&mut self, ack: Ack) -> u64 {
        let mark = self.acks.len() as u64 + 1;
        self.acks.insert(mark, ack);
        mark
    }

    pub fn ack_file(&mut self, file: u32, names: usize) -> u64 {
        let file = Some((file, self.seq));
        self.ack(Ack { file, names, ..Ack::default() })
    }

    /// The barrier of a file is over.
    pub fn ack_barrier(&mut self, file: u32, names: usize) -> u64 {
        let file = Some((file, self.seq));
        self.ack(Ack { file, names, is_barrier: true, ..Ack::default() })
    }

    pub fn ack_names(&mut self, names: usize) -> u64 {
        self.ack(Ack { names, ..Ack::default() })
    }

    pub fn ack_all(&mut self) -> u64 {
        let (all, names) = (Some(self.seq), self.name_ops());
        self.ack(Ack { all, names, ..Ack::default() })
    }

    /// Checks that the tree is a legal outcome after these acknowledgements.
    pub fn check(&self, tree: &Recovered, marks: &[u64]) -> Result<(), String> {
        self.resolve(tree, marks).map(|_| ())
    }

    /// The names of a legal outcome, which say what file each path is.
    fn resolve(&self, tree: &Recovered, marks: &[u64]) -> Result<Names, String> {
        if !self.sync_points.is_empty() {
            return self.resolve_sync_point(tree, marks);
        }
        let mut acked: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut acked_all, mut acked_names) = (0, Acked::default());
        for ack in marks.iter().map(|mark| self.acks[mark]).filter(|ack| ack.is_due(tree)) {
            acked_all = acked_all.max(ack.all.unwrap_or(0));
            acked_names.add(ack.names, ack.all.is_some());
            if let Some((file, seq)) = ack.file {
                let old = acked.entry(file).or_default();
                *old = (*old).max(seq);
            }
        }
        let seq = |file| acked.get(&file).copied().unwrap_or(0).max(acked_all);
        let outcomes = Outcomes::new(&self.names, self.order);
        let (mut told, mut found) = (None, None);
        outcomes.each(tree, &acked_names, |names| match self.check_files(&names, tree, seq) {
            Ok(()) => {
                found = Some(names);
                Choice::Taken
            }
            Err(error) => {
                told = Some(error);
                Choice::Next
            }
        });
        found.ok_or_else(|| told.unwrap_or_else(|| outcomes.explain(tree, &acked_names)))
    }

    fn resolve_sync_point(&self, tree: &Recovered, marks: &[u64]) -> Result<Names, String> {
        let durable = marks.iter().map(|mark| self.acks[mark].sync_point).max().unwrap_or(0);
        let mut sync_points = self.sync_points.iter().rev();
        if let Some(found) = sync_points.find(|sync_point| sync_point.tree == *tree) {
            let at = sync_points.len();
            return match at >= durable {
                true => Ok(self.names[found.names].clone()),
                false => Err(format!("sync point {at}, and {durable} was durable")),
            };
        }
        let differs = |sync_point: &SyncPoint| sync_point.tree.difference(tree).unwrap_or_default();
        let (first, last) =
            (&self.sync_points[durable], &self.sync_points[self.sync_points.len() - 1]);
        Err(format!(
            "no sync point: the durable one, {durable}, differs in {}, the last in {}",
            differs(first),
            differs(last)
        ))
    }

    fn check_files(
        &self,
        names: &Names,
        tree: &Recovered,
        acked: impl Fn(u32) -> u64,
    ) -> Result<(), String> {
        for (path, name) in names {
            let Some(file) = name.file else { continue };
            let settled = self.settled.get(&(path.clone(), file)).copied().unwrap_or(0);
            let from = acked(file).max(settled);
            self.check_file(file, &tree.0[path], from)
                .map_err(|e| format!("/{path} (file {file}, acknowledged up to {from}): {e}"))?;
        }
        Ok(())
    }

    fn check_file(&self, file: u32, seen: &Seen, acked: u64) -> Result<(), String> {
        let history = &self.files[file as usize];
        let from = history.sizes.iter().rposition(|(seq, _)| *seq <= acked).unwrap_or(0);
        let sizes = history.sizes[from..].iter().map(|(_, size)| *size);
        let (low, high) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
        if !(low..=high).contains(&seen.size) {
            return Err(format!("size {}, legal are {low} to {high}", seen.size));
        }
        for (name, events) in &history.values {
            let found = seen.xattrs.iter().find(|(found, _)| found == name);
            let found = found.map_or(&[][..], |(_, value)| value);
            let from = events.iter().rposition(|(seq, _)| *seq <= acked);
            let legal = events[from.unwrap_or(0)..].iter().any(|(_, value)| value == found)
                || from.is_none() && found.is_empty();
            if !legal {
                let name = name.escape_ascii();
                return Err(format!("{name} has {} bytes that are not legal", found.len()));
            }
        }
        for (sector, found) in &seen.sectors {
            match found {
                Found::Garbage => return Err(format!("sector {sector} has foreign bytes")),
                Found::Signed { file: f, sector: s, .. } if (*f, *s) != (file, *sector) => {
                    return Err(format!("sector {sector} has sector {s} of file {f}"));
                }
                Found::Signed { .. } => {}
            }
            if !history.sectors.contains_key(sector) {
                return Err(format!("sector {sector} was never written"));
            }
        }
        for (sector, events) in history.sectors.range(..seen.size / SECTOR) {
            let found = match seen.sectors.get(sector) {
                Some(Found::Signed { seq, .. }) => Content::Written(*seq),
                _ => Content::Zero,
            };
            let from = events.iter().rposition(|(seq, _)| *seq <= acked);
            let legal = events[from.unwrap_or(0)..].iter().any(|(_, content)| *content == found)
                || from.is_none() && found == Content::Zero;
            if !legal {
                return Err(format!("sector {sector} is {found:?}, its history is {events:?}"));
            }
        }
        Ok(())
    }
}

/// The canaries of the oracle: each kind of damage is refused.
#[cfg(test)]
mod tests {
    use super::*;

    /// One file of four sectors, synced; then its second sector written again.
    fn workload() -> (History, u64) {
        let mut history = History::new(Order::All);
        let file = history.new_file();
        let name = Name { ino: 12, file: Some(file), ..Name::default() };
        history.push_names(|names| {
            names.insert("f".to_owned(), name);
        });
        let seq = history.next_seq();
        history.record(file, seq, 0, 4, Content::Written(seq));
        history.record_size(file, seq, 4 * SECTOR);
        history.record_value(file, seq, "user.v", signed_value(seq, 9));
        let mark = history.ack_file(file, 1);
        let seq = history.next_seq();
        history.record(file, seq, 1, 2, Content::Written(seq));
        (history, mark)
    }

    fn tree(ino: u32, size: u64, sectors: &[(u64, Found)]) -> Recovered {
        let (mode, nlink) = (0o100_644, 1);
        let sectors = sectors.iter().copied().collect();
        let xattrs = vec![(b"user.v".to_vec(), signed_value(2, 9))];
        let seen = Seen { ino, mode, nlink, size, sectors, xattrs, ..Seen::default() };
        Recovered(BTreeMap::from([("f".to_owned(), seen)]))
    }

    fn signed(sectors: [u64; 4]) -> Vec<(u64, Found)> {
        let found = |(sector, seq): (u64, u64)| (sector, Found::Signed { file: 0, sector, seq });
        (0..4).zip(sectors).map(found).collect()
    }

    #[test]
    fn old_and_new_contents_are_legal() {
        let (history, mark) = workload();
        for second in [2, 3] {
            let tree = tree(12, 4 * SECTOR, &signed([2, second, 2, 2]));
            history.check(&tree, &[mark]).unwrap();
        }
        history.check(&Recovered::default(), &[]).unwrap();
    }

    #[test]
    fn every_kind_of_damage_is_refused() {
        let (history, mark) = workload();
        let refuse = |tree: &Recovered, what: &str| {
            let said = history.check(tree, &[mark]).unwrap_err();
            assert!(said.contains(what), "{said}");
        };
        let good = signed([2, 3, 2, 2]);
        refuse(&Recovered::default(), "acknowledged");
        refuse(&tree(13, 4 * SECTOR, &good), "no legal outcome");
        refuse(&tree(12, 3 * SECTOR, &good[..3]), "size");
        refuse(&tree(12, 4 * SECTOR, &good[..3]), "sector 3 is Zero");
        let mut lost = tree(12, 4 * SECTOR, &good);
        lost.0.get_mut("f").unwrap().xattrs.clear();
        refuse(&lost, "user.v has 0 bytes");
        refuse(&tree(12, 4 * SECTOR, &signed([2, 1, 2, 2])), "sector 1 is Written(1)");
        let mut other = good.clone();
        other[2].1 = Found::Signed { file: 1, sector: 2, seq: 2 };
        refuse(&tree(12, 4 * SECTOR, &other), "of file 1");
        other[2].1 = Found::Signed { file: 0, sector: 3, seq: 2 };
        refuse(&tree(12, 4 * SECTOR, &other), "has sector 3");
        other[2].1 = Found::Garbage;
        refuse(&tree(12, 4 * SECTOR, &other), "foreign");
    }

    #[test]
    fn signatures_are_read_back() {
        let mut bytes = signed_sector(3, 9, 77);
        assert_eq!(decode(&bytes), Some(Found::Signed { file: 3, sector: 9, seq: 77 }));
        bytes[300] ^= 1;
        assert_eq!(decode(&bytes), Some(Found::Garbage));
        assert_eq!(decode(&[0; 512]), None);
    }
}
