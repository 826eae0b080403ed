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
use syncline_ondisk::bytes::put_le32;
use syncline_ondisk::extent::Extent;

use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::map::extents::volume::{
    add_blocks, new_metadata_block, release_run, sub_blocks, unmap_credits,
};
use crate::space::Space;
use crate::space::balloc::Range;
use crate::space::balloc::install::free_blocks;
use crate::store::Store;
use crate::store::validity::check_file_blocks;

/// One table of pointers on the way to a block: `None` is `i_block`.
struct Hop {
    table: Option<u64>,
    slot: u32,
}

/// The tables on the way to a block, as far as they exist.
struct Way {
    hops: Vec<Hop>,
    path: BlockPath,
    /// True if the last hop holds the block's own pointer (not that of a missing table).
    complete: bool,
}

impl Way {
    fn last(&self) -> Option<&Hop> {
        self.hops.last()
    }

    /// Blocks from `lblk`'s place to the end of what the missing table would cover.
    fn missing_span(&self, per: u64) -> u64 {
        let below = self.path.slots().get(self.hops.len()..).unwrap_or(&[]);
        let inside = below.iter().fold(0_u64, |sum, slot| sum * per + u64::from(*slot));
        let span = below.iter().fold(1_u64, |span, _| span.saturating_mul(per));
        span.saturating_sub(inside).max(1)
    }
}

fn map_bytes(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    table: Option<u64>,
) -> Result<Arc<[u8]>> {
    let Some(block) = table else { return Ok(Arc::from(st.raw.i_block.as_slice())) };
    // As for extents: before the block is held, whatever it was verified as.
    check_file_blocks(store, inode.ino, block, 1)?;
    Ok(store.buffers.read(block)?)
}

fn map_way(store: &Store, inode: &Inode, st: &InodeState, lblk: u32) -> Result<Option<Way>> {
    let Some(path) = BlockPath::new(lblk, store.geo.block_size) else { return Ok(None) };
    let mut way = Way { hops: Vec::with_capacity(4), path, complete: false };
    let mut table = None;
    let slots = path.slots();
    for (level, slot) in slots.iter().enumerate() {
        way.hops.push(Hop { table, slot: *slot });
        if level + 1 == slots.len() {
            way.complete = true;
            break;
        }
        let bytes = map_bytes(store, inode, st, table)?;
        match pointer(&bytes, *slot) {
            Some(block) if block != 0 => table = Some(block.into()),
            _ => break,
        }
    }
    Ok(Some(way))
}

