//! `auto-ram`: the buffer grows while it is nearly full and shrinks while it is nearly empty.
//!
//! 6.6.7 of the paper: over 80 % during 3 seconds it increases, under 10 % during 5 seconds it
//! decreases. By how much the paper does not say: here it doubles and halves, within limits.
//! When not to use it: a buffer that must have its size at once, before 3 seconds of load.

use std::time::Duration;

use crate::{Change, Limits, Observation, Policy};

const FULL_PERCENT: u64 = 80;
const FULL_FOR: Duration = Duration::from_secs(3);
const EMPTY_PERCENT: u64 = 10;
const EMPTY_FOR: Duration = Duration::from_secs(5);

pub(crate) struct AutoRam {
    limits: Limits,
    full_since: Option<Duration>,
    empty_since: Option<Duration>,
}

impl AutoRam {
    pub(crate) fn new(limits: Limits) -> AutoRam {
        AutoRam { limits, full_since: None, empty_since: None }
    }
}

/// True if a condition has held for `long`; `since` remembers when it began.
fn held(since: &mut Option<Duration>, holds: bool, now: Duration, long: Duration) -> bool {
    if !holds {
        *since = None;
        return false;
    }
    now.saturating_sub(*since.get_or_insert(now)) >= long
}

impl Policy for AutoRam {
    fn decide(&mut self, seen: &Observation) -> Option<Change> {
        // While it is off its size means nothing.
        let on = seen.ram_bytes > 0;
        let used = seen.ram_used_bytes.saturating_mul(100);
        let full = on && used > seen.ram_bytes.saturating_mul(FULL_PERCENT);
        let empty = on && used < seen.ram_bytes.saturating_mul(EMPTY_PERCENT);
        let grow = held(&mut self.full_since, full, seen.now, FULL_FOR);
        let shrink = held(&mut self.empty_since, empty, seen.now, EMPTY_FOR);
        let size = match (grow, shrink) {
            (true, _) => seen.ram_bytes.saturating_mul(2).min(self.limits.ram_bytes_max),
            (_, true) => (seen.ram_bytes / 2).max(self.limits.ram_bytes_min),
            _ => return None,
        };
        (self.full_since, self.empty_since) = (None, None);
        let moves = if grow { size > seen.ram_bytes } else { size < seen.ram_bytes };
        moves.then_some(Change::RamBytes(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Shows one percentage a second; the sizes after each second, in MiB.
    fn sizes(percents: &[u64]) -> Vec<u64> {
        let limits = Limits { ram_bytes_min: 4 * MIB, ram_bytes_max: 64 * MIB };
        let mut policy = AutoRam::new(limits);
        let mut ram_bytes = 16 * MIB;
        let mut after = Vec::new();
        for (second, percent) in percents.iter().enumerate() {
            let seen = Observation {
                now: Duration::from_secs(second as u64),
                ram_bytes,
                ram_used_bytes: ram_bytes * percent / 100,
                ..Observation::default()
            };
            if let Some(Change::RamBytes(bytes)) = policy.decide(&seen) {
                ram_bytes = bytes;
            }
            after.push(ram_bytes / MIB);
        }
        after
    }

    #[test]
    fn it_grows_after_three_seconds_over_eighty_percent() {
        assert_eq!(sizes(&[81, 81, 81, 81, 81]), [16, 16, 16, 32, 32]);
        assert_eq!(sizes(&[81, 81, 80, 81, 81, 81]), [16; 6]);
        assert_eq!(sizes(&[90; 13])[11..], [64, 64], "the limit");
    }

    #[test]
    fn it_shrinks_after_five_seconds_under_ten_percent() {
        assert_eq!(sizes(&[9, 9, 9, 9, 9, 9]), [16, 16, 16, 16, 16, 8]);
        assert_eq!(sizes(&[9, 9, 9, 9, 11, 9, 9]), [16; 7]);
        assert_eq!(sizes(&[0; 30])[29], 4, "the limit");
    }

    #[test]
    fn between_the_two_and_while_it_is_off_nothing_changes() {
        assert_eq!(sizes(&[50; 20]), [16; 20]);
        let mut policy = AutoRam::new(Limits::default());
        for second in 0..20 {
            let now = Duration::from_secs(second);
            assert_eq!(policy.decide(&Observation { now, ..Observation::default() }), None);
        }
    }

    #[test]
    fn a_size_beyond_its_limits_is_not_moved_the_other_way() {
        let mut policy = AutoRam::new(Limits { ram_bytes_min: MIB, ram_bytes_max: 8 * MIB });
        for second in 0..20 {
            let now = Duration::from_secs(second);
            let seen = Observation {
                now,
                ram_bytes: 16 * MIB,
                ram_used_bytes: 16 * MIB,
                ..Observation::default()
            };
            assert_eq!(policy.decide(&seen), None);
        }
    }
}
