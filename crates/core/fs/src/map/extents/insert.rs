//! Adding an extent, merged with its neighbours where they continue each other.
//!
//! Linux: `ext4_ext_insert_extent`, `ext4_ext_try_to_merge`. Neighbours merge within one leaf, as
//! there. Tested in `map/extents/tests.rs`.

use syncline_ondisk::OndiskError;
use syncline_ondisk::extent::Extent;

use super::tree::{NodeStore, RETRIES_MAX, last_step, replace, way};
use crate::error::{FsError, Result};

/// Maps `extent`, whose logical blocks must be a hole.
///
/// # Errors
/// Corrupt if they are not; [`FsError::NoSpace`] when a node block cannot be had; then nothing was
/// mapped.
pub(crate) fn insert<S: NodeStore>(store: &mut S, extent: Extent) -> Result<()> {
    let mut rest = extent;
    while rest.len > 0 {
        let len = rest.len.min(rest.max_len());
        insert_one(store, Extent { len, ..rest })?;
        rest.len -= len;
        rest.block = rest.block.saturating_add(len);
        rest.start += u64::from(len);
    }
    Ok(())
}

fn insert_one<S: NodeStore>(store: &mut S, extent: Extent) -> Result<()> {
    for _ in 0..RETRIES_MAX {
        let steps = way(store, extent.block)?;
        let step = last_step(&steps)?;
        let leaf = step.node(store)?;
        let mut at = leaf.insert_position(extent.block);
        let before = at.checked_sub(1).and_then(|i| leaf.extent(i));
        let after = leaf.extent(at);
        if before.is_some_and(|b| b.end() > extent.block.into())
            || after.is_some_and(|a| extent.end() > a.block.into())
            || extent.end() > step.limits.end.max(extent.block.into())
        {
            let text = format!("logical block {} is mapped twice", extent.block);
            return Err(store.broken(step.block, OndiskError::corrupt("extent tree", text)));
        }
        let (mut merged, mut remove) = (extent, 0);
        if let Some(before) = before.filter(|b| b.can_merge(&extent)) {
            merged = Extent { len: before.len + extent.len, ..before };
            at -= 1;
            remove += 1;
        }
        if let Some(after) = after.filter(|a| merged.can_merge(a)) {
            merged.len += after.len;
            remove += 1;
        }
        if replace(store, &steps, at, remove, &[merged])? {
            return Ok(());
        }
    }
    Err(FsError::NoSpace)
}
