//! Volumes that allocate clusters of blocks (`bigalloc`).

use std::path::Path;
use std::sync::Arc;

use syncline_device::MemoryDevice;
use syncline_fs::{FallocateMode, FsError, RenameFlags, Volume, XattrFlags};
use syncline_testkit::{
    Compare, DirTree, ImageSpec, KernelMount, LoopDevice, Need, Random, TreeManifest, TreeOptions,
    TreeSink, apply, e2fsck_clean, gen_changes, gen_tree, require,
};

use crate::bed::{Bed, MIB, assert_same, bytes, contents, owner, random};
use crate::tree::VolumeTree;

/// Sizes of blocks and clusters.
const SIZES: [(u32, u32); 5] =
    [(4096, 65_536), (1024, 16_384), (1024, 2048), (4096, 4096), (2048, 1 << 20)];

fn spec((block, cluster): (u32, u32), features: &str) -> ImageSpec {
    ImageSpec {
        block_size_bytes: block,
        cluster_size_bytes: Some(cluster),
        features: format!("bigalloc{features}"),
        ..ImageSpec::with_size(if cluster > 65_536 { 512 * MIB } else { 96 * MIB })
    }
}

/// Trees with holes, truncated and appended files, and attributes in blocks.
fn fill_by_the_kernel(image: &Path, seed: u64) {
    let kernel = KernelMount::new(image, "").unwrap();
    let mut tree = DirTree::new(kernel.path());
    let options = TreeOptions { names: 150, root: true, ..TreeOptions::default() };
    apply(&gen_tree(seed, options), &mut tree).unwrap();
    let now = TreeManifest::from_dir(kernel.path()).unwrap();
    apply(&gen_changes(seed, &now, 80, options), &mut tree).unwrap();
    tree.create(b"holes", 0o644).unwrap();
    for nr in 0..40 {
        tree.write(b"holes", nr * 29_000, &[nr as u8 + 1; 3000]).unwrap();
    }
    kernel.unmount().unwrap();
    e2fsck_clean(image).unwrap();
}

/// Free space as df shows it.
fn free(vol: &Volume) -> (u64, u64) {
    let space = vol.statfs();
    (space.blocks, space.blocks_free)
}

#[test]
fn what_the_kernel_writes_in_clusters_is_read() {
    let test = "what_the_kernel_writes_in_clusters_is_read";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for (nr, sizes) in SIZES.into_iter().enumerate() {
        for features in ["", ",^metadata_csum,^64bit"] {
            let what = format!("{sizes:?}{features}");
            let mut bed = Bed::new(&spec(sizes, features), 0);
            fill_by_the_kernel(bed.image.path(), nr as u64);
            bed.load();
            let vol = bed.mount("ro");
            let ours = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
            let report = vol.check(&mut |_| true).unwrap();
            assert!(report.is_clean(), "{what}: {:#?}", report.findings);
            let device = LoopDevice::attach_read_only(bed.image.path()).unwrap();
            let kernel = device.mount("ro").unwrap();
            let theirs = TreeManifest::from_dir(kernel.path()).unwrap();
            ours.assert_same(&theirs, Compare::SAME_IMAGE, &what);
            let stat = rustix::fs::statvfs(kernel.path()).unwrap();
            assert_eq!(free(&vol), (stat.f_blocks, stat.f_bfree), "{what}");
        }
    }
}

/// Superblocks with sizes that cannot be.
#[test]
fn damaged_cluster_sizes_are_refused() {
    if !require("damaged_cluster_sizes_are_refused", &[Need::E2fsck]) {
        return;
    }
    let bed = Bed::new(&spec((4096, 65_536), ",^metadata_csum"), 0);
    let bytes = bed.image.bytes();
    for (at, value) in [
        (0x1c, 1_u32),
        (0x1c, 20),
        (0x1c, u32::MAX),
        (0x1c, 7),
        (0x24, 0),
        (0x24, 2047),
        (0x24, u32::MAX),
        (0x24, 1 << 28),
        (0x20, 8),
        (0x14, 1),
    ] {
        let mut damaged = bytes.clone();
        damaged[1024 + at..1024 + at + 4].copy_from_slice(&value.to_le_bytes());
        let dev = Arc::new(MemoryDevice::from_bytes(&damaged));
        let mounted = Volume::mount(dev, bed.clock.clone(), bed.parsed("ro"));
        assert!(mounted.is_err(), "{at:#x}: {value}");
    }
}

