//! Attacks by somebody who may change the directories that root copies to or from: a thread swaps
//! a directory for a link that leads elsewhere, all the time.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{at, done, file, refused, run, scratch, text};
use syncline_testkit::{ImageSpec, Need, debugfs, e2fsck_clean, mkfs, require};

const ROUNDS: usize = 40;

/// Exchanges two names until `work` is done.
fn swapping(dir: &Path, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let (link, other) = (dir.join("swap"), dir.join("d"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !stop.load(Ordering::Relaxed) {
                // Fails where the copy has not made it yet.
                let _ = renameat_with(CWD, &link, CWD, &other, RenameFlags::EXCHANGE);
            }
        });
        work();
        stop.store(true, Ordering::Relaxed);
    });
}

/// Names in a directory, with modes and times.
fn seen(dir: &Path) -> Vec<(String, u32, i64, i64)> {
    let mut found: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let (meta, name) = (entry.metadata().unwrap(), entry.file_name());
            let size = i64::try_from(meta.size()).unwrap();
            (name.to_string_lossy().into_owned(), meta.mode(), meta.mtime(), size)
        })
        .collect();
    found.sort();
    let meta = fs::metadata(dir).unwrap();
    found.push((".".into(), meta.mode(), meta.mtime(), meta.uid().into()));
    found
}

#[test]
fn copies_out_of_an_image_stay_in_their_directory() {
    let test = "copies_out_of_an_image_stay_in_their_directory";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let image = mkfs(&ImageSpec::default());
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("e")).unwrap();
    for n in 0..60 {
        file(&tree, &format!("f{n}"), "from the image");
        file(&tree.join("e"), &format!("g{n}"), "from the image");
    }
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o777)).unwrap();
    done(&["cp", "-a", text(&tree), &at(image.path(), "/d")]);
    let (home, outside) = (dir.path().join("home"), dir.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(outside.join("e")).unwrap();
    file(&outside, "f1", "outside");
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o700)).unwrap();
    let (before, below) = (seen(&outside), seen(&outside.join("e")));
    for round in 0..ROUNDS {
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(home.join("d")).unwrap();
        symlink(&outside, home.join("swap")).unwrap();
        // Into the directory, and to the name itself.
        let target = if round % 2 == 0 { home.clone() } else { home.join("d") };
        swapping(&home, || {
            // It may fail; it must not go elsewhere.
            let ran = run(&["cp", "-a", &at(image.path(), "/d"), text(&target)]);
            assert!(ran.code <= 1, "{ran:?}");
        });
        assert_eq!(seen(&outside), before, "round {round}");
        assert_eq!(seen(&outside.join("e")), below, "round {round}");
    }
}

#[test]
fn a_link_at_the_end_of_a_target_is_followed_with_a_slash_only() {
    let test = "a_link_at_the_end_of_a_target_is_followed_with_a_slash_only";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let image = mkfs(&ImageSpec::default());
    done(&["cp", text(&file(dir.path(), "f", "1")), &at(image.path(), "/f")]);
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    for options in [&["cp"][..], &["cp", "-a"]] {
        let said = refused(1, &[options, &[&at(image.path(), "/f"), text(&link)]].concat());
        assert!(said.contains("a symbolic link to a directory; add a slash"), "{said}");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
    done(&["cp", &at(image.path(), "/f"), &format!("{}/", text(&link))]);
    assert_eq!(fs::read(real.join("f")).unwrap(), b"1");
    // The own link to a tree may be imported, somebody else's not.
    let new = dir.path().join("new.img");
    done(&["import", text(&link), text(&new)]);
    assert_eq!(done(&["cat", &at(&new, "/f")]), "1");
    if Need::Root.missing().is_none() {
        fs::remove_file(&new).unwrap();
        std::os::unix::fs::lchown(&link, Some(1234), Some(1234)).unwrap();
        let said = refused(1, &["import", text(&link), text(&new)]);
        assert!(said.contains("a symbolic link is in its place") && !new.exists(), "{said}");
    }
}

#[test]
fn copies_into_an_image_read_nothing_from_elsewhere() {
    let test = "copies_into_an_image_read_nothing_from_elsewhere";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let (home, outside) = (dir.path().join("home"), dir.path().join("outside"));
    fs::create_dir_all(home.join("d")).unwrap();
    fs::create_dir(&outside).unwrap();
    for n in 0..60 {
        file(&home.join("d"), &format!("f{n}"), "own");
        file(&outside, &format!("f{n}"), "secret");
    }
    symlink(&outside, home.join("swap")).unwrap();
    for round in 0..ROUNDS {
        let image = dir.path().join("new.img");
        let _ = fs::remove_file(&image);
        swapping(&home, || {
            let ran = match round % 2 {
                0 => run(&["import", "--size", "16M", text(&home), text(&image)]),
                _ => {
                    done(&["mkfs", "--size", "16M", text(&image)]);
                    run(&["cp", "-r", text(&home), &at(&image, "/")])
                }
            };
            assert!(ran.code <= 1, "{ran:?}");
        });
        if image.exists() {
            e2fsck_clean(&image).unwrap();
            let found = Command::new("grep").args(["-qF", "secret"]).arg(&image).status().unwrap();
            assert_eq!(
                found.code(),
                Some(1),
                "round {round}: a file of another directory is in the image"
            );
        }
    }
}

#[test]
fn devices_and_set_id_bits_of_an_image_need_a_word() {
    let test = "devices_and_set_id_bits_of_an_image_need_a_word";
    if !require(test, &[Need::Root, Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let image = mkfs(&ImageSpec::default());
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let program = file(&tree, "program", "x");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    done(&["cp", "-a", text(&tree), &at(image.path(), "/d")]);
    let _ = debugfs(image.path(), "cd /d\nmknod disk b 8 0\nmknod null c 1 3\nmknod pipe p\n");
    let mode = |name: &str| fs::symlink_metadata(dir.path().join(name)).map(|meta| meta.mode());
    for (target, options, devices, bits) in [
        ("r", &["-r"][..], false, 0o100_755),
        ("rp", &["-rp"], false, 0o100_755),
        ("rd", &["-r", "--devices"], true, 0o100_755),
        ("a", &["-a"], true, 0o106_755),
    ] {
        let out = dir.path().join(target);
        let ran = run(&[&["cp"][..], options, &[&at(image.path(), "/d"), text(&out)]].concat());
        assert_eq!(ran.code, i32::from(!devices), "{target}: {ran:?}");
        assert_eq!(ran.err.contains("give -a or --devices"), !devices, "{ran:?}");
        for device in ["disk", "null"] {
            assert_eq!(mode(&format!("{target}/{device}")).is_ok(), devices, "{target} {device}");
        }
        assert!(mode(&format!("{target}/pipe")).is_ok());
        assert_eq!(mode(&format!("{target}/program")).unwrap(), bits, "{target}");
    }
    // From image to image everything is kept.
    let other = mkfs(&ImageSpec::default());
    done(&["cp", "-r", &at(image.path(), "/d"), &at(other.path(), "/d")]);
    assert!(done(&["ls", "-l", &at(other.path(), "/d")]).contains("8,0"));
}
