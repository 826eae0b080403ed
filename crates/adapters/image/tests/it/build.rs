//! New images with a tree in them: what is left when it fails, and when nothing does.

use std::path::Path;
use std::process::Command;

use syncline_fs::build::{Size, Spare};
use syncline_image::build::build;
use syncline_image::copy::{Pins, fill_new};
use syncline_image::mkfs::Mkfs;
use syncline_image::{ImageError, Watch};
use syncline_testkit::{Need, e2fsck_clean, require};

/// Stops the work at the n-th question.
struct Stops(std::cell::Cell<u32>);

impl Watch for Stops {
    fn stopped(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left == 0
    }
}

fn tree(dir: &Path) {
    for n in 0..30 {
        let below = dir.join(format!("d{}", n / 10));
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(below.join(format!("f{n}")), vec![n as u8; 150_000]).unwrap();
    }
}

fn made(image: &Path, tree: &Path, size: Size, watch: &dyn Watch) -> Result<(), ImageError> {
    let new = Mkfs { time_s: Some(1_700_000_000), ..Mkfs::default() };
    // Reading the tree changes its times of access.
    let pins = Pins { latest_s: Some(1_700_000_000), ..Pins::default() };
    let done = build(image, &new, size, |to| fill_new(to, tree, pins, watch));
    done.and_then(|outcome| match outcome.first {
        Some(first) => {
            std::fs::remove_file(image).map_or(Err(ImageError::Stopped), |()| Err(first))
        }
        None => Ok(()),
    })
}

#[test]
fn a_tree_that_stops_leaves_no_image() {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("tree"), dir.path().join("image"));
    tree(&source);
    let mut stops = 0;
    while made(&image, &source, Size::Minimum, &Stops(stops.into())).is_err() {
        assert!(!image.exists(), "stopped at {stops}");
        stops += 1;
    }
    assert!(stops > 30 && image.exists());
    std::fs::remove_file(&image).unwrap();
    let err = made(&image, &source, Size::Bytes(2 << 20), &()).unwrap_err();
    assert!(err.to_string().ends_with("give a larger --size") && !image.exists(), "{err}");
    // The image is in the tree.
    let err = made(&source.join("d1/image"), &source, Size::Minimum, &());
    assert!(err.is_err() && !source.join("d1/image").exists());
    // Contents fit, tables do not.
    let err = made(&image, &source, Size::Bytes(4_700_000), &()).unwrap_err();
    assert!(err.to_string().contains("; ") && !image.exists(), "{err}");
}

#[test]
fn a_full_host_leaves_no_tree() {
    let test = "a_full_host_leaves_no_tree";
    if !require(test, &[Need::Root]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, host) = (dir.path().join("tree"), dir.path().join("host"));
    tree(&source);
    std::fs::create_dir(&host).unwrap();
    let run = |program: &str, args: &[&str]| {
        Command::new(program).args(args).arg(&host).status().unwrap().success()
    };
    if !run("mount", &["-t", "tmpfs", "-o", "size=3m", "tmpfs"]) {
        syncline_testkit::skip(test, "needs the right to mount a tmpfs");
        return;
    }
    let image = host.join("image");
    let done = made(&image, &source, Size::Minimum, &());
    let stays = image.exists();
    assert!(run("umount", &[]));
    let said = done.unwrap_err().to_string();
    assert!(said.contains("No space left on device;") && !stays, "{said}");
}

#[test]
fn equal_trees_are_equal_images_of_each_size() {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("tree"), dir.path().join("image"));
    tree(&source);
    let check = require("equal_trees_are_equal_images_of_each_size", &[Need::E2fsck]);
    let mut sizes = Vec::new();
    for size in [Size::Minimum, Size::Spare(Spare::Percent(20.0)), Size::Bytes(100 << 20)] {
        let bytes = |_| {
            made(&image, &source, size, &()).unwrap();
            if check {
                e2fsck_clean(&image).unwrap();
            }
            let bytes = std::fs::read(&image).unwrap();
            std::fs::remove_file(&image).unwrap();
            bytes
        };
        let images = [1, 2].map(bytes);
        assert!(images[0] == images[1], "{size:?}");
        sizes.push(images[0].len());
    }
    assert!(sizes[0] < sizes[1] && sizes[1] < sizes[2] && sizes[2] == 100 << 20, "{sizes:?}");
}
