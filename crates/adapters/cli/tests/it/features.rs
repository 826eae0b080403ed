//! What Linux's ext4 has and `mkfs` does not make: every command reads it, or says why not.

use crate::support::{at, done, refused, run, scratch};
use syncline_testkit::{
    ImageSpec, KernelMount, Need, Seal, TempImage, debugfs, e2fsck_clean, encrypt_dir, fill, mkfs,
    require, skip,
};

fn image(features: &str) -> TempImage {
    mkfs(&ImageSpec { features: features.into(), ..ImageSpec::default() })
}

#[test]
fn sealed_files_are_shown_and_copied() {
    if !require("sealed_files_are_shown_and_copied", &[Need::E2fsck]) {
        return;
    }
    let image = image("verity");
    let mut bytes = vec![0; 300_000];
    fill(1, 0, &mut bytes);
    Seal::usual().add(image.path(), "f", &bytes, 4096);
    let dir = scratch();
    let (out, tar) = (dir.path().join("out"), dir.path().join("out.tar"));
    let path = image.path().to_str().unwrap();
    assert!(run(&["cat", &at(image.path(), "/f")]).out == bytes);
    done(&["cp", &at(image.path(), "/f"), out.to_str().unwrap()]);
    assert!(std::fs::read(&out).unwrap() == bytes);
    assert!(done(&["info", path]).contains("verity"));
    assert!(done(&["check", path]).contains("clean"));
    done(&["export", path, "-o", tar.to_str().unwrap()]);
    // One byte of the second block.
    let said = debugfs(image.path(), "bmap f 1");
    let numbers = said.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let block = numbers.collect::<Vec<_>>().pop().unwrap();
    let mut all = image.bytes();
    all[block as usize * 4096 + 9] ^= 1;
    std::fs::write(image.path(), all).unwrap();
    let damaged = run(&["check", path]);
    assert!(damaged.code == 3 && damaged.text().contains("[verity-hash]"), "{damaged:?}");
    for words in [
        &["cat", &at(image.path(), "/f")][..],
        &["cp", &at(image.path(), "/f"), out.to_str().unwrap()],
        &["export", path, "-o", tar.to_str().unwrap()],
    ] {
        let said = refused(1, words);
        assert!(said.contains("the data at byte 4096 does not have its hash"), "{words:?}: {said}");
    }
}

#[test]
fn encrypted_files_are_listed_and_not_read() {
    let test = "encrypted_files_are_listed_and_not_read";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let image = image("encrypt");
    let kernel = KernelMount::new(image.path(), "").unwrap();
    let secret = kernel.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    if let Err(err) = encrypt_dir(&secret, 32) {
        return skip(test, &format!("the kernel has no fscrypt: {err}"));
    }
    std::fs::write(secret.join("file"), "text").unwrap();
    std::fs::write(kernel.path().join("plain"), "text").unwrap();
    kernel.unmount().unwrap();
    let path = image.path().to_str().unwrap();
    let name = done(&["ls", &at(image.path(), "/secret")]).trim().to_owned();
    assert!(name.len() == 54 && !name.contains("file"), "{name}");
    assert!(done(&["check", path]).contains("clean"));
    assert!(done(&["stat", &at(image.path(), &format!("/secret/{name}"))]).contains("regular"));
    assert_eq!(done(&["cat", &at(image.path(), "/plain")]), "text");
    let said = refused(1, &["cat", &at(image.path(), &format!("/secret/{name}"))]);
    assert!(said.contains("the file is encrypted"), "{said}");
    let tar = scratch();
    let tar = tar.path().join("out.tar");
    let said = refused(1, &["export", path, "-o", tar.to_str().unwrap()]);
    assert!(said.contains("the file is encrypted"), "{said}");
}

#[test]
fn names_that_fold_are_found_by_every_command() {
    if !require("names_that_fold_are_found_by_every_command", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::fs::write(dir.path().join("d/Stra\u{df}e.txt"), "text").unwrap();
    let image = mkfs(&ImageSpec {
        features: "casefold".into(),
        extended: "encoding=utf8".into(),
        contents: Some(dir.path().to_owned()),
        ..ImageSpec::default()
    });
    let _ = debugfs(image.path(), "sif d flags 0x40080000\n");
    let path = image.path().to_str().unwrap();
    assert_eq!(done(&["cat", &at(image.path(), "/d/STRASSE.TXT")]), "text");
    assert_eq!(done(&["ls", &at(image.path(), "/d")]), "Stra\u{df}e.txt\n");
    assert!(done(&["stat", &at(image.path(), "/d/strasse.txt")]).contains("regular"));
    assert!(done(&["info", path]).contains("casefold") && done(&["check", path]).contains("clean"));
    let tar = dir.path().join("out.tar");
    done(&["export", path, "-o", tar.to_str().unwrap()]);
    let said = refused(1, &["mkdir", &at(image.path(), "/d/STRASSE.txt")]);
    assert!(said.contains("exists"), "{said}");
    done(&["rm", &at(image.path(), "/d/strasse.TXT")]);
    assert_eq!(done(&["ls", &at(image.path(), "/d")]), "");
}

#[test]
fn volumes_of_clusters_serve_every_command_but_resize() {
    if !require("volumes_of_clusters_serve_every_command_but_resize", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let mut bytes = vec![0; 300_000];
    fill(5, 0, &mut bytes);
    std::fs::write(dir.path().join("f"), &bytes).unwrap();
    let image = mkfs(&ImageSpec {
        features: "bigalloc".into(),
        cluster_size_bytes: Some(65_536),
        contents: Some(dir.path().to_owned()),
        ..ImageSpec::with_size(64 << 20)
    });
    let path = image.path().to_str().unwrap();
    assert!(run(&["cat", &at(image.path(), "/f")]).out == bytes);
    assert!(done(&["info", path]).contains("bigalloc") && done(&["check", path]).contains("clean"));
    let tar = dir.path().join("out.tar");
    done(&["export", path, "-o", tar.to_str().unwrap()]);
    done(&["rm", &at(image.path(), "/f")]);
    assert!(done(&["check", path]).contains("clean"));
    e2fsck_clean(image.path()).unwrap();
    let said = refused(4, &["resize", "--size", "128M", path]);
    assert!(said.contains("growing with bigalloc"), "{said}");
}
