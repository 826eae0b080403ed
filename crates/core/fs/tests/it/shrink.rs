//! File systems that shrink: judged by e2fsck and the kernel, trees as before, sizes against
//! resize2fs.
//!
//! `SYNCLINE_SHRINK_SEEDS=FROM..TO` runs other seeds than the first ones.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use syncline_device::{
    BlockDevice, FailingDevice, FaultPlan, Kind, MemoryDevice, OpClass, Origin, VirtualClock,
};
use syncline_fs::mkfs::{Options, Plan as Layout, shrink};
use syncline_fs::repair::Plan;
use syncline_fs::{MountOptions, Volume};
use syncline_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures, Superblock};
use syncline_testkit::crash::{Budget, CrashDevice, CrashOptions, Explorer, run};
use syncline_testkit::{
    Compare, DirTree, FuzzRounds, ImageSpec, KernelMount, Need, Random, TempImage, TreeManifest,
    TreeOptions, apply, debugfs, e2fsck_clean, gen_tree, mkfs, require, scratch_dir,
};

use crate::tree::VolumeTree;

/// Type, features, block size, `-E`, `-g`, size in MiB, inodes.
type Case = (&'static str, &'static str, u32, &'static str, Option<u32>, u64, u32);
const CASES: &[Case] = &[
    ("ext4", "", 4096, "", None, 300, 6000),
    ("ext4", "", 1024, "", None, 80, 6000),
    ("ext4", "orphan_file,metadata_csum_seed", 1024, "", Some(2048), 40, 4000),
    ("ext4", "^resize_inode,meta_bg", 1024, "", Some(1024), 60, 4000),
    ("ext4", "sparse_super2,^resize_inode", 1024, "", Some(2048), 40, 4000),
    ("ext4", "sparse_super2", 1024, "", Some(2048), 40, 4000),
    ("ext4", "^flex_bg", 1024, "", None, 60, 4000),
    ("ext4", "^metadata_csum,^64bit", 1024, "", None, 60, 4000),
    ("ext4", "^metadata_csum,uninit_bg", 1024, "", Some(4096), 50, 4000),
    ("ext4", "^sparse_super,^resize_inode", 1024, "", Some(4096), 50, 4000),
    ("ext4", "inline_data", 1024, "", Some(2048), 50, 4000),
    ("ext4", "inline_data,ea_inode,^has_journal", 4096, "", Some(2048), 80, 4000),
    ("ext4", "ea_inode,quota", 1024, "", Some(2048), 50, 4000),
    ("ext4", "quota,project", 1024, "", Some(2048), 50, 4000),
    ("ext4", "", 2048, "packed_meta_blocks=1", Some(2048), 100, 4000),
    ("ext4", "quota", 8192, "", Some(2048), 200, 4000),
    ("ext4", "", 65536, "", Some(1024), 400, 2000),
    ("ext3", "", 1024, "", None, 60, 4000),
    ("ext3", "", 4096, "", Some(2048), 60, 4000),
    ("ext2", "", 1024, "", None, 60, 4000),
    ("ext2", "^dir_index,^resize_inode,^sparse_super", 1024, "", Some(2048), 40, 4000),
];

fn put(dev: &MemoryDevice, path: &Path) {
    dev.to_file(path).unwrap();
}

/// An image in which the files that are left lie anywhere.
fn made(case: &Case, seed: u64) -> TempImage {
    let (fs_type, features, block, extended, group, mib, inodes) = *case;
    let mut random = Random::new(seed);
    let place = tempfile::tempdir_in(scratch_dir()).unwrap();
    let tree = place.path().join("tree");
    let large = place.path().join("large");
    std::fs::write(&large, vec![3; 2 * block as usize]).unwrap();
    std::fs::create_dir(&tree).unwrap();
    let options = TreeOptions {
        names: 150 + random.index(200),
        // e2fsck 1.47 does not see the attribute block of a link that is in its inode.
        root: !features.contains("inline_data"),
        xattr_bytes_max: match features {
            "ea_inode,quota" => 100,
            _ if features.contains("ea_inode") => 3 * block as usize,
            _ => 700,
        },
        ..TreeOptions::default()
    };
    apply(&gen_tree(seed, options), &mut DirTree::new(&tree)).unwrap();
    // Most of these go, so that holes are everywhere.
    let mut gone = String::new();
    let (mut bytes, mut files) = (0, 0);
    let most = (mib << 20) * (40 + random.below(30)) / 100;
    while bytes < most && files < inodes as usize / 2 {
        let (dir, len) = (files / 100, random.below(4 * (mib << 20) / u64::from(inodes)));
        let name = format!("fill{dir}/f{files}");
        if files % 100 == 0 {
            std::fs::create_dir(place.path().join(format!("fill{dir}"))).unwrap();
        }
        std::fs::write(place.path().join(&name), vec![files as u8; len as usize]).unwrap();
        if !random.one_in(6) {
            gone.push_str(&format!("rm /{name}\n"));
        } else if features == "ea_inode,quota" && random.one_in(3) {
            gone.push_str(&format!("ea_set -f {} /{name} user.large\n", large.display()));
        }
        bytes += len.next_multiple_of(u64::from(block));
        files += 1;
    }
    let image = mkfs(&ImageSpec {
        size_bytes: mib << 20,
        block_size_bytes: block,
        fs_type,
        features: features.to_owned(),
        inode_count: Some(inodes),
        blocks_per_group: group,
        cluster_size_bytes: None,
        extended: extended.to_owned(),
        journal_size_mib: (fs_type != "ext2" && !features.contains("^has_journal"))
            .then_some(if block == 65536 { 64 } else { (mib / 8).min(8) as u32 }),
        // No room for attributes in the inode.
        inode_size_bytes: (features == "ea_inode,quota").then_some(128),
        contents: Some(place.path().to_owned()),
    });
    let _ = debugfs(image.path(), &gone);
    if seed % 3 != 0 {
        // mke2fs makes no index.
        let ran = Command::new("e2fsck").arg("-fyD").arg(image.path()).output().unwrap();
        assert!(matches!(ran.status.code(), Some(0 | 1)), "{ran:?}");
    }
    if features.contains("quota") || features.contains("ea_inode") {
        // mke2fs and debugfs do not count in quotas, and mke2fs not the values of attributes.
        let dev = Arc::new(MemoryDevice::load(image.path()).unwrap());
        let above: Arc<dyn BlockDevice> = dev.clone();
        Plan::new(&above, &mut |_| true).unwrap().apply(&*dev).unwrap();
        put(&dev, image.path());
    }
    e2fsck_clean(image.path()).unwrap();
    image
}

fn tree(dev: &Arc<dyn BlockDevice>) -> TreeManifest {
    let options = MountOptions::parse("ro").unwrap();
    let vol = Volume::mount(Arc::clone(dev), Arc::new(VirtualClock::default()), options).unwrap();
    TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap()
}

fn on_kernel(path: &Path) -> TreeManifest {
    let mount = KernelMount::new(path, "ro").unwrap();
    let tree = TreeManifest::from_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    tree
}

/// The size that resize2fs would give it.
fn estimate(path: &Path, block: u32) -> u64 {
    let ran = Command::new("resize2fs").arg("-P").arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let number = said.split_whitespace().last().and_then(|word| word.parse::<u64>().ok());
    number.unwrap_or_else(|| panic!("{ran:?}")) * u64::from(block)
}

fn cut_to(path: &Path, bytes: u64) {
    std::fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// Shrinks in steps and as far as it goes.
fn shrinks(case: &Case, seed: u64) {
    let what = format!("{case:?} seed {seed}");
    let image = made(case, seed);
    let mut random = Random::new(seed ^ 77);
    let (block, size) = (case.2, case.5 << 20);
    let dev = Arc::new(MemoryDevice::load(image.path()).unwrap());
    let above: Arc<dyn BlockDevice> = dev.clone();
    let before = tree(&above);
    // Linux fails to say where the data of a file in its inode is.
    let kernel = block <= 4096 && !case.1.contains("inline_data");
    let kernel = kernel && require("shrinks", &[Need::Root, Need::Loop]);
    let on_kernel_before = kernel.then(|| on_kernel(image.path()));
    let least = estimate(image.path(), block);
    let judge = |bytes: u64, step: &str| {
        put(&dev, image.path());
        cut_to(image.path(), bytes);
        e2fsck_clean(image.path()).unwrap_or_else(|said| panic!("{what} {step}: {said}"));
        before.assert_same(&tree(&above), Compare::SAME_IMAGE, &format!("{what} {step}"));
    };
    let mut size = size;
    for step in 0..1 + random.below(2) {
        let asked = size - random.below(size - least.min(size) + 1);
        match shrink(&above, Some(asked)) {
            Ok(bytes) => {
                assert!(bytes <= asked && bytes + (32 << 20) > asked, "{what}: {bytes} of {asked}");
                size = bytes;
                judge(bytes, &format!("step {step} to {asked}"));
            }
            Err(err) => {
                assert!(err.to_string().contains("its files need "), "{what}: {err}");
                assert!(asked < least + least / 8 + (2 << 20), "{what} {asked} {least}: {err}");
            }
        }
    }
    let bytes = shrink(&above, None).unwrap();
    judge(bytes, "minimum");
    println!("{what}: resize2fs {least}, ours {bytes}");
    assert!(bytes <= least, "{what}: resize2fs -P says {least}, ours has {bytes}");
    assert_eq!(shrink(&above, None).unwrap(), bytes, "{what}: again");
    let err = shrink(&above, Some(bytes / 2)).unwrap_err().to_string();
    assert!(err.contains(&format!("its files need {bytes} bytes")), "{what}: {err}");
    judge(bytes, "refused");
    if let Some(before) = on_kernel_before {
        before.assert_same(&on_kernel(image.path()), Compare::SAME_IMAGE, &what);
    }
}

/// Seeds to run.
fn seeds(default: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("SYNCLINE_SHRINK_SEEDS") else { return default };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn smaller_file_systems_keep_their_trees() {
    if !require("smaller_file_systems_keep_their_trees", &[Need::E2fsck]) {
        return;
    }
    for seed in seeds(0..CASES.len() as u64) {
        shrinks(&CASES[seed as usize % CASES.len()], seed);
    }
}

#[test]
#[ignore = "minutes; other seeds by SYNCLINE_SHRINK_SEEDS"]
fn many_file_systems_shrink() {
    for seed in seeds(0..400) {
        shrinks(&CASES[seed as usize % CASES.len()], seed);
    }
}

/// e2fsck, and our repair, give each state of a cut the tree back.
#[test]
fn a_cut_leaves_every_file() {
    if !require("a_cut_leaves_every_file", &[Need::E2fsck]) {
        return;
    }
    let states = std::env::var("SYNCLINE_CRASH_STATES").ok().and_then(|n| n.parse().ok());
    let only = std::env::var("SYNCLINE_CRASH_STATE").ok();
    let only = only.map(|id| id.parse().expect("the id of a state"));
    let scratch = tempfile::tempdir_in(scratch_dir()).unwrap();
    let path = scratch.path().join("cut");
    for (fs_type, features) in [
        ("ext4", "orphan_file"),
        ("ext3", "^resize_inode"),
        ("ext4", "inline_data,ea_inode,sparse_super2"),
        ("ext4", "quota,^flex_bg"),
        ("ext2", ""),
    ] {
        let case = (fs_type, features, 1024, "", Some(1024), 24, 640);
        let image = made(&case, 5);
        let base = MemoryDevice::load(image.path()).unwrap();
        let before = tree(&(Arc::new(base.snapshot()) as Arc<dyn BlockDevice>));
        let device = Arc::new(CrashDevice::new(&base, CrashOptions::default()));
        let above: Arc<dyn BlockDevice> = device.clone();
        shrink(&above, None).unwrap();
        let budget = Budget::new(states.unwrap_or(12), 9).with_only(only.clone());
        let summary = run(&Explorer::new(device.log()), &budget, "cargo test", |state| {
            let dev = Arc::new(state.image.snapshot());
            put(&dev, &path);
            let ran = Command::new("e2fsck").arg("-fy").arg(&path).output().unwrap();
            if !matches!(ran.status.code(), Some(0 | 1)) {
                return Err(String::from_utf8_lossy(&ran.stdout).into_owned());
            }
            e2fsck_clean(&path)?;
            let mended: Arc<dyn BlockDevice> =
                Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
            let above: Arc<dyn BlockDevice> = dev.clone();
            let plan = Plan::new(&above, &mut |_| true).map_err(|err| err.to_string())?;
            plan.apply(&*dev).unwrap();
            if !plan.after.is_clean() {
                return Err(format!("{:?}", plan.after.findings));
            }
            for (of, now) in [("e2fsck", mended), ("repair", above)] {
                let lines = before.diff(&tree(&now), Compare::SAME_IMAGE);
                if !lines.is_empty() {
                    let said = String::from_utf8_lossy(&ran.stdout);
                    return Err(format!("{of}: {:?}\n{said}", &lines[..lines.len().min(9)]));
                }
            }
            Ok(())
        });
        println!("{case:?}: {summary}");
        if let Err(text) = summary.into_result() {
            panic!("{case:?}: {text}");
        }
    }
}

/// A request that fails leaves what a cut there leaves.
#[test]
fn a_shrink_that_fails_keeps_all_files() {
    let test = "a_shrink_that_fails_keeps_all_files";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let case = ("ext4", "", 1024, "", Some(1024), 24, 640);
    let base = MemoryDevice::load(made(&case, 6).path()).unwrap();
    let before = tree(&(Arc::new(base.snapshot()) as Arc<dyn BlockDevice>));
    for class in [OpClass::Read, OpClass::Write, OpClass::Flush] {
        for nth in (1..).step_by(if class == OpClass::Flush { 3 } else { 61 }) {
            let device = Arc::new(FailingDevice::new(base.snapshot()));
            device.arm(FaultPlan::from_then_on(class, nth));
            let above: Arc<dyn BlockDevice> = device.clone();
            let done = shrink(&above, Some(16 << 20));
            let dev: Arc<dyn BlockDevice> = Arc::new(device.inner().snapshot());
            let plan = Plan::new(&dev, &mut |_| true).unwrap();
            plan.apply(&*dev).unwrap();
            assert!(plan.after.is_clean(), "{class:?} {nth}: {:?}", plan.after.findings);
            let what = format!("{class:?} {nth}");
            before.assert_same(&tree(&dev), Compare::SAME_IMAGE, &what);
            if done.is_ok() {
                assert!(nth > 3, "{what}");
                break;
            }
        }
    }
}

#[test]
fn what_cannot_shrink_is_refused() {
    let size = 64 << 20;
    let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(size));
    let said = |size_bytes| shrink(&dev, size_bytes).unwrap_err().to_string();
    assert!(said(None).contains("magic"));
    let options = Options { zeroed: true, ..Options::default() };
    Layout::new(&options, size).unwrap().write(&*dev).unwrap();
    assert!(said(Some(2 * size)).contains("above that of the file system"));
    assert!(said(Some(0)).contains("its files need "));
    assert_eq!(shrink(&dev, Some(size)).unwrap(), size);
    let mut raw = [0; 1024];
    let origin = Origin::new(Kind::Metadata, true);
    dev.read(1024, &mut raw, origin).unwrap();
    let sb = Superblock::decode(&raw).unwrap();
    let mut refused = |name: &str, change: &dyn Fn(&mut Superblock)| {
        let mut other = sb.clone();
        change(&mut other);
        other.encode_into(&mut raw).unwrap();
        dev.write(1024, &raw, origin).unwrap();
        let said = said(None);
        assert!(said.contains(name), "{name}: {said}");
    };
    refused("stable_inodes", &|sb| sb.s_feature_compat.insert(CompatFeatures::STABLE_INODES));
    refused("mmp", &|sb| sb.s_feature_incompat.insert(IncompatFeatures::MMP));
    refused("bigalloc", &|sb| sb.s_feature_ro_compat.insert(RoCompatFeatures::BIGALLOC));
    refused("shared_blocks", &|sb| sb.s_feature_ro_compat.insert(RoCompatFeatures::SHARED_BLOCKS));
    refused("a log or orphans wait", &|sb| sb.s_last_orphan = 12);
    refused("a log or orphans wait", &|sb| sb.set_needs_recovery(true));
    refused("a journal on another device", &|sb| sb.s_journal_inum = 0);
}

/// Damaged bytes are an error or are not looked at, never a panic.
#[test]
fn fuzz_of_shrinking_images() {
    let mut random = Random::new(44);
    for case in [
        ("ext4", "orphan_file", 1024, "", Some(1024), 24, 640),
        ("ext2", "", 1024, "", Some(1024), 24, 640),
        ("ext4", "inline_data,ea_inode", 1024, "", Some(1024), 24, 640),
    ] {
        let bytes = made(&case, 7).bytes();
        let base = MemoryDevice::from_bytes(&bytes);
        let used: Vec<usize> =
            (0..bytes.len() / 1024).filter(|at| bytes[at * 1024..][..1024] != [0; 1024]).collect();
        for _ in FuzzRounds::at_least(60) {
            let dev = Arc::new(base.snapshot());
            for _ in 0..=random.below(40) {
                let at = used[random.index(used.len())] as u64 * 1024 + random.below(1024);
                dev.write_at(at, &[random.bits() as u8]).unwrap();
            }
            let mut raw = [0; 1024];
            dev.read_at(1024, &mut raw).unwrap();
            if let Ok(sb) = Superblock::decode(&raw) {
                // A right checksum, so that what is behind it is reached.
                sb.encode_into(&mut raw).unwrap();
                dev.write_at(1024, &raw).unwrap();
            }
            let above: Arc<dyn BlockDevice> = dev;
            let _ = shrink(&above, random.one_in(2).then_some(16 << 20));
        }
    }
}
