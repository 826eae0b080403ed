//! Recovery for readers: in memory, the device below is only read.
//!
//! ```text
//!   device ── overlay ── volume: recovered, unmounted     the overlay is a clean image then
//! ```
//!
//! A volume with features that can only be read cannot be mounted to be recovered: its log is
//! replayed and its orphans stay, as Linux leaves them on a device that it cannot write to.

use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, Kind, Origin, OverlayDevice, VirtualClock};
use syncline_jbd2::{Journal, JournalError, RecoverOptions};
use syncline_ondisk::FeatureCheck;
use syncline_ondisk::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};

use super::{MountReport, log_map, mount, open_store, read_superblock, unmount};
use crate::error::{FsError, Result};
use crate::options::MountOptions;

/// See [`crate::Volume::recovered_in_memory`].
pub(crate) fn recovered(
    dev: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    cache_bytes: u64,
) -> Result<Option<(Arc<dyn BlockDevice>, MountReport)>> {
    let (sb, check) = read_superblock(&**dev)?;
    if !sb.needs_recovery() || !sb.has_journal() {
        return Ok(None);
    }
    let overlay: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::new(Arc::clone(dev)));
    let options = MountOptions { cache_bytes, ..MountOptions::default() };
    if check == FeatureCheck::ReadWrite {
        let (names, report) = mount(Arc::clone(&overlay), Arc::clone(clock), options)?;
        unmount(&names)?;
        return Ok(Some((overlay, report)));
    }
    let report = replay_log(&overlay, clock, &options, RecoverOptions::default())?;
    Ok(Some((overlay, report)))
}

const ONLY_SCAN: RecoverOptions = RecoverOptions { dry_run: true, salvage: true };

/// Why nothing of the log can be replayed; `None` if that is not the log's fault.
pub(crate) fn why_lost(dev: &Arc<dyn BlockDevice>) -> Option<String> {
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
    let (store, _) = open_store(dev, &clock, &MountOptions::default()).ok()?;
    match Journal::recover(&**dev, &log_map(&store).ok()?, ONLY_SCAN) {
        Err(JournalError::Corrupt { detail, .. }) => Some(detail),
        _ => None,
    }
}

/// Replays the log of a volume that may be damaged otherwise. Only fast commits need a mount.
/// Orphans stay. Time stands still.
///
/// # Errors
/// Those of opening and recovering a volume. What was written until then is of no use.
pub(crate) fn replay(dev: &Arc<dyn BlockDevice>) -> Result<()> {
    let (sb, check) = read_superblock(&**dev)?;
    let now_ns = sb.s_wtime.saturating_mul(1_000_000_000);
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(now_ns));
    let options = MountOptions::default();
    let (store, _) = open_store(dev, &clock, &options)?;
    let found = Journal::recover(&**dev, &log_map(&store)?, ONLY_SCAN)?;
    if found.fast_commits > 0 && check == FeatureCheck::ReadWrite {
        let (names, _) = mount(Arc::clone(dev), clock, options)?;
        return unmount(&names);
    }
    let how = RecoverOptions { salvage: true, ..RecoverOptions::default() };
    replay_log(dev, &clock, &options, how).map(drop)
}

/// Replays the log and marks the volume as clean.
fn replay_log(
    dev: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    options: &MountOptions,
    how: RecoverOptions,
) -> Result<MountReport> {
    let (store, _) = open_store(dev, clock, options)?;
    let recovery = Journal::recover(&**dev, &log_map(&store)?, how)?;
    if recovery.fast_commits > 0 {
        return Err(FsError::Unsupported(
            "fast commits on a volume that can only be read; mount it with the kernel's ext4 once"
                .into(),
        ));
    }
    let origin = Origin::new(Kind::Metadata, true);
    let mut bytes = [0; SUPERBLOCK_BYTES];
    dev.read(SUPERBLOCK_OFFSET, &mut bytes, origin)?;
    let mut sb = Superblock::decode(&bytes)?;
    sb.set_needs_recovery(false);
    sb.encode_into(&mut bytes)?;
    dev.write(SUPERBLOCK_OFFSET, &bytes, origin)?;
    Ok(MountReport {
        transactions_replayed: recovery.transactions,
        blocks_replayed: recovery.blocks_replayed,
        ..MountReport::default()
    })
}
