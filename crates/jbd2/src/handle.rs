//! A handle: one file operation's share of the running transaction.
//!
//! Promises: everything modified through one handle is committed together or not at all; the handle
//! ends on drop. Assumptions: its holder neither commits, nor starts another handle, nor waits for
//! a lock under which others start handles - a commit waits for open handles.

use std::ops::Range;
use std::sync::Arc;

use crate::buffer::zeroed;
use crate::journal::Journal;
use crate::transaction::Transaction;
use crate::{JournalError, Tid};

/// One operation on metadata. Made by [`Journal::start`].
#[must_use = "a handle ends when it is dropped"]
pub struct Handle {
    pub(crate) journal: Arc<Journal>,
    pub(crate) transaction: Arc<Transaction>,
    pub(crate) credits: u32,
}

impl Handle {
    /// The transaction this handle is part of; give it to [`Journal::commit`] to make the operation
    /// durable.
    pub fn tid(&self) -> Tid {
        self.transaction.tid
    }

    /// Changes a block; it is read first if absent. The change is part of the transaction.
    ///
    /// # Errors
    /// Reading failed, the transaction cannot hold another block, or the block is off the device or
    /// part of the log (which only a corrupt file system asks for). The block is unchanged then.
    pub fn modify<R>(
        &mut self,
        block: u64,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, JournalError> {
        self.journal.check_block(block)?;
        let buffer = self.journal.buffers().buffer(block);
        let mut state = buffer.lock();
        if state.data.is_none() {
            self.journal.buffers().load(block, &mut state)?;
        }
        self.transaction.join(&buffer, &mut state)?;
        Ok(f(state.bytes_mut().expect("the block was loaded above under this lock")))
    }

    /// As [`Handle::modify`] with a closure that may fail; then the block is as it was before and
    /// has not joined the transaction.
    ///
    /// # Errors
    /// As [`Handle::modify`], or the closure's.
    pub fn try_modify<R, E: From<JournalError>>(
        &mut self,
        block: u64,
        f: impl FnOnce(&mut [u8]) -> Result<R, E>,
    ) -> Result<R, E> {
        let whole = 0..self.journal.buffers().block_size();
        self.try_modify_range(block, whole, f)
    }

    /// As [`Handle::try_modify`] for a part of the block, which is all that `f` sees. What a
    /// failure undoes is kept aside meanwhile: the smaller, the cheaper.
    ///
    /// # Errors
    /// As [`Handle::try_modify`]; [`JournalError::Usage`] for a range outside of the block.
    pub fn try_modify_range<R, E: From<JournalError>>(
        &mut self,
        block: u64,
        range: Range<usize>,
        f: impl FnOnce(&mut [u8]) -> Result<R, E>,
    ) -> Result<R, E> {
        self.journal.check_block(block)?;
        let buffer = self.journal.buffers().buffer(block);
        let mut state = buffer.lock();
        if state.data.is_none() {
            self.journal.buffers().load(block, &mut state).map_err(JournalError::from)?;
        }
        let bytes = state.unchecked_mut().expect("the block was loaded above under this lock");
        let part = bytes.get_mut(range.clone());
        let part = part.ok_or(JournalError::Usage("a range outside of the block"))?;
        let before = part.to_vec();
        let result = f(part).and_then(|result| {
            self.transaction.join(&buffer, &mut state)?;
            Ok(result)
        });
        if result.is_ok() {
            state.set_verified();
        } else if let Some(part) = state.unchecked_mut().and_then(|bytes| bytes.get_mut(range)) {
            part.copy_from_slice(&before);
        }
        result
    }

    /// Starts a fresh metadata block: zero-filled, not read from the device.
    ///
    /// # Errors
    /// As [`Handle::modify`], without the read.
    pub fn create(&mut self, block: u64, f: impl FnOnce(&mut [u8])) -> Result<(), JournalError> {
        self.journal.check_block(block)?;
        let buffer = self.journal.buffers().buffer(block);
        let mut state = buffer.lock();
        let mut data = zeroed(self.journal.buffers().block_size());
        f(Arc::get_mut(&mut data).expect("the Arc was made on the line above"));
        // Loaded before it joins: whoever freezes the transaction finds contents.
        let before = state.data.take();
        state.replace(data);
        let joined = self.transaction.join(&buffer, &mut state);
        if joined.is_err() {
            state.data = before;
        }
        joined
    }

    /// A metadata block was freed. It leaves the transaction, is revoked if the log holds a copy,
    /// and its contents are never written in place once the transaction is durable. The block must
    /// not be used for anything else before that: see [`Handle::on_commit`].
    ///
    /// # Errors
    /// None today; the signature leaves room for a full transaction.
    pub fn forget(&mut self, block: u64) -> Result<(), JournalError> {
        // A live copy cannot appear while this handle is open: only a commit of this transaction
        // could make one.
        let live = self.journal.is_live(block);
        let buffer = self.journal.buffers().buffer(block);
        self.transaction.forget(&buffer, &mut buffer.lock(), live);
        Ok(())
    }

    /// Data blocks `first..first + count` were freed: those with a copy in the log (journaled data,
    /// or blocks that were metadata before) are revoked. Returns how many were.
    ///
    /// # Errors
    /// As [`Handle::forget`].
    pub fn revoke_data(&mut self, first: u64, count: u64) -> Result<usize, JournalError> {
        let live = self.journal.live_in(first, count);
        self.transaction.revoke(&live);
        Ok(live.len())
    }

    /// Asks for `credits` more blocks without giving up the atomicity of the handle. Where it says
    /// no the caller ends the operation at a consistent point and starts another handle.
    pub fn extend(&mut self, credits: u32) -> bool {
        let granted = self.journal.extend(credits);
        if granted {
            self.credits = self.credits.saturating_add(credits);
        }
        granted
    }

    /// Blocks this handle asked for in total.
    pub fn credits(&self) -> u32 {
        self.credits
    }

    /// Runs `f` once the transaction is durable (never, if it fails), before any waiter of the
    /// commit returns. `f` must not use the journal.
    pub fn on_commit(&mut self, f: Box<dyn FnOnce() + Send>) {
        self.transaction.on_commit(f);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.journal.end_handle(self.credits);
    }
}
