//! Encrypted directories without their key: names, sizes and links as Linux shows them, contents
//! refused.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use syncline_device::BlockDevice;
use syncline_fs::{FsError, MountOptions, Volume};
use syncline_testkit::{
    ImageSpec, KernelMount, LoopDevice, Need, Random, debugfs, e2fsck_clean, encrypt_dir, require,
    skip,
};

use crate::bed::{Bed, MIB};

/// Path, type bits and size, and the target of a link.
type Shown = (Vec<u8>, u16, u64, Vec<u8>);

/// A tree with names of all lengths, directories with an index and without, and links.
fn fill(dir: &Path) {
    for len in 1..=255 {
        let name = format!("{len:03}{}", "n".repeat(252));
        fs::write(dir.join(&name[..len]), "x".repeat(len)).unwrap();
    }
    for many in ["few", "many"] {
        let sub = dir.join(many);
        fs::create_dir(&sub).unwrap();
        for nr in 0..if many == "few" { 5 } else { 700 } {
            fs::write(sub.join(format!("file {nr}")), []).unwrap();
        }
    }
    for len in [1, 20, 56, 60, 200, 1000] {
        std::os::unix::fs::symlink("t".repeat(len), dir.join(format!("link{len}"))).unwrap();
    }
}

fn of_kernel(root: &Path, path: &Path, found: &mut Vec<Shown>) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
        let target = fs::read_link(&path).map_or(Vec::new(), |to| to.as_os_str().as_bytes().into());
        found.push((name, (meta.mode() & 0o170_000) as u16, meta.len(), target));
        if meta.is_dir() {
            of_kernel(root, &path, found);
        } else if meta.is_file() && path.starts_with(root.join("e")) {
            assert_eq!(fs::read(&path).unwrap_err().raw_os_error(), Some(126));
        }
    }
}

fn of_volume(vol: &Volume, path: &[u8], found: &mut Vec<Shown>) {
    let dir = vol.resolve(path).unwrap();
    let mut names = Vec::new();
    vol.readdir(&dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })
    .unwrap();
    for name in names.into_iter().filter(|name| *name != b"." && *name != b"..") {
        let whole = if path.is_empty() { name } else { [path, b"/", &name].concat() };
        let inode = vol.resolve_nofollow(&whole).unwrap();
        let attr = vol.getattr(&inode);
        let kind = attr.mode & 0o170_000;
        let target = vol.readlink(&inode).unwrap_or_default();
        found.push((whole.clone(), kind, attr.size, target));
        if inode.is_dir() {
            of_volume(vol, &whole, found);
        } else if kind == 0o100_000 && whole.starts_with(b"e/") {
            assert_eq!(vol.read(&inode, 0, &mut [0; 10]), Err(FsError::NoKey));
            assert_eq!(vol.check_open(&inode, false, false), Err(FsError::NoKey));
        }
    }
}

/// An image with an encrypted directory `e`; `None` if the kernel cannot make one.
fn encrypted(test: &str, spec: &ImageSpec, pad: u32) -> Option<Bed> {
    let mut bed = Bed::new(spec, 0);
    let kernel = KernelMount::new(bed.image.path(), "").unwrap();
    let dir = kernel.path().join("e");
    fs::create_dir(&dir).unwrap();
    if let Err(err) = encrypt_dir(&dir, pad) {
        skip(test, &format!("the kernel has no fscrypt: {err}"));
        return None;
    }
    fill(&dir);
    fs::write(kernel.path().join("plain"), "plain").unwrap();
    kernel.unmount().unwrap();
    e2fsck_clean(bed.image.path()).unwrap();
    bed.load();
    Some(bed)
}

fn spec(block_size: u32, features: &str) -> ImageSpec {
    ImageSpec {
        block_size_bytes: block_size,
        features: format!("encrypt{features}"),
        ..ImageSpec::with_size(48 * MIB)
    }
}

