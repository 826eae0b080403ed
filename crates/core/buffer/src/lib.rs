//! The write buffer: a RAM buffer and a non-volatile log, as a device over a device.
//!
//! ```text
//!   submit      requests of whole sectors, with Origin (durability) and FUA
//!     |  whole pages, run >= threshold ------------------------------> home block
//!     v
//!   RAM         pages with a mask of valid sectors, evicted by a clock that goes by address
//!     |  flush, eviction, idle time: run >= threshold ---------------> home block
//!     v  shorter runs: one batch, one write
//!   log ring    encoded pages, see format.rs   --- cleaner, ascending addresses ---> home block
//! ```
//!
//! From chapter VI of H. Kim, *Informed Storage Management for Mobile Platforms*, 2012: 6.3 the
//! log, 6.3.2 its cleaning, 6.4 the RAM buffer, 6.5 both, 6.6.6 data that may stay in RAM across
//! barriers.
//!
//! Promises
//! - When a flush or an FUA write completes, all earlier writes that are not relaxed are durable,
//!   wherever the power is cut later. So an FUA write is a flush, too. Data written with
//!   `Durability::Relaxed` may stay in RAM, within `relaxed_bytes_max` and for at most
//!   `relaxed_expire` plus the time to the next tick.
//! - A flush whose [`Origin`](syncline_device::Origin) is relaxed makes relaxed data durable, too.
//! - Before its flush a write may be lost, or torn at a sector boundary, as on any disk. After the
//!   flush a power cut never brings back older contents of the page.
//! - After a failed write or flush below, every later write and flush fails ("latched"); reads go
//!   on.
//! - Writes pay for cleaning. A step of the cleaner has 8 to 64 pages, as suits the device. Each
//!   time that so many pages have gone to the log, one write waits for about one step. A step also
//!   finishes the run at its end and fills gaps, up to 128 pages in all.
//! - [`Buffer::configure`] changes the options while requests run: the sizes, and whether RAM and
//!   log are used at all.
//! - Deterministic: the buffer starts no thread. It reads the owner's clock only to measure the
//!   device; other times come with [`Buffer::tick`], which the owner of the device calls.
//!
//! On a zoned device the log is in the zones and the home blocks in the conventional area
//! ([`LogArea::of_zones`]). Opening it writes what it holds to its place.
//!
//! Assumes: 512-byte sectors are atomic, the devices below do not lie about flushes, no one else
//! writes home or log. Tested in `tests/it`: model, crash states, failing I/O, fuzzed logs, exact
//! counts.

#![forbid(unsafe_code)]

mod buffer;
mod clean;
mod format;
#[cfg(test)]
mod fuzz_tests;
mod log;
mod ram;
mod read;
mod recover;
mod ring;
mod write;

use std::time::Duration;

use syncline_device::DeviceError;

pub use buffer::{Buffer, LogArea, Status};
pub use format::{LogId, PAGE_BYTES};

/// True if `page` has enough zero words to hold its own description in the log (FORMAT.md). Other
/// pages share a header with their batch.
pub fn describes_itself(page: &[u8; PAGE_BYTES]) -> bool {
    format::describes_itself(page)
}

/// Options of a buffer. The default uses both RAM and log (section 6.5 of the paper).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferOptions {
    /// Memory for staged pages, in bytes; 0: every request goes on at once.
    pub ram_bytes: u64,
    /// True if small writes go to the log. If false, every write goes to its home block; pages in
    /// the log stay readable and are cleaned in idle time.
    pub log_writes: bool,
    /// A run of consecutive pages of so many bytes goes to its place, a shorter one to the log.
    pub threshold_bytes: u64,
    /// Relaxed data is written this long after it came.
    pub relaxed_expire: Duration,
    /// Relaxed data in RAM, in bytes, at most.
    pub relaxed_bytes_max: u64,
    /// Without requests for so long, a tick drains RAM and cleans the log.
    pub idle_after: Duration,
}

impl Default for BufferOptions {
    fn default() -> Self {
        BufferOptions {
            ram_bytes: 16 << 20,
            log_writes: true,
            threshold_bytes: 64 << 10,
            relaxed_expire: Duration::from_secs(30),
            relaxed_bytes_max: 12 << 20,
            idle_after: Duration::from_secs(1),
        }
    }
}

/// Why a log cannot be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BufferError {
    /// The device below failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The area holds no log.
    #[error("there is no write log in this area; create one first, which overwrites the area")]
    NoLog,
    /// The area holds something else, or a log that may have data.
    #[error("the area is not empty: {what}; check that it is the right one, then force creation")]
    InUse {
        /// Device or log that was found.
        what: String,
    },
    /// Damage within what was durable.
    #[error("the log is damaged at page {page}: {what}; restore the device from a backup")]
    Corrupt {
        /// Page of the log area.
        page: u64,
        /// Description of the problem.
        what: &'static str,
    },
    /// The log belongs to a device of another size.
    #[error(
        "the log is of a device of {log_bytes} bytes, this one has {device_bytes}; attach the \
         device that it was made with"
    )]
    OtherDevice {
        /// Size in the log.
        log_bytes: u64,
        /// Size of the device.
        device_bytes: u64,
    },
    /// The area is too small, or too short for what its superblock says.
    #[error("a log needs {need_bytes} bytes, the area has {area_bytes}; give it a larger area")]
    TooSmall {
        /// Bytes needed.
        need_bytes: u64,
        /// Bytes there.
        area_bytes: u64,
    },
    /// A zoned area without a conventional begin, or with too few zones.
    #[error(
        "a log in zones needs two pages before the zones and four zones; give it a larger area"
    )]
    FewZones,
    /// The device to buffer holds no page.
    #[error(
        "the device has {device_bytes} bytes, less than a page; check that it is the right one"
    )]
    NoPage {
        /// Size of the device.
        device_bytes: u64,
    },
    /// A version that is not known.
    #[error(
        "the log has format version {version}, this program knows 2; detach it with the program \
         that made it"
    )]
    Unsupported {
        /// The version found.
        version: u32,
    },
    /// Read-only devices cannot be buffered.
    #[error("the device is read-only; a write buffer needs one that can be written")]
    ReadOnly,
}
