//! Recovery for readers: in memory, the device below is only read.
//!
//! ```text
//!   device ── overlay ── volume: recovered, unmounted     the overlay is a clean image then
//! ```

use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, OverlayDevice};

use super::{MountReport, mount, read_superblock, unmount};
use crate::error::Result;
use crate::options::MountOptions;

/// See [`crate::Volume::recovered_in_memory`].
pub(crate) fn recovered(
    dev: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    cache_bytes: u64,
) -> Result<Option<(Arc<dyn BlockDevice>, MountReport)>> {
    let (sb, _) = read_superblock(&**dev)?;
    if !sb.needs_recovery() || !sb.has_journal() {
        return Ok(None);
    }
    let overlay: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::new(Arc::clone(dev)));
    let options = MountOptions { cache_bytes, ..MountOptions::default() };
    let (names, report) = mount(Arc::clone(&overlay), Arc::clone(clock), options)?;
    unmount(&names)?;
    Ok(Some((overlay, report)))
}
