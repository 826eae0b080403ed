//! Files with ext2/ext3 block maps: lookup, mapping, unmapping.
//!
//! ```text
//!   i_block: 12 direct | single | double | triple     slots of a block: ondisk's BlockPath
//!                          |        |
//!                       [slots]  [slots] -> [slots]   indirect blocks: metadata, no checksum
//! ```
//!
//! Such files read and write like others, except that they have no unwritten blocks, so
//! `fallocate` refuses them (as ext4 does). Indirect blocks are freed when their last slot is.
//! Tested in `tests/it/space_model.rs`, checked by e2fsck.

use std::sync::Arc;

use syncline_jbd2::Handle;
use syncline_ondisk::blockmap::{BlockPath, max_blocks, pointer};
use syncline_ondisk::bytes::{is_zero, put_le32};
use syncline_ondisk::extent::Extent;

use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::map::extents::volume::{
    Gone, add_blocks, is_metadata, new_metadata_block, release_run, sub_blocks, unmap_credits,
};
use crate::space::Space;
use crate::space::balloc::Range;
use crate::space::balloc::install::free_blocks;
use crate::store::Store;
use crate::store::validity::check_file_blocks;

/// One table of pointers on the path to a block, and the slot of the next one.
#[derive(Clone, Copy)]
struct Level {
    /// Block of the table; `None` is `i_block`.
    table: Option<u64>,
    slot: u32,
}

/// The tables on the path to a block, as far as they exist.
struct IndirectPath {
    levels: Vec<Level>,
    slots: BlockPath,
    /// True if the last level holds the block's own pointer (not that of a missing table).
    complete: bool,
}

impl IndirectPath {
    fn last(&self) -> Option<&Level> {
        self.levels.last()
    }

    /// Slots of the levels that do not exist.
    fn missing_slots(&self) -> &[u32] {
        self.slots.slots().get(self.levels.len()..).unwrap_or(&[])
    }

    /// Blocks before `lblk` that the missing table would cover; `per` pointers fill a table.
    fn covered_before(&self, per: u64) -> u64 {
        self.missing_slots().iter().fold(0, |sum, slot| sum * per + u64::from(*slot))
    }

    /// Blocks from `lblk` to the end of the range that the missing table would cover.
    fn missing_span(&self, per: u64) -> u64 {
        let span = self.missing_slots().iter().fold(1_u64, |span, _| span.saturating_mul(per));
        span.saturating_sub(self.covered_before(per)).max(1)
    }
}

fn map_bytes(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    table: Option<u64>,
) -> Result<Arc<[u8]>> {
    let Some(block) = table else { return Ok(Arc::from(st.raw.i_block.as_slice())) };
    // As for extents: before the block is held, also if it was verified as metadata.
    check_file_blocks(store, inode.ino, block, 1)?;
    Ok(store.buffers.read(block)?)
}

fn indirect_path(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    lblk: u32,
) -> Result<Option<IndirectPath>> {
    let Some(slots) = BlockPath::new(lblk, store.geo.block_size) else { return Ok(None) };
    let mut path = IndirectPath { levels: Vec::with_capacity(4), slots, complete: false };
    let mut table = None;
    for slot in slots.slots() {
        path.levels.push(Level { table, slot: *slot });
        if path.levels.len() == slots.slots().len() {
            path.complete = true;
            break;
        }
        let bytes = map_bytes(store, inode, st, table)?;
        match pointer(&bytes, *slot) {
            Some(block) if block != 0 => table = Some(block.into()),
            _ => break,
        }
    }
    Ok(Some(path))
}

