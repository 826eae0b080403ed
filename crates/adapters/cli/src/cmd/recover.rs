//! `recover`: replays the journal and finishes orphans, as a mount does first.

use syncline_ondisk::CompatFeatures;

use crate::args::Recover;
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::format::Out;
use crate::image;

/// Recovers and says what was done. An image that needs nothing is not written to.
pub(crate) fn run(args: &Recover) -> Result<()> {
    let path = &args.image;
    if syncline_image::is_qcow2(path) {
        // Opening it for writing repairs what a writer that was killed has left of the file's own.
        drop(image::opened(path, false, &args.part, &|| {})?);
    }
    let sb = image::superblock(&*image::part(path, &args.part)?, path)?;
    // Whether it is clean may stand elsewhere: in its write log, or in a journal on another device.
    sb.check_features().map_err(|err| Failure::from(err).at(path.display()))?;
    // Only a mount that was not ended leaves either.
    let orphans = sb.s_last_orphan != 0
        || sb.s_feature_compat.contains(CompatFeatures::ORPHAN_FILE)
            && sb.s_feature_ro_compat.contains(syncline_ondisk::RoCompatFeatures::ORPHAN_PRESENT);
    let mut out = Out::new();
    if !sb.needs_recovery() && !orphans {
        out.text(format!("{}: clean, nothing to recover\n", path.display()))?;
        return out.flush();
    }
    let image =
        syncline_image::Image::write(path, &image::opening(&args.part, Bounds::writer(path)))?;
    let report = image.report.clone();
    image.close::<(), Failure>(Ok(()))?;
    let fast_commits = match report.fast_commits {
        0 => String::new(),
        count => format!("{count} fast commits applied, "),
    };
    out.text(format!(
        "{}: {} transactions replayed ({} blocks), {}{} orphans finished; clean now\n",
        path.display(),
        report.transactions_replayed,
        report.blocks_replayed,
        fast_commits,
        report.orphans
    ))?;
    out.flush()
}
