//! Metadata blocks in memory, keyed by block number.
//!
//! ```text
//!   get/read -> Arc snapshot            modify (through a Handle) -> copy on write
//!        \                                   /
//!   Buffer { data: Arc<[u8]>, running: tid? }      one lock a block
//!        |            \
//!   log copy (Arc)     checkpoint image (Arc)      clones, never written to again
//! ```
//!
//! Promises
//! - A snapshot never changes. A modification copies the block only while a snapshot, a frozen copy
//!   or a checkpoint image of it is alive.
//! - A block whose newest contents are not in their place on the device is never dropped: the
//!   transaction or the checkpoint list holds its buffer, and only buffers without a holder are
//!   evicted.
//! - Device reads happen under the lock of the one block only. Nothing else waits for them.
//!
//! Assumptions: closures given to this cache and to [`crate::Handle::modify`] do not call back into
//! it. Memory: the capacity, plus what running, committing and not checkpointed transactions hold,
//! which is at most the length of the log. Eviction is a clock per shard and does not depend on
//! hash order, so runs reproduce. Tested below and in `tests/it/transactions.rs`.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use syncline_base::lockrank::{Mutex, MutexGuard};
use syncline_device::{BlockDevice, DeviceError, Kind, MAX_REQUEST_BYTES, Op, Origin, Request};

use crate::{Tid, ranks};

const SHARDS: usize = 16;
/// Buffers looked at for eviction per insertion: bounds the work of one miss.
const EVICTION_STEPS: usize = 16;
const READ: Origin = Origin::new(Kind::Metadata, true);

/// One metadata block. Locked on its own.
pub(crate) struct Buffer {
    pub(crate) block: u64,
    referenced: AtomicBool,
    state: Mutex<BufferState>,
}

#[derive(Default)]
pub(crate) struct BufferState {
    /// Newest contents; `None` until loaded.
    pub(crate) data: Option<Arc<[u8]>>,
    /// True if the caller's check has passed, or the block was made here.
    verified: bool,
    /// The running transaction that holds the newest contents, if any.
    pub(crate) running: Option<Tid>,
}

impl Buffer {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BufferState> {
        self.state.lock()
    }
}

impl BufferState {
    /// The contents for writing, copied first if a snapshot is alive. `None` when not loaded.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.verified = true;
        self.data.as_mut().map(Arc::make_mut)
    }

    /// As [`BufferState::bytes_mut`] for a change that may be taken back: says nothing about the
    /// caller's check.
    pub(crate) fn unchecked_mut(&mut self) -> Option<&mut [u8]> {
        self.data.as_mut().map(Arc::make_mut)
    }

    /// The contents are as a handle left them.
    pub(crate) fn set_verified(&mut self) {
        self.verified = true;
    }

    /// Replaces the contents.
    pub(crate) fn replace(&mut self, data: Arc<[u8]>) {
        self.verified = true;
        self.data = Some(data);
    }
}

#[derive(Default)]
struct Shard {
    map: FxHashMap<u64, Arc<Buffer>>,
    /// Clock hand order; a block may be listed after it left the map.
    ring: VecDeque<u64>,
}

/// The metadata blocks of one volume.
pub struct BufferCache {
    dev: Arc<dyn BlockDevice>,
    block_size: usize,
    shard_capacity: usize,
    shards: Vec<Mutex<Shard>>,
}

impl BufferCache {
    /// A cache of `capacity_blocks` clean blocks over `dev`.
    pub fn new(dev: Arc<dyn BlockDevice>, block_size: usize, capacity_blocks: usize) -> Arc<Self> {
        Arc::new(BufferCache {
            dev,
            block_size,
            shard_capacity: capacity_blocks.div_ceil(SHARDS).max(4),
            shards: (0..SHARDS).map(|_| Mutex::new(ranks::SHARD, Shard::default())).collect(),
        })
    }

