//! Values of attributes in inodes (`ea_inode`), in every mode: an attribute has its old value or
//! its new one, and none is left without a user.

use syncline_model::{ImageSpec, require};

use crate::crash::{Ground, NEEDS, crash_test_on, small, workloads};

const MOUNTS: [&str; 5] = [
    "sync=ordered",
    "sync=eager",
    "log=packed",
    "sync=periodic,strict=*",
    "sync=periodic,commit=1,strict=*a*",
];

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
