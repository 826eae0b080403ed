//! Hashes of names on a volume whose superblock does not say whether characters are signed: we and
//! Linux find each other's names, in every hash version.

use std::os::unix::ffi::OsStrExt;

use crate::bed::{Bed, MIB, owner};
use syncline_fs::Volume;
use syncline_testkit::{ImageSpec, KernelMount, Need, debugfs, require};

const NAMES: u64 = 400;

/// Names with bytes above 127, in UTF-8 and not; enough for an index of many leaves.
fn name(nr: u64) -> Vec<u8> {
    let mut name = format!("\u{e9}t\u{e9}-{nr}-\u{20ac}").into_bytes();
    name.extend([0xff, 0x80, (nr % 120) as u8 + 130]);
    name
}

fn fresh(version: u8) -> Bed {
    let spec = ImageSpec { block_size_bytes: 1024, ..ImageSpec::with_size(16 * MIB) };
    let bed = Bed::new(&spec, 0);
    without_flags(&bed, &format!("ssv def_hash_version {version}\n"));
    bed
}

fn without_flags(bed: &Bed, more: &str) {
    let said = debugfs(bed.image.path(), &format!("ssv flags 0\n{more}show_super_stats -h\n"));
    assert!(!said.contains("signed_directory_hash"), "{said}");
}

fn assert_all_found(vol: &Volume, dir: &str, what: &str) {
    let dir = vol.resolve(dir).unwrap();
    let lost: Vec<u64> = (0..NAMES).filter(|nr| vol.lookup(&dir, &name(*nr)).is_err()).collect();
    assert!(lost.is_empty(), "{what}: {} of {NAMES} are lost", lost.len());
    let report = vol.check(&mut |_| true).unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
}

#[test]
fn names_are_hashed_as_linux_does_where_no_flag_says_how() {
    let test = "names_are_hashed_as_linux_does_where_no_flag_says_how";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    for version in 0..=2 {
        let what = format!("hash version {version}");
        let mut bed = fresh(version);
        bed.load();
        let vol = bed.mount("");
        let dir = vol.mkdir(&vol.root().unwrap(), b"ours", &owner()).unwrap();
        for nr in 0..NAMES {
            vol.create(&dir, &name(nr), &owner()).unwrap();
        }
        drop(dir);
        bed.unmount_and_judge(vol, &what);
        let kernel = KernelMount::new(bed.image.path(), "").unwrap();
        let path = |dir: &str, nr: u64| {
            kernel.path().join(dir).join(std::ffi::OsStr::from_bytes(&name(nr)))
        };
        let lost = (0..NAMES).filter(|nr| !path("ours", *nr).exists()).count();
        assert_eq!(lost, 0, "{what}: names that Linux does not find");
        std::fs::create_dir(kernel.path().join("theirs")).unwrap();
        for nr in 0..NAMES {
            std::fs::write(path("theirs", nr), b"").unwrap();
        }
        kernel.unmount().unwrap();
        // What Linux has set is taken away again: readers and writers still hash as it does.
        without_flags(&bed, "");
        bed.load();
        for options in ["ro", ""] {
            let vol = bed.mount(options);
            assert_all_found(&vol, "theirs", &what);
            assert_all_found(&vol, "ours", &what);
            vol.unmount().unwrap();
        }
        let said = debugfs(bed.save(), "show_super_stats -h");
        assert!(said.contains("unsigned_directory_hash"), "{what}: {said}");
    }
}
