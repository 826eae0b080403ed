//! `repair`: exit codes, the undo file, and images that it must leave alone.

use std::path::{Path, PathBuf};

use crate::support::{done, refused, run, scratch};
use syncline_testkit::{ImageSpec, Need, debugfs, e2fsck_clean, mkfs, require};

const DAMAGE: &str = "write /etc/passwd f\nsif f links_count 5\nfreeb 1000 5\n";

fn words<'a>(how: &'a [&'a str], undo: &'a Path, image: &'a Path) -> Vec<&'a std::ffi::OsStr> {
    let how = how.iter().map(std::ffi::OsStr::new);
    ["repair".as_ref()]
        .into_iter()
        .chain(how)
        .chain(["--undo".as_ref(), undo.as_os_str(), image.as_os_str()])
        .collect()
}

#[test]
fn damage_is_mended_and_rolled_back() {
    if !require("damage_is_mended_and_rolled_back", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let _ = debugfs(image.path(), DAMAGE);
    let before = image.bytes();
    let place = scratch();
    let undo = place.path().join("undo");
    let said = run(&words(&["-n"], &undo, image.path()));
    assert_eq!(said.code, 4, "errors are there");
    assert!(said.text().contains("can be mended"), "{}", said.text());
    assert!(image.bytes() == before && !undo.exists(), "-n writes nothing");

    let said = run(&words(&["-p"], &undo, image.path()));
    assert_eq!(said.code, 1, "{}", said.text());
    e2fsck_clean(image.path()).unwrap();
    let mended = image.bytes();
    let second = place.path().join("second");
    let said = done(&words(&["-y"], &second, image.path()));
    assert!(said.contains("0 errors"), "{said}");
    assert!(image.bytes() == mended && !second.exists(), "a sound image keeps its bytes");

    let said = refused(2, &words(&[], &second, image.path()));
    assert!(said.contains("no terminal answers"), "{said}");
    refused(2, &words(&["-y"], &undo, image.path()));
    let damaged = std::fs::read(&undo).unwrap();
    std::fs::write(&undo, &damaged[..damaged.len() - 1]).unwrap();
    let said = refused(8, &words(&["--roll-back"], &undo, image.path()));
    assert!(said.contains("cut or damaged"), "{said}");
    std::fs::write(&undo, &damaged).unwrap();
    assert_eq!(run(&words(&["--roll-back"], &undo, image.path())).code, 1);
    assert!(image.bytes() == before, "every byte is as it was");
}

#[test]
fn an_image_that_is_changed_or_in_use_is_not_written_to() {
    if !require("an_image_that_is_changed_or_in_use_is_not_written_to", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let _ = debugfs(image.path(), DAMAGE);
    let place = scratch();
    let undo: PathBuf = place.path().join("undo");
    let held = syncline_device::FileDevice::open(image.path(), Default::default()).unwrap();
    let before = image.bytes();
    refused(8, &words(&["-y"], &undo, image.path()));
    assert!(image.bytes() == before && !undo.exists());
    drop(held);
    assert_eq!(run(&words(&["-y"], &undo, image.path())).code, 1);
    // Another program writes where the repair wrote.
    let _ = debugfs(image.path(), "sif f links_count 9\n");
    let changed = image.bytes();
    let said = refused(8, &words(&["--roll-back"], &undo, image.path()));
    assert!(said.contains("has changed since"), "{said}");
    assert!(image.bytes() == changed);
}

#[test]
fn preening_writes_nothing_that_needs_a_decision() {
    if !require("preening_writes_nothing_that_needs_a_decision", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let _ = debugfs(image.path(), &format!("{DAMAGE}sif f mode 0\n"));
    let before = image.bytes();
    let place = scratch();
    let undo = place.path().join("undo");
    assert_eq!(run(&words(&["-p"], &undo, image.path())).code, 4);
    assert!(image.bytes() == before && !undo.exists());
    assert_eq!(run(&words(&["-y"], &undo, image.path())).code, 1);
    e2fsck_clean(image.path()).unwrap();
}
