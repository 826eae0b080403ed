//! The check of a volume: silent on stock images and on what we wrote ourselves, loud on each kind
//! of damage that debugfs can do. e2fsck is asked about the same images, so that a finding of ours
//! is never a rule of our own.

use std::sync::Arc;

use syncline_device::{BlockDevice, MemoryDevice, VirtualClock};
use syncline_fs::{
    CheckReport, Create, FallocateMode, FsError, MountOptions, Volume, XattrFlags, check_device,
};
use syncline_testkit::{
    ImageSpec, Need, TempImage, debugfs, e2fsck_clean, e2fsck_preen, mkfs, require,
};

fn options(read_only: bool) -> MountOptions {
    MountOptions::default().with(|options| options.read_only = read_only)
}

fn mount(dev: &Arc<MemoryDevice>, read_only: bool) -> Result<Volume, FsError> {
    let dev: Arc<dyn BlockDevice> = dev.clone();
    Volume::mount(dev, Arc::new(VirtualClock::default()), options(read_only))
}

fn check(vol: &Volume) -> CheckReport {
    vol.check(&mut |_| true).expect("the check runs")
}

fn assert_clean(vol: &Volume, when: &str) {
    let report = check(vol);
    assert!(report.is_clean(), "{when}: {:#?}", report.findings);
}

/// Files of every kind, an indexed directory, attributes, holes, fragments.
fn fill(vol: &Volume) {
    let root = vol.root().expect("root");
    let create = Create { mode: 0o644, uid: 1, gid: 2 };
    let wide = vol.mkdir(&root, b"wide", &create).expect("mkdir");
    for i in 0..700 {
        let name = format!("a-file-with-a-rather-long-name-so-that-leaves-split-{i}");
        vol.create(&wide, name.as_bytes(), &create).expect("create");
    }
    let file = vol.create(&root, b"file", &create).expect("create");
    vol.write(&file, 0, &[7; 100_000]).expect("write");
    let sparse = vol.create(&root, b"sparse", &create).expect("create");
    for i in 0..40 {
        vol.write(&sparse, i * 16_384, b"an island").expect("write");
    }
    vol.fallocate(&sparse, FallocateMode::KeepSize, 1 << 20, 50_000).expect("fallocate");
    vol.symlink(&root, b"fast", b"file", &create).expect("symlink");
    vol.symlink(&root, b"slow", &[b'x'; 200], &create).expect("symlink");
    vol.link(&file, &root, b"file-again").expect("link");
    vol.setxattr(&file, b"user.small", b"value", XattrFlags::Any).expect("setxattr");
    vol.setxattr(&file, b"user.big", &[1; 700], XattrFlags::Any).expect("setxattr");
    let pipe = Create { mode: 0o010_644, ..create };
    vol.mknod(&root, b"pipe", &pipe, 0).expect("mknod");
    let deep = vol.mkdir(&wide, b"deep", &create).expect("mkdir");
    vol.mkdir(&deep, b"deeper", &create).expect("mkdir");
}

#[test]
fn stock_images_and_what_we_write_are_clean() {
    if !require("stock_images_and_what_we_write_are_clean", &[Need::E2fsck]) {
        return;
    }
    for (block_size_bytes, features) in
        [(4096, ""), (1024, ""), (2048, "^metadata_csum,^64bit"), (4096, "^flex_bg,orphan_file")]
    {
        let what = format!("{block_size_bytes} {features}");
        let spec =
            ImageSpec { block_size_bytes, features: features.into(), ..ImageSpec::default() };
        let image = mkfs(&spec);
        let dev = Arc::new(MemoryDevice::load(image.path()).unwrap());
        assert_clean(&mount(&dev, true).expect("mounts"), &format!("{what}: fresh"));
        let vol = mount(&dev, false).expect("mounts");
        fill(&vol);
        vol.syncfs().expect("syncfs");
        assert_clean(&vol, &format!("{what}: live"));
        vol.unmount().expect("unmount");
        let vol = mount(&dev, true).expect("mounts");
        let report = check(&vol);
        assert!(report.is_clean(), "{what}: unmounted: {:#?}", report.findings);
        assert_eq!((report.directories, report.files), (5, 705), "{what}");
    }
}

/// An image that was filled by us, and damaged by debugfs.
struct Damaged {
    image: TempImage,
}

impl Damaged {
    fn new(filled: &TempImage, commands: &str) -> Damaged {
        let image = filled.duplicate();
        let said = debugfs(image.path(), commands);
        assert!(!said.contains("not found") && !said.contains("sage:"), "{commands}: {said}");
        Damaged { image }
    }

    fn report(&self) -> CheckReport {
        let dev = Arc::new(MemoryDevice::load(self.image.path()).unwrap());
        check(&mount(&dev, true).expect("mounts"))
    }
}

