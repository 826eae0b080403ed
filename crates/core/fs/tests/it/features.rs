//! Features that can only be read, one by one: read right, checked without a false alarm, refused
//! by name for writing. `inline_data` and `ea_inode` have files of their own.

use std::process::Command;
use std::sync::Arc;

use crate::bed::{Bed, MIB, contents};
use syncline_device::{BlockDevice, MemoryDevice};
use syncline_fs::{FsError, MountOptions, Volume, check_device};
use syncline_testkit::{
    ImageSpec, Need, TempImage, debugfs, e2fsck_clean, fill, mkfs, require, scratch_dir,
};

/// The first block of a file, as debugfs says.
fn first_block(bed: &Bed, file: &str) -> u64 {
    let said = debugfs(bed.image.path(), &format!("blocks {file}"));
    let number = said.split_whitespace().find_map(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("no block of {file}: {said}"))
}

#[test]
fn features_that_can_only_be_read_are_read_and_named() {
    if !require("features_that_can_only_be_read_are_read_and_named", &[Need::E2fsck]) {
        return;
    }
    let mut data = vec![0; 20_000];
    fill(1, 0, &mut data);
    let source = scratch_dir().join(format!("features-{}", std::process::id()));
    std::fs::create_dir_all(source.join("d")).unwrap();
    std::fs::write(source.join("f"), &data).unwrap();
    std::fs::write(source.join("g"), &data).unwrap();
    for (made, set) in [
        ("mmp", ""),
        ("quota", ""),
        ("project", ""),
        ("quota,project", ""),
        ("^extent,^64bit,^metadata_csum", "shared_blocks"),
        ("^extent,^64bit,^metadata_csum", "read-only"),
    ] {
        let what = format!("{made} {set}");
        let spec = ImageSpec {
            features: made.into(),
            contents: Some(source.clone()),
            ..ImageSpec::with_size(32 * MIB)
        };
        let mut bed = Bed::new(&spec, 0);
        if set == "shared_blocks" {
            let block = first_block(&bed, "f");
            let share = format!(
                "write /dev/null h\nsif h block[0] {block}\nsif h size 4096\nsif h blocks 8\n"
            );
            let _ = debugfs(bed.image.path(), &share);
        }
        if !set.is_empty() {
            let _ = debugfs(bed.image.path(), &format!("feature {set}\n"));
        }
        // mke2fs does not count files for quotas; with MMP e2fsck waits for seconds.
        if !made.contains("quota") && made != "mmp" {
            e2fsck_clean(bed.image.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
        }
        bed.load();
        let vol = bed.mount("ro");
        for name in ["f", "g"] {
            assert!(contents(&vol, &vol.resolve(name).unwrap()) == data, "{what}: {name}");
        }
        if set == "shared_blocks" {
            let shared = contents(&vol, &vol.resolve("h").unwrap());
            assert!(shared == data[..4096], "{what}");
        }
        let report = vol.check(&mut |_| true).unwrap();
        let uncounted = |name| made.contains("quota") && name == "quota-usage";
        let rest = report.findings.iter().filter(|finding| !uncounted(finding.name));
        assert!(rest.count() == 0 && !report.stopped, "{what}: {:#?}", report.findings);
        let device: Arc<dyn BlockDevice> = bed.dev.clone();
        let refused = Volume::mount(device, bed.clock.clone(), MountOptions::default());
        let said = refused.err().unwrap().to_string();
        let name = if set.is_empty() { made.split(',').next().unwrap() } else { set };
        assert!(said.contains(name), "{what}: {said}");
    }
    std::fs::remove_dir_all(source).unwrap();
}

/// Answers of a check, each with e2fsck's: 8 if it does not check such a file system.
fn answers(image: &TempImage, bytes: &[u8]) -> (u8, i32) {
    std::fs::write(image.path(), bytes).unwrap();
    let e2fsck = Command::new("e2fsck").arg("-fn").arg(image.path()).output().unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(bytes));
    let ours = match check_device(&device, &mut |_| true) {
        Ok(report) if report.is_clean() => 0,
        Ok(_) => 4,
        Err(FsError::Unsupported(_)) => 8,
        Err(err) => panic!("{err}"),
    };
    let said = String::from_utf8([e2fsck.stdout, e2fsck.stderr].concat()).unwrap();
    let refused = said.contains("newer version");
    (ours, if refused { 8 } else { e2fsck.status.code().unwrap() & 4 })
}

/// Each bit of the feature sets, set alone in a sound image, and an encoding that does not exist:
/// e2fsck says "Get a newer version", and a check must not call clean what no e2fsck reads.
#[test]
fn a_check_refuses_the_features_that_e2fsck_refuses() {
    if !require("a_check_refuses_the_features_that_e2fsck_refuses", &[Need::E2fsck]) {
        return;
    }
    let features = "^metadata_csum,^has_journal".into();
    let image = mkfs(&ImageSpec { features, ..ImageSpec::with_size(8 * MIB) });
    let sound = image.bytes();
    let mut differ = Vec::new();
    for (class, offset) in [("compat", 0x5c), ("incompat", 0x60), ("ro_compat", 0x64)] {
        for bit in 0..32 {
            let (at, flag) = (1024 + offset + bit / 8, 1 << (bit % 8));
            let mut bytes = sound.clone();
            bytes[at] |= flag;
            // The encoding, for `casefold`.
            bytes[1024 + 0x27c] = 1;
            let (ours, theirs) = answers(&image, &bytes);
            if sound[at] & flag == 0 && (ours == 8) != (theirs == 8) {
                differ.push(format!("{class} {:#x}: {ours} {theirs}", 1_u32 << bit));
            }
        }
    }
    // e2fsck says in other words that a journal's device holds no files; `packed_log` is ours.
    assert_eq!(differ, ["incompat 0x8: 8 0", "incompat 0x20000000: 0 8"]);
    let features = "^metadata_csum,casefold".into();
    let image = mkfs(&ImageSpec { features, ..ImageSpec::with_size(8 * MIB) });
    let mut bytes = image.bytes();
    bytes[1024 + 0x27c] = 0;
    assert_eq!(answers(&image, &bytes), (8, 8), "an encoding");
}
