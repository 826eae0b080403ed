//! Files with fs-verity: every block is read and compared with its hash, as a reader does.
//!
//! Only where nothing else is wrong, since a reader depends on all of it. e2fsck does not look.

use std::sync::Arc;

use syncline_device::{BlockDevice, VirtualClock};

use super::report::{At, CheckProgress, CheckReport};
use super::{CACHE_BYTES, kinds};
use crate::data::verity;
use crate::error::{FsError, Result};
use crate::options::MountOptions;
use crate::{Atime, Volume};

/// Bytes of one read.
const READ_BYTES: usize = 1 << 18;

/// As [`check_files`], of files on a device.
pub(super) fn check_device_files(
    dev: &Arc<dyn BlockDevice>,
    inos: &[u32],
    report: &mut CheckReport,
    progress: &mut dyn FnMut(CheckProgress) -> bool,
) -> Result<()> {
    if inos.is_empty() || report.unreplayed || !report.is_clean() {
        return Ok(());
    }
    let options = MountOptions {
        read_only: true,
        atime: Atime::Noatime,
        cache_bytes: 8 * CACHE_BYTES as u64,
        ..MountOptions::default()
    };
    let vol = Volume::mount(Arc::clone(dev), Arc::new(VirtualClock::default()), options)?;
    check_files(&vol, inos, report, progress)
}

/// Reads the files and notes those that differ from their hashes.
pub(super) fn check_files(
    vol: &Volume,
    inos: &[u32],
    report: &mut CheckReport,
    progress: &mut dyn FnMut(CheckProgress) -> bool,
) -> Result<()> {
    if !report.is_clean() {
        return Ok(());
    }
    let mut bytes = vec![0; READ_BYTES];
    for (nr, ino) in inos.iter().enumerate() {
        // A file of a mounted volume may be gone by now.
        let Ok(inode) = vol.iget(*ino) else { continue };
        let mut at = 0;
        loop {
            let (done, total) = (nr as u64, inos.len() as u64);
            if !progress(CheckProgress { stage: "hashes", done, total }) {
                report.stopped = true;
                return Ok(());
            }
            match vol.read_unseen(&inode, at, &mut bytes) {
                Ok(0) => break,
                Ok(n) => at += n as u64,
                Err(FsError::Verity { what, .. }) => {
                    let is_sealed = what != verity::NO_DESCRIPTOR;
                    let kind = if is_sealed { kinds::VERITY } else { kinds::VERITY_MISSING };
                    report.note(kind, At::ino(*ino), what);
                    break;
                }
                Err(err) => return Err(err),
            }
        }
    }
    Ok(())
}
