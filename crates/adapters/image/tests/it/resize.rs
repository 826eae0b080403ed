//! Images that grow and shrink: checked first, and as they were if it fails.

use std::path::Path;

use syncline_fs::Create;
use syncline_image::mkfs::Mkfs;
use syncline_image::resize::{NewSize, resize};
use syncline_image::{Image, ImageError, Opening};
use syncline_ondisk::Superblock;
use syncline_testkit::{Need, e2fsck_clean, require};

const MIB: u64 = 1 << 20;

fn made(path: &Path) {
    Mkfs { size_bytes: Some(64 * MIB), ..Mkfs::default() }.make(path).unwrap();
    let image = Image::write(path, &Opening::default()).unwrap();
    let root = image.vol.root().unwrap();
    let file = image.vol.create(&root, b"kept", &Create { mode: 0o644, uid: 0, gid: 0 }).unwrap();
    image.vol.write(&file, 0, &[7; 100_000]).unwrap();
    drop((root, file));
    image.close(Ok::<(), ImageError>(())).unwrap();
}

fn has_file(path: &Path) {
    let image = Image::read(path, &Opening::default()).unwrap();
    let file = image.vol.resolve(b"/kept").unwrap();
    let mut bytes = vec![0; 100_000];
    assert_eq!(image.vol.read(&file, 0, &mut bytes).unwrap(), bytes.len());
    assert!(bytes == [7; 100_000]);
}

#[test]
fn images_grow_without_other_programs() {
    if !require("images_grow_without_other_programs", &[Need::E2fsck]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    made(&path);
    for bytes in [64 * MIB, 200 * MIB, 201 * MIB, 3000 * MIB] {
        let grown = resize(&path, NewSize::Bytes(bytes)).unwrap();
        assert!(grown <= bytes && grown > bytes - 16 * MIB, "{grown} of {bytes}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), grown);
        e2fsck_clean(&path).unwrap();
        has_file(&path);
    }
}

#[test]
fn images_shrink_without_other_programs() {
    if !require("images_shrink_without_other_programs", &[Need::E2fsck]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    made(&path);
    let least = {
        let copy = dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        resize(&copy, NewSize::Minimum).unwrap()
    };
    assert!(least < 10 * MIB, "{least}");
    for size in [NewSize::Bytes(40 * MIB), NewSize::Bytes(12 * MIB), NewSize::Minimum] {
        let bytes = resize(&path, size).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
        e2fsck_clean(&path).unwrap();
        has_file(&path);
        // A cut would leave it like this.
        let mut image = std::fs::read(&path).unwrap();
        let mut sb = Superblock::decode(&image[1024..2048]).unwrap();
        sb.s_state = 0;
        sb.encode_into(&mut image[1024..2048]).unwrap();
        std::fs::write(&path, &image).unwrap();
    }
    let err = resize(&path, NewSize::Bytes(MIB)).unwrap_err();
    assert!(err.to_string().contains("; choose at least that"), "{err}");
    resize(&path, NewSize::Bytes(100 * MIB)).unwrap();
    e2fsck_clean(&path).unwrap();
    has_file(&path);
}

#[test]
fn a_damaged_image_does_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    made(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    // Free blocks of group 0.
    bytes[2048 + 0x0c] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let err = resize(&path, NewSize::Bytes(200 * MIB)).unwrap_err();
    assert!(matches!(err, ImageError::Corrupt(_)), "{err}");
    assert!(std::fs::read(&path).unwrap() == bytes, "not touched");
}
