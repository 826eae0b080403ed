//! Contents of files: reading, writing, allocation of space, write-back, sync.
//!
//! ```text
//!   read, write, truncate, fallocate, seek, relocate     operations on one file
//!   atomic                                               several pages or none
//!   blocks, evict, durability                            helpers of these
//!   flush/      write-back: batch -> plan -> send -> install
//!   engine/     sync=ordered, eager and periodic, all that differs above the journal
//!   sync point      sync=periodic: the volume at one point in time becomes durable
//!   schedule/   when data is written back: timers, limits, throttling, order
//!   sync        fsync, syncfs        shutdown    the end, as if by a crash
//! ```
//!
//! An fsync calls `sync`, which calls the engine. The engine calls `flush` and the journal.

pub(crate) mod atomic;
pub(crate) mod blocks;
pub(crate) mod durability;
pub(crate) mod engine;
pub(crate) mod evict;
pub(crate) mod fallocate;
pub(crate) mod flush;
pub(crate) mod inline;
pub(crate) mod read;
pub(crate) mod relaxed;
pub(crate) mod relocate;
pub(crate) mod schedule;
pub(crate) mod seek;
pub(crate) mod shutdown;
pub(crate) mod sync;
pub(crate) mod sync_point;
pub(crate) mod truncate;
pub(crate) mod verity;
pub(crate) mod write;

use std::ops::Deref;
use std::sync::Arc;

use crate::data::durability::RelaxedFiles;
use crate::data::engine::Engine;
use crate::data::schedule::state::Schedule;
use crate::inode::Inodes;

pub(crate) struct Files {
    pub(crate) inodes: Arc<Inodes>,
    /// Sync engine: ordered, eager or periodic.
    pub(crate) engine: &'static dyn Engine,
    pub(crate) relaxed: RelaxedFiles,
    pub(crate) schedule: Schedule,
}

impl Deref for Files {
    type Target = Arc<Inodes>;
    fn deref(&self) -> &Arc<Inodes> {
        &self.inodes
    }
}
