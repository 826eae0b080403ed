//! Cost of N syncs within one commit interval: the eager-sync paper's section 4.4 as functions,
//! and the same for what runs today.
//!
//! ```text
//!   M  metadata of the synced file     D  its data        all dirty before every sync
//!   M' metadata of others              D' their data
//!
//!            (4.1) ordered   N { (M + M') + (M + M' + D + D') }
//!   same     (4.2) eager     N (M + D) + (M + M') + (M + M' + D + D')
//!   distinct (4.3) eager     N (M + D) + N (M + M') + N (M + M' + D + D')
//! ```
//!
//! [`paper`] has these as they stand. [`ordered`] and [`eager`] add what the equations leave out
//! and take away what an ext4 with delayed allocation and a jbd2 log does not do:
//! - each transaction has a descriptor and a commit block ([`Log`]);
//! - metadata in its place is written by the checkpoint, once for each block and not once for each
//!   sync, in both modes;
//! - data of others (D') waits for the write-back: a commit orders only data whose blocks were
//!   allocated by it, and delayed allocation allocates late;
//! - an eager sync is a jbd2 transaction, so M is not journaled again by the periodic commit, which
//!   has only M' left.
//!
//! Units are file system blocks and write requests. [`measure`] counts what the stack does;
//! `lab/tests/bench/cost_model.rs` holds that to [`ordered`] and [`eager`] within 10 %.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use syncline_device::{Clock, Counts, MemoryDevice, RecordingDevice, VirtualClock};
use syncline_fs::{Create, InodeRef, MountOptions, Volume};

use crate::error::Result;

const BLOCK: usize = 4096;
/// Longer than a tick, ns: each overwrite changes its inode.
const BETWEEN_SYNCS_NS: u64 = 5_000_000;

/// Blocks that are dirty before each sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirty {
    /// M: metadata of the synced file.
    pub metadata: u64,
    /// M': metadata of others.
    pub other_metadata: u64,
    /// D: data of the synced file.
    pub data: u64,
    /// D': data of others.
    pub other_data: u64,
}

impl Dirty {
    /// M + M' + D + D'.
    fn all(&self) -> u64 {
        self.metadata + self.other_metadata + self.data + self.other_data
    }
}

/// Locality: later syncs write the same blocks again, or others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Locality {
    /// The same blocks each time: the page cache absorbs all but the last.
    Same,
    /// Other files each time: nothing is absorbed.
    Distinct,
}

/// Cost of syncs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Blocks written.
    pub blocks: u64,
    /// Write requests.
    pub requests: u64,
    /// Flushes (a FUA write on a device without FUA is one).
    pub flushes: u64,
}

/// The equations of the eager-sync paper, section 4.4.
pub mod paper {
    use super::{Dirty, Locality};

    /// Equation 4.1: blocks that `syncs` ordered syncs write.
    pub fn ordered_blocks(syncs: u64, dirty: &Dirty) -> u64 {
        syncs * (dirty.metadata + dirty.other_metadata + dirty.all())
    }

    /// Equation 4.2 with [`Locality::Same`], 4.3 with [`Locality::Distinct`].
    pub fn eager_blocks(syncs: u64, dirty: &Dirty, locality: Locality) -> u64 {
        let times = match locality {
            Locality::Same => 1,
            Locality::Distinct => syncs,
        };
        let journaled = dirty.metadata + dirty.other_metadata;
        syncs * (dirty.metadata + dirty.data) + times * (journaled + dirty.all())
    }

    /// Requests of equation 4.1: adjacent log blocks are one request, and M, M', D and D' one each.
    pub fn ordered_requests(syncs: u64) -> u64 {
        syncs * (1 + 4)
    }

    /// Requests of equations 4.2 and 4.3.
    pub fn eager_requests(syncs: u64, locality: Locality) -> u64 {
        match locality {
            Locality::Same => syncs + 1 + 4,
            Locality::Distinct => syncs + 1 + 4 * syncs,
        }
    }
}

/// Blocks of a transaction in the log beside the copies it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Descriptor blocks; one names up to 254 copies of 4 KiB.
    pub descriptors: u64,
    /// Commit blocks.
    pub commits: u64,
}

impl Default for Log {
    fn default() -> Self {
        Log { descriptors: 1, commits: 1 }
    }
}

impl Log {
    /// Both.
    pub fn blocks(&self) -> u64 {
        self.descriptors + self.commits
    }
}

/// Blocks in their place, at the end of it all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Different metadata blocks that were changed, of all files.
    pub metadata: u64,
    /// Requests that these need.
    pub metadata_requests: u64,
    /// Different data blocks that were written, of the synced files.
    pub data: u64,
    /// Requests that these need: adjacent blocks merge.
    pub data_requests: u64,
}

/// `syncs` syncs in the ordered mode, up to the end of the last checkpoint.
///
/// Each writes its data in place (one request), then descriptor and copies (one), and after a flush
/// the commit block with FUA (one request, one flush more). Metadata goes to its place at the end,
/// others' data with the write-back.
pub fn ordered(syncs: u64, dirty: &Dirty, log: &Log, place: &InPlace) -> Cost {
    let burst = dirty.metadata + dirty.other_metadata + log.blocks();
    Cost {
        blocks: syncs * (dirty.data + burst) + place.metadata + dirty.other_data,
        requests: syncs * 3 + place.metadata_requests + dirty.other_data.min(1),
        flushes: syncs * 2,
    }
}

