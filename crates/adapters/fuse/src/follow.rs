//! Where the worker that waits for requests waits: while one program makes short calls one after
//! the other, on the processor of that program.
//!
//! ```text
//!   processor A   program: call --+                +--> goes on --+
//!                  worker:        +-> work, answer +              +-> work, answer ...
//! ```
//!
//! Left to itself the kernel wakes each of the two on whatever processor is idle, because the one
//! that wakes it is still running. So every call wakes a sleeping processor twice, which takes
//! longer than the work, in a virtual machine several times as long. A worker that is bound to
//! the program's processor is found there; and as one of the policy SCHED_IDLE it leaves the
//! program there when it answers, since a processor that runs nothing else counts as idle.
//!
//! Promises
//! - One worker follows one program, after [`RUN`] of its calls in turn that were small and met no
//!   other request; the first that does not fit ends it. A call that may take long is no reason:
//!   another worker waits meanwhile (`gate.rs`), and follows with its second call.
//! - A worker that follows gets what other programs leave of that processor. If it does not move
//!   although it has a request, the watch (`gate.rs`) makes it an ordinary thread again at the
//!   second of its looks, and twice as many calls are wanted before the next time.
//! - A mount with a priority of its own (real-time, batch, idle), one whose threads could not come
//!   back from SCHED_IDLE (without privileges), and a machine with one processor never do it.
//!
//! Tested below; that both end up on one processor, and that a busy one starves nobody, on a mount
//! in `crates/adapters/cli/tests/mount_follow.rs`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use crate::policy::{self, Policy};

/// Calls in turn after which a program is followed.
const RUN: u32 = 16;
/// Calls between two looks at where the program is.
const LOOK_CALLS: u32 = 8;
/// How often the calls that are wanted double, at most.
const LEVELS: u32 = 10;
/// Calls after which one doubling is forgiven.
const FORGIVEN_CALLS: u32 = 16 * 1024;
/// Bytes above which a read or write is not a small call: copying them takes longer than a wake,
/// and what the kernel reads ahead should run beside the program.
pub(crate) const SMALL_BYTES: usize = 64 * 1024;

/// More than 52 numbers and a name of 64 bytes take.
const STAT_BYTES_MAX: usize = 2048;

/// What a worker is to do before it serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stay,
    /// See where the program is, and go there.
    Look,
    /// Be an ordinary thread.
    Leave,
}

/// What one worker knows of who calls.
#[derive(Debug, Default)]
struct Course {
    caller: u32,
    /// Calls of `caller` in turn.
    run: u32,
    /// The processor that the worker is bound to.
    at: Option<usize>,
}

impl Course {
    /// `caller` asks; `fits`: for something small, and nobody else has asked since its last call.
    /// `level`: how often [`RUN`] is doubled; `heir`: another worker has followed it until now.
    fn asked(&mut self, caller: u32, fits: bool, level: u32, heir: bool) -> Step {
        if caller != self.caller || !fits {
            (self.caller, self.run) = (caller, 0);
            return if self.at.is_some() { Step::Leave } else { Step::Stay };
        }
        self.run = self.run.saturating_add(1);
        let due = self.run >= RUN << level && self.run.is_multiple_of(LOOK_CALLS);
        if due || heir && self.at.is_none() { Step::Look } else { Step::Stay }
    }
}

/// Following, for the workers of one mount.
#[derive(Default)]
pub(crate) struct Follow {
    /// Processors of a worker that does not follow; none: nobody follows.
    home: Option<CpuSet>,
    /// The thread that follows; 0: none.
    thread: AtomicI32,
    /// How often the watch made it an ordinary thread.
    freed: AtomicU32,
    /// It got no processor, and has not heard of that yet.
    starved: AtomicBool,
    /// Doublings of [`RUN`].
    level: AtomicU32,
    /// Whose worker went to rest: the next worker that serves this thread is its heir.
    bequeathed: AtomicU32,
    device: OnceLock<OwnedFd>,
}

/// A worker's part in it.
#[derive(Default)]
pub(crate) struct Follower {
    course: Course,
    freed: u32,
    /// Where the last caller's processor was read.
    stat: Option<(u32, File)>,
}

impl Follower {
    /// Where a thread runs or ran last.
    fn processor_of(&mut self, thread: u32) -> Option<usize> {
        if self.stat.as_ref().is_none_or(|(of, _)| *of != thread) {
            let opened = File::open(format!("/proc/{thread}/stat")).ok()?;
            self.stat = Some((thread, opened));
        }
        let (_, file) = self.stat.as_ref()?;
        let mut text = [0; STAT_BYTES_MAX];
        // A number that was given again reads as an error: the file is of the thread that is gone.
        let Ok(len) = file.read_at(&mut text, 0) else {
            self.stat = None;
            return None;
        };
        parsed(std::str::from_utf8(&text[..len]).ok()?)
    }
}

