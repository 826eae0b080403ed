//! Write-back in an order of pages, not of files (`writeback=policy` and `space`).
//!
//! ```text
//!   page becomes dirty --> cleaner: a policy over the dirty pages alone; policy: the same one,
//!                                   space: SpatialClock
//!   too many are dirty --> it gives up pages, a group at a time --> one plug, sorted
//! ```
//!
//! A cache that writes at eviction sends its writes in the order of its policy; here eviction takes
//! clean pages only, so the dirty ones have an order of their own. A page that is given up there is
//! written and stays cached, clean. The policy decides which pages are grouped: the spatial ones
//! name neighbours, FAB a block, the others the oldest pages.
//!
//! Promises: those of `flush`. Blocks that are reserved only get their places together with
//! their neighbours, whatever the policy says, or files would lie in pieces. Data behind the size
//! on disk goes in ascending order.
//!
//! Age and syncs are none of this: they write whole files. A page that the table of frames had no
//! room for is in no order and left to them. Reference bits are shared with the order of eviction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use syncline_cache::Accept;

use crate::data::Files;
use crate::data::flush::batch::collect_job;
use crate::data::flush::pass::write_jobs;
use crate::data::flush::plan::first_unreached_block;
use crate::error::Result;
use crate::incore::Inode;
use crate::inode::Inodes;
use crate::inode::iget::cached_inode;
use crate::pages::GROUP_PAGES;

/// Writes pages in their order, if there is one, until they are half of what the background limit
/// allows.
///
/// # Errors
/// As [`crate::data::flush::file::write_back`].
pub(crate) fn write_victims_down(files: &Files) -> Result<()> {
    if !files.pages.above_background() {
        return Ok(());
    }
    loop {
        match files.pages.excess() {
            0 => return Ok(()),
            excess if write_victims(files, excess.min(GROUP_PAGES))? == 0 => return Ok(()),
            _ => {}
        }
    }
}

/// Writes back the next `most` pages in their order, if there is one, as one plug. Returns how many
/// are clean now.
///
/// # Errors
/// As [`crate::data::flush::file::write_back`].
pub(crate) fn write_victims(files: &Files, most: usize) -> Result<usize> {
    let chosen = choose_victims(files, most);
    if chosen.is_empty() {
        return Ok(0);
    }
    files.check_writable()?;
    let before = files.pages.dirty_pages();
    let (mut held, mut jobs) = (Vec::new(), Vec::new());
    for (inode, blocks) in &chosen {
        // A file that is busy is being written, or cut.
        let Some(io) = inode.io.try_lock() else { continue };
        held.push(io);
        let unreached = first_unreached_block(files, inode);
        jobs.push(collect_job(inode, |tree| {
            tree.collect_chosen(&files.pages, blocks, unreached, files.engine.gap_pages_max())
        }));
    }
    write_jobs(files, &mut jobs, false);
    let mut result = Ok(());
    for job in jobs {
        job.end_pass(files);
        result = job.result.and(result);
    }
    result.map(|()| before.saturating_sub(files.pages.dirty_pages()))
}

/// The next pages in the order, by file.
fn choose_victims(inodes: &Inodes, most: usize) -> Vec<(Arc<Inode>, BTreeSet<u64>)> {
    let Some(cleaner) = &inodes.pages.cleaner else { return Vec::new() };
    let frames = &inodes.pages.frames;
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
    let cached = files.into_iter().map(|(ino, blocks)| (cached_inode(inodes, ino), blocks));
    cached.filter_map(|(inode, blocks)| Some((inode?, blocks))).collect()
}
