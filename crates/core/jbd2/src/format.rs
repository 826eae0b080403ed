//! Rules about when a record of [`syncline_ondisk::jbd2`] counts.

use syncline_ondisk::OndiskError;
use syncline_ondisk::jbd2::{CommitBlock, JournalChecksum, Layout, V1Checksum};

use crate::JournalError;

/// Bytes of `struct commit_header`: all of a commit block that is not zero.
const COMMIT_HEADER_BYTES: usize = 60;
/// Header and count of a revoke block.
const REVOKE_HEADER_BYTES: usize = 16;

/// Layout of a log and whether its commit blocks travel with their transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogFormat {
    pub(crate) layout: Layout,
    /// `INCOMPAT_ASYNC_COMMIT`.
    pub(crate) is_async: bool,
}

impl LogFormat {
    /// Revoke blocks of v1 are not covered by a checksum: such a block holds no more than fits into
    /// one sector, which cannot tear.
    pub(crate) fn revokes_per_block(&self) -> usize {
        let fits = self.layout.revokes_per_block();
        if self.layout.checksum == JournalChecksum::V1 {
            return fits.min((512 - REVOKE_HEADER_BYTES) / self.layout.revoke_entry_bytes());
        }
        fits
    }

    pub(crate) fn tail_holds(&self, block: &[u8]) -> bool {
        self.layout.verify_tail_csum(block).is_ok()
    }

    /// True if a commit block's checksum holds; `v1` is what the transaction's blocks sum to. A
    /// block of which only the first sector arrived, over what the log held before, counts as
    /// whole.
    pub(crate) fn commit_holds(&self, block: &[u8], v1: V1Checksum) -> bool {
        let Some(commit) = CommitBlock::decode(block) else { return false };
        if commit.block_csum_matches(block, &self.layout) {
            return commit.v1_matches(&self.layout, v1);
        }
        let mut header = vec![0; block.len()];
        let bytes = COMMIT_HEADER_BYTES.min(block.len());
        header[..bytes].copy_from_slice(&block[..bytes]);
        commit.block_csum_matches(&header, &self.layout)
    }
}

/// An error of the bytes at a log block as this crate reports it.
pub(crate) fn at_log_block(log_block: u32, error: OndiskError) -> JournalError {
    match error {
        OndiskError::Unsupported { feature, .. } => JournalError::Unsupported {
            feature,
            next_step: "recover it with the kernel or with a newer e2fsck",
        },
        OndiskError::Corrupt { what, detail, .. } => {
            JournalError::corrupt(log_block, format!("{what}: {detail}"))
        }
        other => JournalError::corrupt(log_block, other.to_string()),
    }
}
