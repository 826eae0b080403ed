//! Write-back in the order of the replacement policy (`writeback=policy`).
//!
//! ```text
//!   page becomes dirty --> cleaner: the same policy, over the dirty pages alone
//!   too many are dirty --> it gives up pages, a group at a time --> one plug, sorted (together.rs)
//! ```
//!
//! A cache that writes at eviction sends its writes in the order of its policy; here eviction takes
//! clean pages only, so the dirty ones have an order of their own. A page that is given up there is
//! written and stays cached, clean. Who is grouped with whom is the policy's matter: the spatial
//! ones name neighbours, FAB a block, the others whatever is old.
//!
//! Promises: those of `writeback.rs`. Blocks that are reserved only get their places together with
//! their neighbours, whatever the policy says, or files would lie in pieces. Data behind the size
//! on disk goes in ascending order.
//!
//! Age and syncs are none of this: they write whole files. A page that the table of frames had no
//! room for is in no order and left to them. Reference bits are shared with the order of eviction.

use crate::error::Result;
use crate::inode::Inode;
use crate::together::GROUP_PAGES;
use crate::volume::Inner;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use syncline_cache::Accept;

impl Inner {
    /// With `writeback=policy`: writes pages in its order until they are half of what the
    /// background limit allows.
    ///
    /// # Errors
    /// As [`Inner::write_back`].
    pub(crate) fn write_victims_down(&self) -> Result<()> {
        if !self.pages.above_background() {
            return Ok(());
        }
        loop {
            match self.pages.excess() {
                0 => return Ok(()),
                excess if self.write_victims(excess.min(GROUP_PAGES))? == 0 => return Ok(()),
                _ => {}
            }
        }
    }

    /// With `writeback=policy`: writes back the next `most` pages in its order, as one plug.
    /// Returns how many are clean now.
    ///
    /// # Errors
    /// As [`Inner::write_back`].
    pub(crate) fn write_victims(&self, most: usize) -> Result<usize> {
        let chosen = self.choose_victims(most);
        if chosen.is_empty() {
            return Ok(0);
        }
        self.check_writable()?;
        let before = self.pages.dirty_pages();
        let (mut held, mut jobs) = (Vec::new(), Vec::new());
        for (inode, blocks) in &chosen {
            // A file that is busy is being written, or cut.
            let Some(io) = inode.io.try_lock() else { continue };
            held.push(io);
            let unreached = self.first_unreached_block(inode);
            jobs.push(self.collect(inode, |tree| {
                tree.collect_chosen(&self.pages, blocks, unreached, self.gap_max())
            }));
        }
        self.write_jobs(&mut jobs, false);
        let mut result = Ok(());
        for job in jobs {
            job.settle(self);
            result = job.result.and(result);
        }
        result.map(|()| before.saturating_sub(self.pages.dirty_pages()))
    }

    /// The next pages in the order, by file.
    fn choose_victims(&self, most: usize) -> Vec<(Arc<Inode>, BTreeSet<u64>)> {
        let Some(cleaner) = &self.pages.cleaner else { return Vec::new() };
        let frames = &self.pages.frames;
        let mut files: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for _ in 0..most {
            let Some(frame) = cleaner.pick_victim(frames, Accept::Dirty) else { break };
            let Some(key) = frames.key(frame) else { continue };
            let Ok(ino) = u32::try_from(key.file) else { continue };
            if !files.entry(ino).or_default().insert(key.index) {
                // It gives the same again: there are no others.
                break;
            }
        }
        let cached = files.into_iter().map(|(ino, blocks)| (self.cached_inode(ino), blocks));
        cached.filter_map(|(inode, blocks)| Some((inode?, blocks))).collect()
    }
}
