//! Volumes with features that `mkfs` does not make, through the kernel.

use std::fs::{self, OpenOptions};

use syncline_testkit::{ImageSpec, Seal, TempImage, fill, mkfs, require};

use crate::mounted::Mounted;
use crate::{NEEDS, errno};

fn image(features: &str) -> TempImage {
    mkfs(&ImageSpec { features: features.into(), ..ImageSpec::default() })
}

#[test]
fn a_sealed_file_is_read_and_not_opened_for_writing() {
    if !require("a_sealed_file_is_read_and_not_opened_for_writing", &NEEDS) {
        return;
    }
    let image = image("verity");
    let mut bytes = vec![0; 300_000];
    fill(1, 0, &mut bytes);
    Seal::usual().add(image.path(), "f", &bytes, 4096);
    let mut m = Mounted::new(image, "");
    assert!(fs::read(m.at("f")).unwrap() == bytes);
    assert_eq!(errno(OpenOptions::new().write(true).open(m.at("f"))), 1);
    assert_eq!(errno(OpenOptions::new().append(true).open(m.at("f"))), 1);
    fs::copy(m.at("f"), m.at("g")).unwrap();
    fs::remove_file(m.at("f")).unwrap();
    m.unmount_clean();
}
