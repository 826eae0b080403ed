//! Volumes with data in their inodes (`inline_data`), in every mode: a file has its bytes at every
//! cut, in the inode or in the block that it has grown into. Values of attributes in inodes
//! (`ea_inode`): an attribute has its old value or its new one, and none is left without a user.

use syncline_model::{ImageSpec, require};

use crate::crash::{Ground, NEEDS, crash_test_on, mixed_seeds, small, workloads};

const MOUNTS: [&str; 5] = [
    "sync=ordered",
    "sync=eager",
    "log=packed",
    "sync=periodic,strict=*",
    "sync=periodic,commit=1,strict=*a*",
];

/// Inodes of `inode_size` bytes: those of 1 KiB have room for a sector of a workload.
fn spec(block_size: u32, inode_size: u32, features: &str) -> ImageSpec {
    ImageSpec {
        inode_size_bytes: Some(inode_size),
        features: format!("inline_data{features}"),
        ..small(block_size)
    }
}

#[test]
fn files_and_directories_leave_their_inodes() {
    let name = "in_inodes::files_and_directories_leave_their_inodes";
    if !require(name, &NEEDS) {
        return;
    }
    for (seed, mount) in (1..).zip(MOUNTS) {
        let spec = spec([1024, 4096][seed as usize % 2], 1024, "");
        crash_test_on(name, &Ground::new(&spec, mount), |r| workloads::in_inodes(r, seed));
    }
}

#[test]
fn names_in_inodes() {
    let name = "in_inodes::names_in_inodes";
    if !require(name, &NEEDS) {
        return;
    }
    // Each mode has two of the four; `mixed_in_inodes` mixes operations of all of them.
    for (nr, mount) in (0..).zip(MOUNTS) {
        let with_file = Ground::new(&spec(1024, 256, ",orphan_file"), mount);
        let without = Ground::new(&spec(1024, 256, ""), mount);
        if nr % 2 == 0 {
            crash_test_on(name, &with_file, workloads::renames);
            crash_test_on(name, &without, workloads::orphans);
        } else {
            crash_test_on(name, &with_file, workloads::references);
            crash_test_on(name, &without, workloads::directory_growth);
        }
    }
}

#[test]
fn a_short_log_of_inodes_wraps() {
    let name = "in_inodes::a_short_log_of_inodes_wraps";
    if require(name, &NEEDS) {
        for mount in MOUNTS {
            let ground = Ground::short(&spec(1024, 512, ""), mount);
            crash_test_on(name, &ground, |r| workloads::in_inodes(r, 9));
        }
    }
}

#[test]
fn mixed_in_inodes() {
    let case = |seed: u64| {
        let block_size = [1024, 4096, 2048][(seed / 2 % 3) as usize];
        let features = ["", ",orphan_file", ",^metadata_csum"][(seed / 6 % 3) as usize];
        Ground::new(&spec(block_size, 1024, features), MOUNTS[(seed / 2 % 5) as usize])
    };
    mixed_seeds("in_inodes::mixed_in_inodes", 100, case);
}

#[test]
fn values_in_inodes() {
    let name = "in_inodes::values_in_inodes";
    if !require(name, &NEEDS) {
        return;
    }
    let features = ["", ",orphan_file", ",inline_data", ",^extent,^64bit", ",^metadata_csum"];
    for ((seed, mount), features) in (1..).zip(MOUNTS).zip(features) {
        let block_size = [1024, 4096][seed as usize % 2];
        let spec = ImageSpec { features: format!("ea_inode{features}"), ..small(block_size) };
        crash_test_on(name, &Ground::new(&spec, mount), |r| workloads::values(r, seed));
    }
}
