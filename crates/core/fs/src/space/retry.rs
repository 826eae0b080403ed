//! Retries of operations that find no space, once a commit has given some back: blocks and inodes
//! that a transaction freed are free again only when it is durable.

use crate::error::{FsError, Result};
use crate::space::Space;
use crate::space::balloc::install::wait_for_freed_blocks;
use crate::space::ialloc::wait_for_freed_inodes;

/// Tries an operation again if it found no space and blocks or inodes freed before are only
/// waiting for a commit, as Linux does (ext4_should_retry_alloc). The caller holds no lock and
/// no handle.
pub(crate) fn retry_when_full<R>(space: &Space, mut op: impl FnMut() -> Result<R>) -> Result<R> {
    for _ in 0..NO_SPACE_RETRIES {
        match op() {
            Err(FsError::NoSpace)
                if wait_for_freed_blocks(space)? | wait_for_freed_inodes(space)? => {}
            other => return other,
        }
    }
    op()
}

/// Commits that one operation waits for when the volume is full.
const NO_SPACE_RETRIES: u32 = 3;
