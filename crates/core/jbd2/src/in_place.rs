//! Writing file data in its place while the log may hold copies of the same blocks.
//!
//! ```text
//!   page            block in the log            action
//!   not changed     waits for its checkpoint    written, its obligation ends
//!   since it was    checkpoint was faster       nothing: it is in place
//!   journaled       not committed yet           later
//!   changed         no live copy                written
//!                   live copy               (1) written, then the copy revoked: a sync whose data
//!                                               goes in place
//!                                           (2) journaled: recovery would put the old copy over it
//!                   about to have one           journaled
//! ```
//!
//! (1) costs a flush before the revoke, once; the next sync of the block finds no copy. Recovery
//! gives the old copy until the revoke is durable, and nobody was told of the new contents before.
//! Packed records have no revokes. Used by eager mode only; the caller makes sure that none of the
//! blocks is freed or journaled by others meanwhile. Tested in `fs/tests/it/eager.rs`.

use std::ops::Range;
use std::sync::Arc;

use crate::journal::Journal;
use crate::write_back::Pending;
use crate::{JournalError, Member};

/// A page to be written to its home block.
pub trait InPlacePage {
    /// The home block.
    fn block(&self) -> u64;
    /// Contents to write.
    fn image(&self) -> &Arc<[u8]>;
    /// It was changed since it was journaled last, or never was.
    fn is_newer(&self) -> bool;
    /// The action that was set last.
    fn action(&self) -> WriteAction;
    /// Takes the action that [`Journal::begin_in_place`] decides on.
    fn set_action(&mut self, action: WriteAction);
}

/// Action for one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAction {
    /// Write it, then [`Journal::end_in_place`].
    Write,
    /// As `Write`, with [`crate::Handle::revoke_copies`] in between: the log has an older copy.
    Revoke,
    /// It is in its home block already.
    Skip,
    /// Its journaling has not committed yet: try again later.
    Retry,
    /// Give it to [`crate::Handle::journal_data`] instead.
    Journal,
}

impl WriteAction {
    /// True if the page goes to its home block.
    pub fn is_write(self) -> bool {
        matches!(self, WriteAction::Write | WriteAction::Revoke)
    }
}

impl Journal {
    /// True if the running transaction has a change of this member, which a [`Journal::sync`] of
    /// it would commit.
    pub fn is_member(&self, member: Member) -> bool {
        let state = self.state.lock();
        state.running.as_ref().is_some_and(|running| running.transaction.has_member(member))
    }

    /// Number of blocks of a range that the log has newest copies of.
    pub fn count_live(&self, blocks: Range<u64>) -> usize {
        self.state.lock().ring.live_in(blocks.start, blocks.end).count()
    }

    /// Classifies pages by what brings them to their home blocks; `may_revoke`: also
    /// [`WriteAction::Revoke`], which packed records do not have.
    ///
    /// # Errors
    /// `Aborted`.
    pub fn begin_in_place<P: InPlacePage>(
        &self,
        pages: &mut [P],
        may_revoke: bool,
    ) -> Result<(), JournalError> {
        let may_revoke = may_revoke && !self.is_packed();
        let mut state = self.state.lock();
        // An older image on its way there must not arrive after what is written now.
        while pages.iter().any(|page| state.write_back.in_flight.contains(&page.block())) {
            self.signals.step_ended.wait(&mut state);
        }
        state.check()?;
        for page in pages {
            let block = page.block();
            let running = state.running.as_ref();
            let joined = running.is_some_and(|r| r.transaction.has_data(block));
            let live = state.ring.live(block);
            let committing = state.committing_sequence();
            let busy = joined || live.is_some() && live == committing;
            page.set_action(match state.write_back.pending.get_mut(&block) {
                pending if page.is_newer() && live.is_some() && !busy && may_revoke => {
                    if let Some(pending) = pending {
                        // A checkpoint must not bring the old image there any more.
                        pending.image = Arc::clone(page.image());
                    }
                    WriteAction::Revoke
                }
                _ if page.is_newer() && (busy || live.is_some()) => WriteAction::Journal,
                _ if page.is_newer() => WriteAction::Write,
                _ if busy => WriteAction::Retry,
                Some(pending) => {
                    pending.image = Arc::clone(page.image());
                    WriteAction::Write
                }
                None => WriteAction::Skip,
            });
        }
        Ok(())
    }

    /// The writes are complete: what the log has of those that were to be written needs no other
    /// way to its place. The others may have committed meanwhile, with the very image that is here,
    /// and are still to be written.
    pub fn end_in_place<P: InPlacePage>(&self, pages: &[P]) {
        let mut state = self.state.lock();
        for page in pages.iter().filter(|page| page.action().is_write()) {
            let same = |p: &Pending| Arc::ptr_eq(&p.image, page.image());
            if state.write_back.pending.get(&page.block()).is_some_and(same) {
                state.drop_pending(page.block());
            }
        }
    }
}
