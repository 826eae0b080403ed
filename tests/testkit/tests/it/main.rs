//! The test support against itself, on a kernel: a generated tree is written, read back, judged,
//! changed twice, and written a second time.

use syncline_testkit::{
    Compare, DirTree, ImageSpec, KernelMount, Need, TreeManifest, TreeOptions, apply, e2fsck_clean,
    gen_changes, gen_tree, mkfs, require,
};

const NEEDS: [Need; 3] = [Need::E2fsck, Need::Root, Need::Loop];

fn read(mount: &KernelMount) -> TreeManifest {
    TreeManifest::from_dir(mount.path()).unwrap()
}

#[test]
fn a_generated_tree_lives_on_a_kernel_volume() {
    if !require("a_generated_tree_lives_on_a_kernel_volume", &NEEDS) {
        return;
    }
    for (seed, block_size_bytes) in [(1, 1024), (2, 4096)] {
        println!("seed {seed}, {block_size_bytes} B blocks");
        let spec = ImageSpec {
            block_size_bytes,
            inode_count: Some(8192),
            ..ImageSpec::with_size(128 << 20)
        };
        let options = TreeOptions { names: 1500, root: true, ..TreeOptions::default() };
        let ops = gen_tree(seed, options);
        let (image, twin) = (mkfs(&spec), mkfs(&spec));
        let mut before = TreeManifest::default();
        for round in 0..3_u64 {
            let mount = KernelMount::new(image.path(), "").unwrap();
            let found = read(&mount);
            if round > 0 {
                before.assert_same(&found, Compare::SAME_IMAGE, "after remount");
            }
            let ops = match round {
                0 => ops.clone(),
                _ => gen_changes(seed + 100 * round, &found, 300, options),
            };
            apply(&ops, &mut DirTree::new(mount.path())).unwrap();
            before = read(&mount);
            mount.unmount().unwrap();
            e2fsck_clean(image.path()).unwrap();
            if round == 0 {
                assert!(before.entries.len() >= 1500);
                let other = KernelMount::new(twin.path(), "").unwrap();
                apply(&ops, &mut DirTree::new(other.path())).unwrap();
                // Times that the operations did not set are those of the two runs.
                let compare = Compare { mtimes: false, ..Compare::SAME_TREE };
                before.assert_same(&read(&other), compare, "written twice");
            }
        }
    }
}
