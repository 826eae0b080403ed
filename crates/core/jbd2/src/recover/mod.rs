//! Recovery: replays the log a crash left, by whichever kernel or tool it was written.
//!
//! ```text
//!   scan      follow sequences from s_start to the first block that does not continue them;
//!             collect tags and revoke blocks of complete transactions     -> where the log ends
//!   revokes   read the revoke blocks; keep those that name a tagged block -> newest copy a block
//!   verify    read and check every copy that will be replayed             nothing is written so
//!   far replay    copies go in place | flush | s_start = 0, s_sequence + 1, durable
//! ```
//!
//! Promises
//! - Nothing is written before the whole log was found good. A cut during the replay leaves the log
//!   as it was, and the next recovery does the same again.
//! - A torn last transaction is dropped; a bad one in the middle is an error (the kernel replays up
//!   to it and then refuses the mount; here nothing is touched).
//! - A revoke in transaction N covers copies of N and of everything before, wherever the ring
//!   wraps.
//! - Bounds: every log block is read at most four times; memory is some 32 bytes a log block and 1
//!   MiB.
//!
//! Kinder than e2fsck 1.47 in two cases: a commit block of which only the first sector arrived
//! counts, as in kernels since 6.9; with v3 and async commit a last transaction with bad copies is
//! dropped instead of half replayed. Tested in `tests/it/recovery.rs`, `tests/it/interop.rs` and
//! `tests/it/fuzz.rs`. Logs of packed records have passes of their own (`packed.rs`). Fast commits
//! are found here and applied by the file system (`fast_commit.rs`).

mod fast_commit;
mod packed;
mod replay;
mod scan;

use syncline_device::BlockDevice;

use crate::format::LogFormat;
use crate::journal::Journal;
use crate::log_superblock::LogSuperblock;
use crate::log_writer::LOG;
use crate::{JournalError, LogMap};

pub use fast_commit::FastCommits;

/// Options of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoverOptions {
    /// Scan and check only; nothing is written.
    pub dry_run: bool,
    /// A copy that does not match its checksum is left out, and so is all from a corrupt
    /// transaction on, as e2fsck does. The file system has to be repaired afterwards.
    pub salvage: bool,
}

/// Findings and work of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// True if the log held anything (`s_start` != 0).
    pub was_needed: bool,
    /// Complete transactions found.
    pub transactions: u32,
    /// Sequence of the newest of them, if any.
    pub last_tid: Option<u32>,
    /// Blocks written in place (with `dry_run`: that would be). Only the newest copy of a block is.
    pub blocks_replayed: u32,
    /// Copies that were not replayed because a revoke covers them.
    pub revoked: u32,
    /// Revoke records seen in complete transactions.
    pub revoke_records: u64,
    /// True if an incomplete last transaction was dropped.
    pub dropped_torn: bool,
    /// Fast commits that are live behind the transactions. Without `dry_run` the log is empty but
    /// for them then, and the file system has to apply them: [`Journal::fast_commits`].
    pub fast_commits: u32,
    /// Sequence the log continues with; a torn one is never used again, that of fast commits is.
    pub next_sequence: u32,
    /// `s_errno` of the journal superblock: a negative errno left by an abort, 0 for none. The file
    /// system marks itself as having errors and calls [`Journal::clear_errno`].
    pub errno: i32,
}

impl Journal {
    /// Replays the log in place, flushes, and marks it empty; one with fast commits keeps these.
    /// Does nothing to an empty log, except that one of packed records becomes a stock one.
    ///
    /// # Errors
    /// `Corrupt` and `Unsupported` before anything was written; `Io` at any point, after which the
    /// recovery can be repeated.
    pub fn recover(
        dev: &dyn BlockDevice,
        log: &LogMap,
        opts: RecoverOptions,
    ) -> Result<Recovery, JournalError> {
        let mut superblock = LogSuperblock::read(dev, log)?;
        let mut recovery = Recovery {
            next_sequence: superblock.sequence(),
            errno: superblock.errno(),
            ..Recovery::default()
        };
        if superblock.start() == 0 {
            if superblock.is_packed() && !opts.dry_run {
                // An unmount was cut between the empty log and its stock features.
                superblock.unpack();
                superblock.write(dev, log)?;
                dev.flush(LOG)?;
            }
            return Ok(recovery);
        }
        recovery.was_needed = true;
        let mut reader = LogReader::new(dev, log, &superblock);
        if let Some(packed) = superblock.packed_log()? {
            let recovery = packed::recover(&mut reader, &superblock, packed, opts.dry_run)?;
            if !opts.dry_run {
                superblock.unpack();
                finish(dev, log, &mut superblock, recovery.next_sequence)?;
            }
            return Ok(recovery);
        }
        let mut scan = scan::scan(&mut reader, &superblock, opts.salvage)?;
        let plan = if opts.salvage {
            replay::salvage(&mut reader, &mut scan)?
        } else {
            whole_plan(&mut reader, &mut scan)?
        };
        recovery.transactions = scan.transactions;
        recovery.last_tid = (scan.transactions > 0).then(|| scan.end.wrapping_sub(1));
        recovery.dropped_torn = scan.dropped_torn;
        recovery.revoked = plan.revoked;
        recovery.revoke_records = plan.revoke_records;
        recovery.blocks_replayed = plan.copies.len() as u32;
        let fast_commits = fast_commit::scan(&mut reader, &superblock, scan.end)?;
        recovery.fast_commits = fast_commits.map_or(0, |found| found.count);
        // What was left out is behind the end, and is never taken for new.
        let beyond = if opts.salvage { reader.ring() } else { 0 };
        recovery.next_sequence = scan.end.wrapping_add(1).wrapping_add(beyond);
        if opts.dry_run {
            return Ok(recovery);
        }
        replay::replay(&mut reader, &plan)?;
        if recovery.fast_commits > 0 {
            // They belong to the transaction that comes next, and are void without it.
            let first = superblock.first();
            recovery.next_sequence = scan.end;
            restart(dev, log, &mut superblock, (scan.end, first))?;
        } else {
            superblock.drop_fast_commits();
            finish(dev, log, &mut superblock, recovery.next_sequence)?;
        }
        Ok(recovery)
    }
}