fn filled() -> TempImage {
    let image = mkfs(&ImageSpec::default());
    let dev = Arc::new(MemoryDevice::load(image.path()).unwrap());
    let vol = mount(&dev, false).expect("mounts");
    fill(&vol);
    vol.unmount().expect("unmount");
    dev.to_file(image.path()).expect("scratch space");
    image
}

#[test]
fn every_kind_of_damage_is_found() {
    if !require("every_kind_of_damage_is_found", &[Need::E2fsck]) {
        return;
    }
    let image = filled();
    e2fsck_clean(image.path()).expect("the undamaged image is clean");
    let wide = "/wide/a-file-with-a-rather-long-name-so-that-leaves-split-1";
    let same_leaf_name = format!("unlink {wide}\n");
    let cases: &[(&str, &str, &str)] = &[
        ("link count", "sif /file links_count 7\n", "has 7 links and 2 names"),
        ("directory link count", "sif /wide links_count 9\n", "has 9 links and 3 names"),
        ("lost file", "unlink /pipe\n", "has 1 links and no name"),
        ("lost name in an index", &same_leaf_name, "has 1 links and no name"),
        ("lost directory", "unlink /wide/deep\n", "a directory that is in no directory"),
        ("cleared inode", "clri /pipe\n", "is not in use"),
        ("free inode in use", "freei /pipe\n", "are in use and marked free"),
        ("size", "sif /file size 5000\n", "with data up to block"),
        ("i_blocks", "sif /file blocks 8\n", "i_blocks is 8"),
        ("type", "sif /pipe mode 0100644\n", "says type 5"),
        ("no type", "sif /pipe mode 0644\n", "is of no type"),
        ("extent magic", "sif /file block[0] 0\n", "magic"),
        ("extent outside", "sif /file block[5] 0x7fffff00\n", "outside the file system"),
        ("double use", "sif /file block[5] 1\n", "used twice"),
        ("block marked free", "freeb 1\n", "in use and marked free"),
        ("leaked block", "setb 8000\n", "nothing uses them"),
        ("orphan", "ssv last_orphan 5000\n", "an orphan that is not in use"),
        ("impossible orphan", "ssv last_orphan 3\n", "impossible number"),
        ("two names", "ln /wide/deep /moved\n", "has, too"),
        ("dot dot", "ln /wide/deep /moved\nunlink /wide/deep\n", "`..` is inode"),
        ("cycle", "ln /wide /wide/deep/up\nunlink /wide\n", "below itself"),
    ];
    let mut wrong = Vec::new();
    for (name, commands, expected) in cases {
        let damaged = Damaged::new(&image, commands);
        let report = damaged.report();
        let found = report.findings.iter().any(|finding| finding.to_string().contains(expected));
        if !found {
            wrong.push(format!("{name}: no `{expected}` in {:#?}", report.findings));
        }
        // With -n e2fsck does not look at the orphan list.
        let path = damaged.image.path();
        let stock = e2fsck_clean(path).and_then(|()| e2fsck_preen(path));
        if stock.is_ok() {
            wrong.push(format!("{name}: e2fsck does not mind"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_check_can_be_stopped() {
    if !require("a_check_can_be_stopped", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::default());
    let dev = Arc::new(MemoryDevice::load(image.path()).unwrap());
    let vol = mount(&dev, true).expect("mounts");
    let report = vol.check(&mut |_| false).expect("the check runs");
    assert!(report.stopped && !report.is_clean());
}

/// Bytes of metadata changed at random: findings, errors, but neither panic nor endless walks.
#[test]
fn fuzz_damaged_images_end() {
    if !require("fuzz_damaged_images_end", &[Need::E2fsck]) {
        return;
    }
    let pristine = filled().bytes();
    for seed in syncline_testkit::FuzzRounds::at_least(500) {
        println!("seed {seed}");
        let mut random = syncline_testkit::Random::new(seed);
        let dev = Arc::new(MemoryDevice::from_bytes(&pristine));
        for _ in 0..1 + random.below(12) {
            // The first mebibytes hold descriptors, bitmaps and inode tables.
            let at = if random.below(8) == 0 {
                1024 + random.below(3072)
            } else {
                random.below(4 << 20)
            };
            let byte = [random.below(256) as u8];
            dev.write_at(at, &byte).expect("memory writes");
        }
        if let Ok(vol) = mount(&dev, true) {
            match vol.check(&mut |_| true) {
                Ok(_) | Err(FsError::Unsupported(_)) => {}
                Err(err) => panic!("seed {seed}: {err}"),
            }
        }
        let dev: Arc<dyn BlockDevice> = dev;
        match check_device(&dev, &mut |_| true) {
            Ok(_) | Err(FsError::Unsupported(_)) => {}
            Err(err) => panic!("seed {seed}: {err}"),
        }
    }
}
