//! Replies to calls that must not run twice.
//!
//! A client that lost its connection repeats the calls that were not answered. A REMOVE that had
//! been
//! done would answer NOENT then. So the last [`KEPT`] replies to calls that change names or
//! attributes are kept, and a call with the same peer, number and bytes gets the same reply.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Replies that are kept.
const KEPT: usize = 256;

/// Peer, number and hash of the record.
pub(crate) type Key = (IpAddr, u32, u64);

pub(crate) fn key(peer: IpAddr, xid: u32, record: &[u8]) -> Key {
    let mut hasher = DefaultHasher::new();
    record.hash(&mut hasher);
    (peer, xid, hasher.finish())
}

#[derive(Default)]
struct Kept {
    replies: HashMap<Key, Arc<[u8]>>,
    order: VecDeque<Key>,
    /// Calls that run now.
    running: HashSet<Key>,
}

impl Kept {
    fn keep(&mut self, key: Key, reply: Arc<[u8]>) {
        if self.replies.insert(key, reply).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > KEPT {
            if let Some(oldest) = self.order.pop_front() {
                self.replies.remove(&oldest);
            }
        }
    }
}

/// The replies.
#[derive(Default)]
pub(crate) struct Duplicates {
    kept: Mutex<Kept>,
    /// One of the running calls has ended.
    ended: Condvar,
}

/// The end of a running call, also of one that panics.
struct Running<'a>(&'a Duplicates, Key);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().running.remove(&self.1);
        self.0.ended.notify_all();
    }
}

impl Duplicates {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reply of this call: of its first run if it came before, which may be under way still on
    /// a connection that the client has given up.
    pub(crate) fn once(&self, key: Key, run: impl FnOnce() -> Vec<u8>) -> Arc<[u8]> {
        let mut kept = self.lock();
        while kept.running.contains(&key) {
            kept = self.ended.wait(kept).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(reply) = kept.replies.get(&key) {
            return Arc::clone(reply);
        }
        kept.running.insert(key);
        drop(kept);
        let running = Running(self, key);
        let reply: Arc<[u8]> = run().into();
        self.lock().keep(key, Arc::clone(&reply));
        drop(running);
        reply
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_reply_goes() {
        let kept = Duplicates::default();
        let peer = IpAddr::from([127, 0, 0, 1]);
        let ran = AtomicU32::new(0);
        let call = |xid, record| {
            kept.once(key(peer, xid, record), || {
                ran.fetch_add(1, Ordering::Relaxed);
                record.to_vec()
            })
        };
        let runs = || ran.load(Ordering::Relaxed);
        for xid in 0..=KEPT as u32 {
            call(xid, b"call");
        }
        let before = runs();
        assert_eq!((&*call(1, b"call"), runs()), (&b"call"[..], before));
        assert_eq!((&*call(0, b"call"), runs()), (&b"call"[..], before + 1));
        assert_eq!((&*call(1, b"other"), runs()), (&b"other"[..], before + 2));
    }

    #[test]
    fn a_call_that_is_under_way_is_waited_for() {
        let kept = Duplicates::default();
        let call = key(IpAddr::from([127, 0, 0, 1]), 7, b"call");
        let ran = AtomicU32::new(0);
        let slow = || {
            kept.once(call, || {
                ran.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
                b"reply".to_vec()
            })
        };
        std::thread::scope(|threads| {
            let both = [threads.spawn(slow), threads.spawn(slow)];
            for thread in both {
                assert_eq!(*thread.join().unwrap(), *b"reply");
            }
        });
        assert_eq!(ran.into_inner(), 1);
        let failed = key(IpAddr::from([127, 0, 0, 1]), 8, b"call");
        let panics = std::panic::AssertUnwindSafe(|| kept.once(failed, || panic!("a bug")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(*kept.once(failed, || b"again".to_vec()), *b"again");
    }
}
