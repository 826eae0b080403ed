//! File systems that grow: judged by e2fsck and the kernel, files as before.

use std::path::Path;
use std::process::Command;

use syncline_device::{FailingDevice, FaultPlan, FileDevice, FileOptions, MemoryDevice, OpClass};
use syncline_fs::mkfs::{Options, Plan, grow};
use syncline_ondisk::Superblock;
use syncline_testkit::{
    FuzzRounds, ImageSpec, KernelMount, Need, Random, TempImage, e2fsck_clean, mkfs, require,
};

/// Features, block size, `-E`, `-g`, and the sizes in MiB.
type Case = (&'static str, u32, &'static str, Option<u32>, &'static [u64]);
const CASES: &[Case] = &[
    ("", 4096, "", None, &[40, 300, 3000, 20_000]),
    ("", 1024, "", None, &[16, 17, 24, 500, 9000]),
    ("", 2048, "", None, &[100, 101, 4000]),
    ("^resize_inode", 1024, "", None, &[20, 200, 3000]),
    ("", 1024, "resize=64M", None, &[20, 200, 3000]),
    ("^flex_bg", 1024, "", None, &[20, 60, 2000]),
    ("^resize_inode,meta_bg", 1024, "", None, &[20, 200, 3000]),
    ("sparse_super2,orphan_file,metadata_csum_seed", 1024, "", None, &[20, 200, 2000]),
    ("^metadata_csum,^64bit", 1024, "", None, &[20, 70, 1000]),
    ("^metadata_csum,uninit_bg", 4096, "", Some(1024), &[40, 900]),
    ("^has_journal,inline_data,ea_inode", 4096, "", Some(8192), &[40, 41, 1000]),
    ("", 4096, "packed_meta_blocks=1", Some(2048), &[100, 600]),
];

fn contents() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..40_u8 {
        std::fs::write(dir.path().join(format!("file{n}")), vec![n; 200 * usize::from(n)]).unwrap();
    }
    dir
}

fn made(features: &str, block: u32, extended: &str, group: Option<u32>, mib: u64) -> TempImage {
    let contents = contents();
    mkfs(&ImageSpec {
        block_size_bytes: block,
        features: features.to_owned(),
        blocks_per_group: group,
        extended: extended.to_owned(),
        contents: Some(contents.path().to_owned()),
        ..ImageSpec::with_size(mib << 20)
    })
}

fn grown(path: &Path, bytes: u64) -> u64 {
    std::fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
    let device = FileDevice::open(path, FileOptions::default()).unwrap();
    grow(&device, bytes, true).unwrap()
}

fn has_files(at: &Path) {
    for n in 0..40_u8 {
        let bytes = std::fs::read(at.join(format!("file{n}"))).unwrap();
        assert!(bytes == vec![n; 200 * usize::from(n)], "file{n}");
    }
}

#[test]
fn larger_file_systems_keep_their_files() {
    let test = "larger_file_systems_keep_their_files";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let mounts = require(test, &[Need::Root, Need::Loop]);
    for (features, block, extended, group, sizes) in CASES {
        let what = format!("{features} {block} {extended}");
        let image = made(features, *block, extended, *group, sizes[0]);
        for mib in &sizes[1..] {
            let bytes = grown(image.path(), mib << 20);
            assert!(bytes > (mib << 20) - (16 << 20), "{what}: {bytes}");
            e2fsck_clean(image.path()).unwrap_or_else(|err| panic!("{what} {mib}: {err}"));
            if mounts {
                let mount = KernelMount::new(image.path(), "").unwrap();
                has_files(mount.path());
                std::fs::write(mount.path().join("new"), vec![9; 3 << 20]).unwrap();
                mount.unmount().unwrap();
                e2fsck_clean(image.path()).unwrap_or_else(|err| panic!("{what} {mib}: {err}"));
            }
        }
    }
}

