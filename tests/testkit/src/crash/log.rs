//! Log of a crash device: its requests in order.

use std::sync::Arc;

use syncline_device::{MemoryDevice, Origin, SECTOR_BYTES};

use crate::crash::CrashOptions;

/// Content of a logged write.
#[derive(Clone, Debug)]
pub enum Content {
    /// These bytes.
    Data(Arc<[u8]>),
    /// A discard: so many zero bytes, all or none of them.
    Discard {
        /// Length in bytes.
        len_bytes: u64,
    },
}

/// One write or discard command.
#[derive(Clone, Debug)]
pub struct LoggedWrite {
    /// First byte.
    pub offset_bytes: u64,
    /// Its content.
    pub content: Content,
    /// Durable on completion.
    pub durable: bool,
    /// Origin of the request.
    pub origin: Origin,
}

impl LoggedWrite {
    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        match &self.content {
            Content::Data(bytes) => bytes.len() as u64,
            Content::Discard { len_bytes } => *len_bytes,
        }
    }

    /// Parts that are there or not on their own: sectors of a write, one for a discard.
    pub(crate) fn units(&self) -> u64 {
        match &self.content {
            Content::Data(bytes) => bytes.len() as u64 / SECTOR_BYTES,
            Content::Discard { .. } => 1,
        }
    }
}

/// One step of the log.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Writes that were submitted together; unordered against each other.
    Batch(Vec<LoggedWrite>),
    /// A completed flush.
    Flush,
    /// A cache barrier.
    Barrier,
    /// Something that the workload says happened here, usually an acknowledgement.
    Mark(u64),
}

/// A base image and everything done to it since.
#[derive(Debug)]
pub struct CrashLog {
    /// The image before the first entry; durable.
    pub base: MemoryDevice,
    /// Events, oldest first.
    pub entries: Vec<Entry>,
    /// The device it happened on.
    pub options: CrashOptions,
}

impl CrashLog {
    /// Bytes of written content that the log holds.
    pub fn logged_bytes(&self) -> u64 {
        let data = |w: &LoggedWrite| match &w.content {
            Content::Data(bytes) => bytes.len() as u64,
            Content::Discard { .. } => 0,
        };
        let batch = |e: &Entry| match e {
            Entry::Batch(writes) => writes.iter().map(data).sum(),
            Entry::Flush | Entry::Barrier | Entry::Mark(_) => 0,
        };
        self.entries.iter().map(batch).sum()
    }
}
