//! `--rescue` and `--undelete`: commands go on past damage, say what is missing, and write nothing.

use std::fs;
use std::path::Path;

use crate::support::{done, refused, run, scratch};
use syncline_testkit::{ImageSpec, Need, TempImage, debugfs, mkfs, require};

const MIB: u64 = 1 << 20;

/// An image with a directory of files; the last one ends in the last group.
fn image(place: &Path) -> TempImage {
    let image = mkfs(&ImageSpec { block_size_bytes: 1024, ..ImageSpec::with_size(32 * MIB) });
    let from = place.join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("small"), "small").unwrap();
    fs::write(from.join("large"), vec![b'x'; 24 << 20]).unwrap();
    let target = format!("{}:/", image.path().display());
    done(&["cp".as_ref(), "-r".as_ref(), from.as_os_str(), target.as_ref()]);
    image
}

fn at(image: &TempImage, path: &str) -> String {
    format!("{}:{path}", image.path().display())
}

fn wipe(image: &TempImage, start: usize, len: usize) {
    let mut bytes = image.bytes();
    bytes[start..start + len].fill(0x5a);
    fs::write(image.path(), bytes).unwrap();
}

#[test]
fn an_image_without_its_superblock_is_read() {
    if !require("an_image_without_its_superblock_is_read", &[Need::E2fsck]) {
        return;
    }
    let place = scratch();
    let image = image(place.path());
    wipe(&image, 1024, 4096);
    let before = image.bytes();
    refused(3, &["ls", &at(&image, "/from")]);
    let said = run(&["ls", "--rescue", &at(&image, "/from")]);
    assert_eq!((said.code, said.out.as_slice()), (0, &b"large\nsmall\n"[..]), "{}", said.err);
    assert!(said.err.contains("missing: the superblock; that of group 1"), "{}", said.err);
    let said = run(&["cat", "--rescue", &at(&image, "/from/small")]);
    assert_eq!((said.code, said.out.as_slice()), (0, &b"small"[..]));
    let tar = place.path().join("tar");
    let said = run(&["export", "--rescue", &at(&image, "/from"), "-o", tar.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(fs::metadata(&tar).unwrap().len() > 24 << 20);
    assert!(image.bytes() == before, "nothing is written");
    let said = run(&["shell", "--rescue", "--write", image.path().to_str().unwrap()]);
    assert_eq!(said.code, 2, "{}", said.err);
}

#[test]
fn a_cut_file_is_copied_with_zeros_and_said() {
    if !require("a_cut_file_is_copied_with_zeros_and_said", &[Need::E2fsck]) {
        return;
    }
    let place = scratch();
    let image = image(place.path());
    let file = fs::OpenOptions::new().write(true).open(image.path()).unwrap();
    file.set_len(20 * MIB).unwrap();
    drop(file);
    let to = place.path().join("to");
    let said = run(&["cp", "-r", "--rescue", &at(&image, "/from"), to.to_str().unwrap()]);
    assert_eq!(said.code, 3, "{}", said.err);
    assert!(said.err.contains("bytes could not be read and are zeros"), "{}", said.err);
    assert_eq!(fs::read(to.join("small")).unwrap(), b"small");
    let large = fs::read(to.join("large")).unwrap();
    assert_eq!(large.len(), 24 << 20);
    assert!(large.iter().all(|byte| *byte == b'x' || *byte == 0));
    assert!(large.iter().filter(|byte| **byte == b'x').count() > 10 << 20);
    let tar = place.path().join("tar");
    let said = run(&["export", "--rescue", &at(&image, "/"), "-o", tar.to_str().unwrap()]);
    assert_eq!(said.code, 3, "{}", said.err);
    assert!(fs::metadata(&tar).unwrap().len() > 24 << 20, "the archive is there");
    let said = run(&["cat", "--rescue", &at(&image, "/from/large")]);
    assert_eq!((said.code, said.out.len()), (3, 24 << 20));
}

#[test]
fn an_inode_that_cannot_be_read_is_listed() {
    if !require("an_inode_that_cannot_be_read_is_listed", &[Need::E2fsck]) {
        return;
    }
    let place = scratch();
    let image = image(place.path());
    let _ = debugfs(image.path(), "clri /from/small\n");
    let said = run(&["ls", "-l", &at(&image, "/from")]);
    assert_ne!(said.code, 0);
    let out = String::from_utf8_lossy(&said.out).into_owned();
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].ends_with("large") && lines[1].starts_with("-?????????"), "{}", said.err);
    let tar = place.path().join("tar");
    let arguments = |how: &'static str| {
        ["export", how, &at(&image, "/"), "-o", tar.to_str().unwrap()].map(str::to_owned)
    };
    assert_ne!(run(&arguments("--partition=1")).code, 0);
    let said = run(&arguments("--rescue"));
    assert!(said.code != 0 && tar.exists(), "{}", said.err);
}

#[test]
fn a_file_without_a_name_is_found() {
    if !require("a_file_without_a_name_is_found", &[Need::E2fsck]) {
        return;
    }
    let place = scratch();
    let image = image(place.path());
    let _ = debugfs(image.path(), "unlink /from/small\n");
    let names = done(&["ls", "--undelete", &at(&image, "/.rescue")]);
    assert!(names.starts_with("lost-#"), "{names}");
    let path = format!("/.rescue/{}", names.trim());
    assert_eq!(done(&["cat", "--undelete", &at(&image, &path)]), "small");
    refused(1, &["ls", "--rescue", &at(&image, "/.rescue")]);
}

#[test]
fn a_mount_goes_on_past_damage() {
    if !require("a_mount_goes_on_past_damage", &[Need::E2fsck, Need::Fuse]) {
        return;
    }
    let place = scratch();
    let image = image(place.path());
    let _ = debugfs(image.path(), "unlink /from/small\n");
    wipe(&image, 1024, 4096);
    let before = image.bytes();
    let dir = place.path().join("mount");
    fs::create_dir(&dir).unwrap();
    let words = |options: &'static str| {
        let words = ["mount", "-o", options, image.path().to_str().unwrap(), dir.to_str().unwrap()];
        words.map(str::to_owned)
    };
    assert_ne!(run(&words("ro")).code, 0);
    assert_ne!(run(&words("undelete,rw")).code, 0);
    let said = run(&words("undelete"));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("missing: the superblock"), "{}", said.err);
    let large = fs::metadata(dir.join("from/large")).map(|meta| meta.len());
    let names: Vec<_> =
        fs::read_dir(dir.join(".rescue")).unwrap().map(|e| e.unwrap().path()).collect();
    let small = names.first().map(fs::read);
    let refused = fs::write(dir.join("f"), "").is_err();
    done(&["umount".as_ref(), dir.as_os_str()]);
    assert_eq!((large.unwrap(), small.unwrap().unwrap().as_slice()), (24 << 20, &b"small"[..]));
    assert!(refused && names.len() == 1, "{names:?}");
    assert!(image.bytes() == before, "nothing is written");
}
