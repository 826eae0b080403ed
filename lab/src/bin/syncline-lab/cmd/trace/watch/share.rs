//! The limit of processor time: a bucket that fills with time and that work empties.

use std::time::Duration;

/// Time for which an unused share is kept.
const KEPT: Duration = Duration::from_secs(30);

/// Rest of the share.
pub(super) struct Share {
    percent: u32,
    left_ns: i128,
}

impl Share {
    pub(super) fn new(percent: u32) -> Share {
        let mut share = Share { percent, left_ns: 0 };
        share.left_ns = share.kept_ns();
        share
    }

    fn kept_ns(&self) -> i128 {
        i128::try_from(KEPT.as_nanos() * u128::from(self.percent) / 100).unwrap_or(i128::MAX)
    }

    /// Counts `worked` of processor time in `passed` of time. Returns how long to rest.
    pub(super) fn rest(&mut self, passed: Duration, worked: Duration) -> Duration {
        let ns = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX >> 1);
        let percent = i128::from(self.percent);
        self.left_ns = (self.left_ns + ns(passed) * percent / 100).min(self.kept_ns());
        self.left_ns -= ns(worked);
        let rest_ns = (-self.left_ns).max(0) * 100 / percent;
        Duration::from_nanos(u64::try_from(rest_ns).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_share_is_paid_with_rest() {
        let second = Duration::from_secs(1);
        let mut share = Share::new(2);
        // 600 ms are kept from the start.
        assert_eq!(share.rest(second, Duration::from_millis(400)), Duration::ZERO);
        assert_eq!(share.rest(second, Duration::from_millis(220)), Duration::ZERO);
        let rest = share.rest(second, Duration::from_millis(60));
        assert_eq!(rest, Duration::from_secs(2));
        assert_eq!(share.rest(rest, Duration::ZERO), Duration::ZERO);
        // An idle hour is worth no more than the 30 s that are kept.
        share.rest(Duration::from_secs(3600), Duration::ZERO);
        assert!(share.rest(Duration::ZERO, second) > Duration::from_secs(19));
    }
}
