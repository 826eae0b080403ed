//! Batches: the pages that one file gives to a write-back, from snapshot to place.

use std::sync::Arc;

use syncline_jbd2::{InPlacePage, WriteAction};

use crate::data::flush::plan::Segment;
use crate::error::Result;
use crate::incore::Inode;
use crate::inode::Inodes;
use crate::pages::{Outgoing, PageTree};
use crate::store::Store;

/// A page of a pass: its data, its destination, and the steps to get there.
pub(crate) struct OutPage {
    /// Snapshot of the page.
    pub(crate) page: Outgoing,
    /// Home block, once the plan has one.
    pub(crate) place: u64,
    /// The block was part of the file before: nothing has to be installed for it.
    pub(crate) plain: bool,
    /// The block or its cluster was the file's before: it may hold contents of the file that are
    /// older than its map.
    pub(crate) owned: bool,
    /// Action that the engine chose.
    pub(crate) action: WriteAction,
}

impl OutPage {
    fn new(page: Outgoing) -> OutPage {
        OutPage { page, place: 0, plain: false, owned: false, action: WriteAction::Write }
    }

    /// It was changed since a transaction got it.
    pub(crate) fn is_changed(&self) -> bool {
        self.page.sync_dirty
    }
}

impl InPlacePage for OutPage {
    fn block(&self) -> u64 {
        self.place
    }

    fn image(&self) -> &Arc<[u8]> {
        &self.page.data
    }

    fn is_newer(&self) -> bool {
        self.page.sync_dirty || !self.plain
    }

    fn action(&self) -> WriteAction {
        self.action
    }

    fn set_action(&mut self, action: WriteAction) {
        // It is in place already, and is written for its neighbours' sake.
        let filled = self.page.fill && action == WriteAction::Skip;
        self.action = if filled { WriteAction::Write } else { action };
    }
}

/// Part of a write-back batch from one file. Its `io` is held.
pub(crate) struct Job<'a> {
    pub(crate) inode: &'a Inode,
    /// `i_size` in bytes when the snapshots were taken.
    pub(crate) size: u64,
    pub(crate) pages: Vec<OutPage>,
    pub(crate) segments: Vec<Segment>,
    /// First block that is not part of the file, for want of space.
    pub(crate) placed_end: u64,
    /// A sync of the file waits for it: copies that the log has may be revoked.
    pub(crate) may_revoke: bool,
    pub(crate) result: Result<()>,
}

impl Job<'_> {
    /// Ends the pass: without dirty pages the file leaves the list of dirty files; otherwise it
    /// keeps its age.
    pub(crate) fn end_pass(&self, inodes: &Inodes) {
        let mut tree = self.inode.pages.lock();
        if !tree.has_dirty() {
            tree.end_pass(&inodes.pages, &*inodes.clock);
        }
    }
}

/// Collects snapshots of the pages that `take` chooses. The caller holds `io` of the file and
/// passes the job to [`super::pass::write_jobs`].
pub(crate) fn collect_job<'a>(
    inode: &'a Inode,
    take: impl FnOnce(&mut PageTree) -> Vec<Outgoing>,
) -> Job<'a> {
    let (size, pages) = {
        let st = inode.state.read();
        (st.size, take(&mut inode.pages.lock()))
    };
    let (pages, segments) = (out_pages(pages), Vec::new());
    Job { inode, size, pages, segments, placed_end: 0, may_revoke: false, result: Ok(()) }
}

/// Pages without a plan yet.
pub(crate) fn out_pages(pages: Vec<Outgoing>) -> Vec<OutPage> {
    pages.into_iter().map(OutPage::new).collect()
}

/// Zeroes the block that holds the end of the file behind that end.
pub(crate) fn zero_behind_end(store: &Store, pages: &mut [OutPage], size: u64) {
    let block_size = store.block_size() as u64;
    let Some(OutPage { page: last, .. }) = pages.last_mut() else { return };
    let used = size.saturating_sub(last.lblk.saturating_mul(block_size));
    if used < block_size && last.data[used as usize..].iter().any(|byte| *byte != 0) {
        last.changes.note_range(used as usize..last.data.len(), last.data.len());
        Arc::make_mut(&mut last.data)[used as usize..].fill(0);
    }
}
