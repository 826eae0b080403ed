//! Inputs that the fuzzers found and grew are fed to each target again.

mod takeover;

use std::path::Path;

use syncline_fuzz_targets::TARGETS;
use syncline_testkit::{Need, Random, require};

/// Inputs of no thought beside those of each target.
const RANDOM_INPUTS: u64 = 30;

#[test]
fn every_seed_is_answered() {
    for target in TARGETS {
        if target.needs_image && !require("every_seed_is_answered", &[Need::E2fsck]) {
            continue;
        }
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        let dir = dir.join(target.name);
        let mut seeds = 0;
        for entry in std::fs::read_dir(&dir).expect("each target has seeds") {
            let path = entry.expect("readable").path();
            println!("{}", path.display());
            (target.feed)(&std::fs::read(&path).expect("readable"));
            seeds += 1;
        }
        assert!(seeds > 0, "{}: no seeds", dir.display());
        for number in 0..RANDOM_INPUTS {
            let mut random = Random::new(number);
            let bytes: Vec<u8> = (0..random.index(400)).map(|_| random.bits() as u8).collect();
            println!("{}: random input {number}", target.name);
            (target.feed)(&bytes);
        }
    }
}
