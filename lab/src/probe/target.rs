//! Targets of a probe: a profile in virtual time, or any block device and its clock.

use std::sync::Arc;

use syncline_device::SplitMix64;
use syncline_device::{BlockDevice, Clock, Kind, Op, Origin, Request};
use syncline_nand::{Profile, Simulator};

use crate::error::Result;

/// Largest request of a probe, bytes.
pub(crate) const REQUEST_BYTES_MAX: u64 = 1 << 20;
const ORIGIN: Origin = Origin::new(Kind::Other, true);
const ALIGN_BYTES: u64 = 4096;

/// Something with a clock that is read and written, one request at a time. Offsets and lengths are
/// multiples of [`ProbeTarget::align_bytes`].
pub trait ProbeTarget {
    /// True if it may be written.
    fn writable(&self) -> bool;
    /// Alignment of requests, bytes.
    fn align_bytes(&self) -> u64;
    /// Nanoseconds of its clock.
    fn now_ns(&self) -> u64;
    /// Reads.
    fn read(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<()>;
    /// Writes data that does not compress.
    fn write(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<()>;
    /// Reads at several places at once; returns when all are done.
    fn read_all(&mut self, offsets_bytes: &[u64], len_bytes: u64) -> Result<()>;
    /// Makes durable what was written.
    fn flush(&mut self) -> Result<()>;
    /// Lets time pass without requests.
    fn rest(&mut self, ns: u64);
}

/// A profile: commands straight into the model, in its own virtual time.
pub struct Simulated {
    device: Simulator,
    now_ns: u64,
}

impl Simulated {
    /// A device of `size_bytes`, fresh, or with `precondition_percent` of it filled and overwritten
    /// at random.
    pub fn new(
        profile: &Profile,
        size_bytes: u64,
        precondition_percent: u32,
        seed: u64,
    ) -> Result<Simulated> {
        let mut device = Simulator::new(profile, size_bytes)?;
        if precondition_percent > 0 {
            device.precondition(precondition_percent, seed);
        }
        Ok(Simulated { device, now_ns: 0 })
    }
}

impl ProbeTarget for Simulated {
    fn writable(&self) -> bool {
        true
    }

    fn align_bytes(&self) -> u64 {
        512
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn read(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.now_ns = self.device.read(self.now_ns, offset_bytes, len_bytes);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.now_ns = self.device.write(self.now_ns, offset_bytes, len_bytes, false);
        Ok(())
    }

    fn read_all(&mut self, offsets_bytes: &[u64], len_bytes: u64) -> Result<()> {
        let start_ns = self.now_ns;
        for offset_bytes in offsets_bytes {
            let end_ns = self.device.read(start_ns, *offset_bytes, len_bytes);
            self.now_ns = self.now_ns.max(end_ns);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.now_ns = self.device.flush(self.now_ns);
        Ok(())
    }

    fn rest(&mut self, ns: u64) {
        self.now_ns += ns;
    }
}

/// A block device, and the clock in which its requests take time.
pub struct DeviceTarget {
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    writable: bool,
    bytes: Vec<u8>,
}

impl DeviceTarget {
    /// Over a device; `writable` allows to overwrite what it holds.
    pub fn new(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>, writable: bool) -> Self {
        let writable = writable && !device.geometry().read_only;
        let mut rng = SplitMix64::new(0x0070_726f_6265);
        let words = REQUEST_BYTES_MAX / 8;
        let bytes = (0..words).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        DeviceTarget { device, clock, writable, bytes }
    }
}

impl ProbeTarget for DeviceTarget {
    fn writable(&self) -> bool {
        self.writable
    }

    fn align_bytes(&self) -> u64 {
        ALIGN_BYTES
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn read(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        let mut bytes = vec![0; len_bytes as usize];
        Ok(self.device.read(offset_bytes, &mut bytes, ORIGIN)?)
    }

    fn write(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        Ok(self.device.write(offset_bytes, &self.bytes[..len_bytes as usize], ORIGIN)?)
    }

    fn read_all(&mut self, offsets_bytes: &[u64], len_bytes: u64) -> Result<()> {
        let mut bytes = vec![0; len_bytes as usize * offsets_bytes.len()];
        let places = offsets_bytes.iter().zip(bytes.chunks_mut(len_bytes as usize));
        let read = |(offset, into): (&u64, _)| Request {
            offset_bytes: *offset,
            op: Op::Read { into: vec![into] },
            origin: ORIGIN,
        };
        let mut batch: Vec<Request<'_>> = places.map(read).collect();
        Ok(self.device.submit(&mut batch)?)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.device.flush(ORIGIN)?)
    }

    fn rest(&mut self, ns: u64) {
        self.clock.sleep_until(self.clock.now_ns() + ns);
    }
}
