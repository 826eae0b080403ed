//! One transaction as log blocks: revoke blocks, descriptors with their copies, commit block.

use std::sync::Arc;
use syncline_ondisk::jbd2::{
    CommitBlock, DescriptorBuilder, JournalChecksum, RevokeBuilder, V1Checksum, escape,
    needs_escape,
};

use crate::JournalError;
use crate::format::{LogFormat, at_log_block};
use crate::transaction::Copy;

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

/// Contents of one transaction as it is written.
pub(crate) struct Record<'a> {
    pub(crate) format: LogFormat,
    pub(crate) sequence: u32,
    pub(crate) commit_ns: u64,
    pub(crate) copies: &'a [Copy],
    pub(crate) revokes: &'a [u64],
}

impl Record<'_> {
    /// Everything before the commit block, in log order. Revokes come first: recovery collects them
    /// in a pass of its own, and a torn transaction must not have lost them.
    ///
    /// # Errors
    /// A block number that the log's tags cannot hold, or an image that is not one block.
    pub(crate) fn body(&self) -> Result<Vec<LogBlock>, JournalError> {
        let mut blocks = Vec::new();
        for revokes in self.revokes.chunks(self.format.revokes_per_block()) {
            blocks.push(LogBlock::Made(self.revoke_block(revokes)?));
        }
        for copies in self.copies.chunks(self.format.layout.tags_per_descriptor()) {
            let at = blocks.len();
            blocks.push(LogBlock::Made(Vec::new()));
            let descriptor = self.descriptor(copies, &mut blocks)?;
            blocks[at] = LogBlock::Made(descriptor);
        }
        Ok(blocks)
    }

    fn revoke_block(&self, revokes: &[u64]) -> Result<Vec<u8>, JournalError> {
        let layout = &self.format.layout;
        let mut block = vec![0; layout.block_size];
        let mut builder =
            RevokeBuilder::new(&mut block, layout, self.sequence).map_err(in_record)?;
        for revoked in revokes {
            builder.push(*revoked).map_err(in_record)?;
        }
        builder.finish();
        Ok(block)
    }

    /// The descriptor of `copies`, which are added to `blocks`.
    fn descriptor(
        &self,
        copies: &[Copy],
        blocks: &mut Vec<LogBlock>,
    ) -> Result<Vec<u8>, JournalError> {
        let layout = &self.format.layout;
        let mut block = vec![0; layout.block_size];
        let mut builder =
            DescriptorBuilder::new(&mut block, layout, self.sequence).map_err(in_record)?;
        for Copy { block: home, image, .. } in copies {
            if image.len() != layout.block_size {
                return Err(JournalError::Usage("an image of another size than a block"));
            }
            // A copy that starts with the log's magic would look like a control block.
            let escaped = needs_escape(image);
            let copy = if escaped {
                let mut copy = image.to_vec();
                escape(&mut copy);
                LogBlock::Made(copy)
            } else {
                LogBlock::Image(Arc::clone(image))
            };
            let checksum = layout.copy_csum(self.sequence, copy.bytes());
            builder.push(*home, escaped, checksum).map_err(in_record)?;
            blocks.push(copy);
        }
        builder.finish().map_err(in_record)?;
        Ok(block)
    }

    /// The commit block; `body` is what [`Record::body`] gave.
    ///
    /// # Errors
    /// None with a layout of the log's block size.
    pub(crate) fn commit_block(&self, body: &[LogBlock]) -> Result<Vec<u8>, JournalError> {
        let layout = &self.format.layout;
        let mut v1 = V1Checksum::new();
        if layout.checksum == JournalChecksum::V1 {
            let revoke_blocks = self.revokes.len().div_ceil(self.format.revokes_per_block());
            body.iter().skip(revoke_blocks).for_each(|block| v1.update(block.bytes()));
        }
        let time = (self.commit_ns / 1_000_000_000, (self.commit_ns % 1_000_000_000) as u32);
        let mut block = vec![0; layout.block_size];
        CommitBlock::build(&mut block, layout, self.sequence, time, v1).map_err(in_record)?;
        Ok(block)
    }
}

/// These cannot come from the disk: block numbers were checked when they joined the transaction.
fn in_record(error: syncline_ondisk::OndiskError) -> JournalError {
    at_log_block(0, error)
}
