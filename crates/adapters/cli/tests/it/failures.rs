//! Whatever is given, the exit code says what kind of failure it is, one sentence says why and what
//! to do next, and nothing is changed or half written.

use std::os::unix::fs::PermissionsExt;

use crate::support::{at, binary, done, file, refused, run, scratch};
use syncline_testkit::{ImageSpec, Need, debugfs, e2fsck_clean, mkfs, require};

#[test]
fn bad_arguments_are_usage() {
    for arguments in [
        &["frobnicate"][..],
        &["ls"],
        &["ls", "no-colon"],
        &["cp", "a", "b"],
        &["mkdir", "-m", "9", "x:/y"],
        &["man", "no-such-command"],
    ] {
        let ran = run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        assert_eq!(ran.text(), "", "{arguments:?}");
    }
}

#[test]
fn files_that_are_no_images() {
    let dir = scratch();
    let missing = dir.path().join("missing.img");
    let text = file(dir.path(), "text", "hello");
    let zeros = file(dir.path(), "zeros", "");
    std::fs::File::options().write(true).open(&zeros).unwrap().set_len(1 << 20).unwrap();
    let own = dir.path().to_path_buf();
    for command in ["info", "check", "recover"] {
        refused(1, &[command.as_ref(), missing.as_os_str()]);
        let said = run(&[command.as_ref(), own.as_os_str()]);
        assert_eq!(said.code, 1, "{command}: {}", said.err);
    }
    assert!(refused(1, &["ls", &at(&missing, "/")]).contains("no such file"), "says what is wrong");
    for (path, expected) in [(&text, "too small"), (&zeros, "no ext4 superblock")] {
        let said = refused(3, &["cat", &at(path, "/x")]);
        assert!(said.contains(expected), "{said}");
        refused(3, &["info".as_ref(), path.as_os_str()]);
        refused(3, &["recover".as_ref(), path.as_os_str()]);
    }
    assert_eq!(std::fs::read(&text).unwrap(), b"hello", "it was only read");
}

