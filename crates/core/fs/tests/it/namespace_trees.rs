//! Whole trees: ours and the kernel's, written by one, read and changed by the other.

use crate::bed::{Bed, MIB};
use crate::tree::VolumeTree;
use syncline_testkit::{
    Compare, DirTree, ImageSpec, KernelMount, Need, TreeManifest, TreeOptions, apply, gen_changes,
    gen_tree, require,
};

fn options() -> TreeOptions {
    TreeOptions { names: 700, root: true, ..TreeOptions::default() }
}

#[test]
fn trees_survive_remounts_and_e2fsck() {
    if !require("trees_survive_remounts_and_e2fsck", &[Need::E2fsck]) {
        return;
    }
    for (seed, block_size_bytes) in [(1, 1024), (2, 2048), (3, 4096)] {
        let spec = ImageSpec { block_size_bytes, ..ImageSpec::with_size(96 * MIB) };
        let bed = Bed::new(&spec, 0);
        let vol = bed.mount("");
        apply(&gen_tree(seed, options()), &mut VolumeTree(&vol)).unwrap();
        let mut before = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
        bed.unmount_and_judge(vol, &format!("seed {seed}: writing a tree"));
        for round in 0..2 {
            let vol = bed.mount("");
            let now = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
            before.assert_same(&now, Compare::SAME_IMAGE, &format!("seed {seed} remount"));
            let ops = gen_changes(seed * 100 + round, &now, 200, options());
            apply(&ops, &mut VolumeTree(&vol)).unwrap();
            before = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
            bed.unmount_and_judge(vol, &format!("seed {seed} round {round}"));
        }
    }
}

#[test]
fn the_kernel_and_we_change_each_others_trees() {
    let test = "the_kernel_and_we_change_each_others_trees";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for (seed, block_size_bytes) in [(11, 1024), (12, 4096)] {
        let spec = ImageSpec { block_size_bytes, ..ImageSpec::with_size(96 * MIB) };
        let mut bed = Bed::new(&spec, 0);
        let mut vol = bed.mount("");
        apply(&gen_tree(seed, options()), &mut VolumeTree(&vol)).unwrap();
        for round in 0..2 {
            let ours = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
            bed.unmount_and_judge(vol, &format!("seed {seed} round {round}"));
            let kernel = KernelMount::new(bed.image.path(), "").unwrap();
            let theirs = TreeManifest::from_dir(kernel.path()).unwrap();
            ours.assert_same(&theirs, Compare::SAME_IMAGE, &format!("seed {seed} as the kernel"));
            let ops = gen_changes(seed * 100 + round, &theirs, 200, options());
            apply(&ops, &mut DirTree::new(kernel.path())).unwrap();
            let theirs = TreeManifest::from_dir(kernel.path()).unwrap();
            kernel.unmount().unwrap();
            bed.load();
            vol = bed.mount("");
            let ours = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
            theirs.assert_same(&ours, Compare::SAME_IMAGE, &format!("seed {seed} as we do"));
            let ops = gen_changes(seed * 100 + 50 + round, &ours, 200, options());
            apply(&ops, &mut VolumeTree(&vol)).unwrap();
        }
        bed.unmount_and_judge(vol, &format!("seed {seed} at the end"));
    }
}
