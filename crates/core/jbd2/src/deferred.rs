//! Deferred free: freed blocks with a live copy in the log are not given away before the tail has
//! passed the copy, since recovery would write it over whatever is there by then. Blocks that a
//! transaction frees which is ordered only are not given away before it is durable.

use crate::dependency_sets::Release;
use crate::ring::Ring;
use crate::transaction::Callback;
use crate::{tid_geq, tid_gt};

/// Blocks that wait for the tail.
#[derive(Default)]
pub(crate) struct DeferredFree {
    /// Runs once the tail has passed the sequence.
    waiting: Vec<(u32, Callback)>,
    /// Runs once every transaction in the log is durable.
    unflushed: Vec<Callback>,
    /// When the oldest of them was ordered that is not durable.
    pub(crate) unflushed_ns: Option<u64>,
}

impl DeferredFree {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.unflushed.is_empty()
    }

    /// Of what waited for a commit: what can run now. The rest is kept until the tail has moved.
    /// `all_durable`: every transaction in the log is.
    pub(crate) fn admit(
        &mut self,
        releases: Vec<Release>,
        ring: &Ring,
        all_durable: bool,
    ) -> Vec<Callback> {
        let mut ready = Vec::with_capacity(releases.len());
        for Release { run, range } in releases {
            let newest = range.and_then(|(first, count)| {
                let copies = ring.live_in(first, first.saturating_add(count.max(1)));
                copies.map(|(_, seq)| seq).reduce(|a, b| if tid_geq(a, b) { a } else { b })
            });
            match newest {
                Some(newest) => self.waiting.push((newest, run)),
                None => ready.push(run),
            }
        }
        self.unflushed.append(&mut ready);
        if all_durable { self.take_unflushed() } else { Vec::new() }
    }

    /// Every transaction in the log is durable: what waited for that.
    pub(crate) fn take_unflushed(&mut self) -> Vec<Callback> {
        self.unflushed_ns = None;
        std::mem::take(&mut self.unflushed)
    }

    /// The tail moved to `sequence`, behind a flush: what may be given away now.
    pub(crate) fn release_before(&mut self, sequence: u32, all_durable: bool) -> Vec<Callback> {
        let waiting = std::mem::take(&mut self.waiting);
        let (free, held): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(newest, _)| tid_gt(sequence, *newest));
        self.waiting = held;
        let unflushed = if all_durable { self.take_unflushed() } else { Vec::new() };
        free.into_iter().map(|(_, run)| run).chain(unflushed).collect()
    }
}
