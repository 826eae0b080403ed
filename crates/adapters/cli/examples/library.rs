//! The volume as a library: adds a file to an ext4 image. The README shows this code.

use std::{env, error::Error, path::Path, sync::Arc};

use syncline_device::{FileDevice, FileOptions, WallClock};
use syncline_fs::{Create, MountOptions, Volume};

fn main() -> Result<(), Box<dyn Error>> {
    let image = env::args().nth(1).ok_or("usage: library IMAGE")?;
    let device = FileDevice::open(Path::new(&image), FileOptions::default())?;
    let options = MountOptions::default();
    let volume = Volume::mount(Arc::new(device), Arc::new(WallClock::new()), options)?;

    let root = volume.root()?;
    let file = volume.create(&root, b"note", &Create { mode: 0o644, uid: 0, gid: 0 })?;
    volume.write(&file, 0, b"kept through a power cut\n")?;
    volume.fsync(&file, false)?; // one sequential write and one flush; durable from here on

    drop((root, file));
    volume.unmount()?; // a plain, clean ext4 again
    Ok(())
}
