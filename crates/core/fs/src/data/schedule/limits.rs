//! Limits of unwritten data that change while a volume is mounted.
//!
//! They start as the mount options of the same names. A change reaches page cache, timers and
//! journal, and holds from the next write, tick or sync on. Tested in `tests/it/relaxed.rs`.

use crate::data::schedule::timers::NS_PER_CENTISECOND;
use crate::error::Result;
use crate::options::LiveLimits;

impl crate::Volume {
    /// Returns the limits of dirty data.
    pub fn live_limits(&self) -> LiveLimits {
        *self.0.schedule.live.lock()
    }

    /// Replaces the limits of dirty data.
    ///
    /// # Errors
    /// [`crate::FsError::Invalid`] for one that is out of its range; nothing changes then.
    pub fn set_live_limits(&self, limits: LiveLimits) -> Result<()> {
        limits.check()?;
        let mut live = self.0.schedule.live.lock();
        self.0.pages.set_dirty_limits(limits.dirty_background_ratio, limits.dirty_ratio);
        if let Ok(journal) = self.0.journal() {
            let expire_ns = u64::from(limits.dirty_expire_centisecs) * NS_PER_CENTISECOND;
            journal.set_dirty_expire_ns(expire_ns);
        }
        *live = limits;
        Ok(())
    }
}
