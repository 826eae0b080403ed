//! What Linux's ext4 has and `mkfs` does not make: every command reads it, or says why not.

use crate::support::{at, done, refused, run, scratch};
use syncline_testkit::{ImageSpec, Need, Seal, TempImage, debugfs, fill, mkfs, require};

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
    let block: u64 = said.split_whitespace().last().unwrap().parse().unwrap();
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
