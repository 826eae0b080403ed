//! Counters of a journal, exact and cheap.

/// Counters since the journal was opened, and its fill level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Blocks of the log that transactions can use.
    pub log_blocks: u32,
    /// Of these, free now.
    pub log_blocks_free: u32,
    /// Blocks joined to the running transaction.
    pub running_blocks: u32,
    /// Committed blocks that are not in their place yet.
    pub dirty_blocks: usize,
    /// Transactions written to the log.
    pub commits: u64,
    /// Metadata copies written to the log.
    pub blocks_logged: u64,
    /// Everything written to the log: copies, descriptors, revokes and commit blocks.
    pub log_blocks_written: u64,
    /// Blocks by which packed records were shorter than the same transactions of a jbd2 log.
    pub log_blocks_saved: u64,
    /// Revoke records written.
    pub revokes_logged: u64,
    /// Batches of in-place writes.
    pub checkpoint_steps: u64,
    /// Blocks written in place.
    pub blocks_checkpointed: u64,
    /// Longest batch of in-place writes, in nanoseconds of the journal's clock.
    pub checkpoint_step_ns_max: u64,
    /// Journal superblock writes.
    pub superblock_writes: u64,
    /// Times that `start` had to make log space itself.
    pub space_waits: u64,
}
