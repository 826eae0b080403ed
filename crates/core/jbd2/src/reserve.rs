//! Room in the running transaction for operations that have not begun, where its owner commits
//! ([`crate::JournalOptions::owner_commits`]).
//!
//! ```text
//!   0 ........................ hard / 2 ........................ hard ... the log
//!   | blocks | owed | open handles | reserved |
//!   | <---------- Journal::reserve ---------> |
//!   | <----------------------- Journal::start ------------------> |
//! ```
//!
//! Promises
//! - The blocks of the transaction, those that its owner owes it, and those that handles and
//!   reservations may still add stay together within half of the log, however many threads ask at
//!   once: a reservation is granted under the lock under which it is counted.
//! - A reservation waits where only those of others are in its way. Where the blocks of the
//!   transaction are, it is not granted: its caller has the owner commit and asks again. So no
//!   operation fails that would fit alone.
//! - The other half is for handles whose holders cannot wait for the owner, since they hold what
//!   its commit needs. They wait for other handles only.
//!
//! Assumptions: the holder of a reservation or a handle asks for no other reservation before it has
//! ended both. Tested in `tests/it/reservations.rs` under shuttle's schedules, and with threads on
//! the smallest log of mke2fs in `crates/core/fs/tests/it/crowd.rs`.

use std::sync::Arc;

use syncline_base::lockrank::MutexGuard;

use crate::JournalError;
use crate::journal::Journal;
use crate::room::Room;
use crate::state::State;

/// Blocks of the running transaction that are kept for an operation until this is dropped.
#[must_use = "a reservation ends when it is dropped"]
pub struct Reservation {
    journal: Arc<Journal>,
    blocks: u32,
}

impl Journal {
    /// Most blocks that the running transaction should have: `log / 4`, as jbd2, or with
    /// [`crate::JournalOptions::owner_commits`] so many that it and the one being written both fit.
    pub fn running_blocks_max(&self) -> u32 {
        if self.options.owner_commits { self.limits.hard / 2 } else { self.limits.soft }
    }

    /// Most blocks that the running transaction may have for a handle to join it.
    pub(crate) fn handle_blocks_max(&self) -> u32 {
        if self.options.owner_commits { self.limits.hard } else { self.limits.soft }
    }

    /// Keeps `blocks` of the running transaction for the caller. `owed`: blocks that the owner will
    /// add when it commits. Waits for reservations and handles of others where these alone are in
    /// the way. `None`: the owner has to commit first.
    ///
    /// # Errors
    /// `Aborted`, or the I/O error that aborted the journal.
    pub fn reserve(
        self: &Arc<Self>,
        blocks: u32,
        owed: impl Fn() -> u32,
    ) -> Result<Option<Reservation>, JournalError> {
        let mut state = self.state.lock();
        loop {
            state.check()?;
            let (joined, open) = match &state.running {
                Some(running) => (running.transaction.len_blocks(), running.reserved),
                None => (0, 0),
            };
            let held = joined.saturating_add(owed());
            let reserved = open.saturating_add(state.promised);
            match Room::of(self.running_blocks_max(), held, reserved, blocks) {
                Room::Full => return Ok(None),
                Room::Reserved => self.signals.room.wait(&mut state),
                Room::Free => {
                    state.promised = state.promised.saturating_add(blocks);
                    return Ok(Some(Reservation { journal: Arc::clone(self), blocks }));
                }
            }
        }
    }

    /// Waits until a handle of the running transaction has ended, which may leave room for
    /// `credits`.
    pub(crate) fn await_handles(
        &self,
        state: &mut MutexGuard<'_, State>,
        credits: u32,
    ) -> Result<(), JournalError> {
        let running = state.running.as_ref();
        if running.is_some_and(|running| running.open_handles > 0) {
            self.signals.room.wait(state);
            return Ok(());
        }
        let blocks = running.map_or(0, |running| running.transaction.len_blocks());
        let credits = blocks.saturating_add(credits);
        Err(JournalError::TooLarge { credits, limit: self.limits.hard })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.journal.state.lock();
        state.promised = state.promised.saturating_sub(self.blocks);
        drop(state);
        self.journal.signals.room.notify_all();
    }
}
