//! Cost of a helper process, for `cargo xtask run bench-isolate`: calls and bytes a second with the
//! option `isolate`, as a share of those without.
//!
//! `isolate PROGRAM DIR` makes an image in DIR. The two take turns; of each the fastest round
//! counts, since the machine can only add to a time.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use syncline::{Access, At, Disk, Make, OpenOptions};

const MIB: usize = 1 << 20;
const ROUNDS: usize = 7;
const CALLS: u64 = 20_000;
const SYNCS: u64 = 500;
const STREAM_MIB: u64 = 256;

/// Names of the figures; the streams last.
const NAMES: [&str; 6] = [
    "open and close a volume",
    "stat by path",
    "read 4 KiB",
    "write 4 KiB and fsync",
    "write a stream",
    "read a stream",
];

/// Nanoseconds of each.
fn measure(image: &Path, options: &OpenOptions) -> syncline::Result<[u128; NAMES.len()]> {
    let mut found = [0; NAMES.len()];
    let mut begin = Instant::now();
    Disk::open(image, options)?.close()?;
    let mut took = |at: usize, begin: &mut Instant| {
        found[at] = begin.elapsed().as_nanos();
        *begin = Instant::now();
    };
    took(0, &mut begin);
    let disk = Disk::open(image, options)?;
    let file = disk.open_file(b"/stream", Access::CREATE, 0o644)?;
    let mut block = vec![b'x'; MIB];
    begin = Instant::now();
    for _ in 0..STREAM_MIB {
        file.write(&block)?;
    }
    file.sync(true)?;
    took(4, &mut begin);
    for at in 0..STREAM_MIB {
        file.read_at(at << 20, &mut block)?;
    }
    took(5, &mut begin);
    for _ in 0..CALLS {
        disk.stat(b"/stream", At::Follow)?;
    }
    took(1, &mut begin);
    for at in 0..CALLS {
        file.read_at(at * 7919 * 4096 % (STREAM_MIB << 20), &mut block[..4096])?;
    }
    took(2, &mut begin);
    for at in 0..SYNCS {
        file.write_at(at * 7919 * 4096 % (STREAM_MIB << 20), &block[..4096])?;
        file.sync(true)?;
    }
    took(3, &mut begin);
    drop(file);
    disk.unlink(b"/stream")?;
    disk.close()?;
    Ok(found)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, program, dir] = words.as_slice() else { return Err("PROGRAM DIR".into()) };
    let image = Path::new(dir).join("isolate.img");
    Make::default().with(|make| make.size_bytes = Some(1 << 30)).image(&image)?;
    let ways = [OpenOptions::default(), OpenOptions::parse(&format!("isolate={program}"))?];
    let mut best = [[u128::MAX; NAMES.len()]; 2];
    for _ in 0..ROUNDS {
        for (best, options) in best.iter_mut().zip(&ways) {
            let found = measure(&image, options)?;
            best.iter_mut().zip(found).for_each(|(best, found)| *best = found.min(*best));
        }
    }
    std::fs::remove_file(&image)?;
    let [here, there] = best;
    println!("{:24}{:>12}", "", "of none");
    for (name, (here, there)) in NAMES.iter().zip(here.iter().zip(&there)) {
        println!("{name:24}{:12.3}", *here as f64 / *there as f64);
    }
    Ok(())
}
