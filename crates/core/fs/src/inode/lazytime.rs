//! Timestamps that were kept in memory, on their way to the inode table.

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::incore::{Dirty, Inode};
use crate::inode::Inodes;
use crate::inode::iget::cached_inodes;
use crate::inode::table::write_inode;

/// Writes the timestamps of all cached inodes into the running transaction (syncfs, unmount). A
/// copy of the device may show them then.
pub(crate) fn write_lazy_times(inodes: &Inodes) -> Result<()> {
    write_times(inodes, true)
}

/// When [`write_newer_times`] is due, in nanoseconds of the clock.
pub(crate) fn newer_times_due_ns(inodes: &Inodes) -> Option<u64> {
    let since_ns = inodes.newer_since_ns.load(Ordering::Relaxed);
    let commit_ns = u64::from(inodes.options.commit_s) * crate::time::NS_PER_S;
    (since_ns != 0).then(|| since_ns.saturating_add(commit_ns))
}

/// Writes the timestamps that `mtime_update=seen` keeps in memory, at the age at which ext4 commits
/// them.
pub(crate) fn write_newer_times(inodes: &Inodes, now_ns: u64) -> Result<()> {
    if newer_times_due_ns(inodes).is_none_or(|due_ns| now_ns < due_ns) {
        return Ok(());
    }
    inodes.newer_since_ns.store(0, Ordering::Relaxed);
    write_times(inodes, false)
}

/// Writes `newer` times, and with `all` also those that lazytime keeps.
fn write_times(inodes: &Inodes, all: bool) -> Result<()> {
    for inode in cached_inodes(inodes) {
        let due = {
            let st = inode.state.read();
            if all {
                inode.shown.store(true, Ordering::Relaxed);
            }
            st.newer_by_ns > 0 || all && st.times_dirty
        };
        if due {
            inodes.relieve_log()?;
            let mut h = inodes.start(2)?;
            let mut st = inode.state.write();
            if st.newer_by_ns > 0 || st.times_dirty {
                st.take_newer();
                write_inode(inodes, &mut h, &inode, &mut st, Dirty::Times)?;
            }
        }
    }
    Ok(())
}

/// Writes timestamps that lazytime kept in memory.
pub(crate) fn write_lazy_times_of(inodes: &Inodes, inode: &Inode) -> Result<()> {
    if !inode.state.read().times_dirty {
        return Ok(());
    }
    let mut h = inodes.start(1)?;
    let mut st = inode.state.write();
    write_inode(inodes, &mut h, inode, &mut st, Dirty::Times)
}
