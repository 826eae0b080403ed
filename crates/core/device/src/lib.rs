//! Block devices: the one seam through which every byte of the stack reaches storage.
//!
//! ```text
//!   fs / jbd2 / buffer                who asks: Request + Origin
//!        |  Plug: merge, sort         one plug of requests, as the Linux block layer forms them
//!        v
//!   BlockDevice::submit(batch)        <- every layer below `fs` is a device over a device
//!        |
//!   Recording / Failing / Crash / Nand / File / Memory
//! ```
//!
//! Promises
//! - The requests of one batch are unordered against each other; `submit` returns when all are
//!   done.
//! - A completed write without `fua` may be lost by a power cut until a later `Flush` completes.
//!   A completed `fua` write is durable. Sectors (512 B) are atomic, nothing larger is.
//! - A `Flush` covers the writes that completed before it was submitted. It stands alone in a
//!   batch. One that is [`Durability::Ordered`] only keeps them before all later ones, where
//!   [`Geometry::barrier`] says so; to all other devices it is a flush.
//! - Nothing in here reads a clock or starts a thread, except the wall [`Clock`] and the file
//!   device.
//!
//! Assumptions: offsets and lengths are multiples of [`SECTOR_BYTES`].
//!
//! Choice of a device: [`MemoryDevice`] for tests and simulations, [`FileDevice`] for images and
//! real devices, [`GrowingFile`] for a new image of unknown size, [`RecordingDevice`] for every
//! metric, [`FailingDevice`] and [`LatencyDevice`] for faults and concurrency, [`OffsetDevice`] for
//! a partition, [`TapDevice`] for captures. They stack; tests stand beside each.

#![deny(unsafe_code)]

mod clock;
mod costs;
mod counts;
mod failing;
mod file;
mod latency;
mod memory;
#[cfg(unix)]
mod mirror;
mod offset;
mod overlay;
mod plug;
mod recording;
mod request;
mod rng;
mod swap;
mod tap;
mod zones;

pub use clock::{Clock, VirtualClock, WallClock};
pub use costs::{CostDevice, Costs};
pub use counts::{BURST_SECTORS, Counts, KindCounts};
pub use failing::{FailingDevice, Fault, FaultPlan, OpClass, OpCounts};
#[cfg(target_os = "linux")]
pub use file::OpenFiles;
pub use file::{FileDevice, FileOptions, GrowingFile};
#[cfg(target_os = "linux")]
pub use file::{
    MountEntry, SBIN, Superblock, find_program, is_open, kernel_use, may_run, mount_of,
    mounted_image, mounts_beside, runtime_dir,
};
pub use latency::{Latencies, LatencyDevice};
pub use memory::MemoryDevice;
#[cfg(unix)]
pub use mirror::FileMirror;
pub use offset::OffsetDevice;
pub use overlay::OverlayDevice;
pub use plug::Plug;
pub use recording::{RecordingDevice, TraceEvent, TraceOp};
pub use request::{Durability, Kind, Op, Origin, Request, WriteLife};
pub use rng::SplitMix64;
pub use swap::SwapDevice;
pub use tap::{Observer, TapDevice};
pub use zones::Zones;

use std::sync::Arc;

/// The unit of atomicity and addressing, in bytes.
pub const SECTOR_BYTES: u64 = 512;

/// Largest request that a plug forms, in bytes (`max_sectors_kb` of the papers' devices).
pub const MAX_REQUEST_BYTES: u64 = 512 * 1024;

/// Size and capabilities of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Usable size in bytes.
    pub size_bytes: u64,
    /// Largest request it takes, in bytes; a multiple of [`SECTOR_BYTES`].
    pub max_request_bytes: u64,
    /// True if completed writes may be lost until a flush.
    pub volatile_cache: bool,
    /// True if `fua` writes are durable on completion without a flush of everything else. If false,
    /// the caller must send a `fua` write as write + flush.
    pub fua: bool,
    /// True if a flush with [`Durability::Ordered`] only orders: a cache barrier.
    pub barrier: bool,
    /// True if discard has an effect.
    pub discard: bool,
    /// True if the device refuses writes.
    pub read_only: bool,
    /// The sequential area of a zoned device.
    pub zones: Option<Zones>,
    /// True if the lifetime of a write ([`WriteLife`]) has an effect.
    pub write_hints: bool,
}

impl Geometry {
    /// A device of so many bytes that takes reads, writes and flushes, and may lose completed
    /// writes until a flush: what is right for every storage. Change what yours does better.
    pub const fn new(size_bytes: u64) -> Geometry {
        Geometry {
            size_bytes,
            max_request_bytes: MAX_REQUEST_BYTES,
            volatile_cache: true,
            fua: false,
            barrier: false,
            discard: false,
            read_only: false,
            zones: None,
            write_hints: false,
        }
    }

    /// Checks that `request` lies inside the device, is aligned to sectors and is allowed. Every
    /// device of this crate calls it first, so that a bad request never reaches a medium.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`], or [`DeviceError::ReadOnly`] for a write or discard.
    pub fn check(&self, request: &Request<'_>) -> Result<(), DeviceError> {
        if matches!(request.op, Op::Flush) {
            return Ok(());
        }
        let (offset_bytes, len_bytes) = (request.offset_bytes, request.len_bytes());
        let inside = offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= self.size_bytes);
        let aligned = (offset_bytes | len_bytes) % SECTOR_BYTES == 0;
        if !inside || !aligned {
            let op = request.name();
            return Err(DeviceError::OutOfRange { op, offset_bytes, len_bytes });
        }
        if self.read_only && !matches!(request.op, Op::Read { .. }) {
            return Err(DeviceError::ReadOnly);
        }
        Ok(())
    }
}

