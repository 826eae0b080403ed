//! Processor time of fsync and of cached overwrites with each format of the log, on a memory
//! device.
//!
//! ```text
//! cargo bench -p syncline-fs --bench log_speed -- [rounds=5] [only=jbd2|packed]
//! valgrind --tool=callgrind --toggle-collect='*measured*' LOG_SPEED rounds=1 only=packed
//! ```
//!
//! The formats take turns; each figure is the best of the rounds. On a loaded machine instructions
//! are the better figure: the second command, on the built program, counts those of
//! the measured calls.

use std::error::Error;
use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::time::{ClockId, clock_gettime};
use syncline_device::{Clock, MemoryDevice, VirtualClock};
use syncline_fs::{Create, InodeRef, MountOptions, Volume};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PAGE: usize = 4096;
/// Pages of the file.
const PAGES: u64 = 4096;
const SYNCS: u64 = 2000;
const OVERWRITES: u64 = 100_000;
const OWNER: Create = Create { mode: 0o644, uid: 0, gid: 0 };
const FORMATS: [&str; 2] = ["jbd2", "packed"];
const WORKS: [&str; 4] = [
    "4 KiB of noise, fsync",
    "100 bytes of a page, fsync",
    "create, 4 KiB, fsync",
    "cached 4 KiB overwrite of a synced page",
];

fn cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Processor time of a call, in nanoseconds. Not inlined: callgrind finds it by its name.
#[inline(never)]
fn measured(calls: u64, mut call: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let start = cpu_ns();
    for n in 0..calls {
        call(n)?;
    }
    Ok((cpu_ns() - start) / calls as f64)
}

/// Contents for each call, made before the clock runs.
fn noise(rng: &mut ChaCha8Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes[..]);
    bytes
}

fn place(n: u64) -> u64 {
    n * 37 % PAGES * PAGE as u64
}

fn syncs(volume: &Volume, clock: &VirtualClock, file: &InodeRef, bytes: &[u8]) -> Result<[f64; 2]> {
    // A tick of the timestamps between two syncs, as on a device that takes its time.
    let step = |n: u64, len: usize, skip: u64| -> Result<()> {
        clock.sleep_until(clock.now_ns() + 5_000_000);
        let from = n as usize * 509 % (bytes.len() - PAGE);
        volume.write(file, place(n) + skip, &bytes[from..from + len])?;
        Ok(volume.fsync(file, false)?)
    };
    let whole = measured(SYNCS, |n| step(n, PAGE, 0))?;
    Ok([whole, measured(SYNCS, |n| step(n, 100, 1000))?])
}

fn round(format: &str) -> Result<[f64; 4]> {
    let image = syncline_testkit::mkfs(&syncline_testkit::ImageSpec::with_size(512 << 20));
    let device = MemoryDevice::load(image.path())?;
    device.populate();
    let clock = Arc::new(VirtualClock::default());
    let options = MountOptions::parse(&format!("sync=eager,cache=64M,log={format}"))?;
    let volume = Volume::mount(Arc::new(device), clock.clone(), options)?;
    let root = volume.root()?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let bytes = noise(&mut rng, 1 << 20);
    let file = volume.create(&root, b"file", &OWNER)?;
    for mib in 0..16 {
        volume.write(&file, mib << 20, &bytes)?;
    }
    volume.sync()?;
    let [whole, part] = syncs(&volume, &clock, &file, &bytes)?;
    let created = measured(SYNCS, |n| {
        clock.sleep_until(clock.now_ns() + 5_000_000);
        let new = volume.create(&root, format!("f{n:05}").as_bytes(), &OWNER)?;
        volume.write(&new, 0, &bytes[n as usize..n as usize + PAGE])?;
        Ok(volume.fsync(&new, false)?)
    })?;
    // Every page has a base now, so each first overwrite is compared with it.
    for n in 0..PAGES {
        volume.write(&file, place(n), &bytes[..PAGE])?;
        if n % 64 == 63 {
            volume.fsync(&file, false)?;
        }
    }
    let overwritten = measured(OVERWRITES, |n| {
        let from = n as usize * 509 % (bytes.len() - PAGE);
        Ok(volume.write(&file, place(n), &bytes[from..from + PAGE]).map(drop)?)
    })?;
    drop((file, root));
    volume.unmount()?;
    Ok([whole, part, created, overwritten])
}

fn main() -> Result<()> {
    let (mut rounds, mut only) = (5, String::new());
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("rounds", value)) => rounds = value.parse()?,
            Some(("only", value)) => value.clone_into(&mut only),
            // `--bench` comes from cargo.
            _ if argument == "--bench" => {}
            _ => return Err(format!("unknown argument {argument}: rounds=N, only=FORMAT").into()),
        }
    }
    let mut best = [[f64::INFINITY; 4]; 2];
    for _ in 0..rounds {
        for (format, best) in FORMATS.iter().zip(&mut best) {
            if !only.is_empty() && only != *format {
                continue;
            }
            for (ns, best) in round(format)?.into_iter().zip(best) {
                *best = ns.min(*best);
            }
        }
    }
    println!(
        "{:<42}{:>9}{:>9}{:>9}",
        "ns of processor time, best of rounds", "jbd2", "packed", "ratio"
    );
    let [jbd2, packed] = best;
    for ((work, jbd2), packed) in WORKS.iter().zip(jbd2).zip(packed) {
        println!("{work:<42}{jbd2:>9.0}{packed:>9.0}{:>9.2}", packed / jbd2);
    }
    Ok(())
}
