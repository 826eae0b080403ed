//! Functions of JavaScript: devices by number, the time, and places for the output of a call.

use std::io;
use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, DeviceError, Geometry, Op, Request, SECTOR_BYTES};
use syncline_image::ReadAt;

/// The functions of the host. Each returns whether it succeeded.
pub trait Host: Send + Sync {
    /// Fills a buffer from a place of a device.
    fn read(&self, device: u32, at: u64, into: &mut [u8]) -> bool;
    /// Writes to a place of a device.
    fn write(&self, device: u32, at: u64, from: &[u8]) -> bool;
    /// Makes what was written durable.
    fn flush(&self, device: u32) -> bool;
    /// Takes bytes of the result of the call that runs. False ends the call.
    fn emit(&self, bytes: &[u8]) -> bool;
    /// Takes bytes of the disk for the result, which it reads by itself. False: it gets them.
    fn emit_part(&self, at: u64, len: u64) -> bool;
    /// Takes the progress of the call that runs. False ends the call.
    fn progress(&self, stage: &str, done: u64, total: u64) -> bool;
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;
}

/// The time of the host.
pub(crate) struct HostClock(pub(crate) Arc<dyn Host>);

impl Clock for HostClock {
    fn now_ns(&self) -> u64 {
        self.0.now_ms().saturating_mul(1_000_000)
    }

    /// Nobody waits: there is no other thread whose work could be waited for.
    fn sleep_until(&self, _: u64) {}

    fn is_virtual(&self) -> bool {
        false
    }
}

/// A device of the host.
#[derive(Clone)]
pub(crate) struct HostDevice {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) number: u32,
    pub(crate) geometry: Geometry,
}

impl HostDevice {
    pub(crate) fn new(host: &Arc<dyn Host>, number: u32, len: u64, writable: bool) -> HostDevice {
        let size_bytes = len / SECTOR_BYTES * SECTOR_BYTES;
        let geometry = Geometry { read_only: !writable, ..Geometry::new(size_bytes) };
        HostDevice { host: Arc::clone(host), number, geometry }
    }

    /// Reads with one call, whatever the parts of the buffer are.
    fn read_parts(&self, at: u64, into: &mut [&mut [u8]]) -> bool {
        if let [one] = into {
            return self.host.read(self.number, at, one);
        }
        let mut whole = vec![0; into.iter().map(|part| part.len()).sum()];
        let is_read = self.host.read(self.number, at, &mut whole);
        let mut rest = &whole[..];
        for part in into {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
        }
        is_read
    }

    fn run(&self, request: &mut Request<'_>) -> bool {
        let at = request.offset_bytes;
        match &mut request.op {
            Op::Read { into } => self.read_parts(at, into),
            Op::Write { from, fua } => {
                let done = match &from[..] {
                    [one] => self.host.write(self.number, at, one),
                    parts => self.host.write(self.number, at, &parts.concat()),
                };
                done && (!*fua || self.host.flush(self.number))
            }
            Op::Flush => self.geometry.read_only || self.host.flush(self.number),
            Op::Discard { .. } => true,
        }
    }
}

impl BlockDevice for HostDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch {
            self.geometry.check(request)?;
            if !self.run(request) {
                return Err(DeviceError::Io {
                    op: request.name(),
                    offset_bytes: request.offset_bytes,
                    len_bytes: request.len_bytes(),
                    reason: "the device of the program failed".to_owned(),
                    errno: 5,
                });
            }
        }
        Ok(())
    }
}

impl ReadAt for HostDevice {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        match self.host.read(self.number, at, into) {
            true => Ok(()),
            false => Err(io::Error::other("the device of the program failed")),
        }
    }
}

/// The bytes of a device from its start on.
pub(crate) struct Stream {
    pub(crate) device: HostDevice,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

impl io::Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len - self.at).unwrap_or(usize::MAX);
        let len = left.min(into.len());
        let part = into.get_mut(..len).unwrap_or_default();
        if len > 0 {
            self.device.read_exact_at(part, self.at)?;
        }
        self.at += len as u64;
        if len > 0 && !self.device.host.progress("unpack", self.at, self.len) {
            return Err(io::Error::other("it was stopped"));
        }
        Ok(len)
    }
}
