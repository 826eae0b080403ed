//! Writing file data in its place while the log may hold copies of the same blocks.
//!
//! ```text
//!   page            block in the log            what becomes of it
//!   not changed     waits for its checkpoint    written, its obligation ends
//!   since it was    checkpoint was faster       nothing: it is in place
//!   journaled       not committed yet           later
//!   changed         no live copy                written
//!                   live copy, or about to be   journaled: recovery would put the old copy over it
//! ```
//!
//! So no block is ever written in place with other contents than its newest live copy has, and
//! nothing has to be revoked. Used by eager mode only; the caller makes sure that none of the
//! blocks is freed or journaled by others meanwhile. Tested in `fs/tests/eager.rs`.

use std::sync::Arc;

use crate::JournalError;
use crate::journal::Journal;

/// A page that should go to its place.
pub struct InPlace {
    /// Where that is.
    pub block: u64,
    /// What is written.
    pub image: Arc<[u8]>,
    /// It was changed since it was journaled last, or never was.
    pub newer: bool,
}

/// What to do about one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Write it, then [`Journal::end_in_place`].
    Write,
    /// It is there already.
    Done,
    /// Its journaling has not committed yet: try again later.
    Busy,
    /// Give it to [`crate::Handle::journal_data`] instead.
    Log,
}

impl Journal {
    /// What has to be done so that pages get to their places.
    ///
    /// # Errors
    /// `Aborted`.
    pub fn begin_in_place(&self, pages: &[InPlace]) -> Result<Vec<Fate>, JournalError> {
        let mut state = self.state.lock();
        // An older image on its way there must not arrive after what is written now.
        while pages.iter().any(|page| state.in_flight.contains(&page.block)) {
            self.changed.wait(&mut state);
        }
        state.check()?;
        let mut fates = Vec::with_capacity(pages.len());
        for page in pages {
            let running = state.running.as_ref();
            let joined = running.is_some_and(|r| r.transaction.has_data(page.block));
            let live = state.live.get(&page.block).copied();
            let committing = state.committing.as_ref().and_then(|c| c.sequence);
            let busy = joined || live.is_some() && live == committing;
            fates.push(match state.pending.get_mut(&page.block) {
                _ if page.newer && (busy || live.is_some()) => Fate::Log,
                _ if page.newer => Fate::Write,
                _ if busy => Fate::Busy,
                Some(pending) => {
                    pending.image = Arc::clone(&page.image);
                    Fate::Write
                }
                None => Fate::Done,
            });
        }
        Ok(fates)
    }

    /// The writes are complete: what the log has of those that were to be written needs no other
    /// way to its place. The others may have committed meanwhile, with the very image that is here,
    /// and are still to be written.
    pub fn end_in_place(&self, pages: &[InPlace], fates: &[Fate]) {
        let mut state = self.state.lock();
        let written = pages.iter().zip(fates).filter(|(_, fate)| **fate == Fate::Write);
        for (page, _) in written {
            let same = |p: &crate::journal::Pending| Arc::ptr_eq(&p.image, &page.image);
            if state.pending.get(&page.block).is_some_and(same) {
                state.drop_pending(page.block);
            }
        }
    }
}
