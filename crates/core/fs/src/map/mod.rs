//! Maps from logical to physical blocks: extent trees (`extents/`) and ext2's block maps
//! (`blockmap.rs`).
//!
//! Lookup needs the store alone. A change takes a handle, and the space that node blocks come from
//! and go back to.

pub(crate) mod blockmap;
pub(crate) mod extents;
