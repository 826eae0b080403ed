//! Plan of a batch: the destination of each run of pages, and the steps after its write.

use syncline_ondisk::inode::flags;

use crate::data::blocks::{Run, map_range};
use crate::data::flush::batch::OutPage;
use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::map::extents::volume::allocate_blocks;
use crate::pages::Outgoing;
use crate::space::Space;
use crate::space::balloc::core::Range;
use crate::space::balloc::reserve::Source;
use crate::store::Store;

/// Destination of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The log; the blocks are where write-back puts the data later.
    Log,
    /// The blocks that the file has, and new ones for those it has not.
    Home,
    /// As `Home`, but new blocks for consecutive overwritten ones from [`RUN_BYTES`] on: the old
    /// ones stay as they are, and are freed by the transaction that points at the new ones.
    NewRuns,
}

/// Bytes of consecutive overwritten blocks from which on a copy in the log costs more than what
/// it saves: the device takes such a run in one piece, and writing it twice costs more than a
/// flush.
pub(crate) const RUN_BYTES: usize = 256 * 1024;

/// Change of the file's map once a segment's data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The blocks were in use already.
    Nothing,
    /// Unwritten blocks become written.
    Convert,
    /// Blocks taken in memory, from reserved ones or not, go into bitmap and extents.
    Install(Source),
    /// The same in place of written blocks, which are freed.
    Replace(Source),
}

/// Consecutive logical blocks that go to consecutive physical ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) lblk: u64,
    pub(crate) pblk: u64,
    pub(crate) len: u32,
    pub(crate) after: After,
    /// Its pages hold reserved blocks.
    pub(crate) reserved: bool,
}

impl Segment {
    pub(crate) fn end(&self) -> u64 {
        self.lblk + u64::from(self.len)
    }

    /// Its blocks hold data already: nothing has to be installed.
    pub(crate) fn is_plain(&self) -> bool {
        self.after == After::Nothing && !self.reserved
    }

    /// Its blocks, or their cluster, were the file's before.
    fn is_owned(&self) -> bool {
        match self.after {
            After::Nothing | After::Convert => !self.reserved,
            After::Install(source) => source == Source::Owned,
            After::Replace(_) => false,
        }
    }
}

/// Block of the size on disk if that lags behind. Whatever raises it writes from there on: the
/// block may hold zeros over old bytes that a shrinking truncate left, and a size beyond it
/// would show those bytes after a crash.
pub(crate) fn first_unreached_block(store: &Store, inode: &Inode) -> u64 {
    let st = inode.state.read();
    if st.size > st.raw.i_size { st.raw.i_size >> store.geo.block_bits } else { u64::MAX }
}

/// Finds or allocates a place for every page of the batch, and notes it there. The `segments` after
/// an error have to be cancelled.
pub(crate) fn plan_batch(
    space: &Space,
    inode: &Inode,
    pages: &mut [OutPage],
    target: Target,
    segments: &mut Vec<Segment>,
) -> Result<()> {
    let may_replace = target == Target::NewRuns
        && space.may_move_data()
        && inode.state.read().raw.has_flag(flags::EXTENTS);
    let mut rest = &*pages;
    while let Some(OutPage { page: first, .. }) = rest.first() {
        // One run: consecutive blocks that are all delayed or all not, and all changed or all not.
        let same = |i: u64, page: &Outgoing| {
            page.lblk == first.lblk + i
                && page.delalloc == first.delalloc
                && (!may_replace || page.sync_dirty == first.sync_dirty)
        };
        let len = (0..).zip(rest).take_while(|(i, out)| same(*i, &out.page)).count();
        let replace = may_replace
            && first.sync_dirty
            && !first.delalloc
            && len * space.block_size() >= RUN_BYTES;
        for run in map_range(space, inode, first.lblk, first.lblk + len as u64)? {
            if replace && run.holds_data() {
                plan_replacement(space, inode, &run, segments)?;
            } else {
                plan_mapped(space, inode, &run, (first.delalloc, target), segments)?;
            }
        }
        rest = &rest[len..];
    }
    let places = segments.iter().flat_map(|segment| {
        let blocks = segment.pblk..segment.pblk + u64::from(segment.len);
        blocks.map(|block| (block, segment.is_plain(), segment.is_owned()))
    });
    for (out, (place, plain, owned)) in pages.iter_mut().zip(places) {
        (out.place, out.plain, out.owned) = (place, plain, owned);
    }
    Ok(())
}

