//! Limits of unwritten data that change while a volume is mounted.
//!
//! They start as the mount options of the same names. A change reaches page cache, timers and
//! journal, and holds from the next write, tick or sync on. Tested in `tests/it/relaxed.rs`.

use crate::data::Files;
use crate::data::schedule::timers::NS_PER_CENTISECOND;
use crate::error::Result;
use crate::options::LiveLimits;

/// The limits now.
pub(crate) fn live_limits(files: &Files) -> LiveLimits {
    *files.schedule.live.lock()
}

/// Changes all of them.
///
/// # Errors
/// [`crate::FsError::Invalid`] for one that is out of its range; nothing changes then.
pub(crate) fn set_live_limits(files: &Files, limits: LiveLimits) -> Result<()> {
    limits.check()?;
    let mut live = files.schedule.live.lock();
    files.pages.set_dirty_limits(limits.dirty_background_ratio, limits.dirty_ratio);
    if let Ok(journal) = files.journal() {
        let expire_ns = u64::from(limits.dirty_expire_centisecs) * NS_PER_CENTISECOND;
        journal.set_dirty_expire_ns(expire_ns);
    }
    *live = limits;
    Ok(())
}
