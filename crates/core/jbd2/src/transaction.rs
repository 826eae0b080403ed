//! The compound transaction that handles join, and its frozen form.
//!
//! In eager mode it also knows its dependency sets (`dependency_sets/`). A group commit takes some
//! of them out in three steps, while the others run on:
//!
//! ```text
//!   take_sets     state and transaction locked   the sets of the seeds, snapshots of shared blocks
//!   compose       nothing locked                 next logged images (dependency_sets/compose.rs)
//!   freeze_sets   state and transaction locked   their blocks leave the transaction as images
//! ```
//!
//! Between the steps the running transaction is locked: it admits no handle, so nothing in it
//! changes. Its blocks stay in it until the last step, so a question whether a block is part of it
//! is answered correctly meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use syncline_base::lockrank::Mutex;
use syncline_device::{Kind, Origin};
use syncline_ondisk::packed::Previous;

use crate::buffer::{Buffer, BufferState};
use crate::dependency_sets::{DependencySet, DependencySets, Logged, Member, Release, Shared};
use crate::{JournalError, Tid, ranks};

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
    /// Eager mode: what recovery gives of blocks that are not shared, as they joined.
    bases: BTreeMap<u64, Arc<[u8]>>,
    /// File data that travels in the log.
    data: BTreeMap<u64, Data>,
    /// Blocks whose older copies in the log must not be replayed.
    revokes: BTreeSet<u64>,
    /// Blocks freed: their checkpoint obligation ends when this transaction is durable.
    forgotten: BTreeSet<u64>,
    callbacks: Vec<Callback>,
    dependencies: DependencySets,
}

/// Origin of metadata that is written in place.
pub(crate) const IN_PLACE: Origin = Origin::new(Kind::Metadata, false);

/// One block on its way into the log.
pub(crate) struct Copy {
    pub(crate) block: u64,
    pub(crate) image: Arc<[u8]>,
    /// Held so that the buffer is not evicted; data has none.
    pub(crate) buffer: Option<Arc<Buffer>>,
    pub(crate) origin: Origin,
    pub(crate) base: Base,
}

/// Image that recovery gives of a block without a copy of it.
#[derive(Clone)]
pub(crate) enum Base {
    /// Not known, or of a former owner.
    Unknown,
    Image(Arc<[u8]>),
    /// File data: parts that may differ from it, one bit each (`Previous::Changed`).
    Changed(u64),
}

impl Base {
    pub(crate) fn is_known(&self) -> bool {
        !matches!(self, Base::Unknown)
    }

    pub(crate) fn previous(&self) -> Previous<'_> {
        match self {
            Base::Unknown => Previous::Unknown,
            Base::Image(image) => Previous::Image(image),
            Base::Changed(mask) => Previous::Changed(*mask),
        }
    }
}

/// File data that travels in the log.
struct Data {
    image: Arc<[u8]>,
    origin: Origin,
    /// Parts in which it may differ from what recovery gives without this transaction, if that is
    /// known.
    changed: Option<u64>,
}

/// A transaction after its last handle: images that never change.
#[derive(Default)]
pub(crate) struct Frozen {
    pub(crate) copies: Vec<Copy>,
    pub(crate) revokes: Vec<u64>,
    pub(crate) forgotten: Vec<u64>,
    pub(crate) callbacks: Vec<Release>,
    /// Number of the device flush that must be over first; 0: none.
    pub(crate) flush: u64,
    /// No caller needs in-place writes to become durable with it: with FUA the record needs no
    /// flush.
    pub(crate) only_record: bool,
    /// No caller needs it to be durable: a cache barrier ends it.
    pub(crate) ordered: bool,
}

/// Sets on their way out of the running transaction.
pub(crate) struct TakenSets {
    /// Without its changes of shared blocks, which are in `shared`.
    set: DependencySet,
    pub(crate) shared: Vec<Shared>,
}

impl Frozen {
    pub(crate) fn has_record(&self) -> bool {
        !self.copies.is_empty() || !self.revokes.is_empty()
    }
}

impl Transaction {
    pub(crate) fn new(tid: Tid, limit_hard: u32) -> Arc<Self> {
        Arc::new(Transaction {
            tid,
            limit_hard,
            blocks_joined: AtomicU32::new(0),
            inner: Mutex::new(ranks::TRANSACTION, Inner::default()),
        })
    }