#[test]
fn encrypted_names_are_shown_as_the_kernel_shows_them() {
    let test = "encrypted_names_are_shown_as_the_kernel_shows_them";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for (block_size, features, pad) in [
        (4096, "", 32),
        (1024, "", 4),
        (4096, ",^dir_index", 16),
        (2048, ",^metadata_csum,^64bit", 8),
    ] {
        let what = format!("{block_size}{features}");
        let Some(bed) = encrypted(test, &spec(block_size, features), pad) else { return };
        let vol = bed.mount("ro");
        let report = vol.check(&mut |_| true).unwrap();
        assert!(report.is_clean(), "{what}: {:#?}", report.findings);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        of_volume(&vol, b"", &mut ours);
        let device = LoopDevice::attach_read_only(bed.image.path()).unwrap();
        let kernel = device.mount("ro").unwrap();
        of_kernel(kernel.path(), kernel.path(), &mut theirs);
        ours.sort();
        theirs.sort();
        assert!(ours.len() > 900, "{what}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{what}");
        }
        assert_eq!(ours.len(), theirs.len(), "{what}");
        // Names that nothing has, and that no name is shown as.
        let (name, ..) = &ours[ours.len() / 2];
        for wrong in ["e/x".into(), "e/AAAAAAAAAAAAAAAAAAAA".into(), [name, &b"A"[..]].concat()] {
            let said = vol.resolve(&wrong).err();
            assert_eq!(said, Some(FsError::NotFound), "{what}: {}", wrong.escape_ascii());
        }
        assert!(vol.resolve("plain").is_ok(), "{what}");
        let device: Arc<dyn BlockDevice> = bed.dev.clone();
        let refused = Volume::mount(device, bed.clock.clone(), MountOptions::default());
        assert!(refused.err().unwrap().to_string().contains("encrypt"), "{what}");
    }
}

/// Links whose length is nonsense, and any bytes in directory blocks.
#[test]
fn damaged_encrypted_names_end_in_errors() {
    let test = "damaged_encrypted_names_end_in_errors";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let plain = spec(1024, ",^metadata_csum");
    let Some(mut bed) = encrypted(test, &plain, 4) else { return };
    let (mut short, mut names) = (String::new(), Vec::new());
    of_volume(&bed.mount("ro"), b"e", &mut names);
    for (name, kind, ..) in &names {
        if *kind == 0o120_000 {
            let ino = bed.mount("ro").resolve_nofollow(name).unwrap().ino;
            short += &format!("sif <{ino}> block[0] 0x10003\n");
        }
    }
    let blocks = debugfs(bed.image.path(), "ex e");
    let _ = debugfs(bed.image.path(), &short);
    bed.load();
    let vol = bed.mount("ro,errors=continue");
    for (name, kind, ..) in &names {
        let inode = vol.resolve_nofollow(name).unwrap();
        if *kind == 0o120_000 && vol.getattr(&inode).blocks == 0 {
            let said = vol.readlink(&inode).unwrap_err().to_string();
            assert!(said.contains("an encrypted symbolic link of 3 bytes"), "{said}");
        }
    }
    assert!(!blocks.is_empty());
    let mut random = Random::new(5);
    let bytes = bed.image.bytes();
    let places: Vec<usize> = (0..bytes.len() - 4)
        .filter(|at| at % 4 == 0 && bytes[*at..].starts_with(&[0x0c, 0, 1, 2, b'.']))
        .collect();
    for _ in 0..40 {
        for at in &places {
            for _ in 0..3 {
                let to = at + random.below(1000) as usize;
                bed.dev.write_at(to as u64, &[random.bits() as u8]).unwrap();
            }
        }
        let vol = bed.mount("ro,errors=continue");
        let root = vol.resolve("e");
        if let Ok(dir) = root {
            let mut seen = Vec::new();
            let _ = vol.readdir(&dir, 0, &mut |entry| {
                seen.push(entry.name.to_vec());
                true
            });
            for name in seen {
                let _ = vol.lookup(&dir, &name);
            }
        }
    }
}