/// The run at `lblk`, at most `max` blocks, or one past the end of the hole there.
pub(crate) fn lookup_map(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    lblk: u32,
    max: u32,
) -> Result<(Option<Extent>, u64)> {
    let Some(path) = indirect_path(store, inode, st, lblk)? else { return Ok((None, 1 << 32)) };
    let per = store.geo.block_size as u64 / 4;
    let Some(level) = path.last() else { return Ok((None, 1 << 32)) };
    if !path.complete {
        return Ok((None, u64::from(lblk) + path.missing_span(per)));
    }
    let bytes = map_bytes(store, inode, st, level.table)?;
    let at = |i: u32| pointer(&bytes, level.slot + i).unwrap_or(0);
    let (first, most) = (at(0), path.slots.run.min(max.max(1)));
    let goes_on = |i: u32| match first {
        0 => at(i) == 0,
        first => first.checked_add(i) == Some(at(i)),
    };
    let len = (1..most).take_while(|i| goes_on(*i)).count() as u32 + 1;
    let end = u64::from(lblk) + u64::from(len);
    let run = Extent { block: lblk, len, start: first.into(), unwritten: false };
    Ok(((first != 0).then_some(run), end))
}

/// The block before `lblk`, where new blocks should follow: logical, physical.
pub(crate) fn nearest_in_map(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    lblk: u32,
) -> Result<Option<(u32, u64)>> {
    let Some(before) = lblk.checked_sub(1) else { return Ok(None) };
    let (found, _) = lookup_map(store, inode, st, before, 1)?;
    Ok(found.map(|run| (before, run.start)))
}

/// Returns the number of blocks from `lblk` on whose pointers share one table, which one call may
/// map.
pub(crate) fn map_run(store: &Store, lblk: u32) -> Result<u32> {
    BlockPath::new(lblk, store.geo.block_size).map(|path| path.run).ok_or(FsError::TooBig)
}

fn edit_table(
    h: &mut Handle,
    st: &mut InodeState,
    table: Option<u64>,
    f: impl FnOnce(&mut [u8]),
) -> Result<()> {
    match table {
        None => f(&mut st.raw.i_block),
        Some(block) => h.modify(block, f)?,
    }
    Ok(())
}

/// Maps a run whose pointers share one table ([`map_run`]).
///
/// # Errors
/// [`FsError::TooBig`] past three levels or 2^32 blocks; [`FsError::NoSpace`] when an indirect
/// block cannot be had.
pub(crate) fn insert_in_map(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    lblk: u32,
    range: Range,
) -> Result<()> {
    let last = range.start + u64::from(range.len) - 1;
    if u32::try_from(last).is_err() || range.len > map_run(space, lblk)? {
        return Err(FsError::TooBig);
    }
    // Each turn adds one missing table; there are at most three.
    let path = loop {
        let path = indirect_path(space, inode, st, lblk)?.ok_or(FsError::TooBig)?;
        if path.complete {
            break path;
        }
        let Some(level) = path.last() else { return Err(FsError::TooBig) };
        let block = new_metadata_block(space, h, range.start)?;
        let Ok(low) = u32::try_from(block) else { return Err(FsError::TooBig) };
        h.create(block, |bytes| bytes.fill(0))?;
        let slot = level.slot as usize * 4;
        edit_table(h, st, level.table, |bytes| put_le32(bytes, slot, low))?;
        add_blocks(space, st, 1)?;
    };
    let Some(level) = path.last() else { return Err(FsError::TooBig) };
    let bytes = map_bytes(space, inode, st, level.table)?;
    if (0..range.len).any(|i| pointer(&bytes, level.slot + i) != Some(0)) {
        let text = format!("logical block {lblk} is mapped twice");
        return Err(space.corrupt(Some(inode.ino), level.table, None, text));
    }
    let first = range.start as u32;
    edit_table(h, st, level.table, |bytes| {
        for i in 0..range.len {
            put_le32(bytes, (level.slot + i) as usize * 4, first.wrapping_add(i));
        }
    })
}

/// Unmaps and frees `from..to` from the end, as far as the credits reach; returns the new `to`.
pub(crate) fn remove_from_map(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    (from, to): (u32, u32),
    credits: u32,
) -> Result<u32> {
    let end = max_blocks(space.geo.block_size).min(u32::MAX.into()) as u32;
    let mut to = to.min(end);
    let per = space.geo.block_size as u64 / 4;
    let cost = unmap_credits(space, st);
    let mut unmap = Unmap { space, h, inode, st, credits };
    while to > from && unmap.credits >= cost {
        let Some(path) = indirect_path(space, inode, unmap.st, to - 1)? else { break };
        to = match path.last() {
            Some(level) if path.complete => unmap.clear_slots(&path, *level, (from, to), cost)?,
            // The whole part that the missing table would cover is a hole.
            _ => u64::from(to - 1).saturating_sub(path.covered_before(per)) as u32,
        };
    }
    Ok(to.max(from))
}

