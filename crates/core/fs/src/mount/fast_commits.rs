//! Fast commits at mount: applied in memory, then one transaction of the log.
//!
//! ```text
//!   device ── overlay ── volume: claim │ volume: apply, unmount     the device is only read
//!     │          └─ blocks that differ ─┐
//!     └─ log: fast commits ───────────> transaction of the same number ── recovered as any other
//! ```
//!
//! Promises: the image is unchanged until that transaction is durable, which voids the fast commits
//! at the same instant; at every instant any Linux recovers it.

use std::collections::BTreeSet;
use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, Kind, Origin, OverlayDevice};
use syncline_jbd2::{Journal, LogMap};
use syncline_ondisk::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};

use super::{OptionParts, build, open_for_writing, open_store, unmount};
use crate::error::Result;
use crate::fast_commit::{apply, claim, decode};
use crate::names::Names;
use crate::options::{MountOptions, SyncMode};

const READ: Origin = Origin::new(Kind::Metadata, true);

type Changed = Vec<(u64, Arc<[u8]>)>;

/// Applies the fast commits that recovery left in the log, which is empty but for them, and makes
/// them a transaction that waits to be recovered. Returns how many there were, and how many
/// orphans were finished with them.
///
/// # Errors
/// Those of applying them; the image is as it was then.
pub(super) fn replay(
    dev: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    options: &MountOptions,
    (log, inode_size): (&LogMap, usize),
) -> Result<(u32, u32)> {
    let Some(found) = Journal::fast_commits(&**dev, log)? else { return Ok((0, 0)) };
    let tags = decode(&found, inode_size)?;
    let overlay = Arc::new(OverlayDevice::new(Arc::clone(dev)));
    let memory: Arc<dyn BlockDevice> = Arc::clone(&overlay) as Arc<dyn BlockDevice>;
    Journal::drop_fast_commits(&*memory, log)?;
    let options = MountOptions {
        sync: SyncMode::Ordered,
        cache_bytes: options.cache_bytes,
        ..MountOptions::default()
    };
    // Two volumes: the allocator of the second finds what the first has taken.
    let names = open(&memory, clock, &options)?;
    let unowned = claim(&names, &tags)?;
    unmount(&names)?;
    let names = open(&memory, clock, &options)?;
    let orphans = apply(&names, &tags, unowned)?;
    unmount(&names)?;
    let changed = changed(dev, &overlay, log)?;
    Journal::replace_fast_commits(&**dev, log, changed, clock.now_ns())?;
    Ok((found.count, orphans))
}

fn open(
    dev: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    options: &MountOptions,
) -> Result<Arc<Names>> {
    let (store, _) = open_store(dev, clock, options)?;
    let parts = OptionParts::new(options, &store)?;
    let names = build(store, parts)?;
    open_for_writing(&names)?;
    Ok(names)
}

/// The blocks that differ in the overlay, but for those of the log. Of the superblock only the
/// head of the orphan list is taken: it is in use, and its counters are those of the next unmount.
fn changed(
    dev: &Arc<dyn BlockDevice>,
    overlay: &OverlayDevice<Arc<dyn BlockDevice>>,
    log: &LogMap,
) -> Result<Changed> {
    let size = u64::from(log.block_size);
    let numbers: BTreeSet<u64> = overlay
        .written()
        .into_iter()
        .flat_map(|written| written.start / size..written.end.div_ceil(size))
        .collect();
    let home = SUPERBLOCK_OFFSET / size;
    let mut changed = vec![(home, superblock(dev, overlay, (home, size))?)];
    for block in numbers {
        let is_outside = (block + 1) * size > dev.geometry().size_bytes;
        if block == home || log.contains(block) || is_outside {
            continue;
        }
        let (mut before, mut after) = (vec![0; size as usize], vec![0; size as usize]);
        dev.read(block * size, &mut before, READ)?;
        overlay.read(block * size, &mut after, READ)?;
        if before != after {
            changed.push((block, after.into()));
        }
    }
    Ok(changed)
}

fn superblock(
    dev: &Arc<dyn BlockDevice>,
    overlay: &OverlayDevice<Arc<dyn BlockDevice>>,
    (block, size): (u64, u64),
) -> Result<Arc<[u8]>> {
    let mut bytes = vec![0; size as usize];
    dev.read(block * size, &mut bytes, READ)?;
    let at = (SUPERBLOCK_OFFSET - block * size) as usize;
    let mut applied = [0; SUPERBLOCK_BYTES];
    overlay.read(SUPERBLOCK_OFFSET, &mut applied, READ)?;
    let applied = Superblock::decode(&applied)?;
    if let Some(place) = bytes.get_mut(at..at + SUPERBLOCK_BYTES) {
        let mut sb = Superblock::decode(place)?;
        sb.s_last_orphan = applied.s_last_orphan;
        sb.set_needs_recovery(true);
        sb.encode_into(place)?;
    }
    Ok(bytes.into())
}
