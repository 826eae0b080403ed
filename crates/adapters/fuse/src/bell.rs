//! What wakes the maintenance thread of a mount when there is something to do before its time.
//!
//! It rings once for each [`Need`], until [`Bell::heard`] says otherwise: a program that writes
//! faster than the write-back would else wake a thread with each of its writes that has nothing to
//! do before the pause between two write-backs is over.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;

use syncline_fs::Volume;

/// What the thread is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    Nothing,
    /// To write back when the pause is over.
    Soon,
    /// To write back before programs have to.
    Now,
}

impl Need {
    /// What a volume needs now.
    pub(crate) fn of(volume: &Volume) -> Need {
        if volume.is_near_throttle() {
            Need::Now
        } else if volume.wants_writeback() {
            Need::Soon
        } else {
            Need::Nothing
        }
    }
}

/// The bell of one mount.
#[derive(Default)]
pub(crate) struct Bell {
    thread: OnceLock<Thread>,
    /// The most that the thread knows it is wanted for.
    rung: AtomicU8,
}

impl Bell {
    /// Who is woken. There is one; a second changes nothing.
    pub(crate) fn wakes(&self, thread: &Thread) {
        let _ = self.thread.set(thread.clone());
    }

    /// Wakes it, if it is there already and has not been rung for as much. True if it was woken.
    pub(crate) fn ring(&self, need: Need) -> bool {
        let need = need as u8;
        let thread = self.thread.get().filter(|_| need > self.rung.load(Ordering::Relaxed));
        let Some(thread) = thread else { return false };
        let rings = self.rung.fetch_max(need, Ordering::AcqRel) < need;
        if rings {
            thread.unpark();
        }
        rings
    }

    /// The thread is about to look what there is to do. For `known` or less it comes back by
    /// itself, and need not be rung for.
    pub(crate) fn heard(&self, known: Need) {
        self.rung.store(known as u8, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_rung_for_does_not_rest() {
        let bell = Bell::default();
        bell.ring(Need::Soon);
        bell.wakes(&std::thread::current());
        bell.ring(Need::Soon);
        // Would hang without the ring before it.
        std::thread::park();
    }

    #[test]
    fn it_rings_once_until_it_is_heard() {
        let bell = Bell::default();
        assert!(!bell.ring(Need::Soon), "nobody is there");
        bell.wakes(&std::thread::current());
        assert!(!bell.ring(Need::Nothing));
        assert!(bell.ring(Need::Soon));
        assert!(!bell.ring(Need::Soon));
        assert!(bell.ring(Need::Now), "for more");
        bell.heard(Need::Soon);
        assert!(!bell.ring(Need::Soon), "it comes back by itself");
        assert!(bell.ring(Need::Now));
        bell.heard(Need::Nothing);
        assert!(bell.ring(Need::Soon));
    }
}
