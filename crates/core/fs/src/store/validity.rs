//! Checks of block numbers of files against the volume and its metadata
//! (`fs/ext4/block_validity.c`).

use crate::error::Result;
use crate::store::Store;
use crate::store::group::group_desc;
use crate::store::zone::Zone;

/// Returns the location of metadata, from all descriptors.
pub(crate) fn system_zone(store: &Store) -> Result<&Zone> {
    if let Some(zone) = store.zone.get() {
        return Ok(zone);
    }
    let mut runs = Vec::new();
    for group in 0..store.geo.group_count {
        let desc = group_desc(store, group)?;
        let base = store.geo.group_base_meta_blocks(&store.sb.lock(), group);
        runs.push((store.geo.group_first_block(group), base.into()));
        runs.push((desc.bg_block_bitmap, 1));
        runs.push((desc.bg_inode_bitmap, 1));
        runs.push((desc.bg_inode_table, store.geo.itable_blocks.into()));
    }
    Ok(store.zone.get_or_init(|| Zone::new(runs)))
}

/// Checks that file blocks lie inside the volume and not on metadata.
///
/// # Errors
/// Corrupt, with the block.
pub(crate) fn check_file_blocks(store: &Store, ino: u32, start: u64, len: u64) -> Result<()> {
    if !store.geo.is_valid_range(start, len) {
        let text = format!("{len} blocks reach outside of the volume");
        return Err(store.corrupt(Some(ino), Some(start), None, text));
    }
    match system_zone(store)?.first_in(start, len) {
        Some(block) => {
            let text = "a file block lies on file system metadata";
            Err(store.corrupt(Some(ino), Some(block), None, text))
        }
        None => Ok(()),
    }
}
