//! Limits of unwritten data that change while a volume is mounted.
//!
//! They start as the mount options of the same names and hold from the next write, look of the
//! timer or sync on. Journal and log keep the age that they were opened with. Tested in
//! `tests/relaxed.rs`.

use crate::data::Files;
use crate::error::{FsError, Result};
use crate::options::LiveLimits;

/// Longest age, in hundredths of a second: an hour.
const EXPIRE_CENTISECS_MAX: u32 = 360_000;

/// The limits now.
pub(crate) fn live_limits(files: &Files) -> LiveLimits {
    *files.schedule.live.lock()
}

/// Changes all of them.
///
/// # Errors
/// [`FsError::Invalid`] for one that is out of its range; nothing changes then.
pub(crate) fn set_live_limits(files: &Files, limits: LiveLimits) -> Result<()> {
    let LiveLimits { dirty_expire_centisecs, dirty_background_ratio, dirty_ratio } = limits;
    if !(1..=EXPIRE_CENTISECS_MAX).contains(&dirty_expire_centisecs) {
        return Err(FsError::invalid("dirty_expire is 0.01 to 3600 seconds; give one of these"));
    }
    if dirty_background_ratio > 100 || !(1..=100).contains(&dirty_ratio) {
        return Err(FsError::invalid("a dirty ratio is 1 to 100 per cent; give one of these"));
    }
    let mut live = files.schedule.live.lock();
    files.pages.set_dirty_limits(dirty_background_ratio, dirty_ratio);
    *live = limits;
    Ok(())
}
