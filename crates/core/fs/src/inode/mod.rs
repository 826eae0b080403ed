//! Inodes: those in memory, their slots in the table, orphans, attributes.
//!
//! ```text
//!   iget ──> icache ──> InodeRef (reference.rs)      last reference of an unlinked inode: evict
//!     └────> table      slot of the inode table       └──> blocks, xattr, space: all given back
//!   inline   data that is in the inode
//!   create   a new number and an empty inode
//!   orphan   list and file of inodes that recovery must finish; recovery.rs does that at mount
//! ```
//!
//! [`Inodes`] is shared by every reference to an inode, so that the drop of the last one can free
//! it. Cached pages belong to this part: freeing an inode drops them. Nothing here writes file
//! data.

pub(crate) mod attr;
pub(crate) mod blocks;
pub(crate) mod create;
pub(crate) mod delayed;
pub(crate) mod evict;
pub(crate) mod icache;
pub(crate) mod iget;
pub(crate) mod inline;
pub(crate) mod lazytime;
#[cfg(test)]
mod model_tests;
pub(crate) mod orphan;
pub(crate) mod orphans;
pub(crate) mod recovery;
pub(crate) mod reference;
pub(crate) mod table;
pub(crate) mod times;
pub(crate) mod xattr;

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use syncline_base::lockrank::Mutex;
use syncline_jbd2::{Handle, Reservation};

use crate::error::Result;
use crate::inode::icache::Icache;
use crate::inode::orphans::Orphans;
use crate::pages::PageCache;
use crate::space::Space;
#[cfg(doc)]
use crate::store::Store;

pub(crate) struct Inodes {
    pub(crate) space: Space,
    pub(crate) pages: PageCache,
    pub(crate) icache: Icache,
    pub(crate) orphans: Mutex<Orphans>,
    /// Time of the oldest change whose times are in memory only (`times.rs`), in nanoseconds; 0:
    /// there is none.
    pub(crate) newer_since_ns: AtomicU64,
}

impl Deref for Inodes {
    type Target = Space;
    fn deref(&self) -> &Space {
        &self.space
    }
}

impl Inodes {
    /// Begins an operation that changes something: fails unless the volume can be written to, and
    /// makes room in the log as [`Inodes::relieve_log`]. The caller holds nothing.
    pub(crate) fn before_change(&self) -> Result<()> {
        self.check_writable()?;
        self.relieve_log()
    }

    /// With `sync=periodic`: commits everything if the next sync point fills three quarters of a
    /// transaction, so that no operation finds the transaction full. The caller holds neither `io`
    /// nor a handle.
    #[inline]
    pub(crate) fn relieve_log(&self) -> Result<()> {
        // Each write comes here, in every mode.
        if self.committer.get().is_some() { self.relieve_full_log() } else { Ok(()) }
    }

    fn relieve_full_log(&self) -> Result<()> {
        if self.sync_point_fills(3) {
            self.commit(self.journal()?.newest_tid())?;
        }
        Ok(())
    }

    /// Starts a journal handle for at most `credits` metadata blocks. The caller holds neither
    /// `io`, changes, nor a handle or a reservation.
    ///
    /// # Errors
    /// As [`Store::start_under_io`] and [`Inodes::reserve_room`].
    pub(crate) fn start(&self, credits: u32) -> Result<Handle> {
        let _room = self.reserve_room(credits)?;
        self.start_under_io(credits)
    }

    /// With `sync=periodic`: reserves `blocks` of the running transaction for the caller. If the
    /// transaction has fewer, it commits everything first. The caller holds neither `io`, changes,
    /// nor a handle or a reservation.
    ///
    /// # Errors
    /// As write-back and commit.
    #[inline]
    pub(crate) fn reserve_room(&self, blocks: u32) -> Result<Option<Reservation>> {
        if self.committer.get().is_some() { self.await_room(blocks).map(Some) } else { Ok(None) }
    }

    fn await_room(&self, blocks: u32) -> Result<Reservation> {
        self.latch.check()?;
        let journal = self.journal()?;
        let owed = || u32::try_from(self.pages.overwritten()).unwrap_or(u32::MAX);
        loop {
            if let Some(room) = journal.reserve(blocks, owed)? {
                return Ok(room);
            }
            self.commit(journal.newest_tid())?;
        }
    }

    /// With `sync=periodic`: true if the next sync point fills more than `quarters` quarters of a
    /// transaction. False in the other modes.
    pub(crate) fn sync_point_fills(&self, quarters: usize) -> bool {
        self.committer.get().is_some()
            && self.journal().is_ok_and(|journal| {
                let waiting = journal.running_blocks() as usize + self.pages.overwritten();
                waiting > journal.running_blocks_max() as usize * quarters / 4
            })
    }
}
