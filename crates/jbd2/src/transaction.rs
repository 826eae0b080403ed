//! The compound transaction that handles join, and what is left of it once it is frozen.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::buffer::{Buffer, BufferState};
use crate::{JournalError, Tid};

pub(crate) type Callback = Box<dyn FnOnce() + Send>;

/// Blocks, revokes and callbacks of one running transaction.
pub(crate) struct Transaction {
    pub(crate) tid: Tid,
    /// Most blocks it may hold and still fit into an otherwise empty log.
    limit_hard: u32,
    /// Blocks joined so far.
    blocks_joined: AtomicU32,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    blocks: BTreeMap<u64, Arc<Buffer>>,
    /// Blocks whose older copies in the log must not be replayed.
    revokes: BTreeSet<u64>,
    /// Blocks freed: their checkpoint obligation ends when this transaction is durable.
    forgotten: BTreeSet<u64>,
    callbacks: Vec<Callback>,
}

/// A transaction after its last handle: images that never change.
#[derive(Default)]
pub(crate) struct Frozen {
    pub(crate) copies: Vec<(Arc<Buffer>, Arc<[u8]>)>,
    pub(crate) revokes: Vec<u64>,
    pub(crate) forgotten: Vec<u64>,
    pub(crate) callbacks: Vec<Callback>,
}

impl Transaction {
    pub(crate) fn new(tid: Tid, limit_hard: u32) -> Arc<Self> {
        Arc::new(Transaction {
            tid,
            limit_hard,
            blocks_joined: AtomicU32::new(0),
            inner: Mutex::default(),
        })
    }

    /// Blocks joined so far.
    pub(crate) fn len_blocks(&self) -> u32 {
        self.blocks_joined.load(Ordering::Acquire)
    }

    /// Whether a commit would have nothing to do, not even callbacks to run.
    pub(crate) fn is_idle(&self) -> bool {
        let inner = self.inner.lock();
        inner.blocks.is_empty()
            && inner.revokes.is_empty()
            && inner.forgotten.is_empty()
            && inner.callbacks.is_empty()
    }

    /// Makes a buffer part of the transaction. Journaling a block cancels its pending revoke: a
    /// revoke kills the copies of its own transaction as well.
    pub(crate) fn join(
        &self,
        buffer: &Arc<Buffer>,
        state: &mut BufferState,
    ) -> Result<(), JournalError> {
        if state.running == Some(self.tid) {
            return Ok(());
        }
        let mut inner = self.inner.lock();
        if self.len_blocks() >= self.limit_hard {
            let credits = self.len_blocks().saturating_add(1);
            return Err(JournalError::TooLarge { credits, limit: self.limit_hard });
        }
        inner.revokes.remove(&buffer.block);
        inner.forgotten.remove(&buffer.block);
        if inner.blocks.insert(buffer.block, Arc::clone(buffer)).is_none() {
            self.blocks_joined.fetch_add(1, Ordering::AcqRel);
        }
        state.running = Some(self.tid);
        Ok(())
    }

    /// Takes a freed metadata block out; `live` says that the log holds a copy of it.
    pub(crate) fn forget(&self, buffer: &Buffer, state: &mut BufferState, live: bool) {
        let mut inner = self.inner.lock();
        if inner.blocks.remove(&buffer.block).is_some() {
            self.blocks_joined.fetch_sub(1, Ordering::AcqRel);
        }
        state.running = None;
        inner.forgotten.insert(buffer.block);
        if live {
            inner.revokes.insert(buffer.block);
        }
    }

    /// Revokes freed data blocks that have copies in the log.
    pub(crate) fn revoke(&self, blocks: &[u64]) {
        let mut inner = self.inner.lock();
        for block in blocks {
            if !inner.blocks.contains_key(block) {
                inner.revokes.insert(*block);
                inner.forgotten.insert(*block);
            }
        }
    }

    pub(crate) fn on_commit(&self, callback: Callback) {
        self.inner.lock().callbacks.push(callback);
    }

    /// Clones the contents of every block and releases the blocks to the next transaction. The
    /// caller made sure that no handle is open.
    pub(crate) fn freeze(&self) -> Frozen {
        let inner = std::mem::take(&mut *self.inner.lock());
        let mut copies = Vec::with_capacity(inner.blocks.len());
        for (_, buffer) in inner.blocks {
            let mut state = buffer.lock();
            state.running = None;
            let image = state.data.clone();
            drop(state);
            // A joined block is always loaded: join happens after the load, and a held buffer is
            // neither evicted nor emptied.
            let image = image.expect("a joined block is loaded");
            copies.push((buffer, image));
        }
        Frozen {
            copies,
            revokes: inner.revokes.into_iter().collect(),
            forgotten: inner.forgotten.into_iter().collect(),
            callbacks: inner.callbacks,
        }
    }
}
