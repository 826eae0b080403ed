//! State before a trace: files that it uses without having made them.
//!
//! The size of such a file is the one that the trace tells (`present`, the size before a write), or
//! the end of what is read of it. Directories are those that hold a file of the trace, without
//! those that it makes.

use std::collections::BTreeSet;

use crate::trace::{NameId, Names, Op, Record};
use rustc_hash::FxHashMap;
use syncline_fs::FsError;
use syncline_sqlite::VolumeFs;

use crate::error::Result;

/// Bytes of a file that are written before a replay, at most; the rest is a hole.
const FILLED_BYTES_MAX: u64 = 256 << 20;
const CHUNK_BYTES: usize = 1 << 20;

/// A file that was there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) path: NameId,
    pub(crate) size_bytes: u64,
    /// End of what the trace reads or writes of it.
    touched_bytes: u64,
}

impl Before {
    /// Bytes that are written before; what is left to its size is a hole.
    pub(crate) fn filled_bytes(&self) -> u64 {
        self.size_bytes.min(self.touched_bytes).min(FILLED_BYTES_MAX)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) files: Vec<Before>,
    pub(crate) dirs: BTreeSet<String>,
}

/// A path of a trace as a path of the volume.
pub(crate) fn inside(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at]).filter(|dir| !dir.is_empty())
}

#[derive(Default)]
struct Object {
    before: bool,
    path: NameId,
    size_bytes: u64,
    touched_bytes: u64,
    written: bool,
}

impl Plan {
    pub(crate) fn of(records: &[Record], names: &Names) -> Plan {
        let mut now: FxHashMap<NameId, usize> = FxHashMap::default();
        let mut objects: Vec<Object> = Vec::new();
        let mut made = BTreeSet::new();
        let mut dirs = BTreeSet::new();
        for record in records.iter().filter(|record| !record.failed() && record.file.is_some()) {
            let before = match record.op {
                Op::Mkdir => {
                    made.insert(inside(names.get(record.file)));
                    continue;
                }
                Op::Stat | Op::Rmdir | Op::Symlink | Op::Sync => continue,
                Op::Create => false,
                _ => true,
            };
            let at = *now.entry(record.file).or_insert_with(|| {
                objects.push(Object { before, path: record.file, ..Object::default() });
                objects.len() - 1
            });
            if let Some(object) = objects.get_mut(at) {
                object.note(record);
            }
            match record.op {
                Op::Unlink => {
                    now.remove(&record.file);
                }
                Op::Rename => {
                    now.remove(&record.file);
                    now.insert(record.target, at);
                }
                _ => {}
            }
            for name in [record.file, record.target] {
                dirs.extend(parents(&inside(names.get(name))).map(str::to_owned));
            }
        }
        dirs.retain(|dir| !made.contains(dir));
        let file = |object: &Object| !dirs.contains(&inside(names.get(object.path)));
        let was_there = |object: &Object| object.before && file(object);
        let files = objects.into_iter().filter(was_there).map(|object| Before {
            path: object.path,
            size_bytes: object.size_bytes,
            touched_bytes: object.touched_bytes,
        });
        Plan { files: files.collect(), dirs }
    }

    /// Makes the directories and files, and writes them out.
    pub(crate) fn populate(&self, fs: &VolumeFs, names: &Names) -> Result<()> {
        for dir in &self.dirs {
            accept(fs.mkdir(dir))?;
        }
        let bytes = vec![0x5A; CHUNK_BYTES];
        for file in &self.files {
            let path = inside(names.get(file.path));
            let inode = match fs.create(&path) {
                Ok(inode) => inode,
                Err(err) => {
                    accept(Err(err))?;
                    continue;
                }
            };
            let filled = file.filled_bytes();
            let mut at = 0;
            while at < filled {
                let len = (filled - at).min(CHUNK_BYTES as u64);
                fs.write(&inode, at, &bytes[..len as usize])?;
                at += len;
            }
            if filled < file.size_bytes {
                accept(fs.truncate(&inode, file.size_bytes))?;
            }
        }
        Ok(fs.syncfs()?)
    }
}

/// Passes over errors of paths that cannot be made here: one exists, one is too long.
fn accept(done: std::result::Result<(), FsError>) -> Result<()> {
    match done {
        Err(err) if crate::replay::play::of_the_trace(&err) => Ok(()),
        done => Ok(done?),
    }
}

impl Object {
    fn note(&mut self, record: &Record) {
        let end = record.offset_bytes.saturating_add(record.len_bytes);
        if matches!(record.op, Op::Read | Op::Write) {
            self.touched_bytes = self.touched_bytes.max(end);
        }
        if !self.before {
            return;
        }
        match record.op {
            Op::Present => self.size_bytes = record.size_bytes.unwrap_or(0),
            Op::Read if !self.written => self.size_bytes = self.size_bytes.max(end),
            Op::Write if !self.written => {
                self.size_bytes = self.size_bytes.max(record.size_bytes.unwrap_or(0));
                self.written = true;
            }
            Op::Truncate => self.written = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_trace_did_not_make_was_there() {
        let mut names = Names::default();
        let [old, new, db, dir] = ["/d/old", "/d/new", "/e/db", "/m"].map(|n| names.intern(n));
        let inner = names.intern("/m/x");
        let on = |op, file| Record { file, ..Record::new(0, op) };
        let records = [
            Record { target: new, ..on(Op::Rename, old) },
            on(Op::Read, new).range(0, 700),
            Record { size_bytes: Some(9000), ..on(Op::Write, db).range(100, 10) },
            on(Op::Mkdir, dir),
            on(Op::Create, inner),
            on(Op::Write, inner).range(0, 10),
            Record { result: Some(-2), ..on(Op::Open, dir) },
        ];
        let plan = Plan::of(&records, &names);
        let before = |path, size_bytes, touched_bytes| Before { path, size_bytes, touched_bytes };
        assert_eq!(plan.files, [before(old, 700, 700), before(db, 9000, 110)]);
        assert_eq!(plan.dirs.iter().collect::<Vec<_>>(), ["/d", "/e"]);
    }
}