/// Blocks, and blocks of a cluster.
const RATIOS: [(u32, u32); 6] =
    [(1024, 2), (1024, 16), (1024, 64), (4096, 2), (4096, 16), (4096, 64)];
const FILES: usize = 5;

fn with_ratio((block, ratio): (u32, u32), mib: u64) -> ImageSpec {
    ImageSpec {
        block_size_bytes: block,
        cluster_size_bytes: Some(block * ratio),
        features: "bigalloc".into(),
        ..ImageSpec::with_size(mib * MIB)
    }
}

fn write_into(model: &mut Vec<u8>, at: usize, data: &[u8]) {
    model.resize(model.len().max(at + data.len()), 0);
    model[at..at + data.len()].copy_from_slice(data);
}

fn zero_in(model: &mut Vec<u8>, at: usize, len: usize, grow: bool) {
    if grow {
        model.resize(model.len().max(at + len), 0);
    }
    let end = model.len().min(at + len);
    if at < end {
        model[at..end].fill(0);
    }
}

/// One operation on a file and on its model.
fn change(vol: &Volume, nr: usize, model: &mut Vec<u8>, random: &mut Random) {
    let seed = random.below(1 << 40);
    let root = vol.root().unwrap();
    let name = format!("f{nr}");
    let file = vol.lookup(&root, name.as_bytes()).unwrap();
    let at = random.index(300_000);
    let most = [700, 5000, 40_000][random.index(3)];
    let len = 1 + random.index(most);
    let fallocate = |mode| vol.fallocate(&file, mode, at as u64, len as u64).unwrap();
    match random.below(13) {
        0..=3 => {
            let data = bytes(seed, len);
            assert_eq!(vol.write(&file, at as u64, &data).unwrap(), len);
            write_into(model, at, &data);
        }
        4 | 5 => {
            fallocate(FallocateMode::PunchHole);
            zero_in(model, at, len, false);
        }
        6 => {
            fallocate(FallocateMode::ZeroRange);
            zero_in(model, at, len, true);
        }
        7 => {
            fallocate(FallocateMode::ZeroRangeKeepSize);
            zero_in(model, at, len, false);
        }
        8 => fallocate(FallocateMode::KeepSize),
        9 => {
            fallocate(FallocateMode::Allocate);
            model.resize(model.len().max(at + len), 0);
        }
        10 => {
            vol.truncate(&file, at as u64).unwrap();
            model.resize(at, 0);
        }
        11 => {
            vol.setxattr(&file, b"user.long", &bytes(seed, 600), XattrFlags::Any).unwrap();
            vol.rename(&root, name.as_bytes(), &root, b"moved", RenameFlags::NONE).unwrap();
            vol.rename(&root, b"moved", &root, name.as_bytes(), RenameFlags::NONE).unwrap();
        }
        _ if random.one_in(3) => {
            drop(file);
            vol.unlink(&root, name.as_bytes()).unwrap();
            vol.create(&root, name.as_bytes(), &owner()).unwrap();
            model.clear();
        }
        _ => vol.fsync(&file, random.one_in(2)).unwrap(),
    }
}

/// The files as the kernel reads them, and e2fsck and our check find nothing.
fn judge_all(bed: &Bed, models: &[Vec<u8>], what: &str) {
    bed.judge(what);
    let kernel = KernelMount::new(bed.image.path(), "ro").unwrap();
    for (nr, model) in models.iter().enumerate() {
        let found = std::fs::read(kernel.path().join(format!("f{nr}"))).unwrap();
        assert_same(&found, model, &format!("{what}: f{nr} as the kernel reads it"));
    }
    kernel.unmount().unwrap();
    let report = bed.mount("ro").check(&mut |_| true).unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
}

