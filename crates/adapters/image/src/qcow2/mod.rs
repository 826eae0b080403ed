//! Images in QEMU's format qcow2, through the crate imago.
//!
//! ```text
//!   Volume -> Qcow2Device -> imago: L1, L2, refcounts, zlib-compressed clusters -> the file
//!                  header: checked before          lock: QEMU's, beside ours
//! ```
//!
//! Promises
//! - A file is a qcow2 by its first bytes, not by its name. That is safe, because a qcow2 here
//!   never leads to another file: a file below it is one that the caller has named, and external
//!   data files are refused.
//! - A flush writes data, then imago's tables, and then syncs the file. While it is open for
//!   writing, the file is marked dirty, as with QEMU's lazy refcounts: after a power cut the
//!   refcounts may be wrong, and the next writer repairs them first. QEMU does that by itself;
//!   here `qemu-img check -r all` is run. Flushed data is present before and after the repair.
//! - Discards do nothing. So a cluster is never used again for other data within a session, and a
//!   table that reached the disk before its data points to zeros.
//! - One that is written to over another file has an [`overlay::Overlay`], which copies clusters
//!   up.
//! - [`Reader`] reads it instead where a program gives the bytes of the file (a browser), where
//!   clusters are compressed with zstd, where another file is below one that is only read, and in
//!   a build without the feature `qcow2`. Such a build refuses to write to it and never takes it
//!   for a raw image. imago needs Rust 1.87, all else 1.85.
//! - The file has no other writer while a virtual machine runs.
//!
//! Tested in `tests/it/qcow2.rs` with qemu-img and qemu-io, and in `cli/tests/it/transfer.rs`.

#[cfg(all(any(unix, windows), not(feature = "qcow2")))]
mod absent;
#[cfg(feature = "qcow2")]
mod disk;
mod header;
#[cfg(any(unix, windows))]
mod lock;
#[cfg(feature = "qcow2")]
mod overlay;
mod reader;

use std::path::Path;

use syncline_device::{BlockDevice, Kind, Origin, SECTOR_BYTES};

#[cfg(any(unix, windows))]
use crate::ReadAt;

#[cfg(all(any(unix, windows), not(feature = "qcow2")))]
pub(crate) use absent::{Qcow2Device, pack};
#[cfg(feature = "qcow2")]
pub(crate) use disk::{Qcow2Device, pack};
pub(crate) use reader::Reader;

/// First bytes of a qcow2 file.
const MAGIC: [u8; 4] = *b"QFI\xfb";

/// Returns whether an open file begins as a qcow2.
pub(crate) fn is_qcow2(device: &dyn BlockDevice) -> bool {
    let mut sector = [0; SECTOR_BYTES as usize];
    let read = device.read(0, &mut sector, Origin::new(Kind::Metadata, true));
    read.is_ok() && sector.starts_with(&MAGIC)
}

/// Returns whether an open file begins as a qcow2 that names a file below it.
#[cfg(any(unix, windows))]
pub(crate) fn is_over(device: &dyn BlockDevice) -> bool {
    let mut sector = [0; SECTOR_BYTES as usize];
    let read = device.read(0, &mut sector, Origin::new(Kind::Metadata, true));
    read.is_ok() && sector.starts_with(&MAGIC) && header::u64_at(&sector, 8) != 0
}

/// Returns whether these bytes begin as a qcow2.
#[cfg(any(unix, windows))]
pub(crate) fn begins(bytes: &dyn ReadAt, len: u64) -> bool {
    let mut start = [0; MAGIC.len()];
    len >= start.len() as u64 && bytes.read_exact_at(&mut start, 0).is_ok() && start == MAGIC
}

/// Returns whether a new image of this name is to be a qcow2.
pub fn is_named(path: &Path) -> bool {
    path.extension().is_some_and(|name| name.eq_ignore_ascii_case("qcow2"))
}
