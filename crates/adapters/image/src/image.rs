//! Images: mounted volumes.
//!
//! Reading never writes to the image. An image whose journal has to be replayed is recovered in
//! memory, and that is mounted.

use std::path::Path;
use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, Kind, Origin};
use syncline_fs::{MountOptions, MountReport, Rescue, Volume};
use syncline_ondisk::Superblock;
use syncline_ondisk::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};

use crate::copy::volume::VolumeSide;
use crate::partition::{listed, partitions};
use crate::{ImageError, Result, Watch, container};

/// Memory of a volume's cache in WebAssembly, which never gives memory back.
const BROWSER_CACHE_BYTES: u64 = 16 << 20;

/// A mounted image.
pub struct Image {
    /// The volume.
    pub vol: Volume,
    /// Report of the mount.
    pub report: MountReport,
    /// The replay, if there was one, went to memory only.
    pub in_memory: bool,
    clock: Arc<dyn Clock>,
}

/// Reads the superblock, whatever its features are.
///
/// # Errors
/// There is none.
pub fn superblock(dev: &dyn BlockDevice, path: &Path) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if dev.geometry().size_bytes < SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64 {
        let text = "too small to hold an ext4; check that it is the right file";
        return Err(ImageError::Corrupt(text.into()).at(path.display()));
    }
    dev.read(SUPERBLOCK_OFFSET, &mut bytes, Origin::new(Kind::Metadata, true))?;
    Superblock::decode(&bytes).map_err(|_| {
        // A table that is damaged too says nothing of use here.
        let table = partitions(dev).unwrap_or_default();
        let text = if let Some(named) = container::named(dev) {
            named
        } else if table.is_empty() {
            "no ext4 superblock; check that it is the right file or partition".to_owned()
        } else {
            format!("a whole disk with the partitions {}; give --partition N", listed(dev, &table))
        };
        ImageError::Corrupt(text).at(path.display())
    })
}

/// Options of every mount here.
fn options() -> MountOptions {
    let usual = MountOptions::default();
    match cfg!(target_family = "wasm") {
        true => usual.with(|options| options.cache_bytes = BROWSER_CACHE_BYTES),
        false => usual,
    }
}

fn mount(
    dev: Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    read_only: bool,
) -> Result<(Volume, MountReport)> {
    let mut options = options().with(|options| options.read_only = read_only);
    if !read_only {
        // A tool that lists and copies is no user of the files.
        options.apply("noatime")?;
    }
    Ok(Volume::mount_report(dev, Arc::clone(clock), options)?)
}

impl Image {
    /// Mounts a device for reading, which is not written to; with `rescue` past its damage. `path`
    /// is for messages.
    ///
    /// # Errors
    /// No ext4, a feature that is not supported.
    pub fn read_device(
        dev: Arc<dyn BlockDevice>,
        clock: &Arc<dyn Clock>,
        rescue: Option<Rescue>,
        path: &Path,
    ) -> Result<Image> {
        let at = |err: ImageError| err.at(path.display());
        if rescue.is_some() {
            let options =
                options().with(|options| (options.read_only, options.rescue) = (true, rescue));
            let mounted = Volume::mount_report(dev, Arc::clone(clock), options);
            let (vol, report) = mounted.map_err(|err| at(err.into()))?;
            return Ok(Image { vol, report, in_memory: true, clock: Arc::clone(clock) });
        }
        superblock(&*dev, path)?;
        let cache_bytes = options().cache_bytes;
        let recovered = Volume::recovered_in_memory(&dev, clock, cache_bytes);
        let recovered = recovered.map_err(|err| at(err.into()))?;
        let in_memory = recovered.is_some();
        let (dev, replayed) = recovered.map_or((dev, None), |(dev, report)| (dev, Some(report)));
        let (vol, report) = mount(dev, clock, true).map_err(at)?;
        let report = replayed.unwrap_or(report);
        Ok(Image { vol, report, in_memory, clock: Arc::clone(clock) })
    }

    /// Remarks on a journal that was replayed in memory only, and on damage.
    pub fn tell(&self, path: &Path, watch: &dyn Watch) {
        if self.in_memory && self.report.transactions_replayed > 0 {
            watch.remark(&format!(
                "{}: the journal was replayed in memory only; `syncline recover` writes it",
                path.display()
            ));
        }
        for what in self.vol.take_missing() {
            watch.remark(&format!("{}: missing: {what}", path.display()));
        }
    }

    /// Mounts a device for writing. `path` is for messages.
    ///
    /// # Errors
    /// As of [`Image::read_device`].
    pub fn write_device(
        dev: Arc<dyn BlockDevice>,
        clock: &Arc<dyn Clock>,
        path: &Path,
    ) -> Result<Image> {
        superblock(&*dev, path)?;
        let (vol, report) = mount(dev, clock, false).map_err(|err| err.at(path.display()))?;
        Ok(Image { vol, report, in_memory: false, clock: Arc::clone(clock) })
    }

    /// The image as a side of a copy. `id` tells inode numbers of several images apart.
    pub(crate) fn side(&self, id: u64, name: &str) -> VolumeSide {
        VolumeSide::new(self.vol.clone(), Arc::clone(&self.clock), id, name.to_owned())
    }

    /// Unmounts, also after `done` failed; the first failure counts.
    ///
    /// # Errors
    /// That of `done`, else that of the unmount.
    pub fn close<T, E: From<ImageError>>(
        self,
        done: std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if self.in_memory || self.vol.is_read_only() {
            return done;
        }
        let closed = self.vol.unmount();
        match (done, closed) {
            (Ok(value), Ok(())) => Ok(value),
            (Ok(_), Err(err)) => Err(ImageError::from(err).into()),
            // What latched the volume is what was reported.
            (Err(err), _) => Err(err),
        }
    }
}
