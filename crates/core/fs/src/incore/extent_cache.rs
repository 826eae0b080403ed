//! Extents that were looked up before.

use std::collections::BTreeMap;

use syncline_base::lockrank::Mutex;
use syncline_ondisk::extent::Extent;

use crate::ranks;

/// Runs kept per inode.
const CACHED_RUNS: usize = 512;

/// Runs that were looked up before.
pub(crate) struct ExtentCache(Mutex<BTreeMap<u32, Extent>>);

impl Default for ExtentCache {
    fn default() -> ExtentCache {
        ExtentCache(Mutex::new(ranks::EXTENT_CACHE, BTreeMap::new()))
    }
}

impl ExtentCache {
    pub(crate) fn get(&self, lblk: u32) -> Option<Extent> {
        let runs = self.0.lock();
        let (_, run) = runs.range(..=lblk).next_back()?;
        run.map(lblk).map(|_| *run)
    }

    pub(crate) fn put(&self, run: Extent) {
        let mut runs = self.0.lock();
        if runs.len() >= CACHED_RUNS {
            runs.clear();
        }
        runs.insert(run.block, run);
    }

    /// Forgets extents that overlap `from..to`.
    pub(crate) fn forget(&self, from: u32, to: u32) {
        let mut runs = self.0.lock();
        // Runs that begin before `from` may reach into it, and being from different times they may
        // nest: look at all of them. There are few, and this is not the way of reads.
        runs.retain(|_, run| run.end() <= from.into() || run.block >= to);
    }
}
