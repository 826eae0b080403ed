//! Owners of block requests: the file and the process that a request of a file system is charged
//! to, from the system calls of the same time.
//!
//! | request | charged to |
//! |---|---|
//! | data of a file, its inode known | the file, and the process that changed it last |
//! | journal, while an fsync is under way | its file and caller |
//! | journal, at other times | the file that was changed most often, and who changed it last |
//! | metadata in its place, and all others | nobody |
//!
//! A write with O_SYNC is a sync, too; of several under way the one that began first counts. The
//! journal at other times is a commit by timer; changes count since the last one.
//!
//! A transaction of several files is charged to one of them, since a request has one file in a
//! trace. Calls and requests come in the order of their begin, on one clock. Memory is bounded:
//! [`FILES_MAX`] files are known. Tested in `lab/tests/trace/owners.rs`.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::trace::model::{Flags, Op, Origin, Record};

/// Files that are remembered; all are forgotten when there are more.
const FILES_MAX: usize = 1 << 18;

/// The file and the process of a request, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Inode of the file, 0: not known.
    pub inode: u64,
    /// Its path.
    pub file: Option<Arc<str>>,
    /// Process, 0: not known.
    pub process: u32,
    /// Its name.
    pub process_name: Option<Arc<str>>,
}

/// Names of a call; see [`Record::file`], [`Record::target`] and [`Record::process_name`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CallNames<'a> {
    /// Path of the file.
    pub file: Option<&'a Arc<str>>,
    /// The other path of a rename.
    pub target: Option<&'a Arc<str>>,
    /// Name of the process.
    pub process_name: Option<&'a Arc<str>>,
}

/// A sync that is under way until then.
struct Sync {
    end_ns: u64,
    owner: Owner,
}

/// Learns from calls, and says the owners of block requests.
#[derive(Default)]
pub struct Owners {
    files: FxHashMap<u64, Owner>,
    /// Changes of each inode since the journal was written last.
    changed: FxHashMap<u64, u32>,
    /// In the order of their begin.
    syncs: Vec<Sync>,
    /// Owner of the last commit that no sync asked for.
    commit: Owner,
}

impl Owners {
    /// Takes the next call.
    pub fn call(&mut self, record: &Record, names: CallNames<'_>) {
        if record.inode == 0 || record.failed() {
            return;
        }
        if self.files.len() >= FILES_MAX {
            self.files.clear();
            self.changed.clear();
        }
        let known = self.files.entry(record.inode).or_default();
        known.inode = record.inode;
        let name = names.target.filter(|_| record.op == Op::Rename).or(names.file);
        if let Some(name) = name {
            known.file = Some(name.clone());
        }
        if changes(record.op) {
            known.process = record.process;
            known.process_name = names.process_name.cloned();
            *self.changed.entry(record.inode).or_default() += 1;
        }
        if record.op.is_sync() || record.op == Op::Write && record.flags.has(Flags::SYNC) {
            let process_name = names.process_name.cloned();
            let owner = Owner { process: record.process, process_name, ..known.clone() };
            let end_ns = record.time_ns.saturating_add(record.latency_ns.unwrap_or(0));
            self.syncs.push(Sync { end_ns, owner });
        }
    }

    /// Owner of the next block request.
    pub fn of(&mut self, block: &Record) -> Owner {
        match block.origin {
            Origin::Data => {
                let unknown = || Owner { inode: block.inode, ..Owner::default() };
                self.files.get(&block.inode).cloned().unwrap_or_else(unknown)
            }
            Origin::Journal => self.of_journal(block.time_ns),
            Origin::Metadata | Origin::Unknown => Owner { inode: block.inode, ..Owner::default() },
        }
    }

    fn of_journal(&mut self, now_ns: u64) -> Owner {
        self.syncs.retain(|sync| sync.end_ns >= now_ns);
        if let Some(sync) = self.syncs.first() {
            self.changed.remove(&sync.owner.inode);
            return sync.owner.clone();
        }
        // Of equal ones the lower inode, so that the answer is the same on every run.
        let most = self.changed.iter().max_by_key(|(inode, count)| (**count, !**inode));
        if let Some(owner) = most.and_then(|(inode, _)| self.files.get(inode)) {
            self.commit = owner.clone();
            self.changed.clear();
        }
        self.commit.clone()
    }
}

/// True for a call that changes a file or its names.
fn changes(op: Op) -> bool {
    use Op::{Create, Fallocate, Link, Mkdir, Rename, Rmdir, Symlink, Truncate, Unlink, Write};
    matches!(
        op,
        Write | Truncate | Fallocate | Create | Rename | Link | Symlink | Unlink | Mkdir | Rmdir
    )
}
