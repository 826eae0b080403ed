//! Our volume on a memory device whose memory is taken before the measurement.

use std::sync::Arc;

use syncline_device::{MemoryDevice, VirtualClock};
use syncline_fs::{Create, DirEntry, InodeRef, MountOptions, SyncMode, Volume};

use super::{Figures, Sizes, Subject, Work, gb, image_spec, measure, names};

pub(super) struct Ours;

fn mount(device: &Arc<MemoryDevice>) -> Result<Volume, String> {
    // As much as the kernel uses here; the bound has a test of its own.
    let options = MountOptions::default().with(|options| {
        options.sync = SyncMode::Ordered;
        options.cache_bytes = 1 << 30;
    });
    Volume::mount(device.clone(), Arc::new(VirtualClock::default()), options)
        .map_err(|err| err.to_string())
}

impl Subject for Ours {
    fn round(&mut self, sizes: &Sizes) -> Result<Figures, String> {
        let image = syncline_testkit::mkfs(&image_spec());
        let device = MemoryDevice::load(image.path()).map_err(|err| err.to_string())?;
        device.populate();
        let device = Arc::new(device);
        let mut figures = Figures::new();
        let volume = mount(&device)?;
        names_round(&volume, sizes, &mut figures).map_err(|err| err.to_string())?;
        data_round(&volume, sizes, &mut figures).map_err(|err| err.to_string())?;
        volume.unmount().map_err(|err| err.to_string())?;
        let volume = mount(&device)?;
        read_round(&volume, sizes, &mut figures).map_err(|err| err.to_string())?;
        volume.unmount().map_err(|err| err.to_string())?;
        Ok(figures)
    }
}

const OWNER: Create = Create { mode: 0o755, uid: 0, gid: 0 };

fn names_round(
    volume: &Volume,
    sizes: &Sizes,
    figures: &mut Figures,
) -> Result<(), syncline_fs::FsError> {
    let names = names(sizes);
    let count = names.len() as f64;
    let dir = volume.mkdir(&volume.root()?, b"d", &OWNER)?;
    measure(figures, Work::Create, count, || {
        names.iter().try_for_each(|name| volume.create(&dir, name.as_bytes(), &OWNER).map(drop))
    })?;
    measure(figures, Work::Lookup, count, || {
        names.iter().try_for_each(|name| {
            let inode = volume.lookup(&dir, name.as_bytes())?;
            std::hint::black_box(volume.getattr(&inode));
            Ok::<(), syncline_fs::FsError>(())
        })
    })?;
    measure(figures, Work::List, count, || list(volume, &dir))?;
    measure(figures, Work::Unlink, count / 2.0, || {
        names.iter().step_by(2).try_for_each(|name| volume.unlink(&dir, name.as_bytes()))
    })
}

fn list(volume: &Volume, dir: &InodeRef) -> Result<(), syncline_fs::FsError> {
    let mut result = Ok(());
    volume.readdir(dir, 0, &mut |entry: DirEntry<'_>| {
        result = volume.lookup(dir, entry.name).map(|inode| {
            std::hint::black_box(volume.getattr(&inode));
        });
        result.is_ok()
    })?;
    result
}

fn data_round(
    volume: &Volume,
    sizes: &Sizes,
    figures: &mut Figures,
) -> Result<(), syncline_fs::FsError> {
    let root = volume.root()?;
    let buffer = vec![7u8; 1 << 20];
    let small = volume.create(&root, b"over", &OWNER)?;
    for mib in 0..16 {
        volume.write(&small, mib << 20, &buffer)?;
    }
    volume.fsync(&small, false)?;
    measure(figures, Work::Overwrite, gb(sizes.overwrites * 4096), || {
        (0..sizes.overwrites)
            .try_for_each(|i| volume.write(&small, i * 37 % 4096 * 4096, &buffer[..4096]).map(drop))
    })?;
    for work in [Work::Write, Work::WriteAgain] {
        let large = volume.create(&root, b"seq", &OWNER)?;
        measure(figures, work, gb(sizes.file_mib << 20), || {
            for mib in 0..sizes.file_mib {
                volume.write(&large, mib << 20, &buffer)?;
            }
            volume.fsync(&large, false)
        })?;
        if work == Work::Write {
            drop(large);
            volume.unlink(&root, b"seq")?;
            volume.syncfs()?;
        }
    }
    Ok(())
}

fn read_round(
    volume: &Volume,
    sizes: &Sizes,
    figures: &mut Figures,
) -> Result<(), syncline_fs::FsError> {
    let large = volume.lookup(&volume.root()?, b"seq")?;
    let mut buffer = vec![0u8; 1 << 20];
    for work in [Work::ReadCold, Work::ReadWarm] {
        measure(figures, work, gb(sizes.file_mib << 20), || {
            (0..sizes.file_mib)
                .try_for_each(|mib| volume.read(&large, mib << 20, &mut buffer).map(drop))
        })?;
    }
    Ok(())
}
