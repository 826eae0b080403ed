//! Values of attributes in inodes of their own (`ea_inode`): what Linux writes is read as Linux
//! reads it, checked as e2fsck checks it, and damage is found.

use std::path::Path;
use std::sync::Arc;

use crate::bed::{Bed, MIB};
use crate::tree::VolumeTree;
use syncline_device::BlockDevice;
use syncline_fs::{FsError, MountOptions, Volume};
use syncline_testkit::{
    Compare, DirTree, ImageSpec, KernelMount, LoopDevice, Need, TreeManifest, TreeSink, debugfs,
    e2fsck_clean, fill, require,
};

fn spec(block_size: u32, inode_size: u32, features: &str) -> ImageSpec {
    ImageSpec {
        block_size_bytes: block_size,
        inode_size_bytes: Some(inode_size),
        features: format!("ea_inode{features}"),
        ..ImageSpec::with_size(32 * MIB)
    }
}

fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(seed, 0, &mut bytes);
    bytes
}

/// Files and directories with values in the inode, in a block, in inodes, and of both; equal ones,
/// which Linux keeps once.
fn fill_by_the_kernel(at: &Path) {
    let mut tree = DirTree::new(at);
    for (nr, len) in [1, 100, 900, 2000, 4096, 5000, 40_000, 65_536].into_iter().enumerate() {
        let name = format!("f{len}").into_bytes();
        tree.create(&name, 0o644).unwrap();
        tree.write(&name, 0, &value(1, 100 * nr)).unwrap();
        tree.set_xattr(&name, b"user.one", &value(len as u64, len)).unwrap();
        tree.set_xattr(&name, b"user.same", &value(9, 3000)).unwrap();
        tree.set_xattr(&name, b"user.small", b"s").unwrap();
        tree.set_xattr(&name, "trusted.h\u{e9}".as_bytes(), &value(7, 6000)).unwrap();
        for more in 0..nr {
            let attr = format!("security.more-{more}");
            tree.set_xattr(&name, attr.as_bytes(), &value((nr * 8 + more) as u64, 5000 + more))
                .unwrap();
        }
    }
    tree.mkdir(b"d", 0o755).unwrap();
    tree.set_xattr(b"d", b"user.one", &value(3, 10_000)).unwrap();
    // A value that is gone, and one that became small.
    tree.create(b"gone", 0o644).unwrap();
    tree.set_xattr(b"gone", b"user.one", &value(4, 10_000)).unwrap();
    tree.unlink(b"gone").unwrap();
    tree.set_xattr(b"f900", b"user.one", b"small again").unwrap();
}

fn findings(vol: &Volume) -> Vec<String> {
    vol.check(&mut |_| true).unwrap().findings.iter().map(ToString::to_string).collect()
}

#[test]
fn values_that_the_kernel_keeps_in_inodes_are_read() {
    let test = "values_that_the_kernel_keeps_in_inodes_are_read";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for (block_size, inode_size, features) in [
        (1024, 256, ""),
        (4096, 256, ""),
        (4096, 128, ",^metadata_csum"),
        (4096, 256, ",inline_data"),
    ] {
        let what = format!("blocks of {block_size}, inodes of {inode_size}{features}");
        let mut bed = Bed::new(&spec(block_size, inode_size, features), 0);
        let kernel = KernelMount::new(bed.image.path(), "").unwrap();
        fill_by_the_kernel(kernel.path());
        kernel.unmount().unwrap();
        e2fsck_clean(bed.image.path()).unwrap();
        bed.load();
        let vol = bed.mount("ro");
        let ours = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
        let found = findings(&vol);
        assert!(found.is_empty(), "{what}: {found:#?}");
        let device = LoopDevice::attach_read_only(bed.image.path()).unwrap();
        let kernel = device.mount("ro").unwrap();
        let theirs = TreeManifest::from_dir(kernel.path()).unwrap();
        ours.assert_same(&theirs, Compare::SAME_IMAGE, &what);
        let writable: Arc<dyn BlockDevice> = bed.dev.clone();
        let refused = Volume::mount(writable, bed.clock.clone(), MountOptions::default());
        assert!(refused.err().unwrap().to_string().contains("ea_inode"));
    }
}