impl Follow {
    /// For workers that the calling thread will start.
    pub(crate) fn new() -> Follow {
        let home = sched_getaffinity(None).ok().filter(|home| home.count() > 1);
        let able = policy::of(None) == Some(Policy::Other) && policy::comes_back();
        Follow { home: home.filter(|_| able), ..Follow::default() }
    }

    /// Where requests come from: lets the watch see whether one waits.
    pub(crate) fn watches(&self, device: OwnedFd) {
        // There is one; a second changes nothing.
        let _ = self.device.set(device);
    }

    /// The calling worker has a request of the thread `caller`, 0 if nobody waits for it; `fits`: a
    /// small one, and nobody has served another since its last.
    pub(crate) fn serves(&self, me: &mut Follower, caller: u32, fits: bool) {
        let Some(home) = &self.home else { return };
        let freed = self.freed.load(Ordering::Acquire);
        if me.freed != freed {
            me.freed = freed;
            self.hear(me);
        }
        if caller == 0 {
            return;
        }
        let heir = self.bequeathed.load(Ordering::Relaxed) == caller;
        match me.course.asked(caller, fits, self.level.load(Ordering::Relaxed), heir) {
            Step::Stay => {}
            Step::Leave => self.leave(me),
            Step::Look => self.look(me, caller, home),
        }
    }

    fn look(&self, me: &mut Follower, caller: u32, home: &CpuSet) {
        let there = me.processor_of(caller).filter(|at| home.is_set(*at));
        if let Some(at) = there.filter(|_| there != me.course.at) {
            self.go(me, at);
        }
        if me.course.run.is_multiple_of(FORGIVEN_CALLS) {
            self.doublings(|level| level.saturating_sub(1));
        }
    }

    /// The watch has freed whoever followed.
    fn hear(&self, me: &mut Follower) {
        if me.course.at.is_some() {
            self.leave(me);
            me.course.run = 0;
            if self.starved.swap(false, Ordering::Relaxed) {
                self.doublings(|level| (level + 1).min(LEVELS));
            }
        }
    }

    fn doublings(&self, change: impl Fn(u32) -> u32) {
        // Only who follows gets here; a lost update would be one doubling.
        let level = self.level.load(Ordering::Relaxed);
        self.level.store(change(level), Ordering::Relaxed);
    }

    fn go(&self, me: &mut Follower, at: usize) {
        if policy::of(None).is_none() || !(me.course.at.is_some() || self.claims()) {
            return;
        }
        let mut only = CpuSet::new();
        only.set(at);
        me.course.at = Some(at);
        // The last step is the one after which this thread may have to wait for a processor.
        let bound = sched_setaffinity(None, &only).is_ok();
        if !(bound && policy::set(None, Policy::Idle)) {
            self.leave(me);
        }
    }

    /// The calling worker is the one that follows, unless another is.
    fn claims(&self) -> bool {
        let mine = gettid().as_raw_pid();
        let claims = self.thread.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Relaxed);
        self.bequeathed.store(0, Ordering::Relaxed);
        claims.is_ok()
    }

    /// The calling worker goes to rest.
    pub(crate) fn rests(&self, me: &mut Follower) {
        if me.course.at.is_some() {
            self.leave(me);
            self.bequeathed.store(me.course.caller, Ordering::Relaxed);
        }
    }

    /// The calling worker is an ordinary thread again, if it was not.
    pub(crate) fn leave(&self, me: &mut Follower) {
        if me.course.at.take().is_some() {
            self.free(None);
            self.thread.store(0, Ordering::Release);
        }
    }

    fn free(&self, thread: Option<Pid>) {
        // Neither can fail where `comes_back` held, and a policy that somebody else gave stays.
        if policy::of(thread) == Some(Policy::Idle) {
            policy::set(thread, Policy::Other);
        }
        if let Some(home) = &self.home {
            let _ = sched_setaffinity(thread, home);
        }
    }

    /// Whether a worker follows and a request waits for it.
    pub(crate) fn is_behind(&self) -> bool {
        self.thread.load(Ordering::Acquire) != 0 && self.device.get().is_some_and(has_request)
    }

    /// Makes the worker that follows, if one does, an ordinary thread. It hears of it with its next
    /// request. `starved`: because it did not get on.
    pub(crate) fn take_back(&self, starved: bool) {
        if let Some(thread) = Pid::from_raw(self.thread.load(Ordering::Acquire)) {
            self.starved.fetch_or(starved, Ordering::Relaxed);
            self.freed.fetch_add(1, Ordering::Release);
            self.free(Some(thread));
        }
    }
}

fn has_request(device: &OwnedFd) -> bool {
    let mut ask = [PollFd::new(device, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut ask, Some(&at_once)), Ok(1)) && ask[0].revents().contains(PollFlags::IN)
}

