//! Speed of the checksum on this machine, beside the processor's plain CRC instruction: `cargo
//! bench -p syncline-base`. Best of eleven rounds, with the bytes in the CPU cache.

use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 11;
const BYTES_A_ROUND: usize = 64 << 20;

fn best_ns(data: &[u8], sum: impl Fn(&[u8]) -> u32) -> f64 {
    let times = BYTES_A_ROUND / (data.len() + 64);
    let round = |_| {
        let start = Instant::now();
        for _ in 0..times {
            black_box(sum(black_box(data)));
        }
        start.elapsed().as_secs_f64() * 1e9 / times as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn main() {
    println!("{:>8} {:>9} {:>9} {:>12}", "bytes", "ns", "appended", "crc32c alone");
    for len in [4, 32, 256, 1 << 10, 4 << 10, 16 << 10, 256 << 10] {
        let data: Vec<u8> = (0..len).map(|at: u32| ((at * 31) >> 3) as u8).collect();
        let sum = best_ns(&data, syncline_base::crc32c);
        let appended = best_ns(&data, |data| syncline_base::crc32c_append(7, data));
        println!("{len:>8} {sum:>9.1} {appended:>9.1} {:>12.1}", best_ns(&data, crc32c::crc32c));
    }
}
