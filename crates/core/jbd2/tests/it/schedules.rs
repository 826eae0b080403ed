//! The protocol of commit turns under every kind of schedule that shuttle draws.
//!
//! `src/turns.rs` itself runs here, over shuttle's mutex and condition variable; around it stand
//! the few lines of `Journal::sync` and `Journal::commit` that call it. Checked: nobody waits for
//! ever, one holder at a time, a caller returns only after a group commit that began after its
//! call, a group commit takes everybody, and two commits of the other kind at most begin between a
//! request and its own commit: one that was about to begin, and the one whose turn it is.

#![allow(dead_code, reason = "the journal uses more of the turns than this model")]

#[path = "../../src/turns.rs"]
mod turns;

use crate::Tid;
use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
use shuttle::thread;
use turns::{GroupTurn, Monitor, Turns};

const SCHEDULES: usize = 3000;

#[derive(Default)]
struct State {
    turns: Turns,
    stopped: bool,
    holders: u32,
    /// Calls that no group commit has taken yet, with the commits that had begun by then.
    asked: Vec<(u32, Begun)>,
    durable: Vec<u32>,
    running: Tid,
    committed: Tid,
    /// Full commits that were asked for and have not begun, likewise.
    wanted: Vec<Begun>,
    begun: Begun,
}

/// Commits of each kind that have begun.
#[derive(Clone, Copy, Default)]
struct Begun {
    groups: u32,
    fulls: u32,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Canary: whoever ends a commit wakes nobody.
    is_silent: bool,
}

/// The state, locked; `None` only while nobody looks.
struct At<'a> {
    shared: &'a Shared,
    guard: Option<MutexGuard<'a, State>>,
}

impl<'a> At<'a> {
    fn new(shared: &'a Shared) -> Self {
        At { shared, guard: Some(shared.state.lock().unwrap()) }
    }

    fn state(&mut self) -> &mut State {
        self.guard.as_mut().unwrap()
    }

    fn unlocked(&mut self) {
        self.guard = None;
        thread::yield_now();
        self.guard = Some(self.shared.state.lock().unwrap());
    }

    /// The work of a commit, during which nobody else may do any.
    fn work(&mut self) {
        self.state().holders += 1;
        assert_eq!(self.state().holders, 1, "two commits at a time");
        self.unlocked();
        self.state().holders -= 1;
    }
}

impl Monitor for At<'_> {
    fn turns(&mut self) -> &mut Turns {
        &mut self.state().turns
    }

    fn is_stopped(&self) -> bool {
        self.guard.as_ref().unwrap().stopped
    }

    fn wait(&mut self) {
        let guard = self.guard.take().unwrap();
        self.guard = Some(self.shared.changed.wait(guard).unwrap());
    }

    fn wake(&mut self) {
        if !self.shared.is_silent {
            self.shared.changed.notify_all();
        }
    }
}

/// `Journal::sync`. False: stopped.
fn sync(shared: &Shared, call: u32) -> bool {
    let mut at = At::new(shared);
    let number = at.turns().join_group();
    let begun = at.state().begun;
    at.state().asked.push((call, begun));
    loop {
        match turns::await_group(&mut at, number) {
            GroupTurn::Stopped => return false,
            GroupTurn::Over => {
                assert!(at.state().durable.contains(&call), "call {call} returned too early");
                return true;
            }
            GroupTurn::Lead => {
                if turns::gather(&mut at, At::unlocked) {
                    at.turns().take(0);
                    at.unlocked();
                    let number = at.turns().begin_group();
                    at.state().begun.groups += 1;
                    let now = at.state().begun;
                    let taken = std::mem::take(&mut at.state().asked);
                    for (_, then) in &taken {
                        let (groups, fulls) = (now.groups - then.groups, now.fulls - then.fulls);
                        assert_eq!(groups, 1, "a group commit left somebody behind");
                        assert!(fulls <= 2, "{fulls} full commits passed a call");
                    }
                    at.wake();
                    at.work();
                    at.state().durable.extend(taken.iter().map(|(call, _)| call));
                    turns::end_group(&mut at, number);
                }
            }
        }
    }
}

/// `Journal::commit` of what runs now. False: stopped.
fn commit(shared: &Shared) -> bool {
    let mut at = At::new(shared);
    let wanted = at.state().running + 1;
    let begun = at.state().begun;
    at.state().wanted.push(begun);
    loop {
        if at.is_stopped() {
            return false;
        }
        if at.state().committed >= wanted {
            return true;
        }
        if let Some(committing) = at.turns().committing() {
            let turn = committing.turn;
            turns::await_end_of(&mut at, turn);
        } else if at.turns().group_is_next() {
            turns::await_next_group(&mut at);
        } else {
            at.turns().take(0);
            at.unlocked();
            at.state().running += 1;
            let now = at.state().begun;
            at.state().begun.fulls += 1;
            // One commit does for all who wait.
            for then in std::mem::take(&mut at.state().wanted) {
                let groups = now.groups - then.groups;
                assert!(groups <= 2, "{groups} group commits passed a full commit");
            }
            let tid = at.state().running;
            at.work();
            at.state().committed = tid;
            turns::end_full(&mut at);
        }
    }
}

/// Two rounds of `callers` of sync and `committers` of commit; `stop`: one more thread latches.
fn run(callers: u32, committers: u32, stop: bool, is_silent: bool) {
    let shared = Arc::new(Shared { is_silent, ..Shared::default() });
    let mut threads = Vec::new();
    for caller in 0..callers {
        let shared = Arc::clone(&shared);
        threads.push(thread::spawn(move || {
            let done = (0..2).all(|round| sync(&shared, caller * 2 + round));
            assert!(done || stop);
        }));
    }
    for _ in 0..committers {
        let shared = Arc::clone(&shared);
        threads.push(thread::spawn(move || {
            let done = (0..2).all(|_| commit(&shared));
            assert!(done || stop);
        }));
    }
    if stop {
        let shared = Arc::clone(&shared);
        threads.push(thread::spawn(move || {
            let mut at = At::new(&shared);
            at.state().stopped = true;
            at.wake();
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn callers_of_sync_share_group_commits_and_all_return() {
    shuttle::check_random(|| run(3, 0, false, false), SCHEDULES);
}

#[test]
fn group_commits_and_full_commits_take_turns_and_all_return() {
    shuttle::check_random(|| run(3, 2, false, false), SCHEDULES);
    shuttle::check_pct(|| run(2, 2, false, false), SCHEDULES, 3);
}

#[test]
fn a_latch_ends_every_wait() {
    shuttle::check_random(|| run(2, 2, true, false), SCHEDULES);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_commit_that_wakes_nobody_is_caught() {
    shuttle::check_random(|| run(2, 1, false, true), SCHEDULES);
}
