//! Unmapping a range of logical blocks, from its end, in steps that a caller can stop.
//!
//! Linux: `ext4_ext_remove_space`. From the end, so that a truncate that stops half way leaves a
//! file that is whole up to where it stopped. Tested in `map/extents/tests.rs`.

use syncline_ondisk::extent::Extent;

use super::tree::{NodeStore, RETRIES_MAX, last_step, replace, way};
use crate::error::{FsError, Result};

/// Unmaps what it can of `from..to` while `more` agrees; `more` gets each piece that was unmapped
/// (to free its blocks), of at most `piece_max` blocks, and says whether to go on.
///
/// Returns the new `to`: `from` when the range is done, else what is left is `from..` that.
///
/// # Errors
/// Corrupt trees; [`FsError::NoSpace`] when a leaf has to be split for a hole and no block is left.
pub(crate) fn remove<S: NodeStore>(
    store: &mut S,
    from: u32,
    to: u32,
    piece_max: u32,
    more: &mut dyn FnMut(&mut S, Extent) -> Result<bool>,
) -> Result<u32> {
    let mut to = to;
    let mut retries = 0;
    while to > from {
        let steps = way(store, to - 1)?;
        let step = last_step(&steps)?;
        let leaf = step.node(store)?;
        let Some((at, extent)) =
            leaf.search(to - 1).and_then(|at| leaf.extent(at).map(|extent| (at, extent)))
        else {
            // Nothing in this leaf lies below `to`: go on left of it, if there is anything.
            if step.limits.first >= to || step.limits.first <= from {
                return Ok(from);
            }
            to = step.limits.first;
            continue;
        };
        let end = extent.end().min(to.into()) as u32;
        let first = extent.block.max(from).max(end.saturating_sub(piece_max.max(1)));
        if end <= from {
            return Ok(from);
        }
        let gone = part(&extent, first, end);
        let rest = [part(&extent, extent.block, first), part_after(&extent, end)];
        let mut kept = [extent; 2];
        let mut count = 0;
        for piece in rest.iter().filter(|piece| piece.len > 0) {
            if let Some(slot) = kept.get_mut(count) {
                *slot = *piece;
                count += 1;
            }
        }
        if !replace(store, &steps, at, 1, kept.get(..count).unwrap_or(&[]))? {
            retries += 1;
            if retries > RETRIES_MAX {
                return Err(FsError::NoSpace);
            }
            continue;
        }
        retries = 0;
        to = first;
        if !more(store, gone)? {
            break;
        }
    }
    Ok(to.max(from))
}

/// The part of `extent` from `first` to before `end`, both inside of it.
pub(super) fn part(extent: &Extent, first: u32, end: u32) -> Extent {
    let skip = first.saturating_sub(extent.block);
    Extent {
        block: first,
        len: end.saturating_sub(first),
        start: extent.start.saturating_add(skip.into()),
        unwritten: extent.unwritten,
    }
}

/// The part of `extent` behind `end`.
pub(super) fn part_after(extent: &Extent, end: u32) -> Extent {
    let skip = end.saturating_sub(extent.block).min(extent.len);
    Extent {
        block: end,
        len: extent.len - skip,
        start: extent.start.saturating_add(skip.into()),
        unwritten: extent.unwritten,
    }
}
