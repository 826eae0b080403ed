//! The sequential area of a zoned device.
//!
//! ```text
//!   0            conventional_bytes
//!   | any order  | zone 0 | zone 1 | ...  | last |  size_bytes
//!                  written in order from the begin, reset as a whole by a discard
//! ```

/// Zones of equal size from `conventional_bytes` to the end of the device. Each takes a write at
/// its write pointer only, and a discard of whole zones moves their pointers back to their begin.
/// Bytes behind a write pointer read as anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Bytes before the zones, which are written in any order.
    pub conventional_bytes: u64,
    /// Bytes of a zone.
    pub zone_bytes: u64,
}

impl Zones {
    /// Number of the zone of a byte at or behind `conventional_bytes`.
    pub fn zone_of(&self, offset_bytes: u64) -> u32 {
        (offset_bytes.saturating_sub(self.conventional_bytes) / self.zone_bytes) as u32
    }

    /// First byte of a zone.
    pub fn start_of(&self, zone: u32) -> u64 {
        self.conventional_bytes + u64::from(zone) * self.zone_bytes
    }

    /// End of the zone of a byte, or of the conventional area.
    pub fn end_of(&self, offset_bytes: u64) -> u64 {
        match offset_bytes < self.conventional_bytes {
            true => self.conventional_bytes,
            false => self.start_of(self.zone_of(offset_bytes) + 1),
        }
    }

    /// True if a range covers each zone that it touches.
    pub fn is_whole(&self, start_bytes: u64, end_bytes: u64) -> bool {
        let at_border = |bytes: u64| {
            bytes <= self.conventional_bytes
                || (bytes - self.conventional_bytes) % self.zone_bytes == 0
        };
        at_border(start_bytes) && at_border(end_bytes)
    }

    /// The zones of a part of the device, numbered from its begin.
    pub fn of_part(&self, start_bytes: u64) -> Zones {
        let conventional_bytes = self.conventional_bytes.saturating_sub(start_bytes);
        Zones { conventional_bytes, ..*self }
    }
}
