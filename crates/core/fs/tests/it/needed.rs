//! Features and fields of the superblock that Linux sets while it runs: set by us at the same
//! moments, durable together with what needs them, and as Linux leaves them.

use std::sync::Arc;

use syncline_fs::{FallocateMode, FsError, InodeRef, Volume, XattrFlags};
use syncline_testkit::{
    ImageSpec, KernelMount, Need, debugfs, e2fsck_clean, e2fsck_preen, require,
};

use crate::bed::{Bed, MIB};

const GIB: u64 = 1 << 30;
const MODES: [&str; 4] = ["sync=eager", "sync=ordered", "sync=periodic", "sync=eager,log=packed"];

/// The inode for resizing is above 2 GiB, too.
fn without(features: &str) -> ImageSpec {
    let features = format!("{features},^resize_inode");
    ImageSpec { features, ..ImageSpec::with_size(32 * MIB) }
}

fn features(bed: &Bed) -> String {
    let said = debugfs(bed.image.path(), "show_super_stats -h");
    let line = said.lines().find(|line| line.starts_with("Filesystem features:"));
    line.expect("debugfs shows the features").to_owned()
}

/// A call, and the feature that it needs.
type Call = (&'static str, &'static str, fn(&Volume, &InodeRef));

const CALLS: [Call; 6] = [
    ("ext_attr", "a small attribute", |vol, file| {
        vol.setxattr(file, b"user.a", b"1", XattrFlags::Any).unwrap();
    }),
    ("ext_attr", "a large attribute", |vol, file| {
        vol.setxattr(file, b"user.a", &[1; 2000], XattrFlags::Any).unwrap();
    }),
    ("ext_attr", "an ACL", |vol, file| {
        let entry = |tag: u16, id: u32| {
            [tag.to_le_bytes(), 5u16.to_le_bytes()]
                .concat()
                .into_iter()
                .chain(id.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let none = u32::MAX;
        let acl = [
            2u32.to_le_bytes().to_vec(),
            entry(1, none),
            entry(2, 1000),
            entry(4, none),
            entry(16, none),
            entry(32, none),
        ];
        vol.setxattr(file, b"system.posix_acl_access", &acl.concat(), XattrFlags::Any).unwrap();
    }),
    ("large_file", "a write behind 2 GiB", |vol, file| {
        vol.write(file, 2 * GIB, b"x").unwrap();
    }),
    ("large_file", "a longer size", |vol, file| vol.truncate(file, 2 * GIB).unwrap()),
    ("large_file", "an allocation behind 2 GiB", |vol, file| {
        vol.fallocate(file, FallocateMode::Allocate, 2 * GIB, 4096).unwrap();
    }),
];

#[test]
fn features_are_set_when_they_are_first_needed() {
    if !require("features_are_set_when_they_are_first_needed", &[Need::E2fsck]) {
        return;
    }
    for mode in MODES {
        for (feature, call, run) in CALLS {
            let what = format!("{mode}, {call}");
            let mut bed = Bed::new(&without(&format!("^{feature}")), 1);
            assert!(!features(&bed).contains(feature), "{what}: it is there already");
            let vol = bed.mount(mode);
            run(&vol, &bed.file(&vol, 0));
            bed.unmount_and_judge(vol, &what);
            assert!(features(&bed).contains(feature), "{what}: {}", features(&bed));
            bed.load();
            let vol = bed.mount("ro");
            assert!(vol.check(&mut |_| true).unwrap().is_clean(), "{what}");
        }
        // Just below the limit nothing is needed.
        let bed = Bed::new(&without("^large_file,^ext_attr"), 1);
        let vol = bed.mount(mode);
        vol.truncate(&bed.file(&vol, 0), 2 * GIB - 1).unwrap();
        bed.unmount_and_judge(vol, mode);
        let left = features(&bed);
        assert!(!left.contains("large_file") && !left.contains("ext_attr"), "{mode}: {left}");
    }
}

/// Two files need the feature in one transaction and the second alone is synced: what recovery
/// makes of that has the feature.
#[test]
fn a_feature_is_durable_with_whatever_needs_it() {
    if !require("a_feature_is_durable_with_whatever_needs_it", &[Need::E2fsck]) {
        return;
    }
    for mode in MODES {
        for (feature, call, run) in CALLS {
            let what = format!("{mode}, {call}");
            let bed = Bed::new(&without(&format!("^{feature}")), 3);
            let vol = bed.mount(mode);
            for nr in 0..2 {
                run(&vol, &bed.file(&vol, nr));
            }
            vol.fsync(&bed.file(&vol, 1), false).unwrap();
            let synced = bed.dev.snapshot();
            run(&vol, &bed.file(&vol, 2));
            vol.fsync(&bed.file(&vol, 2), false).unwrap();
            for (dev, file) in [(synced, "f1"), (bed.dev.snapshot(), "f2")] {
                let crashed =
                    Bed { dev: Arc::new(dev), ..Bed::new(&ImageSpec::with_size(32 * MIB), 0) };
                if mode.contains("packed") {
                    let vol = crashed.mount("");
                    crashed.unmount_and_judge(vol, &what);
                } else {
                    crashed.save();
                    e2fsck_preen(crashed.image.path()).unwrap();
                }
                e2fsck_clean(crashed.image.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
                if mode.contains("periodic") {
                    continue;
                }
                let left = features(&crashed);
                assert!(left.contains(feature), "{what}, {file}: {left}");
            }
        }
    }
}

/// Old volumes: revision 0, no number of mounts; and the size that Linux allows without
/// `huge_file`.
#[test]
fn an_old_superblock_becomes_what_linux_makes_of_it() {
    let test = "an_old_superblock_becomes_what_linux_makes_of_it";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let spec = ImageSpec {
        fs_type: "ext3",
        inode_size_bytes: Some(128),
        features: "^large_file,^ext_attr".into(),
        ..ImageSpec::with_size(32 * MIB)
    };
    let fields = |bed: &Bed| {
        let said = debugfs(bed.image.path(), "show_super_stats -h");
        let kept = ["Filesystem revision", "First inode", "Inode size", "Maximum mount", "flags:"];
        let lines = said.lines().filter(|line| kept.iter().any(|kept| line.contains(kept)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let old = || {
        let mut bed = Bed::new(&spec, 0);
        let set = "ssv rev_level 0\nssv max_mnt_count 0\nssv flags 0\n";
        let _ = debugfs(bed.image.path(), set);
        bed.load();
        bed
    };
    let theirs = old();
    KernelMount::new(theirs.image.path(), "").unwrap().unmount().unwrap();
    let ours = old();
    assert_ne!(fields(&ours), fields(&theirs));
    ours.mount("").unmount().unwrap();
    ours.judge("an old superblock");
    assert_eq!(fields(&ours), fields(&theirs));
    for block_size in [1024, 4096] {
        let spec = ImageSpec { block_size_bytes: block_size, ..without("^huge_file") };
        let bed = Bed::new(&spec, 1);
        let vol = bed.mount("");
        let file = bed.file(&vol, 0);
        let limit = u64::from(u32::MAX) * 512 / u64::from(block_size) * u64::from(block_size);
        assert_eq!(vol.truncate(&file, limit + 1), Err(FsError::TooBig));
        vol.truncate(&file, limit).unwrap();
        drop(file);
        bed.unmount_and_judge(vol, "the largest file");
        let kernel = KernelMount::new(bed.image.path(), "").unwrap();
        let file = std::fs::File::options().write(true).open(kernel.path().join("f0")).unwrap();
        assert!(file.set_len(limit + 1).is_err(), "Linux allows more");
        file.set_len(limit - 1).unwrap();
        file.set_len(limit).unwrap();
    }
}

/// Corruption that was found is noted in the superblock, as Linux does, so that e2fsck checks all
/// of a volume that says it is clean.
#[test]
fn corruption_is_noted_in_the_superblock() {
    if !require("corruption_is_noted_in_the_superblock", &[Need::E2fsck]) {
        return;
    }
    for (features, options) in
        [("", ""), ("^metadata_csum", ""), ("", "errors=continue"), ("", "log=packed")]
    {
        let what = format!("{features} {options}");
        let mut bed =
            Bed::new(&ImageSpec { features: features.into(), ..without("^large_file") }, 2);
        let _ = debugfs(bed.image.path(), "sif f0 block[0] 0x1234\n");
        bed.load();
        let vol = bed.mount(options);
        let broken = bed.file(&vol, 0);
        // Changes that are not committed stay away from the superblock in its place.
        vol.setxattr(&bed.file(&vol, 1), b"user.a", b"1", XattrFlags::Any).unwrap();
        let read = vol.write(&broken, 0, &[1; 10]).and_then(|_| vol.fsync(&broken, false));
        assert!(matches!(read, Err(FsError::Corrupt { .. })), "{what}: {read:?}");
        let ino = broken.ino;
        drop(broken);
        let unmounted = vol.unmount();
        assert_eq!(unmounted.is_ok(), options.contains("continue"), "{what}: {unmounted:?}");
        if options.contains("packed") {
            // Stock tools wait for our recovery, which keeps the note.
            bed.mount("").unmount().unwrap();
        }
        let said = debugfs(bed.save(), "show_super_stats -h");
        assert!(said.contains("with errors"), "{what}: {said}");
        assert!(said.contains("FS Error count:"), "{what}: {said}");
        assert!(said.contains(&format!("First error inode #:      {ino}")), "{what}: {said}");
        let _ = e2fsck_preen(bed.image.path());
        let repaired = debugfs(bed.image.path(), "show_super_stats -h");
        assert!(!repaired.contains("not clean with errors"), "{what}: {repaired}");
    }
}
