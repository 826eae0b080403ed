//! What wakes the maintenance thread of a mount when there is something to do before its time.
//!
//! It rings once, until [`Bell::heard`] says otherwise: a program that writes faster than the
//! write-back would else wake a thread with each of its writes that has nothing to do before the
//! pause between two write-backs is over.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// The bell of one mount.
#[derive(Default)]
pub(crate) struct Bell {
    thread: OnceLock<Thread>,
    rung: AtomicBool,
}

impl Bell {
    /// Who is woken. There is one; a second changes nothing.
    pub(crate) fn wakes(&self, thread: &Thread) {
        let _ = self.thread.set(thread.clone());
    }

    /// Wakes it, if it is there already and `so`, and it has not been rung for. True if it was
    /// woken.
    pub(crate) fn ring_if(&self, so: bool) -> bool {
        let thread = self.thread.get().filter(|_| so && !self.rung.load(Ordering::Relaxed));
        let Some(thread) = thread else { return false };
        let rings = !self.rung.swap(true, Ordering::AcqRel);
        if rings {
            thread.unpark();
        }
        rings
    }

    /// The thread is about to look what there is to do. `comes_back`: it will do so again by
    /// itself, soon, and need not be rung for.
    pub(crate) fn heard(&self, comes_back: bool) {
        self.rung.store(comes_back, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_rung_for_does_not_rest() {
        let bell = Bell::default();
        bell.ring_if(true);
        bell.wakes(&std::thread::current());
        bell.ring_if(true);
        // Would hang without the ring before it.
        std::thread::park();
    }

    #[test]
    fn it_rings_once_until_it_is_heard() {
        let bell = Bell::default();
        assert!(!bell.ring_if(true), "nobody is there");
        bell.wakes(&std::thread::current());
        assert!(!bell.ring_if(false));
        assert!(bell.ring_if(true));
        assert!(!bell.ring_if(true));
        bell.heard(true);
        assert!(!bell.ring_if(true), "it comes back by itself");
        bell.heard(false);
        assert!(bell.ring_if(true));
    }
}
