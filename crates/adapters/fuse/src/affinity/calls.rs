//! Runs of calls: the time for which one worker has served one program, and the decision from it.

/// Calls in turn after which a worker is bound to the program's CPU.
pub(super) const RUN_CALLS: u32 = 16;
/// Calls between two times that the program's CPU is read.
const LOCATE_CALLS: u32 = 8;

/// Step of a worker before it serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Keep,
    /// Find the CPU of the program, and be bound to it.
    Locate,
    /// Be an ordinary thread.
    Unbind,
}

/// Calls that one worker has served for its last caller.
#[derive(Debug, Default)]
pub(super) struct Calls {
    caller: u32,
    in_turn: u32,
}

impl Calls {
    /// The last caller.
    pub(super) fn caller(&self) -> u32 {
        self.caller
    }

    /// Calls of the last caller in turn.
    pub(super) fn in_turn(&self) -> u32 {
        self.in_turn
    }

    /// Begins to count again.
    pub(super) fn restart(&mut self) {
        self.in_turn = 0;
    }

    /// Counts a call of `caller`. `fits`: small, and nobody else has called since its last;
    /// `doublings`: of [`RUN_CALLS`]; `takes_over`: the worker bound to this caller was parked;
    /// `bound`: this worker is bound.
    pub(super) fn add(
        &mut self,
        caller: u32,
        fits: bool,
        doublings: u32,
        takes_over: bool,
        bound: bool,
    ) -> Step {
        if caller != self.caller || !fits {
            (self.caller, self.in_turn) = (caller, 0);
            return if bound { Step::Unbind } else { Step::Keep };
        }
        self.in_turn = self.in_turn.saturating_add(1);
        let wanted = RUN_CALLS << doublings;
        let due = self.in_turn >= wanted && self.in_turn % LOCATE_CALLS == 0;
        if due || takes_over && !bound { Step::Locate } else { Step::Keep }
    }
}

#[cfg(test)]
mod tests {
    use super::super::DOUBLINGS_MAX;
    use super::*;

    const TAR: u32 = 100;

    /// Calls until the worker locates the program.
    fn calls_until_located(calls: &mut Calls, doublings: u32) -> u32 {
        (1..=1 << 20)
            .find(|_| calls.add(TAR, true, doublings, false, false) == Step::Locate)
            .unwrap()
    }

    #[test]
    fn a_program_is_followed_after_a_run_of_calls_and_located_again() {
        let mut calls = Calls::default();
        assert_eq!(calls.add(TAR, true, 0, false, false), Step::Keep);
        assert_eq!(calls_until_located(&mut calls, 0), RUN_CALLS);
        assert_eq!(calls_until_located(&mut calls, 0), LOCATE_CALLS);
    }

    #[test]
    fn another_program_or_a_large_call_ends_it_at_once() {
        for (caller, fits) in [(TAR + 1, true), (TAR, false)] {
            let mut calls = Calls::default();
            calls.add(TAR, true, 0, false, false);
            calls_until_located(&mut calls, 0);
            assert_eq!(calls.add(caller, fits, 0, false, false), Step::Keep, "not bound yet");
            calls.add(TAR, true, 0, false, false);
            calls_until_located(&mut calls, 0);
            assert_eq!(calls.add(caller, fits, 0, false, true), Step::Unbind);
            assert_eq!(calls.in_turn(), 0, "a run begins anew");
        }
    }

    #[test]
    fn two_programs_in_turns_are_not_followed() {
        let mut calls = Calls::default();
        for call in 0..100_000 {
            assert_eq!(calls.add(TAR + call % 2, true, 0, false, false), Step::Keep);
        }
    }

    #[test]
    fn a_worker_that_takes_over_locates_its_program_with_the_second_call() {
        let mut calls = Calls::default();
        assert_eq!(calls.add(TAR, false, 3, true, false), Step::Keep, "others called meanwhile");
        assert_eq!(calls.add(TAR, true, 3, true, false), Step::Locate);
        assert_eq!(calls.add(TAR, true, 3, true, true), Step::Keep, "it is bound");
    }

    #[test]
    fn each_doubling_doubles_the_run() {
        for doublings in 0..=DOUBLINGS_MAX {
            let mut calls = Calls::default();
            calls.add(TAR, true, doublings, false, false);
            assert_eq!(calls_until_located(&mut calls, doublings), RUN_CALLS << doublings);
        }
    }
}
