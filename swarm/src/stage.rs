//! Target of a download: a fresh ext4 in memory, mounted, with every command recorded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use syncline_device::{Clock, Counts, MemoryDevice, RecordingDevice, TraceEvent, WallClock};
use syncline_fs::Volume;
use syncline_fuse::{FuseOptions, Mount, Setup};
use syncline_lab::bench::{Image, ImageSource};

/// Commands kept at most; a download of 16 GiB in the worst order has as many.
const EVENTS_MAX: usize = 1 << 20;
/// A writer writes back itself from this share of the cache on, per cent; half of it starts the
/// background.
const DIRTY_PERCENT: u64 = 20;

/// A directory for one download.
pub(crate) struct Stage {
    dir: PathBuf,
    mounted: Option<Mounted>,
    /// Directory that holds the mount point; removed at the end.
    _place: tempfile::TempDir,
}

struct Mounted {
    mount: Mount,
    device: Arc<RecordingDevice<MemoryDevice>>,
    last: Mutex<Counts>,
}

/// Device traffic of a part of a run.
pub(crate) struct Recorded {
    pub(crate) counts: Counts,
    pub(crate) events: Vec<TraceEvent>,
    /// Commands that did not fit, since the start.
    pub(crate) events_lost: u64,
}

impl Stage {
    /// A plain directory in `parent`.
    pub(crate) fn plain(parent: &Path) -> Result<Stage> {
        let place = tempfile::tempdir_in(parent)?;
        Ok(Stage { dir: place.path().to_owned(), mounted: None, _place: place })
    }

    /// A mount whose cache takes `dirty_bytes` of written data before it must write them.
    pub(crate) fn mounted(parent: &Path, size_bytes: u64, dirty_bytes: u64) -> Result<Stage> {
        let place = tempfile::tempdir_in(parent)?;
        let image = Image::load(&ImageSource::Mke2fs { size_bytes })?;
        let clock: Arc<dyn Clock> = Arc::new(WallClock::new());
        let device = image.snapshot();
        let device = RecordingDevice::with_events(device, Arc::clone(&clock), EVENTS_MAX);
        let device = Arc::new(device);
        let mut options = FuseOptions::default();
        options.volume.cache_bytes = dirty_bytes * 100 / DIRTY_PERCENT;
        options.volume.dirty_ratio = DIRTY_PERCENT as u32;
        options.volume.dirty_background_ratio = DIRTY_PERCENT as u32 / 2;
        let below = Arc::clone(&device);
        let volume = Volume::mount(below, Arc::clone(&clock), options.volume.clone())?;
        let counted = Arc::clone(&device);
        let setup = Setup {
            counts: Arc::new(move || counted.counts()),
            log: Arc::new(|line| eprintln!("syncline-swarm: the mount: {line}")),
            ..Setup::new(volume.clone(), clock, options, PathBuf::from("swarm"))
        };
        let mount = match Mount::start(setup, place.path()) {
            Ok(mount) => mount,
            Err(error) => {
                // Nothing was written that anybody needs.
                let _ = volume.unmount();
                return Err(error).context("mounting; give --plain to measure without a trace");
            }
        };
        let mounted = Some(Mounted { mount, device, last: Mutex::default() });
        Ok(Stage { dir: place.path().to_owned(), mounted, _place: place })
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the device traffic since the last call; `None` for a plain directory.
    pub(crate) fn begin_phase(&self) -> Option<Recorded> {
        let Mounted { device, last, .. } = self.mounted.as_ref()?;
        let now = device.begin_phase();
        let counts = now - std::mem::replace(&mut *last.lock(), now);
        let (events, events_lost) = (device.take_events(), device.events_lost());
        Some(Recorded { counts, events, events_lost })
    }

    /// Takes down the mount.
    pub(crate) fn end(mut self) -> Result<()> {
        let Some(Mounted { mount, .. }) = self.mounted.take() else { return Ok(()) };
        mount.end().volume.context("unmounting")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // After an error: that one is told, not what it does to the volume.
        if let Some(Mounted { mount, .. }) = self.mounted.take() {
            let _ = mount.end();
        }
    }
}
