//! Recovery.

use syncline_device::BlockDevice;

use crate::journal::Journal;
use crate::{JournalError, LogMap};

/// How a log is recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoverOptions {
    /// Scan and check only; nothing is written.
    pub dry_run: bool,
}

/// What a recovery found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the log held anything (`s_start` != 0).
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
    /// Whether an incomplete last transaction was dropped.
    pub dropped_torn: bool,
    /// Sequence the log continues with; the torn one is never used again.
    pub next_sequence: u32,
    /// `s_errno` of the journal superblock: a negative errno left by an abort, 0 for none. The file
    /// system marks itself as having errors and calls [`Journal::clear_errno`].
    pub errno: i32,
}

impl Journal {
    /// Replays the log.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub fn recover(
        _dev: &dyn BlockDevice,
        _log: &LogMap,
        _opts: RecoverOptions,
    ) -> Result<Recovery, JournalError> {
        Err(JournalError::Usage("recovery is not there yet"))
    }
}
