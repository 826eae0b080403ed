//! Wake-ups of a mount's maintenance thread before its time.
//!
//! The thread is woken once for each [`WritebackUrgency`] until the next [`Wakeup::begin_round`].
//! Otherwise a program that writes faster than the write-back would wake it with each write,
//! although it has nothing to do before the pause between two write-backs is over.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;

use syncline_fs::Volume;

/// Work for the maintenance thread, by urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WritebackUrgency {
    Nothing,
    /// Write back when the pause is over.
    Soon,
    /// Write back before programs have to.
    Now,
}

impl WritebackUrgency {
    /// The urgency of a volume now.
    pub(crate) fn of(volume: &Volume) -> WritebackUrgency {
        if volume.is_near_throttle() {
            WritebackUrgency::Now
        } else if volume.wants_writeback() {
            WritebackUrgency::Soon
        } else {
            WritebackUrgency::Nothing
        }
    }
}

/// Wake-up of one thread.
#[derive(Default)]
pub(crate) struct Wakeup {
    thread: OnceLock<Thread>,
    /// The highest urgency that the thread knows of.
    known: AtomicU8,
}

impl Wakeup {
    /// Sets the thread to wake. There is one; a second changes nothing.
    pub(crate) fn set_thread(&self, thread: &Thread) {
        let _ = self.thread.set(thread.clone());
    }

    /// Wakes the thread, if there is one and it knows of nothing as urgent. True if it was woken.
    pub(crate) fn wake(&self, urgency: WritebackUrgency) -> bool {
        let urgency = urgency as u8;
        let thread = self.thread.get().filter(|_| urgency > self.known.load(Ordering::Relaxed));
        let Some(thread) = thread else { return false };
        let wakes = self.known.fetch_max(urgency, Ordering::AcqRel) < urgency;
        if wakes {
            thread.unpark();
        }
        wakes
    }

    /// The thread is about to see what there is to do. For `known` or less it comes back by itself
    /// and need not be woken.
    pub(crate) fn begin_round(&self, known: WritebackUrgency) {
        self.known.store(known as u8, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_woken_does_not_park() {
        let wakeup = Wakeup::default();
        wakeup.wake(WritebackUrgency::Soon);
        wakeup.set_thread(&std::thread::current());
        wakeup.wake(WritebackUrgency::Soon);
        // Would hang without the wake-up before it.
        std::thread::park();
    }

    #[test]
    fn it_wakes_once_for_each_urgency_of_a_round() {
        let wakeup = Wakeup::default();
        assert!(!wakeup.wake(WritebackUrgency::Soon), "there is no thread");
        wakeup.set_thread(&std::thread::current());
        assert!(!wakeup.wake(WritebackUrgency::Nothing));
        assert!(wakeup.wake(WritebackUrgency::Soon));
        assert!(!wakeup.wake(WritebackUrgency::Soon));
        assert!(wakeup.wake(WritebackUrgency::Now), "for more");
        wakeup.begin_round(WritebackUrgency::Soon);
        assert!(!wakeup.wake(WritebackUrgency::Soon), "it comes back by itself");
        assert!(wakeup.wake(WritebackUrgency::Now));
        wakeup.begin_round(WritebackUrgency::Nothing);
        assert!(wakeup.wake(WritebackUrgency::Soon));
    }
}