    /// Block size in bytes.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Blocks held now, dirty ones included.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().map.len()).sum()
    }

    /// True if nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Snapshot of a block's newest contents, read from the device if absent. `verify` runs once
    /// per load; its error is returned and the block is not kept.
    ///
    /// # Errors
    /// The device's, or what `verify` returned.
    pub fn get<E: From<DeviceError>>(
        &self,
        block: u64,
        verify: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<Arc<[u8]>, E> {
        let buffer = self.buffer(block);
        let mut state = buffer.lock();
        let data = self.load(block, &mut state)?;
        if !state.verified {
            if let Err(error) = verify(&data) {
                state.data = None;
                return Err(error);
            }
            state.verified = true;
        }
        Ok(data)
    }

    /// Snapshot without a check.
    ///
    /// # Errors
    /// The device's.
    pub fn read(&self, block: u64) -> Result<Arc<[u8]>, DeviceError> {
        let buffer = self.buffer(block);
        let mut state = buffer.lock();
        self.load(block, &mut state)
    }

    /// Snapshot of a block if it is in memory.
    pub fn peek(&self, block: u64) -> Option<Arc<[u8]>> {
        let buffer = self.shard(block).lock().map.get(&block).cloned()?;
        let state = buffer.lock();
        state.data.clone()
    }

    /// Reads the absent ones of `blocks` as one batch, adjacent blocks in one request. Errors are
    /// left to the later [`BufferCache::get`].
    pub fn prefetch(&self, blocks: &[u64]) {
        let mut blocks = blocks.to_vec();
        blocks.sort_unstable();
        blocks.dedup();
        let buffers: Vec<_> = blocks.into_iter().map(|b| self.buffer(b)).collect();
        // Locked in ascending order and by try_lock: a busy block is being loaded by somebody else.
        let mut absent: Vec<_> = (buffers.iter())
            .filter_map(|b| b.state.try_lock().map(|s| (b.block, s)))
            .filter(|(_, s)| s.data.is_none())
            .map(|(block, s)| (block, s, zeroed(self.block_size)))
            .collect();
        let limit = self.dev.geometry().max_request_bytes.clamp(1, MAX_REQUEST_BYTES);
        let mut batch: Vec<Request<'_>> = Vec::new();
        let mut end = None;
        for (block, _, data) in &mut absent {
            let Some(offset_bytes) = block.checked_mul(self.block_size as u64) else { continue };
            let Some(slice) = Arc::get_mut(data) else { continue };
            let room = batch.last().is_some_and(|r| r.len_bytes() + slice.len() as u64 <= limit);
            match batch.last_mut() {
                Some(Request { op: Op::Read { into }, .. }) if room && end == Some(*block) => {
                    into.push(slice);
                }
                _ => {
                    batch.push(Request {
                        offset_bytes,
                        op: Op::Read { into: vec![slice] },
                        origin: READ,
                    });
                }
            }
            end = block.checked_add(1);
        }
        if batch.is_empty() || self.dev.submit(&mut batch).is_err() {
            return;
        }
        drop(batch);
        for (_, mut state, data) in absent {
            state.data = Some(data);
        }
    }

    /// Drops a clean buffer, because the block now holds file data. A block that belongs to a
    /// transaction or waits for its checkpoint stays.
    pub fn invalidate(&self, block: u64) {
        let mut shard = self.shard(block).lock();
        if shard.map.get(&block).is_some_and(|b| Arc::strong_count(b) == 1) {
            shard.map.remove(&block);
        }
    }

    /// Drops a block whose free was committed, unless a newer transaction took it up again. A
    /// buffer that somebody holds is emptied instead of removed, so that a block never has two
    /// buffers.
    pub(crate) fn drop_forgotten(&self, block: u64) {
        let mut shard = self.shard(block).lock();
        let Some(buffer) = shard.map.get(&block).cloned() else { return };
        let mut state = buffer.lock();
        if state.running.is_none() {
            state.data = None;
            state.verified = false;
            // Two references: the map's and ours.
            if Arc::strong_count(&buffer) == 2 {
                shard.map.remove(&block);
            }
        }
    }

    /// The buffer of a block, loaded or not.
    pub(crate) fn buffer(&self, block: u64) -> Arc<Buffer> {
        let mut shard = self.shard(block).lock();
        if let Some(buffer) = shard.map.get(&block) {
            buffer.referenced.store(true, Ordering::Relaxed);
            return Arc::clone(buffer);
        }
        let buffer = Arc::new(Buffer {
            block,
            referenced: AtomicBool::new(false),
            state: Mutex::new(ranks::BLOCK, BufferState::default()),
        });
        shard.make_room(self.shard_capacity);
        shard.map.insert(block, Arc::clone(&buffer));
        shard.ring.push_back(block);
        buffer
    }

    /// The contents, read from the device if absent. The caller holds the block's lock.
    pub(crate) fn load(
        &self,
        block: u64,
        state: &mut BufferState,
    ) -> Result<Arc<[u8]>, DeviceError> {
        if let Some(data) = &state.data {
            return Ok(Arc::clone(data));
        }
        let len_bytes = self.block_size as u64;
        let out_of_range =
            DeviceError::OutOfRange { op: "read", offset_bytes: u64::MAX, len_bytes };
        let offset = block.checked_mul(len_bytes).ok_or(out_of_range)?;
        let mut data = zeroed(self.block_size);
        let slice = Arc::get_mut(&mut data).expect("the Arc was made on the line above");
        self.dev.read(offset, slice, READ)?;
        state.data = Some(Arc::clone(&data));
        state.verified = false;
        Ok(data)
    }

    fn shard(&self, block: u64) -> &Mutex<Shard> {
        // Consecutive blocks go to different shards; the remainder is always in range.
        &self.shards[(block % SHARDS as u64) as usize]
    }
}

