//! A handle: one file operation's share of the running transaction.
//!
//! Promises: everything modified through one handle is committed together or not at all; the handle
//! ends on drop. Assumptions: its holder neither commits, nor starts another handle, nor waits for
//! a lock under which others start handles - a commit waits for open handles.

use std::ops::Range;
use std::sync::Arc;
use syncline_device::Origin;

use crate::buffer::{BufferState, zeroed};
use crate::dependency_sets::{Counters, Delta, DependencySet, Member, Release};
use crate::journal::Journal;
use crate::transaction::Transaction;
use crate::{JournalError, Tid};

/// One operation on metadata. Made by [`Journal::start`].
#[must_use = "a handle ends when it is dropped"]
pub struct Handle {
    pub(crate) journal: Arc<Journal>,
    pub(crate) transaction: Arc<Transaction>,
    pub(crate) credits: u32,
    /// Members and changes of the operation; eager mode only.
    pub(crate) op: Option<DependencySet>,
    /// True once a block was changed.
    pub(crate) changed: bool,
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
        let base = self.journal.buffers().load(block, &mut state)?;
        let base = self.base(&state, base);
        self.transaction.join_owned(&buffer, &mut state, base)?;
        self.touch(block);
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
        let base = self.journal.buffers().load(block, &mut state).map_err(JournalError::from)?;
        let base = self.base(&state, base);
        let bytes = state.unchecked_mut().expect("the block was loaded above under this lock");
        let part = bytes.get_mut(range.clone());
        let part = part.ok_or(JournalError::Usage("a range outside of the block"))?;
        let before = part.to_vec();
        let result = f(part).and_then(|result| {
            self.transaction.join_owned(&buffer, &mut state, base)?;
            Ok(result)
        });
        if result.is_ok() {
            state.set_verified();
            self.touch(block);
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
        match joined {
            Ok(()) => self.touch(block),
            Err(_) => state.data = before,
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
        self.changed = true;
        // A live copy cannot appear while this handle is open: only a commit of this transaction
        // could make one.
        let live = self.journal.is_live(block);
        let buffer = self.journal.buffers().buffer(block);
        let Some(op) = &mut self.op else {
            self.transaction.forget(&buffer, &mut buffer.lock(), live);
            return Ok(());
        };
        // Not revoked: the block is not used again before the tail has passed its copies.
        self.transaction.drop_block(&buffer, &mut buffer.lock());
        op.members.insert(Member::Block(block));
        op.forgotten.insert(block);
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
        match &mut self.op {
            Some(op) => op.callbacks.push(Release { run: f, range: None }),
            None => self.transaction.on_commit(f),
        }
    }

    /// As [`Handle::on_commit`], for an `f` that makes the freed blocks `first..first + count`
    /// usable again: in eager mode it also waits until the log holds no live copy of any of them.
    pub fn on_free(&mut self, first: u64, count: u64, f: Box<dyn FnOnce() + Send>) {
        match &mut self.op {
            Some(op) => {
                op.callbacks.push(Release { run: f, range: Some((first, count)) });
                let live = self.journal.live_in(first, count);
                op.forgotten.extend(live);
                self.transaction.forget_data(first, count);
            }
            None => self.transaction.on_commit(f),
        }
    }

    /// The operation renames or links: of those none is durable without all earlier ones.
    pub fn keep_order(&mut self) {
        if let Some(op) = &mut self.op {
            op.members.insert(Member::Names);
        }
    }

    /// The operation takes a name away, or makes a symbolic link: it is not durable without the
    /// renames and links that came before it, which may have moved what is needed.
    pub fn follow_names(&mut self) {
        if let Some(op) = &mut self.op {
            op.follows_names = true;
        }
    }

    /// True if dependency sets are kept.
    pub fn is_eager(&self) -> bool {
        self.op.is_some()
    }

    /// Image that recovery gives of a block about to change, if anybody will ask: in ordered mode
    /// nobody does, and a block is not copied for it.
    fn base(&self, state: &BufferState, newest: Arc<[u8]>) -> Option<Arc<[u8]>> {
        let joined = state.running == Some(self.transaction.tid);
        (self.op.is_some() && !joined).then_some(newest)
    }

    /// True if anything was changed through this handle: it will commit, whatever fails next.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    fn touch(&mut self, block: u64) {
        self.changed = true;
        if let Some(op) = &mut self.op {
            op.mixed |= self.transaction.is_shared(block);
            op.members.insert(Member::Block(block));
        }
    }

