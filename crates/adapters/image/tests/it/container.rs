//! Disks in the files of other programs: made by qemu-img, Android's by hand; damaged ones; and
//! files that are something else.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use syncline_device::{BlockDevice, Kind, Origin};
use syncline_image::resize::{NewSize, resize};
use syncline_image::{Image, Opening, device, superblock};
use syncline_testkit::{ImageSpec, Need, Random, mkfs, require, skip};

const ORIGIN: Origin = Origin::new(Kind::Other, true);
const IMAGE_BYTES: u64 = 24 << 20;

fn contents(dev: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; dev.geometry().size_bytes as usize];
    // Pieces that begin and end anywhere in the blocks of the formats.
    for (at, part) in (0..).step_by(77 << 9).zip(bytes.chunks_mut(77 << 9)) {
        dev.read(at, part, ORIGIN).unwrap();
    }
    bytes
}

fn open(path: &Path) -> Arc<dyn BlockDevice> {
    device(path, true).unwrap()
}

fn refusal(path: &Path, read_only: bool) -> String {
    device(path, read_only).err().expect("it is refused").to_string()
}

/// An ext4 with files of random bytes, and holes between them.
fn raw_image(dir: &Path) -> (PathBuf, Vec<u8>) {
    let image = mkfs(&ImageSpec::with_size(IMAGE_BYTES));
    let mut bytes = std::fs::read(image.path()).unwrap();
    let mut random = Random::new(9);
    for at in [3 << 20, 11 << 20, (20 << 20) + 4096] {
        bytes[at..at + 70_000].fill_with(|| random.bits() as u8);
    }
    bytes[15 << 20..16 << 20].fill(0x5A);
    let path = dir.join("raw.img");
    std::fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

fn qemu(dir: &Path, format: &str, options: &str) -> PathBuf {
    let path = dir.join(format!("disk.{format}"));
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-O", format]).args((!options.is_empty()).then_some("-o"));
    command.args((!options.is_empty()).then_some(options)).arg(dir.join("raw.img")).arg(&path);
    assert!(command.status().unwrap().success(), "{format} {options}");
    path
}

fn can(test: &str) -> bool {
    let there = syncline_image::mkfs::find("qemu-img").is_some();
    if !there {
        skip(test, "needs qemu-img; run `make deps` as root");
    }
    there && require(test, &[Need::E2fsck])
}

const FORMATS: [(&str, &str); 9] = [
    ("vpc", "subformat=dynamic"),
    ("vpc", "subformat=fixed,force_size=on"),
    ("vpc", "subformat=dynamic,force_size=on"),
    ("vhdx", ""),
    ("vhdx", "subformat=fixed"),
    ("vhdx", "block_size=1M"),
    ("vmdk", ""),
    ("vmdk", "subformat=streamOptimized"),
    ("vmdk", "subformat=monolithicSparse,zeroed_grain=on,compat6"),
];

#[test]
fn disks_of_other_programs_are_what_was_put_in() {
    if !can("disks_of_other_programs_are_what_was_put_in") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (_, raw) = raw_image(dir.path());
    for (format, options) in FORMATS {
        let path = qemu(dir.path(), format, options);
        let found = contents(&*open(&path));
        // Without its option qemu-img rounds the size of a VHD up.
        assert!(found[..raw.len()] == raw, "{format} {options}");
        assert!(found[raw.len()..].iter().all(|byte| *byte == 0), "{format} {options}");
        let image = Image::read(&path, &Opening::default()).unwrap();
        image.close(Ok::<(), syncline_image::ImageError>(())).unwrap();
        match options.contains("fixed") && format == "vpc" {
            true => {
                // Its size would be that of a plain image.
                let before = std::fs::read(&path).unwrap();
                let refused = resize(&path, NewSize::Minimum).unwrap_err().to_string();
                assert!(refused.contains("qemu-img convert -O raw"), "{refused}");
                assert!(std::fs::read(&path).unwrap() == before, "not touched");
                device(&path, false).unwrap().write(512, &[1; 512], ORIGIN).unwrap();
            }
            false => assert!(refusal(&path, false).contains("only read; mount it with `-o ro`")),
        }
    }
}

#[test]
fn damaged_disks_are_refused_or_read_within_the_file() {
    if !can("damaged_disks_are_refused_or_read_within_the_file") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    raw_image(dir.path());
    let mut random = Random::new(4);
    for (format, options) in FORMATS {
        let bytes = std::fs::read(qemu(dir.path(), format, options)).unwrap();
        let path = dir.path().join("damaged");
        let (mut refused, rounds) = (0, 30);
        for round in 0..rounds {
            let mut damaged = bytes.clone();
            // Headers and tables are at the start and at the end.
            let place = match round % 3 {
                0 => random.index(2048),
                1 => random.index(300 << 10),
                _ => damaged.len() - 1 - random.index(1200),
            };
            damaged[place] ^= 1 << random.index(8);
            if round % 5 == 4 {
                damaged.truncate(damaged.len() * random.index(100) / 100);
            }
            std::fs::write(&path, &damaged).unwrap();
            let Ok(dev) = device(&path, true) else {
                refused += 1;
                continue;
            };
            let size = dev.geometry().size_bytes.min(64 << 20);
            let mut part = vec![0; 1 << 16];
            for at in (0..size.saturating_sub(1 << 16)).step_by(1 << 16) {
                // What it reads may be wrong, or not be there.
                let _ = dev.read(at, &mut part, ORIGIN);
            }
        }
        // A VHD of fixed size with a damaged footer is a disk without one.
        let is_plain = format == "vpc" && options.contains("fixed");
        assert!(is_plain || refused > 2, "{format} {options}: {refused}");
    }
}

#[test]
fn disks_that_lead_to_other_files_are_refused() {
    if !can("disks_that_lead_to_other_files_are_refused") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (raw, _) = raw_image(dir.path());
    for options in ["subformat=monolithicFlat", "subformat=twoGbMaxExtentSparse"] {
        let path = qemu(dir.path(), "vmdk", options);
        assert!(refusal(&path, true).contains("its data in other files; "), "{options}");
    }
    let part = dir.path().join("disk-s001.vmdk");
    let said = refusal(&part, true);
    assert!(said.contains("a part of a disk in several files; "), "{said}");
    let base = qemu(dir.path(), "vmdk", "");
    let child = dir.path().join("child.vmdk");
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "vmdk", "-F", "vmdk", "-b"])
        .args([&base, &child])
        .status();
    assert!(made.unwrap().success());
    assert!(refusal(&child, true).contains("has a parent; "));
    for (format, said) in [("vdi", "this is a VDI"), ("qed", "this is a QED")] {
        let path = qemu(dir.path(), format, "");
        let dev = open(&path);
        let err = superblock(&*dev, &path).unwrap_err().to_string();
        assert!(err.contains(said) && err.contains("; "), "{err}");
    }
    drop(raw);
}

