//! Extended attributes: in the inode, in a block, shared blocks, ACLs, and as the kernel sees them.

use std::collections::BTreeMap;

use crate::bed::{Bed, MIB, owner};
use crate::tree::VolumeTree;
use syncline_fs::{Create, FsError, XattrFlags};
use syncline_testkit::{
    Compare, ImageSpec, KernelMount, Need, Random, TreeManifest, debugfs, require,
};

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&perm.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

#[test]
fn set_get_list_remove_and_errors() {
    if !require("set_get_list_remove_and_errors", &[Need::E2fsck]) {
        return;
    }
    let bed = Bed::new(&ImageSpec::with_size(32 * MIB), 0);
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let file = vol.create(&root, b"f", &owner()).unwrap();
    let set = |name: &str, value: &[u8], flags| vol.setxattr(&file, name.as_bytes(), value, flags);
    let get = |name: &str| vol.getxattr(&file, name.as_bytes());
    assert_eq!(get("user.a").unwrap_err(), FsError::NoData);
    set("user.a", b"1", XattrFlags::Create).unwrap();
    assert_eq!(set("user.a", b"2", XattrFlags::Create).unwrap_err(), FsError::Exists);
    set("user.a", b"22", XattrFlags::Replace).unwrap();
    assert_eq!(set("user.b", b"2", XattrFlags::Replace).unwrap_err(), FsError::NoData);
    assert_eq!(set("user.a", b"2", XattrFlags::CreateReplace).unwrap_err(), FsError::Exists);
    assert_eq!(set("user.b", b"2", XattrFlags::CreateReplace).unwrap_err(), FsError::NoData);
    assert_eq!(get("user.a").unwrap(), b"22");
    assert_eq!(vol.getattr(&file).blocks, 0, "in the inode");
    // Too large for the inode: a block comes, and goes.
    set("user.big", &[7; 3000], XattrFlags::Any).unwrap();
    set("security.empty", b"", XattrFlags::Any).unwrap();
    assert_eq!(vol.getattr(&file).blocks, 8);
    assert_eq!(get("user.big").unwrap(), [7; 3000]);
    assert_eq!(set("trusted.t", &[1; 2000], XattrFlags::Any).unwrap_err(), FsError::NoSpace);
    assert_eq!(vol.listxattr(&file).unwrap().len(), 3);
    set("user.big", b"small", XattrFlags::Any).unwrap();
    assert_eq!(vol.getattr(&file).blocks, 0, "back in the inode");
    vol.removexattr(&file, b"user.a").unwrap();
    assert_eq!(vol.removexattr(&file, b"user.a").unwrap_err(), FsError::NoData);
    assert!(matches!(set("user.", b"", XattrFlags::Any), Err(FsError::Invalid(_))));
    assert!(matches!(set("system.x", b"", XattrFlags::Any), Err(FsError::NotSupported(_))));
    assert!(matches!(set("odd.x", b"", XattrFlags::Any), Err(FsError::NotSupported(_))));
    let long = format!("user.{}", "x".repeat(251));
    assert_eq!(set(&long, b"", XattrFlags::Any).unwrap_err(), FsError::Range);
    let huge = vec![0; 65537];
    assert_eq!(set("user.h", &huge, XattrFlags::Any).unwrap_err(), FsError::ArgumentTooBig);
    let link = vol.symlink(&root, b"l", b"f", &owner()).unwrap();
    let on_link = vol.setxattr(&link, b"user.a", b"1", XattrFlags::Any);
    assert_eq!(on_link.unwrap_err(), FsError::Perm);
    vol.setxattr(&link, b"trusted.a", &[3; 500], XattrFlags::Any).unwrap();
    assert_eq!(vol.readlink(&link).unwrap(), b"f", "still a fast link");
    vol.unlink(&root, b"l").unwrap();
    drop((link, file, root));
    bed.unmount_and_judge(vol, "xattrs");
}