/// Reason for which a device refused or failed a request.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The medium or the layer below failed; `errno` is Linux's number where one is known.
    #[error("{op} of {len_bytes} bytes at byte {offset_bytes} failed: {reason}")]
    Io {
        /// `read`, `write`, `flush` or `discard`.
        op: &'static str,
        /// First byte of the request.
        offset_bytes: u64,
        /// Length of the request in bytes.
        len_bytes: u64,
        /// Error of the layer below.
        reason: String,
        /// Linux errno, 5 (EIO) where the layer below gave none.
        errno: i32,
    },
    /// The request lies outside of the device or is not sector aligned.
    #[error(
        "{op} of {len_bytes} bytes at byte {offset_bytes} is outside of the device or unaligned"
    )]
    OutOfRange {
        /// `read`, `write` or `discard`.
        op: &'static str,
        /// First byte of the request.
        offset_bytes: u64,
        /// Length of the request in bytes.
        len_bytes: u64,
    },
    /// A file or device could not be opened, or an image could not be loaded or stored.
    #[error("{path}: {reason}")]
    Open {
        /// The path as given.
        path: String,
        /// Description of the failure, and the next step.
        reason: String,
        /// Linux errno.
        errno: i32,
    },
    /// A write to a zone elsewhere than at its write pointer, or of no whole number of blocks; a
    /// discard of a part of a zone. The name is that of SCSI.
    #[error(
        "unaligned write command: {op} at byte {offset_bytes} of a zone whose write pointer is at \
         byte {pointer_bytes}"
    )]
    UnalignedWrite {
        /// `write` or `discard`.
        op: &'static str,
        /// First byte of the request.
        offset_bytes: u64,
        /// The only place where the zone takes a write.
        pointer_bytes: u64,
    },
    /// A write to a device that only reads.
    #[error("the device is read-only")]
    ReadOnly,
    /// The power of a simulated device was cut; nothing more will be done.
    #[error("the simulated power is off")]
    PowerCut,
}

/// A device, real or simulated. Object safe; shared between threads.
pub trait BlockDevice: Send + Sync {
    /// Size and abilities. Constant for the life of the device.
    fn geometry(&self) -> Geometry;

    /// Does every request of `batch`, in any order, and returns when all are done. Requests that
    /// were already merged are taken as they are: one element is one device command.
    ///
    /// # Errors
    /// The first failure. Which other requests of the batch were done is then unknown.
    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError>;

    /// Reads `into.len()` bytes at `offset_bytes` as one request.
    ///
    /// # Errors
    /// As [`BlockDevice::submit`].
    fn read(&self, offset_bytes: u64, into: &mut [u8], origin: Origin) -> Result<(), DeviceError> {
        self.submit(&mut [Request { offset_bytes, op: Op::Read { into: vec![into] }, origin }])
    }

    /// Writes `from` at `offset_bytes` as one request.
    ///
    /// # Errors
    /// As [`BlockDevice::submit`].
    fn write(&self, offset_bytes: u64, from: &[u8], origin: Origin) -> Result<(), DeviceError> {
        let op = Op::Write { from: vec![from], fua: false };
        self.submit(&mut [Request { offset_bytes, op, origin }])
    }

    /// Writes `from` and returns when it is durable: one `fua` write where the device has it,
    /// otherwise a write and, over a volatile cache, a flush.
    ///
    /// # Errors
    /// As [`BlockDevice::submit`].
    fn write_durable(
        &self,
        offset_bytes: u64,
        from: &[u8],
        origin: Origin,
    ) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        let op = Op::Write { from: vec![from], fua: geometry.fua };
        self.submit(&mut [Request { offset_bytes, op, origin }])?;
        if !geometry.fua && geometry.volatile_cache { self.flush(origin) } else { Ok(()) }
    }

    /// Makes every completed write durable. Nothing is sent where nothing is volatile, as the block
    /// layer of Linux has it.
    ///
    /// # Errors
    /// As [`BlockDevice::submit`].
    fn flush(&self, origin: Origin) -> Result<(), DeviceError> {
        if !self.geometry().volatile_cache {
            return Ok(());
        }
        self.submit(&mut [Request { offset_bytes: 0, op: Op::Flush, origin }])
    }

    /// Orders every completed write before all later ones: a cache barrier, which waits for
    /// nothing, or a flush of a device without one. Discards are not ordered.
    ///
    /// # Errors
    /// As [`BlockDevice::submit`].
    fn order(&self, origin: Origin) -> Result<(), DeviceError> {
        match self.geometry().barrier {
            true => self.flush(Origin { durability: Durability::Ordered, ..origin }),
            false => self.flush(origin),
        }
    }

    /// Tells the device that `len_bytes` at `offset_bytes` are not needed any more.
    ///
    /// # Errors
    /// As [`BlockDevice::submit`].
    fn discard(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        origin: Origin,
    ) -> Result<(), DeviceError> {
        self.submit(&mut [Request { offset_bytes, op: Op::Discard { len_bytes }, origin }])
    }
}

macro_rules! pass_on {
    ($($pointer:ty),*) => {
        $(impl<D: BlockDevice + ?Sized> BlockDevice for $pointer {
            fn geometry(&self) -> Geometry {
                (**self).geometry()
            }
            fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
                (**self).submit(batch)
            }
        })*
    };
}

pass_on!(&D, Box<D>, Arc<D>);
