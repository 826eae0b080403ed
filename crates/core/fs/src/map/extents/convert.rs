//! Turning unwritten extents into written ones and back.
//!
//! Linux: `ext4_convert_unwritten_extents_endio`, `convert_initialized_extent`. An extent of which
//! only a part changes is split; the part that changed merges with its neighbours in the leaf.
//! Tested in `map/extents/tests.rs`.

use syncline_ondisk::extent::{Extent, Node};

use super::remove::{part, part_after};
use super::tree::{NodeStore, RETRIES_MAX, last_step, lookup, replace, way};
use crate::error::{FsError, Result};

/// Makes the first extent in `from..to` that is in the other state written or `unwritten`.
/// Returns where to go on; `to` when nothing is left. Holes stay holes. One call changes one extent
/// (so its need of journal credits is bounded).
///
/// # Errors
/// As `insert`.
pub(crate) fn convert<S: NodeStore>(
    store: &mut S,
    from: u32,
    to: u32,
    unwritten: bool,
) -> Result<u32> {
    let mut from = from;
    let mut retries = 0;
    while from < to {
        let (found, end) = lookup(store, from)?;
        let end = end.min(to.into()) as u32;
        let Some(extent) = found.filter(|extent| extent.unwritten != unwritten) else {
            from = end;
            continue;
        };
        // A written extent may be one block longer than an unwritten one can be.
        let mut changed = Extent { unwritten, ..part(&extent, from, end) };
        changed.len = changed.len.min(changed.max_len());
        let end = from + changed.len;
        let steps = way(store, from)?;
        let leaf = last_step(&steps)?.node(store)?;
        let Some(at) = leaf.search(from) else { return Err(FsError::NoSpace) };
        let edit = plan(&leaf, at, &extent, changed);
        if replace(store, &steps, edit.at, edit.remove, edit.pieces.as_slice())? {
            return Ok(end);
        }
        retries += 1;
        if retries > RETRIES_MAX {
            return Err(FsError::NoSpace);
        }
    }
    Ok(to)
}

struct Edit {
    at: usize,
    remove: usize,
    pieces: Vec<Extent>,
}

/// Returns the extents that replace `extent` (position `at`) when `changed`, a part of it, changes
/// state.
fn plan(leaf: &Node<'_>, at: usize, extent: &Extent, changed: Extent) -> Edit {
    let left = part(extent, extent.block, changed.block);
    let right = part_after(extent, changed.end() as u32);
    let mut edit = Edit { at, remove: 1, pieces: Vec::with_capacity(3) };
    let mut middle = changed;
    if left.len > 0 {
        edit.pieces.push(left);
    } else if let Some(before) =
        at.checked_sub(1).and_then(|i| leaf.extent(i)).filter(|before| before.can_merge(&middle))
    {
        middle = Extent { len: before.len + middle.len, ..before };
        edit.at -= 1;
        edit.remove += 1;
    }
    if right.len > 0 {
        edit.pieces.push(middle);
        edit.pieces.push(right);
        return edit;
    }
    if let Some(after) = leaf.extent(at + 1).filter(|after| middle.can_merge(after)) {
        middle.len += after.len;
        edit.remove += 1;
    }
    edit.pieces.push(middle);
    edit
}