    /// As [`Handle::try_modify_range`] of bytes that belong to one file, such as an inode.
    ///
    /// # Errors
    /// As [`Handle::try_modify_range`].
    pub fn modify_slot<R, E: From<JournalError>>(
        &mut self,
        block: u64,
        range: Range<usize>,
        f: impl FnOnce(&mut [u8]) -> Result<R, E>,
    ) -> Result<R, E> {
        let slot = range.clone();
        let result = self.modify_shared(block, range, f)?;
        self.note_slot(block, slot);
        Ok(result)
    }

    /// As [`Handle::modify_slot`] in a block with a checksum of its own: `f` sees all of the block,
    /// and changes the bytes `slot` and the checksum.
    ///
    /// # Errors
    /// As [`Handle::try_modify`].
    pub fn modify_summed_slot<R, E: From<JournalError>>(
        &mut self,
        block: u64,
        slot: Range<usize>,
        f: impl FnOnce(&mut [u8]) -> Result<R, E>,
    ) -> Result<R, E> {
        let whole = 0..self.journal.buffers().block_size();
        let result = self.modify_shared(block, whole, f)?;
        self.note_slot(block, slot);
        Ok(result)
    }

    fn note_slot(&mut self, block: u64, slot: Range<usize>) {
        let (offset, len) = (slot.start as u32, slot.len() as u32);
        if let Some(op) = &mut self.op {
            op.members.insert(Member::Slot { block, offset });
            op.change(block, Delta::Slots([(offset, len)].into()));
        }
    }

    /// As [`Handle::try_modify`] of a bitmap in which `len` bits from `first` on change, which
    /// belong to one file.
    ///
    /// # Errors
    /// As [`Handle::try_modify`].
    pub fn modify_bits<R, E: From<JournalError>>(
        &mut self,
        block: u64,
        (first, len): (u32, u32),
        f: impl FnOnce(&mut [u8]) -> Result<R, E>,
    ) -> Result<R, E> {
        let whole = 0..self.journal.buffers().block_size();
        let result = self.modify_shared(block, whole, f)?;
        if let Some(op) = &mut self.op {
            op.change(block, Delta::Bits(vec![(first, len)]));
        }
        Ok(result)
    }

    /// As [`Handle::try_modify_range`] of a group descriptor whose counters change by `counters`.
    ///
    /// # Errors
    /// As [`Handle::try_modify`].
    pub fn modify_group<R, E: From<JournalError>>(
        &mut self,
        block: u64,
        range: Range<usize>,
        (group, counters): (u32, Counters),
        f: impl FnOnce(&mut [u8]) -> Result<R, E>,
    ) -> Result<R, E> {
        let result = self.modify_shared(block, range, f)?;
        if let Some(op) = &mut self.op {
            op.change(block, Delta::Groups([(group, counters)].into()));
        }
        Ok(result)
    }

    /// As [`Handle::create`] of a bitmap that was not in use: what `f` makes of it is what every
    /// recovery may assume of it, and belongs to nobody.
    ///
    /// # Errors
    /// As [`Handle::create`].
    pub fn create_shared(
        &mut self,
        block: u64,
        f: impl FnOnce(&mut [u8]),
    ) -> Result<(), JournalError> {
        if self.op.is_none() {
            return self.create(block, f);
        }
        self.journal.check_block(block)?;
        let buffer = self.journal.buffers().buffer(block);
        let mut state = buffer.lock();
        let mut data = zeroed(self.journal.buffers().block_size());
        f(Arc::get_mut(&mut data).expect("the Arc was made on the line above"));
        let before = state.data.take();
        state.replace(Arc::clone(&data));
        match self.transaction.join_shared(&buffer, &mut state, Some(data), true) {
            Ok(alone) => {
                self.note_mixed(!alone);
                Ok(())
            }
            Err(error) => {
                state.data = before;
                Err(error)
            }
        }
    }