#[test]
fn files_in_clusters_keep_their_contents() {
    let test = "files_in_clusters_keep_their_contents";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let modes = ["ordered", "eager,alloc=hot_zones", "periodic,alloc=lifetime"];
    for (sizes, sync) in RATIOS.iter().flat_map(|sizes| modes.map(|mode| (sizes, mode))) {
        let mut models = vec![Vec::new(); FILES];
        let mut random = random(u64::from(sizes.0 + sizes.1));
        let bed = Bed::new(&with_ratio(*sizes, 96), 0);
        for round in 0..2 {
            let what = format!("{sizes:?}, {sync}, round {round}");
            let vol = bed.mount(&format!("sync={sync},cache=1M"));
            let root = vol.root().unwrap();
            for nr in (0..FILES).filter(|_| round == 0) {
                vol.create(&root, format!("f{nr}").as_bytes(), &owner()).unwrap();
            }
            for _ in 0..150 {
                let nr = random.index(FILES);
                change(&vol, nr, &mut models[nr], &mut random);
            }
            for (nr, model) in models.iter().enumerate() {
                let file = vol.resolve(format!("f{nr}")).unwrap();
                assert_same(&contents(&vol, &file), model, &format!("{what}: f{nr}"));
            }
            vol.unmount().unwrap();
            judge_all(&bed, &models, &what);
        }
    }
}

/// Writes until the volume is full; the files as they were taken.
fn fill_up(vol: &Volume, seed: u64, step: usize) -> Vec<Vec<u8>> {
    let root = vol.root().unwrap();
    let mut models = Vec::new();
    loop {
        let file = match vol.create(&root, format!("f{}", models.len()).as_bytes(), &owner()) {
            Ok(file) => file,
            Err(FsError::NoSpace) => return models,
            Err(err) => panic!("{err}"),
        };
        let mut model = Vec::new();
        for piece in 0..40 {
            // Every other one leaves a hole before it.
            let at = model.len() + (piece % 2) * step;
            let data = bytes(seed + piece as u64, 1 + step);
            let taken = match vol.write(&file, at as u64, &data) {
                Ok(taken) => taken,
                Err(FsError::NoSpace) => 0,
                Err(err) => panic!("{err}"),
            };
            if taken > 0 {
                write_into(&mut model, at, &data[..taken]);
            }
            if taken < data.len() {
                models.push(model);
                return models;
            }
        }
        models.push(model);
    }
}

#[test]
fn a_full_volume_of_clusters_loses_nothing() {
    let test = "a_full_volume_of_clusters_loses_nothing";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for (sizes, sync) in [((1024, 16), "ordered"), ((4096, 16), "eager"), ((1024, 64), "eager")] {
        let bed = Bed::new(&with_ratio(sizes, 24), 0);
        for (round, step) in [3000, 70_000, 900].into_iter().enumerate() {
            let what = format!("{sizes:?}, {sync}, pieces of {step}");
            let vol = bed.mount(&format!("sync={sync}"));
            let free = vol.statfs().blocks_free;
            let models = fill_up(&vol, round as u64, step);
            assert!(vol.statfs().blocks_available < free / 8, "{what}: {:?}", vol.statfs());
            // What was accepted has its place.
            vol.syncfs().unwrap();
            vol.unmount().unwrap();
            judge_all(&bed, &models, &what);
            let vol = bed.mount(&format!("sync={sync}"));
            for nr in 0..models.len() {
                vol.unlink(&vol.root().unwrap(), format!("f{nr}").as_bytes()).unwrap();
            }
            vol.syncfs().unwrap();
            assert_eq!(vol.statfs().blocks_free, free, "{what}");
            bed.unmount_and_judge(vol, &what);
        }
    }
}

