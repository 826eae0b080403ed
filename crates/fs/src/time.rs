//! Timestamps: coarse, from the volume's clock, never read from the machine.
//!
//! ext4 stamps with `current_time()`, which moves once per timer tick; two overwrites inside one
//! tick therefore leave the inode clean (coarse-mtime paper, section 2.1). `timer_tick_ms` is that
//! tick.

use syncline_device::Clock;

/// Nanoseconds in a second.
pub(crate) const NS_PER_S: u64 = 1_000_000_000;

pub use syncline_ondisk::inode::Timestamp;

/// From nanoseconds since the epoch.
pub(crate) fn from_ns(ns: u64) -> Timestamp {
    Timestamp { seconds: (ns / NS_PER_S) as i64, nanoseconds: (ns % NS_PER_S) as u32 }
}

/// The clock, floored to the tick.
pub(crate) fn coarse(clock: &dyn Clock, timer_tick_ms: u32) -> Timestamp {
    let tick_ns = u64::from(timer_tick_ms.max(1)) * 1_000_000;
    let now = clock.now_ns();
    from_ns(now - now % tick_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::VirtualClock;

    #[test]
    fn moves_once_per_tick() {
        let clock = VirtualClock::new(10 * NS_PER_S + 7_999_999);
        assert_eq!(coarse(&clock, 4), Timestamp { seconds: 10, nanoseconds: 4_000_000 });
        assert_eq!(coarse(&clock, 1), Timestamp { seconds: 10, nanoseconds: 7_000_000 });
        clock.sleep_until(10 * NS_PER_S + 8_000_000);
        assert_eq!(coarse(&clock, 4), Timestamp { seconds: 10, nanoseconds: 8_000_000 });
    }
}