/// The run at `lblk`, at most `max` blocks, or one past the end of the hole there.
pub(crate) fn lookup_map(
    store: &Store,
    inode: &Inode,
    st: &InodeState,
    lblk: u32,
    max: u32,
) -> Result<(Option<Extent>, u64)> {
    let Some(way) = map_way(store, inode, st, lblk)? else { return Ok((None, 1 << 32)) };
    let per = store.geo.block_size as u64 / 4;
    let Some(hop) = way.last() else { return Ok((None, 1 << 32)) };
    if !way.complete {
        return Ok((None, u64::from(lblk) + way.missing_span(per)));
    }
    let bytes = map_bytes(store, inode, st, hop.table)?;
    let at = |i: u32| pointer(&bytes, hop.slot + i).unwrap_or(0);
    let (first, most) = (at(0), way.path.run.min(max.max(1)));
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

/// Blocks from `lblk` on whose pointers share one table: what one call may map.
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
    let way = loop {
        let way = map_way(space, inode, st, lblk)?.ok_or(FsError::TooBig)?;
        if way.complete {
            break way;
        }
        let Some(hop) = way.last() else { return Err(FsError::TooBig) };
        let block = new_metadata_block(space, h, range.start)?;
        let Ok(low) = u32::try_from(block) else { return Err(FsError::TooBig) };
        h.create(block, |bytes| bytes.fill(0))?;
        let slot = hop.slot as usize * 4;
        edit_table(h, st, hop.table, |bytes| put_le32(bytes, slot, low))?;
        add_blocks(space, st, 1)?;
    };
    let Some(hop) = way.last() else { return Err(FsError::TooBig) };
    let bytes = map_bytes(space, inode, st, hop.table)?;
    if (0..range.len).any(|i| pointer(&bytes, hop.slot + i) != Some(0)) {
        let text = format!("logical block {lblk} is mapped twice");
        return Err(space.corrupt(Some(inode.ino), hop.table, None, text));
    }
    let first = range.start as u32;
    edit_table(h, st, hop.table, |bytes| {
        for i in 0..range.len {
            put_le32(bytes, (hop.slot + i) as usize * 4, first.wrapping_add(i));
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
    let mut left = credits;
    let per = space.geo.block_size as u64 / 4;
    let cost = unmap_credits(space, st);
    while to > from && left >= cost {
        let Some(way) = map_way(space, inode, st, to - 1)? else { break };
        if !way.complete {
            // The whole part that the missing table would cover is a hole.
            let inside = way.path.slots().get(way.hops.len()..).unwrap_or(&[]);
            let skip = inside.iter().fold(0_u64, |sum, slot| sum * per + u64::from(*slot));
            to = u64::from(to - 1).saturating_sub(skip) as u32;
            continue;
        }
        let runs = ((left - cost) / 4).max(1);
        to = clear_slots(space, h, inode, st, &way, (from, to), &mut left, runs)?;
    }
    Ok(to.max(from))
}

/// Clears pointers of the last table of `way`, from that of `to - 1` down, freeing at most
/// `runs` runs; frees the tables that are empty then. Returns the new `to`.
#[allow(clippy::too_many_arguments)]
fn clear_slots(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    way: &Way,
    (from, to): (u32, u32),
    left: &mut u32,
    runs: u32,
) -> Result<u32> {
    let Some(hop) = way.last() else { return Ok(from) };
    let bytes = map_bytes(space, inode, st, hop.table)?;
    let base = (to - 1).saturating_sub(hop.slot);
    let lowest = from.saturating_sub(base).min(hop.slot);
    let mut gone: Vec<Range> = Vec::new();
    let mut stop = hop.slot + 1;
    while stop > lowest {
        let block = u64::from(pointer(&bytes, stop - 1).unwrap_or(0));
        let known = gone.len() as u32;
        match gone.last_mut() {
            _ if block == 0 => {}
            Some(run) if block + 1 == run.start => {
                run.start = block;
                run.len += 1;
            }
            _ if known >= runs => break,
            _ => gone.push(Range { start: block, len: 1 }),
        }
        stop -= 1;
    }
    let cleared = stop as usize * 4..(hop.slot as usize + 1) * 4;
    let mut empty = false;
    edit_table(h, st, hop.table, |bytes| {
        if let Some(slots) = bytes.get_mut(cleared) {
            slots.fill(0);
        }
        empty = bytes.iter().all(|byte| *byte == 0);
    })?;
    let metadata = !st.raw.is_file();
    for run in &gone {
        release_run(space, h, inode.ino, *run, metadata)?;
        sub_blocks(space, st, run.len.into())?;
    }
    // A run of 32-bit pointers is at most one table long and touches two groups or, with small
    // groups, as many as `unmap_credits` counts once more.
    *left = left.saturating_sub((gone.len() as u32).saturating_mul(4).max(1));
    if empty {
        *left = left.saturating_sub(unmap_credits(space, st));
        free_tables(space, h, inode, st, way)?;
    }
    Ok(base + stop)
}

/// Frees the last table of `way`, and those above that have nothing else.
fn free_tables(
    space: &Space,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    way: &Way,
) -> Result<()> {
    for pair in way.hops.windows(2).rev() {
        let [above, below] = pair else { break };
        let Some(block) = below.table else { break };
        h.forget(block)?;
        free_blocks(space, h, inode.ino, Range { start: block, len: 1 })?;
        sub_blocks(space, st, 1)?;
        let slot = above.slot as usize * 4;
        let mut empty = false;
        edit_table(h, st, above.table, |bytes| {
            put_le32(bytes, slot, 0);
            empty = bytes.iter().all(|byte| *byte == 0);
        })?;
        if !empty || above.table.is_none() {
            break;
        }
    }
    Ok(())
}
