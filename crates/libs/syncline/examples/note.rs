//! Adds a file to an ext4 image. The README shows this code.

use std::{env, path::Path};

use syncline::{Access, Disk, OpenOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = env::args().nth(1).ok_or("usage: note IMAGE")?;
    let disk = Disk::open(Path::new(&image), &OpenOptions::default())?;
    let file = disk.open_file(b"/note", Access::CREATE, 0o644)?;
    file.write(b"kept through a power cut\n")?;
    file.sync(false)?; // durable from here on, as after fsync(2); `true` means fdatasync(2)
    drop(file);
    disk.close()?; // a plain, clean ext4 again
    Ok(())
}