#[test]
fn damaged_images_are_corrupt() {
    if !require("damaged_images_are_corrupt", &[Need::E2fsck]) {
        return;
    }
    let truncated = mkfs(&ImageSpec::default());
    let half = truncated.bytes().len() as u64 / 2;
    std::fs::File::options().write(true).open(truncated.path()).unwrap().set_len(half).unwrap();
    refused(3, &["ls", &at(truncated.path(), "/")]);

    let damaged = mkfs(&ImageSpec::default());
    let _ = debugfs(damaged.path(), "sif / links_count 9\n");
    let before = damaged.bytes();
    let ran = run(&["check".as_ref(), "--compare".as_ref(), damaged.path().as_os_str()]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let text = ran.text();
    assert!(text.contains("inode 2: has 9 links and 3 names"), "{text}");
    assert!(text.contains("e2fsck -fn:") && text.contains("ref count"), "{text}");
    assert!(before == damaged.bytes(), "the check wrote");
    let own = run(&["check".as_ref(), damaged.path().as_os_str()]);
    assert!(own.code == 3 && !own.text().contains("e2fsck -fn"), "{}", own.text());
    assert!(own.text().contains("[link-count]"), "{}", own.text());

    // Of several images each is checked, and one document has all.
    let sound = mkfs(&ImageSpec::default());
    let both = [damaged.path().as_os_str(), sound.path().as_os_str()];
    let ran = run(&[&["check".as_ref(), "--json".as_ref()], &both[..]].concat());
    assert_eq!(ran.code, 3, "{}", ran.err);
    let document: serde_json::Value = serde_json::from_str(&ran.text()).unwrap();
    assert_eq!(document["schema"], "syncline.check/1");
    let images = document["images"].as_array().unwrap();
    assert_eq!((&images[0]["clean"], &images[1]["clean"]), (&false.into(), &true.into()));
    let finding = &images[0]["findings"][0];
    assert_eq!((&finding["name"], &finding["inode"]), (&"link-count".into(), &2.into()));
    assert_eq!(finding["repair"], "set the count");
    let said = done(&["check", "--help"]);
    assert!(said.contains("Exit code 3"), "{said}");
}

#[test]
fn unsupported_features_are_named() {
    if !require("unsupported_features_are_named", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let text = file(dir.path(), "file", "text");
    let unknown = mkfs(&ImageSpec::default());
    let _ = debugfs(unknown.path(), "feature FEATURE_I24\n");
    let said = refused(4, &["ls", &at(unknown.path(), "/")]);
    assert!(said.contains("incompat_bit_24"), "{said}");
    // What can be said of it is said.
    let ran = run(&["info".as_ref(), unknown.path().as_os_str()]);
    assert!(ran.code == 4 && ran.text().contains("incompat_bit_24"), "{ran:?}");

    // Without a journal an image can only be read.
    let plain = mkfs(&ImageSpec { features: "^has_journal".into(), ..ImageSpec::default() });
    assert_eq!(done(&["ls", &at(plain.path(), "/")]), "lost+found\n");
    let copied = refused(4, &["cp".into(), text.into_os_string(), at(plain.path(), "/").into()]);
    assert!(copied.contains("journal"), "{copied}");
    e2fsck_clean(plain.path()).unwrap();
}

#[test]
fn a_full_image_says_so_and_stays_clean() {
    if !require("a_full_image_says_so_and_stays_clean", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let big = dir.path().join("big");
    std::fs::write(&big, vec![7; 48 << 20]).unwrap();
    let image = mkfs(&ImageSpec::default());
    let said = refused(1, &["cp".into(), big.into_os_string(), at(image.path(), "/").into()]);
    assert!(said.contains("no space left"), "{said}");
    e2fsck_clean(image.path()).unwrap();
    assert_eq!(done(&["ls", "-a", &at(image.path(), "/")]), ".\n..\nlost+found\n");
}

#[test]
fn what_cannot_be_read_or_written() {
    if !require("what_cannot_be_read_or_written", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::default());
    let root = at(image.path(), "/");
    for (arguments, expected) in [
        (vec!["cat", "/nope"], "no such file"),
        (vec!["cat", "/lost+found"], "is a directory"),
        (vec!["cat", "/lost+found/a/b"], "no such file"),
        (vec!["stat", "/nope"], "no such file"),
        (vec!["rm", "/lost+found"], "is a directory"),
        (vec!["rm", "/nope"], "no such file"),
        (vec!["mkdir", "/lost+found"], "exists"),
        (vec!["mkdir", "/a/b/c"], "no such file"),
    ] {
        let path = at(image.path(), arguments[1]);
        let said = refused(1, &[arguments[0], &path]);
        assert!(said.contains(expected) && said.contains(&path), "{arguments:?}: {said}");
    }
    done(&["rm", "-f", &at(image.path(), "/nope")]);
    refused(1, &["mv", &at(image.path(), "/nope"), &at(image.path(), "/x")]);
    refused(2, &["mv", &root, "elsewhere:/x"]);
    e2fsck_clean(image.path()).unwrap();

    // A file that may not be written, for users without privileges.
    if Need::Root.missing().is_some() {
        let permissions = std::fs::Permissions::from_mode(0o400);
        std::fs::set_permissions(image.path(), permissions).unwrap();
        refused(1, &["mkdir", &at(image.path(), "/x")]);
        done(&["ls", &root]);
    }
}

#[test]
fn an_image_in_use_is_refused() {
    use syncline_device::{FileDevice, FileOptions};
    if !require("an_image_in_use_is_refused", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::default());
    let held = FileDevice::open(image.path(), FileOptions::default()).unwrap();
    let said = refused(1, &["mkdir", &at(image.path(), "/x")]);
    let process = format!("(process {}); close that first", std::process::id());
    assert!(said.contains("another program has it open: ") && said.contains(&process), "{said}");
    refused(1, &["ls", &at(image.path(), "/")]);
    drop(held);
    done(&["ls", &at(image.path(), "/")]);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    if !require("a_reader_that_leaves_is_no_error", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let big = dir.path().join("big");
    std::fs::write(&big, vec![b'x'; 8 << 20]).unwrap();
    let image = mkfs(&ImageSpec::default());
    done(&["cp".into(), big.into_os_string(), at(image.path(), "/").into()]);
    let mut child = binary()
        .args(["cat", &at(image.path(), "/big")])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