/// Field 39 of proc(5)'s `stat`. The second field may hold anything, also blanks and brackets.
fn parsed(stat: &str) -> Option<usize> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAR: u32 = 100;

    /// Calls until the worker looks where the program is.
    fn calls_until_look(course: &mut Course, level: u32) -> u32 {
        (1..=1 << 20).find(|_| course.asked(TAR, true, level, false) == Step::Look).unwrap()
    }

    #[test]
    fn a_program_is_followed_after_a_run_of_calls_and_looked_at_again() {
        let mut course = Course::default();
        assert_eq!(course.asked(TAR, true, 0, false), Step::Stay);
        assert_eq!(calls_until_look(&mut course, 0), RUN);
        assert_eq!(calls_until_look(&mut course, 0), LOOK_CALLS);
    }

    #[test]
    fn another_program_or_a_large_call_ends_it_at_once() {
        for (caller, fits) in [(TAR + 1, true), (TAR, false)] {
            let mut course = Course::default();
            course.asked(TAR, true, 0, false);
            calls_until_look(&mut course, 0);
            assert_eq!(course.asked(caller, fits, 0, false), Step::Stay, "it does not follow yet");
            course.asked(TAR, true, 0, false);
            calls_until_look(&mut course, 0);
            course.at = Some(1);
            assert_eq!(course.asked(caller, fits, 0, false), Step::Leave);
            assert_eq!(course.run, 0, "a run begins anew");
        }
    }

    #[test]
    fn two_programs_in_turns_are_not_followed() {
        let mut course = Course::default();
        for call in 0..100_000 {
            assert_eq!(course.asked(TAR + call % 2, true, 0, false), Step::Stay);
        }
    }

    #[test]
    fn the_next_worker_of_a_program_that_was_followed_follows_at_once() {
        let mut course = Course::default();
        assert_eq!(course.asked(TAR, false, 3, true), Step::Stay, "others have asked meanwhile");
        assert_eq!(course.asked(TAR, true, 3, true), Step::Look);
        course.at = Some(1);
        assert_eq!(course.asked(TAR, true, 3, true), Step::Stay, "it follows");
        let follow = Follow::new();
        let (mut first, mut second) = (Follower::default(), Follower::default());
        let myself = std::process::id();
        (0..=RUN).for_each(|_| follow.serves(&mut first, myself, true));
        let follows = first.course.at.is_some();
        follow.rests(&mut first);
        assert_eq!(policy::of(None), Some(Policy::Other));
        follow.serves(&mut second, myself, false);
        follow.serves(&mut second, myself, true);
        assert_eq!(second.course.at.is_some(), follows, "as far as one may follow here");
        follow.leave(&mut second);
        follow.serves(&mut first, myself, false);
        follow.serves(&mut first, myself, true);
        assert_eq!(first.course.at, None, "it was left to one");
    }

    #[test]
    fn each_level_doubles_the_run() {
        for level in 0..=LEVELS {
            let mut course = Course::default();
            course.asked(TAR, true, level, false);
            assert_eq!(calls_until_look(&mut course, level), RUN << level);
        }
    }

    #[test]
    fn a_worker_goes_and_comes_back_and_hears_from_the_watch() {
        let follow = Follow::new();
        let Some(home) = follow.home.map(|home| home.count()) else {
            let processors = sched_getaffinity(None).unwrap().count();
            let ordinary = policy::of(None) == Some(Policy::Other);
            assert!(processors == 1 || !ordinary || !policy::comes_back());
            return;
        };
        let myself = std::process::id();
        let mut me = Follower::default();
        // Calls until it follows.
        let mut until = |calls: u32| {
            let followed = (1..=calls).find(|_| {
                follow.serves(&mut me, myself, true);
                me.course.at.is_some()
            });
            (followed, policy::of(None), sched_getaffinity(None).unwrap().count())
        };
        let (bound, free) = ((Some(Policy::Idle), 1), (Some(Policy::Other), home));
        assert_eq!(until(RUN), (None, free.0, free.1));
        assert_eq!(until(1), (Some(1), bound.0, bound.1));
        follow.take_back(true);
        assert_eq!(policy::of(None), free.0);
        assert_eq!(until(2 * RUN - 1), (None, free.0, free.1), "twice as many calls");
        assert_eq!(until(1), (Some(1), bound.0, bound.1));
        follow.take_back(false);
        assert_eq!(until(2 * RUN - 1), (None, free.0, free.1), "not more than before");
        assert_eq!(until(1), (Some(1), bound.0, bound.1));
        follow.leave(&mut me);
        assert_eq!(policy::of(None), free.0);
        assert_eq!(follow.thread.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_processor_is_found_behind_any_name() {
        let fields = (3..=52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(parsed(&format!("7 (a) b) (c) {fields}\n")), Some(39));
        assert_eq!(parsed("7 (cut) S 1 2"), None);
        let mut me = Follower::default();
        assert_eq!(me.processor_of(u32::MAX), None);
        assert!(me.processor_of(std::process::id()).is_some());
        assert!(me.processor_of(std::process::id()).is_some(), "read again");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let number = child.id();
        assert!(me.processor_of(number).is_some());
        child.wait().unwrap();
        assert_eq!(me.processor_of(number), None, "it is gone");
        assert!(me.processor_of(std::process::id()).is_some());
    }
}
