//! Writing a frozen transaction to the log, durably.
//!
//! ```text
//!  [revoke blocks][descriptor + copies]...   one plug of large sequential writes
//!  flush                                     covers the copies, and data written in place before
//!  [commit block]  FUA, or write + flush     the transaction is durable
//!
//!  with Checksums::V1Async:  [descriptor + copies]...[commit block]  one write | flush
//!  with Checksums::Packed:   [packed record]                         one write | flush
//!  ordered only: a cache barrier for each flush of the last two
//! ```
//!
//! Torn commit blocks: the v3 checksum covers the whole commit block, and e2fsck 1.47 calls the
//! journal corrupt when only the first sector of it arrived over stale log contents. So where the
//! commit block's place is not known to be zero (`zeroed.rs`) the body also zeroes it, and only its
//! first sector, which holds everything, is written after the flush. That is 512 bytes more a
//! commit and no more requests.

use syncline_base::lockrank::MutexGuard;
use syncline_device::{Kind, Origin, Plug, SECTOR_BYTES};

use crate::JournalError;
use crate::journal::{Checksums, Journal};
use crate::log_superblock::LogSuperblock;
use crate::record::Record;
use crate::ring::Place;
use crate::state::State;
use crate::transaction::Frozen;
use crate::zeroed::{PEEK_BYTES, is_zeroed};

pub(crate) const LOG: Origin = Origin::new(Kind::Journal, true);

impl Journal {
    /// Takes log space and writes the transaction durably. The caller has the turn.
    pub(crate) fn write_frozen(
        &self,
        state: &mut MutexGuard<'_, State>,
        frozen: &Frozen,
    ) -> Result<Place, JournalError> {
        let Some(sequence) = state.committing_sequence() else {
            return Err(JournalError::Usage("a record without a sequence"));
        };
        let mut len = self.log_blocks_for(frozen.copies.len(), frozen.revokes.len());
        let mut record = None;
        if let Some(packed) = &self.packed {
            let bytes = MutexGuard::unlocked(state, || packed.record(frozen, sequence))?;
            len = packed.blocks_of(bytes.len());
            record = Some(bytes);
        }
        loop {
            state.check()?;
            let short = len.saturating_sub(state.ring.free());
            if short == 0 {
                break;
            }
            self.make_space(state, short, true)?;
        }
        let first_block = state.ring.take(len);
        let starts_log = !state.ring.is_started();
        let Some(committing) = state.turns.committing_mut() else {
            return Err(JournalError::Usage("the commit turn was lost"));
        };
        committing.unplaced = 0;
        committing.first_block = Some(first_block);
        let place = Place { sequence, first_block, len };
        if let Some(record) = record {
            MutexGuard::unlocked(state, || self.write_packed(&record, frozen, place, starts_log))?;
            state.ring.set_started();
            return Ok(place);
        }
        let guarded = self.needs_guard(state, place)?;
        let written =
            MutexGuard::unlocked(state, || self.write_record(frozen, place, starts_log, guarded))?;
        for (index, zeroed) in (0..).zip(written) {
            let block = self.limits.ring.advance(first_block, index);
            state.ring.zeroed.set(block, zeroed);
        }
        state.ring.set_started();
        Ok(place)
    }

    /// True if the commit block of a record must not be written over what its place may hold.
    fn needs_guard(
        &self,
        state: &mut MutexGuard<'_, State>,
        place: Place,
    ) -> Result<bool, JournalError> {
        // From the options, not from the superblock: a thread that moves the tail holds the
        // superblock and waits for the state, which is locked here.
        if self.options.checksums != Checksums::V3 {
            return Ok(false);
        }
        let last = self.limits.ring.advance(place.first_block, place.len.saturating_sub(1));
        if !state.ring.zeroed.is_known(last) {
            // A log that cannot be read can still be written: what is unknown is guarded.
            let peeked = MutexGuard::unlocked(state, || self.peek(last));
            for (block, zeroed) in (last..).zip(peeked.unwrap_or_default()) {
                // What was written meanwhile is known better.
                if !state.ring.zeroed.is_known(block) {
                    state.ring.zeroed.set(block, zeroed);
                }
            }
        }
        Ok(!state.ring.zeroed.is_zeroed(last))
    }

    /// Reads log blocks from `first` on, as far as they lie together: for each whether it is
    /// zeroed.
    fn peek(&self, first: u32) -> Result<Vec<bool>, JournalError> {
        let block_size = self.log.block_size;
        let most = (PEEK_BYTES / block_size).max(1).min(self.limits.ring.end - first);
        let start = self.log.offset(first)?;
        let mut count = 1;
        while count < most
            && self.log.offset(first + count)? == start + u64::from(count * block_size)
        {
            count += 1;
        }
        let mut bytes = vec![0; (count * block_size) as usize];
        self.dev.read(start, &mut bytes, LOG)?;
        Ok(bytes.chunks(block_size as usize).map(is_zeroed).collect())
    }

    fn write_packed(
        &self,
        record: &[u8],
        frozen: &Frozen,
        place: Place,
        starts_log: bool,
    ) -> Result<(), JournalError> {
        self.flush_before(frozen)?;
        if starts_log {
            self.start_log(place, true)?;
        }
        let blocks = record.chunks(self.log.block_size as usize);
        self.write_at_once(frozen, place.first_block, blocks)
    }