fn plan_mapped(
    space: &Space,
    inode: &Inode,
    run: &Run,
    (reserved, target): (bool, Target),
    segments: &mut Vec<Segment>,
) -> Result<()> {
    let after = match (run.is_hole(), run.unwritten) {
        (true, _) => return plan_hole(space, inode, run, (reserved, target), segments),
        (false, true) => After::Convert,
        (false, false) => After::Nothing,
    };
    // A batch has fewer than 2^32 pages.
    let len = run.len as u32;
    if after == After::Nothing && !reserved {
        space.hot.note_overwritten(inode, len, || {
            inode.state.read().size.div_ceil(space.block_size() as u64)
        });
    }
    segments.push(Segment { lblk: run.lblk, pblk: run.pblk, len, after, reserved });
    Ok(())
}

/// Allocates, in memory, other blocks for a run that is overwritten. As far as the space goes: the
/// rest stays where it is.
fn plan_replacement(
    space: &Space,
    inode: &Inode,
    run: &Run,
    segments: &mut Vec<Segment>,
) -> Result<()> {
    let source = space.balloc.unreserved();
    let (mut lblk, mut pblk, end) = (run.lblk, run.pblk, run.lblk + run.len);
    while lblk < end {
        let before = segments.last().filter(|last| last.end() == lblk);
        let goal = before.map(|last| last.pblk + u64::from(last.len));
        let at = u32::try_from(lblk).map_err(|_| FsError::TooBig)?;
        let want = u32::try_from(end - lblk).unwrap_or(u32::MAX);
        let taken = {
            let st = inode.state.read();
            allocate_blocks(space, inode, &st, (at, want), source, goal)
        };
        let segment = match taken {
            Ok((range, source)) => {
                let after = After::Replace(source);
                Segment { lblk, pblk: range.start, len: range.len, after, reserved: false }
            }
            Err(FsError::NoSpace) => {
                Segment { lblk, pblk, len: want, after: After::Nothing, reserved: false }
            }
            Err(err) => return Err(err),
        };
        segments.push(segment);
        let len = u64::from(segment.len.max(1));
        (lblk, pblk) = (lblk + len, pblk + len);
    }
    Ok(())
}

/// Allocates, in memory, for a hole.
fn plan_hole(
    space: &Space,
    inode: &Inode,
    hole: &Run,
    (reserved, target): (bool, Target),
    segments: &mut Vec<Segment>,
) -> Result<()> {
    let source = match reserved {
        true => Source::Reserved,
        false => space.balloc.unreserved(),
    };
    let (mut lblk, end) = (hole.lblk, hole.lblk + hole.len);
    while lblk < end {
        let before = segments.last().filter(|last| last.end() == lblk);
        let goal = before.map(|last| last.pblk + u64::from(last.len));
        let at = u32::try_from(lblk).map_err(|_| FsError::TooBig)?;
        let want = u32::try_from(end - lblk).unwrap_or(u32::MAX);
        if let Some(range) = in_planned_cluster(space, segments, (lblk, want)) {
            let (pblk, len, after) = (range.start, range.len, After::Install(Source::Owned));
            segments.push(Segment { lblk, pblk, len, after, reserved });
            lblk += u64::from(len);
            continue;
        }
        let claimed = (reserved && target == Target::Log)
            .then(|| space.balloc.claim(inode.ino, inode.life(), want));
        let (range, source) = match claimed.flatten() {
            Some(claimed) => claimed,
            None => {
                let st = inode.state.read();
                allocate_blocks(space, inode, &st, (at, want), source, goal)?
            }
        };
        let (pblk, len, after) = (range.start, range.len, After::Install(source));
        segments.push(Segment { lblk, pblk, len, after, reserved });
        lblk += u64::from(range.len.max(1));
    }
    Ok(())
}

/// The place of the first of `want` blocks of a hole in the cluster of the segment before: the file
/// has that already, or will have it.
fn in_planned_cluster(
    space: &Space,
    segments: &[Segment],
    (lblk, want): (u64, u32),
) -> Option<Range> {
    let mask = u64::from(space.geo.cluster_blocks()) - 1;
    let last = segments.last().filter(|last| (last.end() - 1) & !mask == lblk & !mask)?;
    let cluster = (last.pblk + u64::from(last.len) - 1) & !mask;
    let left = mask + 1 - (lblk & mask);
    Some(Range { start: cluster + (lblk & mask), len: u64::from(want).min(left) as u32 })
}

/// Releases allocated blocks that will not be installed.
pub(crate) fn cancel_segments(space: &Space, segments: &[Segment]) {
    for segment in segments {
        if let After::Install(source) | After::Replace(source) = segment.after {
            let range = Range { start: segment.pblk, len: segment.len };
            space.balloc.cancel(range, source);
        }
    }
}