    /// Blocks joined so far.
    pub(crate) fn len_blocks(&self) -> u32 {
        self.blocks_joined.load(Ordering::Acquire)
    }

    /// True if a commit would have nothing to do, not even callbacks to run.
    pub(crate) fn is_idle(&self) -> bool {
        let inner = self.inner.lock();
        inner.blocks.is_empty()
            && inner.data.is_empty()
            && inner.revokes.is_empty()
            && inner.forgotten.is_empty()
            && inner.callbacks.is_empty()
            && inner.dependencies.sets.is_empty()
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
        self.check_room()?;
        inner.revokes.remove(&buffer.block);
        inner.forgotten.remove(&buffer.block);
        if inner.blocks.insert(buffer.block, Arc::clone(buffer)).is_none() {
            self.blocks_joined.fetch_add(1, Ordering::AcqRel);
        }
        state.running = Some(self.tid);
        Ok(())
    }

    /// [`Transaction::join`] of a block that one file owns; `base` is what recovery gives of it.
    /// If it is that again when it is committed it is not logged.
    pub(crate) fn join_owned(
        &self,
        buffer: &Arc<Buffer>,
        state: &mut BufferState,
        base: Option<Arc<[u8]>>,
    ) -> Result<(), JournalError> {
        if state.running == Some(self.tid) {
            return Ok(());
        }
        self.join(buffer, state)?;
        if let Some(base) = base {
            self.inner.lock().bases.insert(buffer.block, base);
        }
        Ok(())
    }

    fn check_room(&self) -> Result<(), JournalError> {
        if self.len_blocks() >= self.limit_hard {
            let credits = self.len_blocks().saturating_add(1);
            return Err(JournalError::TooLarge { credits, limit: self.limit_hard });
        }
        Ok(())
    }

    /// [`Transaction::join`] of a block that many files share; `base` is what recovery gives of it
    /// if it is not part of the transaction yet, or with `fresh` what it will give once a set with
    /// the block is committed. Returns whether it is used in no other way.
    pub(crate) fn join_shared(
        &self,
        buffer: &Arc<Buffer>,
        state: &mut BufferState,
        base: Option<Arc<[u8]>>,
        fresh: bool,
    ) -> Result<bool, JournalError> {
        let joined_before = state.running == Some(self.tid);
        self.join(buffer, state)?;
        let mut inner = self.inner.lock();
        match base {
            Some(image) if !joined_before => {
                inner.dependencies.logged.insert(buffer.block, Logged { image, fresh, uses: 0 });
                Ok(true)
            }
            _ => Ok(inner.dependencies.logged.contains_key(&buffer.block)),
        }
    }

    /// True if the block is one that many files share.
    pub(crate) fn is_shared(&self, block: u64) -> bool {
        self.inner.lock().dependencies.logged.contains_key(&block)
    }

