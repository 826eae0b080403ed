//! `session`: the log is cleaned when the user goes away.
//!
//! 6.6.7 of the paper cleans when the screen has been off for 5 seconds; here the sessions of the
//! machine are idle or locked. Once for each time that the user goes, and again when data has come
//! since the last time and a minute has passed.
//! When not to use it: servers, which have no sessions; the buffer cleans when it is idle anyway.

use std::time::Duration;

use crate::{Change, Observation, Policy, Session};

const AWAY_FOR: Duration = Duration::from_secs(5);
const AGAIN_AFTER: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct SessionAway {
    away_since: Option<Duration>,
    cleaned: Option<Duration>,
}

impl Policy for SessionAway {
    fn decide(&mut self, seen: &Observation) -> Option<Change> {
        if seen.session != Session::Away {
            (self.away_since, self.cleaned) = (None, None);
            return None;
        }
        let since = *self.away_since.get_or_insert(seen.now);
        let waited = seen.now.saturating_sub(since) >= AWAY_FOR;
        let again = self.cleaned.is_none_or(|last| seen.now.saturating_sub(last) >= AGAIN_AFTER);
        if !(waited && again && seen.holds_data) {
            return None;
        }
        self.cleaned = Some(seen.now);
        Some(Change::Clean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_seconds_after_the_user_goes_and_once_a_minute() {
        let mut policy = SessionAway::default();
        let mut at = |second, session, holds_data| {
            let now = Duration::from_secs(second);
            let seen = Observation { now, session, holds_data, ..Observation::default() };
            policy.decide(&seen).is_some()
        };
        assert!(!at(0, Session::Active, true));
        assert!(!at(1, Session::Away, true) && !at(5, Session::Away, true));
        assert!(at(6, Session::Away, true) && !at(7, Session::Away, true));
        assert!(!at(66, Session::Away, false) && at(67, Session::Away, true));
        assert!(!at(68, Session::Active, true));
        assert!(!at(69, Session::Away, true) && !at(73, Session::Away, true));
        assert!(at(74, Session::Away, true));
        assert!(!at(75, Session::Unknown, true));
    }
}
