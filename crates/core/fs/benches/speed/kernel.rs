//! The running kernel's ext4, by system calls.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use syncline_testkit::{LoopDevice, Need};

use super::{Figures, Sizes, Subject, Work, gb, image_spec, measure, names};

pub(super) struct Kernel;

impl Kernel {
    pub(super) fn new() -> Result<Kernel, String> {
        match [Need::E2fsck, Need::Root, Need::Loop].into_iter().find_map(Need::missing) {
            Some(missing) => Err(missing),
            None => Ok(Kernel),
        }
    }
}

impl Subject for Kernel {
    fn round(&mut self, sizes: &Sizes) -> Result<Figures, String> {
        let stock = syncline_testkit::mkfs(&image_spec());
        let place = super::libext2fs::in_memory(stock.path())?;
        let device = LoopDevice::attach(&place)?;
        let mut figures = Figures::new();
        let mount = device.mount("")?;
        names_round(mount.path(), sizes, &mut figures).map_err(|err| err.to_string())?;
        data_round(mount.path(), sizes, &mut figures).map_err(|err| err.to_string())?;
        mount.unmount()?;
        let mount = device.mount("")?;
        read_round(mount.path(), sizes, &mut figures).map_err(|err| err.to_string())?;
        mount.unmount()?;
        Ok(figures)
    }
}

fn names_round(root: &Path, sizes: &Sizes, figures: &mut Figures) -> io::Result<()> {
    let names = names(sizes);
    let count = names.len() as f64;
    let path = root.join("d");
    fs::create_dir(&path)?;
    let dir = rustix::fs::openat(CWD, &path, OFlags::DIRECTORY, Mode::empty())?;
    measure(figures, Work::Create, count, || {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        names.iter().try_for_each(|name| {
            rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        })
    })?;
    measure(figures, Work::Lookup, count, || {
        names.iter().try_for_each(|name| {
            std::hint::black_box(rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?);
            io::Result::Ok(())
        })
    })?;
    measure(figures, Work::List, count, || {
        for entry in rustix::fs::Dir::read_from(&dir)? {
            let entry = entry?;
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            std::hint::black_box(rustix::fs::statat(&dir, entry.file_name(), flags)?);
        }
        io::Result::Ok(())
    })?;
    measure(figures, Work::Unlink, count / 2.0, || {
        names
            .iter()
            .step_by(2)
            .try_for_each(|name| rustix::fs::unlinkat(&dir, name, AtFlags::empty()))
    })?;
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn data_round(root: &Path, sizes: &Sizes, figures: &mut Figures) -> io::Result<()> {
    let buffer = vec![7u8; 1 << 20];
    let small = open(&root.join("over"))?;
    for mib in 0..16 {
        small.write_all_at(&buffer, mib << 20)?;
    }
    small.sync_all()?;
    measure(figures, Work::Overwrite, gb(sizes.overwrites * 4096), || {
        (0..sizes.overwrites)
            .try_for_each(|i| small.write_all_at(&buffer[..4096], i * 37 % 4096 * 4096))
    })?;
    for work in [Work::Write, Work::WriteAgain] {
        let large = open(&root.join("seq"))?;
        measure(figures, work, gb(sizes.file_mib << 20), || {
            for mib in 0..sizes.file_mib {
                large.write_all_at(&buffer, mib << 20)?;
            }
            large.sync_all()
        })?;
        if work == Work::Write {
            drop(large);
            fs::remove_file(root.join("seq"))?;
            rustix::fs::syncfs(File::open(root)?)?;
        }
    }
    Ok(())
}

fn read_round(root: &Path, sizes: &Sizes, figures: &mut Figures) -> io::Result<()> {
    let large = open(&root.join("seq"))?;
    let mut buffer = vec![0u8; 1 << 20];
    for work in [Work::ReadCold, Work::ReadWarm] {
        measure(figures, work, gb(sizes.file_mib << 20), || {
            (0..sizes.file_mib).try_for_each(|mib| large.read_exact_at(&mut buffer, mib << 20))
        })?;
    }
    Ok(())
}
