//! Time as a parameter: the same code runs in virtual time (exact, single-threaded) or wall time.
//!
//! Promises: a clock never goes back, and after `sleep_until(t)` it shows at least `t`.
//! Tested below.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock. Nanoseconds since the Unix epoch (a `u64` lasts until the year 2554).
pub trait Clock: Send + Sync {
    /// Now, in nanoseconds since the Unix epoch. Never goes back.
    fn now_ns(&self) -> u64;
    /// Returns at `deadline_ns` or later. Virtual: moves the clock there at once. A past deadline
    /// returns at once.
    fn sleep_until(&self, deadline_ns: u64);
    /// True if time passes only through [`Clock::sleep_until`].
    fn is_virtual(&self) -> bool;
}

/// Time that passes only by [`Clock::sleep_until`].
#[derive(Debug)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// A clock that stands at `start_ns`.
    pub fn new(start_ns: u64) -> Self {
        VirtualClock(AtomicU64::new(start_ns))
    }
}

impl Default for VirtualClock {
    /// Stands at 2024-01-01T00:00:00Z, so that timestamps in images are plausible and reproducible.
    fn default() -> Self {
        VirtualClock::new(1_704_067_200_000_000_000)
    }
}

impl Clock for VirtualClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    fn sleep_until(&self, deadline_ns: u64) {
        self.0.fetch_max(deadline_ns, Ordering::AcqRel);
    }
    fn is_virtual(&self) -> bool {
        true
    }
}

/// The machine's time: the wall clock at creation, advanced by the monotonic clock.
#[derive(Debug)]
pub struct WallClock {
    origin_ns: u64,
    started: Instant,
}

impl WallClock {
    /// Reads the machine's clock once; afterwards time is monotonic.
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        WallClock { origin_ns: since.as_nanos() as u64, started: Instant::now() }
    }
}

impl Default for WallClock {
    fn default() -> Self {
        WallClock::new()
    }
}

impl Clock for WallClock {
    fn now_ns(&self) -> u64 {
        self.origin_ns + self.started.elapsed().as_nanos() as u64
    }
    fn sleep_until(&self, deadline_ns: u64) {
        let now = self.now_ns();
        if deadline_ns > now {
            std::thread::sleep(Duration::from_nanos(deadline_ns - now));
        }
    }
    fn is_virtual(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_passes_only_by_sleeping_and_never_goes_back() {
        let clock = VirtualClock::new(10);
        clock.sleep_until(25);
        clock.sleep_until(20);
        assert_eq!((clock.now_ns(), clock.is_virtual()), (25, true));
    }

    #[test]
    fn wall_time_reaches_the_deadline() {
        let clock = WallClock::new();
        let deadline_ns = clock.now_ns() + 2_000_000;
        clock.sleep_until(deadline_ns);
        assert!(clock.now_ns() >= deadline_ns);
        clock.sleep_until(0);
        assert!(!clock.is_virtual());
    }
}
