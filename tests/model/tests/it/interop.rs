//! A large tree goes back and forth between us and the running kernel: what one writes the other
//! reads back identically, changes, and gives back, twice around; e2fsck finds nothing in between.
//!
//! `SYNCLINE_INTEROP_NAMES`: names in the tree, default 2,000; `cargo xtask run model-long` has
//! 20,000.

use std::sync::Arc;

use syncline_device::{MemoryDevice, VirtualClock};
use syncline_fs::{MountOptions, Volume};
use syncline_model::{
    Compare, DirTree, ImageSpec, KernelMount, Need, TempImage, TreeManifest, TreeOp, TreeOptions,
    VolumeTree, apply, e2fsck_clean, gen_changes, gen_tree, mkfs, require,
};

const NEEDS: [Need; 3] = [Need::E2fsck, Need::Root, Need::Loop];

fn names() -> usize {
    let text = std::env::var("SYNCLINE_INTEROP_NAMES").unwrap_or_default();
    text.trim().parse().unwrap_or(2_000)
}

fn options(names: usize) -> TreeOptions {
    TreeOptions { names, root: true, file_bytes_max: 8 * 1024, ..TreeOptions::default() }
}

/// Mounts the image with us, does something, unmounts, stores it; e2fsck must be content.
fn with_us<R>(image: &TempImage, work: impl FnOnce(&mut VolumeTree) -> R) -> R {
    let device = Arc::new(MemoryDevice::load(image.path()).unwrap());
    let clock = Arc::new(VirtualClock::default());
    let volume = Volume::mount(device.clone(), clock, MountOptions::default()).unwrap();
    let done = work(&mut VolumeTree::new(volume.clone()));
    volume.unmount().unwrap();
    device.to_file(image.path()).unwrap();
    e2fsck_clean(image.path()).unwrap();
    done
}

/// The same with the kernel.
fn with_kernel<R>(image: &TempImage, work: impl FnOnce(&mut DirTree) -> R) -> R {
    let mount = KernelMount::new(image.path(), "").unwrap();
    let done = work(&mut DirTree::new(mount.path()));
    mount.unmount().unwrap();
    e2fsck_clean(image.path()).unwrap();
    done
}

fn we_read(image: &TempImage) -> TreeManifest {
    with_us(image, |tree| TreeManifest::from_source(tree).unwrap())
}

fn kernel_reads(image: &TempImage) -> TreeManifest {
    with_kernel(image, |tree| TreeManifest::from_source(tree).unwrap())
}

fn same_for_both(image: &TempImage, what: &str) -> TreeManifest {
    let (kernel, us) = (kernel_reads(image), we_read(image));
    kernel.assert_same(&us, Compare::SAME_IMAGE, what);
    us
}

fn we_write(image: &TempImage, ops: &[TreeOp]) {
    let written = with_us(image, |tree| {
        apply(ops, tree).unwrap();
        TreeManifest::from_source(tree).unwrap()
    });
    let kernel = kernel_reads(image);
    // Before write-back a hole beside delayed data may be another one.
    let compare = Compare { sparse_maps: false, ..Compare::SAME_IMAGE };
    written.assert_same(&kernel, compare, "as we wrote it and as the kernel reads it");
}

/// Both images are worked on at the same time: each step waits for the loop device or for e2fsck.
fn both<L: Send, R: Send>(
    left: impl FnOnce() -> L + Send,
    right: impl FnOnce() -> R + Send,
) -> (L, R) {
    std::thread::scope(|scope| {
        let left = scope.spawn(left);
        let right = right();
        (left.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), right)
    })
}