impl Shard {
    /// Evicts until one more block fits, as far as [`EVICTION_STEPS`] looks allow.
    fn make_room(&mut self, capacity: usize) {
        if self.ring.len() > 4 * capacity.max(self.map.len()) {
            // Blocks that left the map otherwise are still listed; keep the list bounded.
            let mut seen = std::collections::HashSet::new();
            self.ring.retain(|b| self.map.contains_key(b) && seen.insert(*b));
        }
        for _ in 0..EVICTION_STEPS {
            if self.map.len() < capacity {
                return;
            }
            let Some(block) = self.ring.pop_front() else { return };
            let Some(buffer) = self.map.get(&block) else { continue };
            // Held by nobody but the map: not in a transaction, not waiting for its checkpoint, and
            // nobody can take it while this shard is locked.
            let idle = Arc::strong_count(buffer) == 1;
            if buffer.referenced.swap(false, Ordering::Relaxed) || !idle {
                self.ring.push_back(block);
            } else {
                self.map.remove(&block);
            }
        }
    }
}

/// A zero-filled block, allocated once.
pub(crate) fn zeroed(len: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0u8, len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::{MemoryDevice, RecordingDevice};

    #[test]
    fn memory_stays_bounded_and_held_buffers_stay() {
        let dev = Arc::new(RecordingDevice::new(MemoryDevice::new(4 << 20)));
        let cache = BufferCache::new(dev.clone(), 1024, 64);
        let held = cache.buffer(5);
        cache.load(5, &mut held.lock()).unwrap();
        for round in 0..3 {
            for block in 0..1000 {
                cache.read(block).unwrap();
            }
            assert!(cache.len() <= 64 + SHARDS, "round {round}: {}", cache.len());
        }
        assert!(Arc::ptr_eq(&held, &cache.buffer(5)));
        cache.invalidate(5);
        assert!(cache.peek(5).is_some(), "somebody holds it");
        drop(held);
        cache.invalidate(5);
        assert!(cache.peek(5).is_none());
    }

    #[test]
    fn prefetch_reads_adjacent_blocks_as_one_request() {
        let dev = Arc::new(RecordingDevice::new(MemoryDevice::new(4 << 20)));
        let cache = BufferCache::new(dev.clone(), 1024, 64);
        cache.read(11).unwrap();
        let before = dev.counts();
        cache.prefetch(&[13, 10, 12, 11, 40, 12]);
        assert_eq!((dev.counts() - before).read_requests(), 3);
        assert!([10, 12, 13, 40].iter().all(|b| cache.peek(*b).is_some()));
        cache.prefetch(&[1 << 40]);
        assert!(cache.read(1 << 40).is_err() && cache.read(u64::MAX).is_err());
    }
}
