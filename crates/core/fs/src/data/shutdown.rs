//! Shutdown: the volume stops as in a crash, on request (`EXT4_IOC_SHUTDOWN`).
//!
//! ```text
//!   flush      everything durable, then nothing is written any more     GOING_DOWN_DEFAULT
//!   no flush   nothing is written any more                              NOLOGFLUSH: a crash
//! ```
//!
//! Promises: afterwards reads of contents, changes and syncs fail with EIO, and the device gets
//! only requests that were under way. The image is as after a crash; the next mount recovers it.
//! Tested in `tests/it/shutdown.rs`.

use crate::data::sync::sync_all;
use crate::error::Result;

impl crate::Volume {
    /// Stops the volume as a crash does (`EXT4_IOC_SHUTDOWN`): afterwards nothing is written, and
    /// every call that would reach the device fails. With `flush` everything is made durable first.
    ///
    /// # Errors
    /// [`crate::FsError::ReadOnly`], [`crate::FsError::Latched`]; with `flush` as [`Self::fsync`],
    /// and then the volume either continues or has latched.
    pub fn shutdown(&self, flush: bool) -> Result<()> {
        self.0.check_writable()?;
        if flush {
            sync_all(&self.0)?;
        }
        self.0.shut_down();
        Ok(())
    }

    /// Fails once [`Self::shutdown`] has ended the volume, for calls that reach no device.
    ///
    /// # Errors
    /// [`crate::FsError::Latched`].
    pub fn check_running(&self) -> Result<()> {
        self.0.check_running()
    }
}
