//! Counters of a recording: requests and bytes per kind, flushes, bursts.
//!
//! The names are those of the published metrics: `write_requests`, `written_bytes`,
//! `journal_bytes`, `data_bytes`, `metadata_bytes`, `flushes`, `mean_write_sectors`,
//! `sequential_ratio`.
//!
//! A burst is a run of write requests each starting where the last ended; flushes and reads do not
//! end it. `sequential_ratio` is the share of written sectors in bursts longer than
//! [`BURST_SECTORS`]. Tested in `recording.rs`.

use std::ops::Sub;

use crate::{Kind, SECTOR_BYTES};

/// A burst counts as sequential when it is longer than this many sectors.
pub const BURST_SECTORS: u64 = 128;

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }
        impl Sub for $name {
            type Output = $name;
            /// Subtracts the counts at an `earlier` time; zero where `earlier` is larger.
            fn sub(self, earlier: $name) -> $name {
                $name { $($field: self.$field.saturating_sub(earlier.$field)),* }
            }
        }
    };
}

counters! {
    /// Counters of one kind of request.
    KindCounts {
        /// Read commands.
        read_requests,
        /// Bytes read.
        read_bytes,
        /// Write commands.
        write_requests,
        /// Bytes written.
        written_bytes,
        /// Write commands with FUA (also in `write_requests`).
        fua_writes,
        /// Flush commands, those included that stand in for FUA where the device has none.
        flushes,
        /// Cache barriers, which are no flushes.
        barriers,
        /// Discard commands.
        discards,
        /// Bytes discarded.
        discarded_bytes,
    }
}

/// Everything counted since the recording began, or within a phase (the difference of two).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The jbd2 log.
    pub journal: KindCounts,
    /// File system metadata in its place.
    pub metadata: KindCounts,
    /// File contents.
    pub data: KindCounts,
    /// Everything else.
    pub other: KindCounts,
    /// Sectors in bursts longer than [`BURST_SECTORS`].
    pub sequential_sectors: u64,
    /// Bursts of any length.
    pub bursts: u64,
}

impl Sub for Counts {
    type Output = Counts;
    /// Subtracts the counts at an `earlier` time.
    fn sub(self, earlier: Counts) -> Counts {
        Counts {
            journal: self.journal - earlier.journal,
            metadata: self.metadata - earlier.metadata,
            data: self.data - earlier.data,
            other: self.other - earlier.other,
            sequential_sectors: self.sequential_sectors.saturating_sub(earlier.sequential_sectors),
            bursts: self.bursts.saturating_sub(earlier.bursts),
        }
    }
}

impl Counts {
    /// The counters of one kind (all inodes together).
    pub fn kind_mut(&mut self, kind: Kind) -> &mut KindCounts {
        match kind {
            Kind::Journal => &mut self.journal,
            Kind::Metadata => &mut self.metadata,
            Kind::Data { .. } => &mut self.data,
            Kind::Other => &mut self.other,
        }
    }

    fn sum(&self, field: impl Fn(&KindCounts) -> u64) -> u64 {
        [&self.journal, &self.metadata, &self.data, &self.other].into_iter().map(field).sum()
    }

    /// Write commands of every kind.
    pub fn write_requests(&self) -> u64 {
        self.sum(|k| k.write_requests)
    }

    /// Cache barriers of every kind.
    pub fn barriers(&self) -> u64 {
        self.sum(|k| k.barriers)
    }

    /// Bytes written, every kind.
    pub fn written_bytes(&self) -> u64 {
        self.sum(|k| k.written_bytes)
    }

    /// Read commands of every kind.
    pub fn read_requests(&self) -> u64 {
        self.sum(|k| k.read_requests)
    }

    /// Bytes read, every kind.
    pub fn read_bytes(&self) -> u64 {
        self.sum(|k| k.read_bytes)
    }

    /// Bytes written to the journal.
    pub fn journal_bytes(&self) -> u64 {
        self.journal.written_bytes
    }

    /// Bytes of file contents written.
    pub fn data_bytes(&self) -> u64 {
        self.data.written_bytes
    }

    /// Bytes of metadata written in their place.
    pub fn metadata_bytes(&self) -> u64 {
        self.metadata.written_bytes
    }

    /// Flush commands; a FUA write on a device without FUA counts as a write and a flush.
    pub fn flushes(&self) -> u64 {
        self.sum(|k| k.flushes)
    }

    /// Discard commands of every kind.
    pub fn discards(&self) -> u64 {
        self.sum(|k| k.discards)
    }

    /// Mean length of a write command in sectors; zero without writes.
    pub fn mean_write_sectors(&self) -> f64 {
        ratio(self.written_bytes() / SECTOR_BYTES, self.write_requests())
    }

    /// Share of written sectors that lie in bursts longer than [`BURST_SECTORS`]; zero without
    /// writes.
    pub fn sequential_ratio(&self) -> f64 {
        ratio(self.sequential_sectors, self.written_bytes() / SECTOR_BYTES)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
