//! Volumes that allocate clusters of blocks (`bigalloc`).

use std::path::Path;

use syncline_fs::Volume;
use syncline_testkit::{
    Compare, DirTree, ImageSpec, KernelMount, LoopDevice, Need, TreeManifest, TreeOptions,
    TreeSink, apply, e2fsck_clean, gen_changes, gen_tree, require,
};

use crate::bed::{Bed, MIB};
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
        let dev = std::sync::Arc::new(syncline_device::MemoryDevice::from_bytes(&damaged));
        let mounted = Volume::mount(dev, bed.clock.clone(), bed.parsed("ro"));
        assert!(mounted.is_err(), "{at:#x}: {value}");
    }
}
