//! A qcow2 that is written to over the disk below it, which is only read.
//!
//! ```text
//!   read    cluster in the file -> imago        else -> the disk below; zeros behind its end
//!   write   cluster in the file -> imago
//!           else, alone: what the write leaves of the cluster from below -> imago -> sync
//! ```
//! imago reads and writes the file as if it was over nothing, and says which clusters it has not.
//!
//! Promise: no table on the disk points to a cluster before its data is there, so a power cut
//! leaves in each sector the old bytes, also those of the disk below, or the new ones. imago writes
//! tables when it likes, but only in a call: a write that allocates is alone, and ends with a sync
//! of the data. Tables that another call writes after it have their data.
//!
//! Tested in `tests/it/qcow2.rs` with qemu-img, qemu-io and power cuts.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use imago::file::File as Storage;
use imago::{FormatAccess, Mapping};
use syncline_device::{BlockDevice, Kind, Origin, SECTOR_BYTES};

/// The disk below, and who may use both.
pub(super) struct Overlay {
    below: Arc<dyn BlockDevice>,
    cluster_bytes: u64,
    /// Taken alone by calls that change tables.
    tables: RwLock<()>,
}

type Disk = FormatAccess<Storage>;

impl Overlay {
    pub(super) fn new(below: Arc<dyn BlockDevice>, cluster_bits: u32) -> Overlay {
        Overlay { below, cluster_bytes: 1 << cluster_bits, tables: RwLock::default() }
    }

    /// Calls `run` alone, as a flush has to be.
    pub(super) fn alone<T>(&self, run: impl FnOnce() -> T) -> T {
        // It guards no data.
        let _alone = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        run()
    }

    /// Bytes of a range from `at` on that are all in the file, or all below it.
    fn same(disk: &Disk, at: u64, len: u64) -> io::Result<(bool, u64)> {
        let (mapping, same) = disk.get_mapping(at, len)?;
        let is_below = matches!(mapping, Mapping::Zero { explicit: false, .. });
        if same == 0 {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok((is_below, same.min(len)))
        }
    }

    /// Reads from the disk below; behind its end are zeros.
    fn read_below(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let there = self.below.geometry().size_bytes.saturating_sub(at);
        let there = usize::try_from(there).unwrap_or(usize::MAX).min(into.len());
        let (there, behind) = into.split_at_mut(there);
        behind.fill(0);
        if there.is_empty() {
            return Ok(());
        }
        let read = self.below.read(at, there, Origin::new(Kind::Other, true));
        read.map_err(io::Error::other)
    }

    fn read_both(&self, disk: &Disk, mut at: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let (is_below, same) = Overlay::same(disk, at, into.len() as u64)?;
            let (part, rest) = into.split_at_mut(same as usize);
            match is_below {
                true => self.read_below(at, part)?,
                false => disk.read(&mut *part, at)?,
            }
            at += same;
            into = rest;
        }
        Ok(())
    }

    pub(super) fn read(&self, disk: &Disk, at: u64, into: &mut [u8]) -> io::Result<()> {
        let _shared = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        self.read_both(disk, at, into)
    }

    pub(super) fn write(&self, disk: &Disk, at: u64, from: &[u8]) -> io::Result<()> {
        {
            let _shared = self.tables.read().unwrap_or_else(PoisonError::into_inner);
            if is_in_place(disk, at, from.len() as u64)? {
                return disk.write(from, at);
            }
        }
        self.alone(|| {
            // The clusters of one table at a time: to load another one may write this one.
            let table_bytes = self.cluster_bytes * (self.cluster_bytes / 8);
            let (mut at, mut from) = (at, from);
            while !from.is_empty() {
                let len = (table_bytes - at % table_bytes).min(from.len() as u64);
                let (part, rest) = from.split_at(len as usize);
                self.write_clusters(disk, at, part)?;
                disk.sync()?;
                at += len;
                from = rest;
            }
            Ok(())
        })
    }

    /// Writes to clusters that one table maps, those at both ends with what is below them.
    fn write_clusters(&self, disk: &Disk, mut at: u64, mut from: &[u8]) -> io::Result<()> {
        let cluster = self.cluster_bytes;
        while !from.is_empty() {
            let start = at - at % cluster;
            let end = (start + cluster).min(disk.size() / SECTOR_BYTES * SECTOR_BYTES);
            let is_whole = at == start && from.len() as u64 >= end - start;
            let len = match is_whole {
                // All that are whole at once.
                true => (from.len() as u64 / cluster * cluster).max(end - start),
                false => (end - at).min(from.len() as u64),
            };
            let (part, rest) = from.split_at(len as usize);
            if is_whole || !Overlay::same(disk, start, end - start)?.0 {
                disk.write(part, at)?;
            } else {
                let mut whole = vec![0; (end - start) as usize];
                self.read_below(start, &mut whole)?;
                let within = (at - start) as usize;
                whole.iter_mut().skip(within).zip(part).for_each(|(to, from)| *to = *from);
                disk.write(&whole[..], start)?;
            }
            at += len;
            from = rest;
        }
        Ok(())
    }
}

/// True if a write to the range changes no table.
fn is_in_place(disk: &Disk, mut at: u64, len: u64) -> io::Result<bool> {
    let end = at + len;
    while at < end {
        let (mapping, same) = disk.get_mapping(at, end - at)?;
        if same == 0 || !matches!(mapping, Mapping::Raw { writable: true, .. }) {
            return Ok(false);
        }
        at += same;
    }
    Ok(true)
}