fn back_and_forth(seed: u64, spec: &ImageSpec, tree: TreeOptions) {
    let names = tree.names;
    println!("seed {seed}, {names} names, {} B blocks", spec.block_size_bytes);
    let ops = gen_tree(seed, tree);
    let (ours, theirs) = (mkfs(spec), mkfs(spec));
    let we = |image: &TempImage, ops: &[TreeOp], what: &str| {
        we_write(image, ops);
        same_for_both(image, what)
    };
    let kernel = |image: &TempImage, ops: &[TreeOp], what: &str| {
        with_kernel(image, |tree| apply(ops, tree).unwrap());
        same_for_both(image, what)
    };
    let (mut ours_now, mut theirs_now) = both(
        || we(&ours, &ops, "written by us"),
        || kernel(&theirs, &ops, "written by the kernel"),
    );
    assert!(ours_now.entries.len() >= names);
    let compare = Compare { mtimes: false, ..Compare::SAME_TREE };
    theirs_now.assert_same(&ours_now, compare, "the same tree by two writers");
    for round in 0..4_u64 {
        let change = |seed, now: &TreeManifest| {
            gen_changes(seed, now, names / 10, TreeOptions { names: 0, ..tree })
        };
        let ours_ops = change(seed + 100 + round, &ours_now);
        let theirs_ops = change(seed + 200 + round, &theirs_now);
        let (in_ours, in_theirs) =
            (format!("ours, round {round}"), format!("theirs, round {round}"));
        (ours_now, theirs_now) = if round % 2 == 0 {
            both(|| kernel(&ours, &ours_ops, &in_ours), || we(&theirs, &theirs_ops, &in_theirs))
        } else {
            both(|| we(&ours, &ours_ops, &in_ours), || kernel(&theirs, &theirs_ops, &in_theirs))
        };
    }
}

#[test]
fn a_large_tree_goes_back_and_forth() {
    if !require("a_large_tree_goes_back_and_forth", &NEEDS) {
        return;
    }
    let names = names();
    let spec = ImageSpec {
        inode_count: Some(names as u32 * 2),
        ..ImageSpec::with_size(((64 + names / 25) as u64) << 20)
    };
    back_and_forth(1, &spec, options(names));
}

/// Data and values in inodes: small files, small directories, large attributes.
#[test]
fn a_tree_in_inodes_goes_back_and_forth() {
    if !require("a_tree_in_inodes_goes_back_and_forth", &NEEDS) {
        return;
    }
    for (inode_size, block_size) in [(256, 1024), (512, 4096)] {
        let spec = ImageSpec {
            block_size_bytes: block_size,
            inode_size_bytes: Some(inode_size),
            features: "inline_data,ea_inode".to_owned(),
            inode_count: Some(8192),
            ..ImageSpec::with_size(64 << 20)
        };
        let file_bytes_max = u64::from(inode_size);
        let tree = TreeOptions { file_bytes_max, xattr_bytes_max: 9000, ..options(600) };
        back_and_forth(u64::from(inode_size), &spec, tree);
    }
}

/// Clusters of blocks: files with holes within them, and attributes with a cluster each.
#[test]
fn a_tree_in_clusters_goes_back_and_forth() {
    if !require("a_tree_in_clusters_goes_back_and_forth", &NEEDS) {
        return;
    }
    for (block_size, ratio) in [(1024, 16), (4096, 4)] {
        let spec = ImageSpec {
            block_size_bytes: block_size,
            cluster_size_bytes: Some(block_size * ratio),
            features: "bigalloc,inline_data,ea_inode".to_owned(),
            inode_count: Some(8192),
            ..ImageSpec::with_size(96 << 20)
        };
        let tree = TreeOptions { file_bytes_max: 80_000, xattr_bytes_max: 9000, ..options(600) };
        back_and_forth(u64::from(ratio), &spec, tree);
    }
}

#[test]
fn a_small_tree_in_small_blocks_goes_back_and_forth() {
    if !require("a_small_tree_in_small_blocks_goes_back_and_forth", &NEEDS) {
        return;
    }
    let spec = ImageSpec {
        block_size_bytes: 1024,
        features: "orphan_file".to_owned(),
        inode_count: Some(8192),
        ..ImageSpec::with_size(128 << 20)
    };
    back_and_forth(2, &spec, options(1400));
}