    fn note_mixed(&mut self, mixed: bool) {
        self.changed = true;
        if let Some(op) = &mut self.op {
            op.mixed |= mixed;
        }
    }

    fn modify_shared<R, E: From<JournalError>>(
        &mut self,
        block: u64,
        range: Range<usize>,
        f: impl FnOnce(&mut [u8]) -> Result<R, E>,
    ) -> Result<R, E> {
        if self.op.is_none() {
            return self.try_modify_range(block, range, f);
        }
        self.journal.check_block(block)?;
        let buffer = self.journal.buffers().buffer(block);
        let mut state = buffer.lock();
        let base = self.journal.buffers().load(block, &mut state).map_err(JournalError::from)?;
        // Kept only until the block has joined: afterwards it changes without being copied.
        let base = (state.running != Some(self.transaction.tid)).then_some(base);
        let bytes = state.unchecked_mut().expect("the block was loaded above under this lock");
        let part = bytes.get_mut(range.clone());
        let part = part.ok_or(JournalError::Usage("a range outside of the block"))?;
        let before = part.to_vec();
        let joined = f(part).and_then(|result| {
            let alone = self.transaction.join_shared(&buffer, &mut state, base, false)?;
            Ok((result, alone))
        });
        match joined {
            Ok((result, alone)) => {
                state.set_verified();
                drop(state);
                self.note_mixed(!alone);
                Ok(result)
            }
            Err(error) => {
                if let Some(part) = state.unchecked_mut().and_then(|bytes| bytes.get_mut(range)) {
                    part.copy_from_slice(&before);
                }
                Err(error)
            }
        }
    }

    /// Puts file data into the log with this operation: `image` is what `block` is to hold. The
    /// block is part of the set of the operation, by [`Member::Block`]. Eager mode only.
    ///
    /// `changed` has a bit for each 64th of the block that may differ from the image that was
    /// given to this function last, or, if the block was written to its home since, from that
    /// image; there [`Journal::is_flushed`] has to say so of a flush that began after the write
    /// unless the log had the same image. `None` if that is not known, or the block is new in its
    /// file. Packed records log no more than these parts.
    ///
    /// # Errors
    /// As [`Handle::modify`]; `Usage` without eager mode.
    pub fn journal_data(
        &mut self,
        block: u64,
        image: Arc<[u8]>,
        origin: Origin,
        changed: Option<u64>,
    ) -> Result<(), JournalError> {
        self.journal.check_block(block)?;
        let Some(op) = &mut self.op else {
            return Err(JournalError::Usage("journaled data needs eager mode"));
        };
        self.transaction.join_data(block, image, origin, changed)?;
        self.changed = true;
        op.members.insert(Member::Block(block));
        Ok(())
    }

    /// `blocks` were written in place over copies that the log has: recovery leaves these out once
    /// the operation is durable. It becomes part of the set of `member`, the file that has the
    /// blocks, and is not committed before a flush. Eager mode only; not with packed records.
    pub fn revoke_copies(&mut self, blocks: &[u64], member: Member) {
        self.require_flush();
        if let Some(op) = &mut self.op {
            op.members.insert(member);
            op.members.extend(blocks.iter().map(|block| Member::Block(*block)));
            op.revokes.extend(blocks);
        }
    }

    /// The operation depends on data that was written in place before this call: it is not
    /// committed before a flush that starts from now on. Nothing in ordered mode, where every
    /// commit is preceded by one.
    pub fn require_flush(&mut self) {
        if let Some(op) = &mut self.op {
            op.flush = self.journal.next_flush();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(op) = self.op.take() {
            self.transaction.close(op);
        }
        self.journal.end_handle(self.credits);
    }
}