#[test]
fn random_changes_equal_a_map() {
    if !require("random_changes_equal_a_map", &[Need::E2fsck]) {
        return;
    }
    for seed in 0..4u64 {
        let spec = ImageSpec {
            block_size_bytes: if seed % 2 == 0 { 1024 } else { 4096 },
            inode_size_bytes: Some(if seed < 3 { 256 } else { 128 }),
            ..ImageSpec::with_size(32 * MIB)
        };
        let bed = Bed::new(&spec, 0);
        let vol = bed.mount("");
        let root = vol.root().unwrap();
        let file = vol.create(&root, b"f", &owner()).unwrap();
        let mut rng = Random::new(seed);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for step in 0..1500 {
            let prefix = ["user.", "trusted.", "security."][rng.below(3) as usize];
            let name = format!("{prefix}{}", "n".repeat(1 + rng.below(6) as usize)).into_bytes();
            if rng.below(3) == 0 {
                let removed = vol.removexattr(&file, &name);
                assert_eq!(removed.is_ok(), model.remove(&name).is_some(), "{seed} {step}");
            } else {
                let value = vec![step as u8; rng.below(400) as usize];
                match vol.setxattr(&file, &name, &value, XattrFlags::Any) {
                    Ok(()) => drop(model.insert(name, value)),
                    Err(error) => assert_eq!(error, FsError::NoSpace, "{seed} {step}"),
                }
            }
            if step % 50 == 0 {
                let mut listed = vol.listxattr(&file).unwrap();
                listed.sort();
                assert_eq!(listed, model.keys().cloned().collect::<Vec<_>>(), "{seed} {step}");
                for (name, value) in &model {
                    assert_eq!(&vol.getxattr(&file, name).unwrap(), value, "{seed} {step}");
                }
            }
        }
        drop((file, root));
        bed.unmount_and_judge(vol, &format!("seed {seed}"));
    }
}

#[test]
fn acls_are_stored_as_the_kernel_stores_them() {
    let test = "acls_are_stored_as_the_kernel_stores_them";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let none = u32::MAX;
    let access = acl(&[(1, 7, none), (2, 5, 1000), (4, 5, none), (0x10, 5, none), (0x20, 1, none)]);
    let plain = acl(&[(1, 6, none), (4, 4, none), (0x20, 0, none)]);
    let bed = Bed::new(&ImageSpec::with_size(32 * MIB), 0);
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let dir = vol.mkdir(&root, b"d", &Create { mode: 0o700, ..owner() }).unwrap();
    let (name, default) = (&b"system.posix_acl_access"[..], &b"system.posix_acl_default"[..]);
    vol.setxattr(&dir, name, &access, XattrFlags::Any).unwrap();
    vol.setxattr(&dir, default, &access, XattrFlags::Any).unwrap();
    assert_eq!(vol.getxattr(&dir, name).unwrap(), access);
    assert_eq!(vol.getattr(&dir).mode & 0o777, 0o751);
    let file = vol.create(&dir, b"f", &owner()).unwrap();
    vol.setxattr(&file, name, &plain, XattrFlags::Any).unwrap();
    assert_eq!(vol.getattr(&file).mode & 0o777, 0o640);
    assert_eq!(vol.getxattr(&file, name).unwrap_err(), FsError::NoData);
    assert!(vol.setxattr(&file, default, &access, XattrFlags::Any).is_err());
    assert!(vol.setxattr(&file, name, &access[..20], XattrFlags::Any).is_err());
    let ours = TreeManifest::from_source(&mut VolumeTree(&vol)).unwrap();
    drop((root, dir, file));
    bed.unmount_and_judge(vol, "ACLs");
    let kernel = KernelMount::new(bed.image.path(), "").unwrap();
    let theirs = TreeManifest::from_dir(kernel.path()).unwrap();
    ours.assert_same(&theirs, Compare::SAME_IMAGE, "ACLs as the kernel reads them");
}

#[test]
fn blocks_shared_by_the_kernel_are_copied_before_a_change() {
    let test = "blocks_shared_by_the_kernel_are_copied_before_a_change";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let mut bed = Bed::new(&ImageSpec::with_size(32 * MIB), 0);
    let kernel = KernelMount::new(bed.image.path(), "").unwrap();
    let mut tree = syncline_testkit::DirTree::new(kernel.path());
    use syncline_testkit::TreeSink;
    for n in 0..3 {
        let path = format!("f{n}").into_bytes();
        tree.create(&path, 0o644).unwrap();
        // Equal attributes: the kernel keeps one block for all three.
        tree.set_xattr(&path, b"user.same", &[5; 1000]).unwrap();
    }
    kernel.unmount().unwrap();
    let stat = debugfs(bed.image.path(), "stat f0\nstat f1\nstat f2\n");
    let acls: Vec<&str> = stat
        .split("File ACL: ")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    assert!(acls.len() == 3 && acls[0] == acls[1] && acls[0] != "0", "not shared: {stat}");
    bed.load();
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let f = |n: u8| vol.lookup(&root, &[b'f', b'0' + n]).unwrap();
    vol.setxattr(&f(1), b"user.same", &[6; 1000], XattrFlags::Any).unwrap();
    assert_eq!(vol.getxattr(&f(0), b"user.same").unwrap(), [5; 1000]);
    assert_eq!(vol.getxattr(&f(1), b"user.same").unwrap(), [6; 1000]);
    vol.removexattr(&f(2), b"user.same").unwrap();
    vol.unlink(&root, b"f0").unwrap();
    drop(root);
    bed.unmount_and_judge(vol, "shared xattr blocks");
}