/// The copies to be replayed, of which none is damaged.
fn whole_plan(
    reader: &mut LogReader<'_>,
    scan: &mut scan::Scan,
) -> Result<replay::Plan, JournalError> {
    let mut plan = replay::plan(reader, scan)?;
    while let Err(bad) = replay::verify(reader, &plan)? {
        // Async commit: the commit block may have arrived without its copies, but only in the
        // last transaction, which nobody was told is durable.
        let may_be_torn = reader.format.is_async && !scan.dropped_torn;
        if !may_be_torn || !scan.drop_last(bad.sequence) {
            return Err(JournalError::corrupt(
                bad.log_block,
                format!("copy of block {} in transaction {}", bad.block, bad.sequence),
            ));
        }
        plan = replay::plan(reader, scan)?;
    }
    Ok(plan)
}

impl Journal {
    /// Empties a log that the file system does not declare to be needed (`needs_recovery`), without
    /// replaying it: it may be older than what is in place. As `jbd2_journal_wipe`; none of its
    /// sequences is used again.
    ///
    /// # Errors
    /// `Corrupt` and `Unsupported` for the journal superblock, before anything was written; `Io`.
    pub fn discard(dev: &dyn BlockDevice, log: &LogMap) -> Result<(), JournalError> {
        let mut superblock = LogSuperblock::read(dev, log)?;
        if superblock.start() == 0 && !superblock.is_packed() {
            return Ok(());
        }
        let mut reader = LogReader::new(dev, log, &superblock);
        // One sequence a log block at most, where what it holds cannot be told.
        let beyond = superblock.sequence().wrapping_add(reader.ring());
        let last = if superblock.start() == 0 || superblock.is_packed() {
            beyond
        } else {
            scan::scan(&mut reader, &superblock, false).map_or(beyond, |scan| scan.end)
        };
        superblock.unpack();
        superblock.drop_fast_commits();
        finish(dev, log, &mut superblock, last.wrapping_add(1))
    }
}

/// Makes the replayed blocks durable, then marks the log as empty.
fn finish(
    dev: &dyn BlockDevice,
    log: &LogMap,
    superblock: &mut LogSuperblock,
    next_sequence: u32,
) -> Result<(), JournalError> {
    restart(dev, log, superblock, (next_sequence, 0))
}

/// Makes what was replayed durable; then the log starts with this sequence and block.
fn restart(
    dev: &dyn BlockDevice,
    log: &LogMap,
    superblock: &mut LogSuperblock,
    (sequence, start): (u32, u32),
) -> Result<(), JournalError> {
    dev.flush(LOG)?;
    superblock.set_start(sequence, start);
    superblock.write(dev, log)?;
    Ok(dev.flush(LOG)?)
}

/// Reads log blocks through a window of consecutive blocks.
pub(crate) struct LogReader<'a> {
    dev: &'a dyn BlockDevice,
    log: &'a LogMap,
    format: LogFormat,
    first: u32,
    end: u32,
    window: Vec<u8>,
    window_first: u32,
    window_blocks: u32,
}

const WINDOW_BYTES: u32 = 128 * 1024;

impl<'a> LogReader<'a> {
    fn new(dev: &'a dyn BlockDevice, log: &'a LogMap, superblock: &LogSuperblock) -> Self {
        LogReader {
            dev,
            log,
            format: superblock.format(),
            first: superblock.first(),
            end: superblock.end(),
            window: Vec::new(),
            window_first: 0,
            window_blocks: 0,
        }
    }

    /// One log block.
    fn read(&mut self, log_block: u32) -> Result<&[u8], JournalError> {
        let inside = log_block.wrapping_sub(self.window_first);
        let size = self.format.layout.block_size;
        if inside >= self.window_blocks {
            let (_, run) = (self.log.run(log_block))
                .ok_or_else(|| JournalError::corrupt(log_block, "outside of the journal inode"))?;
            let blocks = run.min(WINDOW_BYTES.div_ceil(size as u32));
            self.window_blocks = 0;
            self.window.resize(blocks as usize * size, 0);
            self.dev.read(self.log.offset(log_block)?, &mut self.window, LOG)?;
            (self.window_first, self.window_blocks) = (log_block, blocks);
        }
        let at = (log_block - self.window_first) as usize * size;
        Ok(&self.window[at..at + size])
    }

    fn next(&self, log_block: u32) -> u32 {
        if log_block + 1 >= self.end { self.first } else { log_block + 1 }
    }

    /// Blocks on the ring.
    fn ring(&self) -> u32 {
        self.end - self.first
    }
}