/// The kernel grows what we grew, while it is mounted.
#[test]
fn the_kernel_and_resize2fs_go_on_from_there() {
    let test = "the_kernel_and_resize2fs_go_on_from_there";
    if !require(test, &[Need::E2fsck, Need::Root, Need::Loop]) {
        return;
    }
    let image = made("", 1024, "", None, 20);
    grown(image.path(), 300 << 20);
    let ran = Command::new("resize2fs").args(["-M"]).arg(image.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    e2fsck_clean(image.path()).unwrap();
    grown(image.path(), 300 << 20);
    e2fsck_clean(image.path()).unwrap();
    let mount = KernelMount::new(image.path(), "").unwrap();
    has_files(mount.path());
    mount.unmount().unwrap();
}

/// A failure at any request: e2fsck repairs it, and the files are whole.
#[test]
fn a_growth_that_is_cut_keeps_all_files() {
    let test = "a_growth_that_is_cut_keeps_all_files";
    if !require(test, &[Need::E2fsck, Need::Root, Need::Loop]) {
        return;
    }
    let image = made("", 1024, "", None, 20);
    let whole = std::fs::read(image.path()).unwrap();
    let larger = 200_u64 << 20;
    let old = MemoryDevice::new(larger);
    old.write_at(0, &whole).unwrap();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("cut");
    let mut cuts = 0;
    loop {
        let device = FailingDevice::new(old.snapshot());
        device.arm(FaultPlan::from_then_on(OpClass::Write, cuts + 1));
        let done = grow(&device, larger, true).is_ok();
        if !done && cuts % 7 != 0 {
            cuts += 1;
            continue;
        }
        device.inner().to_file(&path).unwrap();
        let ran = Command::new("e2fsck").arg("-fy").arg(&path).output().unwrap();
        assert!(matches!(ran.status.code(), Some(0 | 1)), "{cuts}: {ran:?}");
        e2fsck_clean(&path).unwrap();
        let mount = KernelMount::new(&path, "ro").unwrap();
        has_files(mount.path());
        mount.unmount().unwrap();
        if done {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 10, "{cuts}");
}

/// Damaged bytes are an error or are not looked at, never a panic.
#[test]
fn fuzz_of_growing_images() {
    let size = 16 << 20;
    let mut random = Random::new(44);
    for features in ["", "^metadata_csum", "^metadata_csum,^64bit,^flex_bg"] {
        let options = Options { features: features.into(), zeroed: true, ..Options::default() };
        let device = MemoryDevice::new(8 * size);
        Plan::new(&options, size).unwrap().write(&device).unwrap();
        for _ in FuzzRounds::at_least(300) {
            let copy = device.snapshot();
            for _ in 0..=random.below(3) {
                // Superblock, descriptors, reserved blocks, bitmaps.
                let at = [1024, 2048, 4096, 270_000][random.index(4)] + random.below(1024);
                copy.write_at(at, &[random.bits() as u8]).unwrap();
            }
            let mut raw = [0; 1024];
            copy.read_at(1024, &mut raw).unwrap();
            if let Ok(sb) = Superblock::decode(&raw) {
                // A right checksum, so that what is behind it is reached.
                sb.encode_into(&mut raw).unwrap();
                copy.write_at(1024, &raw).unwrap();
            }
            let _ = grow(&copy, 8 * size, true);
        }
    }
}

#[test]
fn what_cannot_grow_is_refused() {
    let size = 64 << 20;
    let device = MemoryDevice::new(4 * size);
    assert!(grow(&device, size, true).unwrap_err().to_string().contains("magic"));
    Plan::new(&Options { zeroed: true, ..Options::default() }, size)
        .unwrap()
        .write(&device)
        .unwrap();
    let err = grow(&device, size / 2, true).unwrap_err();
    assert!(err.to_string().contains("device has only") || err.errno() == 22, "{err}");
    assert_eq!(grow(&device, size, true).unwrap(), size, "nothing to do");
    assert_eq!(grow(&device, 4 * size, true).unwrap(), 4 * size);
    let mut state = [0; 2];
    device.read_at(1024 + 0x3a, &mut state).unwrap();
    assert_eq!(state, [1, 0]);
    let mut orphan = [0; 1024];
    device.read_at(1024, &mut orphan).unwrap();
    let mut sb = Superblock::decode(&orphan).unwrap();
    sb.s_last_orphan = 12;
    sb.encode_into(&mut orphan).unwrap();
    device.write_at(1024, &orphan).unwrap();
    assert!(grow(&device, 4 * size, true).is_err());
}
