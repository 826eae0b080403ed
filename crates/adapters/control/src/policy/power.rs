//! `power`: no write waits in memory while the power may fail.
//!
//! 6.6.7 of the paper: RAM buffering is disabled when the battery is low. It is enabled again when
//! the battery has been good for a while, so that a reading that goes back and forth does not.
//! When not to use it: machines without a battery, where it does nothing.

use std::time::Duration;

use crate::{Change, Observation, Policy, Power};

const GOOD_FOR: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct PowerFails {
    off: bool,
    good_since: Option<Duration>,
}

impl Policy for PowerFails {
    fn decide(&mut self, seen: &Observation) -> Option<Change> {
        if seen.power == Power::Failing {
            self.good_since = None;
            return (!std::mem::replace(&mut self.off, true)).then_some(Change::RamOn(false));
        }
        if !self.off {
            return None;
        }
        // A service that says nothing any more does not say that the power is good.
        if seen.power == Power::Unknown {
            self.good_since = None;
            return None;
        }
        let since = *self.good_since.get_or_insert(seen.now);
        if seen.now.saturating_sub(since) < GOOD_FOR {
            return None;
        }
        self.off = false;
        Some(Change::RamOn(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_off_while_the_power_may_fail_and_on_ten_seconds_later() {
        let mut policy = PowerFails::default();
        let mut at = |second, power| {
            let now = Duration::from_secs(second);
            policy.decide(&Observation { now, power, ..Observation::default() })
        };
        assert_eq!(at(0, Power::Good), None);
        assert_eq!(at(1, Power::Failing), Some(Change::RamOn(false)));
        assert_eq!(at(2, Power::Failing), None);
        assert_eq!(at(3, Power::Good), None);
        assert_eq!(at(12, Power::Good), None);
        assert_eq!(at(13, Power::Good), Some(Change::RamOn(true)));
        assert_eq!(at(14, Power::Good), None);
        assert_eq!(at(15, Power::Failing), Some(Change::RamOn(false)));
        assert_eq!(at(16, Power::Good), None);
        assert_eq!(at(17, Power::Unknown), None);
        assert_eq!(at(27, Power::Good), None);
        assert_eq!(at(37, Power::Good), Some(Change::RamOn(true)));
    }

    #[test]
    fn where_nobody_says_nothing_is_switched() {
        let mut policy = PowerFails::default();
        assert_eq!(policy.decide(&Observation::default()), None);
    }
}