    /// Puts file data into the transaction, instead of older data of that block. `changed`: parts
    /// in which it may differ from that, or from what recovery gives of the block if there is none.
    pub(crate) fn join_data(
        &self,
        block: u64,
        image: Arc<[u8]>,
        origin: Origin,
        changed: Option<u64>,
    ) -> Result<(), JournalError> {
        let mut inner = self.inner.lock();
        self.check_room()?;
        inner.revokes.remove(&block);
        inner.forgotten.remove(&block);
        let older = inner.data.remove(&block);
        let changed = match &older {
            Some(older) => older.changed.zip(changed).map(|(older, newer)| older | newer),
            None => changed,
        };
        inner.data.insert(block, Data { image, origin, changed });
        if older.is_none() {
            self.blocks_joined.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Takes freed data out.
    pub(crate) fn forget_data(&self, first: u64, count: u64) {
        let end = first.saturating_add(count);
        let mut inner = self.inner.lock();
        if inner.data.is_empty() || first >= end {
            return;
        }
        let gone: Vec<u64> = inner.data.range(first..end).map(|(b, _)| *b).collect();
        for block in gone {
            inner.data.remove(&block);
            self.blocks_joined.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Takes a freed metadata block out; `revoke` says that the log holds a copy of it that must
    /// not be replayed.
    pub(crate) fn forget(&self, buffer: &Buffer, state: &mut BufferState, revoke: bool) {
        let mut inner = self.inner.lock();
        if inner.blocks.remove(&buffer.block).is_some() {
            self.blocks_joined.fetch_sub(1, Ordering::AcqRel);
        }
        state.running = None;
        inner.forgotten.insert(buffer.block);
        if revoke {
            inner.revokes.insert(buffer.block);
        }
    }

    /// Takes a freed metadata block out; its set remembers it.
    pub(crate) fn drop_block(&self, buffer: &Buffer, state: &mut BufferState) {
        let mut inner = self.inner.lock();
        inner.bases.remove(&buffer.block);
        if inner.blocks.remove(&buffer.block).is_some() {
            self.blocks_joined.fetch_sub(1, Ordering::AcqRel);
        }
        state.running = None;
    }

    /// True if file data for this block is part of the transaction.
    pub(crate) fn has_data(&self, block: u64) -> bool {
        self.inner.lock().data.contains_key(&block)
    }

    /// True if some set has this member.
    pub(crate) fn has_member(&self, member: Member) -> bool {
        self.inner.lock().dependencies.has(member)
    }

    /// Revokes freed data blocks that have copies in the log.
    pub(crate) fn revoke(&self, blocks: &[u64]) {
        let mut inner = self.inner.lock();
        for block in blocks {
            if !inner.blocks.contains_key(block) && !inner.data.contains_key(block) {
                inner.revokes.insert(*block);
                inner.forgotten.insert(*block);
            }
        }
    }

    pub(crate) fn on_commit(&self, callback: Callback) {
        self.inner.lock().callbacks.push(callback);
    }

    /// An operation of eager mode ended.
    pub(crate) fn close(&self, op: DependencySet) {
        self.inner.lock().dependencies.close(op);
    }

    /// Clones the contents of every block and releases the blocks to the next transaction. The
    /// caller made sure that no handle is open.
    pub(crate) fn freeze(&self) -> Frozen {
        let inner = std::mem::take(&mut *self.inner.lock());
        let mut frozen = Frozen::default();
        let (mut forgotten, mut revokes) = (inner.forgotten, inner.revokes);
        for callback in inner.callbacks {
            frozen.callbacks.push(Release { run: callback, range: None });
        }
        for (_, set) in inner.dependencies.sets {
            frozen.callbacks.extend(set.callbacks);
            frozen.flush = frozen.flush.max(set.flush);
            forgotten.extend(set.forgotten);
            revokes.extend(set.revokes);
        }
        frozen.copies.reserve(inner.blocks.len() + inner.data.len());
        for (block, buffer) in inner.blocks {
            let base = inner.bases.get(&block);
            let logged = inner.dependencies.logged.get(&block).filter(|logged| !logged.fresh);
            let base = base.or_else(|| logged.map(|logged| &logged.image));
            frozen.copies.extend(Copy::changed(buffer, base));
        }
        for block in inner.data.keys() {
            revokes.remove(block);
        }
        frozen.copies.extend(inner.data.into_iter().map(|(block, data)| data.copy(block)));
        frozen.revokes = revokes.into_iter().collect();
        frozen.forgotten = forgotten.into_iter().collect();
        frozen
    }

    /// Takes the sets of `seeds` out and snapshots the blocks that they share with others. `None`:
    /// sets cannot be told apart, everything has to be committed. The caller made sure that no
    /// handle is open.
    pub(crate) fn take_sets(&self, seeds: &[Member]) -> Option<TakenSets> {
        let mut inner = self.inner.lock();
        if inner.dependencies.mixed {
            return None;
        }
        let mut set = inner.dependencies.take(seeds);
        let mut found = Vec::with_capacity(set.shared.len());
        for (block, delta) in std::mem::take(&mut set.shared) {
            let logged = inner.dependencies.logged.get(&block);
            let (Some(logged), Some(buffer)) = (logged, inner.blocks.get(&block)) else {
                inner.keep(set);
                return None;
            };
            let alone = logged.uses == 0;
            found.push((Arc::clone(&logged.image), Arc::clone(buffer), alone, delta));
        }
        drop(inner);
        // Blocks are locked before transactions, never after.
        let shared = (found.into_iter())
            .map(|(logged, buffer, alone, delta)| {
                let newest = buffer.lock().data.clone();
                // Join happens after the load, and a held buffer is neither evicted nor emptied.
                let newest = newest.expect("a joined block is loaded");
                Shared { block: buffer.block, logged, newest, delta, alone }
            })
            .collect();
        Some(TakenSets { set, shared })
    }

    /// The taken sets as images: their blocks as they are, and `images` of the blocks that they
    /// share with others. `None`: there are none, everything has to be committed.
    pub(crate) fn freeze_sets(
        &self,
        taken: TakenSets,
        images: Option<BTreeMap<u64, Arc<[u8]>>>,
    ) -> Option<Frozen> {
        // Out of its lock: freezing locks blocks, and handles lock blocks first. Nobody looks
        // meanwhile, since that takes the state lock, which the caller holds.
        let mut inner = std::mem::take(&mut *self.inner.lock());
        let frozen = match images {
            Some(images) if !inner.dependencies.mixed && !taken.set.mixed => {
                Some(inner.freeze_sets(taken.set, images))
            }
            _ => {
                inner.keep(taken.set);
                None
            }
        };
        let left = (inner.blocks.len() + inner.data.len()) as u32;
        self.blocks_joined.store(left, Ordering::Release);
        *self.inner.lock() = inner;
        frozen
    }
}

impl Data {
    fn copy(self, block: u64) -> Copy {
        let base = self.changed.map_or(Base::Unknown, Base::Changed);
        Copy { block, image: self.image, buffer: None, origin: self.origin, base }
    }
}

impl Copy {
    /// As [`Copy::of`]; `None` if the contents are `base`, which recovery gives anyway.
    fn changed(buffer: Arc<Buffer>, base: Option<&Arc<[u8]>>) -> Option<Copy> {
        let mut copy = Copy::of(buffer);
        if base.is_some_and(|base| **base == *copy.image) {
            return None;
        }
        copy.base = base.map_or(Base::Unknown, |base| Base::Image(Arc::clone(base)));
        Some(copy)
    }

    /// The contents of a buffer, which leaves its transaction.
    fn of(buffer: Arc<Buffer>) -> Copy {
        let mut state = buffer.lock();
        state.running = None;
        let image = state.data.clone();
        drop(state);
        // A joined block is always loaded: join happens after the load, and a held buffer is
        // neither evicted nor emptied.
        let image = image.expect("a joined block is loaded");
        let block = buffer.block;
        Copy { block, image, buffer: Some(buffer), origin: IN_PLACE, base: Base::Unknown }
    }
}

impl Inner {
    fn freeze_sets(&mut self, set: DependencySet, images: BTreeMap<u64, Arc<[u8]>>) -> Frozen {
        let mut frozen = Frozen { flush: set.flush, ..Frozen::default() };
        let mut revokes = set.revokes;
        for member in &set.members {
            let Member::Block(block) = *member else { continue };
            if let Some(buffer) = self.blocks.remove(&block) {
                let base = self.bases.remove(&block);
                frozen.copies.extend(Copy::changed(buffer, base.as_ref()));
            } else if let Some(data) = self.data.remove(&block) {
                revokes.remove(&block);
                frozen.copies.push(data.copy(block));
            }
        }
        for (block, image) in images {
            frozen.copies.extend(self.freeze_shared(block, image));
        }
        frozen.copies.sort_by_key(|copy| copy.block);
        frozen.revokes = revokes.into_iter().collect();
        frozen.forgotten = set.forgotten.into_iter().collect();
        frozen.callbacks = set.callbacks;
        frozen
    }

    /// `image` becomes the logged image of a shared block, which leaves the transaction if no other
    /// set has changed it. `None`: recovery gives that image anyway.
    fn freeze_shared(&mut self, block: u64, image: Arc<[u8]>) -> Option<Copy> {
        let logged = self.dependencies.logged.get_mut(&block)?;
        let fresh = std::mem::take(&mut logged.fresh);
        let changed = fresh || logged.image != image;
        let last = logged.uses == 0;
        let before = std::mem::replace(&mut logged.image, Arc::clone(&image));
        let base = if fresh { Base::Unknown } else { Base::Image(before) };
        let buffer = if last {
            self.dependencies.logged.remove(&block);
            self.blocks.remove(&block)
        } else {
            self.blocks.get(&block).cloned()
        };
        if let (Some(buffer), true) = (&buffer, last) {
            buffer.lock().running = None;
        }
        changed.then_some(Copy { block, image, buffer, origin: IN_PLACE, base })
    }

    /// Sets cannot be told apart after all: callbacks and the like go with the whole.
    fn keep(&mut self, set: DependencySet) {
        self.dependencies.mixed = true;
        self.dependencies.sets.insert(0, set);
    }
}
