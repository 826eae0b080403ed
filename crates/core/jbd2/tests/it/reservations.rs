//! Reservations in the running transaction under every kind of schedule that shuttle draws.
//!
//! `src/room.rs` itself decides here, over shuttle's mutex and condition variable; around it stand
//! the steps of `Journal::reserve`, `Journal::start` and `Journal::commit_sealed`. Checked: every
//! operation that would fit alone is done, whatever others do; the transaction and what is promised
//! of it stay within the limit; nobody waits for ever.

#[path = "../../src/room.rs"]
mod room;

use room::Room;
use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
use shuttle::thread;

const SCHEDULES: usize = 3000;
const LIMIT: u32 = 10;

#[derive(Default)]
struct State {
    /// Blocks of the running transaction.
    held: u32,
    /// Blocks that reservations and open handles may still add.
    reserved: u32,
    handles: u32,
    /// A committer waits for handles: none begins.
    locked: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The owner's commits, one at a time.
    owner: Mutex<()>,
    /// Canary: the end of an operation wakes nobody.
    is_silent: bool,
    /// Canary: full or not, the answer is the same.
    is_blind: bool,
}

impl Shared {
    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap()
    }

    /// The owner commits all that is in the transaction.
    fn commit(&self) {
        let _owner = self.owner.lock().unwrap();
        let mut state = self.state.lock().unwrap();
        state.locked = true;
        while state.handles > 0 {
            state = self.wait(state);
        }
        (state.held, state.locked) = (0, false);
        self.changed.notify_all();
    }

    fn reserve(&self, blocks: u32) {
        loop {
            let mut state = self.state.lock().unwrap();
            loop {
                match Room::of(LIMIT, state.held, state.reserved, blocks) {
                    Room::Free => {
                        state.reserved += blocks;
                        let all = state.held + state.reserved;
                        assert!(all <= LIMIT.max(blocks), "{all} blocks are promised");
                        return;
                    }
                    Room::Full if !self.is_blind => break,
                    Room::Full | Room::Reserved => state = self.wait(state),
                }
            }
            drop(state);
            self.commit();
        }
    }

    /// An operation that may need `blocks`, and changes `used` of them in one handle.
    fn operate(&self, blocks: u32, used: u32) {
        self.reserve(blocks);
        let mut state = self.state.lock().unwrap();
        while state.locked {
            state = self.wait(state);
        }
        state.handles += 1;
        drop(state);
        thread::yield_now();
        let mut state = self.state.lock().unwrap();
        state.held += used;
        state.reserved -= blocks;
        state.handles -= 1;
        if !self.is_silent {
            self.changed.notify_all();
        }
    }
}

/// Threads of two operations of these sizes each, and one that commits.
fn run(sizes: &[(u32, u32)], is_silent: bool, is_blind: bool) {
    let shared = Arc::new(Shared { is_silent, is_blind, ..Shared::default() });
    let mut threads: Vec<_> = (sizes.iter().copied())
        .map(|(blocks, used)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || (0..2).for_each(|_| shared.operate(blocks, used)))
        })
        .collect();
    let committer = Arc::clone(&shared);
    threads.push(thread::spawn(move || committer.commit()));
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(shared.state.lock().unwrap().reserved, 0);
}

#[test]
fn every_operation_that_fits_alone_is_done() {
    shuttle::check_random(|| run(&[(4, 4), (7, 2), (9, 9)], false, false), SCHEDULES);
    shuttle::check_pct(|| run(&[(10, 10), (3, 3), (10, 1)], false, false), SCHEDULES, 3);
}

#[test]
fn one_that_is_larger_than_the_limit_runs_alone() {
    shuttle::check_random(|| run(&[(15, 12), (6, 6), (2, 0)], false, false), SCHEDULES);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_operation_that_wakes_nobody_is_caught() {
    shuttle::check_random(|| run(&[(6, 6), (7, 7)], true, false), SCHEDULES);
}

#[test]
#[should_panic(expected = "deadlock")]
fn waiting_where_a_commit_is_needed_is_caught() {
    shuttle::check_random(|| run(&[(6, 6), (7, 7), (8, 8)], false, true), SCHEDULES);
}
