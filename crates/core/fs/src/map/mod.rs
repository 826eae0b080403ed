//! Where the blocks of a file are.

pub(crate) mod blockmap;
pub(crate) mod extents;
