//! Block map of a file: extent trees, and old block maps behind the same functions.
//!
//! ```text
//!   search.rs   map_blocks, goals, the per-inode cache     insert.rs  add, merged with neighbours
//!   tree.rs     nodes: ways, room, splits, pruning         remove.rs  unmap, from the end
//!   volume.rs   nodes as journaled metadata blocks         convert.rs unwritten <-> written
//!   clusters.rs places in clusters                ../blockmap.rs ext2/ext3 indirect blocks
//! ```
//!
//! All changes happen in a handle, under the inode's `state` lock; `i_blocks` follows. The caller
//! writes the inode (`write_inode` with `Dirty::Data`) before the handle ends.
//! Tested in `map/extents/tests.rs` (trees against a map) and `tests/it/space.rs` (images).

pub(crate) mod clusters;
pub(crate) mod convert;
pub(crate) mod insert;
pub(crate) mod remove;
pub(crate) mod search;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
pub(crate) mod volume;

pub(crate) use search::Mapping;
