//! Watchdog of the workers, on a thread of its own: lets a parked worker wait for requests where
//! none has waited and nothing has moved between two polls, and releases a bound worker that gets
//! no CPU.

use std::thread;
use std::time::Duration;

use super::handover::{Found, Watch};
use super::{Locked, Parking};

/// Poll interval while requests come.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Poll interval at most, while all requests end. The watchdog wakes on the CPU of a program or of
/// a worker, and where one is bound beside the other (`affinity/`) the kernel then takes them
/// apart: at every millisecond that is a seventh of the time.
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(16);
/// Polls that find ends of requests only, after which the interval grows.
const CALM_POLLS: u32 = 64;

impl Parking {
    /// Polls until the mount is over.
    pub(crate) fn watch(&self) {
        let (mut watch, mut pace) = (Watch::default(), Pace::default());
        loop {
            let Some(guard) = self.state.try_lock_for(POLL_INTERVAL) else {
                // The worker that has it got no CPU meanwhile.
                self.affinity.release(true);
                continue;
            };
            let mut at = Locked { parking: self, guard };
            if at.guard.is_over() {
                return;
            }
            if !at.guard.is_watched() {
                self.watchdog.wait(&mut at.guard);
                (watch, pace) = Default::default();
                continue;
            }
            match watch.poll(&mut at, || self.affinity.has_waiting_request()) {
                Found::Moved => pace.moved(),
                Found::Still => pace.stood(),
                Found::Stuck => {
                    pace = Pace::default();
                    self.affinity.release(true);
                }
                // Nobody would see that it gets no CPU.
                Found::Quiet => self.affinity.release(false),
            }
            drop(at);
            thread::sleep(pace.interval);
        }
    }
}

/// Pace of the polls.
struct Pace {
    interval: Duration,
    /// Polls since a request lasted.
    calm: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { interval: POLL_INTERVAL, calm: 0 }
    }
}

impl Pace {
    /// Requests have ended since the last poll.
    fn moved(&mut self) {
        self.calm = self.calm.saturating_add(1);
        if self.calm > CALM_POLLS {
            self.interval = (self.interval * 2).min(POLL_INTERVAL_MAX);
        }
    }

    /// None has: if one is under way the next poll tells.
    fn stood(&mut self) {
        self.interval = POLL_INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_grows_while_all_requests_end() {
        let mut pace = Pace::default();
        for _ in 0..CALM_POLLS {
            pace.moved();
            assert_eq!(pace.interval, POLL_INTERVAL);
        }
        for _ in 0..10 {
            pace.moved();
        }
        assert_eq!(pace.interval, POLL_INTERVAL_MAX);
        pace.stood();
        assert_eq!(pace.interval, POLL_INTERVAL, "nothing has moved");
        pace.moved();
        assert_eq!(pace.interval, POLL_INTERVAL * 2);
        pace = Pace::default();
        pace.moved();
        assert_eq!(pace.interval, POLL_INTERVAL, "a request lasted");
    }
}
