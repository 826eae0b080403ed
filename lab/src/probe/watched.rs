//! A target that its observer follows: bytes are counted, and a stop ends the next request.

use crate::error::{LabError, Result};
use crate::observer::Observer;
use crate::probe::target::ProbeTarget;

/// Longest rest between two looks at the observer, nanoseconds.
const LOOK_NS: u64 = 50_000_000;

/// Passes every request on. After a stop each one is [`LabError::Interrupted`].
pub(super) struct Watched<'a> {
    target: &'a mut dyn ProbeTarget,
    observer: &'a dyn Observer,
    moved_bytes: u64,
}

impl<'a> Watched<'a> {
    pub(super) fn new(target: &'a mut dyn ProbeTarget, observer: &'a dyn Observer) -> Self {
        Watched { target, observer, moved_bytes: 0 }
    }

    fn go_on(&mut self) -> Result<&mut dyn ProbeTarget> {
        if self.observer.stopped() { Err(LabError::Interrupted) } else { Ok(&mut *self.target) }
    }

    fn moved(&mut self, bytes: u64) {
        self.moved_bytes += bytes;
        self.observer.moved(self.moved_bytes);
    }
}

impl ProbeTarget for Watched<'_> {
    fn writable(&self) -> bool {
        self.target.writable()
    }

    fn align_bytes(&self) -> u64 {
        self.target.align_bytes()
    }

    fn now_ns(&self) -> u64 {
        self.target.now_ns()
    }

    fn read(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.go_on()?.read(offset_bytes, len_bytes)?;
        self.moved(len_bytes);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.go_on()?.write(offset_bytes, len_bytes)?;
        self.moved(len_bytes);
        Ok(())
    }

    fn read_all(&mut self, offsets_bytes: &[u64], len_bytes: u64) -> Result<()> {
        self.go_on()?.read_all(offsets_bytes, len_bytes)?;
        self.moved(offsets_bytes.len() as u64 * len_bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.go_on()?.flush()
    }

    /// A stop ends the rest, and the next request says so.
    fn rest(&mut self, ns: u64) {
        let mut left_ns = ns;
        while left_ns > 0 && !self.observer.stopped() {
            let part_ns = left_ns.min(LOOK_NS);
            self.target.rest(part_ns);
            left_ns -= part_ns;
        }
    }
}
