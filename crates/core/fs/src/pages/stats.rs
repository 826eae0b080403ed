//! Figures of the page cache.

use std::sync::atomic::Ordering;

/// Figures of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStats {
    /// Cached pages (one file system block each).
    pub pages: usize,
    /// Dirty pages, and pages being written.
    pub dirty_pages: usize,
    /// The limit, in pages.
    pub pages_max: usize,
    /// Pages read from the device since the mount.
    pub pages_read: u64,
    /// Pages written to the device since the mount.
    pub pages_written: u64,
    /// Pages evicted since the mount.
    pub pages_evicted: u64,
}

impl crate::Volume {
    /// Returns the figures of the page cache.
    pub fn cache_stats(&self) -> CacheStats {
        let pages = &self.0.pages;
        CacheStats {
            pages: pages.frames.len(),
            dirty_pages: pages.dirty_pages(),
            pages_max: pages.pages_max,
            pages_read: pages.read.load(Ordering::Relaxed),
            pages_written: pages.written.load(Ordering::Relaxed),
            pages_evicted: pages.evicted.load(Ordering::Relaxed),
        }
    }
}