/// Clusters whose former owner had a secret; files that have a few blocks of each now.
#[test]
fn the_rest_of_a_cluster_is_never_read() {
    let test = "the_rest_of_a_cluster_is_never_read";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    const SECRET: u8 = 0xA7;
    for sync in ["ordered", "eager"] {
        let bed = Bed::new(&with_ratio((1024, 16), 24), 0);
        let vol = bed.mount(&format!("sync={sync}"));
        let root = vol.root().unwrap();
        let file = vol.create(&root, b"secret", &owner()).unwrap();
        while vol.write_append(&file, &vec![SECRET; 65_536]).is_ok() {}
        vol.fsync(&file, false).unwrap();
        drop(file);
        vol.unlink(&root, b"secret").unwrap();
        vol.syncfs().unwrap();
        let mut models = Vec::new();
        for nr in 0..20_u64 {
            let file = vol.create(&root, format!("f{nr}").as_bytes(), &owner()).unwrap();
            let mut model = Vec::new();
            for piece in 0..20 {
                // Into the middle of a cluster, and of a block.
                let (at, data) = (piece * 20_000 + 7 * nr as usize, bytes(nr, 900));
                vol.write(&file, at as u64, &data).unwrap();
                write_into(&mut model, at, &data);
            }
            vol.fallocate(&file, FallocateMode::KeepSize, 3000, 9000).unwrap();
            vol.truncate(&file, 400_000 - 333 * nr).unwrap();
            model.resize(400_000 - 333 * nr as usize, 0);
            vol.truncate(&file, 400_000).unwrap();
            model.resize(400_000, 0);
            assert!(!model.contains(&SECRET) || bytes(nr, 900).contains(&SECRET));
            assert_same(&contents(&vol, &file), &model, &format!("{sync}: f{nr}"));
            vol.fsync(&file, false).unwrap();
            models.push(model);
        }
        // Power fails; what the log has is replayed.
        let crashed = Bed { dev: Arc::new(bed.dev.snapshot()), ..bed };
        drop(vol);
        let vol = crashed.mount(&format!("sync={sync}"));
        for (nr, model) in models.iter().enumerate() {
            let file = vol.resolve(format!("f{nr}")).unwrap();
            assert_same(&contents(&vol, &file), model, &format!("{sync}, crashed: f{nr}"));
        }
        vol.unmount().unwrap();
        judge_all(&crashed, &models, sync);
    }
}

/// What a part of a cluster takes: `i_blocks` and free space go by the cluster, both ways.
#[test]
fn a_cluster_goes_with_its_last_block() {
    if !require("a_cluster_goes_with_its_last_block", &[Need::E2fsck]) {
        return;
    }
    let bed = Bed::new(&with_ratio((1024, 16), 24), 1);
    let vol = bed.mount("sync=ordered");
    let file = bed.file(&vol, 0);
    let sectors = |clusters: u64| clusters * 32;
    let taken = || {
        vol.syncfs().unwrap();
        vol.getattr(&file).blocks
    };
    let free = vol.statfs().blocks_free;
    vol.truncate(&file, 100 * 1024).unwrap();
    vol.write(&file, 5 * 1024, &[1; 1024]).unwrap();
    vol.write(&file, 7 * 1024, &[9; 1024]).unwrap();
    assert_eq!(vol.getattr(&file).blocks, sectors(1), "delayed");
    vol.fallocate(&file, FallocateMode::PunchHole, 7 * 1024, 1024).unwrap();
    assert_eq!(vol.getattr(&file).blocks, sectors(1), "the promise of the other block");
    vol.write(&file, 9 * 1024, &[2; 1024]).unwrap();
    vol.write(&file, 30 * 1024, &[3; 3 * 1024]).unwrap();
    assert_eq!(taken(), sectors(3));
    assert_eq!(vol.statfs().blocks_free, free - 48);
    let punch = |block: u64, blocks: u64| {
        vol.fallocate(&file, FallocateMode::PunchHole, block * 1024, blocks * 1024).unwrap();
    };
    // One of the two blocks, at the left and at the right edge.
    punch(0, 9);
    assert_eq!(taken(), sectors(3));
    punch(10, 22);
    assert_eq!(taken(), sectors(2), "a whole cluster between two edges");
    punch(9, 1);
    assert_eq!(taken(), sectors(1));
    // A delayed block beside one that is punched keeps the cluster.
    vol.write(&file, 40 * 1024, &[4; 1024]).unwrap();
    punch(32, 1);
    assert_eq!(taken(), sectors(1));
    vol.truncate(&file, 40 * 1024).unwrap();
    assert_eq!(taken(), 0);
    assert_eq!(vol.statfs().blocks_free, free);
    bed.unmount_and_judge(vol, "clusters that went");
}

/// What moves data or promises blocks says that it does not on such a volume.
#[test]
fn what_clusters_do_not_have_is_refused() {
    if !require("what_clusters_do_not_have_is_refused", &[Need::E2fsck]) {
        return;
    }
    let bed = Bed::new(&with_ratio((4096, 16), 32), 1);
    let vol = bed.mount("sync=eager,alloc=hot_zones");
    let file = bed.file(&vol, 0);
    assert!(!vol.has_atomic_writes());
    for refused in [vol.begin_atomic(&file).map(drop), vol.relocate(&file).map(drop)] {
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("bigalloc"), "{said}");
    }
    bed.unmount_and_judge(vol, "nothing");
}