    /// A record that a checksum covers: one write, one flush; with FUA one write.
    fn write_at_once<'b>(
        &self,
        frozen: &Frozen,
        first_block: u32,
        blocks: impl Iterator<Item = &'b [u8]>,
    ) -> Result<(), JournalError> {
        let fua = frozen.only_record && !frozen.ordered && self.dev.geometry().fua;
        self.write_log(first_block, blocks, fua)?;
        if fua {
            return Ok(());
        }
        if frozen.ordered {
            return self.order();
        }
        self.note_flush_started();
        self.flush()
    }

    /// Extents of data that was written in place must not be older than that data.
    fn flush_before(&self, frozen: &Frozen) -> Result<(), JournalError> {
        match self.flushes.is_over(frozen.flush) {
            true => Ok(()),
            false if frozen.ordered => self.order(),
            false => self.flush(),
        }
    }

    /// Writes body, flush, commit block. Returns for each block of the record whether it is zeroed.
    fn write_record(
        &self,
        frozen: &Frozen,
        place: Place,
        starts_log: bool,
        guarded: bool,
    ) -> Result<Vec<bool>, JournalError> {
        let Place { sequence, first_block, .. } = place;
        let format = self.superblock.lock().format();
        if format.is_async {
            self.flush_before(frozen)?;
        }
        let record = Record {
            format,
            sequence,
            commit_ns: self.clock.now_ns(),
            copies: &frozen.copies,
            revokes: &frozen.revokes,
        };
        let body = record.body()?;
        let commit_block = record.commit_block(&body)?;
        let zeroes = if guarded { vec![0; format.layout.block_size] } else { Vec::new() };
        if starts_log {
            self.start_log(place, format.is_async)?;
        }
        if format.is_async {
            let blocks = body.iter().map(|b| b.bytes()).chain([&*commit_block]);
            self.write_at_once(frozen, first_block, blocks)?;
            return Ok(Vec::new());
        }
        let blocks = body.iter().map(|b| b.bytes()).chain(guarded.then_some(&*zeroes));
        self.write_log(first_block, blocks, false)?;
        self.note_flush_started();
        self.flush()?;
        let at = self.limits.ring.advance(first_block, body.len() as u32);
        let bytes = if guarded { &commit_block[..SECTOR_BYTES as usize] } else { &commit_block };
        self.write_durable(self.log.offset(at)?, bytes)?;
        Ok(body.iter().map(|b| is_zeroed(b.bytes())).chain([is_zeroed(&commit_block)]).collect())
    }

    /// The superblock says where the first transaction of an empty log will be.
    fn start_log(&self, place: Place, is_async: bool) -> Result<(), JournalError> {
        // In one epoch with the body: until the flush after that nothing can make the log look
        // longer than it is, because its first block does not carry the sequence yet.
        let mut superblock = self.superblock.lock();
        superblock.set_start(place.sequence, place.first_block);
        superblock.write(&*self.dev, &self.log)?;
        self.count_superblock_write();
        drop(superblock);
        if is_async {
            // A group commit has its commit block, which may be all that arrives. If the superblock
            // called the log empty then, the next mount would use the same sequence again and
            // stock recovery would find that block behind its first transaction.
            self.flush()?;
        }
        Ok(())
    }

    fn note_flush_started(&self) {
        if let Some(committing) = self.state.lock().turns.committing_mut() {
            committing.flush_started = true;
        }
    }

    /// Flushes the device and remembers that it did.
    pub(crate) fn flush(&self) -> Result<(), JournalError> {
        let number = self.flushes.begin();
        self.dev.flush(LOG)?;
        self.flushes.end(number);
        Ok(())
    }

    /// Orders what was written before all later writes, and remembers that it is not durable.
    pub(crate) fn order(&self) -> Result<(), JournalError> {
        self.dev.order(LOG)?;
        self.flushes.note_ordered();
        Ok(())
    }

    /// Makes transactions durable that are ordered only.
    pub(crate) fn flush_ordered(&self) -> Result<(), JournalError> {
        if !self.flushes.all_durable() {
            self.flush().map_err(|error| self.latch(error))?;
        }
        let free = {
            let mut state = self.state.lock();
            // Another one may have been ordered meanwhile.
            match self.flushes.all_durable() {
                true => state.deferred.take_unflushed(),
                false => Vec::new(),
            }
        };
        free.into_iter().for_each(|run| run());
        Ok(())
    }

    /// Writes blocks to the log from `first_block` on, as one plug; `fua`: durable on return.
    fn write_log<'a>(
        &self,
        first_block: u32,
        blocks: impl Iterator<Item = &'a [u8]>,
        fua: bool,
    ) -> Result<(), JournalError> {
        let mut plug = Plug::new();
        let mut at = first_block;
        for bytes in blocks {
            let offset = self.log.offset(at)?;
            if fua {
                plug.write_fua(offset, bytes, LOG);
            } else {
                plug.write(offset, bytes, LOG);
            }
            at = self.limits.ring.advance(at, 1);
        }
        Ok(plug.submit(&*self.dev)?)
    }

    /// Writes so that the bytes are durable on return: FUA, or write and flush.
    pub(crate) fn write_durable(
        &self,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), JournalError> {
        let mut plug = Plug::new();
        if self.dev.geometry().fua {
            plug.write_fua(offset_bytes, bytes, LOG);
        } else {
            plug.write(offset_bytes, bytes, LOG);
            plug.flush(LOG);
        }
        Ok(plug.submit(&*self.dev)?)
    }

    fn count_superblock_write(&self) {
        self.state.lock().stats.superblock_writes += 1;
    }

    /// Writes the superblock durably.
    pub(crate) fn write_superblock(
        &self,
        superblock: &mut LogSuperblock,
    ) -> Result<(), JournalError> {
        let offset = self.log.offset(0)?;
        self.write_durable(offset, superblock.encoded()?)?;
        self.count_superblock_write();
        Ok(())
    }
}
