//! Deferred free: freed blocks with a live copy in the log are not given away before the tail has
//! passed the copy, since recovery would write it over whatever is there by then.

use crate::dependency_sets::Release;
use crate::ring::Ring;
use crate::transaction::Callback;
use crate::{tid_geq, tid_gt};

/// Blocks that wait for the tail.
#[derive(Default)]
pub(crate) struct DeferredFree {
    /// Runs once the tail has passed the sequence.
    waiting: Vec<(u32, Callback)>,
}

impl DeferredFree {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Of what waited for a commit: what can run now. The rest is kept until the tail has moved.
    pub(crate) fn admit(&mut self, releases: Vec<Release>, ring: &Ring) -> Vec<Callback> {
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
        ready
    }

    /// The tail moved to `sequence`: what may be given away now.
    pub(crate) fn release_before(&mut self, sequence: u32) -> Vec<Callback> {
        let waiting = std::mem::take(&mut self.waiting);
        let (free, held): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(newest, _)| tid_gt(sequence, *newest));
        self.waiting = held;
        free.into_iter().map(|(_, run)| run).collect()
    }
}
