//! Replies to calls that must not run twice.
//!
//! A client that lost its connection sends again what was not answered. A REMOVE that had been
//! done would answer NOENT then. So the last [`KEPT`] replies to calls that change names or
//! attributes are kept, and a call with the same peer, number and bytes gets the same reply.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

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
}

/// The replies.
#[derive(Default)]
pub(crate) struct Duplicates(Mutex<Kept>);

impl Duplicates {
    pub(crate) fn find(&self, key: &Key) -> Option<Arc<[u8]>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.replies.get(key).cloned()
    }

    pub(crate) fn keep(&self, key: Key, reply: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.replies.insert(key, reply.into()).is_none() {
            kept.order.push_back(key);
        }
        if kept.order.len() > KEPT
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.replies.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_reply_goes() {
        let kept = Duplicates::default();
        let peer = IpAddr::from([127, 0, 0, 1]);
        for xid in 0..=KEPT as u32 {
            kept.keep(key(peer, xid, b"call"), b"reply");
        }
        assert!(kept.find(&key(peer, 0, b"call")).is_none());
        assert!(kept.find(&key(peer, 1, b"call")).is_some());
        assert!(kept.find(&key(peer, 1, b"other")).is_none());
    }
}
