//! Limits of unwritten data that change while a volume is mounted.
//!
//! They start as the mount options of the same names and hold from the next write, look of the
//! timer or sync on. Journal and log keep the age that they were opened with. Tested in
//! `tests/relaxed.rs`.

use crate::error::{FsError, Result};
use crate::inode::Inodes;
use crate::options::MountOptions;
use crate::store::Store;

/// Longest age, in hundredths of a second: an hour.
const EXPIRE_CENTISECS_MAX: u32 = 360_000;

/// How much data may wait, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveLimits {
    /// Age at which dirty data is written, in hundredths of a second; 1 to 360,000.
    pub dirty_expire_centisecs: u32,
    /// Dirty data in per cent of the cache from which on it is written in the background; to 100.
    pub dirty_background_ratio: u32,
    /// The same, from which on writers write themselves; 1 to 100.
    pub dirty_ratio: u32,
}

impl LiveLimits {
    pub(crate) fn of(options: &MountOptions) -> LiveLimits {
        LiveLimits {
            dirty_expire_centisecs: options.dirty_expire_centisecs,
            dirty_background_ratio: options.dirty_background_ratio,
            dirty_ratio: options.dirty_ratio,
        }
    }
}

/// The limits now.
pub(crate) fn live_limits(store: &Store) -> LiveLimits {
    *store.live.lock()
}

/// Changes all of them.
///
/// # Errors
/// [`FsError::Invalid`] for one that is out of its range; nothing changes then.
pub(crate) fn set_live_limits(inodes: &Inodes, limits: LiveLimits) -> Result<()> {
    let LiveLimits { dirty_expire_centisecs, dirty_background_ratio, dirty_ratio } = limits;
    if !(1..=EXPIRE_CENTISECS_MAX).contains(&dirty_expire_centisecs) {
        return Err(FsError::invalid("dirty_expire is 0.01 to 3600 seconds; give one of these"));
    }
    if dirty_background_ratio > 100 || !(1..=100).contains(&dirty_ratio) {
        return Err(FsError::invalid("a dirty ratio is 1 to 100 per cent; give one of these"));
    }
    let mut live = inodes.live.lock();
    inodes.pages.set_dirty_limits(dirty_background_ratio, dirty_ratio);
    *live = limits;
    Ok(())
}