/// An Android sparse image of these bytes, in chunks of all types.
fn android(bytes: &[u8], block: usize) -> Vec<u8> {
    let mut chunks: Vec<(u16, u32, Vec<u8>)> = vec![(0xCAC4, 0, vec![1, 2, 3, 4])];
    for part in bytes.chunks(block) {
        let (kind, data) = match part {
            part if part.iter().all(|byte| *byte == 0) => (0xCAC3, Vec::new()),
            part if part.iter().all(|byte| *byte == part[0]) => (0xCAC2, part[..4].to_vec()),
            part => (0xCAC1, part.to_vec()),
        };
        match chunks.last_mut() {
            Some((last, count, known)) if *last == kind && (kind != 0xCAC2 || *known == data) => {
                *count += 1;
                if kind == 0xCAC1 {
                    known.extend(data);
                }
            }
            _ => chunks.push((kind, 1, data)),
        }
    }
    let mut out = vec![0x3A, 0xFF, 0x26, 0xED, 1, 0, 0, 0, 28, 0, 12, 0];
    for number in [block, bytes.len() / block, chunks.len(), 0] {
        out.extend((number as u32).to_le_bytes());
    }
    for (kind, count, data) in chunks {
        out.extend(u32::from(kind).to_le_bytes());
        out.extend(count.to_le_bytes());
        out.extend((12 + data.len() as u32).to_le_bytes());
        out.extend(data);
    }
    out
}

