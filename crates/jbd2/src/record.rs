//! One transaction as log blocks: revoke blocks, descriptors with their copies, commit block.

use std::sync::Arc;

use crate::JournalError;
use crate::buffer::Buffer;
use crate::format::{FLAG_ESCAPE, LogChecksums, LogFormat, MAGIC, Tag, TransactionCrc};

/// A block on its way into the log.
pub(crate) enum LogBlock {
    /// Made here: control blocks and escaped copies.
    Made(Vec<u8>),
    /// The image itself.
    Image(Arc<[u8]>),
}

impl LogBlock {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            LogBlock::Made(bytes) => bytes,
            LogBlock::Image(bytes) => bytes,
        }
    }
}

/// What one transaction writes.
pub(crate) struct Record<'a> {
    pub(crate) format: LogFormat,
    pub(crate) sequence: u32,
    pub(crate) commit_ns: u64,
    pub(crate) copies: &'a [(Arc<Buffer>, Arc<[u8]>)],
    pub(crate) revokes: &'a [u64],
}

impl Record<'_> {
    /// Everything before the commit block, in log order. Revokes come first: recovery collects them in
    /// a pass of its own, and a torn transaction must not have lost them.
    ///
    /// # Errors
    /// `Usage` if an image has not the block size.
    pub(crate) fn body(&self) -> Result<Vec<LogBlock>, JournalError> {
        let mut blocks = Vec::new();
        for revokes in self.revokes.chunks(self.format.revokes_per_block()) {
            blocks.push(LogBlock::Made(self.format.revoke(self.sequence, revokes)));
        }
        for copies in self.copies.chunks(self.format.tags_per_block()) {
            let mut tags = Vec::with_capacity(copies.len());
            let at = blocks.len();
            for (buffer, image) in copies {
                if image.len() != self.format.block_size {
                    return Err(JournalError::Usage("an image of another size than a block"));
                }
                let (copy, flags) = escape(image);
                let checksum = self.format.copy_checksum(self.sequence, copy.bytes());
                tags.push(Tag { block: buffer.block, flags, checksum });
                blocks.push(copy);
            }
            let descriptor = self.format.descriptor(self.sequence, &tags);
            blocks.insert(at, LogBlock::Made(descriptor));
        }
        Ok(blocks)
    }

    /// The commit block; `body` is what [`Record::body`] gave.
    pub(crate) fn commit_block(&self, body: &[LogBlock]) -> Vec<u8> {
        let mut crc = TransactionCrc::new();
        if self.format.checksums == LogChecksums::V1 {
            let revoke_blocks = self.revokes.len().div_ceil(self.format.revokes_per_block());
            body.iter().skip(revoke_blocks).for_each(|block| crc.add(block.bytes()));
        }
        self.format.commit(self.sequence, self.commit_ns, crc.value())
    }
}

/// A copy that starts with the log's magic would look like a control block: its first four bytes are
/// zeroed and the tag says so.
fn escape(image: &Arc<[u8]>) -> (LogBlock, u32) {
    if image.starts_with(&MAGIC.to_be_bytes()) {
        let mut copy = image.to_vec();
        copy[..4].fill(0);
        return (LogBlock::Made(copy), FLAG_ESCAPE);
    }
    (LogBlock::Image(Arc::clone(image)), 0)
}
