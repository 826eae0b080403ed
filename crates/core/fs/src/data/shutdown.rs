//! Shutdown: the volume ends as in a crash, by request (`EXT4_IOC_SHUTDOWN`).
//!
//! ```text
//!   flush      everything durable, then nothing is written any more     GOING_DOWN_DEFAULT
//!   no flush   nothing is written any more                              NOLOGFLUSH: a crash
//! ```
//!
//! Promises: afterwards reads of contents, changes and syncs fail with EIO, and the device gets
//! nothing but what was under way. The image is what a crash leaves; the next mount recovers it.
//! Tested in `tests/it/shutdown.rs`.

use crate::data::Files;
use crate::data::sync::sync_all;
use crate::error::Result;
use crate::store::Store;

/// [`crate::Volume::shutdown`].
pub(crate) fn shutdown(files: &Files, flush: bool) -> Result<()> {
    files.check_writable()?;
    if flush {
        sync_all(files)?;
    }
    files.shut_down();
    Ok(())
}

/// [`crate::Volume::check_running`].
pub(crate) fn check_running(store: &Store) -> Result<()> {
    store.check_running()
}