/// `syncs` syncs in the eager mode, up to the end of the last checkpoint.
///
/// Each is one request and one flush. What others changed is committed once (log blocks, flush,
/// commit block), then everything goes to its place.
pub fn eager(syncs: u64, dirty: &Dirty, log: &Log, place: &InPlace) -> Cost {
    let others = match dirty.other_metadata {
        0 => Cost::default(),
        metadata => Cost { blocks: metadata + log.blocks(), requests: 2, flushes: 2 },
    };
    let at_the_end = place.metadata + place.data + dirty.other_data;
    Cost {
        blocks: syncs * (dirty.metadata + dirty.data + log.blocks()) + others.blocks + at_the_end,
        requests: syncs
            + others.requests
            + place.metadata_requests
            + place.data_requests
            + dirty.other_data.min(1),
        flushes: syncs + others.flushes,
    }
}

fn file(volume: &Volume, path: &str) -> Result<InodeRef> {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("/", path));
    let dir = volume.resolve(dir.as_bytes())?;
    let how = Create { mode: 0o644, uid: 0, gid: 0 };
    let file = volume.create(&dir, name.as_bytes(), &how)?;
    // Two blocks, of which the first is overwritten: neighbours do not merge.
    volume.write(&file, 0, &[1; 2 * BLOCK])?;
    Ok(file)
}

/// Counts what `syncs` syncs cost, with write-back and unmount, on the volume of `image`. Before
/// each sync of a file in one directory another file, in another, is overwritten, too, so that M,
/// M', D and D' are all dirty: one block each.
pub fn measure(image: MemoryDevice, sync: &str, locality: Locality, syncs: u64) -> Result<Cost> {
    let clock = Arc::new(VirtualClock::default());
    let device = Arc::new(RecordingDevice::new(Arc::new(image)));
    let options = MountOptions::parse(&format!("sync={sync},noatime"))?;
    let mount = || {
        let clock: Arc<dyn Clock> = clock.clone();
        Volume::mount(device.clone(), clock, options.clone())
    };
    let volume = mount()?;
    let root = volume.resolve(b"/")?;
    for dir in [b"a", b"b"] {
        volume.mkdir(&root, dir, &Create { mode: 0o755, uid: 0, gid: 0 })?;
    }
    drop(root);
    for n in 0..syncs {
        file(&volume, &format!("/a/f{n}"))?;
    }
    file(&volume, "/b/other")?;
    volume.unmount()?;

    let volume = mount()?;
    let files = (0..syncs).map(|n| volume.resolve(format!("/a/f{n}").as_bytes()));
    let files = files.collect::<std::result::Result<Vec<InodeRef>, _>>()?;
    let other = volume.resolve(b"/b/other")?;
    let start: Counts = device.begin_phase();
    for (n, each) in files.iter().enumerate() {
        clock.sleep_until(clock.now_ns() + BETWEEN_SYNCS_NS);
        let file = match (locality, files.first()) {
            (Locality::Same, Some(first)) => first,
            _ => each,
        };
        volume.write(&other, 0, &[n as u8; BLOCK])?;
        volume.write(file, 0, &[n as u8; BLOCK])?;
        volume.fsync(file, false)?;
    }
    drop((files, other));
    volume.unmount()?;
    let counts = device.counts() - start;
    Ok(Cost {
        blocks: counts.written_bytes() / BLOCK as u64,
        requests: counts.write_requests(),
        // The device has FUA; the model counts for one that has not.
        flushes: counts.flushes() + counts.journal.fua_writes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRTY: Dirty = Dirty { metadata: 2, other_metadata: 3, data: 5, other_data: 7 };

    #[test]
    fn the_equations_stand_as_printed() {
        // By hand: N = 10, M = 2, M' = 3, D = 5, D' = 7.
        assert_eq!(paper::ordered_blocks(10, &DIRTY), 10 * (5 + 17));
        assert_eq!(paper::eager_blocks(10, &DIRTY, Locality::Same), 10 * 7 + 5 + 17);
        assert_eq!(paper::eager_blocks(10, &DIRTY, Locality::Distinct), 10 * 7 + 10 * 5 + 10 * 17);
        assert_eq!(paper::ordered_requests(10), 50);
        assert_eq!(paper::eager_requests(10, Locality::Same), 15);
        assert_eq!(paper::eager_requests(10, Locality::Distinct), 51);
    }

    #[test]
    fn without_locality_the_paper_pays_the_log_twice_and_we_do_not() {
        let extra =
            paper::eager_blocks(10, &DIRTY, Locality::Distinct) - paper::ordered_blocks(10, &DIRTY);
        assert_eq!(extra, 10 * (DIRTY.metadata + DIRTY.data), "section 4.4, last paragraph");
        let place = InPlace { metadata: 23, metadata_requests: 1, data: 50, data_requests: 10 };
        let (log, n) = (Log::default(), 10);
        let more = eager(n, &DIRTY, &log, &place).blocks;
        let less = ordered(n, &DIRTY, &log, &place).blocks;
        // D is written twice, but M' leaves the syncs.
        assert_eq!(more, less + n * DIRTY.data - (n - 1) * DIRTY.other_metadata + log.blocks());
    }

    #[test]
    fn counts_of_one_overwrite_are_those_of_the_kernel_and_of_the_burst() {
        let alone = Dirty { metadata: 1, other_metadata: 0, data: 1, other_data: 0 };
        let place = InPlace { metadata: 0, metadata_requests: 0, data: 0, data_requests: 0 };
        let log = Log::default();
        let kernel = Cost { blocks: 4, requests: 3, flushes: 2 };
        assert_eq!(ordered(1, &alone, &log, &place), kernel);
        let burst = Cost { blocks: 4, requests: 1, flushes: 1 };
        assert_eq!(eager(1, &alone, &log, &place), burst);
    }
}
