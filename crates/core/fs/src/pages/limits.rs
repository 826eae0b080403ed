//! Limits of dirty data: shares of the cache, as `vm.dirty_ratio` and `dirty_background_ratio`.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Limits of dirty data, in pages.
#[derive(Default)]
pub(super) struct Limits {
    pub(super) background_pages: AtomicUsize,
    pub(super) throttle_pages: AtomicUsize,
}

impl Limits {
    /// Per cent of the pages that may be cached.
    pub(super) fn set(&self, pages_max: usize, background_ratio: u32, ratio: u32) {
        let share = |ratio: u32| {
            let ratio = ratio.min(100) as usize;
            pages_max / 100 * ratio + pages_max % 100 * ratio / 100
        };
        // As `domain_dirty_limits`: the background limit is below the other one.
        let throttle_pages = share(ratio).max(1);
        let background_pages = match share(background_ratio) {
            pages if pages >= throttle_pages => throttle_pages / 2,
            pages => pages,
        };
        self.throttle_pages.store(throttle_pages, Ordering::Relaxed);
        self.background_pages.store(background_pages, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn get(&self) -> (usize, usize) {
        let load = |pages: &AtomicUsize| pages.load(Ordering::Relaxed);
        (load(&self.background_pages), load(&self.throttle_pages))
    }
}
