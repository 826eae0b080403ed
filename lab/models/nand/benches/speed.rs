//! Speed of the model, wall clock: `cargo xtask run bench-nand`. Host writes of 4 KiB at random
//! places of a device that is used to 90 %, with collection or merging; one core.

use std::time::Instant;
use syncline_device::SplitMix64;
use syncline_nand::{Profile, Simulator};

const SIZE: u64 = 1 << 30;
const WRITES: u64 = 4_000_000;

fn main() {
    let small = "generic-emmc:planes=1,page_kib=4,pages_per_block=64,buffer_kib=0,queue_depth=1";
    for scheme in [
        "mapping=page,streams=1,merge_kib=4,close_map_programs=0,map_cache_segments=0",
        "mapping=zone,streams=1,merge_kib=4,close_map_programs=0",
        "mapping=dftl,streams=1,merge_kib=4,close_map_programs=0",
        "mapping=bast,log_blocks=16",
        "mapping=fast,log_blocks=16",
        "mapping=block,log_blocks=16",
    ] {
        let spec = format!("{small},{scheme}");
        let profile = Profile::parse_built_in(&spec).expect("the profile above is valid");
        let mut device = Simulator::new(&profile, SIZE).expect("and so is its size");
        device.precondition(90, 1);
        let mut rng = SplitMix64::new(2);
        let units = SIZE / 10 * 9 / 4096;
        let (started, mut now_ns) = (Instant::now(), 0);
        for _ in 0..WRITES {
            now_ns = device.write(now_ns, rng.below(units) * 4096, 4096, false);
        }
        let per_second = WRITES as f64 / started.elapsed().as_secs_f64();
        let (c, l) = (device.counters(), device.layout());
        let pages = u64::from(l.blocks) * u64::from(l.pages_per_block);
        println!(
            "{:8} {per_second:>12.0} writes/s, amplification {:.2}, {:.1} bytes a page",
            scheme.split([',', '=']).nth(1).unwrap_or_default(),
            c.write_amplification(),
            device.memory_bytes() as f64 / pages as f64
        );
    }
}
