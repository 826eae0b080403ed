//! In-core inodes: the decoded inode, its locks, and how it goes back to the inode table.
//!
//! ```text
//!  InodeRef ──> Inode ── rwsem   serialises operations on the file (i_rwsem)
//!  counts        │       io      data in flight to its place, and freeing of blocks
//!  references    ├────── state   raw inode, i_size, delayed allocation, sync tids
//!                └────── pages   cached file blocks
//! ```
//!
//! Promises
//! - `state.raw` is the slot of the inode table after the running transaction; `raw.i_size` is
//!   `i_disksize`: it never covers data that has not been written. `state.size` is `i_size`.
//! - `inode/table.rs` alone writes an inode table slot.
//! - Dropping the last reference to an unlinked inode frees it ([`crate::inode::evict`]).

mod extent_cache;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use syncline_base::lockrank::{Mutex, RwLock};
use syncline_device::{Kind, Origin, WriteLife};
use syncline_jbd2::Tid;
use syncline_ondisk::inode as disk;

use crate::pages::PageTree;
use crate::ranks;

pub(crate) use self::extent_cache::ExtentCache;

/// Kind of an inode change; decides if fdatasync must make it durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dirty {
    /// Timestamps and the like: fsync only.
    Times,
    /// Size, extents, or anything needed to read the data back.
    Data,
}

/// One cached inode.
pub struct Inode {
    /// Inode number.
    pub ino: u32,
    pub(crate) rwsem: RwLock<()>,
    pub(crate) io: Mutex<()>,
    pub(crate) state: RwLock<InodeState>,
    pub(crate) pages: Mutex<PageTree>,
    /// References held by callers; the cache itself does not count.
    pub(crate) refs: AtomicU32,
    /// Blocks were allocated for it, so the allocator may keep more for it.
    pub(crate) may_have_window: AtomicBool,
    /// [`Lifetime`] of its blocks (`crate::space::hot`), as its number.
    life: AtomicU8,
    /// Blocks written over since it is in memory.
    pub(crate) overwritten: AtomicU32,
    /// Durability class, as flags; see `data/durability.rs`.
    pub(crate) durability: AtomicU8,
    /// An atomic write of it has begun.
    pub(crate) has_atomic: AtomicBool,
    /// A program may know mtime and ctime as they are now (`inode/times.rs`).
    pub(crate) shown: AtomicBool,
}

/// The changeable part of an inode.
pub(crate) struct InodeState {
    pub(crate) raw: disk::Inode,
    /// Never written yet: whatever its slot holds is from an earlier life.
    pub(crate) fresh: bool,
    /// `i_size` in bytes; ahead of `raw.i_size` while appended data waits for write-back.
    pub(crate) size: u64,
    /// Blocks reserved by delayed allocation; with `bigalloc` clusters.
    pub(crate) reserved_blocks: u64,
    /// These clusters (`inode/delayed.rs`): `None` while there are none, as in most inodes.
    #[allow(clippy::box_collection, reason = "a pointer is smaller than an empty set")]
    pub(crate) delayed_clusters: Option<Box<BTreeSet<u32>>>,
    /// Transaction that fsync must wait for.
    pub(crate) sync_tid: Tid,
    /// Transaction that fdatasync must wait for.
    pub(crate) datasync_tid: Tid,
    /// Counts the changes of `datasync_tid`, and wraps.
    pub(crate) data_changes: u32,
    /// Timestamps in `raw` are newer than the inode table (lazytime).
    pub(crate) times_dirty: bool,
    /// Nanoseconds from `raw.i_ctime` to the last change, where `raw` has the times of an earlier
    /// one for fsync to keep (`inode/times.rs`); 0: it has those of the last one.
    pub(crate) newer_by_ns: u32,
    /// True if the file was truncated to zero since the last close: new data replaces old contents.
    pub(crate) write_at_close: bool,
    /// Newest transaction in which written extents became unwritten, or went without their cluster.
    pub(crate) unwrote_tid: Tid,
    /// On the orphan list or in the orphan file.
    pub(crate) orphan: Option<OrphanPlace>,
    /// Made without a name, which `link` may give it.
    pub(crate) may_get_name: bool,
    pub(crate) extent_cache: ExtentCache,
}

impl Inode {
    pub(crate) fn new(ino: u32, raw: disk::Inode, synced: Tid) -> Inode {
        let state = InodeState {
            size: raw.i_size,
            raw,
            fresh: false,
            reserved_blocks: 0,
            delayed_clusters: None,
            sync_tid: synced,
            datasync_tid: synced,
            data_changes: 0,
            times_dirty: false,
            newer_by_ns: 0,
            write_at_close: false,
            unwrote_tid: synced,
            orphan: None,
            may_get_name: false,
            extent_cache: ExtentCache::default(),
        };
        Inode {
            ino,
            rwsem: RwLock::new(ranks::RWSEM, ()),
            io: Mutex::new(ranks::IO, ()),
            state: RwLock::new(ranks::STATE, state),
            pages: Mutex::new(ranks::PAGES, PageTree::new(ino)),
            refs: AtomicU32::new(0),
            may_have_window: AtomicBool::new(false),
            life: AtomicU8::new(Lifetime::Long as u8),
            overwritten: AtomicU32::new(0),
            durability: AtomicU8::new(0),
            has_atomic: AtomicBool::new(false),
            // An earlier mount may have shown the times of the slot.
            shown: AtomicBool::new(true),
        }
    }

    /// Returns the expected lifetime of its blocks.
    pub(crate) fn life(&self) -> Lifetime {
        match self.life.load(Ordering::Relaxed) {
            life if life == Lifetime::Updated as u8 => Lifetime::Updated,
            life if life == Lifetime::Short as u8 => Lifetime::Short,
            _ => Lifetime::Long,
        }
    }

    /// Its blocks are expected to do this.
    pub(crate) fn set_life(&self, life: Lifetime) {
        self.life.store(life as u8, Ordering::Relaxed);
    }

    /// Origin of requests for its data; `sync`: a caller waits.
    pub(crate) fn origin(&self, sync: bool) -> Origin {
        let life = match self.life() {
            Lifetime::Short => WriteLife::Medium,
            // Written over in its place, as metadata is.
            Lifetime::Updated => WriteLife::Long,
            Lifetime::Long => WriteLife::Extreme,
        };
        Origin { life, ..Origin::new(Kind::Data { inode: u64::from(self.ino) }, sync) }
    }

    /// References held by callers.
    pub(crate) fn refs(&self) -> u32 {
        self.refs.load(Ordering::Acquire)
    }
}

/// Record of an orphan on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanPlace {
    /// In the list through the superblock.
    List,
    /// In the orphan file: index of the block and of the entry.
    File(usize, usize),
}

/// Expected lifetime of the data in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lifetime {
    /// For long, as far as is known: photos, programs.
    Long,
    /// Until it is written again: databases.
    Updated,
    /// Until its file is removed or cut, soon: journals of databases, temporary files.
    Short,
}

impl Lifetime {
    /// True for the two classes that zones are for.
    pub(crate) fn is_hot(self) -> bool {
        self != Lifetime::Long
    }
}
