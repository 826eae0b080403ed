//! Space that is promised to delayed blocks: one block for each of them, or, where clusters are
//! allocated (`bigalloc`), one cluster for all of its blocks.
//!
//! ```text
//!   cluster  some block mapped    no promise: a new block goes into the same cluster
//!            nothing mapped       one promise while any of its blocks is delayed
//! ```
//!
//! Promises: each cluster with delayed blocks and without mapped ones is in
//! `InodeState::delayed_clusters`, and promised. So ENOSPC comes from `write`, and no more than
//! what write-back takes is held back. A change that may unmap the rest of such a cluster writes
//! its delayed blocks back first (`place_edges`).
//!
//! Tested in `tests/it/bigalloc.rs`.

use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::map::extents::clusters::cluster_of;
use crate::space::Space;
use crate::space::balloc::install::wait_for_freed_blocks;
use crate::store::Store;

/// Space that hole blocks need before they can be delayed.
pub(crate) struct Need {
    /// Blocks, or the clusters below.
    pub(crate) count: u64,
    clusters: Vec<u32>,
}

impl Need {
    /// Need of `holes`: first block and length of each, ascending. The caller holds `rwsem`.
    ///
    /// # Errors
    /// Corrupt trees; I/O.
    pub(crate) fn of(
        store: &Store,
        inode: &Inode,
        holes: impl Iterator<Item = (u64, u64)>,
    ) -> Result<Need> {
        let bits = store.geo.cluster_bits;
        if bits == 0 {
            return Ok(Need { count: holes.map(|(_, len)| len).sum(), clusters: Vec::new() });
        }
        let st = inode.state.read();
        let mut clusters: Vec<u32> = Vec::new();
        for (lblk, len) in holes.filter(|(_, len)| *len > 0) {
            let (first, last) = (lblk >> bits, (lblk + len - 1) >> bits);
            for cluster in first..=last {
                let cluster = u32::try_from(cluster).map_err(|_| FsError::TooBig)?;
                let known = clusters.last() == Some(&cluster)
                    || st.delayed_clusters.as_ref().is_some_and(|set| set.contains(&cluster));
                if !known && cluster_of(store, inode, &st, cluster << bits)?.is_none() {
                    clusters.push(cluster);
                }
            }
        }
        Ok(Need { count: clusters.len() as u64, clusters })
    }

    /// Has it promised. If there is no room, and `may_wait`, waits once for the transaction that
    /// frees some (`ext4_should_retry_alloc`).
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; the journal's.
    pub(crate) fn promise(&self, space: &Space, may_wait: bool) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        match space.balloc.reserve(self.count) {
            Err(FsError::NoSpace) if may_wait && wait_for_freed_blocks(space)? => {
                space.balloc.reserve(self.count)
            }
            other => other,
        }
    }

    /// Notes what was promised.
    pub(crate) fn note(self, st: &mut InodeState) {
        st.reserved_blocks += self.count;
        if !self.clusters.is_empty() {
            st.delayed_clusters.get_or_insert_default().extend(self.clusters);
        }
    }
}

/// Gives back what `dropped` delayed pages of `from..to`, which are gone, had promised. No other
/// block of a cluster with an edge is delayed (`place_edges`).
pub(crate) fn forget_delayed(
    space: &Space,
    st: &mut InodeState,
    (from, to): (u64, u64),
    dropped: u64,
) {
    let unused = match &mut st.delayed_clusters {
        None if space.geo.cluster_bits > 0 => 0,
        None => dropped,
        Some(set) => {
            let bits = space.geo.cluster_bits;
            let first = u32::try_from(from >> bits).unwrap_or(u32::MAX);
            let end = u32::try_from(to.div_ceil(1 << bits)).unwrap_or(u32::MAX);
            let unused: Vec<u32> = set.range(first..end.max(first)).copied().collect();
            unused.iter().filter(|at| set.remove(at)).count() as u64
        }
    };
    if unused > 0 {
        end_promises(st, unused);
        space.balloc.release(unused);
    }
}

fn end_promises(st: &mut InodeState, count: u64) {
    st.reserved_blocks = st.reserved_blocks.saturating_sub(count);
    if st.reserved_blocks == 0 {
        st.delayed_clusters = None;
    }
}

/// The delayed blocks of `from..to` have become part of the file: ends their promises, and gives
/// these back unless the blocks were allocated from them.
pub(crate) fn end_delayed(
    space: &Space,
    st: &mut InodeState,
    (from, to): (u64, u64),
    is_taken: bool,
) {
    let bits = space.geo.cluster_bits;
    let ended = match &mut st.delayed_clusters {
        None if bits > 0 => 0,
        None => to.saturating_sub(from),
        Some(set) => {
            let clusters = (from >> bits)..to.div_ceil(1 << bits);
            let clusters = clusters.filter_map(|at| u32::try_from(at).ok());
            clusters.filter(|at| set.remove(at)).count() as u64
        }
    };
    end_promises(st, ended);
    if !is_taken && ended > 0 {
        // Somebody allocated below a delayed page: its promise is not needed.
        space.balloc.release(ended);
    }
}
