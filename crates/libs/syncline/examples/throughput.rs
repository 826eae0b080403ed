//! Throughput of the volume from Rust, the yardstick of `cargo xtask run bench-libraries`.
//!
//! `throughput IMAGE stream MIB` writes and reads a file in blocks of 1 MiB, `throughput IMAGE sync
//! COUNT` overwrites 4 KiB at scattered places of 16 MiB, with an fsync each. Prints nanoseconds.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use syncline::{Create, FileDevice, FileOptions, MountOptions, Volume, WallClock};

const MIB: usize = 1 << 20;
const SPREAD: u64 = 16 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, image, what, count] = words.as_slice() else { return Err("IMAGE WHAT COUNT".into()) };
    let count: u64 = count.parse()?;
    let device = FileDevice::open(Path::new(image), FileOptions::default())?;
    let options = MountOptions::default();
    let volume = Volume::mount(Arc::new(device), Arc::new(WallClock::new()), options)?;
    let root = volume.root()?;
    let create = Create { mode: 0o644, uid: 0, gid: 0 };
    let file = volume.create(&root, format!("rust-{what}").as_bytes(), &create)?;
    let mut block = vec![b'x'; MIB];
    if what == "stream" {
        let begin = Instant::now();
        for at in 0..count {
            volume.write(&file, at << 20, &block)?;
        }
        volume.fsync(&file, false)?;
        print!("{} ", begin.elapsed().as_nanos());
        let begin = Instant::now();
        for at in 0..count {
            volume.read(&file, at << 20, &mut block)?;
        }
        println!("{}", begin.elapsed().as_nanos());
    } else {
        for at in 0..SPREAD >> 20 {
            volume.write(&file, at << 20, &block)?;
        }
        volume.fsync(&file, false)?;
        let begin = Instant::now();
        for at in 0..count {
            volume.write(&file, at * 7919 * 4096 % SPREAD, &block[..4096])?;
            volume.fsync(&file, false)?;
        }
        println!("{}", begin.elapsed().as_nanos());
    }
    volume.unlink(&root, format!("rust-{what}").as_bytes())?;
    drop((root, file));
    Ok(volume.unmount()?)
}
