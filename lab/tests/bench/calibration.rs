//! The calibration of `nexus7-emmc` end to end: file system, journal, the page cache
//! and the flash model together give the figures that the eager-synching paper measured on the
//! tablet (sections 3.2 and 3.3), within 15 %. `--nocapture` prints them.

use syncline_lab::bench::JournalMode;

fn within(name: &str, got: f64, published: f64, percent: f64) {
    let off = (got / published - 1.0) * 100.0;
    println!("{name}: {got:.3}, published {published} ({off:+.1} %)");
    assert!(off.abs() <= percent, "{name}: {got} is not within {percent} % of {published}");
}

fn throughput(test: &str, workload: &str) -> Option<(f64, f64, f64)> {
    let image = crate::common::image(test)?;
    let parameters = crate::common::parameters(JournalMode::Delete, None);
    let run = crate::common::run(image, "nexus7-emmc", workload, &parameters);
    let foreground = run.foreground;
    let mb_per_s = foreground.throughput_mb_per_s.unwrap();
    let mean_ms = 1e3 / foreground.transactions_per_s;
    Some((mb_per_s, mean_ms, foreground.latency_us_max / 1e3))
}

/// The paper says "in a 16 MB file, which was sequentially allocated", not whether the file was
/// there: both hold.
#[test]
fn sequential_256k_and_fsync() {
    for workload in ["fileio/sequential-256k-fsync", "fileio/sequential-256k-overwrite-fsync"] {
        let Some((mb_per_s, _, _)) = throughput("sequential_256k_and_fsync", workload) else {
            return;
        };
        within(&format!("{workload}, MB/s"), mb_per_s, 13.2, 15.0);
    }
}

#[test]
fn random_4k_and_fsync() {
    let figures = throughput("random_4k_and_fsync", "fileio/random-overwrite-fsync");
    let Some((mb_per_s, mean_ms, max_ms)) = figures else { return };
    within("random 4 KiB overwrite + fsync, MB/s", mb_per_s, 0.5, 15.0);
    // The paper's other figure is not that of a fresh device: 0.5 MB/s is 8.2 ms a write. Garbage
    // collection on an aged device gives it (lab/models/nand/tests/it/nexus7.rs).
    println!("write + fsync of 4 KiB: mean {mean_ms:.2} ms, published 14.446 (aged)");
    println!("worst {max_ms:.1} ms, published 440 (aged)");
    assert!(mean_ms < 14.446 && max_ms < 440.0, "a fresh device is not slower than an aged one");
}
