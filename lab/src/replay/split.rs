//! Requests of a replay by what caused them: the eager-sync paper's Figures 3.2 and 3.3.
//!
//! A write is synchronous if a caller waits for it. What a sync writes is data of the file that is
//! synced, data of other files, which ordered mode takes along, or the journal.

use syncline_device::{Kind, TraceEvent, TraceOp};

/// Requests, and bytes that syncs wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Requests that read.
    pub reads: u64,
    /// Writes that a caller waited for.
    pub sync_writes: u64,
    /// Other writes.
    pub async_writes: u64,
    /// Bytes that syncs wrote: data of the synced file.
    pub synced_file_bytes: u64,
    /// As that: data of other files.
    pub other_files_bytes: u64,
    /// As that: the journal.
    pub journal_bytes: u64,
    /// As that: metadata in its place.
    pub metadata_bytes: u64,
}

impl Split {
    /// Takes requests. `synced` is the inode of the file whose sync sent them.
    pub(crate) fn take(&mut self, events: &[TraceEvent], synced: Option<u64>) {
        for event in events {
            match event.op {
                TraceOp::Read => self.reads += 1,
                TraceOp::Write if event.origin.sync => self.sync_writes += 1,
                TraceOp::Write => self.async_writes += 1,
                TraceOp::Flush | TraceOp::Discard => continue,
            }
            let Some(synced) = synced.filter(|_| event.op == TraceOp::Write) else { continue };
            let of = match event.origin.kind {
                Kind::Data { inode } if inode == synced => &mut self.synced_file_bytes,
                Kind::Data { .. } => &mut self.other_files_bytes,
                Kind::Journal => &mut self.journal_bytes,
                Kind::Metadata | Kind::Other => &mut self.metadata_bytes,
            };
            *of += event.len_bytes;
        }
    }

    /// Share of the written requests that a caller waited for.
    pub fn sync_ratio(&self) -> f64 {
        self.sync_writes as f64 / (self.sync_writes + self.async_writes).max(1) as f64
    }

    /// Share of a number of bytes in all that syncs wrote.
    pub fn of_syncs(&self, bytes: u64) -> f64 {
        let all = self.synced_file_bytes
            + self.other_files_bytes
            + self.journal_bytes
            + self.metadata_bytes;
        bytes as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::Origin;

    #[test]
    fn requests_are_counted_by_their_cause() {
        let event = |op, kind, sync| TraceEvent {
            time_ns: 0,
            op,
            offset_bytes: 0,
            len_bytes: 100,
            origin: Origin::new(kind, sync),
            fua: false,
        };
        let (own, other) = (Kind::Data { inode: 7 }, Kind::Data { inode: 8 });
        let mut split = Split::default();
        split.take(&[event(TraceOp::Read, own, true), event(TraceOp::Write, other, false)], None);
        let sync = [own, other, Kind::Journal, Kind::Journal, Kind::Metadata]
            .map(|kind| event(TraceOp::Write, kind, true));
        split.take(&sync, Some(7));
        split.take(&[event(TraceOp::Flush, Kind::Journal, true)], Some(7));
        assert_eq!((split.reads, split.sync_writes, split.async_writes), (1, 5, 1));
        assert_eq!((split.synced_file_bytes, split.other_files_bytes), (100, 100));
        assert_eq!((split.journal_bytes, split.metadata_bytes), (200, 100));
        assert!((split.sync_ratio() - 5.0 / 6.0).abs() < 1e-12);
        assert!((split.of_syncs(split.journal_bytes) - 0.4).abs() < 1e-12);
    }
}
