//! Devices and clocks of `syncline-device`, with an example each.

/// Storage: a size, and one function that does a batch of requests. A volume believes a flush: it
/// returns when all completed writes survive a power cut.
///
/// ```
/// # let bytes = syncline_testkit::tiny_ext4();
/// use std::sync::Mutex;
/// use syncline::{BlockDevice, DeviceError, Disk, Geometry, Op, OpenOptions, Request};
///
/// /// Bytes in memory; a flash chip or an encrypted store looks the same.
/// struct Chip(Mutex<Vec<u8>>);
///
/// impl BlockDevice for Chip {
///     fn geometry(&self) -> Geometry {
///         Geometry::new(self.0.lock().unwrap().len() as u64)
///     }
///
///     fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
///         let mut bytes = self.0.lock().unwrap();
///         for request in batch {
///             Geometry::new(bytes.len() as u64).check(request)?;
///             let mut at = request.offset_bytes as usize;
///             match &mut request.op {
///                 Op::Read { into } => into.iter_mut().for_each(|part| {
///                     part.copy_from_slice(&bytes[at..][..part.len()]);
///                     at += part.len();
///                 }),
///                 Op::Write { from, .. } => from.iter().for_each(|part| {
///                     bytes[at..][..part.len()].copy_from_slice(part);
///                     at += part.len();
///                 }),
///                 Op::Flush | Op::Discard { .. } => {}
///             }
///         }
///         Ok(())
///     }
/// }
///
/// let chip = Chip(Mutex::new(bytes));
/// let disk = Disk::on(std::sync::Arc::new(chip), &OpenOptions::default())?;
/// disk.mkdir(b"/on-the-chip", 0o755)?;
/// disk.close()?;
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_device::BlockDevice;

/// Size and abilities of a device.
///
/// ```
/// use syncline::{BlockDevice, Geometry, MemoryDevice};
///
/// let card = Geometry { discard: true, ..Geometry::new(64 << 20) };
/// assert!(card.volatile_cache && !card.read_only);
/// assert_eq!(MemoryDevice::new(1 << 20).geometry().size_bytes, 1 << 20);
/// ```
pub use syncline_device::Geometry;

/// One command to a device.
///
/// ```
/// use syncline::{BlockDevice, DeviceError, MemoryDevice, Request};
///
/// /// Writes of a batch, in bytes.
/// fn written(batch: &[Request<'_>]) -> u64 {
///     let writes = batch.iter().filter(|request| request.name() == "write");
///     writes.map(Request::len_bytes).sum()
/// }
/// assert_eq!(written(&[]), 0);
/// ```
pub use syncline_device::Request;

/// The operation of a [`Request`]. A device does all four: a new one would be a new promise.
///
/// ```
/// use syncline::{Op, Request};
///
/// /// True for what must not be answered before the medium has everything.
/// fn is_barrier(request: &Request<'_>) -> bool {
///     matches!(request.op, Op::Flush | Op::Write { fua: true, .. })
/// }
/// # let _ = is_barrier;
/// ```
pub use syncline_device::Op;

/// Why a device did not do what it was asked.
///
/// ```
/// use std::path::Path;
/// use syncline::{DeviceError, FileDevice, FileOptions};
///
/// match FileDevice::open(Path::new("/no/such"), FileOptions::default()) {
///     Err(DeviceError::Open { errno, .. }) => assert_eq!(errno, 2), // ENOENT
///     _ => panic!("there is no such file"),
/// }
/// ```
pub use syncline_device::DeviceError;

/// An image file, a partition or a whole card.
///
/// ```
/// # let image = syncline_testkit::TempImage::tiny();
/// use std::sync::Arc;
/// use syncline::{Disk, FileDevice, FileOptions, OpenOptions};
///
/// let device = FileDevice::open(image.path(), FileOptions::default())?;
/// let disk = Disk::on(Arc::new(device), &OpenOptions::default())?;
/// disk.close()?;
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_device::FileDevice;

/// How a [`FileDevice`] is opened. Write it with `..FileOptions::default()`: it may grow.
///
/// ```
/// # let image = syncline_testkit::TempImage::tiny();
/// use syncline::{BlockDevice, FileDevice, FileOptions};
///
/// let options = FileOptions { read_only: true, direct: false, ..FileOptions::default() };
/// assert!(FileDevice::open(image.path(), options)?.geometry().read_only);
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_device::FileOptions;

/// A device in memory, for tests and for images that are read as a whole. A snapshot is cheap, and
/// has every completed write, flushed or not.
///
/// ```
/// # let bytes = syncline_testkit::tiny_ext4();
/// use std::sync::Arc;
/// use syncline::{Access, Disk, MemoryDevice, OpenOptions};
///
/// let device = Arc::new(MemoryDevice::from_bytes(&bytes));
/// let disk = Disk::on(device.clone(), &OpenOptions::default())?;
/// let file = disk.open_file(b"/kept", Access::CREATE, 0o644)?;
/// file.sync(false)?;
/// let copy = device.snapshot(); // as after a kill of the process
/// let after = Disk::on(Arc::new(copy), &OpenOptions::default())?;
/// assert!(after.open_file(b"/kept", Access::READ, 0).is_ok());
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_device::MemoryDevice;

/// Time as a parameter of a [`Volume`](crate::Volume). Tests pass a clock that only they move.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use syncline::Clock;
///
/// struct Still(AtomicU64);
///
/// impl Clock for Still {
///     fn now_ns(&self) -> u64 {
///         self.0.load(Ordering::Acquire)
///     }
///     fn sleep_until(&self, deadline_ns: u64) {
///         self.0.fetch_max(deadline_ns, Ordering::AcqRel);
///     }
///     fn is_virtual(&self) -> bool {
///         true
///     }
/// }
/// let clock = Still(AtomicU64::new(0));
/// clock.sleep_until(7);
/// assert_eq!(clock.now_ns(), 7);
/// ```
pub use syncline_device::Clock;

/// The machine's clock.
///
/// ```
/// use syncline::{Clock, WallClock};
///
/// let clock = WallClock::new();
/// let then = clock.now_ns();
/// assert!(clock.now_ns() >= then && !clock.is_virtual());
/// ```
pub use syncline_device::WallClock;