/// One file with one value in an inode, and the number of that inode.
fn one_value(bed: &mut Bed) -> u32 {
    let kernel = KernelMount::new(bed.image.path(), "").unwrap();
    let mut tree = DirTree::new(kernel.path());
    tree.create(b"f", 0o644).unwrap();
    tree.set_xattr(b"f", b"user.v", &value(5, 10_000)).unwrap();
    kernel.unmount().unwrap();
    bed.load();
    let vol = bed.mount("ro");
    let file = vol.resolve("f").unwrap().ino;
    // The only inodes of files are these two.
    let last = vol.resolve("lost+found").unwrap().ino;
    (last + 1..last + 9)
        .find(|ino| *ino != file && vol.iget(*ino).is_ok_and(|i| vol.getattr(&i).size == 10_000))
        .expect("the value has an inode")
}

#[test]
fn damaged_values_are_refused_and_found() {
    let test = "damaged_values_are_refused_and_found";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let damages = [
        ("sif <N> atime @0x12345678", "the hash of the value", true),
        ("sif <N> size 20000", "its size", true),
        ("sif <N> flags 0x80000", "no flag of a value", true),
        ("sif <N> version 7", "the count of users", false),
        ("ln <N> name", "a name for it", false),
    ];
    for (damage, what, unreadable) in damages {
        let mut bed = Bed::new(&spec(4096, 256, ""), 0);
        let ino = one_value(&mut bed);
        let _ = debugfs(bed.image.path(), &damage.replace("<N>", &format!("<{ino}>")));
        // e2fsck compares neither sizes nor names; Linux does.
        let judged = e2fsck_clean(bed.image.path());
        let unknown = ["its size", "a name for it"].contains(&what);
        assert!(judged.is_err() || unknown, "{what}: e2fsck is content");
        bed.load();
        let vol = bed.mount("ro,errors=continue");
        assert!(!findings(&vol).is_empty(), "{what}");
        let file = vol.resolve("f").unwrap();
        assert_eq!(vol.listxattr(&file).unwrap(), [b"user.v"], "{what}");
        let read = vol.getxattr(&file, b"user.v");
        assert_eq!(matches!(read, Err(FsError::Corrupt { .. })), unreadable, "{what}: {read:?}");
        if damage.starts_with("ln") {
            assert!(matches!(vol.resolve("name"), Err(FsError::Corrupt { .. })));
        }
    }
}

/// Old Lustre wrote neither a hash nor a count, but the number and generation of the file.
#[test]
fn values_of_old_lustre_are_read() {
    let test = "values_of_old_lustre_are_read";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let mut bed = Bed::new(&spec(4096, 256, ",^metadata_csum"), 0);
    let ino = one_value(&mut bed);
    let file = bed.mount("ro").resolve("f").unwrap().ino;
    let lustre = format!(
        "sif <{ino}> atime @0x1234\nsif <{ino}> mtime @{file}\nsif <{ino}> generation 77\n\
         sif <{file}> generation 77\nsif <{ino}> version 1\nsif <{ino}> ctime @0\n\
         sif <{file}> blocks 0\n"
    );
    let _ = debugfs(bed.image.path(), &lustre);
    e2fsck_clean(bed.image.path()).unwrap();
    bed.load();
    let vol = bed.mount("ro");
    let inode = vol.resolve("f").unwrap();
    assert_eq!(vol.getxattr(&inode, b"user.v").unwrap(), value(5, 10_000));
    assert_eq!(findings(&vol), Vec::<String>::new());
    let device = LoopDevice::attach_read_only(bed.image.path()).unwrap();
    let kernel = device.mount("ro").unwrap();
    let theirs = TreeManifest::from_dir(kernel.path()).unwrap();
    let ours = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
    ours.assert_same(&theirs, Compare::SAME_IMAGE, "as Linux reads it");
}
