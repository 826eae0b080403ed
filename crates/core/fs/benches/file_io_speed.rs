//! Speed of cached overwrites, reads and sequential writes in process, on a memory device.
//!
//! ```text
//! cargo bench -p syncline-fs --bench file_io_speed
//! ```
//!
//! Wall-clock figures of this machine: only their ratios to a peer in the same run mean anything.

use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use syncline_device::{BlockDevice, Clock, MemoryDevice, WallClock};
use syncline_fs::{InodeRef, MountOptions, Volume};

const MIB: usize = 1 << 20;

/// A fresh volume with one empty file.
fn volume() -> Result<(Volume, InodeRef), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("image");
    std::fs::File::create(&image)?.set_len(1280 * MIB as u64)?;
    let status =
        Command::new("mke2fs").args(["-q", "-t", "ext4", "-b", "4096"]).arg(&image).status()?;
    if !status.success() {
        return Err("mke2fs failed; install e2fsprogs".into());
    }
    let bytes = std::fs::read(&image)?;
    let dev = MemoryDevice::from_bytes(&bytes);
    dev.populate();
    let dev: Arc<dyn BlockDevice> = Arc::new(dev);
    drop(bytes);
    let clock: Arc<dyn Clock> = Arc::new(WallClock::new());
    let volume = Volume::mount(dev, clock, MountOptions::parse("sync=ordered,cache=256M")?)?;
    let create = syncline_fs::Create::default();
    let file = volume.create(&volume.root()?, b"file", &create)?;
    Ok((volume, file))
}

/// Wall time and, since machines are shared, processor time of this thread.
struct Started {
    wall: Instant,
    cpu_ns: u64,
}

impl Started {
    fn now() -> Started {
        Started { wall: Instant::now(), cpu_ns: cpu_ns() }
    }

    fn report(&self, what: &str, bytes: usize, calls: usize) {
        let wall_ns = self.wall.elapsed().as_nanos() as f64;
        let cpu_ns = (cpu_ns() - self.cpu_ns) as f64;
        let (bytes, calls) = (bytes as f64, calls as f64);
        println!(
            "{what:<42} {:>6.2} GB/s wall {:>6.2} GB/s cpu {:>9.0} ns/call cpu",
            bytes / wall_ns,
            bytes / cpu_ns,
            cpu_ns / calls
        );
    }
}

/// Time on a processor of this thread, from the scheduler's statistics; 0 where there are none.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn overwrites(volume: &Volume, file: &InodeRef) -> Result<(), Box<dyn Error>> {
    let data = vec![7u8; 4096];
    volume.write(file, 0, &vec![1u8; 16 * MIB])?;
    volume.fsync(file, false)?;
    let calls = 400_000;
    let started = Started::now();
    for i in 0..calls {
        volume.write(file, (i * 2_654_435_761 % 4096 * 4096) as u64, &data)?;
    }
    started.report("cached 4 KiB overwrites, 16 MiB file", calls * 4096, calls);
    let mut into = vec![0u8; 4096];
    let started = Started::now();
    for i in 0..calls {
        volume.read(file, (i * 2_654_435_761 % 4096 * 4096) as u64, &mut into)?;
    }
    started.report("cached 4 KiB reads, 16 MiB file", calls * 4096, calls);
    Ok(())
}

fn sequential(volume: &Volume, file: &InodeRef) -> Result<(), Box<dyn Error>> {
    let data = vec![9u8; MIB];
    for what in ["new blocks", "overwriting"] {
        let started = Started::now();
        for i in 0..1024 {
            volume.write(file, (i * MIB) as u64, &data)?;
        }
        volume.fsync(file, false)?;
        started.report(&format!("sequential 1 MiB writes + fsync, {what}"), 1024 * MIB, 1024);
    }
    let mut into = vec![0u8; MIB];
    let started = Started::now();
    for i in 0..1024 {
        volume.read(file, (i * MIB) as u64, &mut into)?;
    }
    started.report("sequential 1 MiB reads, not cached", 1024 * MIB, 1024);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (volume, file) = volume()?;
    overwrites(&volume, &file)?;
    sequential(&volume, &file)?;
    println!("{:?}", volume.cache_stats());
    drop(file);
    volume.unmount()?;
    Ok(())
}
