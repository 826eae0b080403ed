//! What wakes the maintenance thread of a mount when there is something to do before its time.

use std::sync::OnceLock;
use std::thread::Thread;

/// The bell of one mount.
#[derive(Default)]
pub(crate) struct Bell(OnceLock<Thread>);

impl Bell {
    /// Who is woken. There is one; a second changes nothing.
    pub(crate) fn wakes(&self, thread: &Thread) {
        let _ = self.0.set(thread.clone());
    }

    /// Wakes it, if it is there already and `so`.
    pub(crate) fn ring_if(&self, so: bool) {
        if let Some(thread) = self.0.get().filter(|_| so) {
            thread.unpark();
        }
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
}
