//! Timestamps: coarse, from the volume's clock, never read from the machine.
//!
//! ext4 stamps with `current_time()`, which moves once per timer tick; two overwrites inside one
//! tick therefore leave the inode clean (coarse-mtime paper, section 2.1). `timer_tick_ms` is that
//! tick.

use syncline_device::Clock;

pub use syncline_ondisk::inode::Timestamp;

/// Nanoseconds in a second.
pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// From nanoseconds since the epoch.
fn from_ns(ns: u64) -> Timestamp {
    Timestamp { seconds: (ns / NS_PER_S) as i64, nanoseconds: (ns % NS_PER_S) as u32 }
}

/// The clock, floored to the tick, but not below a `fine` time that was given within the tick.
pub(crate) fn coarse(clock: &dyn Clock, timer_tick_ms: u32, fine_ns: u64) -> Timestamp {
    let tick_ns = u64::from(timer_tick_ms.max(1)) * 1_000_000;
    let now = clock.now_ns();
    let tick = now - now % tick_ns;
    from_ns(if fine_ns <= now { tick.max(fine_ns) } else { tick })
}

/// The clock, to the nanosecond.
pub(crate) fn fine(clock: &dyn Clock) -> (Timestamp, u64) {
    let now = clock.now_ns();
    (from_ns(now), now)
}

/// Nanoseconds from `earlier` to `later`; `None` if that is negative, or seconds.
pub(crate) fn ns_between(earlier: Timestamp, later: Timestamp) -> Option<u32> {
    let seconds = later.seconds.checked_sub(earlier.seconds).filter(|s| (0..2).contains(s))?;
    (seconds as u32 * NS_PER_S as u32 + later.nanoseconds).checked_sub(earlier.nanoseconds)
}

/// The time `ns` nanoseconds later.
pub(crate) fn later(time: Timestamp, ns: u32) -> Timestamp {
    let ns = time.nanoseconds + ns;
    let (carry, nanoseconds) = (ns / NS_PER_S as u32, ns % NS_PER_S as u32);
    Timestamp { seconds: time.seconds + i64::from(carry), nanoseconds }
}

/// Algorithm 1 of the coarse-mtime paper: the new value of a timestamp that is `held`, at `now`
/// (itself floored to the tick), with an update interval of `interval_ms` milliseconds. It moves
/// only to multiples of the interval, so that an overwrite inside one leaves the inode clean.
///
/// Two cases the paper leaves open: a file created or touched inside the interval holds a time
/// later than its multiple, and keeps it, because time does not go back; a time in the future, set
/// by utimensat, gives way to the clock as it does in Linux.
pub(crate) fn coarse_update(held: Timestamp, now: Timestamp, interval_ms: u32) -> Timestamp {
    let interval_ns = u64::from(interval_ms.max(1)) * 1_000_000;
    let now_ns = u64::try_from(now.seconds).unwrap_or(0) * NS_PER_S + u64::from(now.nanoseconds);
    let floored = from_ns(now_ns - now_ns % interval_ns);
    if floored <= held && held <= now { held } else { floored }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::VirtualClock;

    fn at_ms(ms: u64) -> Timestamp {
        from_ns(1_000 * NS_PER_S + ms * 1_000_000)
    }

    #[test]
    fn a_coarse_time_moves_at_multiples_only() {
        assert_eq!(coarse_update(at_ms(100), at_ms(196), 100), at_ms(100));
        assert_eq!(coarse_update(at_ms(100), at_ms(200), 100), at_ms(200));
        assert_eq!(coarse_update(at_ms(100), at_ms(996), 100), at_ms(900));
        assert_eq!(coarse_update(at_ms(148), at_ms(152), 100), at_ms(148), "never back");
        assert_eq!(coarse_update(at_ms(9_000), at_ms(152), 100), at_ms(100), "future times go");
    }

    #[test]
    fn moves_once_per_tick() {
        let clock = VirtualClock::new(10 * NS_PER_S + 7_999_999);
        assert_eq!(coarse(&clock, 4, 0), Timestamp { seconds: 10, nanoseconds: 4_000_000 });
        assert_eq!(coarse(&clock, 1, 0), Timestamp { seconds: 10, nanoseconds: 7_000_000 });
        clock.sleep_until(10 * NS_PER_S + 8_000_000);
        assert_eq!(coarse(&clock, 4, 0), Timestamp { seconds: 10, nanoseconds: 8_000_000 });
    }
}
