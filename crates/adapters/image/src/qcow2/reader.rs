//! A qcow2 that is only read, from any place: without imago, which needs files and knows no zstd.
//!
//! ```text
//!   place in the disk -> L1 (in memory) -> L2 (the last tables) -> cluster, or zlib, zstd
//! ```
//! Promises: an entry that leads beyond the file is an error. Memory: the L1 table, at most 32 MiB,
//! [`TABLES`] clusters of L2 and one unpacked cluster.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use syncline_device::{
    BlockDevice, DeviceError, Geometry, Kind, Op, Origin, Request, SECTOR_BYTES,
};

use super::header::{Header, OFFSET_MASK, corrupt, u64_at};
use crate::{ImageError, ReadAt, Result, stream};

/// L2 tables in memory: in clusters of 64 KiB each maps 512 MiB.
const TABLES: usize = 16;
/// Bit of an L2 entry: the cluster is compressed.
const COMPRESSED: u64 = 1 << 62;
/// Bit of an L2 entry: the cluster reads as zeros.
const ZEROS: u64 = 1;
/// Unit of the length of compressed clusters.
const UNIT: u64 = 512;

/// A table or an unpacked cluster, and its place in the file.
type Held = (u64, Vec<u8>);

/// The disk in a qcow2.
pub(crate) struct Reader {
    file: Box<dyn ReadAt>,
    len: u64,
    cluster_bits: u32,
    is_zstd: bool,
    l1: Vec<u8>,
    /// The last tables, the newest first.
    tables: Mutex<VecDeque<Held>>,
    unpacked: Mutex<Held>,
    /// The disk below, read where this file has no cluster; zeros behind its end.
    below: Option<Arc<dyn BlockDevice>>,
    geometry: Geometry,
}

fn damaged(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Reader {
    /// Opens the `len` bytes of a file over the disk below it, if it has one.
    ///
    /// # Errors
    /// A damaged file, one that was not closed, one with what is not supported.
    pub(crate) fn open(
        file: Box<dyn ReadAt>,
        len: u64,
        below: Option<Arc<dyn BlockDevice>>,
    ) -> Result<Reader> {
        let header = Header::read(&*file, len)?;
        header.expects(below.is_some())?;
        if header.dirty {
            let text = "the qcow2 was not closed; `qemu-img check -r all` repairs it";
            return Err(ImageError::Failed(text.to_owned()));
        }
        let mut l1 = vec![0; header.l1_bytes as usize];
        let read = file.read_exact_at(&mut l1, header.l1_at);
        read.map_err(|err| corrupt(&crate::plain(&err)))?;
        let size_bytes = header.size_bytes / SECTOR_BYTES * SECTOR_BYTES;
        let geometry =
            Geometry { read_only: true, volatile_cache: false, ..Geometry::new(size_bytes) };
        let unpacked = Mutex::new((u64::MAX, Vec::new()));
        let (tables, cluster_bits, is_zstd) =
            (Mutex::default(), header.cluster_bits, header.is_zstd);
        Ok(Reader { file, len, cluster_bits, is_zstd, l1, tables, unpacked, below, geometry })
    }

    /// The L2 entry of a cluster of the disk.
    fn entry(&self, cluster: u64) -> io::Result<u64> {
        let per_table = 1_u64 << (self.cluster_bits - 3);
        let at = u64_at(&self.l1, (cluster / per_table) as usize * 8) & OFFSET_MASK;
        if at == 0 {
            return Ok(0);
        }
        // Nobody panics with the lock.
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let held = tables.iter().position(|(place, _)| *place == at);
        let table = match held.and_then(|nr| tables.remove(nr)) {
            Some(table) => table,
            None => {
                let mut bytes = vec![0; 1 << self.cluster_bits];
                self.file.read_exact_at(&mut bytes, at)?;
                tables.truncate(TABLES - 1);
                (at, bytes)
            }
        };
        let entry = u64_at(&table.1, (cluster % per_table) as usize * 8);
        tables.push_front(table);
        Ok(entry)
    }

    /// Reads what this file has no cluster for.
    fn read_below(&self, place: u64, into: &mut [u8]) -> io::Result<()> {
        let Some(below) = &self.below else {
            into.fill(0);
            return Ok(());
        };
        let there = below.geometry().size_bytes.saturating_sub(place);
        let there = usize::try_from(there).unwrap_or(usize::MAX).min(into.len());
        let (there, behind) = into.split_at_mut(there);
        behind.fill(0);
        if there.is_empty() {
            return Ok(());
        }
        let read = below.read(place, there, Origin::new(Kind::Other, true));
        read.map_err(io::Error::other)
    }

    /// Reads within one cluster.
    fn read_cluster(&self, place: u64, into: &mut [u8]) -> io::Result<()> {
        let entry = self.entry(place >> self.cluster_bits)?;
        let within = place & ((1 << self.cluster_bits) - 1);
        if entry & COMPRESSED != 0 {
            return self.unpack(entry, |bytes| {
                let from = bytes.get(within as usize..)?.get(..into.len())?;
                into.copy_from_slice(from);
                Some(())
            });
        }
        let at = entry & OFFSET_MASK;
        if entry & ZEROS != 0 {
            into.fill(0);
            return Ok(());
        }
        if at == 0 {
            return self.read_below(place, into);
        }
        self.file.read_exact_at(into, at + within)
    }

    /// Calls `take` with the bytes of a compressed cluster.
    fn unpack(&self, entry: u64, take: impl FnOnce(&[u8]) -> Option<()>) -> io::Result<()> {
        let bits = 62 - (self.cluster_bits - 8);
        let at = entry & ((1 << bits) - 1);
        let units = ((entry & (COMPRESSED - 1)) >> bits) + 1;
        // Nobody panics with the lock.
        let mut held = self.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        if held.0 != at {
            held.0 = u64::MAX;
            let end = (at / UNIT * UNIT).saturating_add(units * UNIT).min(self.len);
            let packed = end.checked_sub(at).ok_or_else(|| damaged("a cluster beyond the end"))?;
            let mut bytes = vec![0; packed as usize];
            self.file.read_exact_at(&mut bytes, at)?;
            let len = 1 << self.cluster_bits;
            if self.is_zstd {
                held.1 = stream::unzstd(bytes, len)?;
            } else {
                held.1.clear();
                let decoder = flate2::read::DeflateDecoder::new(&bytes[..]);
                decoder.take(len).read_to_end(&mut held.1)?;
            }
            held.0 = at;
        }
        take(&held.1).ok_or_else(|| damaged("a compressed cluster is too short"))
    }
}

impl BlockDevice for Reader {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> std::result::Result<(), DeviceError> {
        for request in batch {
            self.geometry.check(request)?;
            let mut at = request.offset_bytes;
            let Op::Read { into } = &mut request.op else { continue };
            for part in into.iter_mut() {
                let mut rest = &mut **part;
                while !rest.is_empty() {
                    let left = (1 << self.cluster_bits) - (at & ((1 << self.cluster_bits) - 1));
                    let len = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let (now, later) = rest.split_at_mut(len);
                    self.read_cluster(at, now).map_err(|err| DeviceError::Io {
                        op: "read",
                        offset_bytes: at,
                        len_bytes: len as u64,
                        reason: err.to_string(),
                        errno: err.raw_os_error().unwrap_or(5),
                    })?;
                    at += len as u64;
                    rest = later;
                }
            }
        }
        Ok(())
    }
}