/// Removal of blocks from the map of one file, within one handle.
struct Unmap<'a> {
    space: &'a Space,
    h: &'a mut Handle,
    inode: &'a Inode,
    st: &'a mut InodeState,
    /// Credits that are left.
    credits: u32,
}

impl Unmap<'_> {
    /// Clears pointers of a table, the last of `path`, from that of block `to - 1` down to that of
    /// `from` at most, and frees their blocks. Then frees empty tables. `cost`: credits to keep for
    /// a run. Returns the new `to`.
    fn clear_slots(
        &mut self,
        path: &IndirectPath,
        level: Level,
        (from, to): (u32, u32),
        cost: u32,
    ) -> Result<u32> {
        let bytes = map_bytes(self.space, self.inode, self.st, level.table)?;
        let base = (to - 1).saturating_sub(level.slot);
        let lowest = from.saturating_sub(base).min(level.slot);
        let runs_max = ((self.credits - cost) / 4).max(1);
        let (runs, first) = runs_from_end(&bytes, lowest..level.slot + 1, runs_max as usize);
        let cleared = first as usize * 4..(level.slot as usize + 1) * 4;
        let mut empty = false;
        edit_table(self.h, self.st, level.table, |bytes| {
            if let Some(slots) = bytes.get_mut(cleared) {
                slots.fill(0);
            }
            empty = is_zero(bytes);
        })?;
        let metadata = is_metadata(&self.st.raw);
        for run in &runs {
            release_run(
                self.space,
                self.h,
                self.inode.ino,
                Gone { run: *run, freed: Some(*run) },
                metadata,
            )?;
            sub_blocks(self.space, self.st, run.len.into())?;
        }
        // A run of 32-bit pointers is at most one table long and touches two groups or, with small
        // groups, as many as `unmap_credits` counts once more.
        self.credits = self.credits.saturating_sub((runs.len() as u32).saturating_mul(4).max(1));
        if empty {
            self.credits = self.credits.saturating_sub(unmap_credits(self.space, self.st));
            self.free_tables(path)?;
        }
        Ok(base + first)
    }

    /// Frees the last table of `path`, and those above that become empty by it.
    fn free_tables(&mut self, path: &IndirectPath) -> Result<()> {
        for pair in path.levels.windows(2).rev() {
            let [above, below] = pair else { break };
            let Some(block) = below.table else { break };
            self.h.forget(block)?;
            free_blocks(self.space, self.h, self.inode.ino, Range { start: block, len: 1 })?;
            sub_blocks(self.space, self.st, 1)?;
            let slot = above.slot as usize * 4;
            let mut empty = false;
            edit_table(self.h, self.st, above.table, |bytes| {
                put_le32(bytes, slot, 0);
                empty = is_zero(bytes);
            })?;
            if !empty || above.table.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// Runs of blocks that the slots of a table point at, from the last slot down and at most
/// `runs_max`; and the first slot of these.
fn runs_from_end(table: &[u8], slots: std::ops::Range<u32>, runs_max: usize) -> (Vec<Range>, u32) {
    let mut runs: Vec<Range> = Vec::new();
    let mut first = slots.end;
    while first > slots.start {
        let block = u64::from(pointer(table, first - 1).unwrap_or(0));
        let known = runs.len();
        match runs.last_mut() {
            _ if block == 0 => {}
            Some(run) if block + 1 == run.start => {
                run.start = block;
                run.len += 1;
            }
            _ if known >= runs_max => break,
            _ => runs.push(Range { start: block, len: 1 }),
        }
        first -= 1;
    }
    (runs, first)
}
