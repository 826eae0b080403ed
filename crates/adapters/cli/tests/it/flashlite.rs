//! `flashlite info|cat|rearrange|check`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support;
use crate::support::{done, refused, run, scratch, text};
use syncline_flashlite::{FileStorage, Log, Options, Rearrange};
use syncline_testkit::{Need, require};

/// A log of three records and a gap, and the file that it is.
fn log(dir: &Path) -> (PathBuf, Vec<u8>) {
    let path = dir.join("film.log");
    let log = Log::create_file(&path, Options::default()).unwrap();
    let mut file = vec![0; 300_000];
    for (offset, byte, len) in [(200_000, 3, 100_000), (0, 1, 50_000), (10_000, 2, 10)] {
        log.write_at(&vec![byte; len], offset as u64).unwrap();
        file[offset..offset + len].fill(byte);
    }
    log.close().unwrap();
    (path, file)
}

#[test]
fn info_cat_and_check_read_a_log() {
    let dir = scratch();
    let (path, file) = log(dir.path());
    let before = std::fs::read(&path).unwrap();
    let shown = done(&["flashlite", "info", text(&path)]);
    assert!(shown.contains("293.0 KiB") && shown.contains("records"), "{shown}");
    let json = done(&["flashlite", "info", "--json", text(&path)]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "syncline.flashlite/1");
    assert_eq!((&json["size_bytes"], &json["records"]), (&300_000.into(), &3.into()));
    assert_eq!((&json["data_bytes"], &json["extents"]), (&150_010.into(), &4.into()));
    assert!(json["dropped"].is_null() && json["format_version"] == 2);
    let ran = run(&["flashlite", "cat", text(&path)]);
    assert!(ran.code == 0 && ran.out == file);
    assert_eq!(done(&["flashlite", "check", text(&path)]), "150000 B agree with their checksums\n");
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn damage_and_torn_ends_are_named() {
    let dir = scratch();
    let (path, _) = log(dir.path());
    let mut bytes = std::fs::read(&path).unwrap();
    // The data of the first record, behind a head that ends at 16 KiB.
    bytes[(16 << 10) + 5] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let ran = run(&["flashlite", "check", text(&path)]);
    assert_eq!((ran.code, ran.text().as_str()), (3, "damaged: 100000 B at 200000\n"));
    assert!(ran.err.contains("download those ranges again"), "{}", ran.err);
    let to = dir.path().join("film");
    refused(3, &["flashlite", "rearrange", text(&path), text(&to)]);
    assert!(!to.exists());
    // What was written is whole; what is behind it has no tag.
    bytes[(16 << 10) + 5] ^= 1;
    bytes.extend_from_slice(&[7; 100]);
    std::fs::write(&path, &bytes).unwrap();
    let shown = done(&["flashlite", "info", text(&path)]);
    assert!(shown.contains("torn off") && shown.contains("100 B from byte"), "{shown}");
}

#[test]
fn rearranging_makes_the_file_and_goes_on_after_a_stop() {
    let dir = scratch();
    let (path, file) = log(dir.path());
    let to = dir.path().join("film.iso");
    // As after Ctrl-C: a part and a note in the log.
    let writer = Log::open_file(&path, Options::default()).unwrap();
    let part = FileStorage::create_new(&dir.path().join("film.iso.part")).unwrap();
    let options = Rearrange { release: false, step_bytes: 30_000 };
    let stop = &mut |_| std::ops::ControlFlow::Break(());
    writer.rearrange_to(&part, options, stop).unwrap_err();
    drop((writer, part));
    let said = done(&["flashlite", "rearrange", text(&path), text(&to)]);
    assert!(said.contains("film.iso: 293.0 KiB, from "), "{said}");
    assert!(std::fs::read(&to).unwrap() == file && path.exists());
    let err = refused(1, &["flashlite", "rearrange", text(&path), text(&to)]);
    assert!(err.contains("choose another name"), "{err}");
    let nowhere = dir.path().join("no/film");
    let err = refused(1, &["flashlite", "rearrange", text(&path), text(&nowhere)]);
    assert!(err.contains("check the path"), "{err}");
    let released = dir.path().join("released");
    done(&["flashlite", "rearrange", "--release", text(&path), text(&released)]);
    assert!(std::fs::read(&released).unwrap() == file && !path.exists());
    let (path, file) = log(dir.path());
    done(&["flashlite", "rearrange", "--in-place", text(&path)]);
    assert!(std::fs::read(&path).unwrap() == file);
    let mut names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["film.iso", "film.log", "released"]);
}

/// Rearranging a log on a read-only file system: the file is made elsewhere, and no note is left.
#[test]
fn a_log_that_cannot_be_written_is_rearranged_all_the_same() {
    let name = "a_log_that_cannot_be_written_is_rearranged_all_the_same";
    if !require(name, &[Need::Root]) {
        return;
    }
    let (dir, fixed) = (scratch(), scratch());
    let mount = |options| {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(fixed.path());
        assert!(mount.status().unwrap().success());
    };
    mount("size=4m");
    let _unmount = Unmount(fixed.path());
    let (path, file) = log(fixed.path());
    let before = std::fs::read(&path).unwrap();
    mount("remount,ro");
    let to = dir.path().join("film");
    let said = done(&["flashlite", "rearrange", text(&path), text(&to)]);
    assert!(said.contains("film: 293.0 KiB"), "{said}");
    assert!(std::fs::read(&to).unwrap() == file && std::fs::read(&path).unwrap() == before);
    // What has to write the log says why it cannot.
    for arguments in [&["--release", text(&path), "other"][..], &["--in-place", text(&path)]] {
        let err = refused(1, &[&["flashlite", "rearrange"], arguments].concat());
        assert!(err.contains("choose a place that can be written"), "{err}");
    }
    assert!(std::fs::read(&path).unwrap() == before && !dir.path().join("other").exists());
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn what_is_no_log_is_refused() {
    let dir = scratch();
    let path = support::file(dir.path(), "plain", &"x".repeat(5000));
    for command in ["info", "cat", "check"] {
        let err = refused(3, &["flashlite", command, text(&path)]);
        assert!(err.contains("not a FlashLite log"), "{err}");
    }
    for command in ["info", "cat", "check"] {
        let err = refused(1, &["flashlite", command, text(&dir.path().join("missing"))]);
        assert!(err.contains("check the path"), "{err}");
        // What a directory says depends on the file system.
        assert!([1, 3].contains(&run(&["flashlite", command, text(dir.path())]).code));
    }
    assert_eq!(run(&["flashlite", "rearrange", text(&path)]).code, 2);
}
