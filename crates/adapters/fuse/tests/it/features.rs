//! Volumes with features that `mkfs` does not make, through the kernel.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

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

fn chattr(change: &str, path: &Path) -> bool {
    Command::new("chattr").arg(change).arg(path).status().is_ok_and(|done| done.success())
}

/// The kernel, which knows nothing of spellings, remembers none.
#[test]
fn directories_that_fold_case_through_the_kernel() {
    if !require("directories_that_fold_case_through_the_kernel", &NEEDS) {
        return;
    }
    let image = mkfs(&ImageSpec { features: "casefold".into(), ..ImageSpec::default() });
    let mut m = Mounted::new(image, "");
    fs::create_dir(m.at("d")).unwrap();
    fs::create_dir(m.at("exact")).unwrap();
    // The kernel knows that this is not there; then another spelling is made.
    assert!(!m.at("d/READ ME").exists() && !m.at("exact/A").exists());
    assert!(chattr("+F", &m.at("d")));
    fs::write(m.at("d/Read Me"), "one").unwrap();
    fs::write(m.at("exact/a"), "").unwrap();
    assert!(!m.at("exact/A").exists());
    for spelling in ["d/READ ME", "d/read me", "d/Read Me"] {
        assert_eq!(fs::read_to_string(m.at(spelling)).unwrap(), "one");
    }
    assert_eq!(errno(OpenOptions::new().write(true).create_new(true).open(m.at("d/rEAD mE"))), 17);
    fs::write(m.at("d/READ ME"), "two").unwrap();
    fs::rename(m.at("d/READ me"), m.at("d/read ME")).unwrap();
    fs::hard_link(m.at("d/read me"), m.at("d/Other")).unwrap();
    assert_eq!(fs::metadata(m.at("d/OTHER")).unwrap().nlink(), 2);
    fs::remove_file(m.at("d/read ME")).unwrap();
    for spelling in ["d/READ ME", "d/read me", "d/Read Me"] {
        assert!(!m.at(spelling).exists(), "{spelling}");
    }
    // One directory by several names, also while a program is in it.
    fs::create_dir_all(m.at("d/Sub/Deep")).unwrap();
    fs::write(m.at("d/SUB/deep/File"), "three").unwrap();
    let inside = std::fs::File::open(m.at("d/sub/DEEP")).unwrap();
    assert_eq!(fs::read_to_string(m.at("d/sUB/dEEP/fILE")).unwrap(), "three");
    let listed = |path: &str| fs::read_dir(m.at(path)).unwrap().count();
    assert_eq!((listed("d"), listed("d/SUB"), listed("d/Sub/Deep")), (2, 1, 1));
    assert!(!chattr("-F", &m.at("d")), "it has names");
    drop(inside);
    fs::remove_dir_all(m.at("d/SUB")).unwrap();
    fs::remove_file(m.at("d/other")).unwrap();
    assert!(chattr("-F", &m.at("d")));
    fs::write(m.at("d/name"), "").unwrap();
    assert!(!m.at("d/NAME").exists());
    m.unmount_clean();
}