#[test]
fn android_sparse_images_are_read() {
    if !require("android_sparse_images_are_read", &[Need::E2fsck]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (_, raw) = raw_image(dir.path());
    let path = dir.path().join("system.img");
    for block in [4096, 1024, 512, 64 << 10] {
        std::fs::write(&path, android(&raw, block)).unwrap();
        assert!(contents(&*open(&path)) == raw, "blocks of {block}");
    }
    assert!(refusal(&path, false).contains("or simg2img"));
    let good = android(&raw, 4096);
    for (place, byte, said) in [
        (4, 2, "a version other than 1; use simg2img"),
        (12, 3, "its header is wrong"),
        (16, 0xFF, "the size of the disk"),
        (20, 1, "the size of the disk"),
        (28, 0xC9, "an unknown type or size"),
        (36, 0xFF, "an unknown type or size"),
        (36, 0, "a chunk is too short"),
    ] {
        let mut bad = good.clone();
        bad[place] = byte;
        std::fs::write(&path, &bad).unwrap();
        assert!(refusal(&path, true).contains(said), "{said}: {}", refusal(&path, true));
    }
    std::fs::write(&path, &good[..good.len() - 100]).unwrap();
    assert!(refusal(&path, true).contains("damaged: it"), "{}", refusal(&path, true));
}

/// The same image in several files: of each only some blocks have data.
fn split(bytes: &[u8], block: usize, files: usize) -> Vec<Vec<u8>> {
    let blocks = bytes.len() / block;
    let part = |nr: usize| {
        let mut own = vec![0; bytes.len()];
        let range = blocks * nr / files * block..blocks * (nr + 1) / files * block;
        own[range.clone()].copy_from_slice(&bytes[range]);
        android(&own, block)
    };
    (0..files).map(part).collect()
}

#[test]
fn a_split_sparse_image_is_one_disk() {
    if !require("a_split_sparse_image_is_one_disk", &[Need::E2fsck]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (_, raw) = raw_image(dir.path());
    for (first, files) in [(0, 3), (1, 12), (0, 12)] {
        let name = |nr: usize| dir.path().join(format!("system.img_sparsechunk.{}", first + nr));
        for (nr, bytes) in split(&raw, 4096, files).iter().enumerate() {
            std::fs::write(name(nr), bytes).unwrap();
        }
        let opened = open(&name(0));
        assert!(contents(&*opened) == raw && opened.geometry().read_only, "{files} from {first}");
        drop(opened);
        let said = refusal(&name(1), true);
        assert!(said.contains("name the first, "), "{said}");
        // A part that is damaged, of another disk, no part, or there twice.
        let good = std::fs::read(name(2)).unwrap();
        let other = android(&raw[..raw.len() / 2], 4096);
        let again = std::fs::read(name(0)).unwrap();
        for (bytes, why) in [
            (&good[..good.len() - 20], "it ends early"),
            (&other[..], "of disks of other sizes"),
            (&b"something"[..], "ends early"),
            (&raw[..], "no sparse image"),
            (&again[..], "a file with the next number has the same blocks"),
        ] {
            std::fs::write(name(2), bytes).unwrap();
            assert!(refusal(&name(0), true).contains(why), "{why}: {}", refusal(&name(0), true));
        }
        for nr in 0..files {
            std::fs::remove_file(name(nr)).unwrap();
        }
    }
}

#[test]
fn compressed_images_are_read_to_their_end() {
    if !require("compressed_images_are_read_to_their_end", &[Need::E2fsck]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, raw) = raw_image(dir.path());
    std::fs::write(dir.path().join("sparse"), android(&raw, 4096)).unwrap();
    for program in ["gzip -1c", "zstd -qc", "xz -0c", "bzip2 -c", "lz4 -qc"] {
        for name in ["raw.img", "sparse"] {
            let from = dir.path().join(name);
            let shell = format!("{program} {}", from.display());
            let ran = Command::new("sh").args(["-c", &shell]).output().unwrap();
            if !ran.status.success() {
                skip("compressed_images_are_read_to_their_end", &format!("needs {program}"));
                continue;
            }
            let packed = dir.path().join("packed");
            std::fs::write(&packed, &ran.stdout).unwrap();
            assert!(contents(&*open(&packed)) == raw, "{program} {name}");
            assert!(refusal(&packed, false).contains("only read; unpack it first, or mount it"));
            std::fs::write(&packed, &ran.stdout[..ran.stdout.len() - 5]).unwrap();
            assert!(refusal(&packed, true).contains("is damaged"), "{program} {name}");
        }
    }
    drop(path);
}

#[test]
fn what_is_no_ext4_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    for (at, mark, name) in [
        (0, &b"LUKS\xBA\xBE"[..], "LUKS; open it with `cryptsetup open`"),
        (0, b"hsqs", "squashfs; "),
        (0, b"XFSB", "XFS; "),
        (65_600, b"_BHRfS_M", "btrfs; "),
        (1024, b"\x10\x20\xF5\xF2", "F2FS; "),
        (3, b"-FVE-FS-", "BitLocker; "),
        (512, b"LABELONE", "LVM"),
        (4086, b"SWAPSPACE2", "swap space; "),
        (32_769, b"CD001", "ISO 9660"),
        (257, b"ustar", "a tar archive; `syncline import`"),
    ] {
        let mut bytes = vec![0; 128 << 10];
        bytes[at..at + mark.len()].copy_from_slice(mark);
        std::fs::write(&path, &bytes).unwrap();
        let err = Image::read(&path, &Opening::default()).err().unwrap().to_string();
        assert!(err.contains(&format!("no ext4, this is {name}")) || err.contains(name), "{err}");
    }
}
