//! Volumes that allocate clusters of blocks (`bigalloc`), in every mode: files share no cluster at
//! any cut, and what is in a cluster beside the blocks that a file has mapped is never read.

use syncline_model::{ImageSpec, require};

use crate::crash::{Ground, NEEDS, crash_test_on, mixed_seeds, small, workloads};

const MOUNTS: [&str; 5] = [
    "sync=ordered",
    "sync=eager",
    "log=packed",
    "sync=periodic,strict=*",
    "sync=periodic,commit=1,strict=*a*",
];

/// Blocks, and blocks of a cluster.
const SIZES: [(u32, u32); 3] = [(1024, 4), (4096, 2), (1024, 16)];

fn spec((block_size, ratio): (u32, u32), features: &str) -> ImageSpec {
    ImageSpec {
        cluster_size_bytes: Some(block_size * ratio),
        features: format!("bigalloc{features}"),
        ..small(block_size)
    }
}

#[test]
fn clusters_lose_and_get_blocks() {
    let name = "clusters::clusters_lose_and_get_blocks";
    if !require(name, &NEEDS) {
        return;
    }
    for (seed, mount) in (1..).zip(MOUNTS) {
        let spec = spec(SIZES[seed as usize % 3], ["", ",orphan_file"][seed as usize % 2]);
        crash_test_on(name, &Ground::new(&spec, mount), |r| workloads::clusters(r, seed));
    }
}

#[test]
fn other_workloads_in_clusters() {
    let name = "clusters::other_workloads_in_clusters";
    if !require(name, &NEEDS) {
        return;
    }
    for (mount, sizes) in MOUNTS.into_iter().zip(SIZES.into_iter().cycle()) {
        crash_test_on(name, &Ground::new(&spec(sizes, ""), mount), workloads::allocated_ahead);
    }
    let ground = |mount| Ground::new(&spec((1024, 4), ",orphan_file"), mount);
    crash_test_on(name, &ground("sync=ordered"), workloads::orphans);
    crash_test_on(name, &ground("sync=eager"), workloads::reallocation);
}

#[test]
fn mixed_in_clusters() {
    let case = |seed: u64| {
        let features = ["", ",orphan_file", ",^metadata_csum"][(seed / 6 % 3) as usize];
        let spec = spec(SIZES[(seed / 2 % 3) as usize], features);
        Ground::new(&spec, MOUNTS[(seed / 2 % 5) as usize])
    };
    mixed_seeds("clusters::mixed_in_clusters", 100, case);
}
